// An inference rule: computes the types and shapes of outputs from the inputs', before a run.
//   g++ -std=c++20 -Iinclude examples/11_inference.cpp -o inference && ./inference
#include <cstdio>
#include <opkit/op/check.hpp>
#include <opkit/opkit.hpp>

using namespace opkit;

// Y[n, c] is the mean of X[n, c, …]. With the attribute `keep` the other axes stay, with extent 1.
void InferMeans(InferenceContext& c) {
  const SymbolicShape& x = c.input_shape(0);
  // only the dtype is known
  if (!x.has_rank()) return c.SetOutput(0, c.input_dtype(0), SymbolicShape());
  OPKIT_ENFORCE(x.rank() >= 2, "Means needs [N, C, …], found ", ToString(x));
  std::vector<Dim> y{x[0], x[1]};
  if (c.Arg("keep", false)) y.resize(static_cast<size_t>(x.rank()), Dim(1));
  c.SetOutput(0, c.input_dtype(0), SymbolicShape(y));
}
OPERATOR_SCHEMA(Means)
    .NumInputs(1)
    .NumOutputs(1)
    .Input(0, "X", "float32[N, C, …]", {DType::kFloat32})
    .Arg<bool>("keep", "whether the axes that are averaged over stay, as 1", false)
    .Infer(InferMeans);

class MeansOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    std::vector<int64_t> dims{x.dim(0), x.dim(1)};
    if (GetSingleArgument<bool>("keep", false)) dims.resize(static_cast<size_t>(x.rank()), 1);
    Tensor* y = Output(0, Shape(dims), x.dtype());
    const float* in = x.data<float>();
    float* out = y->mutable_data<float>();
    for (int64_t i = 0, count = x.numel() / std::max<int64_t>(1, y->numel()); i < y->numel(); ++i) {
      float sum = 0;
      for (int64_t k = 0; k < count; ++k) sum += in[i * count + k];
      out[i] = sum / static_cast<float>(count);
    }
    return true;
  }
};
REGISTER_CPU_OPERATOR(Means, MeansOp);

// Returns the output that the rule infers from an input.
std::string Ask(const SymbolicShape& x, bool keep = false) {
  const OperatorDef node = OperatorDef("Means", {"X"}, {"Y"}).Arg("keep", keep);
  return ToString(OpRegistry::Global().GetSchema("Means").InferOutputs(
      node, {TensorInfo(DType::kFloat32, x)})[0]);
}

int main() {
  const std::string batches = Ask({Sym("batch"), 3, Sym("height"), Sym("width")}, /*keep=*/true);
  std::printf("%s\n%s\n%s\n", batches.c_str(), Ask({2, Dim(), 5}).c_str(),
              Ask(SymbolicShape()).c_str());
  try {
    Ask({2});
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
  }
  // A run writes outputs of the inferred shapes.
  const CheckReport report = CheckOperator(OperatorDef("Means", {"X"}, {"Y"}),
                                           {Tensor::From<float>({1, 2, 2}, {1, 2, 3, 5})});
  std::printf("%s\n", ToString(report).c_str());
  return report.ok() && batches == "float32[batch, 3, 1, 1]" ? 0 : 1;
}
