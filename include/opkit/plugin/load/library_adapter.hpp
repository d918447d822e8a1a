// RegisterLibraryAdapter: lets Library::Load load files of another kind, which export no
// opkit_library_entry. interop/mxnet.hpp registers the adapter for MXNet's libraries.
#ifndef OPKIT_PLUGIN_LOAD_LIBRARY_ADAPTER_HPP_
#define OPKIT_PLUGIN_LOAD_LIBRARY_ADAPTER_HPP_

#include "opkit/plugin/load/shared_object.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The description that an adapter makes of a file. It lives as long as the loaded library, and
// owns everything that `library` points to. The file is closed after it.
struct AdaptedLibrary : detail::RefCounted {
  opkit_library library{};
};

// Describes a file to the program, in place of the file's own entry. Returns null for a file of
// another kind. Throws an Error for a file of its kind that cannot be loaded. `name` is the name of
// the library in messages.
using LibraryAdapter = detail::IntrusivePtr<AdaptedLibrary> (*)(detail::SharedObject& file,
                                                                const std::string& name);

// Adds an adapter. Library::Load calls the adapters in the order in which they were added. Adding
// one twice has no effect. Any thread may call this. Returns true, for a static initialiser.
bool RegisterLibraryAdapter(LibraryAdapter adapter);

namespace detail {

// Returns the description by the first adapter that knows the file; null if none does.
IntrusivePtr<AdaptedLibrary> AdaptLibrary(SharedObject& file, const std::string& name);

}  // namespace detail

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/load/impl/library_adapter.ipp"
#endif

#endif  // OPKIT_PLUGIN_LOAD_LIBRARY_ADAPTER_HPP_
