// Random graphs of everything at once: nested If and Subgraph, captures that are rewritten, views,
// constants, unread and left-out outputs, outputs that are inputs; and what they compute, by maps
// of vectors, node by node.
#ifndef OPKIT_TESTS_STRESS_MIXED_GRAPHS_HPP_
#define OPKIT_TESTS_STRESS_MIXED_GRAPHS_HPP_

#include <map>

#include "mixed_ops.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/ops/control_flow.hpp"
#include "opkit/ops/identity.hpp"
#include "opkit/ops/subgraph.hpp"

namespace mixed_graphs {

using namespace opkit;

// The shape of a value: [N, 3] as inputs have it; [3, N]; [2, 3] as constants have it.
enum Form { kPlain, kTurned, kSmall };

struct Value {
  std::string name;
  Form form = kPlain;
  bool is_constant = false;
  bool is_viewed = false;  // it shares memory with another value, by an operator that says so
};

struct MixedOptions {
  int nodes = 12;
  int depth = 2;          // of bodies
  bool rewrites = false;  // values are rewritten, in bodies too
  bool streams = false;   // nodes on streams of the CPU
  bool there = false;     // nodes that name the device
  bool layouts = false;   // nodes that name layouts
};

// Makes a graph and, by itself, the bodies of its nodes.
class GraphMaker {
 public:
  GraphMaker(Random& random, const MixedOptions& options) : random_(random), options_(options) {}

  // `rows`: the extent N of the inputs; empty: open.
  Graph Make(int inputs, int conditions, Dim rows) {
    for (int i = 0; i < inputs; ++i) {
      graph_.AddInput(StrCat("x", i), DType::kInt64, {rows, 3});
      values_.push_back({StrCat("x", i)});
    }
    for (int i = 0; i < conditions; ++i) {
      graph_.AddInput(StrCat("c", i), DType::kBool, Shape{});
      conditions_.push_back(StrCat("c", i));
    }
    Fill();
    const int outputs = random_.Between(1, 5);
    for (int i = 0; i < outputs; ++i) AddOutput(values_[Any()].name);
    for (const Value& value : values_)
      if (value.is_viewed && graph_.Producer(value.name) >= 0 && random_.OneIn(3))
        AddOutput(value.name);
    AddOutput(values_.back().name);
    return std::move(graph_);
  }
  // A body that reads these values and has outputs of these forms.
  Graph MakeBody(std::vector<Value> captured, std::vector<std::string> conditions,
                 const std::vector<Form>& outputs) {
    values_ = std::move(captured);
    conditions_ = std::move(conditions);
    for (Value& value : values_) {
      value.is_viewed |= value.is_constant;  // it is not rewritten
      value.is_constant = false;
      graph_.AddInput(value.name, DType::kUndefined, {});
    }
    for (const std::string& name : conditions_) graph_.AddInput(name, DType::kBool, Shape{});
    Fill();
    for (const Form form : outputs) {
      std::vector<std::string> possible;
      for (const Value& value : values_)
        if (value.form == form && !graph_.IsOutput(value.name)) possible.push_back(value.name);
      const std::string found =
          possible.empty() || random_.OneIn(3) ? Made(form) : possible[Pick(possible)];
      graph_.AddOutput(found);
    }
    return std::move(graph_);
  }
  // Inputs that a node rewrites, in a body or here.
  const std::vector<std::string>& rewritten() const { return rewritten_; }

 private:
  template <class List>
  size_t Pick(const List& list) {
    return detail::Index(random_.Below(static_cast<int>(list.size())));
  }
  // Rather a late one.
  size_t Any() {
    const size_t count = values_.size();
    return random_.OneIn(2) ? Pick(values_) : count - 1 - std::min(count - 1, Pick(values_) / 3);
  }
  // Bodies have names of the graph around them too.
  std::string Fresh(const char* prefix = "v") {
    std::string name = StrCat(prefix, count_++);
    while (graph_.HasValue(name)) name = StrCat(prefix, count_++);
    return name;
  }
  void AddOutput(const std::string& name) {
    if (!graph_.IsOutput(name)) graph_.AddOutput(name);
  }
  int64_t Salt() { return random_.Below(1000); }

  void Fill() {
    for (int i = random_.Below(3); i > 0; --i) AddConstant();
    for (int i = random_.Between(1, options_.nodes); i > 0; --i) AddNode();
  }
  void AddConstant() {
    std::vector<int64_t> elements(6);
    for (int64_t& element : elements) element = static_cast<int64_t>(random_.Next());
    const std::string name = Fresh("w");
    graph_.AddConstant(name, Tensor::From<int64_t>({2, 3}, elements));
    values_.push_back({name, kSmall, true, true});
  }
  void AddNode() {
    const int kind = random_.Below(12);
    if (kind == 0 && options_.depth > 0) return AddIf();
    if (kind == 1 && options_.depth > 0) return random_.OneIn(2) ? AddIf() : AddSubgraph();
    const size_t viewed = random_.OneIn(2) ? Any() : size_t{0};
    if (kind == 2) return AddView(random_.OneIn(3) ? "Identity" : "MixedView", viewed);
    if (kind == 3) return AddTurn(viewed);
    if (kind <= 5 && options_.rewrites && AddRewrite()) return;
    AddMixed(kind == 6 ? "MixedSplit" : "MixedSum", Any());
  }
  // A value of the form, made by a node.
  std::string Made(Form form) {
    for (size_t i = 0; i < values_.size(); ++i)
      if (values_[i].form == form) return AddMixed("MixedSum", i), values_.back().name;
    if (form == kSmall) return AddConstant(), Made(form);
    for (size_t i = 0; i < values_.size(); ++i)
      if (values_[i].form == (form == kPlain ? kTurned : kPlain))
        return AddTurn(i), values_.back().name;
    Require(false, "a body has neither a value nor one that is turned");
    return {};
  }

  void Finish(OperatorDef def) {
    def.Name(StrCat("n", nodes_++));
    if (nodes_ > 1 && random_.OneIn(8)) def.ControlInput(StrCat("n", random_.Below(nodes_ - 1)));
    graph_.AddNode(std::move(def));
  }
  void AddReads(OperatorDef& def, const std::string& but) {
    for (int more = random_.Below(4); more > 0; --more) {
      const std::string& name = values_[Any()].name;
      if (name != but) def.Input(name);
    }
  }
  void AddMixed(const char* type, size_t first) {
    OperatorDef def(type);
    const Form form = values_[first].form;
    def.Input(values_[first].name).Arg("salt", Salt());
    AddReads(def, "");
    static constexpr const char* kLayouts[] = {"standard", "A", "B", "Described"};
    if (options_.layouts)
      for (const char* which : {"a", "b", "y"})
        if (!random_.OneIn(3)) def.Arg(which, kLayouts[random_.Below(4)]);
    if (random_.OneIn(4)) def.Backends(random_.OneIn(2) ? "strided" : "layouts");
    if (options_.streams && random_.OneIn(4)) def.Device(DeviceType::kCPUStream);
    if (options_.there && random_.OneIn(4)) def.Device(mixed_ops::kThere);
    for (int o = 0; o < (def.type() == "MixedSplit" ? 2 : 1); ++o) {
      const bool left_out = o == 1 && random_.OneIn(4);
      def.Output(left_out ? "" : Fresh());
      if (!left_out) values_.push_back({def.outputs().back(), form});
    }
    Finish(std::move(def));
  }
  void AddView(const char* type, size_t of) {
    OperatorDef def(type, {values_[of].name}, {Fresh()});
    if (def.type() == "MixedView") values_[of].is_viewed = true;
    values_.push_back({def.outputs()[0], values_[of].form, false, def.type() == "MixedView"});
    Finish(std::move(def));
  }
  void AddTurn(size_t of) {
    if (values_[of].form == kSmall) return AddView("MixedView", of);
    const Form form = values_[of].form == kPlain ? kTurned : kPlain;
    OperatorDef def("MixedTurn", {values_[of].name}, {Fresh()});
    values_[of].is_viewed = true;
    values_.push_back({def.outputs()[0], form, false, true});
    Finish(std::move(def));
  }
  bool AddRewrite() {
    const size_t of = Any();
    if (values_[of].is_viewed) return false;
    const std::string name = values_[of].name;
    OperatorDef def("MixedAdd", {name}, {name}, {{"salt", Salt()}});
    AddReads(def, name);
    Rewritten(name);
    Finish(std::move(def));
    return true;
  }
  void Rewritten(const std::string& name) {
    if (graph_.IsInput(name) && !Contains(rewritten_, name)) rewritten_.push_back(name);
  }

  // Values for the bodies of one node, by the names that they have there.
  struct Captures {
    std::vector<std::string> outer, conditions;
    std::vector<Value> inner;
  };
  Captures Captured(bool under_own_names) {
    Captures out;
    for (int i = random_.Between(1, 4); i > 0; --i) {
      const Value& value = values_[Any()];
      if (Contains(out.outer, value.name)) continue;
      out.outer.push_back(value.name);
      out.inner.push_back(value);
      if (!under_own_names) out.inner.back().name = StrCat("a", out.inner.size());
    }
    const bool has_large =
        std::ranges::any_of(out.inner, [](const Value& value) { return value.form != kSmall; });
    for (size_t i = 0; !has_large; ++i)
      if (values_[i].form != kSmall) {
        out.outer.push_back(values_[i].name);
        out.inner.push_back(values_[i]);
        if (!under_own_names) out.inner.back().name = "large";
        break;
      }
    for (const std::string& name : conditions_)
      if (random_.OneIn(2)) out.conditions.push_back(name);
    return out;
  }
  std::vector<Form> Forms() {
    std::vector<Form> forms;
    for (int i = random_.Between(1, 3); i > 0; --i)
      forms.push_back(random_.OneIn(4) ? static_cast<Form>(random_.Below(3)) : kPlain);
    return forms;
  }
  // A body of these captures; those that it rewrites are rewritten here. `views`: the outputs that
  // share memory with another value.
  Graph Body(const Captures& captures, const std::vector<Form>& forms, std::vector<char>& views) {
    MixedOptions options = options_;
    --options.depth;
    options.nodes = std::max(1, options.nodes / 2);
    GraphMaker maker(random_, options);
    Graph body = maker.MakeBody(captures.inner, captures.conditions, forms);
    for (size_t i = 0; i < captures.inner.size(); ++i) {
      if (Contains(maker.rewritten(), captures.inner[i].name)) Rewritten(captures.outer[i]);
      Find(captures.outer[i]).is_viewed |= maker.values_[i].is_viewed;
    }
    for (size_t o = 0; o < forms.size(); ++o) views[o] |= maker.Find(body.outputs()[o]).is_viewed;
    return body;
  }
  Value& Find(const std::string& name) { return *std::ranges::find(values_, name, &Value::name); }
  void AddOutputs(OperatorDef& def, const std::vector<Form>& forms,
                  const std::vector<char>& views) {
    for (size_t o = 0; o < forms.size(); ++o) {
      def.Output(Fresh());
      values_.push_back({def.outputs().back(), forms[o], false, views[o] != 0});
    }
  }
  void AddIf() {
    if (conditions_.empty()) return AddSubgraph();
    const Captures captures = Captured(random_.OneIn(2));
    OperatorDef def("If");
    def.Input(conditions_[Pick(conditions_)]);
    std::vector<std::string> names;
    for (const Value& value : captures.inner) names.push_back(value.name);
    names.insert(names.end(), captures.conditions.begin(), captures.conditions.end());
    def.Inputs(captures.outer).Inputs(captures.conditions).Arg("captures", names);
    const std::vector<Form> forms = Forms();
    std::vector<char> views(forms.size(), 0);
    for (const char* branch : {"then_branch", "else_branch"})
      def.Subgraph(branch, MakeSubgraph(Body(captures, forms, views)));
    AddOutputs(def, forms, views);
    Finish(std::move(def));
  }
  void AddSubgraph() {
    const Captures captures = Captured(random_.OneIn(2));
    OperatorDef def("Subgraph");
    def.Inputs(captures.outer).Inputs(captures.conditions);
    const std::vector<Form> forms = Forms();
    std::vector<char> views(forms.size(), 0);
    def.Subgraph("body", MakeSubgraph(Body(captures, forms, views)));
    AddOutputs(def, forms, views);
    Finish(std::move(def));
  }

  static bool Contains(const std::vector<std::string>& list, const std::string& name) {
    return std::ranges::find(list, name) != list.end();
  }

  Random& random_;
  const MixedOptions options_;
  Graph graph_;
  std::vector<Value> values_;
  std::vector<std::string> conditions_, rewritten_;
  int count_ = 0, nodes_ = 0;
};

// The shape and elements of a value; a condition has one element.
struct Held {
  std::vector<int64_t> shape, elements;
};
using Scope = std::map<std::string, Held>;

inline Held HeldBy(const Tensor& tensor) {
  if (tensor.device().type == mixed_ops::kThere) {
    Tensor here;
    Copy(tensor, &here);
    return HeldBy(here);
  }
  Held out;
  for (const int64_t extent : tensor.shape()) out.shape.push_back(extent);
  if (tensor.dtype() == DType::kBool)
    out.elements = {*tensor.data<bool>()};
  else
    out.elements = tensor.ToVector<int64_t>();
  return out;
}

// Runs the nodes in the order in which they were added, in a scope that has the inputs.
inline void Evaluate(const Graph& graph, Scope& scope);
inline void EvaluateBody(const Graph& body, const OperatorDef& node,
                         const std::vector<std::string>& outer, Scope& scope) {
  Scope inside;
  for (size_t i = 0; i < body.inputs().size(); ++i)
    inside[body.inputs()[i].name] = scope.at(outer[i]);
  Evaluate(body, inside);
  for (size_t i = 0; i < body.inputs().size(); ++i)  // those that it rewrites
    scope[outer[i]] = inside.at(body.inputs()[i].name);
  for (size_t o = 0; o < node.outputs().size(); ++o)
    scope[node.outputs()[o]] = inside.at(body.outputs()[o]);
}
inline void EvaluateNode(const OperatorDef& node, Scope& scope) {
  const std::vector<std::string>& inputs = node.inputs();
  const auto first = [&]() -> const Held& { return scope.at(inputs[0]); };
  if (node.type() == "If") {
    const Graph& body = *SubgraphOf(node, first().elements[0] ? "then_branch" : "else_branch");
    const auto names = node.args().Get<std::vector<std::string>>("captures");
    std::vector<std::string> outer;
    for (const Graph::Input& input : body.inputs())
      outer.push_back(
          inputs[1 + detail::Index(std::ranges::find(names, input.name) - names.begin())]);
    return EvaluateBody(body, node, outer, scope);
  }
  if (node.type() == "Subgraph")
    return EvaluateBody(*SubgraphOf(node, "body"), node, inputs, scope);
  if (node.type() == "MixedView" || node.type() == "Identity") {
    scope[node.outputs()[0]] = Held(first());
    return;
  }
  if (node.type() == "MixedTurn") {
    const Held& x = first();
    const int64_t rows = x.shape[0], columns = x.shape[1];
    Held y{{columns, rows}, {}};
    for (int64_t i = 0; i < rows * columns; ++i)
      y.elements.push_back(x.elements[detail::Index(i % rows * columns + i / rows)]);
    scope[node.outputs()[0]] = std::move(y);
    return;
  }
  std::vector<const std::vector<int64_t>*> in;
  for (const std::string& name : inputs) in.push_back(&scope.at(name).elements);
  const auto salt = node.args().Get<int64_t>("salt", 0);
  std::vector<Held> made;
  for (int o = 0; o < static_cast<int>(node.outputs().size()); ++o)
    made.push_back(
        {first().shape,
         mixed_ops::Mixed(std::ssize(*in[0]), salt, o, in.size(), [&](size_t k, int64_t i) {
           return in[k]->empty() ? 0 : (*in[k])[detail::Index(i) % in[k]->size()];
         })});
  for (size_t o = 0; o < made.size(); ++o)
    if (!node.outputs()[o].empty()) scope[node.outputs()[o]] = std::move(made[o]);
}
inline void Evaluate(const Graph& graph, Scope& scope) {
  for (const Graph::Constant& constant : graph.constants())
    scope[constant.name] = HeldBy(constant.value);
  for (const OperatorDef& node : graph.nodes()) EvaluateNode(node, scope);
}

}  // namespace mixed_graphs

#endif  // OPKIT_TESTS_STRESS_MIXED_GRAPHS_HPP_
