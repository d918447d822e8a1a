// Imports the operators of a loaded library into its host: they become records like those of
// REGISTER_OP, with functions that call the library's. Included by the definitions of library.hpp.
#ifndef OPKIT_PLUGIN_LOAD_LIBRARY_OPS_HPP_
#define OPKIT_PLUGIN_LOAD_LIBRARY_OPS_HPP_

#include "opkit/op/boundary/convert/op_conversion.hpp"
#include "opkit/op/function/function_calls.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/op_registry.hpp"
#include "opkit/plugin/load/finalizers.hpp"

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

// Makes a record, which was read from `op`, call the library's functions.
void BindRecord(FunctionOpRecord& record, const LibraryImagePtr& image, const opkit_op& op);

// True if the library describes the operator's gradient by other means than a backward function.
inline bool SaysGradient(const FunctionOpRecord& record) {
  return record.abi.gradient || record.Has(OPKIT_OP_NO_GRADIENT | OPKIT_OP_SHOULD_NOT_GRADIENT |
                                           OPKIT_OP_GRADIENT_NOT_IMPLEMENTED);
}

// Returns the gradient that the library describes.
GradientRegistration MakeLibraryGradient(const LibraryImagePtr& image, const opkit_op& op,
                                         const FunctionOpRecord& record);

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/load/impl/library_gradient.ipp"
#include "opkit/plugin/load/impl/library_ops.ipp"
#endif

#endif  // OPKIT_PLUGIN_LOAD_LIBRARY_OPS_HPP_
