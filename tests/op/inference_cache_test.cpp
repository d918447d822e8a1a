// Inference is done once for inputs of the same dtypes and shapes, whether an eager call, the
// operator itself or a plan needs it.
#include "opkit/op/inference.hpp"

#include <doctest/doctest.h>

#include "opkit/op/function/function_operator.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/typed_operator.hpp"
#include "support/bench.hpp"
#include "support/error_of.hpp"

namespace inference_cache_test { namespace {

using opkit::CPUContext;
using opkit::CreateOperator;
using opkit::Dim;
using opkit::DType;
using opkit::Error;
using opkit::ErrorCode;
using opkit::In;
using opkit::InferenceContext;
using opkit::Operator;
using opkit::OperatorDef;
using opkit::Out;
using opkit::ResolvedOperator;
using opkit::Shape;
using opkit::SymbolicShape;
using opkit::Tensor;
using opkit::TensorInfo;
using opkit::Workspace;

int g_inferred = 0;  // calls of the inference functions below

template <class Context>
void CacheTyped(Context&, In<"x", float> x, Out<"y", float> y) {
  for (int64_t i = 0; i < x.size(); ++i) y[i] = x[i];
}
OPKIT_OP(CacheTyped)
    .OutShape<"y">([](const InferenceContext& context) {
      ++g_inferred;
      return context.input_shape(0);
    })
    .Kernel<CPUContext>();

// As many zeros as x[0] says.
template <class Context>
void CacheByData(Context&, In<"x", float>, Out<"y", float> y) {
  for (int64_t i = 0; i < y.size(); ++i) y[i] = 0;
}
OPKIT_OP(CacheByData)
    .OutShape<"y">([](const InferenceContext& context) {
      ++g_inferred;
      const Tensor* x = context.input_constant(0);
      return x ? SymbolicShape{Dim(static_cast<int64_t>(x->data<float>()[0]))} : SymbolicShape();
    })
    .Kernel<CPUContext>();

REGISTER_OP(CacheFunction)
    .setForward([](const opkit::AttrMap&, std::span<const opkit::OpTensor> in,
                   std::span<opkit::OpTensor> out, opkit::OpResource&) {
      for (int64_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = in[0].data<float>()[i];
    })
    .setParseAttrs([](const opkit::AttrMap&, int* in, int* out) {
      *in = *out = 1;
      return true;
    })
    .setInferShape([](const opkit::AttrMap&, opkit::ShapeVectors& in, opkit::ShapeVectors& out) {
      ++g_inferred;
      out = in;
      return true;
    })
    .scratch([](const opkit::AttrMap&, const opkit::ShapeVectors& in) { return in[0][0]; });

class CacheClassOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    Output(0, Input(0).shape(), Input(0).dtype())->CopyFrom(Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(CacheClass).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& context) {
  ++g_inferred;
  context.SetOutput(0, context.input_dtype(0), context.input_shape(0));
});
REGISTER_CPU_OPERATOR(CacheClass, CacheClassOp);

Tensor Ones(Shape shape) {
  Tensor out(std::move(shape), DType::kFloat32);
  for (int64_t i = 0; i < out.numel(); ++i) out.mutable_data<float>()[i] = 1;
  return out;
}
template <class F>
int Inferences(F run) {
  g_inferred = 0;
  run();
  return g_inferred;
}

TEST_CASE("an eager call infers once, and not again while dtypes and shapes stay the same") {
  for (const char* op : {"CacheTyped", "CacheFunction", "CacheClass"}) {
    CAPTURE(op);
    ResolvedOperator resolved(op, 1);
    CHECK(Inferences([&] { resolved({Ones({3})}); }) == 1);
    CHECK(Inferences([&] { resolved({Ones({3})}); }) == 0);
    CHECK(Inferences([&] { CHECK(resolved({Ones({2})})[0].shape() == Shape{2}); }) == 1);
  }
}

TEST_CASE("an input that was never written is refused when its data is requested") {
  opkit::detail::InferenceCache cache;
  const Tensor x({2}, DType::kInt64), nothing;
  const Tensor* inputs[] = {&x, &nothing};
  const Error error = ErrorOf([&] {
    cache.Infer(
        OperatorDef("Reshape", {"x", "shape"}, {"y"}), inputs,
        [](InferenceContext& c) { c.input_constant(1); }, [] {});
  });
  CHECK(error.code() == ErrorCode::kUninitialized);
  CHECK(Contains(error.message(), "input 1 'shape' is "));
  CHECK(Contains(error.message(), ": nothing was written to it"));
  cache.Infer(
      OperatorDef("Reshape", {"x", "shape"}, {"y"}), inputs,
      [](InferenceContext& c) { c.SetOutput(0, c.input_dtype(0), {2}); }, [] {});
  CHECK(cache.outputs()[0].shape == Shape{2});  // what is not read may be missing
}

TEST_CASE("types that depend on an input's data are inferred anew, once a run") {
  ResolvedOperator resolved("CacheByData", 1);
  for (int i = 0; i < 3; ++i) CHECK(Inferences([&] { resolved({Ones({3})}); }) == 1);
}

struct ThreeOnes : Bench {
  explicit ThreeOnes(const char* type) {
    Add("x", {1, 1, 1});
    Create(type);
  }
  const Tensor& Run() {
    op->Run();
    return *ws.GetTensor("y");
  }
};

TEST_CASE("an operator uses the plan's inferred types, and infers only for other inputs") {
  for (const char* type : {"CacheTyped", "CacheFunction"}) {
    CAPTURE(type);
    ThreeOnes bench(type);
    CHECK(bench.op->InfersOutputs());
    const TensorInfo three(DType::kFloat32, Shape{3}), two(DType::kFloat32, Shape{2});
    bench.op->SetInferredOutputs({&three, 1}, {&three, 1});
    CHECK(Inferences([&] { CHECK(bench.Run().shape() == Shape{3}); }) == 0);
    *bench.ws.GetTensor("x") = Ones({2});
    CHECK(Inferences([&] { CHECK(bench.Run().shape() == Shape{2}); }) == 1);
    CHECK(Inferences([&] { bench.Run(); }) == 0);
    // Said for inputs that are yet to come.
    bench.op->SetInferredOutputs({&three, 1}, {&three, 1});
    CHECK(Inferences([&] { CHECK(bench.Run().shape() == Shape{2}); }) == 1);
    *bench.ws.GetTensor("x") = Ones({3});
    bench.op->SetInferredOutputs({&three, 1}, {&three, 1});
    CHECK(Inferences([&] { CHECK(bench.Run().shape() == Shape{3}); }) == 0);
  }
}

TEST_CASE("where a plan lacked data, runs infer, and a contradiction of the plan is an Error") {
  for (const char* type : {"CacheTyped", "CacheFunction"}) {
    CAPTURE(type);
    ThreeOnes bench(type);
    const TensorInfo three(DType::kFloat32, Shape{3});
    bench.op->SetInferredOutputs({&three, 1}, {&three, 1}, true);
    *bench.ws.GetTensor("x") = Ones({3});
    CHECK(Inferences([&] { CHECK(bench.Run().shape() == Shape{3}); }) == 1);
    *bench.ws.GetTensor("x") = Ones({2});
    const Error error = ErrorOf([&] { bench.Run(); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.message(), "is float32[3], but inference finds"));
  }
}

TEST_CASE("types that a plan does not know are inferred, and a wrong count is an Error") {
  ThreeOnes bench("CacheTyped");
  const TensorInfo known(DType::kFloat32, Shape{3}), open(DType::kFloat32, {Dim()}),
      untyped(DType::kUndefined, Shape{3});
  for (const TensorInfo* in : {&known, &open})
    for (const TensorInfo* out : {&open, &untyped}) {
      bench.op->SetInferredOutputs({in, 1}, {out, 1});
      *bench.ws.GetTensor("x") = Ones({3});
      CHECK(Inferences([&] { bench.Run(); }) == 1);
      *bench.ws.GetTensor("x") = Ones({4});
      bench.Run();
    }
  const Error error = ErrorOf([&] { bench.op->SetInferredOutputs({&known, 1}, {}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(), "is given types of 1 inputs and 0 outputs"));
}

}  // namespace
}  // namespace inference_cache_test
