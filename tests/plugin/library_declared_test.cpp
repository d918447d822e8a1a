// Declarations of a library's operator, and outputs that it makes: libraries/features.cc.
#include <doctest/doctest.h>

#include "library_fixture.hpp"
#include "support/bench.hpp"

namespace library_declared_test {
namespace {

using namespace opkit;
using namespace library_fixture;
constexpr DType kFloat = DType::kFloat32;

}  // namespace

TEST_CASE(
    "declared attributes, inputs and outputs of a library's operator are those of its nodes") {
  Scoped features("features");
  const OpSchema& schema = OpRegistry::Global().GetSchema("LibDeclared");
  REQUIRE(schema.attributes().size() == 5);
  const detail::AttributeSchema& factor = *schema.FindAttribute("factor");
  CHECK(factor.required);
  CHECK(factor.type == AttributeType::kFloat);
  CHECK(factor.doc == "what is multiplied by");
  CHECK(*schema.FindAttribute("times")->default_value == Attribute(1));
  CHECK_FALSE(schema.FindAttribute("comment")->type);
  CHECK(schema.FindAttribute("axes")->type == AttributeType::kInts);
  CHECK(schema.inputs()[0].name == "x");
  CHECK(schema.inputs()[0].dtypes == std::vector<DType>{DType::kFloat32});
  CHECK(schema.outputs()[0].doc == "numbers times factor");
  CHECK(schema.Arity({{"factor", 1.f}}) == std::pair(1, 1));

  // The functions read the defaults.
  CHECK(Call("LibDeclared", {1, 2}, {{"factor", 2.f}}) == Floats{3, 5});
  CHECK(Call("LibDeclared", {1, 2}, {{"factor", 2.f}, {"times", 2}, {"bias", 0.f}}) ==
        Floats{4, 8});
  const auto message = [](Arguments args, size_t inputs = 1) {
    return ErrorOf([&] {
             Call("LibDeclared", std::vector<Tensor>(inputs, Vector({1})), std::move(args));
           })
        .message();
  };
  CHECK(Contains(message({{"factor", 2.f}, {"tmies", 1}}),
                 "LibDeclared has no argument 'tmies' (did you mean 'times'?"));
  CHECK(Contains(message({{"factor", "two"}}), "is string (\"two\"), expected float"));
  CHECK(Call("LibDeclared", {1, 2}, {{"factor", 2}}) == Floats{3, 5});
  CHECK(Contains(message({}), "LibDeclared needs the argument 'factor'"));
  CHECK(Contains(message({{"factor", 2.f}}, 2), "LibDeclared has 2 inputs, expected 1"));
}

TEST_CASE("a library has a version of its own, which its operators have too") {
  Scoped features("features");
  CHECK(features->own_version() == "2.5");
  CHECK(features->version() == OPKIT_VERSION_STRING);
  CHECK(OpRegistry::Global().GetSchema("LibDeclared").library_version() == "2.5");
}

TEST_CASE("the flops that a library counts arrive, and the program counts the bytes") {
  Scoped features("features");
  const OpSchema& schema = OpRegistry::Global().GetSchema("LibDeclared");
  const OperatorDef def("LibDeclared", {"x"}, {"y"}, {{"factor", 2.f}, {"times", 4}});
  const TensorInfo x(kFloat, Shape{10});
  CHECK(schema.Cost(def, {x}, {x}).flops == 50);
  CHECK(schema.Cost(def, {x}, {x}).bytes_read == 40);
  CHECK(schema.Cost(def, {x}, {x}).bytes_written == 40);
  CHECK(schema.Cost(def, {TensorInfo(kFloat, {})}, {x}).flops == 0);  // it is not asked
}

TEST_CASE("a library's operator makes outputs whose shape the data decides") {
  Scoped features("features");
  InvokeOptions two;
  two.num_outputs = 2;
  const auto run = [&](const Floats& x, Arguments args = {}) {
    return Invoke("LibNonZero", {Vector(x)}, std::move(args), two);
  };
  auto out = run({0, 5, 0, 6});
  CHECK(out[0].ToVector<int64_t>() == std::vector<int64_t>{1, 3});
  CHECK(out[1].ToVector<int64_t>() == std::vector<int64_t>{2});
  CHECK(run({0})[0].shape() == Shape{0});
  {  // the same operator again, with other data of the same shape
    Bench bench;
    bench.Add("x", {1, 0, 1});
    OperatorBase& op = bench.Create(OperatorDef("LibNonZero", {"x"}, {"i", "n"}));
    for (const Floats& x : {Floats{1, 0, 1}, Floats{0, 0, 0}, Floats{1, 1, 1}}) {
      bench.Add("x", x);
      op.Run();
      CHECK(bench.ws.GetTensor("i")->dim(0) == bench.ws.GetTensor("n")->data<int64_t>()[0]);
    }
    SetOutputReq(op, 0, OpReq::kNone);
    op.Run();
    SetOutputReq(op, 0, OpReq::kAdd);
    CHECK(Contains(ErrorOf([&] { op.Run(); }).message(),
                   "output 0 of operator LibNonZero, whose shape the data decides, cannot be added "
                   "to"));
    bench.op.reset();
  }
  const auto message = [&](const char* wrong) {
    return std::string(ErrorOf([&] { run({1, 0}, {{"wrong", wrong}}); }).what());
  };
  CHECK(Contains(message("none"),
                 "forward of operator LibNonZero returned without making output "
                 "0, whose shape inference leaves open; call allocate_output(0, shape, dtype) "
                 "before forward returns"));
  CHECK(Contains(message("early"),
                 "an output that the operator makes itself is accessed as int64 "
                 "before it is there; call allocate_output first"));
  CHECK(Contains(message("of the other"),
                 "allocate_output(1) in operator LibNonZero: this output "
                 "has its memory, or the node leaves it out"));
  CHECK(Contains(message("twice"), "allocate_output(0) in operator LibNonZero: this output has"));
  CHECK(Contains(message("no output"), "LibNonZero, which has 2 outputs"));
  CHECK(Contains(message("dtype"), "of float32, but inferType says int64"));
  CHECK(message("extent") != "no Error was thrown");
  CHECK(run({1})[0].ToVector<int64_t>() == std::vector<int64_t>{0});
}

TEST_CASE("attributes that begin with __ reach a library's functions") {
  Scoped features("features");
  CHECK(Call("LibOpen", Floats{1}, {{"__mine", 3.f}, {"other", 4.f}}) == Floats{7});
}

}  // namespace library_declared_test
