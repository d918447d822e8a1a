#include "opkit/op/check/input_finder.hpp"

#include <tuple>

#include "op/check/checked_ops.hpp"
#include "opkit/op/check/check_cases.hpp"
#include "support/error_of.hpp"

namespace input_finder_test {
using namespace checked_ops;
using opkit::OpRegistry;
using opkit::OpSchema;
using opkit::detail::InputFinder;

namespace {

// A convolution along the last axis: its inputs cannot have one shape.
constexpr auto kConv = [](auto& op) {
  const Tensor &x = op.Input(0), &w = op.Input(1);
  const int64_t rows = x.dim(0), width = x.dim(1), k = w.numel(), n = width - k + 1;
  const float *in = x.data<float>(), *weights = w.data<float>();
  float* out = op.Output(0, Shape{rows, n}, DType::kFloat32)->template mutable_data<float>();
  for (int64_t i = 0; i < rows * n; ++i) {
    out[i] = 0;
    for (int64_t j = 0; j < k; ++j) out[i] += weights[j] * in[i / n * width + i % n + j];
  }
};
OPERATOR_SCHEMA(FoundConv)
    .NumInputs(2)
    .NumOutputs(1)
    .Infer([](InferenceContext& c) {
      const auto &x = c.input_shape(0), &w = c.input_shape(1);
      if (!x.is_known() || !w.is_known()) return c.SetOutput(0, c.input_dtype(0), {});
      OPKIT_ENFORCE(x.rank() == 2 && w.rank() == 1 && w[0].value() <= x[1].value());
      c.SetOutput(0, c.input_dtype(0), {x[0], x[1].value() - w[0].value() + 1});
    })
    .Flops([](const InferenceContext& c) {
      return 2 * OpSchema::Elements(c.output(0)) * OpSchema::Elements(c.input(1));
    });
REGISTER_CPU_OPERATOR(FoundConv, LambdaOp<kConv>);
NO_GRADIENT(FoundConv);

// A recurrent cell: five inputs, none of the shape of another.
OPERATOR_SCHEMA(FoundCell).NumInputs(5).NumOutputs(1).Infer([](InferenceContext& c) {
  const auto& [x, h, wx, wh, b] = std::tie(c.input_shape(0), c.input_shape(1), c.input_shape(2),
                                           c.input_shape(3), c.input_shape(4));
  OPKIT_ENFORCE(x.rank() == 2 && h.rank() == 2 && wx.rank() == 2);
  const auto like = [&](const opkit::SymbolicShape& found, const opkit::SymbolicShape& wanted) {
    OPKIT_ENFORCE(opkit::SymbolicShape::Merge(found, wanted), ToString(found));
  };
  like(h, {x[0], opkit::Dim()});
  like(wx, {x[1], h[1]});
  like(wh, {h[1], h[1]});
  like(b, {h[1]});
  c.SetOutput(0, c.input_dtype(0), h);
});
constexpr auto kCell = [](auto& op) {
  const int64_t inputs = op.Input(0).dim(1), units = op.Input(1).dim(1), n = op.Input(1).numel();
  const float *x = In(op, 0), *h = In(op, 1), *wx = In(op, 2), *wh = In(op, 3), *b = In(op, 4);
  float* out = op.Output(0, op.Input(1).shape(), DType::kFloat32)->template mutable_data<float>();
  for (int64_t i = 0; i < n; ++i) {
    float sum = b[i % units];
    for (int64_t k = 0; k < inputs; ++k)
      sum += x[i / units * inputs + k] * wx[k * units + i % units];
    for (int64_t k = 0; k < units; ++k) sum += h[i / units * units + k] * wh[k * units + i % units];
    out[i] = sum;
  }
};
REGISTER_CPU_OPERATOR(FoundCell, LambdaOp<kCell>);
NO_GRADIENT(FoundCell);

// The inference throws on unknown shapes, so that the finder cannot find the inputs one by one.
OPERATOR_SCHEMA(FoundBlind).NumInputs(2).NumOutputs(1).Infer([](InferenceContext& c) {
  OPKIT_ENFORCE(c.input_shape(0).has_rank() && c.input_shape(1).has_rank());
  OPKIT_ENFORCE(c.input_shape(0).rank() != c.input_shape(1).rank());
  c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
});

// The kernel declines types and ranks that the schema claims: float64, and 3 dimensions.
constexpr auto kFloatsAlone = [](auto& op) {
  OPKIT_ENFORCE(op.Input(0).rank() != 3);
  kDouble(op);
};
class DeclinesOp final : public LambdaOp<kFloatsAlone> {
 public:
  using LambdaOp::LambdaOp;
  static std::vector<opkit::KernelConfig> Propose(const opkit::KernelQuery& query) {
    if (query.inputs[0].dtype != DType::kFloat32)
      throw opkit::UnsupportedOperatorFeature("it is for float32");
    if (query.inputs[0].shape.rank() == 3) return {};
    return {{}};
  }
};
SCHEMA_OF_ONE(FoundDeclines).Input(0, "x", "", {DType::kFloat32, DType::kFloat64});
REGISTER_CPU_OPERATOR(FoundDeclines, DeclinesOp);
NO_GRADIENT(FoundDeclines);

class BadProposalOp final : public LambdaOp<kDouble> {
 public:
  using LambdaOp::LambdaOp;
  static std::vector<opkit::KernelConfig> Propose(const opkit::KernelQuery&) {
    throw std::runtime_error("no idea");
  }
};
SCHEMA_OF_ONE(FoundBadProposal);
REGISTER_CPU_OPERATOR(FoundBadProposal, BadProposalOp);
NO_GRADIENT(FoundBadProposal);

const OpSchema& Schema(const char* op) { return OpRegistry::Global().GetSchema(op); }

}  // namespace

TEST_CASE("where one shape for all inputs is refused, inference finds others") {
  const OpSchema& schema = Schema("FoundConv");
  const OperatorDef def("FoundConv", {"x", "w"}, {"y"});
  InputFinder finder(schema, def, {});
  const auto found = finder.Find();
  REQUIRE(found.size() == 1);
  CHECK(opkit::detail::MakeCase(found[0], 1).Describe() == "float32[2, 3], float32[3]");
  CHECK(finder.refusal().find("expected x.rank() == 2") != std::string::npos);
  CHECK(InputFinder(schema, def, {}).FindMixed(3, {DType::kFloat64, DType::kFloat64}).size() == 3);
  CHECK(InputFinder(schema, def, {{2, 3}, {4}}).Find().empty());
  const CheckReport report = CheckOperator("FoundConv");
  Expect(report, {});
  CHECK(report.runs > 20);
}

TEST_CASE("inputs are found one by one, however many there are") {
  const CheckReport report = CheckOperator("FoundCell");
  Expect(report, {});
  CHECK(report.runs > 20);
  const OperatorDef cell("FoundCell", {"x", "h", "wx", "wh", "b"}, {"y"});
  InputFinder finder(Schema("FoundCell"), cell, {});
  const auto found = finder.FindMixed(1);
  REQUIRE(found.size() == 1);
  CHECK(opkit::detail::MakeCase(found[0], 1).Describe() ==
        "float32[2, 3], float32[2, 3], float32[3, 3], float32[3, 3], float32[3]");
  const OperatorDef two("FoundBlind", {"a", "b"}, {"y"});
  InputFinder blind(Schema("FoundBlind"), two, {});
  CHECK(blind.FindMixed(1).size() == 1);
}

TEST_CASE("shapes can be given, one for each input, as on the command line") {
  CheckOptions options;
  options.input_shapes = {{64, 102}, {3}};
  Expect("FoundConv", {}, options);
  options.input_shapes = {{64, 2}, {3}};
  Expect("FoundConv", {"inference or cost fails on inputs that the kernel runs"}, options);
  options.input_shapes = {{64, 102}, {3}, {4}};
  CHECK(ErrorOf([&] { CheckOperator("FoundConv", options); }).message() ==
        "operator FoundConv has 2 inputs, found 3 shapes");
}

TEST_CASE("inputs that the kernel's proposal declines break no claim") {
  const CheckReport report = CheckOperator("FoundDeclines");
  Expect(report, {});
  CHECK(std::ranges::count(report.notes,
                           "kernel cpu/reference on float64[2, 3], which it does not support: it "
                           "is for float32") == 1);
  CHECK(std::ranges::count(report.notes,
                           "kernel cpu/reference on float32[2, 3, 5], which it does not support: "
                           "it proposes no configuration for this node") == 1);
  Expect("FoundBadProposal", {"its proposal fails: no idea  [cpu/reference; float32[2, 3]]"});
}

TEST_CASE("a cost may be a function of shapes") {
  const OpSchema& schema = Schema("FoundConv");
  const OperatorDef def("FoundConv", {"x", "w"}, {"y"});
  const std::vector<opkit::TensorInfo> inputs = {{DType::kFloat32, {4, 10}},
                                                 {DType::kFloat32, {3}}};
  const opkit::OpCost cost = schema.Cost(def, inputs, schema.InferOutputs(def, inputs));
  CHECK(cost.flops == 2 * 4 * 8 * 3);
  CHECK(cost.bytes_read == 4 * (40 + 3));
  CHECK(cost.bytes_written == 4 * 32);
  const std::vector<opkit::TensorInfo> open = {{DType::kFloat32, {}}, {DType::kFloat32, {3}}};
  CHECK(schema.Cost(def, open, schema.InferOutputs(def, open)).flops == 0);
}

}  // namespace input_finder_test
