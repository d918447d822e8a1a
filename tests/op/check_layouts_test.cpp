// CheckOperator runs a kernel in all configurations that it proposes: layouts and variants.
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
enum class Variants { kFine, kWrong, kWriting, kFailing, kTwice };
int g_runs_of_variant = 0;
// Doubles every element in its usual way, and by the variant "other" perhaps wrongly.
template <Variants kVariants>
class DoubleVaried final : public Operator<CPUContext> {
 public:
  DoubleVaried(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Operator<CPUContext>(def, ws, config), is_other_(config && config->variant == "other") {}
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    std::vector<KernelConfig> configs(3);
    configs[1].variant = "other";
    configs[2].input_layouts = {Layout()};  // as good as none
    if (kVariants != Variants::kTwice) configs.pop_back();
    return configs;
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    if (x.dtype() != DType::kFloat32) throw UnsupportedOperatorFeature("only float32");
    Tensor* y = Output(0, x.shape(), x.dtype());
    const bool is_wrong = is_other_ && kVariants == Variants::kWrong;
    g_runs_of_variant += is_other_;
    if (is_other_ && kVariants == Variants::kFailing) Throw(ErrorCode::kUnsupported, "not today");
    auto* to = y->mutable_data<float>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = x.data<float>()[i] * (is_wrong ? 3.f : 2.f);
    if (is_other_ && kVariants == Variants::kWriting && x.numel() > 0) to[x.numel()] = 1;
    return true;
  }

 private:
  const bool is_other_;
};
SCHEMA_OF_ONE(DoubleVariedFine);
REGISTER_CPU_OPERATOR(DoubleVariedFine, DoubleVaried<Variants::kFine>);
SCHEMA_OF_ONE(DoubleVariedWrong);
REGISTER_CPU_OPERATOR(DoubleVariedWrong, DoubleVaried<Variants::kWrong>);
SCHEMA_OF_ONE(DoubleVariedWriting);
REGISTER_CPU_OPERATOR(DoubleVariedWriting, DoubleVaried<Variants::kWriting>);
SCHEMA_OF_ONE(DoubleVariedFailing);
REGISTER_CPU_OPERATOR(DoubleVariedFailing, DoubleVaried<Variants::kFailing>);
SCHEMA_OF_ONE(DoubleVariedTwice);
REGISTER_CPU_OPERATOR(DoubleVariedTwice, DoubleVaried<Variants::kTwice>);
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

TEST_CASE("every variant of a kernel is run and compared with its usual way") {
  g_runs_of_variant = 0;
  const CheckReport fine = CheckOperator("DoubleVariedFine", {.run = {.in_child = false}});
  CHECK_MESSAGE(fine.ok(), ToString(fine));
  CHECK(g_runs_of_variant >= 8);  // on each of the guessed shapes
  const auto found = [](const char* op, std::string_view text) {
    const std::string report = ToString(CheckOperator(op));
    CHECK_MESSAGE(report.find(text) != std::string::npos, report);
  };
  found("DoubleVariedWrong", "in configuration 1, other, it gives another result, output 0");
  found("DoubleVariedWriting", "in configuration 1, other, it writes past the end of output 0");
  found("DoubleVariedFailing", "in configuration 1, other, it fails: not today");
  found("DoubleVariedTwice",
        "its configurations 0 and 2 have the same layouts and the same variant ''; "
        "KernelConfig::variant tells them apart");
}

}  // namespace check_layouts_test
