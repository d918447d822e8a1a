#include "model.hpp"

#include <opkit/graph.hpp>
#include <opkit/interop/onnx.hpp>

namespace demo {

using namespace opkit;

OnnxModel ReadModel(const std::string& path) {
  OnnxModel model = LoadOnnxModel(path);
  const size_t inputs = model.graph.inputs().size(), outputs = model.graph.outputs().size();
  if (inputs != 1 || outputs != 1)
    Throw(ErrorCode::kUnsupported, "'", path, "' has ", inputs, " inputs and ", outputs,
          " outputs; the demo's models have one of each");
  return model;
}

struct Model::Compiled {
  explicit Compiled(const Graph& graph) : executor(Compile(graph)) {}
  Executor executor;
};

Model::Model(const Graph& graph) : compiled_(std::make_unique<Compiled>(graph)) {}
Model::~Model() = default;

Tensor Model::Run(const Tensor& input) {
  const auto outputs = compiled_->executor.Run({{plan().graph().inputs()[0].name, input}});
  return outputs.begin()->tensor;
}
const Plan& Model::plan() const { return compiled_->executor.plan(); }

}  // namespace demo
