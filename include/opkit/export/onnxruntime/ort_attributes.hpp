// Reads the attributes of a node of ONNX Runtime that an operator's schema declares.
#ifndef OPKIT_EXPORT_ONNXRUNTIME_ORT_ATTRIBUTES_HPP_
#define OPKIT_EXPORT_ONNXRUNTIME_ORT_ATTRIBUTES_HPP_

#include "opkit/export/onnxruntime/ort_api.hpp"
#include "opkit/op/schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the attributes that the node of a kernel gives (OrtKernelInfo*), whatever their types.
// ONNX Runtime lists no names, so an attribute that the schema does not declare is not seen. Throws
// kUnsupported for an operator with a list of strings, which a host before 1.25 gives to no kernel.
OPKIT_IMAGE_LOCAL Arguments KernelArguments(const OrtApi& api, const OpSchema& schema,
                                            const void* kernel_info);
// Returns the attributes that the node of an inference gives (OrtShapeInferContext*). A tensor is
// left out, because not all hosts give it.
OPKIT_IMAGE_LOCAL Arguments InferenceArguments(const OrtApi& api, const OpSchema& schema,
                                               const void* infer_context);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/onnxruntime/impl/ort_attributes.ipp"
#endif

#endif  // OPKIT_EXPORT_ONNXRUNTIME_ORT_ATTRIBUTES_HPP_
