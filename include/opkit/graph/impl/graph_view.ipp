// GraphView's definitions: numbers the values, finds the edges between nodes and sorts the nodes
// topologically.
#ifndef OPKIT_GRAPH_IMPL_GRAPH_VIEW_IPP_
#define OPKIT_GRAPH_IMPL_GRAPH_VIEW_IPP_

#include <algorithm>
#include <numeric>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_view.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

OPKIT_INLINE void ForEachRewritten(const OperatorDef& def,
                                   FunctionRef<void(const std::string&)> visit) {
  for (const std::string& output : def.outputs())
    if (!output.empty() && Reads(def, output)) visit(output);
  const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
  if (!schema) return;
  for (const int i : schema->MutatedInputs(def))
    if (i >= 0 && Index(i) < def.inputs().size() && !def.inputs()[Index(i)].empty())
      visit(def.inputs()[Index(i)]);
}

OPKIT_COLD OPKIT_INLINE std::string PathText(const std::vector<int>& path,
                                             FunctionRef<const OperatorDef&(int)> def_of) {
  std::string text;
  for (const int node : path) text += (text.empty() ? "" : "  ->  ") + ToString(def_of(node));
  return text;
}

[[noreturn]] OPKIT_COLD inline void ThrowCycle(const Graph& graph, const std::vector<int>& cycle) {
  Throw(ErrorCode::kInvalidArgument, "the graph has a cycle: ",
        PathText(cycle, [&](int node) -> const OperatorDef& { return graph.node(node); }));
}

// Collects the edges of a view. The view's values, consumers and rewrites must be complete.
class EdgeCollector {
 public:
  explicit EdgeCollector(const GraphView& view) : view_(view) {}

  std::vector<GraphView::Edge> Collect() && {
    for (int node = 0; node < view_.num_nodes(); ++node) {
      for (int value : view_.inputs(node))
        if (value >= 0) Add(view_.producer(value), node);
      for (const std::string& name : Node(node).control_inputs()) AddControl(name, node);
    }
    for (const GraphView::Rewrite& rewrite : view_.rewrites()) AddRewrite(rewrite);
    StableSort(edges_, [](const auto& a, const auto& b) {
      return a.to != b.to ? a.to < b.to : a.from < b.from;
    });
    edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
    return std::move(edges_);
  }

 private:
  const OperatorDef& Node(int node) const { return view_.graph().node(node); }
  void Add(int from, int to) {
    if (from >= 0 && from != to) edges_.push_back({from, to});
  }
  void AddControl(const std::string& name, int node) {
    if (named_.empty())
      for (int i = 0; i < view_.num_nodes(); ++i) named_[Node(i).name()].push_back(i);
    const std::vector<int>* const found = named_.Find(name);
    if (!found)
      Throw(ErrorCode::kNotFound, "node ", ToString(Node(node)), " has the control input '", name,
            "', but no node has that name");
    const std::vector<int>& named = *found;
    if (named.size() > 1)
      Throw(ErrorCode::kInvalidArgument, "node ", ToString(Node(node)), " has the control input '",
            name, "', but two nodes have that name: ", ToString(Node(named[0])), " and ",
            ToString(Node(named[1])), "; rename one");
    if (named[0] == node) ThrowCycle(view_.graph(), {node, node});
    Add(named[0], node);
  }
  // Every read or write of a rewritten value waits for the last writer before it. A writer also
  // waits for the readers since that writer.
  void AddRewrite(const GraphView::Rewrite& rewrite) {
    const int value = rewrite.value, made = view_.producer(value);
    if (view_.IsConstant(value))
      Throw(ErrorCode::kInvalidArgument, "node ", ToString(Node(rewrite.node)), " writes to '",
            view_.name(value), "', which is a constant; make it an input of the graph");
    if (made > rewrite.node)
      Throw(ErrorCode::kInvalidArgument, "node ", ToString(Node(rewrite.node)), " rewrites '",
            view_.name(value), "' and was added before the node that makes it");
    int writer = made;
    for (const GraphView::Rewrite& other : view_.rewrites())
      if (other.value == value && other.node < rewrite.node)
        writer = (std::max)(writer, other.node);
    Add(writer, rewrite.node);
    for (int reader : view_.consumers(value)) {
      if (reader > rewrite.node) Add(rewrite.node, reader);
      const bool reads_this = reader > writer || writer == made;
      if (reader < rewrite.node && reads_this) Add(reader, rewrite.node);
    }
  }

  const GraphView& view_;
  std::vector<GraphView::Edge> edges_;
  NameTable<std::vector<int>> named_;  // nodes by name; filled for the first control input
};

// Returns a cycle among the nodes that still wait, as SortByEdges passes it on. Every such node has
// a predecessor that still waits, so a walk backwards must visit a node again.
OPKIT_COLD inline std::vector<int> FindCycle(const std::vector<GraphView::Edge>& edges,
                                             const IndexedVector<int>& waits) {
  IndexedVector<int> before(waits.size(), -1), path;
  IndexedVector<char> met(waits.size(), 0);
  int node = -1;
  for (const GraphView::Edge& edge : edges)
    if (waits[edge.from] > 0 && waits[edge.to] > 0) before[node = edge.to] = edge.from;
  for (; !std::exchange(met[node], 1); node = before[node]) path.push_back(node);
  path.push_back(node);
  return {path.rbegin(), std::make_reverse_iterator(std::find(path.begin(), path.end(), node))};
}

OPKIT_INLINE std::vector<int> SortByEdges(int nodes, const std::vector<GraphView::Edge>& edges,
                                          std::span<const int> keys,
                                          FunctionRef<void(const std::vector<int>& cycle)> refuse) {
  const FlatLists after(Index(nodes), [&](auto add) {
    for (const GraphView::Edge& edge : edges) add(edge.from, edge.to);
  });
  IndexedVector<int> waits(Index(nodes), 0), order, ready;
  for (const GraphView::Edge& edge : edges) ++waits[edge.to];
  const auto later = [&](int a, int b) {
    return keys.empty() ? a > b : keys[Index(a)] > keys[Index(b)];
  };
  const auto push_ready = [&](int node) {  // `ready` is a heap with the next node on top
    if (waits[node] > 0) return;
    ready.push_back(node);
    std::push_heap(ready.begin(), ready.end(), later);
  };
  for (int node = 0; node < nodes; ++node) push_ready(node);
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), later);
    order.push_back(ready.back());
    ready.pop_back();
    for (const int next : after.of(order.back())) {
      --waits[next];
      push_ready(next);
    }
  }
  if (order.size() < waits.size()) refuse(FindCycle(edges, waits));
  return order;
}

inline std::vector<int> SortNodes(const GraphView& view) {
  if (std::ranges::all_of(view.edges(), [](const auto& edge) { return edge.from < edge.to; })) {
    std::vector<int> order(Index(view.num_nodes()));
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  return SortByEdges(view.num_nodes(), view.edges(), {},
                     [&](const std::vector<int>& cycle) { ThrowCycle(view.graph(), cycle); });
}

}  // namespace detail

OPKIT_INLINE GraphView::GraphView(const Graph& graph) : graph_(&graph) {
  for (const Graph::Input& input : graph.inputs()) names_.Add(input.name);
  for (const Graph::Constant& constant : graph.constants()) names_.Add(constant.name);
  for (const OperatorDef& def : graph.nodes())
    for (const std::string& name : def.outputs())
      if (!name.empty()) names_.Add(name);
  producers_.assign(detail::Index(num_values()), -1);
  is_output_.assign(producers_.size(), 0);
  is_rewritten_.assign(producers_.size(), 0);
  for (int i = 0; i < graph.num_nodes(); ++i) AddNode(i);
  offsets_.push_back(static_cast<int>(values_.size()));
  for (const Rewrite& rewrite : rewrites_)
    if (!IsInput(rewrite.value) && !IsConstant(rewrite.value) && producer(rewrite.value) < 0)
      Throw(ErrorCode::kNotFound, "node ", ToString(graph.node(rewrite.node)), " rewrites '",
            name(rewrite.value), "', which no input, constant or other node makes");
  for (const std::string& name : graph.outputs()) {
    if (FindValue(name) < 0)
      Throw(ErrorCode::kNotFound, "no input, constant or node makes output '", name,
            "' of the graph", SuggestName(name, names_.names()));
    outputs_.push_back(FindValue(name));
    is_output_[outputs_.back()] = 1;
  }
  IndexConsumers();
  edges_ = detail::EdgeCollector(*this).Collect();
  order_ = detail::SortNodes(*this);
}

OPKIT_INLINE size_t GraphView::FirstEdgeTo(int node) const {
  const auto first = std::partition_point(edges_.begin(), edges_.end(),
                                          [=](const Edge& edge) { return edge.to < node; });
  return detail::Index(first - edges_.begin());
}

OPKIT_INLINE void GraphView::AddNode(int node) {
  const OperatorDef& def = graph_->node(node);
  offsets_.push_back(static_cast<int>(values_.size()));
  for (const std::string& name : def.inputs()) {
    const int value = name.empty() ? -1 : FindValue(name);
    if (!name.empty() && value < 0)
      Throw(ErrorCode::kNotFound, "node ", ToString(def), " reads '", name,
            "', which no input, constant or node makes", SuggestName(name, names_.names()));
    values_.push_back(value);
  }
  const auto add_rewrite = [&](const std::string& name) {
    rewrites_.push_back({FindValue(name), node});
    is_rewritten_[rewrites_.back().value] = 1;
  };
  for (const std::string& name : def.outputs()) {
    values_.push_back(name.empty() ? -1 : FindValue(name));
    if (name.empty()) continue;
    if (graph_->Producer(name) == node)
      producers_[values_.back()] = node;
    else if (!detail::Reads(def, name))  // ReplaceUses has renamed the input of a rewriting node
      add_rewrite(name);
  }
  detail::ForEachRewritten(def, add_rewrite);
}

OPKIT_INLINE void GraphView::IndexConsumers() {
  consumers_ = detail::FlatLists(producers_.size(), [&](auto add) {
    for (int node = num_nodes() - 1; node >= 0; --node) {
      const std::span<const int> ins = inputs(node);
      for (auto value = ins.begin(); value != ins.end(); ++value)
        if (*value >= 0 && std::find(ins.begin(), value, *value) == value) add(*value, node);
    }
  });
}

OPKIT_INLINE void Check(const Graph& graph, UnknownOperators unknown) {
  for (const Graph::Constant& constant : graph.constants())
    if (!constant.value.initialized())
      Throw(
          ErrorCode::kUninitialized, "constant '", constant.name,
          "' has no data any more: ReleaseConstant, or a plan with release_constants, dropped it");
  for (const OperatorDef& def : graph.nodes()) {
    if (unknown == UnknownOperators::kAllowed && !OpRegistry::Global().FindSchema(def.type()))
      continue;
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
    if (std::string why = schema.Verify(def); !why.empty())
      Throw(ErrorCode::kInvalidArgument, why, "; in node ", ToString(def));
  }
  const GraphView view(graph);
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_GRAPH_VIEW_IPP_
