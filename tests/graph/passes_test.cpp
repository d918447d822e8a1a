// Lists of passes, and every pass on random graphs; passes/ has the tests of each pass.
#include "opkit/graph/passes.hpp"

#include <doctest/doctest.h>

#include "graph/passes/pass_graphs.hpp"
#include "opkit/graph/print/print.hpp"
#include "support/error_of.hpp"
#include "support/sanitizers.hpp"

namespace passes_test {
using namespace pass_graphs;

namespace {

// Equal computations in a graph that has few: nodes are doubled, what reads a value may read the
// double's, and some doubles are outputs.
Graph WithDoubles(const Graph& graph, uint64_t seed) {
  detail::CheckRandom random(seed);
  const auto chance = [&](double probability) { return random.Uniform() < probability; };
  Graph out;
  for (const Graph::Input& input : graph.inputs())
    out.AddInput(input.name, input.info.dtype, input.info.shape);
  for (const Graph::Constant& constant : graph.constants()) {
    out.AddConstant(constant.name, constant.value);
    out.AddConstant(constant.name + "_double", detail::CopyOf(constant.value));
  }
  const GraphView view(graph);
  std::vector<std::string> outputs = graph.outputs();
  for (OperatorDef def : graph.nodes()) {
    for (std::string& input : def.mutable_inputs()) {
      const bool rewritten = view.IsRewritten(view.FindValue(input));
      if (!rewritten && out.HasValue(input + "_double") && chance(0.5)) input += "_double";
    }
    out.AddNode(def);
    const std::string made = def.outputs()[0];
    if (view.IsRewritten(view.FindValue(made)) || !chance(0.5)) continue;
    def.mutable_outputs()[0] += "_double";
    out.AddNode(def.Name(def.name().empty() ? "" : def.name() + "_double"));
    if (chance(0.2)) outputs.push_back(made + "_double");
    if (chance(0.2) && !graph.IsOutput(made)) outputs.push_back(made);
  }
  for (const std::string& output : outputs) out.AddOutput(output);
  return out;
}

}  // namespace

TEST_CASE("passes are named, ordered, inserted and removed") {
  PassList passes = DefaultPasses();
  CHECK(passes.names() == std::vector<std::string>{"remove_dead_nodes", "merge_quantized_nodes",
                                                   "fold_constants", "compute_half_in_float32",
                                                   "merge_hard_swish", "fold_batch_normalization",
                                                   "merge_common_subexpressions"});
  const auto nothing = [](Graph g) { return g; };
  passes.Add("last", nothing);
  passes.InsertBefore("remove_dead_nodes", "first", nothing);
  passes.InsertAfter("first", "second", nothing);
  const PassList copy = passes;
  passes.Remove("fold_constants").Remove("last");
  CHECK(passes.names() ==
        std::vector<std::string>{"first", "second", "remove_dead_nodes", "merge_quantized_nodes",
                                 "compute_half_in_float32", "merge_hard_swish",
                                 "fold_batch_normalization", "merge_common_subexpressions"});
  CHECK(copy.names().size() == 10);
  CHECK(Contains(ErrorOf([&] { passes.Remove("remove_dead_node"); }).what(),
                 "no pass 'remove_dead_node' (did you mean 'remove_dead_nodes'? known: 'first'"));
  CHECK(ErrorOf([&] { passes.InsertAfter("third", "x", nothing); }).code() == ErrorCode::kNotFound);
  CHECK(ErrorOf([&] { passes.Add("first", nothing); }).code() == ErrorCode::kAlreadyExists);
  CHECK(ErrorOf([&] { passes.Add("", nothing); }).code() == ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { passes.Add("x", {}); }).code() == ErrorCode::kInvalidArgument);
  CHECK(passes.names().size() == 8);
}

TEST_CASE("a list runs its passes in order and leaves the graph it was given") {
  Graph g = WithInputs({"X"});
  g.AddNode(Relu("X", "A"));
  g.AddOutput("A");
  PassList passes;
  const auto append = [](const char* in, const char* out) {
    return [=](Graph graph) {
      graph.AddNode(Scale(in, out, 2));
      return graph;
    };
  };
  passes.Add("one", append("A", "B")).Add("two", append("B", "C"));
  std::string seen;
  const Graph after = passes.Run(g, [&](const std::string& name, const Graph& a, const Graph& b) {
    seen += StrCat(name, ": ", a.num_nodes(), " -> ", b.num_nodes(), "; ");
  });
  CHECK(seen == "one: 1 -> 2; two: 2 -> 3; ");
  CHECK(after.num_nodes() == 3);
  CHECK(g.num_nodes() == 1);
  CHECK(SameGraph(passes.Run(g), after));
  CHECK(SameGraph(PassList().Run(g), g));
}

TEST_CASE("errors of a pass, and of a graph that it breaks, name the pass") {
  Graph g = WithInputs({"X"});
  g.AddNode(Relu("X", "A"));
  g.AddOutput("A");
  const auto error_of = [&](auto pass) {
    PassList passes = DefaultPasses();
    passes.InsertBefore("fold_constants", "mine", pass);
    return ErrorOf([&] { passes.Run(g); });
  };
  const Error broken = error_of([](Graph graph) {
    graph.RemoveNode(0);
    return graph;
  });
  CHECK(broken.code() == ErrorCode::kNotFound);
  CHECK(Contains(broken.what(), "constant or node makes output 'A' of the graph"));
  CHECK(Contains(broken.what(), "in pass 'mine'"));
  const Error thrown = error_of([](Graph) -> Graph { throw std::runtime_error("no idea"); });
  CHECK(thrown.code() == ErrorCode::kOperatorFailed);
  CHECK(Contains(thrown.what(), "no idea\n  in pass 'mine'"));
  const Error number = error_of([](Graph) -> Graph { throw 3; });
  CHECK(Contains(number.what(), "threw something that is not a std::exception\n  in pass 'mine'"));
  g.AddOutput("missing");  // wrong before any pass
  CHECK_FALSE(Contains(ErrorOf([&] { DefaultPasses().Run(g); }).what(), "in pass"));
}

TEST_CASE("on random graphs every pass keeps the results to the bit, and twice is once") {
  struct Tried {
    const char* name;
    Graph (*run)(const Graph&);
    int removed = 0;
  };
  Tried passes[] = {{"RemoveDeadNodes", &RemoveDeadNodes},
                    {"FoldConstants", [](const Graph& g) { return FoldConstants(g); }},
                    {"MergeCommonSubexpressions", &MergeCommonSubexpressions},
                    {"DefaultPasses", [](const Graph& g) { return DefaultPasses().Run(g); }}};
  for (uint64_t seed = 1; seed <= Rounds(120u); ++seed) {
    CAPTURE(seed);
    RandomGraphOptions options;
    options.inputs = 1 + static_cast<int>(seed % 3);
    options.constants = static_cast<int>(seed % 4);
    options.aliases = seed % 5 != 0;
    options.rewrites = seed % 2 == 0;
    options.controls = seed % 3 == 0;
    options.shuffled = !options.rewrites && seed % 7 == 0;
    Graph graph = RandomGraph(seed, options);
    if (!options.shuffled) graph = WithDoubles(graph, seed);
    for (size_t drop = 0; graph.outputs().size() > 1 && drop < seed % 3; ++drop)
      graph.RemoveOutput(std::string(graph.outputs().back()));  // something to be dead
    for (Tried& pass : passes) {
      CAPTURE(pass.name);
      const Graph after = pass.run(graph), again = pass.run(after);
      CheckSameResults(graph, after, seed);
      pass.removed += graph.num_nodes() - after.num_nodes();
      CHECK_MESSAGE(SameGraph(again, after), ToString(after, again));
    }
  }
  for (const Tried& pass : passes) {
    CAPTURE(pass.name);
    CHECK(pass.removed > Rounds(100));  // it had something to do
  }
}

}  // namespace passes_test
