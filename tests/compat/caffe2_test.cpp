// An operator as Caffe2's sources write it, with one include.
#include "opkit/compat/caffe2.hpp"

#include <doctest/doctest.h>

#include "support/error_of.hpp"

namespace caffe2 { namespace {

template <class T, class Context>
class CompatFullyConnectedOp final : public Operator<Context> {
 public:
  USE_OPERATOR_CONTEXT_FUNCTIONS;
  CompatFullyConnectedOp(const OperatorDef& operator_def, Workspace* ws)
      : Operator<Context>(operator_def, ws), OP_SINGLE_ARG(int, "axis", axis_, 1) {}

  bool RunOnDevice() override {
    const auto& X = Input(0);
    const auto& W = Input(1);
    const auto& b = Input(2);
    CAFFE_ENFORCE_EQ(b.rank(), 1, "b is ", b.shape());
    TIndex M = 1, K = 1;
    for (int i = 0; i < X.rank(); ++i) (i < axis_ ? M : K) *= X.dim(i);
    const TIndex N = W.dim(0);
    CAFFE_ENFORCE(K == W.numel() / N, "Dimension mismatch: X ", X.shape(), ", W ", W.shape());
    CAFFE_ENFORCE_EQ(N, b.dim(0));
    auto* Y = Output(0, {M, N}, DType::kFloat32);
    T* y = Y->template mutable_data<T>();
    for (TIndex m = 0; m < M; ++m) {
      for (TIndex n = 0; n < N; ++n) {
        T sum = b.template data<T>()[n];
        for (TIndex k = 0; k < K; ++k)
          sum += X.template data<T>()[m * K + k] * W.template data<T>()[n * K + k];
        y[m * N + n] = sum;
      }
    }
    return true;
  }

 private:
  int axis_;
};

REGISTER_CPU_OPERATOR(CompatFC, CompatFullyConnectedOp<float, CPUContext>);
OPERATOR_SCHEMA(CompatFC)
    .NumInputs(3)
    .NumOutputs(1)
    .TensorInferenceFunction([](InferenceContext& context) {
      context.SetOutput(0, context.input_dtype(0),
                        {context.input_shape(0).dim(0), context.input_shape(1).dim(0)});
    })
    .CostInferenceFunction([](const OperatorDef&, const vector<TensorInfo>& in,
                              const vector<TensorInfo>& out) {
      OpCost cost;
      cost.flops = 2 * OpSchema::Elements(in[1]) * OpSchema::Elements(out[0]);
      return cost;
    })
    .Arg<int>("axis", "the first axis of the columns", 1)
    .SetDoc("Y = X * W^T + b.");

// Refuses everything.
template <class Context>
class CompatThrowsOp final : public Operator<Context> {
 public:
  USE_OPERATOR_CONTEXT_FUNCTIONS;
  using Operator<Context>::Operator;
  bool RunOnDevice() override { CAFFE_THROW("found ", InputSize(), " inputs"); }
};
REGISTER_CPU_OPERATOR(CompatThrows, CompatThrowsOp<CPUContext>);
OPERATOR_SCHEMA(CompatThrows)
    .NumInputs(1)
    .NumOutputs(1)
    .AllowInplace({{0, 0}})
    .Arg("why", "the reason", true)
    .AllowUnknownArgs();

TEST_CASE("an operator in Caffe2's spelling runs after one include") {
  const Tensor x = Tensor::From<float>({1, 2}, {1, 2});
  const Tensor w = Tensor::From<float>({2, 2}, {1, 0, 1, 1});
  const Tensor b = Tensor::From<float>({2}, {0.5f, 0});
  CHECK(Invoke("CompatFC", {x, w, b})[0].ToVector<float>() == vector<float>{1.5f, 3});
  const Error error = ErrorOf([&] { Invoke("CompatFC", {x, w, x}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(), "expected (b.rank()) == (1): b is [1, 2]"));
  const Error thrown = ErrorOf([&] { Invoke("CompatThrows", {x}, {{"why", "none"}}); });
  CHECK(Contains(thrown.message(), "found 1 inputs"));
  CHECK(Contains(ErrorOf([&] { Invoke("CompatThrows", {x}); }).message(),
                 "needs the argument 'why' (the reason)"));
}

TEST_CASE(
    "preferences of engines are maps of Caffe2's types, and one wrong entry changes nothing") {
  using PerDevice = map<DeviceType, EnginePref>;
  using PerOp = map<DeviceType, map<string, EnginePref>>;
  const auto preferred = [] {
    return OpRegistry::Global().PreferenceOf("CompatFC", DeviceType::kCPU);
  };
  SetGlobalEnginePref(PerDevice{{DeviceType::kCPU, {"FAST"}}});
  SetPerOpEnginePref(PerOp{{DeviceType::kCPU, {{"CompatFC", {"FASTER"}}}}});
  CHECK(preferred() == EnginePref{"FASTER", "FAST"});
  SetOpEnginePref("CompatFC", PerDevice{{DeviceType::kCPU, {"DEFAULT"}}});
  CHECK(preferred() == EnginePref{"DEFAULT", "FAST"});
  const Error error = ErrorOf([] {
    SetPerOpEnginePref(
        PerOp{{DeviceType::kCPU, {{"CompatFC", {"FAST"}}, {"CompatNobody", {"FAST"}}}}});
  });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(preferred() == EnginePref{"DEFAULT", "FAST"});
  SetOpEnginePref("CompatFC", DeviceType::kCPU, {});
  SetGlobalEnginePref(DeviceType::kCPU, {});
  CHECK(preferred().empty());
}

}  // namespace
}  // namespace caffe2
