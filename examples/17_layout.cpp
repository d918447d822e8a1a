// A backend and a memory layout of the program's own. Plans insert converters between nodes of
// different layouts, one for each value, and explain the choice of each kernel.
//   g++ -std=c++20 -Iinclude examples/17_layout.cpp -o layout && ./layout
#include <cstdio>
#include <opkit/core/layout_registry.hpp>
#include <opkit/graph.hpp>
#include <opkit/graph/plan/converters.hpp>

using namespace opkit;

// The elements of a column lie together: the transpose of a matrix [rows, columns].
template <bool kToColumns>
void Transpose(const Tensor& from, Tensor& to) {
  const int64_t rows = from.dim(0), columns = from.dim(1);
  const auto* in = static_cast<const float*>(from.raw_data());
  auto* out = static_cast<float*>(to.raw_mutable_data());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      kToColumns ? out[c * rows + r] = in[r * columns + c]
                 : out[r * columns + c] = in[c * rows + r];
}
LayoutId ByColumns() {
  static const LayoutId id = RegisterLayout(
      {.name = "by_columns", .to_standard = &Transpose<false>, .from_standard = &Transpose<true>});
  return id;
}

// y[r, c] = x[r, c] - x[0, c]
OPERATOR_SCHEMA(FromFirstRow).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();

class FromFirstRow : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Subtract(x, Output(0, x.shape(), x.dtype()), x.dim(1), 1);
    return true;
  }

 protected:
  static void Subtract(const Tensor& x, Tensor* y, int64_t row_step, int64_t column_step) {
    const auto* in = static_cast<const float*>(x.raw_data());
    auto* out = static_cast<float*>(y->raw_mutable_data());
    for (int64_t c = 0; c < x.dim(1); ++c)
      for (int64_t r = 0; r < x.dim(0); ++r) {
        const int64_t at = r * row_step + c * column_step;
        out[at] = in[at] - in[c * column_step];
      }
  }
};
REGISTER_CPU_OPERATOR(FromFirstRow, FromFirstRow);

class FromFirstRowByColumns final : public FromFirstRow {
 public:
  using FromFirstRow::FromFirstRow;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    if (query.inputs[0].shape.rank() != 2) throw UnsupportedOperatorFeature("it takes matrices");
    KernelConfig config;
    config.input_layouts = config.output_layouts = {{ByColumns(), {}}};
    return {config};
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);  // input and output have the proposed layout
    Subtract(x, Output(0, x.shape(), x.dtype()), 1, x.dim(0));
    return true;
  }
};
OPKIT_REGISTER_BACKEND_RANK("columns", 50);
REGISTER_CPU_OPERATOR_WITH_ENGINE(FromFirstRow, columns, FromFirstRowByColumns);

int main() {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {3, 2});
  graph.AddNode(OperatorDef("FromFirstRow", {"X"}, {"P"}));
  graph.AddNode(OperatorDef("FromFirstRow", {"P"}, {"Y"}));
  graph.AddOutput("Y");
  const Plan plan = Compile(graph);
  std::printf("%s", ToString(plan.Explain()).c_str());
  const auto y = Executor(plan).Run({{"X", Tensor::From<float>({3, 2}, {1, 2, 3, 4, 5, 6})}});
  return y.Get("Y").ToVector<float>() == std::vector<float>{0, 0, 2, 2, 4, 4} ? 0 : 1;
}
