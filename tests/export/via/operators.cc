// The operators that `opkit check --via` calls through every host in this folder's test: dtypes,
// attributes, optional inputs, inputs of any number, several outputs, a state, shapes that only the
// run knows, errors, and what hosts refuse.
#include <opkit/op.hpp>
#include <opkit/opkit.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <opkit/export/all.hpp>

namespace {

using namespace opkit;

template <class Context, class T>
void ViaAxpy(Context& ctx, In<"x", T> x, In<"y", T> y, Out<"z", T> z, Attr<"alpha", float> alpha) {
  if (alpha < 0.f)
    Throw(ErrorCode::kInvalidArgument, "alpha is ", alpha.value(), "; expected 0 or more");
  const T a = static_cast<T>(alpha.value());
  ParallelFor(ctx, z.size(), [=](int64_t i) { z[i] = static_cast<T>(a * x[i] + y[i]); });
}
OPKIT_OP(ViaAxpy)
    .Doc("z = alpha * x + y")
    .SameShape<"x", "y", "z">()
    .Default<"alpha">(1.f)
    .Kernel<CPUContext, float, double, float16, bfloat16, int32_t, int64_t, uint8_t>();

template <class Context, class T>
void ViaScaleShift(Context& ctx, In<"x", T> x, OptionalIn<"scale", T> scale,
                   OptionalIn<"shift", T> shift, Out<"y", T> y) {
  const bool scales(scale), shifts(shift);
  ParallelFor(ctx, y.size(), [=](int64_t i) {
    y[i] = x[i] * (scales ? scale[i] : T(1)) + (shifts ? shift[i] : T(0));
  });
}
OPKIT_OP(ViaScaleShift)
    .Doc("y = x * scale + shift")
    .SameShape<"x", "scale", "shift", "y">()
    .Kernel<CPUContext, float>();

// Writes its attributes as numbers, so that a host that loses one gives another result.
template <class Context>
void ViaAttributes(Context&, In<"x", float>, Out<"out", double> out, Attr<"flag", bool> flag,
                   Attr<"count", int64_t> count, Attr<"ratio", double> ratio,
                   const Attr<"mode", std::string>& mode,
                   const Attr<"ints", std::vector<int64_t>>& ints,
                   const Attr<"floats", std::vector<float>>& floats,
                   const Attr<"flags", std::vector<bool>>& flags,
                   const Attr<"names", std::vector<std::string>>& names) {
  double sum[8] = {flag ? 1. : 0., static_cast<double>(count), ratio,
                   static_cast<double>(mode.value().size())};
  for (const int64_t value : ints.value()) sum[4] = 10 * sum[4] + static_cast<double>(value);
  for (const float value : floats.value()) sum[5] += value;
  for (const bool value : flags.value()) sum[6] = 2 * sum[6] + (value ? 1 : 0);
  for (const std::string& name : names.value())
    sum[7] = 10 * sum[7] + static_cast<double>(name.size());
  for (int i = 0; i < 8; ++i) out[i] = sum[i];
}
OPKIT_OP(ViaAttributes)
    .Doc("The attributes as numbers.")
    .OutShape<"out">([](const InferenceContext&) { return Shape{8}; })
    .Default<"flag">(false)
    .Default<"count">(int64_t{3})
    .Default<"ratio">(0.1)
    .Default<"mode">("same")
    .Values<"mode">({"same", "valid"})
    .Default<"ints">(std::vector<int64_t>{1, 2})
    .Default<"floats">(std::vector<float>{0.5f})
    .Default<"flags">(std::vector<bool>{true})
    .Default<"names">(std::vector<std::string>{"a"})
    .Kernel<CPUContext>();

class ViaRunningSum final : public Operator<CPUContext> {
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
OPERATOR_SCHEMA(ViaRunningSum)
    .Doc("The sum of all runs.")
    .NumInputs(1)
    .NumOutputs(1)
    .KeepsState()
    .IdenticalTypeAndShape()
    .Input(0, "x", "the addends", {DType::kFloat32})
    .Output(0, "y", "the sum of all runs", {DType::kFloat32});
REGISTER_CPU_OPERATOR(ViaRunningSum, ViaRunningSum);

// Inputs and outputs of any number.
class ViaSwap final : public Operator<CPUContext> {
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
OPERATOR_SCHEMA(ViaSwap)
    .Doc("The inputs in reverse order.")
    .NumInputs(1, 1 << 20)
    .NumOutputs(1, 1 << 20)
    .SameNumberOfOutput()
    .Input(0, "x", "", {DType::kFloat32, DType::kBool, DType::kComplex64})
    .Output(0, "y", "", {DType::kFloat32, DType::kBool, DType::kComplex64});
REGISTER_CPU_OPERATOR(ViaSwap, ViaSwap);

// An output whose extent only the run knows, and a second output.
class ViaPositive final : public Operator<CPUContext> {
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
    Output(1, Shape{}, DType::kInt64)->mutable_data<int64_t>()[0] = count;
    return true;
  }
};
OPERATOR_SCHEMA(ViaPositive)
    .Doc("The positive elements, and their number.")
    .NumInputs(1)
    .NumOutputs(2)
    .Input(0, "x", "", {DType::kFloat32})
    .Output(0, "y", "", {DType::kFloat32})
    .Output(1, "count", "", {DType::kInt64})
    .Infer([](InferenceContext& context) {
      context.SetOutput(0, DType::kFloat32, SymbolicShape({Dim()}));
      context.SetOutput(1, DType::kInt64, Shape{});
    });
REGISTER_CPU_OPERATOR(ViaPositive, ViaPositive);

// Gives another result, or ends the process, in a process with this variable: the test's proof that
// a difference and a crash are seen.
template <class Context>
void ViaBroken(Context&, In<"x", float> x, Out<"y", float> y) {
  const char* const broken = std::getenv("OPKIT_TEST_BROKEN_HOST");
  if (broken && std::strcmp(broken, "crash") == 0 && x.size() == 7) std::abort();
  for (int64_t i = 0; i < y.size(); ++i) y[i] = x[i] + (broken ? 1.f : 0.f);
}
OPKIT_OP(ViaBroken).Doc("y = x").SameShape<"x", "y">().Kernel<CPUContext>();

}  // namespace

OPKIT_EXPORT_DOMAIN("via");
OPKIT_EXPORT(ViaAxpy);
OPKIT_EXPORT(ViaScaleShift);
OPKIT_EXPORT(ViaAttributes);
OPKIT_EXPORT(ViaRunningSum);
OPKIT_EXPORT(ViaSwap);
OPKIT_EXPORT(ViaPositive);
OPKIT_EXPORT(ViaBroken);
