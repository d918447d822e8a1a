// The view that partitioners read.
#include "opkit/graph/partition/view.hpp"

#include "graph/partition/partition_graphs.hpp"

namespace view_test {
using namespace partition_graphs;

TEST_CASE("nodes and values are read with their known types and shapes") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("N"), 4});
  graph.AddConstant("W", Tensor::From<float>({1, 4}, {1, 2, 3, 4}));
  graph.AddNode(Scale("X", "A", 2).Name("a").Device(DeviceType::kCPUStream));
  graph.AddNode(OperatorDef("Split").Input("A").Output("").Output("B").Name("twin"));
  graph.AddNode(OperatorDef("Alien").Input("B").Output("C").Name("twin").ControlInput("a"));
  graph.AddNode(Relu("W", "D"));
  graph.AddOutput("C").AddOutput("D");
  const GraphView structure(graph);
  const GraphTypes types = InferGraph(structure, {}, UnknownOperators::kAllowed);
  const PartitionView view(structure, types, {0, 0, 1, 0});

  const PartitionNode a = view.FindNode("a");
  CHECK(a.op() == "Scale");
  CHECK(a.attributes().Get<double>("scale") == 2);
  CHECK(a.device().type == DeviceType::kCPUStream);
  CHECK(a.output(0).shape() == SymbolicShape{Sym("N"), 4});
  CHECK(a.output(0).bytes() == 0);
  CHECK(a.input(0).is_input());
  CHECK_FALSE(a.input(0).producer().exists());
  CHECK_FALSE(a.is_taken());
  CHECK(a.output(0).consumers() == std::vector<PartitionNode>{view.node(1)});

  CHECK_FALSE(view.node(1).output(0).exists());
  CHECK(view.node(1).output(1).producer() == view.node(1));
  const PartitionNode alien = view.node(2);
  CHECK_FALSE(alien.is_registered());
  CHECK(alien.is_taken());
  CHECK(alien.control_inputs() == std::vector<PartitionNode>{a});
  CHECK(alien.output(0).dtype() == DType::kUndefined);
  CHECK(alien.output(0).is_output());
  CHECK(view.FindValue("W").constant()->data<float>()[3] == 4);
  CHECK(view.FindValue("W").bytes() == 16);
  CHECK(view.inputs().size() == 1);
  CHECK(view.outputs()[1].name() == "D");
  // An element stays valid after the temporary view that gave it is gone.
  const PartitionNode& reader = a.output(0).consumers()[0];
  const PartitionValue& read = reader.inputs()[0];
  CHECK(reader == view.node(1));
  CHECK(read == a.output(0));
  CHECK(view.nodes_in_order().size() == 4);

  CHECK_FALSE(view.FindNode("b").exists());
  CHECK_FALSE(view.FindNode("").exists());
  CHECK_FALSE(view.FindValue("nothing").exists());
  CHECK(ErrorOf([&] { view.FindNode("twin"); }).code() == ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { view.node(4); }).code() == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([&] { view.value(-1); }).code() == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([&] { a.input(1); }).code() == ErrorCode::kOutOfRange);
}

}  // namespace view_test
