// A second backend of an operator, for some shapes. Selection gives it the nodes for which it
// proposes a configuration; the plain kernel gets the others.
//   g++ -std=c++20 -Isingle_include examples/10_backend.cpp -o backend && ./backend
#include <cstdio>
#include <opkit/graph.hpp>

using namespace opkit;

// Y[n] is the sum of row n of X.
OPERATOR_SCHEMA(RowSums).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& c) {
  OPKIT_ENFORCE(c.input_shape(0).rank() == 2, "RowSums needs [rows, columns]");
  c.SetOutput(0, c.input_dtype(0), SymbolicShape{c.input_shape(0)[0]});
});

class RowSumsOp : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    float* y = Output(0, {x.dim(0)}, x.dtype())->mutable_data<float>();
    const float* in = x.data<float>();
    ParallelFor(x.dim(0), [=, this, columns = x.dim(1)](int64_t row) {
      y[row] = Sum(in + row * columns, columns);
    });
    return true;
  }

 private:
  virtual float Sum(const float* x, int64_t count) const {
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += x[i];
    return sum;
  }
};
REGISTER_CPU_OPERATOR(RowSums, RowSumsOp);

// The second backend adds four numbers at a time. It takes only rows of a multiple of four.
class RowSumsByFour final : public RowSumsOp {
 public:
  using RowSumsOp::RowSumsOp;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const SymbolicShape& x = query.inputs[0].shape;
    if (!x.is_known()) throw UnsupportedOperatorFeature("the shape is not known yet");
    CheckColumns(x[1].value());
    return {{}};  // one configuration: the standard layout, no scratch
  }
  bool RunOnDevice() override {
    CheckColumns(Input(0).dim(1));  // without a plan, Propose was not called
    return RowSumsOp::RunOnDevice();
  }

 private:
  static void CheckColumns(int64_t columns) {
    if (columns % 4 != 0)
      throw UnsupportedOperatorFeature(StrCat("it adds by four, and a row has ", columns));
  }
  float Sum(const float* x, int64_t count) const override {
    float sums[4] = {};
    for (int64_t i = 0; i < count; i += 4)
      for (int k = 0; k < 4; ++k) sums[k] += x[i + k];
    return sums[0] + sums[1] + sums[2] + sums[3];
  }
};
OPKIT_REGISTER_BACKEND_RANK("by_four", 50);  // asked before the plain kernels, which have rank 0
REGISTER_CPU_OPERATOR_WITH_ENGINE(RowSums, by_four, RowSumsByFour);

int main() {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {2, Sym("columns")});
  graph.AddNode(OperatorDef("RowSums", {"X"}, {"Y"}).Backends("by_four"));
  graph.AddOutput("Y");
  const Plan plan = Compile(graph);
  Executor exec(plan);

  bool right = true;
  for (int64_t columns : {4, 6}) {
    const Tensor x = Tensor::From<float>({2, columns}, std::vector<float>(2 * columns, 0.5f));
    right &=
        exec.Run({{"X", x}}).Get("Y").ToVector<float>() == std::vector<float>(2, 0.5f * columns);
    const NodeChoice choice = plan.choice(0);
    right &= choice.kernel->backend == (columns == 4 ? "by_four" : "reference");
    std::printf("%lld columns: %s%s\n", static_cast<long long>(columns),
                choice.kernel->backend.c_str(), choice.passed_over.c_str());
  }
  return right ? 0 : 1;
}
