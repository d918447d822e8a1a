// Typed operators: what is derived from the signature, what a run sees, and what is refused.
#include "opkit/op/typed_operator.hpp"

#include <doctest/doctest.h>

#include "opkit/device/cpu_stream.hpp"
#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"
#include "typed_in_header.hpp"

namespace typed_operator_test { namespace {

using opkit::Attr;
using opkit::Attribute;
using opkit::AttributeType;
using opkit::CPUContext;
using opkit::CPUStreamContext;
using opkit::CreateOperator;
using opkit::Device;
using opkit::DeviceType;
using opkit::Dim;
using opkit::DType;
using opkit::ErrorCode;
using opkit::EventStatus;
using opkit::In;
using opkit::InferenceContext;
using opkit::Invoke;
using opkit::OperatorDef;
using opkit::OpRegistry;
using opkit::OpSchema;
using opkit::OptionalIn;
using opkit::Out;
using opkit::Shape;
using opkit::Sym;
using opkit::SymbolicShape;
using opkit::Tensor;
using opkit::TensorInfo;
using opkit::Workspace;

constexpr Device kStream{DeviceType::kCPUStream, 0};

template <class T>
Tensor Of(Shape shape, std::initializer_list<T> values) {
  return Tensor::From<T>(std::move(shape), values);
}
const OpSchema& SchemaOf(const char* op) { return OpRegistry::Global().GetSchema(op); }

// --- operators -----------------------------------------------------------------------------------

template <class Context>
void TypedAxpy(Context& context, In<"x", float> x, In<"y", float> y, Out<"z", float> z,
               Attr<"alpha", float> alpha) {
  ParallelFor(context, z.size(), [=] OPKIT_DEVICE(int64_t i) { z[i] = alpha * x[i] + y[i]; });
}
OPKIT_OP(TypedAxpy)
    .Doc("z = alpha * x + y")
    .SameShape<"x", "y", "z">()
    .Inplace<"y", "z">()
    .Default<"alpha">(1.f)
    .Flops([](const InferenceContext& c) { return 2 * OpSchema::Elements(c.output(0)); })
    .Kernel<CPUContext>()
    .Kernel<CPUStreamContext>();

// Parameters in no particular order, an optional input in the middle of the inputs and at the end.
template <class Context>
void TypedMixed(Context&, Attr<"axis", int> axis, OptionalIn<"bias", int32_t> bias,
                Out<"count", int64_t> count, In<"x", double> x, Out<"sum", double> sum,
                OptionalIn<"scale", double> scale) {
  count[0] = x.size() + axis;
  sum[0] = 0;
  for (double value : x) sum[0] += value;
  if (bias) sum[0] += bias[0];
  if (scale) sum[0] *= scale[0];
}
OPKIT_OP(TypedMixed)
    .OutShape<"sum">([](const InferenceContext&) { return Shape{}; })
    .OutShape<"count">([](const InferenceContext&) { return Shape{1}; })
    .Kernel<CPUContext>();

template <class Context, class T>
void TypedScale(Context& context, In<"x", T> x, In<"by", T> by, In<"shift", int64_t> shift,
                Out<"y", T> y, Out<"index", int64_t> index, Attr<"scale", T> scale) {
  const int64_t s = shift[0];
  ParallelFor(context, y.size(), [=](int64_t i) {
    y[i] = scale * x[i] * by[i];
    index[i] = i + s;
  });
}
OPKIT_OP(TypedScale)
    .SameShape<"x", "by", "y", "index">()
    .Inplace<"x", "y">()
    .Default<"scale">(1)
    .Kernel<CPUContext, float, int32_t>()
    .Kernel<CPUStreamContext, double>();

template <class Context, class T>
bool TypedWeights(Context&, In<"x", T> x, Out<"y", T> y, const Attr<"weights", std::vector<T>>& w) {
  for (int64_t i = 0; i < y.size(); ++i) {
    y[i] = 0;
    for (T weight : w.value()) y[i] = static_cast<T>(y[i] + weight * x[i]);
  }
  return y.size() > 0;
}
OPKIT_OP(TypedWeights).SameShape<"x", "y">().Kernel<CPUContext, float, uint8_t>();

enum class Mode { kOff, kOn };
template <class Context>
void TypedAttributes(Context&, Out<"out", double> out, Attr<"i64", int64_t> i64, Attr<"i", int> i,
                     Attr<"u8", uint8_t> u8, Attr<"flag", bool> flag, Attr<"f", float> f,
                     Attr<"d", double> d, const Attr<"text", std::string>& text,
                     Attr<"mode", Mode> mode, const Attr<"ints", std::vector<int64_t>>& ints,
                     Attr<"floats", std::vector<float>> floats,
                     Attr<"names", std::vector<std::string>> names,
                     Attr<"flags", std::vector<bool>> flags, const Attr<"tensor", Tensor>& tensor) {
  double lists = 0;
  for (int64_t value : ints.value()) lists += static_cast<double>(value);
  for (float value : floats.value()) lists += value;
  for (const std::string& name : names.value()) lists += static_cast<double>(name.size());
  for (bool value : flags.value()) lists += value;
  const double values[] = {static_cast<double>(i64),
                           static_cast<double>(i),
                           static_cast<double>(u8),
                           flag ? 1. : 0.,
                           f,
                           d,
                           static_cast<double>(text.value().size()),
                           mode.value() == Mode::kOn ? 1. : 0.,
                           lists,
                           tensor.value().data<double>()[0]};
  for (int k = 0; k < 10; ++k) out[k] = values[k];
}
OPKIT_OP(TypedAttributes)
    .OutShape<"out">([](const InferenceContext&) { return Shape{10}; })
    .Default<"i64">(int64_t{-5'000'000'000})
    .Default<"i">(3)
    .Default<"u8">(255)
    .Default<"flag">(true)
    .Default<"f">(1)
    .Default<"d">(0.5f)
    .Default<"text">("four")
    .Default<"mode">(Mode::kOn)
    .Default<"ints">({1, 2})
    .Default<"floats">(std::vector<float>{0.5f})
    .Default<"names">({"ab", "c"})
    .Default<"flags">({true, false})
    .Kernel<CPUContext>();

// The output's shape: from attributes, from an input's data, from an input's symbols.
template <class Context>
void TypedFill(Context&, Out<"y", float> y, Attr<"value", float> value,
               const Attr<"shape", std::vector<int64_t>>&) {
  for (float& out : y) out = value;
}
OPKIT_OP(TypedFill)
    .OutShape<"y">([](const InferenceContext& c) {
      return Shape(c.Arg<std::vector<int64_t>>("shape", {}));
    })
    .Kernel<CPUContext>();

int reshape_inferences = 0;
template <class Context>
void TypedReshape(Context& context, In<"x", float> x, In<"shape", int64_t>, Out<"y", float> y) {
  ParallelFor(context, y.size(), [=](int64_t i) { y[i] = x[i]; });
}
OPKIT_OP(TypedReshape)
    .OutShape<"y">([](const InferenceContext& c) {
      ++reshape_inferences;
      const Tensor* shape = c.input_constant(1);
      return shape ? SymbolicShape(Shape(shape->ToVector<int64_t>())) : SymbolicShape();
    })
    .Kernel<CPUContext>()
    .Kernel<CPUStreamContext>();

int transpose_inferences = 0;
template <class Context>
void TypedTranspose(Context& context, In<"x", float> x, Out<"y", float> y,
                    Out<"same", float> same) {
  const int64_t columns = y.dim(1);
  ParallelFor(context, y.size(), [=](int64_t i) {
    y[i] = x[i % columns * y.dim(0) + i / columns];
    same[i] = y[i];
  });
}
OPKIT_OP(TypedTranspose)
    .OutShape<"y">([](const InferenceContext& c) {
      ++transpose_inferences;
      const SymbolicShape& x = c.input_shape(0);
      return x.has_rank() ? SymbolicShape{x[1], x[0]} : SymbolicShape::OfRank(2);
    })
    .SameShape<"y", "same">()
    .Kernel<CPUContext>()
    .Kernel<CPUStreamContext>();

// Fails in the ways a function can.
template <class Context>
bool TypedFailing(Context&, In<"x", float> x, Out<"y", float> y) {
  if (x[0] < 0) opkit::Throw(ErrorCode::kInvalidArgument, "x must not be negative");
  y[0] = x[0];
  return x[0] < 10;
}
OPKIT_OP(TypedFailing).SameShape<"x", "y">().Kernel<CPUContext>();

// An optional input decides the shape, so a node without it has none.
template <class Context>
void TypedMaybeShape(Context&, OptionalIn<"x", float>, Out<"y", float> y) noexcept {
  for (float& out : y) out = 1;
}
OPKIT_OP(TypedMaybeShape).SameShape<"x", "y">().Kernel<CPUContext>();

// For integers only, and schemas with what the builder has no word for.
template <class Context, std::integral T>
void TypedIntegral(Context&, In<"x", T> x, Out<"y", T> y) {
  for (int64_t i = 0; i < y.size(); ++i) y[i] = static_cast<T>(x[i] + 1);
}
OPKIT_OP(TypedIntegral)
    .SameShape<"x", "y">()
    .Schema([](OpSchema& schema) { schema.Input(0, "x", "counted up").Private(); })
    .Kernel<CPUContext, uint8_t, int64_t>();

template <class Context>
void TypedBadSchema(Context&, Out<"y", float>) {}
OPKIT_OP(TypedBadSchema).Schema([](OpSchema& schema) { schema.Default("absent", 1); });

// Fill in `order` with stream work that lasts until the gate opens.
template <class Context>
void TypedHeld(Context& context, In<"x", float> x, Out<"y", float> y) {
  context.Launch([=] {
    for (int64_t i = 0; i < y.size(); ++i) y[i] = x[i];
  });
}
OPKIT_OP(TypedHeld).SameShape<"x", "y">().Kernel<CPUStreamContext>();

// Work ahead of others on a CPU stream, until opened.
class Gate {
 public:
  explicit Gate(int stream_id) : event_(kStream) {
    event_.SetScheduled();
    opkit::detail::CPUStream::Get(kStream, stream_id).WaitEvent(event_);
  }
  ~Gate() { Open(); }
  void Open() {
    if (event_.Query() == EventStatus::kScheduled) event_.SetFinished();
  }

 private:
  opkit::Event event_;
};

OperatorDef AxpyDef(const char* x, const char* y, const char* z, Device device = {}) {
  return OperatorDef("TypedAxpy").Input(x).Input(y).Output(z).Device(device);
}

// --- what the signature says ---------------------------------------------------------------------

template <class Context>
void TypedMode(Context&, In<"x", float>, Out<"y", float>, const Attr<"mode", std::string>&) {}
OPKIT_OP(TypedMode).SameShape<"x", "y">().Values<"mode">({"valid", "same"}).Kernel<CPUContext>();

template <class Context>
void TypedWrongDefault(Context&, In<"x", float>, Out<"y", float>,
                       const Attr<"function", std::string>&) {}
OPKIT_OP(TypedWrongDefault)
    .SameShape<"x", "y">()
    .Default<"function">("tahn")
    .Values<"function">({"relu", "tanh"})
    .Kernel<CPUContext>();

TEST_CASE("a default of a typed operator outside the allowed values is reported and refused") {
  const std::string told =
      "gives the argument 'function' the default 'tahn', which is none of its values (did you mean "
      "'tanh'?";
  const auto problems = opkit::CheckRegistrations();
  int listed = 0;
  for (const std::string& text : problems)
    listed +=
        Contains(text, "the schema of operator TypedWrongDefault at ") && Contains(text, told);
  CHECK(listed == 1);
  CHECK(Contains(
      ErrorOf([] { Invoke("TypedWrongDefault", {Tensor::From<float>({1}, {1})}); }).message(),
      told));
}

TEST_CASE("a string attribute of a typed operator takes the values that it names") {
  const Tensor x = Tensor::From<float>({1}, {1});
  CHECK(SchemaOf("TypedMode").FindAttribute("mode")->default_value == Attribute("valid"));
  CHECK_NOTHROW(Invoke("TypedMode", {x}));
  CHECK_NOTHROW(Invoke("TypedMode", {x}, {{"mode", "same"}}));
  CHECK(Contains(ErrorOf([&] {
                   Invoke("TypedMode", {x}, {{"mode", "vlaid"}});
                 }).message(),
                 "argument 'mode' of TypedMode is 'vlaid', which is none of its values (did you "
                 "mean 'valid'? known: 'valid', 'same')"));
}

TEST_CASE("the schema has the function's arity, names, dtypes, attributes and documentation") {
  const OpSchema& axpy = SchemaOf("TypedAxpy");
  CHECK(axpy.min_inputs() == 2);
  CHECK(axpy.max_inputs() == 2);
  CHECK(axpy.min_outputs() == 1);
  CHECK(axpy.max_outputs() == 1);
  CHECK(axpy.doc() == "z = alpha * x + y");
  CHECK(axpy.inputs()[0].name == "x");
  CHECK(axpy.inputs()[1].name == "y");
  CHECK(axpy.inputs()[1].dtypes == std::vector{DType::kFloat32});
  CHECK(axpy.outputs()[0].name == "z");
  CHECK(axpy.outputs()[0].dtypes == std::vector{DType::kFloat32});
  const opkit::detail::AttributeSchema* alpha = axpy.FindAttribute("alpha");
  REQUIRE(alpha);
  CHECK(alpha->type == AttributeType::kFloat);
  CHECK_FALSE(alpha->required);
  CHECK(alpha->default_value == Attribute(1.f));
  CHECK(axpy.CanInplace(1, 0));
  CHECK_FALSE(axpy.CanInplace(0, 0));
  const TensorInfo info(DType::kFloat32, Shape{2, 3});
  CHECK(axpy.Cost(AxpyDef("x", "y", "z"), {info, info}, {info}).flops == 12);
}

TEST_CASE("inputs up to the last required one are counted, optional ones may follow") {
  const OpSchema& mixed = SchemaOf("TypedMixed");
  CHECK(mixed.min_inputs() == 2);
  CHECK(mixed.max_inputs() == 3);
  CHECK(mixed.inputs()[0].name == "bias");
  CHECK(mixed.inputs()[0].dtypes == std::vector{DType::kInt32});
  CHECK(mixed.inputs()[1].name == "x");
  CHECK(mixed.inputs()[2].name == "scale");
  CHECK(mixed.outputs()[0].name == "count");
  CHECK(mixed.outputs()[0].dtypes == std::vector{DType::kInt64});
  CHECK(mixed.outputs()[1].name == "sum");
  const opkit::detail::AttributeSchema* axis = mixed.FindAttribute("axis");
  REQUIRE(axis);
  CHECK(axis->type == AttributeType::kInt);
  CHECK(axis->required);
  CHECK_FALSE(axis->default_value);
}

TEST_CASE("values of the element type take the dtypes of every kernel; its attributes are floats") {
  const OpSchema& scale = SchemaOf("TypedScale");
  const std::vector all{DType::kFloat32, DType::kInt32, DType::kFloat64};
  CHECK(scale.inputs()[0].dtypes == all);
  CHECK(scale.inputs()[1].dtypes == all);
  CHECK(scale.inputs()[2].dtypes == std::vector{DType::kInt64});
  CHECK(scale.outputs()[0].dtypes == all);
  CHECK(scale.outputs()[1].dtypes == std::vector{DType::kInt64});
  CHECK(scale.FindAttribute("scale")->type == AttributeType::kFloat);
  CHECK(scale.FindAttribute("scale")->default_value == Attribute(1.0));
  CHECK(SchemaOf("TypedWeights").FindAttribute("weights")->type == AttributeType::kFloats);
}

TEST_CASE("Schema sets facts that the builder has no setter for, in any order") {
  const OpSchema& integral = SchemaOf("TypedIntegral");
  CHECK(integral.is_private());
  CHECK(integral.inputs()[0].doc == "counted up");
  CHECK(integral.inputs()[0].dtypes == std::vector{DType::kUInt8, DType::kInt64});
}

TEST_CASE("an exception of a schema function is listed and stops nothing") {
  std::string found;
  for (const std::string& problem : opkit::CheckRegistrations())
    if (Contains(problem, "TypedBadSchema")) found += problem;
  CHECK(Contains(found, "the schema of operator TypedBadSchema at "));
  CHECK(Contains(found, "typed_operator_test.cpp:"));
  CHECK(Contains(found, "has no argument 'absent'"));
}

// --- inference -----------------------------------------------------------------------------------

TEST_CASE("types and shapes are inferred from symbols, without running anything") {
  const OperatorDef def = AxpyDef("x", "y", "z");
  const auto known = [](SymbolicShape shape) { return TensorInfo(DType::kFloat32, shape); };
  auto out = SchemaOf("TypedAxpy").InferOutputs(def, {known({Sym("N"), 3}), known({Dim(), 3})});
  CHECK(out[0].dtype == DType::kFloat32);
  CHECK(out[0].shape == SymbolicShape{Sym("N"), 3});
  out = SchemaOf("TypedAxpy").InferOutputs(def, {known({Sym("N"), Dim()}), known({4, 3})});
  CHECK(out[0].shape == SymbolicShape{4, 3});
  out = SchemaOf("TypedAxpy").InferOutputs(def, {{}, {}});
  CHECK(out[0].dtype == DType::kFloat32);
  CHECK_FALSE(out[0].shape.has_rank());

  const OperatorDef transpose = OperatorDef("TypedTranspose").Input("x").Output("y").Output("same");
  out = SchemaOf("TypedTranspose").InferOutputs(transpose, {known({Sym("N"), 3})});
  CHECK(out[0].shape == SymbolicShape{3, Sym("N")});
  CHECK(out[1].shape == SymbolicShape{3, Sym("N")});
}

TEST_CASE("inputs of one shape learn from each other and from the output") {
  const OperatorDef def = AxpyDef("x", "y", "z");
  InferenceContext context(def, {{}, {DType::kUndefined, {2, Dim()}}},
                           {{DType::kUndefined, {Dim(), 5}}});
  SchemaOf("TypedAxpy").Infer(context);
  CHECK(context.input_dtype(0) == DType::kFloat32);
  CHECK(context.input_shape(0) == SymbolicShape{2, 5});
  CHECK(context.input_shape(1) == SymbolicShape{2, 5});
  CHECK(context.output(0).shape == SymbolicShape{2, 5});
}

TEST_CASE("the element type of the outputs is that of the input") {
  const OperatorDef def =
      OperatorDef("TypedScale").Input("a").Input("b").Input("c").Output("d").Output("e");
  const auto out =
      SchemaOf("TypedScale").InferOutputs(def, {{DType::kInt32, {2}}, {}, {DType::kInt64, {1}}});
  CHECK(out[0].dtype == DType::kInt32);
  CHECK(out[1].dtype == DType::kInt64);
}

TEST_CASE("inference reads the data of constant inputs") {
  const OperatorDef def = OperatorDef("TypedReshape").Input("x").Input("s").Output("y");
  const Tensor shape = Of<int64_t>({2}, {3, 2});
  const TensorInfo x(DType::kFloat32, {6});
  auto out = SchemaOf("TypedReshape").InferOutputs(def, {x, TensorInfo::OfConstant(shape)});
  CHECK(out[0].shape == SymbolicShape{3, 2});
  out = SchemaOf("TypedReshape").InferOutputs(def, {x, TensorInfo::Of(shape)});
  CHECK_FALSE(out[0].shape.has_rank());
}

// --- running -------------------------------------------------------------------------------------

TEST_CASE("CPU and CPU streams compute the same") {
  const Tensor x = Of<float>({3}, {1, 2, 3}), y = Of<float>({3}, {10, 20, 30});
  const std::vector<float> expected{12, 24, 36};
  CHECK(Invoke("TypedAxpy", {x, y}, {{"alpha", 2.f}})[0].ToVector<float>() == expected);
  opkit::InvokeOptions on_stream;
  on_stream.device = kStream;
  CHECK(Invoke("TypedAxpy", {x, y}, {{"alpha", 2.f}}, on_stream)[0].ToVector<float>() == expected);
}

TEST_CASE("scalars and empty tensors are computed as any others") {
  CHECK(Invoke("TypedAxpy", {Tensor::Scalar(1.f), Tensor::Scalar(2.f)})[0].ToVector<float>() ==
        std::vector<float>{3});
  const auto out = Invoke("TypedAxpy", {Of<float>({2, 0}, {}), Of<float>({2, 0}, {})});
  CHECK(out[0].shape() == Shape{2, 0});
  CHECK(out[0].dtype() == DType::kFloat32);
}

TEST_CASE("optional inputs, and parameters in any order") {
  const Tensor x = Of<double>({2}, {1, 2}), bias = Of<int32_t>({1}, {10}), none;
  const Tensor scale = Of<double>({1}, {3});
  const auto run = [&](std::vector<Tensor> inputs) {
    const auto out = Invoke("TypedMixed", inputs, {{"axis", 1}});
    CHECK(out[0].data<int64_t>()[0] == 3);
    CHECK(out[1].shape() == Shape{});
    return out[1].data<double>()[0];
  };
  CHECK(run({none, x}) == 3);
  CHECK(run({bias, x}) == 13);
  CHECK(run({none, x, scale}) == 9);
  CHECK(run({bias, x, scale}) == 39);
  CHECK(run({bias, x, none}) == 13);
}

TEST_CASE("a node that leaves out a required input is refused when it is built") {
  Workspace ws;
  ws.CreateTensor("b");
  auto build = [&](const char* in, const char* out) {
    return ErrorOf([&] {
      CreateOperator(
          OperatorDef("TypedMixed").Input("b").Input(in).Output(out).Output("sum").Arg("axis", 0),
          &ws);
    });
  };
  CHECK(Contains(build("", "count").message(), "leaves out input 1 'x', which is not optional"));
  CHECK(Contains(build("b", "").message(), "leaves out output 0 'count', which is not optional"));
}

TEST_CASE("a function over <Context, T> runs with the inputs' dtype") {
  const Tensor shift = Of<int64_t>({1}, {5});
  auto out = Invoke("TypedScale", {Of<float>({2}, {1, 2}), Of<float>({2}, {3, 4}), shift},
                    {{"scale", 0.5}});
  CHECK(out[0].ToVector<float>() == std::vector<float>{1.5, 4});
  CHECK(out[1].ToVector<int64_t>() == std::vector<int64_t>{5, 6});
  out = Invoke("TypedScale", {Of<int32_t>({2}, {1, 2}), Of<int32_t>({2}, {3, 4}), shift});
  CHECK(out[0].ToVector<int32_t>() == std::vector<int32_t>{3, 8});
  opkit::InvokeOptions on_stream;
  on_stream.device = kStream;
  out = Invoke("TypedScale", {Of<double>({1}, {1}), Of<double>({1}, {3}), shift}, {}, on_stream);
  CHECK(out[0].ToVector<double>() == std::vector<double>{3});
}

TEST_CASE("a dtype without a compiled kernel is an error that lists the dtypes of the kernel") {
  const Tensor shift = Of<int64_t>({1}, {5}), x = Of<double>({1}, {1});
  const opkit::Error error = ErrorOf([&] { Invoke("TypedScale", {x, x, shift}); });
  CHECK(error.code() == ErrorCode::kTypeMismatch);
  CHECK(Contains(error.message(),
                 "' of TypedScale is float64, but its kernel for cpu is compiled for [float32, "
                 "int32]; add it to .Kernel<>"));
  CHECK(Contains(error.message(), "input 0 '"));
}

TEST_CASE("all inputs of the element type have the same one") {
  const opkit::Error error = ErrorOf([] {
    Invoke("TypedScale", {Of<float>({1}, {1}), Of<int32_t>({1}, {1}), Of<int64_t>({1}, {1})});
  });
  CHECK(error.code() == ErrorCode::kTypeMismatch);
  CHECK(Contains(error.message(), "input 1 of "));
  CHECK(Contains(error.message(), "is int32[1], expected dtype float32"));
}

TEST_CASE("an attribute of the element type must be one of its values, where that type runs") {
  const Tensor f = Of<float>({1}, {2}), i = Of<int32_t>({1}, {1}), shift = Of<int64_t>({1}, {0});
  CHECK(Invoke("TypedScale", {f, f, shift}, {{"scale", 0.5}})[0].data<float>()[0] == 2);
  const opkit::Error error = ErrorOf([&] {
    Invoke("TypedScale", {i, i, shift}, {{"scale", 0.5}});
  });
  CHECK(error.code() == ErrorCode::kOutOfRange);
  CHECK(error.message() == "argument 'scale' is 0.5, which is no value of the inputs' dtype int32");
  CHECK(ErrorOf([&] {
          Invoke("TypedScale", {i, i, shift}, {{"scale", 2147483648.0}});
        }).code() == ErrorCode::kOutOfRange);
  CHECK(Invoke("TypedScale", {i, i, shift}, {{"scale", -2147483648.0}})[0].data<int32_t>()[0] ==
        -2147483648);
}

TEST_CASE("a list of the element type is converted, and checked for its range") {
  CHECK(Invoke("TypedWeights", {Of<float>({1}, {2})}, {{"weights", {0.5, 1.5}}})[0]
            .data<float>()[0] == 4);
  CHECK(Invoke("TypedWeights", {Of<uint8_t>({1}, {2})}, {{"weights", {1., 255.}}})[0]
            .data<uint8_t>()[0] == 0);
  CHECK(ErrorOf([] {
          Invoke("TypedWeights", {Of<uint8_t>({1}, {2})}, {{"weights", {1., 256.}}});
        }).code() == ErrorCode::kOutOfRange);
}

TEST_CASE("a function constrained to integers has kernels for integers") {
  CHECK(Invoke("TypedIntegral", {Of<uint8_t>({1}, {7})})[0].data<uint8_t>()[0] == 8);
  CHECK(Invoke("TypedIntegral", {Of<int64_t>({1}, {7})})[0].data<int64_t>()[0] == 8);
}

TEST_CASE("attributes of every kind, by default and given") {
  const Tensor seven = Tensor::Scalar(7.);
  CHECK(Invoke("TypedAttributes", {}, {{"tensor", seven}})[0].ToVector<double>() ==
        std::vector<double>{-5e9, 3, 255, 1, 1, 0.5, 4, 1, 7.5, 7});
  CHECK(Invoke("TypedAttributes", {},
               {{"i64", 1},
                {"i", -2},
                {"u8", 3},
                {"flag", false},
                {"f", 4.f},
                {"d", 5.},
                {"text", "sixsix"},
                {"mode", Mode::kOff},
                {"ints", {7}},
                {"floats", std::vector<float>()},
                {"names", std::vector<std::string>()},
                {"flags", std::vector<bool>{true, true}},
                {"tensor", seven}})[0]
            .ToVector<double>() == std::vector<double>{1, -2, 3, 0, 4, 5, 6, 0, 9, 7});
}

TEST_CASE("missing, mistyped, misspelled and unfitting attributes are refused by name") {
  const Tensor seven = Tensor::Scalar(7.);
  auto error = [&](opkit::Arguments args) {
    return ErrorOf([&] { Invoke("TypedAttributes", {}, args); });
  };
  CHECK(Contains(error({}).message(), "TypedAttributes needs the argument 'tensor'"));
  CHECK(error({{"tensor", seven}, {"f", "text"}}).code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error({{"tensor", seven}, {"f", "text"}}).message(), "'f'"));
  CHECK(Contains(error({{"tensor", seven}, {"texd", "a"}}).message(), "did you mean 'text'?"));
  const opkit::Error unfit = error({{"tensor", seven}, {"u8", 256}});
  CHECK(unfit.code() == ErrorCode::kOutOfRange);
  CHECK(unfit.message() ==
        "argument 'u8': value 256 does not fit in the 8-bit unsigned integer asked for");
}

TEST_CASE("inputs of different shapes are refused by name") {
  const opkit::Error error = ErrorOf([] {
    Invoke("TypedAxpy", {Of<float>({2}, {1, 2}), Of<float>({3}, {1, 2, 3})});
  });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(), "input 1 'y' of "));
  CHECK(Contains(error.message(), "has shape [3], but must have that of input 0 'x', [2]"));
}

TEST_CASE("wrong counts, dtypes and unwritten inputs are refused by name") {
  const Tensor x = Of<float>({1}, {1});
  CHECK(Contains(ErrorOf([&] { Invoke("TypedAxpy", {x}); }).message(),
                 "TypedAxpy has 1 inputs, expected 2"));
  const opkit::Error dtype = ErrorOf([&] { Invoke("TypedAxpy", {x, Of<double>({1}, {1})}); });
  CHECK(dtype.code() == ErrorCode::kTypeMismatch);
  CHECK(Contains(dtype.message(), "input 1 'y' is float64[1], expected one of [float32]"));

  Workspace ws;
  ws.CreateTensor("x");
  *ws.CreateTensor("y") = x;
  const auto op = CreateOperator(AxpyDef("x", "y", "z"), &ws);
  const opkit::Error unwritten = ErrorOf([&] { op->Run(); });
  CHECK(unwritten.code() == ErrorCode::kUninitialized);
  CHECK(Contains(unwritten.message(), "is read before anything was written to it"));
  CHECK(Contains(unwritten.what(), "while accessing input 0 'x'"));
  *ws.GetTensor("x") = x;
  CHECK(op->Run());
}

TEST_CASE("more than eight axes are refused") {
  const Tensor x = Of<float>({1, 1, 1, 1, 1, 1, 1, 1, 1}, {1});
  const opkit::Error error = ErrorOf([&] { Invoke("TypedAxpy", {x, x}); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "typed operators take tensors of rank 0 to 8"));
}

TEST_CASE("false and exceptions are failures of the operator, and the next run is sound") {
  CHECK(Contains(ErrorOf([] { Invoke("TypedFailing", {Of<float>({1}, {10})}); }).message(),
                 "RunOnDevice returned false"));
  const opkit::Error error = ErrorOf([] { Invoke("TypedFailing", {Of<float>({1}, {-1})}); });
  CHECK(error.message() == "x must not be negative");
  CHECK(Contains(error.what(), "in operator TypedFailing"));
  CHECK(Contains(error.what(), "typed_operator_test.cpp:"));
}

// --- shapes --------------------------------------------------------------------------------------

TEST_CASE("an output's shape may follow from the attributes") {
  const auto out = Invoke("TypedFill", {}, {{"shape", {2, 2}}, {"value", 3.f}});
  CHECK(out[0].shape() == Shape{2, 2});
  CHECK(out[0].ToVector<float>() == std::vector<float>{3, 3, 3, 3});
}

TEST_CASE("shapes are inferred again when they change, back and forth, and only then") {
  Workspace ws;
  Tensor* x = ws.CreateTensor("x");
  const auto op =
      CreateOperator(OperatorDef("TypedTranspose").Input("x").Output("y").Output("same"), &ws);
  const Tensor wide = Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}), tall = Of<float>({3, 1}, {7, 8, 9});
  const int before = transpose_inferences;
  for (int round = 0; round < 2; ++round) {
    *x = wide;
    for (int again = 0; again < 3; ++again) {
      op->Run();
      CHECK(ws.GetTensor("y")->shape() == Shape{3, 2});
      CHECK(ws.GetTensor("same")->ToVector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
    }
    *x = tall;
    op->Run();
    CHECK(ws.GetTensor("y")->shape() == Shape{1, 3});
    CHECK(ws.GetTensor("same")->ToVector<float>() == std::vector<float>{7, 8, 9});
  }
  CHECK(transpose_inferences - before == 4);
}

TEST_CASE("a shape that comes from an input's data follows the data") {
  for (const Device device : {Device{}, kStream}) {
    CAPTURE(ToString(device));
    Workspace ws;
    *ws.CreateTensor("x") = Of<float>({6}, {1, 2, 3, 4, 5, 6});
    *ws.CreateTensor("shape") = Of<int64_t>({2}, {2, 3});
    const auto op = CreateOperator(
        OperatorDef("TypedReshape").Input("x").Input("shape").Output("y").Device(device), &ws);
    op->Run();
    CHECK(ws.GetTensor("y")->shape() == Shape{2, 3});
    ws.GetTensor("shape")->mutable_data<int64_t>()[0] = 3;
    ws.GetTensor("shape")->mutable_data<int64_t>()[1] = 2;
    op->Run();
    CHECK(ws.GetTensor("y")->shape() == Shape{3, 2});
    CHECK(ws.GetTensor("y")->ToVector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  }
}

TEST_CASE("the data that a shape comes from is waited for on an asynchronous device") {
  Workspace ws;
  *ws.CreateTensor("x") = Of<float>({4}, {1, 2, 3, 4});
  *ws.CreateTensor("a") = Of<int64_t>({2}, {0, 0});
  const auto op = CreateOperator(
      OperatorDef("TypedReshape").Input("x").Input("a").Output("y").Device(kStream), &ws);
  Tensor shape = *ws.GetTensor("a");
  opkit::detail::CPUStream::Get(kStream, 3).Launch([shape]() mutable {
    shape.mutable_data<int64_t>()[0] = shape.mutable_data<int64_t>()[1] = 2;
  });
  op->RunAsync(3);
  op->event().Finish();
  CHECK(ws.GetTensor("y")->shape() == Shape{2, 2});
}

TEST_CASE("a shape that cannot be inferred from the node is an error, each time") {
  Workspace ws;
  const auto op = CreateOperator(OperatorDef("TypedMaybeShape").Input("").Output("y"), &ws);
  for (int again = 0; again < 2; ++again) {
    const opkit::Error error = ErrorOf([&] { op->Run(); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.message(), "the shape of output 0 'y' of "));
    CHECK(Contains(error.message(),
                   "does not follow from its inputs: its shape rule says [rank unknown]"));
  }
}

// --- memory --------------------------------------------------------------------------------------

TEST_CASE("in place in one blob, and through shared storage") {
  Workspace ws;
  *ws.CreateTensor("x") = Of<float>({2}, {1, 2});
  *ws.CreateTensor("y") = Of<float>({2}, {10, 20});
  const void* memory = ws.GetTensor("y")->raw_data();
  CreateOperator(AxpyDef("x", "y", "y"), &ws)->Run();
  CHECK(ws.GetTensor("y")->raw_data() == memory);
  CHECK(ws.GetTensor("y")->ToVector<float>() == std::vector<float>{11, 22});

  *ws.CreateTensor("z") = *ws.GetTensor("y");
  CreateOperator(AxpyDef("x", "y", "z"), &ws)->Run();
  CHECK(ws.GetTensor("z")->raw_data() == memory);
  CHECK(ws.GetTensor("z")->ToVector<float>() == std::vector<float>{12, 24});
}

TEST_CASE("an input that the output may not be written over keeps its memory") {
  Workspace ws;
  *ws.CreateTensor("x") = Of<float>({2}, {1, 2});
  *ws.CreateTensor("y") = Of<float>({2}, {10, 20});
  *ws.CreateTensor("z") = *ws.GetTensor("x");
  CreateOperator(AxpyDef("x", "y", "z"), &ws)->Run();
  CHECK(ws.GetTensor("x")->ToVector<float>() == std::vector<float>{1, 2});
  CHECK(ws.GetTensor("z")->ToVector<float>() == std::vector<float>{11, 22});
  CHECK(Contains(ErrorOf([&] { CreateOperator(AxpyDef("x", "y", "x"), &ws); }).message(),
                 "TypedAxpy may not run in place: input 0 and output 0 are both 'x'"));
}

TEST_CASE("strided inputs arrive dense") {
  const Tensor x = Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}).Permute({1, 0});
  const Tensor y = Of<float>({3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).Slice(1, 1, 3);
  for (const Device device : {Device{}, kStream}) {
    opkit::InvokeOptions options;
    options.device = device;
    const auto out = Invoke("TypedAxpy", {x, y}, {{"alpha", 10.f}}, options);
    CHECK(out[0].is_dense());
    CHECK(out[0].ToVector<float>() == std::vector<float>{11, 42, 25, 56, 39, 70});
  }
}

TEST_CASE("a strided input in place: the result takes the output's place, dense") {
  Workspace ws;
  *ws.CreateTensor("x") = Of<float>({2, 2}, {1, 2, 3, 4});
  *ws.CreateTensor("y") = Of<float>({2, 2}, {10, 20, 30, 40}).Permute({1, 0});
  CreateOperator(AxpyDef("x", "y", "y"), &ws)->Run();
  CHECK(ws.GetTensor("y")->is_dense());
  CHECK(ws.GetTensor("y")->ToVector<float>() == std::vector<float>{11, 32, 23, 44});
}

TEST_CASE(
    "on a stream a strided input is gathered in order, and its copy lives as long as needed") {
  Workspace ws;
  Tensor base = Of<float>({2, 2}, {0, 0, 0, 0});
  *ws.CreateTensor("x") = base.Permute({1, 0});
  auto op = CreateOperator(OperatorDef("TypedHeld").Input("x").Output("y").Device(kStream), &ws);
  Gate gate(4);
  opkit::detail::CPUStream::Get(kStream, 4).Launch([base]() mutable {
    for (int i = 0; i < 4; ++i) base.mutable_data<float>()[i] = static_cast<float>(i);
  });
  SUBCASE("with its event") {
    op->RunAsync(4);
    CHECK(op->event().Query() == EventStatus::kScheduled);
    gate.Open();
    op->event().Finish();
  }
  SUBCASE("without an event, and the operator gone before the work is done") {
    op->DisableEvent();
    op->RunAsync(4);
    op.reset();
    gate.Open();
    opkit::Event drained(kStream);
    opkit::detail::CPUStream::Get(kStream, 4).Record(drained);
    drained.Finish();
  }
  CHECK(ws.GetTensor("y")->ToVector<float>() == std::vector<float>{0, 2, 1, 3});
  CHECK(base.storage().use_count() == 2);  // ours and the workspace's
}

// A layout that no typed function can read.
class Blocked final : public opkit::Layout::Descriptor {
 public:
  bool Equals(const opkit::Layout::Descriptor&) const override { return true; }
  std::string Describe() const override { return "blocked"; }
};

TEST_CASE("an unregistered layout is refused, not misread") {
  opkit::Layout layout;
  layout.id = 77;
  layout.descriptor = opkit::detail::MakeIntrusive<const Blocked>();
  const Tensor plain = Of<float>({2}, {1, 2});
  const Tensor blocked =
      Tensor::FromLayout(opkit::AllocateStorage({}, 64), {2}, DType::kFloat32, layout);
  const opkit::Error error = ErrorOf([&] { Invoke("TypedAxpy", {plain, blocked}); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "layout 77 is not registered"));
}

// --- registration --------------------------------------------------------------------------------

// Also in typed_values_test.cpp: the first as it is here, the second with another signature.
template <class Context>
void TypedTwice(Context&, In<"x", float>, Out<"y", float>) {}
OPKIT_OP(TypedTwice).SameShape<"x", "y">().Kernel<CPUContext>();
template <class Context>
void TypedClash(Context&, In<"x", float>, Out<"y", float>) {}
OPKIT_OP(TypedClash).SameShape<"x", "y">().Kernel<CPUContext>();

TEST_CASE("an operator in a header is one, however many units include it") {
  CHECK(OpRegistry::Global().KernelsOf("TypedInHeader").size() == 1);
  CHECK(Invoke("TypedInHeader", {Of<float>({1}, {3})})[0].data<float>()[0] == -3);
  for (const std::string& problem : opkit::CheckRegistrations())
    CHECK_FALSE(Contains(problem, "TypedInHeader"));
}

TEST_CASE("the same signature in another place is the same operator, with the kernels of both") {
  CHECK(OpRegistry::Global().KernelsOf("TypedTwice").size() == 2);
  CHECK_NOTHROW(SchemaOf("TypedTwice"));
  CHECK(SchemaOf("TypedTwice").signature() == "x: float32 -> y: float32 out");
}

TEST_CASE("another signature in another place is reported with both places") {
  const opkit::Error error = ErrorOf([] { SchemaOf("TypedClash"); });
  CHECK(error.code() == ErrorCode::kAlreadyExists);
  const std::string& text = error.message();
  CHECK(Contains(text, "two schemas of operator TypedClash: at "));
  CHECK(Contains(text, "typed_operator_test.cpp:"));
  CHECK(Contains(text, "typed_values_test.cpp:"));
}

}  // namespace
}  // namespace typed_operator_test
