// FindHostSymbol: a function of the host, found by name at run time, so that an export links with
// no library of a host.
#ifndef OPKIT_EXPORT_HOST_SYMBOL_HPP_
#define OPKIT_EXPORT_HOST_SYMBOL_HPP_

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the address of a symbol of this process; null if there is none. Without `library` looks
// in the program, and in the libraries that were loaded for all others to see (RTLD_GLOBAL). With
// `library`, "libtorch_cpu.so", looks in that library, if the process has loaded it.
OPKIT_IMAGE_LOCAL void* FindHostSymbol(const char* symbol, const char* library = nullptr);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/host_symbol.ipp"
#endif

#endif  // OPKIT_EXPORT_HOST_SYMBOL_HPP_
