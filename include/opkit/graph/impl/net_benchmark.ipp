// NetBenchmark's definitions: the sums by operator type, and the table.
#ifndef OPKIT_GRAPH_IMPL_NET_BENCHMARK_IPP_
#define OPKIT_GRAPH_IMPL_NET_BENCHMARK_IPP_

#include <algorithm>
#include <charconv>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/strings.hpp"
#include "opkit/graph/net_benchmark.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline std::string Fixed(double value, int digits) {
  char buffer[64];  // std::to_chars ignores the program's locale
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, digits);
  return end.ec == std::errc() ? std::string(buffer, end.ptr) : StrCat(value);
}

}  // namespace detail

OPKIT_INLINE void NetBenchmark::SumUp() {
  double total = 0;
  for (const NetBenchmark::Row& row : nodes) total += row.ms;
  types.clear();
  for (NetBenchmark::Row& row : nodes) {
    row.share = total > 0 ? row.ms / total : 0;
    auto sum = std::find_if(types.begin(), types.end(),
                            [&](const NetBenchmark::Row& type) { return type.op == row.op; });
    if (sum == types.end()) sum = types.insert(sum, {.op = row.op, .name = "", .count = 0});
    ++sum->count;
    sum->ms += row.ms;
    sum->share += row.share;
    sum->flops += row.flops;
    sum->bytes += row.bytes;
  }
  detail::StableSort(types, [](auto& a, auto& b) { return a.ms > b.ms; });
}

OPKIT_INLINE std::string ToString(const NetBenchmark& benchmark) {
  using detail::Fixed;
  std::vector<std::vector<std::string>> table{{"node", "op", "ms", "share", "GFLOP/s", "GB/s"}};
  const auto add = [&](const NetBenchmark::Row& row, std::string node, const std::string& more) {
    table.push_back({std::move(node), row.op + more, Fixed(row.ms, 4),
                     Fixed(row.share * 100, 1) + "%", row.flops > 0 ? Fixed(row.gflops(), 2) : "-",
                     row.bytes > 0 ? Fixed(row.gigabytes(), 2) : "-"});
  };
  for (const NetBenchmark::Row& row : benchmark.nodes)
    add(row, std::to_string(row.node), row.name.empty() ? "" : " '" + row.name + "'");
  table.push_back({});
  for (const NetBenchmark::Row& row : benchmark.types) add(row, "", StrCat(" x", row.count));
  std::vector<size_t> widths(table[0].size(), 0);
  for (const auto& line : table)
    for (size_t c = 0; c < line.size(); ++c) widths[c] = (std::max)(widths[c], line[c].size());
  std::string out;
  for (const auto& line : table) {
    for (size_t c = 0; c < line.size(); ++c) {
      const std::string fill(widths[c] - line[c].size(), ' ');
      out += (c ? "  " : "") + (c == 1 ? line[c] + fill : fill + line[c]);
    }
    out += "\n";
  }
  return StrCat(out, "\nnet: ", Fixed(benchmark.net_ms, 4), " ms, the median of ", benchmark.runs,
                " runs\n");
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_NET_BENCHMARK_IPP_
