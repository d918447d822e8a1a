// The gradients of collectives: finite differences on two and three processes, and on two groups of
// two, and the values where a maximum or a minimum has no derivative. The gradients of values that
// several processes read, in chosen graphs and in random ones.
#include <doctest/doctest.h>

#include <mutex>
#include <random>

#include "cluster/local_runs.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/cluster/operators.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/ops/all.hpp"

namespace gradients_test { namespace {

using namespace opkit;

constexpr int64_t kRows = 6;  // blocks of two or three processes
using Rows = std::vector<double>;

// The sum of the products of the node's output with the weights `w`, and its gradient. The nodes
// behind a node whose root alone has the output run on the root.
Graph LossOf(const OperatorDef& node) {
  Graph graph;
  graph.AddInput("x", DType::kFloat64, {kRows});
  graph.AddInput("w", DType::kFloat64, {Dim()});
  graph.AddNode(node);
  OperatorDef product("Mul", {"y", "w"}, {"products"});
  OperatorDef sum("ReduceSum", {"products"}, {"loss"}, {{"keepdims", 0}});
  if (detail::WritesAtRoot(node)) {
    product.Process(detail::RootOf(node));
    sum.Process(detail::RootOf(node));
  }
  graph.AddNode(product);
  graph.AddNode(sum);
  graph.AddOutput("loss");
  return graph.AddOutput(AddGradients(graph, "loss", {"x"}).at("x").dense);
}

// Runs the graph on processes with the inputs `x`, one for each. Returns the sum of the losses of
// all processes, and the gradients of the inputs.
class Losses {
 public:
  Losses(const OperatorDef& node, int processes) : graph_(LossOf(node)), cluster_(processes) {
    executors_.resize(detail::Index(processes));
    cluster_.Run([&](const CommunicatorPtr& communicator) {
      executors_[detail::Index(communicator->process())] =
          std::make_unique<Executor>(Compile(graph_, With(communicator)));
    });
  }
  std::pair<double, std::vector<Rows>> Of(const std::vector<Rows>& x) {
    double loss = 0;
    std::vector<Rows> gradients(x.size());
    std::mutex mutex;
    cluster_.Run([&](const CommunicatorPtr& communicator) {
      const size_t p = detail::Index(communicator->process());
      Executor& executor = *executors_[p];
      const Graph& part = executor.plan().graph();
      int64_t n = kRows;
      for (const OperatorDef& def : part.nodes()) {
        const std::string_view name = detail::CommunicationOf(def);
        if (!detail::Contains(def.outputs(), "y")) continue;
        if (name == "AllGather" || name == "Gather") n *= cluster_.processes();
        if (name == "Scatter" || name == "ReduceScatter") n /= cluster_.processes();
      }
      Rows w;
      for (int64_t i = 0; i < n; ++i) w.push_back(1 + 0.25 * static_cast<double>(i) - 0.5 * p);
      const auto out = executor.Run(InputsOf(executor, {{"x", Tensor::From<double>({kRows}, x[p])},
                                                        {"w", Tensor::From<double>({n}, w)}}));
      const std::lock_guard lock(mutex);
      if (const Tensor* found = out.Find("loss")) loss += found->data<double>()[0];
      if (const Tensor* found = out.Find(graph_.outputs()[1]))
        gradients[p] = found->ToVector<double>();
    });
    return {loss, gradients};
  }

 private:
  const Graph graph_;
  LocalCluster cluster_;
  std::vector<std::unique_ptr<Executor>> executors_;
};

// Compares the gradient with finite differences for the inputs `x` of the processes `readers`.
void CheckGradient(const OperatorDef& node, std::vector<Rows> x, const std::vector<int>& readers) {
  CAPTURE(ToString(node));
  CAPTURE(x.size());
  Losses losses(node, static_cast<int>(x.size()));
  const std::vector<Rows> gradients = losses.Of(x).second;
  for (const int p : readers) {
    CAPTURE(p);
    REQUIRE(gradients[detail::Index(p)].size() == kRows);
    for (size_t i = 0; i < kRows; ++i) {
      CAPTURE(i);
      constexpr double kStep = 1e-3;
      double& element = x[detail::Index(p)][i];
      const double before = element;
      element = before + kStep;
      const double above = losses.Of(x).first;
      element = before - kStep;
      const double below = losses.Of(x).first;
      element = before;
      CHECK(gradients[detail::Index(p)][i] ==
            doctest::Approx((above - below) / (2 * kStep)).epsilon(1e-6));
    }
  }
}

// Elements of both signs, no two of which are equal.
std::vector<Rows> Inputs(int processes) {
  std::vector<Rows> x(detail::Index(processes));
  for (int p = 0; p < processes; ++p)
    for (int i = 0; i < kRows; ++i) x[detail::Index(p)].push_back((p * 5 + i * 7) % 11 - 4.5);
  return x;
}
std::vector<int> All(int processes) {
  std::vector<int> all;
  for (int p = 0; p < processes; ++p) all.push_back(p);
  return all;
}

TEST_CASE("gradients of reductions are finite differences") {
  for (const int n : {2, 3})
    for (const char* op : {"AllReduce", "Reduce", "ReduceScatter"})
      for (const char* reduction : {"sum", "mean", "product", "max", "min"}) {
        OperatorDef node(StrCat("opkit.cluster.", op), {"x"}, {"y"}, {{"reduction", reduction}});
        if (std::string_view(op) == "Reduce") node.Arg("root", int64_t{n - 1});
        std::vector<Rows> x = Inputs(n);
        if (std::string_view(reduction) == "product") {
          x[1][0] = 0;            // the only zero
          x[0][1] = x[1][1] = 0;  // two zeros
        }
        CheckGradient(node, x, All(n));
      }
}

TEST_CASE("gradients of collectives that move elements are finite differences") {
  for (const int n : {2, 3})
    for (const char* op : {"Broadcast", "AllGather", "Gather", "Scatter", "AllToAll"}) {
      OperatorDef node(StrCat("opkit.cluster.", op), {"x"}, {"y"});
      const bool reads_at_root = detail::ReadsAtRoot(node);
      if (reads_at_root || detail::WritesAtRoot(node)) node.Arg("root", int64_t{1});
      CheckGradient(node, Inputs(n), reads_at_root ? std::vector<int>{1} : All(n));
    }
}

TEST_CASE("equal elements share the gradient of a maximum and of a minimum") {
  for (const char* reduction : {"max", "min"}) {
    CAPTURE(reduction);
    OperatorDef node("opkit.cluster.AllReduce", {"x"}, {"y"}, {{"reduction", reduction}});
    const double other = std::string_view(reduction) == "max" ? -5 : 5;
    // Elements that are equal on two processes, on all, and on none.
    const auto gradients =
        Losses(node, 3)
            .Of({{2, 1, 0, 0, 0, 0}, {2, 1, other, 0, 0, 0}, {other, 1, 2 * other, 0, 0, 0}})
            .second;
    // The gradient of the result is 3 * (1 + 0.25 i) - 0.5 * (0 + 1 + 2).
    CHECK(gradients[0][0] == doctest::Approx(1.5 / 2));
    CHECK(gradients[1][0] == doctest::Approx(1.5 / 2));
    CHECK(gradients[2][0] == 0);
    for (const Rows& gradient : gradients) CHECK(gradient[1] == doctest::Approx(2.25 / 3));
    CHECK(gradients[0][2] == doctest::Approx(3));
    CHECK(gradients[1][2] == 0);
    CHECK(gradients[2][2] == 0);
  }
}

// The processes 0 and 2, and 1 and 3, communicate by a collective each, of a value that all of them
// compute. Every process has a loss of both results.
class GroupLosses {
 public:
  static constexpr int kProcesses = 4;
  static constexpr int64_t kElements = 4;

  explicit GroupLosses(OperatorDef node) : cluster_(kProcesses) {
    graph_.AddInput("x", DType::kFloat64, {kElements}).AddInput("w", DType::kFloat64, {1});
    graph_.AddNode(OperatorDef("Mul", {"x", "x"}, {"h"}));
    for (const int64_t first : {0, 1}) {
      node.mutable_inputs() = {"h"};
      node.mutable_outputs() = {StrCat("y", first)};
      node.Arg("group", std::vector<int64_t>{first, first + 2});
      if (detail::ReadsAtRoot(node) || detail::WritesAtRoot(node)) node.Arg("root", first + 2);
      graph_.AddNode(node);
      graph_.AddNode(
          OperatorDef("Mul", {StrCat("y", first), StrCat("y", first)}, {StrCat("square", first)}));
      graph_.AddNode(OperatorDef("ReduceSum", {StrCat("square", first)}, {StrCat("sum", first)},
                                 {{"keepdims", 0}}));
    }
    graph_.AddNode(OperatorDef("Add", {"sum0", "sum1"}, {"sum"}));
    graph_.AddNode(OperatorDef("Mul", {"sum", "w"}, {"loss"}));
    graph_.AddOutput("loss");
    graph_.AddOutput(AddGradients(graph_, "loss", {"x"}).at("x").dense);
    executors_.resize(kProcesses);
    cluster_.Run([&](const CommunicatorPtr& communicator) {
      executors_[detail::Index(communicator->process())] =
          std::make_unique<Executor>(Compile(graph_, With(communicator)));
    });
  }
  struct Result {
    std::vector<double> losses{0, 0, 0, 0};
    std::vector<Rows> gradients{4};
  };
  Result Of(const std::vector<Rows>& x) {
    Result result;
    cluster_.Run([&](const CommunicatorPtr& communicator) {
      const size_t p = detail::Index(communicator->process());
      const Tensor weight = Tensor::From<double>({1}, {1 + 0.5 * static_cast<double>(p)});
      const auto out =
          executors_[p]->Run({{"x", Tensor::From<double>({kElements}, x[p])}, {"w", weight}});
      result.losses[p] = out.Get("loss").data<double>()[0];
      result.gradients[p] = out.Get(graph_.outputs()[1]).ToVector<double>();
    });
    return result;
  }

 private:
  Graph graph_;
  LocalCluster cluster_;
  std::vector<std::unique_ptr<Executor>> executors_;
};

TEST_CASE("gradients of collectives of groups are those of the losses of the group") {
  std::vector<OperatorDef> nodes;
  for (const char* op : {"Broadcast", "AllGather", "Gather", "Scatter", "AllToAll"})
    nodes.push_back(OperatorDef(StrCat("opkit.cluster.", op)));
  for (const char* op : {"AllReduce", "Reduce", "ReduceScatter"})
    for (const char* reduction : {"sum", "mean", "product", "max", "min"})
      nodes.push_back(
          OperatorDef(StrCat("opkit.cluster.", op), {}, {}, {{"reduction", reduction}}));
  for (const OperatorDef& node : nodes) {
    CAPTURE(ToString(node));
    CAPTURE(node.args().Get<std::string>("reduction", ""));
    GroupLosses losses(node);
    std::vector<Rows> x = {{1, -0.75, 0.5, 1.25},
                           {-0.5, 1.5, 1, -1.25},
                           {2, 0.25, -1.5, 0.75},
                           {1.75, -1, 0.5, -0.25}};
    const std::vector<Rows> gradients = losses.Of(x).gradients;
    for (size_t p = 0; p < x.size(); ++p)
      for (size_t i = 0; i < x[p].size(); ++i) {
        CAPTURE(p);
        CAPTURE(i);
        constexpr double kStep = 1e-4;
        const double before = x[p][i];
        x[p][i] = before + kStep;
        const std::vector<double> above = losses.Of(x).losses;
        x[p][i] = before - kStep;
        const std::vector<double> below = losses.Of(x).losses;
        x[p][i] = before;
        // Only processes that have the result by themselves count, so of Reduce the root.
        double expected = 0;
        for (const size_t member : {p % 2, p % 2 + 2})
          if (!detail::WritesAtRoot(node) || member == p % 2 + 2)
            expected += (above[member] - below[member]) / (2 * kStep);
        CHECK(gradients[p][i] == doctest::Approx(expected).epsilon(1e-5));
      }
  }
}

// Two losses of a value that each process computes; process 1 adds one of its own.
TEST_CASE("gradients of a value are added up where it is made") {
  for (const bool is_placed_first : {true, false}) {
    Graph graph;
    graph.AddInput("x", DType::kFloat64, {1}).AddInput("w", DType::kFloat64, {1});
    const auto add = [&](bool is_placed) {
      if (is_placed)
        graph.AddNode(OperatorDef("Neg", {"h"}, {"of_one"}).Process(1));
      else
        graph.AddNode(OperatorDef("Mul", {"h", "w"}, {"of_all"}));
    };
    graph.AddNode(OperatorDef("Neg", {"x"}, {"h"}));
    add(is_placed_first);
    add(!is_placed_first);
    graph.AddNode(OperatorDef("Add", {"of_one", "of_all"}, {"loss"}));
    const std::string gradient = AddGradients(graph, "loss", {"x"}).at("x").dense;
    graph.AddOutput(gradient);
    double gradients[2] = {};
    LocalCluster(2).Run([&](const CommunicatorPtr& communicator) {
      Executor executor(Compile(graph, With(communicator)));
      const double w = communicator->process() == 0 ? 10 : 20;
      gradients[communicator->process()] =
          executor
              .Run(InputsOf(executor, {{"x", Tensor::From<double>({1}, {1})},
                                       {"w", Tensor::From<double>({1}, {w})}}))
              .Get(gradient)
              .data<double>()[0];
    });
    CHECK(gradients[0] == -9);
    CHECK(gradients[1] == -19);
  }
}

TEST_CASE("the loss of a copy does not count") {
  Graph graph;
  graph.AddInput("x", DType::kFloat64, {2}).AddInput("w", DType::kFloat64, {1});
  graph.AddNode(OperatorDef("Mul", {"x", "x"}, {"y"}).Process(0));
  graph.AddNode(OperatorDef("ReduceSum", {"y"}, {"sum"}, {{"keepdims", 0}}));
  graph.AddNode(OperatorDef("Mul", {"sum", "w"}, {"loss"}));
  const std::string gradient = AddGradients(graph, "loss", {"x"}).at("x").dense;
  graph.AddOutput("loss").AddOutput(gradient);
  Rows found;
  double losses[2] = {};
  LocalCluster(2).Run([&](const CommunicatorPtr& communicator) {
    Executor executor(Compile(graph, With(communicator)));
    const int process = communicator->process();
    const Tensor w = Tensor::From<double>({1}, {process == 0 ? 10. : 20.});
    const auto out =
        executor.Run(InputsOf(executor, {{"x", Tensor::From<double>({2}, {1, 3})}, {"w", w}}));
    losses[process] = out.Get("loss").data<double>()[0];
    if (process == 0) found = out.Get(gradient).ToVector<double>();
  });
  CHECK(losses[0] == 100);
  CHECK(losses[1] == 200);
  CHECK(found == Rows{20, 60});  // of the loss of process 0 alone
}

TEST_CASE("a gradient that is zero outside of a group needs a known shape") {
  Graph graph;
  graph.AddInput("x", DType::kFloat64, {Dim()});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"h"}));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"h"}, {"y"},
                            {{"group", std::vector<int64_t>{0, 2}}}));
  graph.AddNode(OperatorDef("ReduceSum", {"y"}, {"loss"}, {{"keepdims", 0}}));
  graph.AddOutput("loss");
  const std::string gradient = AddGradients(graph, "loss", {"x"}).at("x").dense;
  graph.AddOutput(gradient);
  CHECK_THROWS_WITH(
      ProcessParts(graph, 3),
      doctest::Contains("is zero on process 1, which is not among the processes 0, 2 that get a "
                        "result of the node"));
}

// Returns the gradient of the input, which has one element, on each process. Zero if none flows.
Rows GradientsOf(Graph graph, const std::string& loss, const std::string& input, size_t processes) {
  Rows gradients(processes);
  const std::string found =
      AddGradients(graph, loss, {input}, {.allow_none = true}).at(input).dense;
  if (found.empty()) return gradients;
  graph.AddNode(OperatorDef("Neg", {found}, {"negated"}));
  graph.AddOutput("negated");
  LocalCluster cluster(static_cast<int>(processes));
  cluster.Run([&](const CommunicatorPtr& communicator) {
    Executor executor(Compile(graph, With(communicator)));
    gradients[detail::Index(communicator->process())] =
        -executor.Run(InputsOf(executor, {{input, Tensor::From<double>({1}, {1})}}))
             .Get("negated")
             .data<double>()[0];
  });
  return gradients;
}

TEST_CASE("a gradient that is handed on crosses as one that is computed") {
  for (const std::string op : {"Identity", "Dropout", "Neg"}) {
    CAPTURE(op);
    Graph graph;
    graph.AddInput("w", DType::kFloat64, {1});
    graph.AddNode(OperatorDef(op, {"w"}, {"a"}).Process(1));
    graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"a"}, {"loss"},
                              {{"group", std::vector<int64_t>{1}}}));
    CHECK(GradientsOf(graph, "loss", "w", 2) == Rows(2, op == "Neg" ? -1 : 1));
  }
}

// A random graph of one input, v0, whose values have one element. The loss is the last value.
class RandomGraph {
 public:
  RandomGraph(unsigned seed, int processes) : random_(seed), everywhere_(All(processes)) {
    values_.push_back({{}, everywhere_, everywhere_});
    for (int left = Below(8) + 2; left > 0; --left)
      if (Below(2) == 0)
        AddLocal();
      else
        AddCollective();
  }
  Graph graph() const {
    Graph graph;
    graph.AddInput("v0", DType::kFloat64, {1});
    for (size_t i = 1; i < values_.size(); ++i) graph.AddNode(values_[i].node);
    return graph;
  }
  std::string loss() const { return NameOf(values_.size() - 1); }
  // Returns the gradient of v0 on each process, by the rules of docs/cluster.md.
  Rows Gradient() const {
    std::vector<Rows> of(values_.size(), Rows(everywhere_.size()));
    for (const int p : values_.back().makers) of.back()[detail::Index(p)] = 1;
    for (size_t i = values_.size(); --i > 0;) {
      const Value& value = values_[i];
      const bool is_collective = detail::IsCollective(value.node);
      const bool is_placed = value.node.process() >= 0;
      double total = 0;
      for (const int p : value.makers) total += of[i][detail::Index(p)];
      for (size_t input = 0; input < value.inputs.size(); ++input)
        for (const int p : values_[value.inputs[input]].makers) {
          // The gradient of a node with Process crosses to all that make its input.
          if (!is_placed && !detail::Contains(value.readers, p)) continue;
          const double gradient = is_collective || is_placed ? total : of[i][detail::Index(p)];
          const bool is_negated = value.node.type() == "Neg" || input == 1;
          of[value.inputs[input]][detail::Index(p)] += is_negated ? -gradient : gradient;
        }
    }
    return of[0];
  }

 private:
  struct Value {
    OperatorDef node;
    std::vector<int> readers, makers;  // the processes that run the node
    std::vector<size_t> inputs = {};
  };

  int Below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  size_t AnyValue() { return detail::Index(Below(static_cast<int>(values_.size()))); }
  static std::string NameOf(size_t value) { return StrCat("v", value); }
  void Add(OperatorDef node, Value value) {
    for (const size_t input : value.inputs) node.Input(NameOf(input));
    value.node = node.Output(NameOf(values_.size()));
    values_.push_back(std::move(value));
  }
  void AddLocal() {
    const char* const ops[] = {"Identity", "Neg", "Sub"};
    OperatorDef node(ops[Below(3)]);
    Value value{{}, everywhere_, everywhere_, {AnyValue()}};
    if (node.type() == "Sub") value.inputs.push_back(AnyValue());
    if (Below(3) == 0) {
      node.Process(Below(static_cast<int>(everywhere_.size())));
      value.readers = value.makers = {node.process()};
    }
    Add(std::move(node), std::move(value));
  }
  // Adds a collective of which some process has an input that it makes itself.
  void AddCollective() {
    const char* const ops[] = {"AllReduce", "Reduce", "Broadcast"};
    OperatorDef node(StrCat("opkit.cluster.", ops[Below(3)]));
    const size_t input = AnyValue();
    const std::vector<int>& makers = values_[input].makers;
    const int root = makers[detail::Index(Below(static_cast<int>(makers.size())))];
    std::vector<int> group;
    for (const int p : everywhere_)
      if (p == root || Below(2) == 0) group.push_back(p);
    node.Arg("group", std::vector<int64_t>(group.begin(), group.end()));
    const bool reads_at_root = detail::ReadsAtRoot(node),
               writes_at_root = detail::WritesAtRoot(node);
    if (reads_at_root || writes_at_root) node.Arg("root", int64_t{root});
    const std::vector<int> of_root = {root};
    Add(std::move(node),
        {{}, reads_at_root ? of_root : group, writes_at_root ? of_root : group, {input}});
  }

  std::mt19937 random_;
  const std::vector<int> everywhere_;
  std::vector<Value> values_;
};

TEST_CASE("gradients of random graphs follow the rules for values that cross") {
  int differing = 0;
  for (unsigned seed = 0; seed < 160; ++seed) {
    const RandomGraph random(seed, 2 + static_cast<int>(seed % 3));
    CAPTURE(seed);
    CAPTURE(ToString(random.graph()));
    const Rows expected = random.Gradient();
    CHECK(GradientsOf(random.graph(), random.loss(), "v0", expected.size()) == expected);
    differing += expected != Rows(expected.size(), expected[0]);
  }
  CHECK(differing > 20);
}

}  // namespace
}  // namespace gradients_test
