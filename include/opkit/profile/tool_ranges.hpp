// ToolRanges: spans told, as they begin and end, to a tool that watches the process from outside:
// NVIDIA's by NVTX, Intel's by ITT. Neither library is linked: the tool names its own in the
// environment of what it starts.
#ifndef OPKIT_PROFILE_TOOL_RANGES_HPP_
#define OPKIT_PROFILE_TOOL_RANGES_HPP_

#include <string>

#include "opkit/base/platform.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Ranges nest on each thread. A tool's object lives as long as the process. Thread-safe.
class ToolRanges {
 public:
  // The tools that watch this process, loaded at the first call, each once; null where none does.
  // A library that cannot be loaded is reported to stderr.
  static const ToolRanges* OfProcess();
  // The tool whose library this is. NVTX: what NVTX_INJECTION64_PATH names, with the symbol
  // InitializeInjectionNvtx2; ITT: what INTEL_LIBITTNOTIFY64 names, with __itt_api_init or the
  // functions themselves. Error (kNotFound) that says what is missing.
  static const ToolRanges* LoadNvtx(const std::string& library);
  static const ToolRanges* LoadItt(const std::string& library);

  virtual void Push(const std::string& name) const = 0;
  virtual void Pop() const = 0;

 protected:
  ~ToolRanges() = default;
};

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/tool_ranges.ipp"
#endif

#endif  // OPKIT_PROFILE_TOOL_RANGES_HPP_
