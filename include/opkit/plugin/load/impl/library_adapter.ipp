// The list of adapters.
#ifndef OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_ADAPTER_IPP_
#define OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_ADAPTER_IPP_

#include <algorithm>

#include "opkit/base/platform.hpp"
#include "opkit/plugin/load/library_adapter.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

struct LibraryAdapters {
  Mutex mutex;
  std::vector<LibraryAdapter> all;
  static LibraryAdapters& Global() {
    static auto* adapters = new LibraryAdapters;  // libraries may outlive every static object
    return *adapters;
  }
};

OPKIT_INLINE IntrusivePtr<AdaptedLibrary> AdaptLibrary(SharedObject& file,
                                                       const std::string& name) {
  std::vector<LibraryAdapter> adapters;
  {
    LibraryAdapters& list = LibraryAdapters::Global();
    MutexLock lock(list.mutex);
    adapters = list.all;
  }
  for (const LibraryAdapter adapter : adapters)
    if (IntrusivePtr<AdaptedLibrary> made = adapter(file, name)) return made;
  return {};
}

}  // namespace detail

OPKIT_INLINE bool RegisterLibraryAdapter(LibraryAdapter adapter) {
  detail::LibraryAdapters& list = detail::LibraryAdapters::Global();
  detail::MutexLock lock(list.mutex);
  if (!std::ranges::count(list.all, adapter)) list.all.push_back(adapter);
  return true;
}

}}  // namespace opkit

#endif  // OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_ADAPTER_IPP_
