// GraphView: who makes and who reads each value, which node waits for which, and in what order they
// can run: a snapshot of a graph as numbers, which inference, passes and plans walk.
#ifndef OPKIT_GRAPH_GRAPH_VIEW_HPP_
#define OPKIT_GRAPH_GRAPH_VIEW_HPP_

#include <span>

#include "opkit/graph/graph.hpp"
#include "opkit/op/op_registry.hpp"

namespace opkit::inline OPKIT_ABI {

// Values and nodes are numbers; nodes have the graph's indices. The graph must outlive the view and
// not change meanwhile.
template <class G>
class BasicGraphView {
 public:
  struct Edge {
    int from;  // runs before
    int to;
    friend bool operator==(const Edge&, const Edge&) = default;
  };
  // A node writes a value that is made elsewhere.
  struct Rewrite {
    int value;
    int node;
  };

  // Checks the structure. Errors: kNotFound for a value that is read and never made, or a control
  // input that is no node; kInvalidArgument for a cycle, shown as a path.
  explicit BasicGraphView(const G& graph) : graph_(&graph) {
    for (const auto& input : graph.inputs()) names_.Add(input.name);
    for (const auto& constant : graph.constants()) names_.Add(constant.name);
    for (const auto& def : graph.nodes())
      for (const std::string& name : def.outputs())
        if (!name.empty()) names_.Add(name);
    producers_.assign(static_cast<size_t>(num_values()), -1);
    is_output_.assign(producers_.size(), 0);
    for (int i = 0; i < graph.num_nodes(); ++i) AddNode(i);
    offsets_.push_back(static_cast<int>(values_.size()));
    for (const auto& rewrite : rewrites_)
      if (!IsInput(rewrite.value) && !IsConstant(rewrite.value) && producer(rewrite.value) < 0)
        Throw(ErrorCode::kNotFound, "node ", ToString(graph.node(rewrite.node)), " rewrites '",
              name(rewrite.value), "', which no input, constant or other node makes");
    for (const std::string& name : graph.outputs()) {
      if (FindValue(name) < 0)
        Throw(ErrorCode::kNotFound, "output '", name,
              "' of the graph is made by no input, constant or node",
              SuggestName(name, names_.names()));
      outputs_.push_back(FindValue(name));
      is_output_[static_cast<size_t>(outputs_.back())] = 1;
    }
    IndexConsumers();
    CollectEdges();
    Sort();
  }

  const G& graph() const { return *graph_; }
  int num_nodes() const { return graph_->num_nodes(); }
  // Inputs of the graph come first, then constants, then what nodes make.
  int num_values() const { return names_.size(); }
  const std::string& name(int value) const { return names_[value]; }
  // -1 when there is none.
  int FindValue(std::string_view name) const { return names_.Find(name); }
  bool IsInput(int value) const { return value < num_inputs(); }
  bool IsConstant(int value) const {
    return value >= num_inputs() && value < num_inputs() + num_constants();
  }
  const Tensor* constant(int value) const {
    if (!IsConstant(value)) return nullptr;
    return &graph_->constants()[static_cast<size_t>(value - num_inputs())].value;
  }
  bool IsOutput(int value) const { return is_output_[static_cast<size_t>(value)] != 0; }
  const std::vector<int>& outputs() const { return outputs_; }

  // Values of a node, -1 where it leaves one out.
  std::span<const int> inputs(int node) const {
    return {values_.data() + offsets_[static_cast<size_t>(node)],
            graph_->node(node).inputs().size()};
  }
  std::span<const int> outputs(int node) const {
    return {
        values_.data() + offsets_[static_cast<size_t>(node)] + graph_->node(node).inputs().size(),
        graph_->node(node).outputs().size()};
  }
  // The node that makes a value; -1 for inputs and constants.
  int producer(int value) const { return producers_[static_cast<size_t>(value)]; }
  // Nodes that read it, each once, by index.
  std::span<const int> consumers(int value) const {
    const auto at = static_cast<size_t>(value);
    return {consumers_.data() + first_consumer_[at],
            static_cast<size_t>(first_consumer_[at + 1] - first_consumer_[at])};
  }
  // True when some node writes a value that is made elsewhere.
  bool IsRewritten(int value) const {
    for (const Rewrite& rewrite : rewrites_)
      if (rewrite.value == value) return true;
    return false;
  }
  const std::vector<Rewrite>& rewrites() const { return rewrites_; }

  // From every node to those that must wait for it: it makes what they read, or reads what they
  // rewrite, or they name it as control input. Sorted, each once.
  const std::vector<Edge>& edges() const { return edges_; }  // by the node they lead to
  // Those that lead to a node, at edges()[first] and behind.
  size_t FirstEdgeTo(int node) const {
    size_t first = 0;
    for (size_t count = edges_.size(); count > 0;) {
      const size_t half = count / 2;
      const bool before = edges_[first + half].to < node;
      first += before ? half + 1 : 0;
      count = before ? count - half - 1 : half;
    }
    return first;
  }
  // Nodes so that each comes after those it waits for; as they were added where that allows it.
  const std::vector<int>& order() const { return order_; }

 private:
  int num_inputs() const { return static_cast<int>(graph_->inputs().size()); }
  int num_constants() const { return static_cast<int>(graph_->constants().size()); }

  void AddNode(int node) {
    const auto& def = graph_->node(node);
    offsets_.push_back(static_cast<int>(values_.size()));
    for (const std::string& name : def.inputs()) {
      const int value = name.empty() ? -1 : FindValue(name);
      if (!name.empty() && value < 0)
        Throw(ErrorCode::kNotFound, "node ", ToString(def), " reads '", name,
              "', which no input, constant or node makes", SuggestName(name, names_.names()));
      values_.push_back(value);
    }
    for (const std::string& name : def.outputs()) {
      const int value = name.empty() ? -1 : FindValue(name);
      values_.push_back(value);
      if (value < 0) continue;
      if (graph_->Producer(name) == node) {
        producers_[static_cast<size_t>(value)] = node;
      } else {
        rewrites_.push_back({value, node});
      }
    }
    const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
    if (!schema) return;
    for (int i : schema->MutatedInputs(def))
      if (i >= 0 && static_cast<size_t>(i) < def.inputs().size() &&
          !def.inputs()[static_cast<size_t>(i)].empty())
        rewrites_.push_back({FindValue(def.inputs()[static_cast<size_t>(i)]), node});
  }

  // Counting sort of (value, node) pairs by value.
  void IndexConsumers() {
    first_consumer_.assign(static_cast<size_t>(num_values()) + 1, 0);
    ForEachUse([&](int value, int) { ++first_consumer_[static_cast<size_t>(value) + 1]; });
    for (size_t v = 1; v < first_consumer_.size(); ++v)
      first_consumer_[v] += first_consumer_[v - 1];
    consumers_.resize(static_cast<size_t>(first_consumer_.back()));
    std::vector<int> next(first_consumer_);
    ForEachUse([&](int value, int node) {
      consumers_[static_cast<size_t>(next[static_cast<size_t>(value)]++)] = node;
    });
  }
  template <class F>
  void ForEachUse(F&& f) const {
    for (int node = 0; node < num_nodes(); ++node) {
      const auto ins = inputs(node);
      for (size_t i = 0; i < ins.size(); ++i) {
        bool seen = ins[i] < 0;
        for (size_t k = 0; k < i && !seen; ++k) seen = ins[k] == ins[i];
        if (!seen) f(ins[i], node);
      }
    }
  }

  template <class Lists = std::vector<std::vector<int>>>
  void CollectEdges() {
    Lists before(static_cast<size_t>(num_nodes()));  // by node
    auto add = [&](int from, int to) {
      if (from >= 0 && from != to) before[static_cast<size_t>(to)].push_back(from);
    };
    NodeNames names;
    for (int node = 0; node < num_nodes(); ++node) {
      for (int value : inputs(node))
        if (value >= 0) add(producer(value), node);
      for (const std::string& name : graph_->node(node).control_inputs()) {
        const int from = FindNode(names, name);
        if (from < 0)
          Throw(ErrorCode::kNotFound, "node ", ToString(graph_->node(node)),
                " has the control input '", name, "', but no node has that name");
        if (from == node) ThrowCycle({node});
        add(from, node);
      }
    }
    // Of a value that is rewritten, every access waits for the last writer before it, and every
    // writer for the readers since then.
    for (const Rewrite& rewrite : rewrites_) {
      if (IsConstant(rewrite.value))
        Throw(ErrorCode::kInvalidArgument, "node ", ToString(graph_->node(rewrite.node)),
              " writes to '", name(rewrite.value),
              "', which is a constant; make it an input of the graph");
      int writer = producer(rewrite.value);
      if (writer > rewrite.node)
        Throw(ErrorCode::kInvalidArgument, "node ", ToString(graph_->node(rewrite.node)),
              " rewrites '", name(rewrite.value), "' and was added before the node that makes it");
      for (const Rewrite& other : rewrites_)
        if (other.value == rewrite.value && other.node < rewrite.node && other.node > writer)
          writer = other.node;
      add(writer, rewrite.node);
      for (int reader : consumers(rewrite.value)) {
        if (reader > rewrite.node) add(rewrite.node, reader);
        const bool reads_this = reader > writer || writer == producer(rewrite.value);
        if (reader < rewrite.node && reads_this) add(reader, rewrite.node);
      }
    }
    for (int node = 0; node < num_nodes(); ++node) {
      auto& list = before[static_cast<size_t>(node)];
      for (size_t i = 1; i < list.size(); ++i)  // insertion sort: the lists are short
        for (size_t k = i; k > 0 && list[k] < list[k - 1]; --k) std::swap(list[k], list[k - 1]);
      for (size_t i = 0; i < list.size(); ++i)
        if (i == 0 || list[i] != list[i - 1]) edges_.push_back({list[i], node});
    }
  }
  // The names of nodes, filled when the first is looked for.
  struct NodeNames {
    NameIndex index;
    std::vector<int> first, second;  // nodes of that name, the second -1 where there is one
  };
  int FindNode(NodeNames& names, const std::string& name) const {
    const bool filled = names.index.size() > 0;
    for (int node = 0; !filled && node < num_nodes(); ++node) {
      const auto number = static_cast<size_t>(names.index.Add(graph_->node(node).name()));
      if (number == names.first.size()) {
        names.first.push_back(node);
        names.second.push_back(-1);
      } else if (names.second[number] < 0) {
        names.second[number] = node;
      }
    }
    const int number = names.index.Find(name);
    if (number < 0) return -1;
    const int found = names.first[static_cast<size_t>(number)];
    const int other = names.second[static_cast<size_t>(number)];
    if (other >= 0)
      Throw(ErrorCode::kInvalidArgument, "a node has the control input '", name,
            "', and two nodes have that name: ", ToString(graph_->node(found)), " and ",
            ToString(graph_->node(other)), "; rename one");
    return found;
  }

  // Kahn's algorithm, always taking the ready node that was added first (a binary heap).
  template <class Lists = std::vector<std::vector<int>>>
  void Sort() {
    bool sorted = true;
    for (const Edge& edge : edges_) sorted &= edge.from < edge.to;
    if (sorted) {
      for (int node = 0; node < num_nodes(); ++node) order_.push_back(node);
      return;
    }
    Lists after(static_cast<size_t>(num_nodes()));
    std::vector<int> waits(static_cast<size_t>(num_nodes()), 0), heap;
    for (const Edge& edge : edges_) {
      after[static_cast<size_t>(edge.from)].push_back(edge.to);
      ++waits[static_cast<size_t>(edge.to)];
    }
    auto push = [&](int node) {
      heap.push_back(node);
      for (size_t at = heap.size() - 1; at > 0 && heap[at] < heap[(at - 1) / 2]; at = (at - 1) / 2)
        std::swap(heap[at], heap[(at - 1) / 2]);
    };
    auto pop = [&] {
      const int top = heap.front();
      heap.front() = heap.back();
      heap.pop_back();
      for (size_t at = 0;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < heap.size(); ++child)
          if (heap[child] < heap[least]) least = child;
        if (least == at) return top;
        std::swap(heap[at], heap[least]);
        at = least;
      }
    };
    for (int node = 0; node < num_nodes(); ++node)
      if (waits[static_cast<size_t>(node)] == 0) push(node);
    while (!heap.empty()) {
      const int node = pop();
      order_.push_back(node);
      for (int next : after[static_cast<size_t>(node)])
        if (--waits[static_cast<size_t>(next)] == 0) push(next);
    }
    if (static_cast<int>(order_.size()) < num_nodes()) ThrowCycle(FindCycle(waits));
  }
  // Every node that still waits has a predecessor that still waits, so going back meets itself.
  std::vector<int> FindCycle(const std::vector<int>& waits) const {
    std::vector<int> before(waits.size(), -1), step(waits.size(), -1), path;
    int node = -1;
    for (const Edge& edge : edges_)
      if (waits[static_cast<size_t>(edge.from)] > 0 && waits[static_cast<size_t>(edge.to)] > 0)
        before[static_cast<size_t>(node = edge.to)] = edge.from;
    while (step[static_cast<size_t>(node)] < 0) {
      step[static_cast<size_t>(node)] = static_cast<int>(path.size());
      path.push_back(node);
      node = before[static_cast<size_t>(node)];
    }
    std::vector<int> cycle;  // in the order the nodes would have to run
    for (size_t i = path.size(); i-- > static_cast<size_t>(step[static_cast<size_t>(node)]);)
      cycle.push_back(path[i]);
    return cycle;
  }
  [[noreturn]] OPKIT_COLD void ThrowCycle(const std::vector<int>& cycle) const {
    std::string path;
    for (int node : cycle) path += ToString(graph_->node(node)) + "  ->  ";
    Throw(ErrorCode::kInvalidArgument, "the graph has a cycle: ", path,
          ToString(graph_->node(cycle.front())));
  }

  const G* graph_;
  NameIndex names_;
  std::vector<int> producers_;         // by value
  std::vector<int> values_, offsets_;  // of nodes, inputs then outputs
  std::vector<int> consumers_, first_consumer_;
  std::vector<int> outputs_;
  std::vector<char> is_output_;  // by value
  std::vector<Rewrite> rewrites_;
  std::vector<Edge> edges_;
  std::vector<int> order_;
};
using GraphView = BasicGraphView<Graph>;

// Every error that can be found without types and shapes: the view's, and what schemas say of the
// nodes (unknown operator with the nearest name, arity, in-place, attributes), with the node.
template <class G = Graph>
void Check(const std::type_identity_t<G>& graph) {
  for (const auto& def : graph.nodes()) {
    const auto& schema = OpRegistry::Global().GetSchema(def.type());
    if (std::string why = schema.Verify(def); !why.empty())
      Throw(ErrorCode::kInvalidArgument, why, "; in node ", ToString(def));
  }
  const BasicGraphView<G> view(graph);
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_GRAPH_VIEW_HPP_
