// Registries are one for each image: a library's stays its own also in a program that exports its
// symbols (-rdynamic), and beside another library. Built twice: into plugin_test, and with
// -rdynamic.
#include <doctest/doctest.h>

#include "opkit/core/layout_registry.hpp"
#include "opkit/graph.hpp"
#include "opkit/op/gradient/gradient_check.hpp"
#include "opkit/plugin.hpp"
#include "opkit/plugin/author.hpp"
#include "support/error_of.hpp"

namespace image_local_test {
using namespace opkit;  // NOLINT: as a program writes it

namespace {

// The libraries have a class of this name too, so that the loader could bind their references to
// the program's.
template <class Context>
class HostNegateOp final : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using Operator<Context>::Operator;
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(HostNegate).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(HostNegate, HostNegateOp<CPUContext>);
class HostGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    return SingleGradientDef("HostNegate", "", {GO(0)}, {GI(0)});
  }
};
REGISTER_GRADIENT(HostNegate, HostGradient);
template <class Context>
void HostDouble(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = 2 * x[i]; });
}
OPKIT_OP(HostDouble).SameShape<"x", "y">().Kernel<CPUContext>();
Status HostTwice(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
  return SUCCESS;
}
int NoValues(const AttrMap&, int* num_in, int* num_out) {
  *num_in = *num_out = 0;
  return SUCCESS;
}
REGISTER_OP(HostTwice).setForward(HostTwice).setParseAttrs(NoValues);

// Has the number that a library's own layout has there.
const LayoutId kHostLayout = RegisterLayout({.name = "host_layout",
                                             .to_standard = [](const Tensor&, Tensor&) {},
                                             .from_standard = [](const Tensor&, Tensor&) {}});

void CheckImage(const Library& library, const std::string& letter) {
  const Tensor x = Tensor::From<float>({2}, {1, -2});
  for (const std::string op : {"Report", "Negate", "Double", "Last"}) {
    CHECK(OpRegistry::Global().GetSchema(op + letter).origin() == library.name());
    const auto kernels = OpRegistry::Global().KernelsOf(op + letter);
    REQUIRE(kernels.size() == 1);
    CHECK(kernels[0]->origin == library.name());
  }
  CHECK(library.operators() == std::vector<std::string>{"Fails" + letter, "Double" + letter,
                                                        "Last" + letter, "Negate" + letter,
                                                        "Report" + letter});
  // The text of the library's REGISTER_OP comes through the library's own table of the host.
  CHECK(Contains(ErrorOf([&] { Invoke("Fails" + letter, {x}); }).what(),
                 "failed: told to by " + letter));
  // The library sees its four operators, its one gradient, and runs its own two; none of another
  // image.
  CHECK(Invoke("Report" + letter, {})[0].ToVector<int64_t>() ==
        std::vector<int64_t>{4, 1, 1, 1, 1});
  CHECK(Invoke("Negate" + letter, {x})[0].ToVector<float>() == std::vector<float>{-1, 2});
  CHECK(Invoke("Double" + letter, {x})[0].ToVector<float>() == std::vector<float>{2, -4});
  // The library's layout is found by its name, which the program's layout of this number does not
  // have.
  CHECK(Invoke("Last" + letter, {x})[0].ToVector<float>() == std::vector<float>{-2});
  CHECK(LayoutName(kHostLayout) == "host_layout");
  CHECK(CheckGradient(OperatorDef("Negate" + letter, {"x"}, {"y"}), {x}).ok());
}

}  // namespace

TEST_CASE("each of two libraries and the program has registries of its own") {
  for (const char* suffix : {"", "_unique"}) {
    CAPTURE(suffix);
    const std::vector<std::string> before = RegisteredOperators();
    Library a = Library::Load(OPKIT_TEST_LIBRARIES "/libimage" + std::string(suffix) + ".so");
    Library b = Library::Load(OPKIT_TEST_LIBRARIES "/libimage_b" + std::string(suffix) + ".so");
    CheckImage(a, "A");
    CheckImage(b, "B");
    CHECK(CheckRegistrations().empty());
    // Both have a layout of the same name, and the first one's serves the second.
    {
      Graph graph;
      graph.AddInput("x", DType::kFloat32, {2});
      graph.AddNode(OperatorDef("LastB", {"x"}, {"y"}));
      graph.AddOutput("y");
      Executor executor(Compile(graph));
      const std::string why = ErrorOf([&] { a.Unload(); }).what();
      CHECK(Contains(why, StrCat("operators of library ", b.name(), " are alive")));
      CHECK(Contains(why, "layout image_reversed"));
      const Tensor x = Tensor::From<float>({2}, {1, -2});
      CHECK(executor.Run({{"x", x}}).Get("y").ToVector<float>() == std::vector<float>{-2});
    }
    a.Unload();
    CheckImage(b, "B");
    b.Unload();
    CHECK(RegisteredOperators() == before);
    CHECK(HasGradient("HostNegate"));
    CHECK_FALSE(HasGradient("NegateA"));
  }
}

}  // namespace image_local_test
