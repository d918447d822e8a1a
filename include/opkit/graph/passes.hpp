// PassList: an ordered list of named functions that rewrite a graph, and the default list, which
// programs can extend. No pass chooses the values that are computed in place: the plan does so for
// the kernels that it selected (PlannedMemory::AllowInPlace).
#ifndef OPKIT_GRAPH_PASSES_HPP_
#define OPKIT_GRAPH_PASSES_HPP_

#include "opkit/base/unique_function.hpp"
#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/graph_view.hpp"
#include "opkit/graph/passes/common_subexpressions.hpp"
#include "opkit/graph/passes/constant_folding.hpp"
#include "opkit/graph/passes/dead_nodes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A regular value; copies share the passes. A pass returns a graph that computes the same outputs
// and leaves the same data in the caller's inputs. Run is const: several threads may run a list
// whose passes keep no state.
//
//   PassList passes = DefaultPasses();
//   passes.InsertAfter("fold_constants", "my_pass", [](Graph g) { …; return g; });
//   Graph better = passes.Run(graph);
class PassList {
 public:
  using Pass = UniqueFunction<Graph(Graph)>;
  using Watch = UniqueFunction<void(const std::string&, const Graph&, const Graph&)>;

  // Adds a pass at the end. Add, InsertBefore and InsertAfter throw kAlreadyExists for a name that
  // the list has, kInvalidArgument for an empty name or pass, and kNotFound, with the nearest name,
  // for a `place` that the list does not have.
  PassList& Add(std::string name, Pass pass) {
    return Insert(passes_.end(), std::move(name), std::move(pass));
  }
  PassList& InsertBefore(std::string_view place, std::string name, Pass pass) {
    return Insert(Find(place), std::move(name), std::move(pass));
  }
  PassList& InsertAfter(std::string_view place, std::string name, Pass pass) {
    return Insert(Find(place) + 1, std::move(name), std::move(pass));
  }
  // Throws kNotFound, with the nearest name, for a name that the list does not have.
  PassList& Remove(std::string_view name);
  std::vector<std::string> names() const;

  // Runs all passes. Checks the graph before the first pass and after every pass. An error in a
  // pass or in its result names the pass. Calls watch(name, before, after) after every pass:
  //   passes.Run(g, [](auto& name, auto& a, auto& b) { Log(name + "\n" + ToString(a, b)); });
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

// Returns the passes remove_dead_nodes, merge_quantized_nodes, fold_constants,
// compute_half_in_float32, merge_hard_swish, fold_batch_normalization and
// merge_common_subexpressions. A second run of the list changes nothing. The passes keep results
// bit by bit, except merge_quantized_nodes, which keeps quantised results up to one unit, and
// compute_half_in_float32, merge_hard_swish and fold_batch_normalization, which keep results up to
// rounding. A header-only program has these four passes only if it includes the standard operators
// that they insert or rewrite: ops/quantized/quantize_linear.hpp, ops/cast.hpp,
// ops/nn/activation.hpp, and ops/nn/conv.hpp or normalization.hpp.
PassList DefaultPasses(FoldOptions options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/passes.ipp"
#endif

#endif  // OPKIT_GRAPH_PASSES_HPP_
