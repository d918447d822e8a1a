// The gradient of an exported operator as an operator, and what an image says about its exports.
#include "opkit/export/gradient_operator.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "opkit/export/description.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/op/typed_operator.hpp"
#include "opkit/version.hpp"
#include "support/error_of.hpp"

namespace gradient_operator_test { namespace {

using namespace opkit;

// y = factor * x * w; the second output has no gradient, and no gradient flows to `index`.
template <class Context, class T>
void GradMul(Context& ctx, In<"x", T> x, In<"w", T> w, In<"index", int64_t>, Out<"y", T> y,
             Out<"sign", int8_t> sign, Attr<"factor", float> factor) {
  const T f = static_cast<T>(factor.value());
  ParallelFor(ctx, y.size(), [=](int64_t i) {
    y[i] = f * x[i] * w[i];
    sign[i] = y[i] < 0;
  });
}
OPKIT_OP(GradMul)
    .SameShape<"x", "w", "y", "sign">()
    .Default<"factor">(1.f)
    .Kernel<CPUContext, float, double>();

// The product of two tensors and the factor: the gradients, with an intermediate result between.
template <class Context, class T>
void GradProduct(Context& ctx, In<"a", T> a, In<"b", T> b, Out<"c", T> c,
                 Attr<"factor", float> factor) {
  const T f = static_cast<T>(factor.value());
  ParallelFor(ctx, c.size(), [=](int64_t i) { c[i] = f * a[i] * b[i]; });
}
OPKIT_OP(GradProduct)
    .SameShape<"a", "b", "c">()
    .Default<"factor">(1.f)
    .Kernel<CPUContext, float, double>();

class GradMulMaker final : public GradientMakerBase {
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    CHECK(GradOut(1).IsEmpty());
    return {OperatorDef("GradProduct", {GO(0), I(1)}, {GI(0)}),
            OperatorDef("GradProduct", {GO(0), I(0)}, {GI(1)})};
  }
};
REGISTER_GRADIENT(GradMul, GradMulMaker);

// z = x, with an optional input; the gradient is that of the output, unchanged.
template <class Context>
void GradCopy(Context& ctx, In<"x", float> x, OptionalIn<"b", float>, Out<"x_", float> z) {
  ParallelFor(ctx, z.size(), [=](int64_t i) { z[i] = x[i]; });
}
OPKIT_OP(GradCopy).SameShape<"x", "x_">().Kernel<CPUContext>();
class GradCopyMaker final : public GradientMakerBase {
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    SetDense(0, GO(0));
    return {};
  }
};
REGISTER_GRADIENT(GradCopy, GradCopyMaker);

// The gradient has another shape than the input.
template <class Context>
void GradWrong(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(ctx, y.size(), [=](int64_t i) { y[i] = x[0]; });
}
OPKIT_OP(GradWrong)
    .OutShape<"y">([](const InferenceContext&) { return Shape{3}; })
    .Kernel<CPUContext>();
REGISTER_GRADIENT(GradWrong, GradCopyMaker);

template <class Context>
void GradNone(Context&, In<"x", float>, Out<"y", float>) {}
OPKIT_OP(GradNone).SameShape<"x", "y">().Kernel<CPUContext>();

template <class Context>
void GradStopped(Context&, In<"x", float>, Out<"y", float>) {}
OPKIT_OP(GradStopped).SameShape<"x", "y">().Kernel<CPUContext>();
NO_GRADIENT(GradStopped);

template <class Context>
void GradRefused(Context&, In<"x", float>, Out<"y", float>) {}
OPKIT_OP(GradRefused).SameShape<"x", "y">().Kernel<CPUContext>();
SHOULD_NOT_DO_GRADIENT(GradRefused);

template <class Context>
void GradTaken(Context&, In<"x", float>, Out<"y", float>) {}
OPKIT_OP(GradTaken).SameShape<"x", "y">().Kernel<CPUContext>();
NO_GRADIENT(GradTaken);
template <class Context>
void GradTaken_grad(Context&, In<"x", float>, Out<"y", float>) {}
OPKIT_OP(GradTaken_grad).SameShape<"x", "y">().Kernel<CPUContext>();

class DescribedClass final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override { return true; }
};
OPERATOR_SCHEMA(DescribedClass)
    .NumInputs(1, detail::CountRule::kAny)
    .NumOutputs(1, 2)
    .KeepsState()
    .Arg("any", "of any type")
    .Arg("mode", "how", {"same", "valid"})
    .Arg<std::vector<double>>("scales", "", std::vector<double>{0.5, 2})
    .Arg<double>("limit", "", std::numeric_limits<double>::infinity())
    .RequiredArg<bool>("flag", "");
REGISTER_CPU_OPERATOR(DescribedClass, DescribedClass);

detail::ExportedOperator g_mul("GradMul"), g_mul_gradient("GradMul_grad", "GradMul"),
    g_copy("GradCopy"), g_described("DescribedClass"), g_copy_again("GradCopy");
const bool g_added =
    detail::g_xla_operators.Add(g_mul) && detail::g_xla_operators.Add(g_described) &&
    detail::g_torch_operators.Add(g_copy) && detail::g_tvm_ffi_operators.Add(g_copy_again);

template <class F>
std::string TextOf(F&& call) {
  return ErrorOf(call).what();
}
const OpSchema& GradientOf(const char* op) {
  return detail::GradientOperatorSchema(OpRegistry::Global().GetSchema(op));
}
std::string Values(const Tensor& tensor) {
  std::vector<float> values(tensor.data<float>(), tensor.data<float>() + tensor.numel());
  return StrCat(values);
}

TEST_CASE("A gradient is an operator") {
  REQUIRE(g_added);
  const OpSchema& schema = g_mul_gradient.schema();
  CHECK(&schema == &GradientOf("GradMul"));
  CHECK(schema.name() == "GradMul_grad");
  CHECK(schema.is_internal());
  std::string names;
  for (const auto& input : schema.inputs()) names += input.name + " ";
  for (const auto& output : schema.outputs()) names += output.name + " ";
  CHECK(names == "grad_y grad_sign y sign x w index grad_x grad_w grad_index ");
  CHECK(schema.min_outputs() == 3);
  CHECK(schema.FindAttribute("factor"));

  const auto f = [](float a, float b) { return Tensor::From<float>({2}, {a, b}); };
  const Tensor index = Tensor::From<int64_t>({1}, {7});
  const Tensor sign = Tensor::From<int8_t>({2}, {0, 1});
  const auto run = [&] {
    return Invoke("GradMul_grad", {f(1, 2), sign, f(0, 0), sign, f(3, -1), f(5, 4), index},
                  {{"factor", 2.f}});
  };
  const std::vector<Tensor> gradients = run();
  CHECK(Values(gradients[0]) == "[10, 16]");
  CHECK(Values(gradients[1]) == "[6, -4]");
  CHECK(gradients[2].dtype() == DType::kInt64);
  CHECK(gradients[2].data<int64_t>()[0] == 0);
  CHECK(Values(run()[0]) == "[10, 16]");

  const auto wrong = [&](const Tensor& grad, const Tensor& y, const Tensor& x) {
    return TextOf([&] { Invoke("GradMul_grad", {grad, sign, y, sign, x, f(5, 4), index}); });
  };
  const Tensor three = Tensor::From<float>({3}, {1, 2, 3});
  CHECK(wrong(three, f(0, 0), f(1, 2)).find("[3]") != std::string::npos);
  CHECK(wrong(three, three, f(1, 2)).find("[3]") != std::string::npos);
  CHECK(wrong(f(0, 0), f(0, 0), three).find("[3]") != std::string::npos);
}

TEST_CASE("A gradient of an operator with an optional input") {
  GradientOf("GradCopy");
  const Tensor x = Tensor::From<float>({2}, {1, 2}), dy = Tensor::From<float>({2}, {3, 4});
  const auto one = Invoke("GradCopy_grad", {dy, x, x});
  REQUIRE(one.size() == 1);
  CHECK(Values(one[0]) == "[3, 4]");
  CHECK(one[0].raw_data() != dy.raw_data());
  const auto both = Invoke("GradCopy_grad", {dy, x, x, Tensor::From<float>({1}, {9})});
  REQUIRE(both.size() == 2);
  CHECK(Values(both[1]) == "[0]");
}

TEST_CASE("Operators without a gradient for other hosts") {
  const auto why = [](const char* op) { return TextOf([&] { GradientOf(op); }); };
  CHECK(why("GradNone").find("GradNone has no gradient for other hosts: none is registered") !=
        std::string::npos);
  CHECK(why("GradRefused").find("declared to have none") != std::string::npos);
  CHECK(why("GradTaken").find("has the name of the gradient of GradTaken") != std::string::npos);
  CHECK(why("DescribedClass").find("none is registered") != std::string::npos);

  GradientOf("GradStopped");  // no gradient flows: zeros
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  CHECK(Values(Invoke("GradStopped_grad", {x, x, x})[0]) == "[0, 0]");

  GradientOf("GradWrong");
  const Tensor y = Tensor::From<float>({3}, {1, 2, 3});
  CHECK(
      TextOf([&] {
        Invoke("GradWrong_grad", {y, y, x});
      }).find("the gradient of input 0 of GradWrong is float32[3], but the input is float32[2]") !=
      std::string::npos);
}

TEST_CASE("An image describes its exports") {
  const std::string text = detail::DescribeExports();
  CAPTURE(text);
  const auto has = [&](const std::string& part) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  };
  has(R"({"opkit": ")" OPKIT_VERSION_STRING R"(", "domain": "opkit")");
  has(R"("name": "GradMul", "hosts": ["xla"])");
  has(R"("name": "GradCopy", "hosts": ["tvm_ffi", "torch"])");
  has(R"("num_inputs": [3, 3], "num_outputs": [2, 2])");
  has(R"({"name": "index", "doc": "", "dtypes": ["int64"]})");
  has(R"({"name": "factor", "doc": "", "type": "float", "required": false, "default": 1, "values": []})");
  has(R"("stateful": false, "gradient": "GradMul_grad"})");
  has(R"("num_inputs": [1, null], "num_outputs": [1, 2])");
  has(R"({"name": "any", "doc": "of any type", "required": false, "values": []})");
  has(R"("default": "same", "values": ["same", "valid"]})");
  has(R"("type": "floats", "required": false, "default": [0.5, 2], "values": []})");
  has(R"({"name": "limit", "doc": "", "type": "float", "required": false, "values": []})");
  has(R"("stateful": true, "gradient": null})");
}

TEST_CASE("An image infers the outputs of its exports") {
  const auto infer = [](const char* call) { return std::string(detail::InferExport(call)); };
  CHECK(infer(R"({"op": "GradMul", "inputs": [{"dtype": "float32", "shape": [3, "N", null]}, )"
              R"({"dtype": "float32", "shape": [3, "N", null]}, {"dtype": "int64", "shape": []}], )"
              R"("attributes": {"factor": 2}})") ==
        R"({"outputs": [{"dtype": "float32", "shape": [3, "N", null]}, )"
        R"({"dtype": "int8", "shape": [3, "N", null]}]})");
  CHECK(
      infer(R"({"op":"GradCopy_grad","inputs":[{"dtype":"float32","shape":[2]},)"
            R"({"dtype":"float32","shape":[2]},{"dtype":"float32","shape":["N"]},null]})") ==
      R"({"outputs": [{"dtype": "float32", "shape": ["N"]}, {"dtype": "float32", "shape": [0]}]})");
  const auto fails = [&](const char* call, const char* part, const char* of_class) {
    const std::string answer = infer(call);
    CAPTURE(answer);
    CHECK(answer.starts_with(R"({"error": ")"));
    CHECK(answer.find(part) != std::string::npos);
    CHECK(answer.ends_with(StrCat(R"("class": ")", of_class, R"("})")));
  };
  fails(R"({"op": "GradMull", "inputs": []})", "did you mean 'GradMul'", "LookupError");
  fails(R"({"op": "GradMul", "inputs": []})", "GradMul has 0 inputs", "ValueError");
  fails(R"({"op": "GradCopy", "inputs": [{"dtype": "float64", "shape": [2]}]})", "float64",
        "TypeError");
  fails(R"({"op": "GradCopy", "inputs": [{"dtype": "float8", "shape": [2]}]})",
        "'float8' is not a dtype", "NotImplementedError");
  fails(R"({"op": "GradMul", "inputs": [], "attributes": {"factor": [1, "a"]}})",
        "an element of the type of the elements before it", "ValueError");
  for (const char* wrong :
       {"", "{", "[]", R"({"op": 3})", R"({"op": "GradMul", "inputs": [7]})",
        R"({"op": "GradMul", "inputs": [{"dtype": "float32", "shape": [1.5]}]})",
        R"({"attributes": {"a": {}}})", R"({"b": 1})"})
    fails(wrong, "no JSON of the expected form", "ValueError");
  fails(R"({"op": "DescribedClass", "inputs": [null], "attributes": {"scales": [1, 2.5, Infinity],
            "flag": true, "mode": "no"}})",
        "mode", "ValueError");
  CHECK(std::string(detail::InferExport(nullptr)).starts_with(R"({"error": ")"));
}

}}  // namespace gradient_operator_test
