// Model: an ONNX model with one input and one output, ready to run.
#ifndef OPKIT_EXAMPLES_DEMO_MODEL_HPP_
#define OPKIT_EXAMPLES_DEMO_MODEL_HPP_

#include <memory>
#include <opkit/graph/plan.hpp>
#include <opkit/interop/onnx/options.hpp>

namespace demo {

// Throws opkit::Error for a file that is no model, and for a model without exactly one input and
// one output.
opkit::OnnxModel ReadModel(const std::string& path);

// Compiles and runs a graph. In one unit of the program, because this code takes longest to
// compile.
class Model {
 public:
  explicit Model(const opkit::Graph& graph);
  ~Model();
  // Returns the output for the input. Each new shape is planned once.
  opkit::Tensor Run(const opkit::Tensor& input);
  const opkit::Plan& plan() const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace demo

#endif  // OPKIT_EXAMPLES_DEMO_MODEL_HPP_
