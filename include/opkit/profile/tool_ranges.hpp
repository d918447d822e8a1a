// ToolRanges: reports spans, as they begin and end, to a tool outside of the process: NVIDIA's by
// NVTX, Intel's by ITT. opkit links neither library: a tool starts the process with an environment
// variable that names the tool's library.
#ifndef OPKIT_PROFILE_TOOL_RANGES_HPP_
#define OPKIT_PROFILE_TOOL_RANGES_HPP_

#include <string>

#include "opkit/base/platform.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A tool that receives ranges, which nest on each thread. The object lives as long as the process.
// Thread-safe.
class ToolRanges {
 public:
  // Returns the tools that watch this process, loaded once, at the first call; null if there are
  // none. Reports a library that cannot be loaded on stderr.
  static const ToolRanges* Global();
  // Loads a tool from its library. NVTX_INJECTION64_PATH names the library of NVTX, which has the
  // symbol InitializeInjectionNvtx2. INTEL_LIBITTNOTIFY64 names the library of ITT, which has
  // __itt_api_init or the functions themselves. Throws kNotFound with the name of the missing
  // library or symbol.
  static const ToolRanges* LoadNvtx(const std::string& library);
  static const ToolRanges* LoadItt(const std::string& library);

  virtual void Push(const std::string& name) const = 0;
  virtual void Pop() const = 0;

 protected:
  ~ToolRanges() = default;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/tool_ranges.ipp"
#endif

#endif  // OPKIT_PROFILE_TOOL_RANGES_HPP_
