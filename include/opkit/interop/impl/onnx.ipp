// The definitions of interop/onnx.hpp. Reading has three steps: parse the bytes to a tree of
// protos, replace calls of the model's functions by their bodies, build a graph from the tree.
#ifndef OPKIT_INTEROP_IMPL_ONNX_IPP_
#define OPKIT_INTEROP_IMPL_ONNX_IPP_

#include "opkit/interop/onnx.hpp"
#include "opkit/interop/onnx/builder.hpp"
#include "opkit/interop/onnx/functions.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline OnnxModel BuildOnnxModel(std::string_view bytes, const OnnxOptions& options,
                                OnnxTensorSource source) {
  OnnxModelProto model;
  OnnxProtoReader reader(options, model);
  reader.Read(bytes);
  for (const OnnxOpset& opset : model.about.opsets)
    if (opset.domain.empty()) CheckOnnxOpset(opset.version);
  OnnxFunctionInliner::Run(model, reader, options);
  OnnxContext context{options, model, std::move(source)};
  try {
    model.about.graph = OnnxGraphBuilder(context, model.graph).Build();
  } catch (const Error&) {  // perhaps only because a missing operator left a value's type unknown
    context.missing.ThrowIfAny();
    throw;
  }
  context.missing.ThrowIfAny();
  return std::move(model.about);
}

OPKIT_INLINE bool IsOnnxTypeReplaced(std::string_view type) {
  constexpr std::string_view kDomain = "com.microsoft.";
  return type.starts_with(kDomain) &&
         OnnxMicrosoftRules::Find(std::string(type.substr(kDomain.size())));
}

}  // namespace detail

OPKIT_INLINE OnnxModel ParseOnnxModel(std::string_view bytes, const OnnxOptions& options,
                                      std::string external_dir) {
  detail::OnnxExternalData external(std::move(external_dir));
  return detail::BuildOnnxModel(bytes, options, {Storage(), &external});
}
OPKIT_INLINE OnnxModel LoadOnnxModel(const std::string& path, const OnnxOptions& options) {
  const Storage file = MapFile(path);
  const size_t slash = path.rfind('/');
  detail::OnnxExternalData external(slash == std::string::npos ? "."
                                    : slash == 0               ? "/"
                                                               : path.substr(0, slash));
  return detail::AtOnnxPlace(
      [&] { return path; },
      [&] {
        return detail::BuildOnnxModel(BytesOf(file), options, {file, &external});
      });
}

OPKIT_INLINE Tensor ReadOnnxTensor(std::string_view tensor_proto_bytes) {
  return detail::ReadOnnxTensor(tensor_proto_bytes, {});
}
OPKIT_INLINE Tensor ReadOnnxValue(std::string_view bytes, const TensorInfo& type) {
  if (type.dtype == DType::kSequence) return detail::ReadOnnxSequence(bytes);
  return type.dtype == DType::kOptional ? detail::ReadOnnxOptional(bytes) : ReadOnnxTensor(bytes);
}

}}  // namespace opkit

#endif  // OPKIT_INTEROP_IMPL_ONNX_IPP_
