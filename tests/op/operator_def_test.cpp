// OperatorDef is plain data: what the builder sets is what comes back, and what messages print.
#include "opkit/op/operator_def.hpp"

#include <doctest/doctest.h>

#include "support/error_of.hpp"

namespace operator_def_test { namespace {

using opkit::Arguments;
using opkit::Device;
using opkit::DeviceType;
using opkit::OperatorDef;
using Names = std::vector<std::string>;

TEST_CASE("an OperatorDef is built fluently and read back") {
  const OperatorDef def = OperatorDef("Scale")
                              .Name("first")
                              .Input("X")
                              .Inputs({"A", "B"})
                              .Output("Y")
                              .Outputs({"Z"})
                              .ControlInput("before")
                              .Arg("scale", 2.f)
                              .Device(DeviceType::kCUDA, 1)
                              .Backends("CUDNN,DEFAULT")
                              .IsGradientOp(true);
  CHECK(def.type() == "Scale");
  CHECK(def.name() == "first");
  CHECK(def.inputs() == Names{"X", "A", "B"});
  CHECK(def.outputs() == Names{"Y", "Z"});
  CHECK(def.control_inputs() == Names{"before"});
  CHECK(def.args().Get<float>("scale") == 2.f);
  CHECK(def.device() == Device{DeviceType::kCUDA, 1});
  CHECK(def.backends() == "CUDNN,DEFAULT");
  CHECK(OperatorDef().Engine("FAST").backends() == "FAST");
  CHECK(def.is_gradient_op());
}

TEST_CASE("a plain OperatorDef runs on the CPU and requests no backend") {
  const OperatorDef def("Scale", {"X"}, {"Y"}, {{"scale", 2.f}});
  CHECK(def.device() == Device{});
  CHECK(def.backends().empty());
  CHECK_FALSE(def.is_gradient_op());
  CHECK(def == OperatorDef("Scale").Input("X").Output("Y").Arg("scale", 2.f));
}

TEST_CASE("OperatorDefs are regular values that compare by all they hold") {
  const OperatorDef def = OperatorDef("Scale").Input("X").Output("Y").Arg("scale", 2.f);
  OperatorDef copy = def;
  CHECK(copy == def);
  copy.Arg("scale", 3.f);
  CHECK(copy != def);
  CHECK(copy.args().size() == 1);  // set again, not added
  CHECK(def.args().Get<float>("scale") == 2.f);
  CHECK(OperatorDef(def).Backends("FAST") != def);
  CHECK(OperatorDef(def).Device(DeviceType::kCPUStream) != def);
  CHECK(OperatorDef(def).ControlInput("A") != def);
  CHECK(OperatorDef(def).IsGradientOp(true) != def);
}

struct CountedGraph final : opkit::detail::SubgraphBase {
  explicit CountedGraph(int n) : nodes(n) {}
  bool Equals(const opkit::detail::SubgraphBase& other) const override {
    const auto* graph = dynamic_cast<const CountedGraph*>(&other);
    return graph && graph->nodes == nodes;
  }
  std::string Describe() const override { return opkit::StrCat(nodes, " nodes"); }
  int nodes;
};

TEST_CASE("subgraphs are found by name, shared by copies and compared by what they hold") {
  OperatorDef def("If", {"c"}, {"Y"});
  def.Subgraph("then", opkit::detail::MakeIntrusive<CountedGraph>(1));
  def.Subgraph("else", opkit::detail::MakeIntrusive<CountedGraph>(2));
  const OperatorDef copy = def;
  CHECK(copy.FindSubgraph("else") == def.FindSubgraph("else"));
  CHECK(def.FindSubgraph("else")->Describe() == "2 nodes");
  CHECK(def.FindSubgraph("body") == nullptr);
  def.Subgraph("else", opkit::detail::MakeIntrusive<CountedGraph>(2));  // replaced by an equal one
  CHECK(def.subgraphs().size() == 2);
  CHECK(copy.FindSubgraph("else") != def.FindSubgraph("else"));
  CHECK(copy == def);
  def.Subgraph("else", opkit::detail::MakeIntrusive<CountedGraph>(3));
  CHECK(copy != def);
  CHECK(copy.FindSubgraph("else")->Describe() == "2 nodes");
  const opkit::Error null = ErrorOf([&] { def.Subgraph("then", {}); });
  CHECK(null.code() == opkit::ErrorCode::kInvalidArgument);
  CHECK(Contains(null.what(), "subgraph 'then' of If is null"));
  CHECK(def.FindSubgraph("then")->Describe() == "1 nodes");
}

TEST_CASE("names and arguments can be edited in place") {
  OperatorDef def("Scale", {"X"}, {"Y"});
  def.mutable_inputs()[0] = "A";
  def.mutable_outputs().push_back("Z");
  def.mutable_args().Set("scale", 1.f);
  def.Type("Shift");
  CHECK(def == OperatorDef("Shift", {"A"}, {"Y", "Z"}, {{"scale", 1.f}}));
}

TEST_CASE("messages name a node by type, name, inputs and outputs") {
  CHECK(ToString(OperatorDef("Scale", {"X", ""}, {"Y"})) == "Scale (X, ) -> (Y)");
  CHECK(ToString(OperatorDef("Scale", {"X"}, {"Y", "Z"}).Name("a")) == "Scale 'a' (X) -> (Y, Z)");
}

}  // namespace
}  // namespace operator_def_test
