// Definitions of Topology's members, with the reader of its JSON.
#ifndef OPKIT_CLUSTER_IMPL_TOPOLOGY_IPP_
#define OPKIT_CLUSTER_IMPL_TOPOLOGY_IPP_

#include <algorithm>

#include "opkit/base/error.hpp"
#include "opkit/base/function_ref.hpp"
#include "opkit/base/json/json_line_reader.hpp"
#include "opkit/base/output_file.hpp"
#include "opkit/cluster/topology.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Reads a topology, whose JSON has objects, numbers and lists only.
class TopologyReader {
 public:
  explicit TopologyReader(const std::string& text) : text_(text), json_(text) {}

  Topology Read() {
    Topology topology;
    ReadObject([&](const std::string& key) {
      if (key == "processes_per_host")
        topology.processes_per_host = ReadProcess(1);
      else if (key == "within_host")
        topology.within_host = ReadCost();
      else if (key == "between_hosts")
        topology.between_hosts = ReadCost();
      else if (key == "links")
        ReadLinks(&topology);
      else
        Fail("processes_per_host, within_host, between_hosts or links", key);
    });
    SkipSpace();
    if (!json_.rest().empty()) Fail("the end");
    return topology;
  }

 private:
  void SkipSpace() {
    while (json_.Skip(" ") || json_.Skip("\n") || json_.Skip("\t") || json_.Skip("\r")) {
    }
  }
  bool Take(std::string_view token) {
    SkipSpace();
    return json_.Skip(token);
  }
  void Expect(std::string_view token) {
    if (!Take(token)) Fail(StrCat("'", token, "'"));
  }
  [[noreturn]] void Fail(std::string_view expected) const {
    Fail(expected, json_.rest().substr(0, 20));
  }
  [[noreturn]] void Fail(std::string_view expected, std::string_view found) const {
    const size_t at = text_.size() - json_.rest().size();
    const auto line =
        std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    Throw(ErrorCode::kInvalidArgument, "line ", line + 1, " of the topology: expected ", expected,
          ", found '", found, "'");
  }
  void ReadObject(FunctionRef<void(const std::string&)> read_member) {
    Expect("{");
    if (Take("}")) return;
    do {
      std::string key;
      SkipSpace();
      if (!json_.ReadString(&key)) Fail("a name in quotes");
      Expect(":");
      read_member(key);
    } while (Take(","));
    Expect("}");
  }
  double ReadNumber(double least) {
    SkipSpace();
    const JsonLineReader before = json_;
    double value = 0;
    if (!json_.ReadNumber(&value) || value < least) {
      json_ = before;
      Fail(StrCat("a number from ", least, " on"));
    }
    return value;
  }
  int ReadProcess(int least) {
    const JsonLineReader before = json_;
    const double value = ReadNumber(least);
    if (value > 1e6 || value != static_cast<int>(value)) {
      json_ = before;
      Fail("a whole number up to 1000000");
    }
    return static_cast<int>(value);
  }
  void ReadCostMember(const std::string& key, LinkCost* cost) {
    // A rate of 0 would take for ever.
    const auto per_byte = [&] { return 1 / (1e9 * ReadNumber(1e-9)); };
    if (key == "latency_us")
      cost->latency = ReadNumber(0) / 1e6;
    else if (key == "gigabytes_per_s")
      cost->seconds_per_byte = per_byte();
    else if (key == "reduction_gigabytes_per_s")
      cost->reduction_per_byte = per_byte();
    else
      Fail("latency_us, gigabytes_per_s or reduction_gigabytes_per_s", key);
  }
  LinkCost ReadCost() {
    LinkCost cost;
    ReadObject([&](const std::string& key) { ReadCostMember(key, &cost); });
    return cost;
  }
  void ReadLinks(Topology* topology) {
    Expect("[");
    if (Take("]")) return;
    do {
      int one = -1, other = -1;
      LinkCost cost;
      ReadObject([&](const std::string& key) {
        if (key != "between") return ReadCostMember(key, &cost);
        Expect("[");
        one = ReadProcess(0);
        Expect(",");
        other = ReadProcess(0);
        Expect("]");
      });
      if (one < 0 || one == other) Fail("a link with \"between\": two different processes");
      topology->links[std::minmax(one, other)] = cost;
    } while (Take(","));
    Expect("]");
  }

  const std::string& text_;
  JsonLineReader json_;
};

inline LinkCost Slowest(const LinkCost& a, const LinkCost& b) {
  return {(std::max)(a.latency, b.latency), (std::max)(a.seconds_per_byte, b.seconds_per_byte),
          (std::max)(a.reduction_per_byte, b.reduction_per_byte)};
}

}  // namespace detail

OPKIT_INLINE LinkCost Topology::Between(int one, int other) const {
  if (one == other) return {};
  if (const auto link = links.find(std::minmax(one, other)); link != links.end())
    return link->second;
  return one / processes_per_host == other / processes_per_host ? within_host : between_hosts;
}
OPKIT_INLINE LinkCost Topology::OfRing(const std::vector<int>& processes) const {
  LinkCost cost;
  for (size_t i = 0; i < processes.size(); ++i)
    cost = detail::Slowest(cost, Between(processes[i], processes[(i + 1) % processes.size()]));
  return cost;
}
OPKIT_INLINE Topology Topology::Parse(const std::string& json) {
  return detail::TopologyReader(json).Read();
}
OPKIT_INLINE Topology Topology::Load(const std::string& path) {
  const std::string text = detail::ReadFileIfPresent(path);
  if (text.empty()) Throw(ErrorCode::kIo, "cannot read '", path, "': it is missing or empty");
  try {
    return Parse(text);
  } catch (...) {
    detail::RethrowInContext(StrCat("while reading '", path, "'"));
  }
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_TOPOLOGY_IPP_
