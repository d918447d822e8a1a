// MachineKey: a text for the machine and the part of it that this process uses. Times that were
// measured under one key say nothing about another (tuning_cache.hpp).
#ifndef OPKIT_GRAPH_TUNE_MACHINE_KEY_HPP_
#define OPKIT_GRAPH_TUNE_MACHINE_KEY_HPP_

#include <string>
#include <string_view>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the processor's model and those of its instruction sets that kernels are written for,
// from the text of /proc/cpuinfo: "AMD EPYC 7B13, family 25 model 1 stepping 0; avx avx2 f16c fma".
// Reads the first processor only.
std::string ProcessorName(std::string_view cpuinfo);

}  // namespace detail

// Returns the processor's model and instruction sets and the numbers of the processors that the
// calling thread may use, then `threads`, if above 0, and `device`, a text for a device and its
// driver, if given: "AMD EPYC 7B13, …; avx avx2 …; processors 0-3,8; threads 2; device …". Costs
// about 0.1 ms. The versions of libraries such as oneDNN are not part of it.
std::string MachineKey(int threads = 0, std::string_view device = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/tune/impl/machine_key.ipp"
#endif

#endif  // OPKIT_GRAPH_TUNE_MACHINE_KEY_HPP_
