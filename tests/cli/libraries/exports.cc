// Operators that are exported to other hosts, of which `opkit export` writes the Python side: with
// a gradient of one node and of none, several outputs, optional inputs, inputs of any number,
// state, and a shape that the data decides.
#include <opkit/opkit.hpp>

#include <opkit/export/all.hpp>
#include <opkit/op/gradient/gradient.hpp>

using namespace opkit;

template <class Context, class T>
void Axpy(Context& ctx, In<"x", T> x, In<"y", T> y, Out<"z", T> z, Attr<"alpha", float> alpha) {
  const T a = static_cast<T>(alpha.value());
  ParallelFor(ctx, z.size(), [=](int64_t i) { z[i] = a * x[i] + y[i]; });
}
OPKIT_OP(Axpy)
    .Doc("z = alpha * x + y, \"quoted\" and a \\ too")
    .SameShape<"x", "y", "z">()
    .Default<"alpha">(1.f)
    .Kernel<CPUContext, float, double>();

template <class Context, class T>
void Scale(Context& ctx, In<"x", T> x, Out<"y", T> y, Attr<"alpha", float> alpha) {
  const T a = static_cast<T>(alpha.value());
  ParallelFor(ctx, y.size(), [=](int64_t i) { y[i] = a * x[i]; });
}
OPKIT_OP(Scale).SameShape<"x", "y">().Default<"alpha">(1.f).Kernel<CPUContext, float, double>();

class AxpyGradient final : public GradientMakerBase {
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    SetDense(1, GO(0));
    return SingleGradientDef("Scale", "", {GO(0)}, {GI(0)});
  }
};
REGISTER_GRADIENT(Axpy, AxpyGradient);

// y = x where x > 0, else 0; kept says where. The gradient reads the second output, which has no
// gradient itself, and runs two operators.
template <class Context>
void KeepPositive(Context& ctx, In<"x", float> x, In<"index", int32_t> index, Out<"y", float> y,
                  Out<"kept", uint8_t> kept) {
  ParallelFor(ctx, x.size(), [=](int64_t i) {
    kept[i] = x[i] > 0;
    y[i] = kept[i] ? 3 * x[i] + static_cast<float>(index[0]) : 0;
  });
}
OPKIT_OP(KeepPositive).SameShape<"x", "y", "kept">().Kernel<CPUContext>();

template <class Context>
void KeepPositiveGradient(Context& ctx, In<"kept", uint8_t> kept, In<"dy", float> dy,
                          Out<"dx", float> dx) {
  ParallelFor(ctx, dx.size(), [=](int64_t i) { dx[i] = kept[i] ? dy[i] : 0; });
}
OPKIT_OP(KeepPositiveGradient).SameShape<"kept", "dy", "dx">().Kernel<CPUContext>();

class KeepPositiveGradientMaker final : public GradientMakerBase {
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    const std::string masked = Temporary("masked");
    return {OperatorDef("KeepPositiveGradient", {O(1), GO(0)}, {masked}),
            OperatorDef("Scale", {masked}, {GI(0)}).Arg("alpha", 3.f)};
  }
};
REGISTER_GRADIENT(KeepPositive, KeepPositiveGradientMaker);

// y = x * scale + shift, and attributes of several types. One has the name of a keyword of Python.
template <class Context>
void Blend(Context& ctx, In<"x", float> x, OptionalIn<"scale", float> scale,
           OptionalIn<"shift", float> shift, Out<"y", float> y, Attr<"lambda", float> lambda,
           const Attr<"weights", std::vector<float>>& weights, Attr<"negate", bool> negate,
           const Attr<"mode", std::string>& mode) {
  float factor = lambda.value() * (negate ? -1.f : 1.f) * (mode.value() == "twice" ? 2.f : 1.f);
  for (const float weight : weights.value()) factor *= weight;
  const bool scales(scale), shifts(shift);
  ParallelFor(ctx, y.size(), [=](int64_t i) {
    y[i] = factor * x[i] * (scales ? scale[i] : 1.f) + (shifts ? shift[i] : 0.f);
  });
}
OPKIT_OP(Blend)
    .SameShape<"x", "y">()
    .Default<"weights">(std::vector<float>{1.f})
    .Default<"negate">(false)
    .Default<"mode">("once")
    .Kernel<CPUContext>();

// The sum of any number of inputs.
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
    .Output(0, "sum")
    .IdenticalTypeAndShapeOfInput(0);
REGISTER_CPU_OPERATOR(AddAll, AddAll);

class AddAllGradient final : public GradientMakerBase {
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    for (size_t i = 0; i < Def().inputs().size(); ++i) SetDense(static_cast<int>(i), GO(0));
    return {};
  }
};
REGISTER_GRADIENT(AddAll, AddAllGradient);

// The sum of all runs.
class Total final : public Operator<CPUContext> {
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
OPERATOR_SCHEMA(Total)
    .NumInputs(1)
    .NumOutputs(1)
    .KeepsState()
    .Input(0, "x", "what is added", {DType::kFloat32})
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Total, Total);

// The elements above 0.
class Positives final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    std::vector<float> found;
    for (int64_t i = 0; i < x.numel(); ++i)
      if (x.data<float>()[i] > 0) found.push_back(x.data<float>()[i]);
    Tensor* y = Output(0, Shape{static_cast<int64_t>(found.size())}, DType::kFloat32);
    for (size_t i = 0; i < found.size(); ++i) y->mutable_data<float>()[i] = found[i];
    return true;
  }
};
OPERATOR_SCHEMA(Positives).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& context) {
  context.SetOutput(0, DType::kFloat32, SymbolicShape::OfRank(1));
});
REGISTER_CPU_OPERATOR(Positives, Positives);

OPKIT_EXPORT_DOMAIN("opkit_test");
OPKIT_EXPORT(Axpy);
OPKIT_EXPORT(Scale);
OPKIT_EXPORT(KeepPositive);
OPKIT_EXPORT(Blend);
OPKIT_EXPORT(AddAll);
OPKIT_EXPORT(Total);
OPKIT_EXPORT(Positives);
