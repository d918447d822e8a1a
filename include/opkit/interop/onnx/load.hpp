// What interop/onnx.hpp declares: the bytes of a model become protos, their functions are written
// out, and a graph is built of them.
#ifndef OPKIT_INTEROP_ONNX_LOAD_HPP_
#define OPKIT_INTEROP_ONNX_LOAD_HPP_

#include "opkit/interop/onnx/builder.hpp"
#include "opkit/interop/onnx/functions.hpp"

namespace opkit::inline OPKIT_ABI {

#ifndef OPKIT_EXTERN_ONNX  // else this is the one unit that defines them
inline OnnxModel ParseOnnxModel(std::string_view, const OnnxOptions&, std::string);
inline OnnxModel LoadOnnxModel(const std::string&, const OnnxOptions&);
#endif

namespace detail {

OPKIT_COLD inline OnnxModel BuildOnnxModel(std::string_view bytes, const OnnxOptions& options,
                                           OnnxTensorSource source) {
  OnnxModelProto model;
  OnnxProtoReader reader(options, model);
  reader.Read(bytes);
  for (const OnnxOpset& opset : model.about.opsets)
    if (opset.domain.empty()) CheckOnnxOpset(opset.version);
  OnnxFunctionInliner::Run(model, reader, options);
  OnnxContext context{options, model, std::move(source)};
  OnnxModel out = std::move(model.about);
  out.graph = OnnxGraphBuilder(context, model.graph).Build();
  return out;
}

}  // namespace detail

OnnxModel ParseOnnxModel(std::string_view bytes, const OnnxOptions& options,
                         std::string external_dir) {
  detail::OnnxExternalData external(std::move(external_dir));
  return detail::BuildOnnxModel(bytes, options, {Storage(), &external});
}
OnnxModel LoadOnnxModel(const std::string& path, const OnnxOptions& options) {
  const Storage file = MapFile(path);
  const size_t slash = path.rfind('/');
  detail::OnnxExternalData external(slash == std::string::npos ? "."
                                    : slash == 0               ? "/"
                                                               : path.substr(0, slash));
  OnnxModel out;
  detail::AtOnnxPlace([&] { return path; },
                      [&] {
                        out = detail::BuildOnnxModel(BytesOf(file), options, {file, &external});
                      });
  return out;
}

}  // namespace opkit

#endif  // OPKIT_INTEROP_ONNX_LOAD_HPP_
