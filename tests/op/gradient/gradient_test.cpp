// Gradient makers: what they see of a node, what they name, what is copied, what is refused.
#include "opkit/op/gradient/gradient.hpp"

#include <doctest/doctest.h>

#include "support/error_of.hpp"

namespace gradient_test {
namespace {

using opkit::Error;
using opkit::ErrorCode;
using opkit::GetGradientForOp;
using opkit::GradientMakerBase;
using opkit::GradientNames;
using opkit::GradientOpsMeta;
using opkit::GradientValue;
using opkit::OperatorDef;

using Defs = std::vector<OperatorDef>;
using Names = std::vector<std::string>;

// The text of what `call` throws.
template <class F>
std::string TextOf(F call) {
  return ErrorOf(call).what();
}

OPERATOR_SCHEMA(GradMul).NumInputs(2).NumOutputs(1).Inplace({{0, 0}}).Arg("alpha", "").Arg("k", "");
class MulGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override {
    return {OperatorDef("GradMul", {GO(0), I(1)}, {GI(0)}),
            OperatorDef("GradMul", {GO(0), I(0)}, {GI(1)}, {{"k", 7}})};
  }
};
REGISTER_GRADIENT(GradMul, MulGradient);

OPERATOR_SCHEMA(GradReuse).NumInputs(2).NumOutputs(2).Arg("alpha", "");
class ReuseGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  bool CopyDeviceOption() const override { return false; }
  bool CopyEngine() const override { return false; }
  bool CopyArguments() const override { return false; }
  Defs GetGradientDefs() override {
    SetDense(0, GO(0));
    return SingleGradientDef("ReuseGradient", "g", {O(1), GO(1), Temporary("mask")}, {GI(1)},
                             {{"axis", 1}});
  }
};
REGISTER_GRADIENT(GradReuse, ReuseGradient);

OPERATOR_SCHEMA(GradGather).NumInputs(2).NumOutputs(1);
class GatherGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override {
    SetSparse(0, I(1), GO(0));
    return {};
  }
};
REGISTER_GRADIENT(GradGather, GatherGradient);

OPERATOR_SCHEMA(GradSparseIn).NumInputs(1).NumOutputs(1);
class SparseInGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override {
    return SingleGradientDef("SparseScale", "", {GO_I(0), GO_V(0)}, {GI_I(0), GI_V(0)});
  }
};
REGISTER_GRADIENT(GradSparseIn, SparseInGradient);

OPERATOR_SCHEMA(GradBothKinds).NumInputs(1).NumOutputs(1);
class BothKindsGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override { return SingleGradientDef("X", "", {}, {GI(0), GI_V(0)}); }
};
REGISTER_GRADIENT(GradBothKinds, BothKindsGradient);

OPERATOR_SCHEMA(GradNoDefs).NumInputs(1).NumOutputs(1);
REGISTER_GRADIENT(GradNoDefs, GradientMakerBase);
OPERATOR_SCHEMA(GradOutOfRange).NumInputs(1).NumOutputs(1);
class OutOfRangeGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  Defs GetGradientDefs() override { return SingleGradientDef("X", "", {I(1)}, {GI(0)}); }
};
REGISTER_GRADIENT(GradOutOfRange, OutOfRangeGradient);

OPERATOR_SCHEMA(GradNothingSaid).NumInputs(1).NumOutputs(1);
OPERATOR_SCHEMA(GradNone).NumInputs(2).NumOutputs(1);
NO_GRADIENT(GradNone);
OPERATOR_SCHEMA(GradShouldNot).NumInputs(1).NumOutputs(1);
SHOULD_NOT_DO_GRADIENT(GradShouldNot);
OPERATOR_SCHEMA(GradNotYet).NumInputs(1).NumOutputs(1);
GRADIENT_NOT_IMPLEMENTED_YET(GradNotYet);
OPERATOR_SCHEMA(Grad_Twice).NumInputs(1).NumOutputs(1);
REGISTER_GRADIENT_STR("Grad_Twice", MulGradient);

}  // namespace

TEST_CASE("a maker names gradients and copies device, engine and arguments") {
  OperatorDef def("GradMul", {"a", "b"}, {"c"}, {{"alpha", 2.5}, {"k", 1}});
  def.Device(opkit::DeviceType::kCPUStream, 1).Backends("fast");
  const GradientOpsMeta meta = GetGradientForOp(def, {{"c_grad"}});
  REQUIRE(meta.ops.size() == 2);
  CHECK(meta.ops[0].inputs() == Names{"c_grad", "b"});
  CHECK(meta.ops[0].outputs() == Names{"a_grad"});
  CHECK(meta.ops[1].outputs() == Names{"b_grad"});
  CHECK(meta.g_input == std::vector<GradientValue>{{"a_grad"}, {"b_grad"}});
  for (const OperatorDef& op : meta.ops) {
    CHECK(op.is_gradient_op());
    CHECK(op.device() == def.device());
    CHECK(op.backends() == "fast");
    CHECK(op.args().Get<double>("alpha") == 2.5);
  }
  CHECK(meta.ops[0].args().Get<int>("k") == 1);
  CHECK(meta.ops[1].args().Get<int>("k") == 7);  // the maker's own value stays
}

TEST_CASE("a maker may keep device, engine and arguments to itself") {
  OperatorDef def("GradReuse", {"a", "b"}, {"c", "d"}, {{"alpha", 2.5}});
  def.Device(opkit::DeviceType::kCPUStream, 1).Backends("fast");
  const GradientOpsMeta meta = GetGradientForOp(def, {{"dc"}, {"dd"}});
  REQUIRE(meta.ops.size() == 1);
  CHECK(meta.ops[0].name() == "g");
  CHECK(meta.ops[0].device() == opkit::Device{});
  CHECK(meta.ops[0].backends() == "");
  CHECK_FALSE(meta.ops[0].args().Has("alpha"));
  CHECK(meta.ops[0].args().Get<int>("axis") == 1);
  CHECK(meta.ops[0].inputs() == Names{"d", "dd", "c_grad_mask"});
  CHECK(meta.g_input == std::vector<GradientValue>{{"dc"}, {"b_grad"}});
}

TEST_CASE("sparse gradients have indices and values") {
  const GradientOpsMeta gather =
      GetGradientForOp(OperatorDef("GradGather", {"table", "rows"}, {"y"}), {{"dy"}});
  CHECK(gather.ops.empty());
  CHECK(gather.g_input[0] == GradientValue::Sparse("rows", "dy"));
  CHECK(gather.g_input[0].IsSparse());
  CHECK(gather.g_input[1].IsEmpty());

  const OperatorDef def("GradSparseIn", {"x"}, {"y"});
  const GradientOpsMeta meta = GetGradientForOp(def, {GradientValue::Sparse("i", "v")});
  CHECK(meta.ops[0].inputs() == Names{"i", "v"});
  CHECK(meta.ops[0].outputs() == Names{"x_grad_indices", "x_grad_values"});
  CHECK(meta.g_input[0] == GradientValue::Sparse("x_grad_indices", "x_grad_values"));

  CHECK(Contains(TextOf([&] { GetGradientForOp(def, {{"dy"}}); }),
                 "needs a sparse gradient of output 0 'y', but was given dy"));
  CHECK(Contains(TextOf([&] { GetGradientForOp(def, {GradientValue()}); }),
                 "needs a sparse gradient of output 0 'y', but none was given"));
  const OperatorDef both("GradBothKinds", {"x"}, {"y"});
  CHECK(Contains(TextOf([&] { GetGradientForOp(both, {{"dy"}}); }),
                 "makes the gradient of input 0 'x' both dense and sparse"));
}

TEST_CASE("no gradient gets the name of a value, whatever values are called") {
  // The ancestor searched for the suffix, took 'x_grad' for a gradient and missed 'x_grad_y_grad'.
  const GradientOpsMeta meta =
      GetGradientForOp(OperatorDef("GradMul", {"x", "x_grad"}, {"x_grad_y_grad"}), {{"x_grad_1"}});
  CHECK(meta.g_input == std::vector<GradientValue>{{"x_grad_2"}, {"x_grad_grad"}});

  GradientNames names;
  for (const char* value : {"x", "x_grad", "x_grad_y_grad"}) names.Reserve(value);
  CHECK(names.Of("x") == "x_grad_1");
  CHECK(names.Of("x") == "x_grad_1");
  CHECK(names.IsGradient("x_grad_1"));
  CHECK_FALSE(names.IsGradient("x_grad"));
  CHECK_FALSE(names.IsGradient("x_grad_y_grad"));
  CHECK(names.Of("x_grad_y_grad") == "x_grad_y_grad_grad");
  CHECK(*names.ValueOf("x_grad_y_grad_grad") == "x_grad_y_grad");
  CHECK(names.ValueOf("x") == nullptr);
  CHECK(names.Fresh("x") == "x_grad_2");
  CHECK(Contains(TextOf([&] { names.Reserve("x_grad_1"); }),
                 "value 'x_grad_1' has the name that was given to the gradient of 'x'"));
}

TEST_CASE("a graph's map is shared by its nodes") {
  GradientNames names;
  names.Reserve("b_grad");
  GetGradientForOp(OperatorDef("GradMul", {"a", "b"}, {"c"}), {{names.Of("c")}}, names);
  CHECK(*names.ValueOf("b_grad_1") == "b");
  // Gradients of gradients.
  const GradientOpsMeta second =
      GetGradientForOp(OperatorDef("GradMul", {"c_grad", "b"}, {"a_grad"}), {{"s"}}, names);
  CHECK(second.g_input[0].dense == "c_grad_grad");
  CHECK(*names.ValueOf("c_grad_grad") == "c_grad");
}

TEST_CASE("a value read twice gets two gradients, one in place another name than the incoming") {
  const GradientOpsMeta twice =
      GetGradientForOp(OperatorDef("GradMul", {"x", "x"}, {"y"}), {{"dy"}});
  CHECK(twice.g_input == std::vector<GradientValue>{{"x_grad"}, {"x_grad_1"}});
  GradientNames names;
  const GradientOpsMeta inplace =
      GetGradientForOp(OperatorDef("GradMul", {"x", "b"}, {"x"}), {{names.Of("x")}}, names);
  CHECK(inplace.g_input[0].dense == "x_grad_1");
}

TEST_CASE("a maker used by itself makes its own names") {
  class Public : public MulGradient {
   public:
    using GradientMakerBase::GI;
    using MulGradient::MulGradient;
  };
  Public maker(OperatorDef("GradMul", {"a", "a_grad"}, {"c"}), {{"a_grad_1"}});
  CHECK(maker.GI(0) == "a_grad_2");
  CHECK(maker.Get().g_input[0].dense == "a_grad_2");
}

TEST_CASE("the registration about a gradient decides HasGradient") {
  const std::vector<GradientValue> dy{{"dy"}};
  const GradientOpsMeta none = GetGradientForOp(OperatorDef("GradNone", {"a", "b"}, {"y"}), dy);
  CHECK(none.ops.empty());
  CHECK(none.g_input == std::vector<GradientValue>(2));
  auto error = [&](const char* op) {
    return TextOf([&] { GetGradientForOp(OperatorDef(op, {"x"}, {"y"}), dy); });
  };
  CHECK(Contains(error("GradNothingSaid"),
                 "operator GradNothingSaid has no gradient: write REGISTER_GRADIENT("
                 "GradNothingSaid, Maker), or NO_GRADIENT(GradNothingSaid)"));
  CHECK(Contains(error("GradShouldNot"),
                 "GradShouldNot (x) -> (y) must not be differentiated "
                 "(SHOULD_NOT_DO_GRADIENT at "));
  CHECK(Contains(error("GradNotYet"),
                 "the gradient of operator GradNotYet is not implemented yet "
                 "(GRADIENT_NOT_IMPLEMENTED_YET at "));
  CHECK(Contains(error("GradNotYet"),
                 "compute the value by operators that have a gradient, or write a maker"));
  CHECK(Contains(error("GradNotYte"), "no operator 'GradNotYte' is registered"));
  CHECK(Contains(error("GradNotYte"), "did you mean 'GradNotYet'"));
  CHECK(Contains(error("GradNoDefs"), "must override GetGradientDefs() or Get()"));
  CHECK(Contains(error("GradOutOfRange"), "asks for input 1 of 1"));
  CHECK(Contains(error("GradOutOfRange"),
                 "in the gradient maker of GradOutOfRange (x) -> (y), registered at "));
  CHECK(opkit::HasGradient("GradMul"));
  CHECK_FALSE(opkit::HasGradient("GradNone"));
  CHECK_FALSE(opkit::HasGradient("GradNothingSaid"));
}

TEST_CASE("a gradient of an operator that does not exist is listed and named where it is missed") {
  const auto listed = [] {
    for (const std::string& problem : opkit::CheckRegistrations())
      if (Contains(problem, "GradNothingSiad")) return problem;
    return std::string();
  };
  CHECK(listed().empty());
  opkit::detail::RegisterGradient("GradNothingSiad", opkit::GradientKind::kMaker, nullptr, "g.cpp",
                                  12);
  CHECK(Contains(listed(),
                 "REGISTER_GRADIENT(GradNothingSiad) stands at g.cpp:12, and no operator "
                 "'GradNothingSiad' is registered (did you mean 'GradNothingSaid'?"));
  const std::vector<GradientValue> dy{{"dy"}};
  const auto error = [&] {
    return TextOf([&] { GetGradientForOp(OperatorDef("GradNothingSaid", {"x"}, {"y"}), dy); });
  };
  CHECK(Contains(error(),
                 "; the gradient at g.cpp:12 is that of 'GradNothingSiad', which no operator is "
                 "called: is it meant for GradNothingSaid?"));
  opkit::GradientRegistry::Global().Remove("GradNothingSiad");
  CHECK(listed().empty());
  CHECK_FALSE(Contains(error(), "is it meant for"));
  opkit::detail::RegisterGradient("GradNobodys", opkit::GradientKind::kNone, nullptr, "g.cpp", 13);
  int nobodys = 0;
  for (const std::string& problem : opkit::CheckRegistrations())
    nobodys += problem.starts_with("NO_GRADIENT(GradNobodys) stands at g.cpp:13, and no operator");
  CHECK(nobodys == 1);
  opkit::GradientRegistry::Global().Remove("GradNobodys");
}

TEST_CASE("a node and its output gradients must fit") {
  const OperatorDef def("GradReuse", {"a", "b"}, {"c", "d"});
  CHECK(Contains(TextOf([&] { GetGradientForOp(def, {{"dc"}}); }),
                 "has 2 outputs, but 1 output gradients were given"));
  CHECK(Contains(TextOf([&] {
                   GetGradientForOp(def, {GradientValue(), {"dd"}});
                 }),
                 "needs a dense gradient of output 0 'c', but none was given"));
  CHECK(Contains(TextOf([&] { GetGradientForOp(OperatorDef("GradMul", {"a"}, {"c"}), {{"dc"}}); }),
                 "GradMul has 1 inputs, expected 2"));
}

TEST_CASE("a second gradient is reported with both places") {
  const size_t before = opkit::CheckRegistrations().size();
  const auto* first = opkit::GradientRegistry::Global().Find("Grad_Twice");
  opkit::detail::RegisterGradient("Grad_Twice", opkit::GradientKind::kNone, nullptr, first->file,
                                  first->line);  // a header seen twice
  CHECK(opkit::CheckRegistrations().size() == before);
  opkit::detail::RegisterGradient("Grad_Twice", opkit::GradientKind::kNone, nullptr, "other.cpp",
                                  3);
  const std::vector<std::string> problems = opkit::CheckRegistrations();
  REQUIRE(problems.size() == before + 1);
  std::string problem;  // sorted by operator, among those that other tests make
  for (const std::string& text : problems)
    if (Contains(text, "gradients of operator Grad_Twice")) problem = text;
  CHECK(Contains(problem, "two gradients of operator Grad_Twice: at "));
  CHECK(Contains(problem, "gradient_test.cpp:"));
  CHECK(Contains(problem, " and at other.cpp:3; remove one of them"));
  CHECK(TextOf([] { GetGradientForOp(OperatorDef("Grad_Twice", {"x"}, {"y"}), {{"dy"}}); }) ==
        problem);
  opkit::OpRegistry::Global().Remove("Grad_Twice");  // the other tests want a clean registry
  opkit::GradientRegistry::Global().Remove("Grad_Twice");
  CHECK(opkit::CheckRegistrations().size() == before - 1);  // nor has it a schema without a kernel
}

}  // namespace gradient_test
