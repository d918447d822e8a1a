// Registers the partitioners and passes of a library in its host. Included by the definitions of
// library.hpp.
#ifndef OPKIT_PLUGIN_LOAD_LIBRARY_PARTITIONERS_HPP_
#define OPKIT_PLUGIN_LOAD_LIBRARY_PARTITIONERS_HPP_

#include "opkit/plugin/load/loaded_library.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Registers a library's partitioners and passes, all or none.
void RegisterPartitioners(LoadedLibrary& loaded);
void RemovePartitioners(LoadedLibrary& loaded);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/load/impl/library_partitioners.ipp"
#endif

#endif  // OPKIT_PLUGIN_LOAD_LIBRARY_PARTITIONERS_HPP_
