// PassList: a named, ordered list of functions from graph to graph that a program extends, and the
// list that the toolkit begins with. What is computed in place is no pass's choice: the plan
// decides it for the kernels that were selected (Specialization::AllowInPlace).
#ifndef OPKIT_GRAPH_PASSES_HPP_
#define OPKIT_GRAPH_PASSES_HPP_

#include "opkit/base/function_ref.hpp"
#include "opkit/graph/passes/common_subexpressions.hpp"
#include "opkit/graph/passes/constant_folding.hpp"
#include "opkit/graph/passes/dead_nodes.hpp"

namespace opkit::inline OPKIT_ABI {

// A regular value; copies share the passes themselves. A pass returns a graph that computes the
// same outputs and leaves the same in the caller's inputs. Running is const: a list whose passes
// keep no state may run on several threads.
//
//   PassList passes = DefaultPasses();
//   passes.InsertAfter("fold_constants", "my_pass", [](Graph g) { …; return g; });
//   Graph better = passes.Run(graph);
//
// A template, so that programs that run no pass do not compile it.
template <class G>
class BasicPassList {
 public:
  using Pass = UniqueFunction<G(G)>;

  // At the end. Errors of all three: kAlreadyExists for a name that the list has, kInvalidArgument
  // for an empty name or pass, kNotFound, with the nearest name, for a place that it does not have.
  BasicPassList& Add(std::string name, Pass pass) {
    return Insert(passes_.size(), std::move(name), std::move(pass));
  }
  BasicPassList& InsertBefore(std::string_view place, std::string name, Pass pass) {
    return Insert(Find(place), std::move(name), std::move(pass));
  }
  BasicPassList& InsertAfter(std::string_view place, std::string name, Pass pass) {
    return Insert(Find(place) + 1, std::move(name), std::move(pass));
  }
  // Error (kNotFound), with the nearest name.
  BasicPassList& Remove(std::string_view name) {
    passes_.erase(passes_.begin() + static_cast<std::ptrdiff_t>(Find(name)));
    return *this;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& known : passes_) names.push_back(known->name);
    return names;
  }

  // The graph is checked before the first pass and after every one; an error of a pass, and of what
  // it made, names the pass.
  G Run(G graph) const { return Walk(std::move(graph), nullptr); }
  // As above; calls watch(name, before, after) after every pass:
  //   passes.Run(g, [](auto& name, auto& a, auto& b) { Log(name + "\n" + PrintGraph(a, b)); });
  G Run(G graph, FunctionRef<void(const std::string&, const G&, const G&)> watch) const {
    return Walk(std::move(graph), &watch);
  }

 private:
  using Watch = FunctionRef<void(const std::string&, const G&, const G&)>;
  struct Entry : detail::RefCounted {
    std::string name;
    Pass run;
  };

  size_t Find(std::string_view name) const {
    for (size_t i = 0; i < passes_.size(); ++i)
      if (passes_[i]->name == name) return i;
    Throw(ErrorCode::kNotFound, "the list has no pass '", name, "'", SuggestName(name, names()));
  }
  BasicPassList& Insert(size_t at, std::string name, Pass pass) {
    if (name.empty() || !pass)
      Throw(ErrorCode::kInvalidArgument, "pass '", name, "' needs a name and a function");
    for (const auto& known : passes_)
      if (known->name == name)
        Throw(ErrorCode::kAlreadyExists, "the list has a pass '", name,
              "' already; give this one another name");
    auto entry = detail::MakeIntrusive<Entry>();
    entry->name = std::move(name);
    entry->run = std::move(pass);
    passes_.insert(passes_.begin() + static_cast<std::ptrdiff_t>(at), std::move(entry));
    return *this;
  }
  G Walk(G graph, const Watch* watch) const {
    Check(graph);
    for (const auto& pass : passes_) {
      G before;
      if (watch) before = graph;
      const std::vector<std::string> outputs = graph.outputs();
      try {
        graph = pass->run(std::move(graph));
        Check(graph);
        for (const std::string& output : outputs)
          if (!graph.IsOutput(output))
            Throw(ErrorCode::kInvalidArgument, "the pass removed output '", output,
                  "' of the graph; a pass keeps what a run returns");
      } catch (Error& error) {
        error.AddContext("in pass '" + pass->name + "'");
        throw;
      } catch (const std::exception& thrown) {
        Error error(ErrorCode::kOperatorFailed, thrown.what());
        error.SetCause(std::current_exception());
        throw error.AddContext("in pass '" + pass->name + "'");
      }
      if (watch) (*watch)(pass->name, before, graph);
    }
    return graph;
  }

  std::vector<detail::IntrusivePtr<Entry>> passes_;
};
using PassList = BasicPassList<Graph>;

// remove_dead_nodes, fold_constants, merge_common_subexpressions: one run leaves nothing for a
// second one.
template <class G = Graph>
BasicPassList<G> DefaultPasses(FoldOptions options = {}) {
  BasicPassList<G> passes;
  passes.Add("remove_dead_nodes", [](const G& graph) { return RemoveDeadNodes(graph); });
  passes.Add("fold_constants", [options](const G& graph) { return FoldConstants(graph, options); });
  passes.Add("merge_common_subexpressions",
             [](const G& graph) { return MergeCommonSubexpressions(graph); });
  return passes;
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_PASSES_HPP_
