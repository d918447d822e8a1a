// Registers a library's partitioners and passes, all or none, and removes them.
#ifndef OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_PARTITIONERS_IPP_
#define OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_PARTITIONERS_IPP_

#include <algorithm>

#include "opkit/plugin/load/impl/library_pass.ipp"
#include "opkit/plugin/load/library_partitioners.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

[[noreturn]] inline void RefuseTakenNameName(const LoadedLibrary& loaded, const char* what,
                                             const char* name) {
  RefuseDescription(loaded.image->name,
                    StrCat("brings ", what, " '", name, "', which this program has already"),
                    "rename one", ErrorCode::kAlreadyExists);
}
inline void AddLibraryPartitioner(LoadedLibrary& loaded, const opkit_partitioner& one) {
  if (!one.subgraph_op || !one.mark)
    RefuseDescription(loaded.image->name, StrCat("has partitioner '", one.name, "' without ",
                                                 one.mark ? "subgraph_op" : "mark"));
  if (one.begin && !one.end)
    RefuseDescription(loaded.image->name,
                      StrCat("has partitioner '", one.name, "' with begin, but without end"));
  IntrusivePtr<const Partitioner> made =
      MakeIntrusive<LibraryPartitioner>(loaded.image, loaded.in_use, one);
  if (PartitionerRegistry::Global().Has(one.name) ||
      !RegisterPartitioner(made, loaded.image->name.c_str(), one.line))
    RefuseTakenNameName(loaded, "partitioner", one.name);
  ++loaded.idle_count;
  loaded.partitioners.push_back(std::move(made));
}
inline void AddLibraryPass(LoadedLibrary& loaded, const opkit_pass& one) {
  if (!one.run)
    RefuseDescription(loaded.image->name, StrCat("has pass '", one.name, "' without run"));
  IntrusivePtr<const NamedPass> made = MakeIntrusive<LibraryPass>(loaded.image, loaded.in_use, one);
  const std::vector<std::string> known = RegisteredPasses();
  if (std::ranges::count(known, one.name) ||
      !RegisterPass(made, loaded.image->name.c_str(), one.line))
    RefuseTakenNameName(loaded, "pass", one.name);
  ++loaded.idle_count;
  loaded.passes.push_back(std::move(made));
}

OPKIT_INLINE void RegisterPartitioners(LoadedLibrary& loaded) {
  const opkit_library& library = *loaded.image->library;
  if (library.abi_minor < 3) return;  // before 1.3 these members were reserved
  try {
    AddParts(loaded, library.num_partitioners, library.partitioners, "partitioner",
             &AddLibraryPartitioner);
    AddParts(loaded, library.num_passes, library.passes, "pass", &AddLibraryPass);
  } catch (...) {
    RemovePartitioners(loaded);
    throw;
  }
}
OPKIT_INLINE void RemovePartitioners(LoadedLibrary& loaded) {
  for (const auto& one : loaded.partitioners) PartitionerRegistry::Global().Unregister(*one);
  for (const auto& one : loaded.passes) UnregisterPass(*one);
  loaded.idle_count -= static_cast<int64_t>(loaded.partitioners.size() + loaded.passes.size());
  loaded.partitioners.clear();
  loaded.passes.clear();
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_PARTITIONERS_IPP_
