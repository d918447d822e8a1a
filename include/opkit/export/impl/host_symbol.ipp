// The definitions of host_symbol.hpp.
#ifndef OPKIT_EXPORT_IMPL_HOST_SYMBOL_IPP_
#define OPKIT_EXPORT_IMPL_HOST_SYMBOL_IPP_

#include <dlfcn.h>

#include "opkit/export/host_symbol.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void* FindHostSymbol(const char* symbol, const char* library) {
  if (!library) return dlsym(RTLD_DEFAULT, symbol);
  void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return nullptr;
  void* found = dlsym(handle, symbol);
  dlclose(handle);  // of the handle; the process keeps the library
  return found;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_HOST_SYMBOL_IPP_
