// PassList's definitions, and the default list of passes.
#ifndef OPKIT_GRAPH_IMPL_PASSES_IPP_
#define OPKIT_GRAPH_IMPL_PASSES_IPP_

#include "opkit/graph/passes.hpp"
#include "opkit/graph/passes/standard_passes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE PassList& PassList::Remove(std::string_view name) {
  passes_.erase(Find(name));
  return *this;
}

OPKIT_INLINE std::vector<std::string> PassList::names() const {
  std::vector<std::string> names;
  for (const auto& known : passes_) names.push_back(known->name);
  return names;
}

OPKIT_INLINE PassList::Entries::const_iterator PassList::Find(std::string_view name) const {
  for (auto pass = passes_.begin(); pass != passes_.end(); ++pass)
    if ((*pass)->name == name) return pass;
  Throw(ErrorCode::kNotFound, "the list has no pass '", name, "'", SuggestName(name, names()));
}

OPKIT_INLINE PassList& PassList::Insert(Entries::const_iterator place, std::string name,
                                        Pass pass) {
  if (name.empty() || !pass)
    Throw(ErrorCode::kInvalidArgument, "pass '", name, "' needs a name and a function");
  for (const auto& known : passes_)
    if (known->name == name)
      Throw(ErrorCode::kAlreadyExists, "the list has a pass '", name,
            "' already; give this one another name");
  auto entry = detail::MakeIntrusive<Entry>();
  entry->name = std::move(name);
  entry->run = std::move(pass);
  passes_.insert(place, std::move(entry));
  return *this;
}

OPKIT_INLINE Graph PassList::Run(Graph graph, Watch watch, UnknownOperators unknown) const {
  Check(graph, unknown);
  for (const auto& pass : passes_) {
    Graph before;
    if (watch) before = graph;
    const std::vector<std::string> outputs = graph.outputs();
    try {
      graph = pass->run(std::move(graph));
      Check(graph, unknown);
      for (const std::string& output : outputs)
        if (!graph.IsOutput(output))
          Throw(ErrorCode::kInvalidArgument, "the pass removed output '", output,
                "' of the graph; a pass must keep every output");
    } catch (...) {
      detail::RethrowInContext("in pass '" + pass->name + "'");
    }
    if (watch) watch(pass->name, before, graph);
  }
  return graph;
}

OPKIT_INLINE PassList DefaultPasses(FoldOptions options) {
  PassList passes;
  const auto fold = [options](const Graph& graph) { return FoldConstants(graph, options); };
  passes.Add("remove_dead_nodes", RemoveDeadNodes);
  if (detail::g_merge_quantized_nodes)
    passes.Add("merge_quantized_nodes",
               [](const Graph& graph) { return detail::g_merge_quantized_nodes(graph); });
  passes.Add("fold_constants", fold);
  if (detail::g_compute_half_in_float32)
    passes.Add("compute_half_in_float32",
               [](const Graph& graph) { return detail::g_compute_half_in_float32(graph); });
  if (detail::g_merge_hard_swish)
    passes.Add("merge_hard_swish",
               [](const Graph& graph) { return detail::g_merge_hard_swish(graph); });
  if (detail::g_fold_batch_normalization)
    passes.Add("fold_batch_normalization",
               [](const Graph& graph) { return detail::g_fold_batch_normalization(graph); });
  return passes.Add("merge_common_subexpressions", MergeCommonSubexpressions);
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_PASSES_IPP_
