// The operators that tvm_ffi_test.py calls: a typed function, state, optional inputs, inputs of any
// number, attributes of every kind, several outputs.
#include <opkit/opkit.hpp>

#include <algorithm>

#include <opkit/export/tvm_ffi.hpp>

using namespace opkit;

template <class Context, class T>
void Axpy(Context& ctx, In<"x", T> x, In<"y", T> y, Out<"z", T> z, Attr<"alpha", float> alpha) {
  const T a = static_cast<T>(alpha.value());
  if (!(a < T(1e9))) Throw(ErrorCode::kInvalidArgument, "alpha is ", alpha.value());
  ParallelFor(ctx, z.size(), [=] OPKIT_DEVICE(int64_t i) { z[i] = a * x[i] + y[i]; });
}
OPKIT_OP(Axpy)
    .Doc("z = alpha * x + y")
    .SameShape<"x", "y", "z">()
    .Inplace<"y", "z">()
    .Default<"alpha">(1.f)
    .Kernel<CPUContext, float, double>();

template <class Context, class T>
void ScaleShift(Context& ctx, In<"x", T> x, OptionalIn<"scale", T> scale,
                OptionalIn<"shift", T> shift, Out<"y", T> y) {
  const bool scales(scale), shifts(shift);
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) {
    y[i] = x[i] * (scales ? scale[i] : T(1)) + (shifts ? shift[i] : T(0));
  });
}
OPKIT_OP(ScaleShift).SameShape<"x", "y">().Kernel<CPUContext, float>();

class RunningSum final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    sums_.resize(static_cast<size_t>(x.numel()));
    for (size_t i = 0; i < sums_.size(); ++i)
      y->mutable_data<float>()[i] = sums_[i] +=
          x.data<float>()[i] + (HasInput(1) ? Input(1).data<float>()[i] : 0.f);
    return true;
  }

 private:
  std::vector<float> sums_;
};
OPERATOR_SCHEMA(RunningSum)
    .NumInputs(1, 2)
    .NumOutputs(1)
    .Stateful()
    .IdenticalTypeAndShapeOfInput(0)
    .Input(0, "x", "what is added", {DType::kFloat32})
    .Input(1, "more", "may be added too", {DType::kFloat32})
    .Output(0, "y", "the sum of all runs", {DType::kFloat32});
REGISTER_CPU_OPERATOR(RunningSum, RunningSum);

class AddAll final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    Tensor* y = Output(0, Input(0).shape(), DType::kFloat32);
    for (int64_t n = 0; n < y->numel(); ++n) {
      float sum = 0;
      for (int i = 0; i < InputSize(); ++i) sum += Input(i).data<float>()[n];
      y->mutable_data<float>()[n] = sum;
    }
    return true;
  }
};
OPERATOR_SCHEMA(AddAll)
    .NumInputs(1, detail::CountRule::kAny)
    .NumOutputs(1)
    .IdenticalTypeAndShapeOfInput(0);
REGISTER_CPU_OPERATOR(AddAll, AddAll);

// Writes its attributes as text. Its inference does not know how long the text is.
class Describe final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const std::string text =
        StrCat(Arg<int64_t>("i", 7), " ", Arg<double>("f", 0.5), " ",
               Arg<bool>("b", false) ? "true" : "false", " ", Arg<std::string>("s", "name"), " ",
               Arg<std::vector<int64_t>>("is", {1, 2}), " ", Arg<std::vector<double>>("fs", {0.5}),
               " [", Arg<std::vector<bool>>("bs", {true})[0] ? "true" : "false", "] ",
               Arg<std::vector<std::string>>("ss", {"a"}));
    Tensor* y = Output(0, Shape{static_cast<int64_t>(text.size())}, DType::kUInt8);
    std::copy(text.begin(), text.end(), y->mutable_data<uint8_t>());
    return true;
  }
};
OPERATOR_SCHEMA(Describe)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg<int64_t>("i", "an integer", 7)
    .Arg<double>("f", "a number", 0.5)
    .Arg<bool>("b", "a bool", false)
    .Arg<std::string>("s", "a text", "name")
    .Arg<std::vector<int64_t>>("is", "integers", std::vector<int64_t>{1, 2})
    .Arg<std::vector<double>>("fs", "numbers", std::vector<double>{0.5})
    .Arg<std::vector<bool>>("bs", "bools", std::vector<bool>{true})
    .Arg<std::vector<std::string>>("ss", "texts", std::vector<std::string>{"a"});
REGISTER_CPU_OPERATOR(Describe, Describe);

class MinMax final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const float* x = Input(0).data<float>();
    const auto [low, high] = std::minmax_element(x, x + Input(0).numel());
    Output(0, Shape{1}, DType::kFloat32)->mutable_data<float>()[0] = *low;
    Output(1, Shape{1}, DType::kFloat32)->mutable_data<float>()[0] = *high;
    return true;
  }
};
OPERATOR_SCHEMA(MinMax).NumInputs(1).NumOutputs(2);
REGISTER_CPU_OPERATOR(MinMax, MinMax);

// Writes its attribute, a tensor of one element.
class Fill final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    Tensor* y = Output(0, Input(0).shape(), DType::kFloat32);
    std::fill_n(y->mutable_data<float>(), y->numel(),
                Arg<Tensor>("value", Tensor()).data<float>()[0]);
    return true;
  }
};
OPERATOR_SCHEMA(Fill)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg<Tensor>("value", "the value of all elements")
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Fill, Fill);

OPKIT_EXPORT_TVM_FFI(Axpy);
OPKIT_EXPORT_TVM_FFI(ScaleShift);
OPKIT_EXPORT_TVM_FFI(RunningSum);
OPKIT_EXPORT_TVM_FFI(AddAll);
OPKIT_EXPORT_TVM_FFI(Describe);
OPKIT_EXPORT_TVM_FFI(MinMax);
OPKIT_EXPORT_TVM_FFI(Fill);
