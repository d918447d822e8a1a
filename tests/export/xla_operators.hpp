// Operators that the tests of the export to XLA use in fake calls, and in JAX.
#ifndef OPKIT_TESTS_EXPORT_XLA_OPERATORS_HPP_
#define OPKIT_TESTS_EXPORT_XLA_OPERATORS_HPP_

#include "opkit/export/xla.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/op/typed_operator.hpp"

namespace xla_operators { namespace {

using namespace opkit;

template <class Context, class T>
void XlaAxpy(Context& ctx, In<"x", T> x, In<"y", T> y, Out<"z", T> z, Attr<"alpha", float> alpha) {
  const T a = static_cast<T>(alpha.value());
  if (!(alpha.value() < 1e9f)) Throw(ErrorCode::kOutOfRange, "alpha is ", alpha.value());
  ParallelFor(
      ctx, z.size(), [=](int64_t i) { z[i] = static_cast<T>(a * x[i] + y[i]); }, 1000);
}
OPKIT_OP(XlaAxpy)
    .SameShape<"x", "y", "z">()
    .Default<"alpha">(1.f)
    .Kernel<CPUContext, float, double, float16, bfloat16, int32_t, int8_t>();

// The sum of all runs of one operator.
class XlaRunningSumOp final : public Operator<CPUContext> {
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
OPERATOR_SCHEMA(XlaRunningSum)
    .NumInputs(1)
    .NumOutputs(1)
    .KeepsState()
    .IdenticalTypeAndShape()
    .Input(0, "x", "what is added", {DType::kFloat32})
    .Output(0, "y", "the sum of all runs", {DType::kFloat32});
REGISTER_CPU_OPERATOR(XlaRunningSum, XlaRunningSumOp);

// Attributes of each type, and an optional input in the middle and at the end.
template <class Context>
void XlaMixed(Context&, In<"x", float> x, OptionalIn<"scale", float> scale,
              OptionalIn<"bias", float> bias, Out<"out", double> out, Attr<"flag", bool> flag,
              Attr<"count", int64_t> count, const Attr<"text", std::string>& text,
              const Attr<"ints", std::vector<int64_t>>& ints,
              const Attr<"floats", std::vector<float>>& floats,
              const Attr<"flags", std::vector<bool>>& flags,
              const Attr<"names", std::vector<std::string>>& names) {
  out[0] = (scale ? scale[0] : 1.f) * x[0] + (bias ? bias[0] : 0.f);
  out[1] = flag ? 1 : 0;
  out[2] = static_cast<double>(count);
  out[3] = static_cast<double>(text.value().size());
  out[4] = out[5] = out[6] = out[7] = 0;
  for (const int64_t value : ints.value()) out[4] = 10 * out[4] + static_cast<double>(value);
  for (const float value : floats.value()) out[5] += value;
  for (const bool value : flags.value()) out[6] = 2 * out[6] + (value ? 1 : 0);
  for (const std::string& name : names.value())
    out[7] = 10 * out[7] + static_cast<double>(name.size());
}
OPKIT_OP(XlaMixed)
    .OutShape<"out">([](const InferenceContext&) { return Shape{8}; })
    .Default<"flag">(false)
    .Default<"count">(int64_t{0})
    .Default<"text">("")
    .Default<"ints">(std::vector<int64_t>{})
    .Default<"floats">(std::vector<float>{})
    .Default<"flags">(std::vector<bool>{})
    .Default<"names">(std::vector<std::string>{})
    .Kernel<CPUContext>();

}}  // namespace xla_operators

OPKIT_EXPORT_XLA(XlaAxpy);
OPKIT_EXPORT_XLA(XlaRunningSum);
OPKIT_EXPORT_XLA(XlaMixed);

#endif  // OPKIT_TESTS_EXPORT_XLA_OPERATORS_HPP_
