// PassList: a named, ordered list of functions from graph to graph that a program extends, and the
// list that the toolkit begins with. No pass chooses the values that are computed in place: the
// plan decides it for the kernels that it selected (PlannedMemory::AllowInPlace).
#ifndef OPKIT_GRAPH_PASSES_HPP_
#define OPKIT_GRAPH_PASSES_HPP_

#include "opkit/base/unique_function.hpp"
#include "opkit/graph/carried_graph.hpp"
#include "opkit/graph/graph_view.hpp"
#include "opkit/graph/passes/common_subexpressions.hpp"
#include "opkit/graph/passes/constant_folding.hpp"
#include "opkit/graph/passes/dead_nodes.hpp"

namespace opkit::inline OPKIT_ABI {

// A regular value; copies share the passes themselves. A pass returns a graph that computes the
// same outputs and leaves the same data in the caller's inputs. Running is const: a list whose
// passes keep no state may run on several threads.
//
//   PassList passes = DefaultPasses();
//   passes.InsertAfter("fold_constants", "my_pass", [](Graph g) { …; return g; });
//   Graph better = passes.Run(graph);
class PassList {
 public:
  using Pass = UniqueFunction<Graph(Graph)>;
  using Watch = UniqueFunction<void(const std::string&, const Graph&, const Graph&)>;

  // At the end. Errors of all three: kAlreadyExists for a name that the list has, kInvalidArgument
  // for an empty name or pass, kNotFound, with the nearest name, for a place that it does not have.
  PassList& Add(std::string name, Pass pass) {
    return Insert(passes_.end(), std::move(name), std::move(pass));
  }
  PassList& InsertBefore(std::string_view place, std::string name, Pass pass) {
    return Insert(Find(place), std::move(name), std::move(pass));
  }
  PassList& InsertAfter(std::string_view place, std::string name, Pass pass) {
    return Insert(Find(place) + 1, std::move(name), std::move(pass));
  }
  // Error (kNotFound), with the nearest name.
  PassList& Remove(std::string_view name);
  std::vector<std::string> names() const;

  // Checks the graph before the first pass and after every pass. An error in a pass, or in the
  // graph that it returned, names the pass. Calls watch(name, before, after) after every pass:
  //   passes.Run(g, [](auto& name, auto& a, auto& b) { Log(name + "\n" + PrintGraph(a, b)); });
  Graph Run(Graph graph, Watch watch = {},
            UnknownOperators unknown = UnknownOperators::kRefused) const;

 private:
  struct Entry : detail::RefCounted {
    std::string name;
    Pass run;
  };

  using Entries = std::vector<detail::IntrusivePtr<Entry>>;

  Entries::const_iterator Find(std::string_view name) const;
  PassList& Insert(Entries::const_iterator place, std::string name, Pass pass);

  Entries passes_;
};

// remove_dead_nodes, fold_constants, merge_hard_swish, fold_batch_normalization,
// merge_common_subexpressions: a second run of the list changes nothing. The third and the fourth
// keep results up to rounding, the others to the bit; they are in the list wherever the compiled
// runtime or, header-only, the standard operators that they rewrite are in the program
// (ops/nn/activation.hpp, and conv.hpp or normalization.hpp beside it).
PassList DefaultPasses(FoldOptions options = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/passes.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_HPP_
