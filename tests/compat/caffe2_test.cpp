// Operators as Caffe2's sources write them, with one include.
#include "opkit/compat/caffe2.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "support/error_of.hpp"

namespace caffe2 {

// Y = X * W^T + b, with X and W seen as matrices.
template <class T, class Context, class Engine = DefaultEngine>
class CompatFullyConnectedOp final : public Operator<Context> {
 public:
  USE_OPERATOR_CONTEXT_FUNCTIONS;
  CompatFullyConnectedOp(const OperatorDef& operator_def, Workspace* ws)
      : Operator<Context>(operator_def, ws),
        OP_SINGLE_ARG(int, "axis", axis_, 1),
        axis_w_(this->template GetSingleArgument<int32_t>("axis_w", 1)) {}

  bool RunOnDevice() override {
    const auto& X = Input(0);
    const auto& W = Input(1);
    const auto& b = Input(2);
    CAFFE_ENFORCE_EQ(b.dim(), 1, "b is ", b.sizes());
    const auto canonical_axis = X.canonical_axis_index(axis_);
    const auto M = X.size_to_dim(canonical_axis);
    const auto K = X.size_from_dim(canonical_axis);
    const int N = static_cast<int>(W.size_to_dim(W.canonical_axis_index(axis_w_)));
    CAFFE_ENFORCE(K == W.numel() / N, "Dimension mismatch: X ", X.sizes(), ", W ", W.dims());
    CAFFE_ENFORCE_EQ(N, b.dim32(0));
    y_shape_ = X.sizes().vec();
    y_shape_.resize(static_cast<size_t>(canonical_axis) + 1);
    y_shape_[static_cast<size_t>(canonical_axis)] = N;
    auto* Y = Output(0, y_shape_, at::dtype<T>());
    CAFFE_ENFORCE(M * N == Y->numel());
    if (ones_.numel() != M) {
      ones_.Resize(M);
      math::Set<T, Context>(M, T(1), ones_.template mutable_data<T>(), &context_);
    }
    math::Gemm<T, Context, Engine>(CblasNoTrans, CblasTrans, M, N, K, 1, X.template data<T>(),
                                   W.template data<T>(), 0, Y->template mutable_data<T>(),
                                   &context_, TensorProto_DataType_FLOAT);
    math::Gemm<T, Context, Engine>(CblasNoTrans, CblasNoTrans, M, N, 1, 1, ones_.template data<T>(),
                                   b.template data<T>(), 1, Y->template mutable_data<T>(),
                                   &context_);
    return true;
  }

 private:
  int axis_;
  int axis_w_;
  vector<int64_t> y_shape_;
  Tensor ones_{Context::GetDeviceType()};
};

namespace {

vector<TensorShape> FullyConnectedShape(const OperatorDef& def, const vector<TensorShape>& in,
                                        bool transposed) {
  ArgumentHelper helper(def);
  const auto axis = canonical_axis_index_(helper.GetSingleArgument<int32_t>("axis", 1),
                                          static_cast<int>(in[0].dims().size()));
  const auto axis_w =
      canonical_axis_index_(helper.GetSingleArgument<int32_t>("axis_w", 1), in[1].dims_size());
  const int N = static_cast<int>(transposed ? size_from_dim_(axis_w, GetDimsVector(in[1]))
                                            : size_to_dim_(axis_w, GetDimsVector(in[1])));
  vector<int> y_shape(in[0].dims().begin(), in[0].dims().end());
  CAFFE_ENFORCE_LE(static_cast<size_t>(axis) + 1, y_shape.size());
  y_shape.resize(static_cast<size_t>(axis) + 1);
  y_shape[static_cast<size_t>(axis)] = N;
  vector<TensorShape> out(1);
  out[0] = CreateTensorShape(y_shape, in[0].data_type());
  return out;
}

REGISTER_CPU_OPERATOR(CompatFC, CompatFullyConnectedOp<float, CPUContext>);
using namespace std::placeholders;
OPERATOR_SCHEMA(CompatFC)
    .NumInputs(3)
    .NumOutputs(1)
    .TensorInferenceFunction(std::bind(FullyConnectedShape, _1, _2, false))
    .CostInferenceFunction([](const ::opkit::OperatorDef&, const vector<TensorInfo>& in,
                              const vector<TensorInfo>& out) {
      OpCost cost;
      cost.flops = 2 * ::opkit::OpSchema::Elements(in[1]) * ::opkit::OpSchema::Elements(out[0]);
      return cost;
    })
    .Arg("axis", "the first axis of X's columns")
    .Arg("axis_w", "the first axis of W's columns")
    .Input(0, "X", "is seen as a matrix of M rows")
    .Input(1, "W", "is seen as a matrix of N rows")
    .Input(2, "b", "has N elements")
    .Output(0, "Y", "has M rows")
    .SetDoc("Y = X * W^T + b.");

// Limits elements to an interval.
template <typename T, class Context>
class CompatLimitOp final : public Operator<Context> {
 public:
  USE_OPERATOR_CONTEXT_FUNCTIONS;
  CompatLimitOp(const OperatorDef& def, Workspace* ws)
      : Operator<Context>(def, ws), most_(std::numeric_limits<T>::max()) {
    if (HasArgument("most"))
      most_ = static_cast<T>(this->template GetSingleArgument<float>("most", 0));
  }
  bool RunOnDevice() override;

 protected:
  T most_;
};
template <>
bool CompatLimitOp<float, CPUContext>::RunOnDevice() {
  auto& X = Input(0);
  auto* Y = Output(0);
  DCHECK_GE(X.size(), 0);
  Y->ResizeLike(X);
  const float* x = X.data<float>();
  float* y = Y->mutable_data<float>();
  for (int i = 0; i < X.size(); ++i) y[i] = std::min(x[i], most_);
  return true;
}
template <typename T, class Context>
class CompatLimitGradientOp final : public Operator<Context> {
 public:
  USE_SIMPLE_CTOR_DTOR(CompatLimitGradientOp);
  USE_OPERATOR_CONTEXT_FUNCTIONS;
  bool RunOnDevice() override {
    auto& Y = Input(0);
    auto& dY = Input(1);
    const T most = this->template GetSingleArgument<float>("most", 0);
    auto* dX = Output(0);
    dX->ResizeLike(Y);
    for (int i = 0; i < Y.size(); ++i)
      dX->template mutable_data<T>()[i] =
          dY.template data<T>()[i] * (Y.template data<T>()[i] < most);
    return true;
  }
};
REGISTER_CPU_OPERATOR(CompatLimit, CompatLimitOp<float, CPUContext>);
REGISTER_CPU_GRADIENT_OPERATOR(CompatLimitGradient, CompatLimitGradientOp<float, CPUContext>);
OPERATOR_SCHEMA(CompatLimit)
    .NumInputs(1)
    .NumOutputs(1)
    .AllowInplace({{0, 0}})
    .IdenticalTypeAndShape()
    .InheritOnnxSchema("Min")
    .Arg("most", "the largest value of an element");
GRADIENT_OPERATOR_SCHEMA(CompatLimitGradient)
    .NumInputs(2)
    .NumOutputs(1)
    .AllowInplace({{1, 0}})
    .AllowUnknownArgs();
class GetCompatLimitGradient : public GradientMakerBase {
  using GradientMakerBase::GradientMakerBase;
  vector<OperatorDef> GetGradientDefs() override {
    CAFFE_ENFORCE_EQ(def_.input_size(), 1);
    CAFFE_ENFORCE(def_.output(0) == O(0));
    return SingleGradientDef(def_.type() + "Gradient", "", vector<string>{O(0), GO(0)},
                             vector<string>{GI(0)});
  }
};
REGISTER_GRADIENT(CompatLimit, GetCompatLimitGradient);

// Adds its input to what its output holds.
template <typename T, class Context>
class CompatSumUpOp final : public Operator<Context> {
 public:
  USE_OPERATOR_CONTEXT_FUNCTIONS;
  CompatSumUpOp(const OperatorDef& def, Workspace* ws)
      : Operator<Context>(def, ws),
        gamma_(static_cast<T>(this->template GetSingleArgument<float>("gamma", 1.0))) {}
  bool RunOnDevice() override {
    auto& input = Input(0);
    auto* output = Output(0);
    if (output->sizes() != input.sizes()) {
      output->ResizeLike(input);
      math::Set<T, Context>(output->numel(), 0, output->template mutable_data<T>(), &context_);
    }
    math::Axpby<T, Context>(input.numel(), 1, input.template data<T>(), gamma_,
                            output->template mutable_data<T>(), &context_);
    return true;
  }

 private:
  T gamma_;
};
REGISTER_CPU_OPERATOR(CompatSumUp, CompatSumUpOp<float, CPUContext>);
OPERATOR_SCHEMA(CompatSumUp).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape().Arg("gamma", "");
SHOULD_NOT_DO_GRADIENT(CompatSumUp);

// The least and the largest element; for two dtypes.
template <class Context>
class CompatRangeOp final : public Operator<Context> {
 public:
  USE_SIMPLE_CTOR_DTOR(CompatRangeOp);
  USE_OPERATOR_CONTEXT_FUNCTIONS;
  static constexpr int MIN_IDX = 0, MAX_IDX = 1, NUM_STATS = 2;

  bool RunOnDevice() override {
    return DispatchHelper<TensorTypes<float, int64_t>>::call(this, Input(0));
  }
  template <typename T>
  bool DoRunWithType() {
    const auto& X = this->template Input<Tensor>(0, CPU);
    CAFFE_ENFORCE(X.template IsType<T>() && X.itemsize() == int64_t{sizeof(T)});
    if (OutputSize()) {
      auto* Y = Output(0);
      Y->Resize(NUM_STATS);
      T* y = Y->template mutable_data<T>();
      y[MIN_IDX] = *std::min_element(X.template data<T>(), X.template data<T>() + X.numel());
      y[MAX_IDX] = *std::max_element(X.template data<T>(), X.template data<T>() + X.numel());
    }
    return true;
  }
};
REGISTER_CPU_OPERATOR(CompatRange, CompatRangeOp<CPUContext>);
OPERATOR_SCHEMA(CompatRange)
    .NumInputs(1)
    .NumOutputs(0, 1)
    .TensorInferenceFunction([](const OperatorDef& def, const vector<TensorShape>& in) {
      vector<TensorShape> out(static_cast<size_t>(def.output_size()));
      for (TensorShape& shape : out) {
        shape.add_dims(2);
        shape.set_data_type(in[0].data_type());
      }
      return out;
    });

// Writes its outputs through values. Its constructor passes all arguments to the base, as
// those of most of Caffe2's operators do.
template <class Context>
class CompatOuterOp final : public Operator<Context> {
 public:
  template <class... Args>
  explicit CompatOuterOp(Args&&... args) : Operator<Context>(std::forward<Args>(args)...) {}
  USE_OPERATOR_CONTEXT_FUNCTIONS;
  bool RunOnDevice() override {
    const auto& X = Input(0);
    auto Y = XOutput(0, {X.size(0), X.numel()}, at::dtype<float>());
    for (int64_t i = 0; i < Y.numel(); ++i)
      Y.template mutable_data<float>()[i] =
          X.template data<float>()[i / X.numel()] * X.template data<float>()[i % X.numel()];
    auto copy = XOutput(1, X.sizes(), at::dtype<float>());
    copy.CopyFrom(X);
    return true;
  }
};
REGISTER_CPU_OPERATOR(CompatOuter, CompatOuterOp<CPUContext>);
OPERATOR_SCHEMA(CompatOuter)
    .NumInputs(1)
    .NumOutputs(2)
    .TensorInferenceFunction([](const OperatorDef&, const vector<TensorShape>& in) {
      vector<TensorShape> out(2, in[0]);
      out[0].set_unknown_shape(true);
      out[0].set_dims(0, -1);  // is not read
      return out;
    });

// Uses the members and setters that docs/from-caffe2.md calls the same and no other test uses.
template <class Context>
class CompatSameOp final : public Operator<Context> {
 public:
  USE_OPERATOR_CONTEXT_FUNCTIONS;
  USE_SIMPLE_CTOR_DTOR(CompatSameOp);
  INPUT_TAGS(X, TEXT, LEFT_OUT);
  OUTPUT_TAGS(Y, ALIAS, COPY);

  bool RunOnDevice() override {
    const auto& x = Input(X, CPU);
    CAFFE_ENFORCE(this->InputIsTensorType(X, CPU) &&
                  this->InputBlob(TEXT).template IsType<string>());
    CAFFE_ENFORCE(HasInput(TEXT) && !HasInput(LEFT_OUT) && HasOutput(COPY));
    CAFFE_ENFORCE_EQ(x.sizes(), x.dims());
    CAFFE_ENFORCE_LT(x.size(-1), x.nbytes() / x.itemsize() + 1);
    CAFFE_ENFORCE(x.GetDeviceType() == Context::GetDeviceType() &&
                  x.raw_data() == x.template data<float>());
    auto* y = Output(Y, CPU);
    y->ResizeLike(x);
    y->CopyFrom(x);
    y->Reshape({x.numel()});
    const auto& text = OperatorBase::Input<string>(TEXT);
    y->template mutable_data<float>()[0] = static_cast<float>(text.size());
    if (this->template HasSingleArgumentOfType<int>("axis"))
      y->template mutable_data<float>()[1] = this->template GetSingleArgument<float>("axis", 0);
    for (const int i : this->template GetRepeatedArgument<int>("zeros"))
      y->template mutable_data<float>()[i] = 0;
    this->OutputTensorAlias(ALIAS, x);
    CAFFE_ENFORCE(this->IsInputOutputAlias(X, ALIAS) && !this->IsInputOutputAlias(X, Y));
    this->SetOutputTensor(COPY, *y);
    return true;
  }
};
REGISTER_CPU_OPERATOR(CompatSame, CompatSameOp<CPUContext>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(CompatSame, FAST, CompatSameOp<CPUContext>);
OPERATOR_SCHEMA(CompatSame)
    .NumInputs({2, 3})
    .NumInputs([](int n) { return n == 2 || n == 3; })
    .NumOutputs(3, 3)
    .NumInputsOutputs([](int inputs, int outputs) { return inputs <= outputs; })
    .AllowOneToOneInplace()
    .InputsCanCrossDevices()
    .ArgIsTest("is not read")
    .Arg("axis", "a number")
    .Arg("zeros", "the elements of Y that are 0")
    .PointwiseCost(1)
    .FillUsing([](OpSchema& schema) { schema.SetDoc("Y = X with the length of a text."); })
    .Private();
NO_GRADIENT(CompatSame);
// Schemas alone: each sets its numbers of values and its types by another setter.
OPERATOR_SCHEMA(CompatSameCounts).NumInputs(1, 3).SameNumberOfOutput().EnforceOneToOneInplace();
OPERATOR_SCHEMA(CompatSameCalculated)
    .NumInputs(1)
    .OutputCalculator([](int inputs) { return inputs + 1; })
    .EnforceInplace({{0, 1}})
    .IdenticalTypeAndShapeOfInputDim(0, 1);
OPERATOR_SCHEMA(CompatSameScalar).NumInputs(1).NumOutputs(1).ScalarType(TensorProto::INT64);
OPERATOR_SCHEMA(CompatSameOfInput).NumInputs(2).NumOutputs(1).IdenticalTypeAndShapeOfInput(1);

// Refuses everything.
template <class Context>
class CompatThrowsOp final : public Operator<Context> {
 public:
  USE_OPERATOR_CONTEXT_FUNCTIONS;
  using Operator<Context>::Operator;
  bool RunOnDevice() override { CAFFE_THROW("found ", InputSize(), " inputs"); }
};
REGISTER_CPU_OPERATOR(CompatThrows, CompatThrowsOp<CPUContext>);
OPERATOR_SCHEMA(CompatThrows)
    .NumInputs(1)
    .NumOutputs(1)
    .AllowInplace({{0, 0}})
    .Arg("why", "the reason", true)
    .AllowUnknownArgs();

using Values = ::opkit::Tensor;

TEST_CASE("an operator in Caffe2's spelling runs after one include") {
  const Values x = Values::From<float>({1, 2}, {1, 2});
  const Values w = Values::From<float>({2, 2}, {1, 0, 1, 1});
  const Values b = Values::From<float>({2}, {0.5f, 0});
  CHECK(Invoke("CompatFC", {x, w, b})[0].ToVector<float>() == vector<float>{1.5f, 3});
  CHECK(Invoke("CompatFC", {x, w, b}, {{"axis", -1}})[0].shape() == Shape{1, 2});
  const Error error = ErrorOf([&] { Invoke("CompatFC", {x, w, x}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(), "expected (b.dim()) == (1): b is [1, 2]"));
  CHECK(ErrorOf([&] {
          Invoke("CompatFC", {x, w, b}, {{"axis", 2}});
        }).code() == ErrorCode::kOutOfRange);
  const Error thrown = ErrorOf([&] { Invoke("CompatThrows", {x}, {{"why", "none"}}); });
  CHECK(Contains(thrown.message(), "found 1 inputs"));
  CHECK(Contains(ErrorOf([&] { Invoke("CompatThrows", {x}); }).message(),
                 "needs the argument 'why' (the reason)"));
}

TEST_CASE("Caffe2's form of inference runs once all shapes are known") {
  const auto& schema = OpRegistry::Global().GetSchema("CompatFC");
  const OperatorDef def("CompatFC", {"x", "w", "b"}, {"y"}, {{"axis", 2}});
  const TensorInfo x(DType::kFloat32, {2, 3, 4}), w(DType::kFloat32, {5, 4}), open;
  CHECK(schema.InferOutputs(def, {x, w, open})[0].shape.has_rank() == false);
  const TensorInfo y = schema.InferOutputs(def, {x, w, {DType::kFloat32, {5}}})[0];
  CHECK(y.dtype == DType::kFloat32);
  CHECK(y.shape.ToShape() == Shape{2, 3, 5});
  const auto outer =
      OpRegistry::Global()
          .GetSchema("CompatOuter")
          .InferOutputs(OperatorDef("CompatOuter", {"x"}, {"y", "z"}), {{DType::kFloat32, {3}}});
  CHECK(outer[0].dtype == DType::kFloat32);
  CHECK_FALSE(outer[0].shape.has_rank());
  CHECK(outer[1].shape.ToShape() == Shape{3});
}

TEST_CASE("matrix products take transposed matrices and add to the result") {
  const vector<float> a{1, 2, 3, 4, 5, 6}, x{1, 10};
  vector<float> y{1, 1, 1};
  math::Gemv<float, CPUContext>(CblasTrans, 2, 3, 2, a.data(), x.data(), 1, y.data(), nullptr);
  CHECK(y == vector<float>{83, 105, 127});
  vector<float> z{NAN, NAN};
  math::Gemv<float, CPUContext>(CblasNoTrans, 2, 3, 1, a.data(), y.data(), 0, z.data(), nullptr);
  CHECK(z == vector<float>{674, 1619});
}

TEST_CASE("a gradient in Caffe2's spelling is that of its operator") {
  const Values x = Values::From<float>({2}, {1, 4});
  CHECK(Invoke("CompatLimit", {x}, {{"most", 2.f}})[0].ToVector<float>() == vector<float>{1, 2});
  CHECK(Invoke("CompatLimit", {x})[0].ToVector<float>() == vector<float>{1, 4});
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("CompatLimit", {"x"}, {"y"}, {{"most", 2.f}}));
  graph.AddInput("dy", DType::kFloat32, {2});
  graph.AddOutput("y");
  const string dx = AddGradients(graph, "y", {"x"}, {.seed = "dy"}).at("x").dense;
  graph.AddOutput(dx);
  const Values ones = Values::From<float>({2}, {1, 1});
  const auto results = Executor(Compile(graph)).Run({{"x", x}, {"dy", ones}});
  CHECK(results.Get(dx).ToVector<float>() == vector<float>{1, 0});
}

TEST_CASE("an output keeps its elements between the runs of an operator") {
  Workspace ws;
  *ws.CreateTensor("x") = Values::From<float>({2}, {1, 2});
  const auto op = CreateOperator(OperatorDef("CompatSumUp", {"x"}, {"y"}, {{"gamma", 2.f}}), &ws);
  for (int run = 0; run < 3; ++run) op->Run();
  CHECK(ws.GetTensor("y")->ToVector<float>() == vector<float>{7, 14});
}

TEST_CASE("outputs may be left out, resized by the operator, or reached through values") {
  const Values x = Values::From<int64_t>({3}, {5, -1, 7});
  const Values range = Invoke("CompatRange", {x}, {}, {.num_outputs = 1})[0];
  CHECK(range.ToVector<int64_t>() == vector<int64_t>{-1, 7});
  CHECK(Invoke("CompatRange", {x}, {}, {.num_outputs = 0}).empty());
  const auto outer = Invoke("CompatOuter", {Values::From<float>({2}, {2, 3})});
  CHECK(outer[0].ToVector<float>() == vector<float>{4, 6, 6, 9});
  CHECK(outer[1].ToVector<float>() == vector<float>{2, 3});
}

TEST_CASE("members of an operator with Caffe2's names have its meaning") {
  Workspace ws;
  *ws.CreateTensor("x") = Values::From<float>({2, 2}, {1, 2, 3, 4});
  *ws.CreateBlob("text")->GetMutable<string>() = "seven h";
  const OperatorDef def = OperatorDef("CompatSame", {"x", "text", ""}, {"y", "alias", "copy"},
                                      {{"axis", 5}, {"zeros", vector<int64_t>{3}}})
                              .Engine("NONE,FAST");
  const auto op = CreateOperator(def, &ws);
  CHECK(op->backend() == "FAST");
  op->Run();
  CHECK(ws.GetTensor("y")->ToVector<float>() == vector<float>{7, 5, 3, 0});
  CHECK(ws.GetTensor("copy")->ToVector<float>() == vector<float>{7, 5, 3, 0});
  CHECK(ws.GetTensor("alias")->SharesMemoryWith(*ws.GetTensor("x")));
}

TEST_CASE("setters of a schema with Caffe2's names have its meaning") {
  const auto infer = [](const char* op, vector<string> in, vector<string> out) {
    vector<TensorInfo> types;
    for (size_t i = 0; i < in.size(); ++i)
      types.emplace_back(DType::kFloat32, SymbolicShape{static_cast<int64_t>(i) + 2, 5});
    return OpRegistry::Global().GetSchema(op).InferOutputs(OperatorDef(op, in, out), types)[0];
  };
  CHECK(infer("CompatSameCalculated", {"x"}, {"y", "x"}).shape.ToShape() == Shape{5});
  CHECK(infer("CompatSameScalar", {"x"}, {"y"}).dtype == DType::kInt64);
  CHECK(infer("CompatSameScalar", {"x"}, {"y"}).shape.ToShape() == Shape{});
  CHECK(infer("CompatSameOfInput", {"a", "b"}, {"y"}).shape.ToShape() == Shape{3, 5});
  const auto verify = [](const char* op, vector<string> in, vector<string> out) {
    return OpRegistry::Global().GetSchema(op).Verify(OperatorDef(op, in, out));
  };
  CHECK(verify("CompatSameCounts", {"a", "b"}, {"a", "b"}) == "");
  CHECK(verify("CompatSameCounts", {"a", "b"}, {"a"}) != "");
  CHECK(verify("CompatSameCounts", {"a"}, {"b"}) != "");
  CHECK(verify("CompatSameCalculated", {"x"}, {"y", "x"}) == "");
  CHECK(verify("CompatSameCalculated", {"x"}, {"y", "z"}) != "");
  CHECK(verify("CompatSame", {"x", "t"}, {"y", "a", "c"}) == "");
  CHECK(verify("CompatSame", {"x"}, {"y", "a", "c"}) != "");
}

TEST_CASE("products of extents refuse axes that a tensor does not have") {
  Tensor x(CPU);
  x.Resize(2, 3, 4);
  CHECK(x.size_to_dim(0) == 1);
  CHECK(x.size_to_dim(3) == 24);
  CHECK(x.size_from_dim(0) == 24);
  CHECK(x.size_from_dim(3) == 1);
  CHECK(x.size_between_dim(2, 0) == 3);
  // As in Caffe2, the function leaves both axes out, like the member.
  CHECK(size_between_dim_(0, 2, x.sizes()) == 3);
  CHECK(size_between_dim_(1, 1, x.sizes()) == 1);
  for (const int k : {-1, 4, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
    INFO(k);
    CHECK(ErrorOf([&] { x.size_to_dim(k); }).code() == ErrorCode::kOutOfRange);
    CHECK(ErrorOf([&] { x.size_from_dim(k); }).code() == ErrorCode::kOutOfRange);
    CHECK(ErrorOf([&] { x.size_between_dim(0, k); }).code() == ErrorCode::kOutOfRange);
  }
}

TEST_CASE("a tensor of Caffe2's spelling has its own memory, or that of another") {
  Tensor x(CPU);
  x.Resize(vector<int>{2, 3, 4});
  CHECK(x.mutable_data<float>() != nullptr);
  CHECK(x.ndim() == 3);
  CHECK(x.size_to_dim(2) == 6);
  CHECK(x.size_from_dim(1) == 12);
  CHECK(x.size_between_dim(0, 2) == 3);
  CHECK(x.GetDeviceType() == CPU);
  CHECK(x.nbytes() == 96);
  x.Reshape({6, 4});
  CHECK(x.dims() == IntArrayRef(Shape{6, 4}));
  x.mutable_data<int64_t>()[0] = 5;
  CHECK(x.dtype() == DType::kInt64);
  Values other;
  Tensor bound;
  bound.Bind(&other);
  bound.Resize(6, 4);
  bound.mutable_data<int64_t>();
  bound.ShareData(x);
  CHECK(other.data<int64_t>()[0] == 5);
}

TEST_CASE(
    "preferences of engines are maps of Caffe2's types, and one wrong entry changes nothing") {
  using PerDevice = map<DeviceType, EnginePref>;
  using PerOp = map<DeviceType, map<string, EnginePref>>;
  const auto preferred = [] {
    return OpRegistry::Global().PreferenceOf("CompatFC", DeviceType::kCPU);
  };
  SetGlobalEnginePref(PerDevice{{DeviceType::kCPU, {"FAST"}}});
  SetPerOpEnginePref(PerOp{{DeviceType::kCPU, {{"CompatFC", {"FASTER"}}}}});
  CHECK(preferred() == EnginePref{"FASTER", "FAST"});
  SetOpEnginePref("CompatFC", PerDevice{{DeviceType::kCPU, {"DEFAULT"}}});
  CHECK(preferred() == EnginePref{"DEFAULT", "FAST"});
  const Error error = ErrorOf([] {
    SetPerOpEnginePref(
        PerOp{{DeviceType::kCPU, {{"CompatFC", {"FAST"}}, {"CompatNobody", {"FAST"}}}}});
  });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(preferred() == EnginePref{"DEFAULT", "FAST"});
  SetOpEnginePref("CompatFC", DeviceType::kCPU, {});
  SetGlobalEnginePref(DeviceType::kCPU, {});
  CHECK(preferred().empty());
}

}  // namespace
}  // namespace caffe2
