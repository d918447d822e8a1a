// Definitions of MachineKey.
#ifndef OPKIT_GRAPH_TUNE_IMPL_MACHINE_KEY_IPP_
#define OPKIT_GRAPH_TUNE_IMPL_MACHINE_KEY_IPP_

#include "opkit/base/platform.hpp"
#include "opkit/base/strings.hpp"
#include "opkit/graph/tune/machine_key.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the value of a line "name : value" of the first processor; empty without such a line.
inline std::string_view CpuInfoValue(std::string_view cpuinfo, std::string_view name) {
  while (!cpuinfo.empty() && cpuinfo.front() != '\n') {  // an empty line ends the processor
    const size_t end = cpuinfo.find('\n');
    std::string_view line = cpuinfo.substr(0, end);
    cpuinfo = end == cpuinfo.npos ? std::string_view() : cpuinfo.substr(end + 1);
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    const size_t colon = line.find_first_not_of(" \t");
    if (colon == line.npos || line[colon] != ':') continue;  // a longer name
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    if (value != line.npos) return line.substr(value);
  }
  return {};
}

OPKIT_INLINE std::string ProcessorName(std::string_view cpuinfo) {
  // An x86 processor has a name; its numbers differ where virtual machines hide it. An Arm
  // processor has only numbers.
  constexpr struct {
    std::string_view line, prefix;
  } kParts[] = {{"model name", ""},          {"cpu family", ", family "}, {"model", " model "},
                {"stepping", " stepping "},  {"CPU implementer", "arm "}, {"CPU part", " part "},
                {"CPU variant", " variant "}};
  constexpr std::string_view kSets[] = {
      "sse4_2",   "avx",      "f16c",        "fma",         "avx2",        "avx_vnni",
      "avx512f",  "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
      "amx_int8", "amx_bf16", "amx_fp16",    "asimd",       "asimdhp",     "asimddp",
      "i8mm",     "bf16",     "sve",         "sve2",        "sme"};
  std::string name;
  for (const auto& part : kParts)
    if (const std::string_view value = CpuInfoValue(cpuinfo, part.line); !value.empty())
      (name += part.prefix) += value;
  if (name.empty()) name = "unknown processor";
  name += ';';
  std::string flags(" ");
  for (const std::string_view line : {"flags", "Features"})
    (flags += CpuInfoValue(cpuinfo, line)) += ' ';
  for (const std::string_view set : kSets)
    if (flags.find(StrCat(" ", set, " ")) != flags.npos) (name += ' ') += set;
  return name;
}

}  // namespace detail

OPKIT_INLINE std::string MachineKey(int threads, std::string_view device) {
  // The first processor fits. More would cost time: the system computes a text for each.
  std::string cpuinfo(16384, '\0');
  cpuinfo.resize(detail::ReadStartOfFile("/proc/cpuinfo", cpuinfo.data(), cpuinfo.size()));
  std::string key = detail::ProcessorName(cpuinfo);
  key += "; processors";
  int first = -1, last = -2;  // the present range
  const auto append_range = [&] {
    if (first < 0) return;
    key += StrCat(key.ends_with('s') ? " " : ",", first);
    if (last > first) key += StrCat("-", last);
  };
  detail::VisitAvailableCpus([&](int cpu) {
    if (cpu != last + 1) {
      append_range();
      first = cpu;
    }
    last = cpu;
  });
  append_range();
  if (first < 0) key += StrCat(" ", detail::AvailableCpus(), " of many");
  if (threads > 0) key += StrCat("; threads ", threads);
  if (!device.empty()) key += StrCat("; device ", device);
  return key;
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_TUNE_IMPL_MACHINE_KEY_IPP_
