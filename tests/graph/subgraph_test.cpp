#include "opkit/graph/subgraph.hpp"

#include <doctest/doctest.h>

#include <bit>

namespace subgraph_test {
using namespace opkit;

namespace {

Graph Body(double scale) {
  Graph g;
  g.AddInput("x", DType::kFloat32, {Sym("N")});
  g.AddConstant("w", Tensor::From<float>({2}, {1, 2}));
  g.AddNode(OperatorDef("Scale").Name("s").Input("x").Output("y").Arg("scale", scale));
  g.AddOutput("y");
  return g;
}

class OtherKind final : public detail::SubgraphBase {
 public:
  bool Equals(const detail::SubgraphBase& other) const override { return this == &other; }
  std::string Describe() const override { return "not a graph"; }
};

}  // namespace

TEST_CASE("a node carries graphs by name, and copies of the node share them") {
  const OperatorDef def =
      OperatorDef("If").Input("c").Output("Y").Subgraph("then", MakeSubgraph(Body(2)));
  REQUIRE(SubgraphOf(def, "then") != nullptr);
  CHECK(SameGraph(*SubgraphOf(def, "then"), Body(2)));
  CHECK(SubgraphOf(def, "else") == nullptr);
  CHECK(def.FindSubgraph("then")->Describe() == "graph [x] -> [y] of 1 nodes");
  const OperatorDef copy = def;
  CHECK(SubgraphOf(copy, "then") == SubgraphOf(def, "then"));
  OperatorDef foreign("Loop");
  foreign.Subgraph("body", detail::MakeIntrusive<OtherKind>());
  CHECK(SubgraphOf(foreign, "body") == nullptr);
  CHECK(foreign.FindSubgraph("body") != nullptr);
}

TEST_CASE("nodes are equal when their graphs are, nested ones too") {
  const auto nest = [](double scale) {
    Graph g;
    g.AddNode(OperatorDef("Loop").Output("y").Subgraph("body", MakeSubgraph(Body(scale))));
    return OperatorDef("If").Output("Y").Subgraph("then", MakeSubgraph(g));
  };
  CHECK(nest(2) == nest(2));
  CHECK(nest(2) != nest(3));
  OperatorDef foreign("If");
  foreign.Output("Y").Subgraph("then", detail::MakeIntrusive<OtherKind>());
  CHECK(nest(2) != foreign);
  CHECK(foreign != nest(2));
}

TEST_CASE("SameGraph sees every difference, down to the bit") {
  const Graph g = Body(2);
  CHECK(SameGraph(g, Body(2)));
  CHECK_FALSE(SameGraph(Body(0.0), Body(-0.0)));
  const auto nan = [](uint64_t payload) {
    return Body(std::bit_cast<double>(uint64_t{0x7ff8000000000000} | payload));
  };
  CHECK(SameGraph(nan(1), nan(1)));
  CHECK_FALSE(SameGraph(nan(1), nan(2)));
  const auto changed = [&](auto change) {
    Graph other = g;
    change(other);
    return !SameGraph(g, other) && !SameGraph(other, g);
  };
  CHECK(changed([](Graph& o) { o.AddInput("z", DType::kFloat32, {}); }));
  CHECK(changed([](Graph& o) { o.AddOutput("x"); }));
  CHECK(changed([](Graph& o) { o.RemoveConstant("w"); }));
  CHECK(changed([](Graph& o) {
    o.RemoveConstant("w");
    o.AddConstant("w", Tensor::From<float>({2}, {1, 3}));
  }));
  CHECK(changed([](Graph& o) { o.AddNode(OperatorDef("Relu").Input("x").Output("q")); }));
  const auto node = [&](auto change) {
    return changed([&](Graph& o) {
      OperatorDef def = o.node(0);
      change(def);
      o.ReplaceNode(0, def);
    });
  };
  CHECK(node([](OperatorDef& d) { d.Name("t"); }));
  CHECK(node([](OperatorDef& d) { d.Type("Relu"); }));
  CHECK(node([](OperatorDef& d) { d.mutable_inputs()[0] = "w"; }));
  CHECK(node([](OperatorDef& d) { d.Output("more"); }));
  CHECK(node([](OperatorDef& d) { d.Arg("more", 1); }));
  CHECK(node([](OperatorDef& d) { d.Arg("scale", 2); }));  // an int now
  CHECK(node([](OperatorDef& d) { d.Device(DeviceType::kCUDA); }));
  CHECK(node([](OperatorDef& d) { d.Backends("e"); }));
  CHECK(node([](OperatorDef& d) { d.ControlInput("c"); }));
  CHECK(node([](OperatorDef& d) { d.IsGradientOp(true); }));
  CHECK(node([](OperatorDef& d) { d.Subgraph("s", MakeSubgraph(Graph())); }));
}

}  // namespace subgraph_test
