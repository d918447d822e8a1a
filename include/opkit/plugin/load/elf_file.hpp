// Reads the headers of an ELF file before the loader sees the file: checks that it is a shared
// object for this machine, and lists the symbols that it exports and the symbols that would keep it
// in the process. The bytes may be damaged. Included by the definitions of shared_object.hpp.
#ifndef OPKIT_PLUGIN_LOAD_ELF_FILE_HPP_
#define OPKIT_PLUGIN_LOAD_ELF_FILE_HPP_

#include <string>
#include <string_view>
#include <vector>

#include "opkit/base/error.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The mangled symbols and the flags of an ELF file. Loading needs no section headers; without them
// the symbols are unknown.
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

// Reads a file's bytes, and checks each before use, because the file may be damaged. Throws an
// Error that names `path` for a file that is not a complete shared object for this machine. Costs a
// pass over the symbols.
ElfInfo ReadElf(std::string_view file, const std::string& path);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/load/impl/elf_file.ipp"
#endif

#endif  // OPKIT_PLUGIN_LOAD_ELF_FILE_HPP_
