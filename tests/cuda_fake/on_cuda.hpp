// Runs a node with the kernels of CUDA's backends and compares it with the CPU's reference kernel.
#ifndef OPKIT_TESTS_CUDA_FAKE_ON_CUDA_HPP_
#define OPKIT_TESTS_CUDA_FAKE_ON_CUDA_HPP_

#include <doctest/doctest.h>

#include "opkit/backends/cuda/context.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/invoke.hpp"
#include "support/backends.hpp"
#include "support/compare.hpp"
#include "support/error_of.hpp"
#include "support/text.hpp"

inline constexpr opkit::Device kCuda0{opkit::DeviceType::kCUDA, 0};

inline opkit::Tensor OnCuda(const opkit::Tensor& tensor) {
  if (tensor.dtype() == opkit::DType::kUndefined) return tensor;  // an input that is left out
  opkit::Tensor out(kCuda0);
  opkit::Copy(tensor, &out);
  return out;
}
// Returns a tensor of small integers, whose products and sums are exact in every type.
inline opkit::Tensor SmallIntegers(const opkit::Shape& shape, opkit::DType dtype, int seed = 0) {
  opkit::Tensor out(shape, dtype);
  opkit::DispatchDType<float, double, opkit::float16, opkit::bfloat16, int32_t, int64_t>(
      dtype, [&]<class T>() {
        for (int64_t i = 0; i < out.numel(); ++i)
          out.mutable_data<T>()[i] = static_cast<T>(static_cast<float>((i * 7 + seed) % 5 - 2));
      });
  return out;
}
// Returns the outputs of a node that runs on the device. The inputs that its schema reads on the
// host stay there.
inline std::vector<opkit::Tensor> RunOnCuda(const std::string& backend, const std::string& op,
                                            const std::vector<opkit::Tensor>& inputs,
                                            const opkit::Arguments& args = {}, int outputs = -1) {
  opkit::OperatorDef node(op, {}, {"y"});
  for (size_t i = 0; i < inputs.size(); ++i)
    node.Input(inputs[i].dtype() == opkit::DType::kUndefined ? "" : opkit::StrCat("i", i));
  const opkit::OpSchema& schema = opkit::OpRegistry::Global().GetSchema(op);
  const auto places = schema.InferDevices(node.Device(kCuda0)).first;
  std::vector<opkit::Tensor> placed;
  for (size_t i = 0; i < inputs.size(); ++i)
    placed.push_back(places[i] == kCuda0 ? OnCuda(inputs[i]) : inputs[i]);
  return opkit::Invoke(op, placed, args,
                       {.device = kCuda0,
                        .backends = backend,
                        .num_outputs = outputs,
                        .backend_need = opkit::kRequired});
}
// Checks that the outputs are equal to those of the reference kernel up to `tolerance`.
inline void CheckOnCuda(const std::string& backend, const std::string& op,
                        const std::vector<opkit::Tensor>& inputs, const opkit::Arguments& args = {},
                        int outputs = -1, double tolerance = 0) {
  std::string node = backend + ": " + op + " of";
  for (const opkit::Tensor& input : inputs) node += " " + ToString(input);
  for (const auto& arg : args) node += ", " + arg.name + " " + ToString(arg.value);
  INFO(node);
  const auto expected =
      opkit::Invoke(op, inputs, args, {.backends = "reference", .num_outputs = outputs});
  const auto found = RunOnCuda(backend, op, inputs, args, outputs);
  REQUIRE(found.size() == expected.size());
  for (size_t o = 0; o < found.size(); ++o) {
    CHECK(found[o].device() == kCuda0);
    CHECK(Difference(OnHost(found[o]), expected[o], {.rtol = tolerance, .atol = tolerance}) == "");
  }
}
// Checks recorded runs of a node: they follow the elements of input `changed`. With those of
// `wrong` a run fails and says `failure`, and the next run is right.
inline void CheckRecordedOnCuda(const std::string& backend, const std::string& op,
                                std::vector<opkit::Tensor> inputs, const opkit::Arguments& args,
                                size_t changed, const opkit::Tensor& other,
                                const opkit::Tensor& wrong, const std::string& failure,
                                double tolerance) {
  CAPTURE(op);
  opkit::OperatorDef node(op, {}, {"y"});
  node.Device(kCuda0).Backends(backend);
  node.mutable_args() = args;
  opkit::Graph graph;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_given = inputs[i].dtype() != opkit::DType::kUndefined;
    node.Input(is_given ? opkit::StrCat("i", i) : "");
    if (is_given) graph.AddInput(node.inputs()[i], inputs[i].dtype(), inputs[i].shape(), kCuda0);
  }
  graph.AddNode(node);
  graph.AddOutput("y");
  opkit::Executor executor(opkit::Compile(graph, {.threads = 1, .devices = {kCuda0}}));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!node.inputs()[i].empty()) executor.Bind(node.inputs()[i], OnCuda(inputs[i]));
  opkit::Tensor bound = OnCuda(inputs[changed]);
  executor.Bind(node.inputs()[changed], bound);
  const auto check_with = [&](const opkit::Tensor& values) {
    opkit::Copy(values, &bound);
    executor.Run();
    inputs[changed] = values;
    const opkit::Tensor expected =
        opkit::Invoke(op, inputs, args, {.backends = "reference", .num_outputs = 1})[0];
    CHECK(Difference(OnHost(executor.output("y")), expected,
                     {.rtol = tolerance, .atol = tolerance}) == "");
  };
  const opkit::Tensor first = inputs[changed];
  for (int run = 0; run < 3; ++run) check_with(first);
  CHECK(Contains(executor.ExplainMode(), "1 steps on cuda are recorded and repeated"));
  check_with(other);
  opkit::Copy(wrong, &bound);
  const std::string message = ErrorOf([&] { executor.Run(); }).what();
  CHECK_MESSAGE(Contains(message, failure), message);
  check_with(first);
  check_with(other);
}
// An operator on the device that is made for the inputs of its first run and stays for the others.
class KeptOperator {
 public:
  KeptOperator(const std::string& backend, const std::string& op) : def_(op, {}, {"y"}) {
    def_.Device(kCuda0).Backends(backend);
  }
  // Runs on these inputs, which are on the device, and checks the output against the CPU's.
  void Check(const std::vector<opkit::Tensor>& inputs) {
    std::vector<opkit::Tensor> on_host;
    for (const opkit::Tensor& input : inputs) {
      const std::string name = "i" + std::to_string(on_host.size());
      *workspace_.CreateTensor(name) = input;
      if (!op_) def_.Input(name);
      on_host.push_back(OnHost(input));
    }
    if (!op_) op_ = opkit::CreateOperator(def_, &workspace_);
    op_->Run();
    const opkit::Tensor expected = opkit::Invoke(def_.type(), on_host)[0];
    CHECK(Difference(OnHost(*workspace_.GetTensor("y")), expected, {}) == "");
  }

 private:
  opkit::OperatorDef def_;
  opkit::Workspace workspace_;
  std::unique_ptr<opkit::OperatorBase> op_;
};
// Returns the backends of CUDA in this program that have a kernel of the operator.
inline std::vector<std::string> CudaBackendsOf(const std::string& op) {
  std::vector<std::string> out;
  for (const auto& [backend, operators] : OperatorsByBackend())
    if (backend.device == opkit::DeviceType::kCUDA && operators.contains(op))
      out.push_back(backend.name);
  return out;
}

#endif  // OPKIT_TESTS_CUDA_FAKE_ON_CUDA_HPP_
