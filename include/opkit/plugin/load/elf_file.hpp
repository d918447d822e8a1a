// Reads the headers of an ELF file: whether it is a shared object for this machine, which symbols
// it exports, and which symbols would keep it in the process. Reads them before the loader sees the
// file, from bytes that may be anything. Included by the definitions of shared_object.hpp.
#ifndef OPKIT_PLUGIN_LOAD_ELF_FILE_HPP_
#define OPKIT_PLUGIN_LOAD_ELF_FILE_HPP_

#include <string>
#include <string_view>
#include <vector>

#include "opkit/base/error.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Symbols, which are mangled, and flags of an ELF file. A file without section headers, which
// loading does not need, has no known symbols.
struct ElfInfo {
  std::vector<std::string> functions;      // defined and exported
  std::vector<std::string> unique;         // STB_GNU_UNIQUE: one in the process, never unmapped
  std::vector<std::string> thread_locals;  // may have destructors that wait for a thread's end
  bool has_thread_locals = false;          // true also if their names are unknown
  bool no_delete = false;                  // linked with -z nodelete
};

// Throws an Error: "expected 'PATH' to be a shared object, but it FOUND: MEND".
[[noreturn]] OPKIT_COLD inline void RefuseLibrary(ErrorCode code, const std::string& path,
                                                  const Text& found, const Text& mend) {
  Throw(code, "expected '", path, "' to be a shared object, but it ", found, ": ", mend);
}

// Reads a file's bytes, which may be anything, and trusts none of them. Throws an Error that names
// `path` for a file that is not a complete shared object for this machine. Costs a pass over the
// symbols.
ElfInfo ReadElf(std::string_view file, const std::string& path);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/load/impl/elf_file.ipp"
#endif

#endif  // OPKIT_PLUGIN_LOAD_ELF_FILE_HPP_
