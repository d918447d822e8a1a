// Exports the operators that a library registers as classes (REGISTER_CPU_OPERATOR) or typed
// functions (OPKIT_OP), in addition to the operators of REGISTER_OP. The library's own registries
// hold these operators. Each operator becomes a record, whose kernels run it in its own workspace
// over the host's memory. Included if a unit includes both opkit.hpp and plugin/author.hpp.
#ifndef OPKIT_PLUGIN_EXPORT_EXPORT_OPERATORS_HPP_
#define OPKIT_PLUGIN_EXPORT_EXPORT_OPERATORS_HPP_

#include "opkit/core/tensor.hpp"
#include "opkit/plugin/export/library_export.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Runs another operator of the host program during the run of a class or typed operator of the
// library. Writes into the given outputs, on the calling operator's device, and on CUDA in its
// stream. The host keeps the other operator prepared between runs. Throws the errors of
// OpResource::invoke; kFailedPrecondition if this thread runs no operator of the library.
//
//   InvokeOnHost("Add", {Input(0), Input(1)}, {*Output(0, Input(0).shape(), Input(0).dtype())});
OPKIT_IMAGE_LOCAL void InvokeOnHost(std::string_view op, const std::vector<Tensor>& inputs,
                                    const std::vector<Tensor>& outputs, const Arguments& args = {});

namespace detail {

// Adds a record of each registered operator, except internal operators. Adds no record if the host
// is this program itself, which already has the operators.
OPKIT_IMAGE_LOCAL void AddRegisteredOperators(std::vector<FunctionRecord>& records);

// Filled by export_gradients.hpp: stores a registered gradient in the record, in the form that the
// host reads.
OPKIT_IMAGE_LOCAL inline constinit Hook<void(FunctionOpRecord&)> g_read_gradient{
    "a gradient, in a library,", "opkit/graph.hpp"};

// Adds the layouts registered so far with their direct converters, and the author's own device
// types.
OPKIT_IMAGE_LOCAL void AddRegisteredLayouts(LibraryContents& contents);

[[maybe_unused]] OPKIT_IMAGE_LOCAL inline const bool kExportsRegisteredOperators =
    (LibraryContents::Global().add_layouts = &AddRegisteredLayouts,
     LibraryContents::Global().add_registered = &AddRegisteredOperators, true);

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/export/impl/export_layouts.ipp"
#include "opkit/plugin/export/impl/export_operators.ipp"
#endif

#endif  // OPKIT_PLUGIN_EXPORT_EXPORT_OPERATORS_HPP_
