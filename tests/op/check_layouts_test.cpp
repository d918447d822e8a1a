// CheckOperator runs a kernel in the layouts that it proposes first.
#include "op/check/checked_ops.hpp"
#include "opkit/op/check.hpp"
#include "support/layouts.hpp"

namespace check_layouts_test {
using namespace opkit;
using checked_ops::kDouble;
using checked_ops::LambdaOp;

namespace {

void Nothing(const Tensor&, Tensor&) {}
LayoutId LostLayout() {  // its conversions keep nothing
  static const LayoutId id =
      RegisterLayout({.name = "Lost", .to_standard = &Nothing, .from_standard = &Nothing});
  return id;
}
LayoutId ShortLayout() {  // says one byte less than the last element's end
  using test_layouts::Move;
  static const LayoutId id =
      RegisterLayout({.name = "Short",
                      .to_standard = &Move<test_layouts::WithGaps, test_layouts::InOrder>,
                      .from_standard = &Move<test_layouts::InOrder, test_layouts::WithGaps>,
                      .bytes = [](const Shape& shape, DType dtype) {
                        return 2 * Tensor::CheckedBytes(shape, dtype) -
                               (shape.numel() > 0 ? ItemSize(dtype) : 0) - 1;
                      }});
  return id;
}
Layout Of(LayoutId id) { return {id, {}}; }

int g_runs_in_a = 0;

// Doubles every element, wherever it lies. Proposes a layout for the input and one for the output.
template <LayoutId (*kIn)(), LayoutId (*kOut)(), bool kKeepsPromise = true>
class DoubleInLayout final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    std::vector<KernelConfig> configs(2);  // of which the second is the standard one
    configs[0].input_layouts = {Of(kIn())};
    configs[0].output_layouts = {Of(kOut())};
    return configs;
  }
  bool RunOnDevice() override {
    const Tensor x = ConvertLayout(Input(0), {});
    if (Input(0).layout() == Of(test_layouts::LayoutA())) ++g_runs_in_a;
    if (x.dtype() != DType::kFloat32) throw UnsupportedOperatorFeature("only float32");
    Tensor y(x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i) y.mutable_data<float>()[i] = 2 * x.data<float>()[i];
    SetOutputTensor(0, kKeepsPromise ? ConvertLayout(y, OutputLayout(0)) : y);
    return true;
  }
};
// Takes layout A for the standard one.
class WrongInLayout final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    KernelConfig config;
    config.input_layouts = {Of(test_layouts::LayoutA())};
    return {config};
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    if (x.dtype() != DType::kFloat32) throw UnsupportedOperatorFeature("only float32");
    Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i)
      y->mutable_data<float>()[i] = 2 * static_cast<const float*>(x.raw_data())[i];
    return true;
  }
};
using test_layouts::LayoutA;
using test_layouts::LayoutB;

SCHEMA_OF_ONE(DoubleInA);
REGISTER_CPU_OPERATOR(DoubleInA, LambdaOp<kDouble>);
using InA = DoubleInLayout<&LayoutA, &LayoutB>;
REGISTER_CPU_OPERATOR_WITH_ENGINE(DoubleInA, in_a, InA);
SCHEMA_OF_ONE(DoubleInLost);
using InLost = DoubleInLayout<&LostLayout, &LayoutA>;
REGISTER_CPU_OPERATOR(DoubleInLost, InLost);
SCHEMA_OF_ONE(DoubleInShort);
using InShort = DoubleInLayout<&ShortLayout, &LayoutA>;
REGISTER_CPU_OPERATOR(DoubleInShort, InShort);
SCHEMA_OF_ONE(DoubleUnkept);
using Unkept = DoubleInLayout<&LayoutA, &LayoutA, false>;
REGISTER_CPU_OPERATOR(DoubleUnkept, Unkept);
SCHEMA_OF_ONE(DoubleBackwards);
REGISTER_CPU_OPERATOR(DoubleBackwards, LambdaOp<kDouble>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(DoubleBackwards, in_a, WrongInLayout);

}  // namespace

TEST_CASE("a kernel that keeps its layouts is run in them and not blamed") {
  g_runs_in_a = 0;
  const CheckReport report = CheckOperator("DoubleInA", {.run = {.in_child = false}});
  CHECK_MESSAGE(report.ok(), ToString(report));
  CHECK(g_runs_in_a > 50);
}

TEST_CASE("mistakes of a kernel in a layout, and of the layout, are found") {
  const auto found = [](const char* op, std::string_view text) {
    const std::string report = ToString(CheckOperator(op));
    CHECK_MESSAGE(report.find(text) != std::string::npos, report);
  };
  found("DoubleInLost", "the conversions from standard to Lost and back do not give input 0");
  found("DoubleInShort", "it writes past the end of input 0");
  found("DoubleUnkept", "where the configuration of its kernel says layout A");
  found("DoubleBackwards", "it gives another result than kernel cpu/reference");
}

}  // namespace check_layouts_test
