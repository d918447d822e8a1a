// The operators that the tests of this folder build graphs of. They are registered here, once for
// the whole program, and used by name: Add, Mul, Relu, Scale, MatMul, Sum, Identity, Ones, Noise,
// Accumulate, Report, Fail, Split, Positives.
#include <doctest/doctest.h>

#include "opkit/graph.hpp"
#include "support/accumulate_op.hpp"

namespace ops_test {
using namespace opkit;

namespace graph_ops {

template <class Context>
void Add(Context& ctx, In<"a", float> a, In<"b", float> b, Out<"c", float> c) {
  ParallelFor(ctx, c.size(), [=](int64_t i) { c[i] = a[i] + b[i]; });
}
OPKIT_OP(Add)
    .SameShape<"a", "b", "c">()
    .Inplace<"a", "c">()
    .Inplace<"b", "c">()
    .Kernel<CPUContext>()
    .Kernel<CPUStreamContext>();

template <class Context>
void Mul(Context& ctx, In<"a", float> a, In<"b", float> b, Out<"c", float> c) {
  ParallelFor(ctx, c.size(), [=](int64_t i) { c[i] = a[i] * b[i]; });
}
OPKIT_OP(Mul)
    .SameShape<"a", "b", "c">()
    .Inplace<"a", "c">()
    .Inplace<"b", "c">()
    .Kernel<CPUContext>()
    .Kernel<CPUStreamContext>();

template <class Context>
void Relu(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(ctx, y.size(), [=](int64_t i) { y[i] = x[i] > 0 ? x[i] : 0; });
}
OPKIT_OP(Relu)
    .SameShape<"x", "y">()
    .Inplace<"x", "y">()
    .Kernel<CPUContext>()
    .Kernel<CPUStreamContext>();

template <class Context>
void Scale(Context& ctx, In<"x", float> x, Out<"y", float> y, Attr<"scale", float> scale) {
  ParallelFor(ctx, y.size(), [=](int64_t i) { y[i] = scale * x[i]; });
}
OPKIT_OP(Scale)
    .SameShape<"x", "y">()
    .Inplace<"x", "y">()
    .Default<"scale">(1.f)
    .Kernel<CPUContext>()
    .Kernel<CPUStreamContext>();

// Never in place.
template <class Context>
void MatMul(Context& ctx, In<"a", float> a, In<"b", float> b, Out<"c", float> c) {
  const int64_t rows = a.dim(0), inner = a.dim(1), columns = b.dim(1);
  ParallelFor(ctx, rows, [=](int64_t i) {
    for (int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < inner; ++k) sum += a[i * inner + k] * b[k * columns + j];
      c[i * columns + j] = sum;
    }
  });
}
OPKIT_OP(MatMul)
    .OutShape<"c">([](const InferenceContext& c) -> SymbolicShape {
      const SymbolicShape &a = c.input_shape(0), &b = c.input_shape(1);
      if (!a.has_rank() || !b.has_rank()) return {};
      if (a.rank() != 2 || b.rank() != 2 || !Dim::Compatible(a[1], b[0]))
        Throw(ErrorCode::kInvalidArgument, "cannot multiply ", ToString(a), " by ", ToString(b));
      return {a[0], b[1]};
    })
    .Kernel<CPUContext>();

// Adds any number of inputs, such as the gradients of a value that several nodes read.
class SumOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Shape shape = Input(0).shape();
    float* out = Output(0, shape, DType::kFloat32)->mutable_data<float>();
    for (int64_t k = 0; k < shape.numel(); ++k) {
      float sum = 0;
      for (int i = 0; i < InputSize(); ++i) sum += Input(i).data<float>()[k];
      out[k] = sum;
    }
    return true;
  }
};
OPERATOR_SCHEMA(Sum).NumInputs(1, 64).NumOutputs(1).Inplace({{0, 0}}).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Sum, SumOp);

// Hands its input on as it is, sharing its memory.
class IdentityOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    OutputTensorAlias(0, Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(Identity).NumInputs(1).NumOutputs(1).Inplace({{0, 0}}).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Identity, IdentityOp);

// No input: a constant in all but name.
class OnesOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  OnesOp(const OperatorDef& def, Workspace* ws)
      : Operator<CPUContext>(def, ws), size_(GetSingleArgument<int64_t>("size", 1)) {}
  bool RunOnDevice() override {
    Tensor* out = Output(0, Shape{size_}, DType::kFloat32);
    for (int64_t i = 0; i < size_; ++i) out->mutable_data<float>()[i] = 1;
    return true;
  }

 private:
  const int64_t size_;
};
OPERATOR_SCHEMA(Ones)
    .NumInputs(0)
    .NumOutputs(1)
    .Arg<int64_t>("size", "elements", 1)
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, DType::kFloat32, Shape{c.Arg<int64_t>("size", 1)});
    });
REGISTER_CPU_OPERATOR(Ones, OnesOp);

// Throws, returns false, or works, as its argument says.
class FailOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  FailOp(const OperatorDef& def, Workspace* ws)
      : Operator<CPUContext>(def, ws), how_(GetSingleArgument<std::string>("how", "throw")) {}
  bool RunOnDevice() override {
    if (how_ == "throw") Throw(ErrorCode::kInvalidArgument, "it was told to fail");
    OutputTensorCopyFrom(0, Input(0));
    return how_ != "false";
  }

 private:
  const std::string how_;
};
OPERATOR_SCHEMA(Fail)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg<std::string>("how", "throw, false or work")
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Fail, FailOp);

// As many elements as are above zero: the data decides the shape.
class PositivesOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
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
OPERATOR_SCHEMA(Positives).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& c) {
  c.SetOutput(0, c.input_dtype(0), SymbolicShape::OfRank(1));
});
REGISTER_CPU_OPERATOR(Positives, PositivesOp);

// Other numbers in every run.
class NoiseOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    static float next = 0;
    Output(0, Shape{1}, DType::kFloat32)->mutable_data<float>()[0] = ++next;
    return true;
  }
};
OPERATOR_SCHEMA(Noise).NumInputs(0).NumOutputs(1).Stateful().Infer([](InferenceContext& c) {
  c.SetOutput(0, DType::kFloat32, Shape{1});
});
REGISTER_CPU_OPERATOR(Noise, NoiseOp);

// Reads, and leaves nothing in the graph.
class ReportOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override { return Input(0).initialized(); }
};
OPERATOR_SCHEMA(Report).NumInputs(1).NumOutputs(0).Arg("held", "");
REGISTER_CPU_OPERATOR(Report, ReportOp);

// The elements in two halves; either may be left out.
class SplitOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    const int64_t half = x.numel() / 2;
    for (int o = 0; o < OutputSize(); ++o) {
      if (!HasOutput(o)) continue;
      float* out = Output(o, Shape{half}, DType::kFloat32)->mutable_data<float>();
      for (int64_t i = 0; i < half; ++i) out[i] = x.data<float>()[o * half + i];
    }
    return true;
  }
};
OPERATOR_SCHEMA(Split).NumInputs(1).NumOutputs(2);
REGISTER_CPU_OPERATOR(Split, SplitOp);

}  // namespace graph_ops

TEST_CASE("the operators of the graph tests are registered without problems") {
  for (const std::string& problem : CheckRegistrations())
    // Some are there for their structure alone.
    if (problem.find("but no kernel") == std::string::npos) FAIL_CHECK(problem);
  const Tensor x = Tensor::From<float>({2}, {1, -2});
  CHECK(Invoke("Sum", {x, x, x})[0].ToVector<float>() == std::vector<float>{3, -6});
  CHECK(Invoke("Positives", {x})[0].ToVector<float>() == std::vector<float>{1});
  CHECK(Invoke("MatMul", {x.View({1, 2}), x.View({2, 1})})[0].ToVector<float>() ==
        std::vector<float>{5});
}

}  // namespace ops_test
