// Imports the parts of a loaded library into its host. Operators become records like those of
// REGISTER_OP, with functions that call the library's. AddParts reads the other parts: layouts,
// devices, partitioners, passes, backends. Included by the definitions of library.hpp.
#ifndef OPKIT_PLUGIN_LOAD_LIBRARY_OPS_HPP_
#define OPKIT_PLUGIN_LOAD_LIBRARY_OPS_HPP_

#include <cstddef>

#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/op/boundary/convert/op_conversion.hpp"
#include "opkit/op/function/function_calls.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/op_registry.hpp"
#include "opkit/plugin/load/finalizers.hpp"
#include "opkit/plugin/load/loaded_library.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Calls a function of a library. Throws an Error that begins with `what` if the function reports a
// failure.
template <class Call, class... What>
void CallLibraryFunction(const std::string& library, Call call, const What&... what) {
  const RegistryUse use;
  HostErrorScope message;
  const opkit_status status = CallGuarded(call);
  if (status == OPKIT_OK) [[likely]]
    return;
  Throw(CodeOfStatus(status), StrCat(what...), " of library ", library,
        " failed: ", ReasonOf(status));
}
template <class Call>
void CallOperatorFunction(const char* what, const std::string& op, const std::string& library,
                          Call call) {
  CallLibraryFunction(library, call, what, " of operator ", op);
}

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

// Makes a record, which was read from `op`, call the library's functions.
void BindRecord(FunctionOpRecord& record, const LibraryImagePtr& image, const opkit_op& op);

// True if the library describes the operator's gradient without a backward function.
inline bool SaysGradient(const FunctionOpRecord& record) {
  return record.abi.gradient || record.Has(OPKIT_OP_NO_GRADIENT | OPKIT_OP_SHOULD_NOT_GRADIENT |
                                           OPKIT_OP_GRADIENT_NOT_IMPLEMENTED);
}

// Returns the gradient that the library describes.
GradientRegistration MakeLibraryGradient(const LibraryImagePtr& image, const opkit_op& op,
                                         const FunctionOpRecord& record);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/load/impl/library_gradient.ipp"
#include "opkit/plugin/load/impl/library_ops.ipp"
#endif

#endif  // OPKIT_PLUGIN_LOAD_LIBRARY_OPS_HPP_
