// Registers the layouts and devices of a library in its host. Included by the definitions of
// library.hpp.
#ifndef OPKIT_PLUGIN_LOAD_LIBRARY_LAYOUTS_HPP_
#define OPKIT_PLUGIN_LOAD_LIBRARY_LAYOUTS_HPP_

#include "opkit/plugin/load/loaded_library.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Registers a library's layouts, converters and devices, all or none.
void RegisterLayoutsOf(LoadedLibrary& loaded);
void RemoveLayoutsOf(LoadedLibrary& loaded);
// Returns the reason why the library must stay loaded; empty if it may be unloaded. `all` are all
// loaded libraries.
std::string WhatHoldsLayouts(const LoadedLibrary& loaded, const std::vector<LoadedLibraryPtr>& all);
// Registers layouts of the remaining libraries whose names have become free.
void AdoptLayouts(const std::vector<LoadedLibraryPtr>& all);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/load/impl/library_layouts.ipp"
#endif

#endif  // OPKIT_PLUGIN_LOAD_LIBRARY_LAYOUTS_HPP_
