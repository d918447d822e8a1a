// Inputs that the caller donates: runs write values and outputs to their memory.
#include <doctest/doctest.h>

#include "nodes.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/ops/subgraph.hpp"
#include "random_graph.hpp"
#include "support/allocations.hpp"
#include "support/error_of.hpp"
#include "support/sanitizers.hpp"
#include "support/text.hpp"

namespace executor_donation_test {
using namespace opkit;
using namespace graph_nodes;

namespace {

const PassList kNoPasses;

// x -> a -> b -> y, each node in place where it may.
Graph Chain() {
  Graph g;
  g.AddInput("x", DType::kFloat32, {64});
  g.AddNode(Relu("x", "a"));
  g.AddNode(Relu("a", "b"));
  g.AddNode(Relu("b", "y"));
  g.AddOutput("y");
  return g;
}
Tensor Ones() { return Tensor::From<float>({64}, std::vector<float>(64, 1)); }
PlanOptions Donating(std::vector<std::string> names) {
  return {.threads = 1,
          .passes = &kNoPasses,
          .memory = {.donated_inputs = std::move(names), .verify = true}};
}

}  // namespace

TEST_CASE("an input that is donated holds the values and the output after it") {
  CHECK(Compile(Chain(), Donating({})).memory().arena_bytes == 256);
  const Plan plan = Compile(Chain(), Donating({"x"}));
  CHECK(plan.memory().arena_bytes == 0);
  Executor exec(plan);
  for (int run = 0; run < 3; ++run) {  // another tensor in every run
    Tensor x = Ones();
    const Tensor y = exec.Run({{"x", x}}).Get("y");
    CHECK(y.raw_data() == x.raw_data());
    CHECK(y.ToVector<float>() == std::vector<float>(64, 1));
    x = Tensor();
    CHECK(exec.output("y").raw_data() == y.raw_data());
  }
}

TEST_CASE("an output that is bound is written where it is, donated inputs or not") {
  Executor exec(Compile(Chain(), Donating({"x"})));
  Tensor x = Ones(), y({64}, DType::kFloat32);
  exec.Bind("x", x);
  exec.Bind("y", y);
  exec.Run();
  CHECK(exec.output("y").raw_data() == y.raw_data());
  CHECK(y.ToVector<float>() == std::vector<float>(64, 1));
  WarmUp([&] { exec.Run(); });
  CHECK(AllocationsOf([&] { exec.Run(); }) == 0);
  exec.Bind("y", Tensor());
  exec.Run();
  CHECK(exec.output("y").raw_data() == x.raw_data());
  exec.Bind("y", x);  // an update in place
  exec.Run();
  CHECK(exec.output("y").raw_data() == x.raw_data());
}

TEST_CASE("an output that is bound over a donated input overwrites no other output there") {
  Graph g;
  g.AddInput("x", DType::kFloat32, {64});
  g.AddNode(Relu("x", "a"));
  g.AddNode(Scale("a", "b", 3));
  g.AddOutput("a").AddOutput("b");
  for (const std::string bound : {"a", "b"}) {
    Executor exec(Compile(g, Donating({"x"})));
    Tensor held_b;
    for (int run = 0; run < 3; ++run) {
      const Tensor x = Ones();
      exec.Bind("x", x);
      exec.Bind(bound, x);
      exec.Run();
      CHECK(exec.output("a").ToVector<float>() == std::vector<float>(64, 1));
      CHECK(exec.output("b").ToVector<float>() == std::vector<float>(64, 3));
      CHECK(x.ToVector<float>() == exec.output(bound).ToVector<float>());
      exec.Run();  // on what the last run has left in x
      CHECK(exec.output("b").ToVector<float>() == std::vector<float>(64, bound == "a" ? 3.f : 9.f));
      if (held_b.initialized()) CHECK(held_b.ToVector<float>()[0] == (bound == "a" ? 3 : 9));
      held_b = exec.output("b");
    }
  }
}

TEST_CASE("an input with strides that is donated lends a copy") {
  Graph g;
  g.AddInput("x", DType::kFloat32, {64, 1});
  g.AddNode(Relu("x", "y"));
  g.AddOutput("y");
  Executor exec(Compile(g, Donating({"x"})));
  Tensor wide({64, 2}, DType::kFloat32);
  for (int64_t i = 0; i < wide.numel(); ++i) wide.mutable_data<float>()[i] = static_cast<float>(i);
  const Tensor first = exec.Run({{"x", wide.Slice(1, 0, 1)}}).Get("y");
  const Tensor second = exec.Run({{"x", wide.Slice(1, 1, 2)}}).Get("y");
  CHECK(first.ToVector<float>()[1] == 2);
  CHECK(second.ToVector<float>()[1] == 3);
  CHECK(wide.ToVector<float>()[3] == 3);
}

TEST_CASE("a value that is read again is not overwritten, nor is a view of the input") {
  Graph g;
  g.AddInput("x", DType::kFloat32, {64});
  g.AddNode(OperatorDef("Identity", {"x"}, {"view"}));
  g.AddNode(Relu("x", "a"));
  g.AddNode(Add("a", "view", "y"));
  g.AddOutput("y");
  Executor exec(Compile(g, Donating({"x"})));
  const Tensor x = Tensor::From<float>({64}, std::vector<float>(64, -1));
  CHECK(exec.Run({{"x", x}}).Get("y").ToVector<float>() == std::vector<float>(64, -1));
}

TEST_CASE("a body writes to a donated input") {
  Graph g;
  g.AddInput("x", DType::kFloat32, {64});
  g.AddNode(OperatorDef("Subgraph", {"x"}, {"y"}).Subgraph("body", MakeSubgraph(Chain())));
  g.AddOutput("y");
  const Plan plan = Compile(g, Donating({"x"}));
  CHECK(plan.memory().arena_bytes == 0);
  Executor exec(plan);
  const Tensor x = Ones();
  CHECK(exec.Run({{"x", x}}).Get("y").raw_data() == x.raw_data());
}

TEST_CASE("random graphs with donated inputs give the same bits, and take no more memory") {
  int64_t plain_bytes = 0, bytes = 0;
  for (uint64_t seed = 1; seed <= Rounds(100u); ++seed) {
    CAPTURE(seed);
    const Graph graph = RandomGraph(seed, {.nodes = 20, .window = seed % 2 ? 3 : 0});
    std::vector<std::string> names;
    for (const Graph::Input& input : graph.inputs())
      if (!graph.IsOutput(input.name)) names.push_back(input.name);
    for (const int threads : {1, 2}) {
      PlanOptions options = Donating({});
      options.threads = threads;
      Executor plain(Compile(graph, options));
      options.memory.donated_inputs = names;
      Executor exec(Compile(graph, options));
      plain_bytes += plain.plan().memory().arena_bytes;
      bytes += exec.plan().memory().arena_bytes;
      for (int run = 0; run < 2; ++run) {
        std::vector<NamedTensor> first, second;
        const auto inputs = RandomInputs(graph, seed + static_cast<uint64_t>(run));
        for (size_t i = 0; i < inputs.size(); ++i) {
          first.push_back({graph.inputs()[i].name, inputs[i]});
          second.push_back({graph.inputs()[i].name, detail::CopyOf(inputs[i])});
        }
        const NamedTensors expected = plain.Run(first), found = exec.Run(second);
        for (size_t o = 0; o < expected.size(); ++o)
          CHECK(detail::SameBytes(expected[o], found[o]));
      }
    }
  }
  CHECK(bytes < plain_bytes);
}

TEST_CASE("inputs that cannot be donated are refused") {
  const auto refused = [](const Graph& g, const char* name) {
    return ErrorOf([&] { Compile(g, Donating({name})); }).message();
  };
  CHECK(Contains(refused(Chain(), "z"), "names 'z', which is no input of the graph"));
  Graph rewritten;
  rewritten.AddInput("x", DType::kFloat32, {2}).AddInput("total", DType::kFloat32, {2});
  rewritten.AddNode(Accumulate("total", "x"));
  CHECK(Contains(refused(rewritten, "total"), "rewritten by a node of the graph"));
  Graph returned = Chain();
  returned.AddOutput("x");
  CHECK(Contains(refused(returned, "x"), "an output of the graph too"));
  Graph two = Chain();
  two.AddInput("w", DType::kFloat32, {64});
  two.AddNode(Relu("w", "v"));
  two.AddOutput("v");
  Executor exec(Compile(two, Donating({"x"})));
  const Tensor x = Ones();
  CHECK(Contains(ErrorOf([&] { exec.Run({{"x", x}, {"w", x}}); }).message(), "share memory"));
}

}  // namespace executor_donation_test
