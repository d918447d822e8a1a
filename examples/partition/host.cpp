// Loads the libraries of this folder and lets their partitioners take parts of a graph of standard
// operators. Compares the outputs with those of the unpartitioned graph.
//   cmake --build build/gcc --target example_partition_host   # which links the target opkit::ops
//   cd build/gcc/examples/partition && ./host libexp_log.so libin_c.so
#include <cmath>
#include <cstdio>
#include <opkit/partition.hpp>
#include <opkit/plugin.hpp>

using namespace opkit;

// Makes a graph of these operators in a row, X -> … -> Y.
Graph Row(const std::vector<const char*>& ops) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("N")});
  for (size_t i = 0; i < ops.size(); ++i)
    graph.AddNode(OperatorDef(ops[i], {i == 0 ? "X" : StrCat("V", i)},
                              {i + 1 == ops.size() ? "Y" : StrCat("V", i + 1)})
                      .Name(StrCat("n", i)));
  return graph.AddOutput("Y"), graph;
}

std::vector<float> Run(const Graph& graph) {
  Executor executor(Compile(graph));
  return executor.Run({{"X", Tensor::From<float>({3}, {1, 2, 3})}}).Get("Y").ToVector<float>();
}

bool Report(bool right, const char* what) {
  std::printf("%s: %s\n", what, right ? "right" : "WRONG");
  return right;
}
// True if `after` has this number of nodes and the results of `before`.
bool Same(const Graph& before, const Graph& after, int nodes, const char* what) {
  const std::vector<float> expected = Run(before), found = Run(after);
  bool right = after.num_nodes() == nodes;
  for (size_t i = 0; i < expected.size(); ++i)
    right &= std::fabs(found[i] - expected[i]) <= 1e-5f * (1 + std::fabs(expected[i]));
  return Report(right, what);
}
// True if the partitioner refuses an unknown option with this text.
bool Refuses(const Graph& graph, const char* partitioner, const std::string& text) {
  try {
    Partition(graph, partitioner, {{"steps", "1"}});
  } catch (const Error& error) {
    return Report(error.message().find(text) != std::string::npos, error.message().c_str());
  }
  return Report(false, partitioner);
}

int main(int argc, char** argv) try {
  std::vector<Library> libraries;
  for (int i = 1; i < argc; ++i) libraries.push_back(Library::Load(argv[i]));

  const Graph graph = Row({"Log", "Exp", "Identity", "Neg", "Abs", "Relu", "Exp"});
  PartitionReport report;
  const Graph parted = Partition(graph, {"myProp", "c_signs"}, &report);
  std::printf("%s", ToString(report).c_str());
  bool right = Same(graph, parted, 5, "both partitioners");
  right &= Same(graph, RunPass(graph, "c_drop_identities"), 6, "the pass");
  right &= Same(graph, Partition(graph, "myProp", {{"max_steps", "1"}}), 7, "one step at most");
  Graph branch = Row({"Log", "Exp"});  // whose first value others read: no chain
  branch.AddOutput("V1");
  right &= Same(branch, Partition(branch, "myProp"), 2, "a chain with a branch");
  right &= Refuses(graph, "myProp", "there is no option 'steps'");
  right &= Refuses(graph, "c_signs", "c_signs has no options");
  for (Library& library : libraries) right &= library.Unload().unmapped;
  return right ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
