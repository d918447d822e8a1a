// The headers of an ELF file: whether it is a shared object for this machine, which symbols it
// exports, and which would keep it in the process. Read before the loader sees the file, from bytes
// that may be anything.
#ifndef OPKIT_PLUGIN_ELF_FILE_HPP_
#define OPKIT_PLUGIN_ELF_FILE_HPP_

#include <string>
#include <string_view>
#include <vector>

#include "opkit/base/error.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Symbols are mangled, and none are known of a file without section headers (loading does not need
// them).
struct ElfInfo {
  std::vector<std::string> functions;      // defined, and seen from outside
  std::vector<std::string> unique;         // STB_GNU_UNIQUE: one in the process, never unmapped
  std::vector<std::string> thread_locals;  // may have destructors that wait for a thread's end
  bool has_thread_locals = false;          // also when none is named
  bool no_delete = false;                  // linked with -z nodelete
};

// Error: "expected 'PATH' to be a shared object, but it FOUND: MEND".
[[noreturn]] OPKIT_COLD void RefuseLibrary(ErrorCode code, const std::string& path,
                                           const Text& found, const Text& mend);

// Reads a file's bytes, which may be anything, without trusting one of them: a file that is not a
// complete shared object for this machine is an Error that names `path`. Costs a pass over the
// symbols.
ElfInfo ReadElf(std::string_view file, const std::string& path);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/impl/elf_file.ipp"
#endif

#endif  // OPKIT_PLUGIN_ELF_FILE_HPP_
