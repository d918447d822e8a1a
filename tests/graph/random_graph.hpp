// Random graphs for the tests of this folder, over operators of ops_test.cpp:
//
//   Graph RandomGraph(uint64_t seed, const RandomGraphOptions& options = {});
//   std::vector<Tensor> RandomInputs(const Graph& graph, uint64_t seed);   // by graph.inputs()
//   std::vector<Tensor> RunInOrder(const Graph& graph, const std::vector<Tensor>& inputs);
//
// The same seed and options give the same graph, the same inputs and, since every operator is
// deterministic, the same bytes in every legal order. Every value is a float32 matrix of `size` by
// `size` whose elements stay within 4 in magnitude. Outputs of the graph are the values that no
// node reads. RunInOrder creates and runs node after node and returns copies of the outputs.
#ifndef OPKIT_TESTS_GRAPH_RANDOM_GRAPH_HPP_
#define OPKIT_TESTS_GRAPH_RANDOM_GRAPH_HPP_

#include <memory>
#include <string>
#include <vector>

#include "opkit/graph/graph_view.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/op/create_operator.hpp"

struct RandomGraphOptions {
  int nodes = 30;
  int inputs = 3;
  int constants = 1;
  int64_t size = 4;
  int window = 0;         // nodes read one of the last `window` values: 1 is a chain; 0: any value
  bool aliases = true;    // Identity, whose output shares its input's memory
  bool rewrites = false;  // Accumulate, which changes a value that an earlier node made
  bool controls = false;  // control inputs
  bool shuffled = false;  // nodes are added in an order in which they cannot run
};

class RandomGraphMaker {
 public:
  RandomGraphMaker(uint64_t seed, const RandomGraphOptions& options)
      : random_(seed), seed_(seed), options_(options) {
    if (options.rewrites && options.shuffled)
      opkit::Throw(opkit::ErrorCode::kInvalidArgument,
                   "the order of nodes that rewrite values is their meaning: not both of rewrites "
                   "and shuffled");
  }

  opkit::Graph Make() {
    opkit::Graph graph;
    for (int i = 0; i < options_.inputs; ++i) {
      graph.AddInput(opkit::StrCat("x", i), opkit::DType::kFloat32, {options_.size, options_.size});
      AddValue(opkit::StrCat("x", i), 1.25, false);
    }
    for (int i = 0; i < options_.constants; ++i) {
      graph.AddConstant(opkit::StrCat("w", i),
                        opkit::RandomTensor(opkit::Shape{options_.size, options_.size},
                                            opkit::DType::kFloat32, seed_ + 1000 + i));
      AddValue(opkit::StrCat("w", i), 1.25, false);
    }
    std::vector<opkit::OperatorDef> nodes;
    for (int i = 0; i < options_.nodes; ++i) {
      nodes.push_back(Node(i));
      nodes.back().Name(opkit::StrCat("n", i));
      if (options_.controls && i > 0 && Chance(0.2))
        nodes.back().ControlInput(opkit::StrCat("n", Below(i)));
    }
    if (options_.shuffled)
      for (size_t i = nodes.size(); i > 1; --i)
        std::swap(nodes[i - 1], nodes[static_cast<size_t>(Below(static_cast<int>(i)))]);
    for (opkit::OperatorDef& def : nodes) graph.AddNode(std::move(def));
    for (const Value& value : values_)
      if (!value.read && graph.Producer(value.name) >= 0) graph.AddOutput(value.name);
    return graph;
  }

 private:
  struct Value {
    std::string name;
    double bound;     // of its elements
    bool own_memory;  // made by a node, and no other value shares its bytes
    bool read = false;
  };

  int Below(int count) { return static_cast<int>(random_.Next() % static_cast<uint64_t>(count)); }
  bool Chance(double probability) { return random_.Uniform() < probability; }
  void AddValue(std::string name, double bound, bool own_memory) {
    values_.push_back({std::move(name), bound, own_memory});
  }
  size_t Pick() {
    const int count = static_cast<int>(values_.size());
    const int from = options_.window > 0 && options_.window < count ? count - options_.window : 0;
    return static_cast<size_t>(from + Below(count - from));
  }
  const std::string& Read(size_t value) {
    values_[value].read = true;
    return values_[value].name;
  }

  opkit::OperatorDef Node(int i) {
    if (options_.rewrites && Chance(0.2))
      if (opkit::OperatorDef def; Rewriting(def)) return def;
    const std::string out = opkit::StrCat("v", i);
    const size_t a = Pick(), b = Pick(), c = Pick();
    const double bound_a = values_[a].bound, bound_b = values_[b].bound;
    const int kind = Below(options_.aliases ? 7 : 6);
    const double bounds[] = {bound_a + bound_b, bound_a * bound_b,
                             bound_a * bound_b * static_cast<double>(options_.size),
                             bound_a + bound_b + values_[c].bound, bound_a};
    if (kind <= 4 && bounds[kind] <= 4) {
      opkit::OperatorDef def(std::vector<std::string>{"Add", "Mul", "MatMul", "Sum",
                                                      "Relu"}[static_cast<size_t>(kind)]);
      def.Input(Read(a)).Output(out);
      if (kind <= 3) def.Input(Read(b));
      if (kind == 3) def.Input(Read(c));
      AddValue(out, bounds[kind], true);
      return def;
    }
    if (kind == 6) {
      opkit::OperatorDef def("Identity");
      def.Input(Read(a)).Output(out);
      values_[a].own_memory = false;
      AddValue(out, bound_a, false);
      return def;
    }
    opkit::OperatorDef def("Scale");
    def.Input(Read(a)).Output(out).Arg("scale",
                                       static_cast<float>((Chance(0.5) ? -1 : 1) / bound_a));
    AddValue(out, 1, true);
    return def;
  }
  // False where no value may be rewritten.
  bool Rewriting(opkit::OperatorDef& def) {
    const size_t total = Pick(), x = Pick();
    if (!values_[total].own_memory || total == x) return false;
    const double bound = values_[total].bound + values_[x].bound;
    if (bound > 4) return false;
    values_[total].bound = bound;
    const std::string& name = values_[total].name;
    def = opkit::OperatorDef("Accumulate").Input(name).Input(Read(x)).Output(name);
    return true;
  }

  opkit::detail::CheckRandom random_;
  const uint64_t seed_;
  const RandomGraphOptions options_;
  std::vector<Value> values_;
};

inline opkit::Graph RandomGraph(uint64_t seed, const RandomGraphOptions& options = {}) {
  return RandomGraphMaker(seed, options).Make();
}

inline std::vector<opkit::Tensor> RandomInputs(const opkit::Graph& graph, uint64_t seed) {
  std::vector<opkit::Tensor> inputs;
  for (const opkit::Graph::Input& input : graph.inputs())
    inputs.push_back(opkit::RandomTensor(input.info.shape.ToShape(), input.info.dtype,
                                         seed * 100 + inputs.size()));
  return inputs;
}

inline std::vector<opkit::Tensor> RunInOrder(const opkit::Graph& graph,
                                             const std::vector<opkit::Tensor>& inputs) {
  opkit::Workspace ws;
  for (size_t i = 0; i < inputs.size(); ++i)
    ws.CreateTensor(graph.inputs()[i].name)->CopyFrom(inputs[i]);
  for (const opkit::Graph::Constant& constant : graph.constants())
    ws.CreateTensor(constant.name)->CopyFrom(constant.value);
  const opkit::GraphView view(graph);
  for (int node : view.order()) opkit::CreateOperator(graph.node(node), &ws)->Run();
  std::vector<opkit::Tensor> outputs;
  for (const std::string& name : graph.outputs())
    outputs.push_back(opkit::detail::CopyOf(*ws.GetTensor(name)));
  return outputs;
}

#endif  // OPKIT_TESTS_GRAPH_RANDOM_GRAPH_HPP_
