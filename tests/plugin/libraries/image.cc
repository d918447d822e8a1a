// A library that says what its own registries hold, and keeps an internal operator to itself:
// compiled twice, as ImageA and ImageB, and with and without -fno-gnu-unique.
#include <opkit/core/layout_registry.hpp>
#include <opkit/op/gradient/gradient.hpp>
#include <opkit/opkit.hpp>
#include <opkit/plugin/author.hpp>

#ifndef IMAGE
#define IMAGE A
#endif
#define OF_IMAGE(name) OPKIT_CONCAT(name, IMAGE)
#define REGISTER_TYPED(name) OPKIT_OP(name)
#define STRING_OF(name) QUOTED(name)
#define QUOTED(name) #name

namespace {

using namespace opkit;  // NOLINT: as an author writes it

bool Knows(const char* op) {
  for (const std::string& known : RegisteredOperators())
    if (known == op) return true;
  return false;
}
bool Invokes(const char* op) {
  try {
    Invoke(op, {Tensor::From<float>({1}, {1})});
    return true;
  } catch (const Error&) {
    return false;
  }
}

int64_t CountOperators() {
  int64_t count = 0;
  for (const std::string& name : RegisteredOperators())
    count += !OpRegistry::Global().GetSchema(name).is_internal();
  return count;
}

// How many operators of its author this image has, and whether it knows those of the others.
class ReportOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    int64_t* out = Output(0, {5}, DType::kInt64)->mutable_data<int64_t>();
    out[0] = CountOperators();
    out[1] = Knows("HostNegate") + Knows("ReportA") + Knows("ReportB");
    out[2] = HasGradient("HostNegate") + HasGradient("NegateA") + HasGradient("NegateB");
    out[3] = Invokes("HostNegate") + Invokes("NegateA") + Invokes("NegateB");
    out[4] = Invokes("DoubleA") + Invokes("DoubleB");
    return true;
  }
};
template <class Context>
class OF_IMAGE(NegateOp) final : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using Operator<Context>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i) y->mutable_data<float>()[i] = -x.data<float>()[i];
    return true;
  }
};
void Reverse(const Tensor& from, Tensor& to) {
  const auto* in = static_cast<const float*>(from.raw_data());
  for (int64_t i = 0, n = from.numel(); i < n; ++i)
    static_cast<float*>(to.raw_mutable_data())[n - 1 - i] = in[i];
}
const LayoutId kReversed =
    RegisterLayout({.name = "image_reversed", .to_standard = &Reverse, .from_standard = &Reverse});
// The last element, which comes first in its layout.
class OF_IMAGE(LastOp) final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    KernelConfig config;
    config.input_layouts = {Layout{kReversed, {}}};
    return {config};
  }
  bool RunOnDevice() override {
    Output(0, {1}, DType::kFloat32)->mutable_data<float>()[0] =
        static_cast<const float*>(Input(0).raw_data())[0];
    return true;
  }
};
class NegateGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    return SingleGradientDef(Def().type(), "", {GO(0)}, {GI(0)});
  }
};
template <class Context>
void OF_IMAGE(Double)(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(
      ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = 2 * x[i]; }, 1);
}
REGISTER_TYPED(OF_IMAGE(Double)).SameShape<"x", "y">().Kernel<CPUContext>();

Status Fails(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
  OPKIT_ERROR_MSG << "told to by " << STRING_OF(IMAGE);
  return FAIL;
}
Status SameShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  out[0] = in[0];
  return SUCCESS;
}
int OneToOne(const AttrMap&, int* num_in, int* num_out) { return *num_in = *num_out = 1; }

}  // namespace

#define REGISTER_IMAGE(report, negate, negate_class, last, last_class, kept, fails) \
  OPERATOR_SCHEMA(report).NumInputs(0).NumOutputs(1).Infer(                         \
      [](InferenceContext& c) { c.SetOutput(0, DType::kInt64, {Dim(5)}); });        \
  REGISTER_CPU_OPERATOR(report, ReportOp);                                          \
  OPERATOR_SCHEMA(negate).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();       \
  REGISTER_CPU_OPERATOR(negate, negate_class<CPUContext>);                          \
  REGISTER_GRADIENT(negate, NegateGradient);                                        \
  OPERATOR_SCHEMA(last).NumInputs(1).NumOutputs(1).Infer(                           \
      [](InferenceContext& c) { c.SetOutput(0, DType::kFloat32, {Dim(1)}); });      \
  REGISTER_CPU_OPERATOR(last, last_class);                                          \
  OPERATOR_SCHEMA(kept).NumInputs(1).NumOutputs(1).Internal();                      \
  REGISTER_CPU_OPERATOR(kept, negate_class<CPUContext>);                            \
  REGISTER_OP(fails).setForward(Fails).setParseAttrs(OneToOne).setInferShape(SameShape)
#define REGISTER_EXPANDED(...) REGISTER_IMAGE(__VA_ARGS__)
REGISTER_EXPANDED(OF_IMAGE(Report), OF_IMAGE(Negate), OF_IMAGE(NegateOp), OF_IMAGE(Last),
                  OF_IMAGE(LastOp), OF_IMAGE(Kept), OF_IMAGE(Fails));
