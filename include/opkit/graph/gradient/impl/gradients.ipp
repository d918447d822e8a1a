// AddGradients' definition: visits the nodes backwards from the loss and calls their gradient
// makers.
#ifndef OPKIT_GRAPH_GRADIENT_IMPL_GRADIENTS_IPP_
#define OPKIT_GRAPH_GRADIENT_IMPL_GRADIENTS_IPP_

#include <algorithm>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/gradient/gradient_nodes.hpp"
#include "opkit/graph/gradient/gradients.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Does the work of one call of AddGradients.
class GradientBuilder {
 public:
  GradientBuilder(const Graph& graph, const std::string& loss, const std::vector<std::string>& wrt,
                  const GradientOptions& options)
      : graph_(graph),
        view_(graph),
        options_(options),
        types_(InferGraph(view_)),
        nodes_(graph),
        loss_(Find(loss, "the loss")),
        carries_(Index(view_.num_nodes()), 0),
        reached_(Index(view_.num_values()), 0),
        giver_(Index(view_.num_values()), -1),
        gradients_(Index(view_.num_values())) {
    if (wrt.empty())
      Throw(ErrorCode::kInvalidArgument, "AddGradients of '", loss,
            "' needs the name of at least one value to differentiate by");
    for (const std::string& name : wrt) {
      wrt_.push_back(Find(name, "to differentiate by"));
      if (!Differentiable(wrt_.back()))
        Throw(ErrorCode::kTypeMismatch, "cannot differentiate by '", name, "', which is ",
              ToString(types_[wrt_.back()]), "; expected a floating-point value");
    }
  }

  GradientMap Build() {
    AddSeed();
    MarkReached();
    for (size_t i = view_.order().size(); i-- > 0;) Differentiate(view_.order()[i]);
    GradientMap found;
    NameIndex needed;
    for (int wanted : wrt_) {
      const GradientValue& total = found[view_.name(wanted)] = Total(wanted);
      if (total.IsEmpty() && !options_.allow_none) ThrowUnreached(wanted);
      for (const std::string* part : {&total.dense, &total.indices, &total.values})
        needed.Add(*part);
    }
    nodes_.Prune(std::move(needed));
    CheckRewritten();
    CheckTypes();
    return found;
  }
  Graph TakeGraph() { return nodes_.TakeGraph(); }

 private:
  // Returns the value of that name. Throws kNotFound, with the nearest name.
  int Find(const std::string& name, const char* what) const {
    const int value = view_.FindValue(name);
    if (value >= 0) return value;
    Throw(ErrorCode::kNotFound, "the graph has no value '", name, "' (", what, ")",
          SuggestName(name, view_.names()));
  }
  bool HasGradient(int value) const { return !gradients_[value].empty(); }
  bool Differentiable(int value) const {
    const DType dtype = types_[value].dtype;
    return dtype != DType::kBool && !IsInteger(dtype);
  }
  static GradientKind KindOf(const OperatorDef& def) {
    const auto* registration = GradientRegistry::Global().Find(def.type());
    return registration ? registration->kind : GradientKind::kMaker;
  }

  void AddSeed() {
    const TensorInfo& loss = types_[loss_];
    const std::string& name = view_.name(loss_);
    if (loss.dtype != DType::kUndefined && !IsFloatingPoint(loss.dtype))
      Throw(ErrorCode::kTypeMismatch, "the loss '", name, "' is ", ToString(loss),
            "; expected a floating-point value");
    if (options_.seed.empty()) {
      if (loss.dtype == DType::kUndefined || !loss.shape.is_known())
        Throw(ErrorCode::kFailedPrecondition, "the loss '", name, "' is ", ToString(loss),
              ", and its gradient starts from a tensor of ones, which has no ",
              loss.dtype == DType::kUndefined ? "dtype" : "shape",
              " yet; name a value that holds these ones in GradientOptions::seed");
      gradients_[loss_].push_back(nodes_.AddOnes(name, loss.shape.ToShape(), loss.dtype));
    } else {
      AddSeedOf(loss_, options_.seed, "GradientOptions::seed");
    }
    for (const auto& [value, seed_name] : options_.more_seeds)
      AddSeedOf(Find(value, "GradientOptions::more_seeds"), seed_name,
                "GradientOptions::more_seeds");
  }
  void AddSeedOf(int value, const std::string& seed_name, const char* option) {
    const TensorInfo& loss = types_[value];
    const int given = Find(seed_name, option);
    const TensorInfo& seed = types_[given];
    if (view_.IsRewritten(given))
      Throw(ErrorCode::kUnsupported, "the seed '", seed_name,
            "' is rewritten by a node of the graph; name a value that stays as it is");
    const bool dtypes_differ = seed.dtype != DType::kUndefined && loss.dtype != DType::kUndefined &&
                               seed.dtype != loss.dtype;
    if (dtypes_differ || !SymbolicShape::Merge(seed.shape, loss.shape))
      Throw(ErrorCode::kInvalidArgument, "the seed '", seed_name, "' is ", ToString(seed),
            ", but the loss '", view_.name(value), "' is ", ToString(loss),
            "; both must have the same dtype and shape");
    gradients_[value].push_back(seed_name);
  }

  // Marks the values that depend on the wanted values through nodes that have gradients.
  void MarkReached() {
    for (int value : wrt_) reached_[value] = 1;
    for (int node : view_.order()) {
      bool reached = false;
      for (int value : view_.inputs(node)) reached |= value >= 0 && reached_[value];
      if (!reached || KindOf(graph_.node(node)) == GradientKind::kNone) continue;
      carries_[node] = 1;
      const auto mark = [&](int value) {
        if (value >= 0 && Differentiable(value)) reached_[value] = 1;
      };
      for (int value : view_.outputs(node)) mark(value);
      for (const auto& rewrite : RewritesOf(node)) mark(rewrite.value);
    }
  }
  std::span<const GraphView::Rewrite> RewritesOf(int node) const {
    const auto [first, end] = std::equal_range(
        view_.rewrites().begin(), view_.rewrites().end(), GraphView::Rewrite{-1, node},
        [](const auto& a, const auto& b) { return a.node < b.node; });
    return {first, end};
  }

  void Differentiate(int node) {
    const OperatorDef& def = graph_.node(node);
    for (const auto& rewrite : RewritesOf(node))
      if (HasGradient(rewrite.value))
        Throw(ErrorCode::kUnsupported, "node ", ToString(def), " rewrites '",
              view_.name(rewrite.value), "', and the gradient of '", view_.name(loss_),
              "' would flow through that value; make the node write a new value instead");
    if (!carries_[node]) return;
    std::vector<GradientValue> g_output;
    bool flows = false;
    try {
      for (int value : view_.outputs(node)) {
        g_output.push_back(value < 0 ? GradientValue() : Total(value));
        flows |= !g_output.back().IsEmpty();
      }
      if (!flows) return;
      GradientOpsMeta meta = GetGradientForOp(def, g_output, nodes_.names());
      nodes_.Add(node, meta);
      const auto inputs = view_.inputs(node);
      for (size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i] >= 0 && reached_[inputs[i]]) AddGradient(inputs[i], node, meta.g_input[i]);
    } catch (...) {
      RethrowInContext(
          StrCat("in the gradient of node ", ToString(def), ", on the path ", PathThrough(node)));
    }
  }
  void AddGradient(int value, int node, const GradientValue& gradient) {
    if (gradient.IsEmpty()) return;
    for (const std::string* part : {&gradient.dense, &gradient.indices, &gradient.values}) {
      if (part->empty()) continue;
      if (!nodes_.graph().HasValue(*part))
        Throw(ErrorCode::kInvalidArgument, "its gradient maker names '", *part,
              "' as the gradient of '", view_.name(value), "', but makes no such value");
      if (const int shared = view_.FindValue(*part); shared >= 0 && view_.IsRewritten(shared))
        Throw(ErrorCode::kUnsupported, "the gradient of '", view_.name(value), "' is '", *part,
              "' itself, which a node of the graph rewrites; let that node write another value");
    }
    auto& list = gradients_[value];
    if (list.empty()) giver_[value] = node;
    list.push_back(gradient);
    if (gradient.IsDense()) made_.push_back({value, node, gradient.dense});
  }

  // Returns the gradient of a value. If it has several, adds their sum to the graph.
  GradientValue Total(int value) {
    auto& list = gradients_[value];
    if (list.empty()) return {};
    if (list.size() > 1) list.assign(1, nodes_.Sum(view_.name(value), list, options_.sum_operator));
    return list.front();
  }
  // Throws if the new graph is not well-formed, or if the dtype or shape of a gradient contradicts
  // that of its value.
  void CheckTypes() const {
    const GraphView view(nodes_.graph());
    const GraphTypes types = InferGraph(view);
    for (const Made& made : made_) {
      const int gradient = view.FindValue(made.gradient);
      const std::string& name = view_.name(made.value);
      const int value = view.FindValue(name);
      if (gradient < 0 || value < 0) continue;  // pruned
      const TensorInfo &expected = types[value], &found = types[gradient];
      const bool dtypes_differ = expected.dtype != DType::kUndefined &&
                                 found.dtype != DType::kUndefined && expected.dtype != found.dtype;
      if (dtypes_differ || !SymbolicShape::Merge(expected.shape, found.shape))
        Throw(ErrorCode::kInvalidArgument, "the gradient of '", name, "' is '", made.gradient,
              "', which is ", ToString(found), ", but '", name, "' is ", ToString(expected),
              "; both must have the same dtype and shape: see the gradient maker of ",
              graph_.node(made.node).type(), ", for node ", ToString(graph_.node(made.node)));
    }
  }
  // Gradient nodes run after all other nodes. So a gradient node must not read a value that changes
  // after the node whose gradient it computes: throws if a later node rewrites it.
  void CheckRewritten() const {
    IndexedVector<int> last(gradients_.size(), -1);  // by value: the last node that rewrites it
    for (const auto& rewrite : view_.rewrites()) last[rewrite.value] = rewrite.node;
    for (size_t i = 0; i < nodes_.origins().size(); ++i) {
      const int origin = nodes_.origins()[i];
      const OperatorDef& op = nodes_.graph().node(nodes_.num_before() + static_cast<int>(i));
      for (const std::string& input : op.inputs()) {
        const int value = view_.FindValue(input);
        const int node = value < 0 ? -1 : last[value];
        if (node > origin)
          Throw(ErrorCode::kUnsupported, "gradient node ", ToString(op), " needs the '", input,
                "' that node ", ToString(graph_.node(origin)), " read, but node ",
                ToString(graph_.node(node)),
                " rewrites it later; make that node write a new value");
      }
    }
  }

  // Returns "'x' -> 'a' -> 'loss'": a path through the node from a wanted value to the loss.
  OPKIT_COLD std::string PathThrough(int node) const {
    std::vector<int> path;
    const auto first = [](std::span<const int> values, auto&& fits) {
      for (int value : values)
        if (value >= 0 && fits(value)) return value;
      return -1;
    };
    for (int at = node; at >= 0;) {
      const int next = first(view_.inputs(at), [&](int value) { return reached_[value]; });
      if (next < 0) break;
      path.insert(path.begin(), next);
      const bool wanted = std::find(wrt_.begin(), wrt_.end(), next) != wrt_.end();
      at = wanted ? -1 : view_.producer(next);
    }
    for (int at = node; at >= 0;) {
      const int next = first(view_.outputs(at), [&](int value) { return HasGradient(value); });
      if (next < 0) break;
      path.push_back(next);
      at = next == loss_ ? -1 : giver_[next];
    }
    constexpr size_t kShown = 5;  // values at either end
    std::string text;
    for (size_t i = 0; i < path.size(); ++i) {
      if (path.size() > 2 * kShown && i == kShown) {
        text += " -> ...";
        i = path.size() - kShown;
      }
      text += StrCat(i ? " -> '" : "'", view_.name(path[i]), "'");
    }
    return text;
  }

  // Throws kInvalidArgument for a wanted value without a gradient, with the probable reason.
  [[noreturn]] OPKIT_COLD void ThrowUnreached(int value) const {
    IndexedVector<char> after(reached_.size(), 0), before(reached_.size(), 0);
    after[value] = before[loss_] = 1;
    const auto any = [](const IndexedVector<char>& marks, std::span<const int> values) {
      return std::ranges::any_of(values, [&](int v) { return v >= 0 && marks[v]; });
    };
    const auto mark = [](IndexedVector<char>& marks, std::span<const int> values) {
      for (int v : values)
        if (v >= 0) marks[v] = 1;
    };
    for (int node : view_.order())
      if (any(after, view_.inputs(node))) mark(after, view_.outputs(node));
    for (size_t i = view_.order().size(); i-- > 0;)
      if (const int node = view_.order()[i]; any(before, view_.outputs(node)))
        mark(before, view_.inputs(node));
    std::string why = after[loss_] ? "the operators on the way give it none"
                                   : "no path of nodes leads from it to the loss";
    for (int node : view_.order()) {
      if (!any(after, view_.inputs(node)) || !any(before, view_.outputs(node))) continue;
      const OperatorDef& def = graph_.node(node);
      if (KindOf(def) != GradientKind::kNone) continue;
      why = StrCat("NO_GRADIENT(", def.type(), ") stops it at node ", ToString(def));
      break;
    }
    Throw(ErrorCode::kInvalidArgument, "no gradient of '", view_.name(loss_), "' flows to '",
          view_.name(value), "': ", why,
          "; leave it out, or set GradientOptions::allow_none to get an empty gradient");
  }

  const Graph& graph_;
  const GraphView view_;
  const GradientOptions& options_;
  const GraphTypes types_;
  GradientNodes nodes_;
  const int loss_;
  std::vector<int> wrt_;
  // The gradient that the maker of `node` gave for `value`.
  struct Made {
    int value, node;
    std::string gradient;
  };
  std::vector<Made> made_;       // dense gradients, before they are summed
  IndexedVector<char> carries_;  // by node: 1 if gradients flow through it
  IndexedVector<char> reached_;  // by value: 1 if it depends on a wanted value
  IndexedVector<int> giver_;     // by value: the node whose gradient maker gave its first gradient
  IndexedVector<std::vector<GradientValue>> gradients_;  // by value: the gradients to sum up
};

}  // namespace detail

OPKIT_INLINE GradientMap AddGradients(Graph& graph, const std::string& loss,
                                      const std::vector<std::string>& wrt,
                                      const GradientOptions& options) {
  const detail::RegistryUse use;
  detail::UseGradientsOfGraphSubgraphs();
  detail::GradientBuilder builder(graph, loss, wrt, options);
  GradientMap found = builder.Build();
  graph = builder.TakeGraph();
  return found;
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_GRADIENT_IMPL_GRADIENTS_IPP_
