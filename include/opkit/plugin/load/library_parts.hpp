// Reads from a library's description its parts besides operators: layouts, devices, partitioners,
// passes, backends. Included by the definitions of library.hpp.
#ifndef OPKIT_PLUGIN_LOAD_LIBRARY_PARTS_HPP_
#define OPKIT_PLUGIN_LOAD_LIBRARY_PARTS_HPP_

#include <cstddef>

#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/op/boundary/convert/op_conversion.hpp"
#include "opkit/plugin/load/loaded_library.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the name of a part. Throws kInvalidArgument if it is missing or cannot be a name.
inline std::string PartName(const LoadedLibrary& loaded, const char* name, const char* what) {
  if (!name || !*name) RefuseDescription(loaded.image->name, StrCat("gives a ", what, " no name"));
  CheckLibraryText(loaded.image->name, name, StrCat("a ", what));
  return name;
}

// Calls add(loaded, part) for each part. Checks first that its struct has at least the members of
// its first version.
template <class Struct>
void AddParts(LoadedLibrary& loaded, uint64_t count, const Struct* const* all, const char* what,
              void (*add)(LoadedLibrary&, const Struct&)) {
  const std::string& library = loaded.image->name;
  if (count > kMostParts || (count > 0 && !IsUsable(all)))
    RefuseDescription(library, StrCat("has ", count, " descriptions of a ", what,
                                      !all             ? ", which are null"
                                      : IsAligned(all) ? ""
                                                       : ", which are not aligned"));
  for (uint64_t i = 0; i < count; ++i) {
    if (!IsReadable(all[i], offsetof(Struct, author) + sizeof(void*)))
      RefuseDescription(library, StrCat("has a ", what, " at ", i,
                                        " that is null or shorter than its first version"));
    if constexpr (requires { all[i]->file; })
      CheckLibraryTextEnds(library, all[i]->file, "the name of a file");
    if constexpr (requires { all[i]->name; }) PartName(loaded, all[i]->name, what);
    add(loaded, *all[i]);
  }
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PLUGIN_LOAD_LIBRARY_PARTS_HPP_
