// A library of custom operators for ONNX Runtime; onnxruntime_test.py runs it in the real one.
#include <opkit/export/core.hpp>
#include <opkit/export/onnxruntime.hpp>
#include <opkit/opkit.hpp>
#include <thread>

namespace {

using namespace opkit;  // NOLINT: as an author writes it

template <class Context, class T>
void Axpy(Context& ctx, In<"x", T> x, In<"y", T> y, Out<"z", T> z, Attr<"alpha", float> alpha) {
  if (alpha < 0.f)
    Throw(ErrorCode::kInvalidArgument, "alpha is ", alpha.value(), "; expected 0 or more");
  const T a = static_cast<T>(alpha.value());
  ParallelFor(ctx, z.size(),
              [=] OPKIT_DEVICE(int64_t i) { z[i] = static_cast<T>(a * x[i] + y[i]); });
}
OPKIT_OP(Axpy)
    .Doc("z = alpha * x + y")
    .SameShape<"x", "y", "z">()
    .Default<"alpha">(1.f)
    .Kernel<CPUContext, float, double, float16, bfloat16, int32_t, int64_t>();

template <class Context, class T>
void ScaleShift(Context& ctx, In<"x", T> x, OptionalIn<"scale", T> scale,
                OptionalIn<"shift", T> shift, Out<"z", T> z) {
  ParallelFor(ctx, z.size(), [=](int64_t i) {
    z[i] = x[i] * (scale ? scale[i] : T(1)) + (shift ? shift[i] : T(0));
  });
}
OPKIT_OP(ScaleShift)
    .Doc("z = x * scale + shift")
    .SameShape<"x", "scale", "shift", "z">()
    .Kernel<CPUContext, float>();

class RunningSum final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    sums_.resize(static_cast<size_t>(x.numel()));
    for (size_t i = 0; i < sums_.size(); ++i)
      y->mutable_data<float>()[i] = sums_[i] += x.data<float>()[i];
    return true;
  }

 private:
  std::vector<float> sums_;
};
OPERATOR_SCHEMA(RunningSum)
    .NumInputs(1)
    .NumOutputs(1)
    .KeepsState()
    .IdenticalTypeAndShape()
    .Input(0, "x", "the addends", {DType::kFloat32})
    .Output(0, "y", "the sum of all runs", {DType::kFloat32});
REGISTER_CPU_OPERATOR(RunningSum, RunningSum);

// Variadic inputs and outputs.
class Swap final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    for (int i = 0; i < InputSize(); ++i) {
      const Tensor& x = Input(InputSize() - 1 - i);
      Tensor* y = Output(i, x.shape(), x.dtype());
      std::memcpy(y->raw_mutable_data(), x.raw_data(), static_cast<size_t>(x.nbytes()));
    }
    return true;
  }
};
OPERATOR_SCHEMA(Swap)
    .NumInputs(1, 1 << 20)
    .NumOutputs(1, 1 << 20)
    .SameNumberOfOutput()
    .Input(0, "x", "", {DType::kFloat32, DType::kInt64})
    .Output(0, "y", "", {DType::kFloat32, DType::kInt64});
REGISTER_CPU_OPERATOR(Swap, Swap);

// An output whose extent only the run knows, and an extent that an attribute decides.
class Positive final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    std::vector<float> found;
    for (int64_t i = 0; i < x.numel(); ++i)
      if (x.data<float>()[i] > 0) found.push_back(x.data<float>()[i]);
    const auto count = static_cast<int64_t>(found.size());
    Tensor* y = Output(0, Shape({count}), x.dtype());
    std::copy(found.begin(), found.end(), y->mutable_data<float>());
    return true;
  }
};
OPERATOR_SCHEMA(Positive)
    .NumInputs(1)
    .NumOutputs(1)
    .Input(0, "x", "", {DType::kFloat32})
    .Output(0, "y", "", {DType::kFloat32})
    .Infer([](InferenceContext& context) {
      context.SetOutput(0, DType::kFloat32, SymbolicShape({Dim()}));
    });
REGISTER_CPU_OPERATOR(Positive, Positive);

// Every type of attribute; the output has the extent `size`, and counts the attributes.
class Attributes final : public Operator<CPUContext> {
 public:
  Attributes(const OperatorDef& def, Workspace* ws) : Operator(def, ws) {
    const Arguments& args = def.args();
    const Tensor table = args.Get<Tensor>("table", Tensor());
    size_ = args.Get<int64_t>("size");
    sum_ =
        static_cast<float>(size_ + args.Get<bool>("flag", false)) + args.Get<float>("scale", 0.f);
    for (float x : args.Get<std::vector<float>>("floats", {})) sum_ += x;
    for (int64_t x : args.Get<std::vector<int64_t>>("ints", {})) sum_ += static_cast<float>(x);
    if (args.Get<std::string>("mode", "none") == "twice") sum_ *= 2;
    for (int64_t i = 0; i < table.numel(); ++i) sum_ += table.data<float>()[i];
  }
  bool RunOnDevice() override {
    Tensor* y = Output(0, Shape({size_}), DType::kFloat32);
    for (int64_t i = 0; i < y->numel(); ++i) y->mutable_data<float>()[i] = sum_;
    return true;
  }

 private:
  int64_t size_ = 0;
  float sum_ = 0;
};
OPERATOR_SCHEMA(Attributes)
    .NumInputs(0)
    .NumOutputs(1)
    .Output(0, "y", "", {DType::kFloat32})
    .RequiredArg<int64_t>("size", "the extent")
    .Arg<bool>("flag", "", false)
    .Arg<float>("scale", "", 0.f)
    .Arg<std::vector<float>>("floats", "")
    .Arg<std::vector<int64_t>>("ints", "")
    .Arg("mode", "", {"once", "twice"})
    .Arg<Tensor>("table", "")
    .Infer([](InferenceContext& context) {
      context.SetOutput(0, DType::kFloat32, SymbolicShape({Dim(context.Arg<int64_t>("size"))}));
    });
REGISTER_CPU_OPERATOR(Attributes, Attributes);

}  // namespace

OPKIT_EXPORT_DOMAIN("tests");
OPKIT_EXPORT_ONNXRUNTIME(Axpy);
OPKIT_EXPORT_ONNXRUNTIME(ScaleShift);
OPKIT_EXPORT_ONNXRUNTIME(RunningSum);
OPKIT_EXPORT_ONNXRUNTIME(Swap);
OPKIT_EXPORT_ONNXRUNTIME(Positive);
OPKIT_EXPORT_ONNXRUNTIME(Attributes);
