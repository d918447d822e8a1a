// Runs of a mixed graph with random tensors of the caller's: with strides, shared, donated, bound.
// Each gives what maps of vectors give, and changes no tensor that is not its own to change.
#ifndef OPKIT_TESTS_STRESS_MIXED_RUNS_HPP_
#define OPKIT_TESTS_STRESS_MIXED_RUNS_HPP_

#include "graph_programs.hpp"
#include "mixed_graphs.hpp"

namespace mixed_programs {

using namespace opkit;
using graph_programs::Done;
using mixed_graphs::Held;
using mixed_graphs::Scope;

inline void RequireSame(const Tensor& tensor, const Held& expected, const std::string& what) {
  const Held found = mixed_graphs::HeldBy(tensor);
  Require(found.shape == expected.shape && found.elements == expected.elements,
          what + " is another one than that of plain loops");
}

// A graph, and what its inputs hold.
class MixedCase {
 public:
  explicit MixedCase(Random& random) {
    const bool simple = random.OneIn(4);
    options_.nodes = 4 << random.Below(3);
    options_.depth = random.Below(4);
    options_.rewrites = random.OneIn(2);
    options_.streams = !simple && random.OneIn(4);
    options_.there = !simple && random.OneIn(4);
    options_.layouts = random.OneIn(2);
    const int inputs = random.Between(1, 4), conditions = random.Below(4);
    const int64_t counts[] = {random.Below(3), random.Between(2, 8), 30};
    count_ = counts[random.Below(3)];
    Random same = random;  // the same graph of open and of known shapes
    mixed_graphs::GraphMaker maker(random, options_), again(same, options_);
    open_ = maker.Make(inputs, conditions, Sym("N"));
    known_ = again.Make(inputs, conditions, count_);
    rewritten_ = maker.rewritten();
    for (const int64_t count : counts) {
      Scope& scope = inputs_.emplace_back();
      for (int i = 0; i < inputs; ++i)
        scope[StrCat("x", i)] = {{count, 3}, graph_programs::RandomValues(random, 3 * count)};
      for (int i = 0; i < conditions; ++i) scope[StrCat("c", i)] = {{}, {random.Below(2)}};
    }
    for (const Graph* graph : {&open_, &known_}) AddConstants(*graph);
  }

  const mixed_graphs::MixedOptions& options() const { return options_; }
  const Graph& open() const { return open_; }
  const Graph& known() const { return known_; }
  // Inputs of several shapes; those of known() are among them.
  const std::vector<Scope>& inputs() const { return inputs_; }
  bool Fits(const Scope& inputs) const { return inputs.at("x0").shape[0] == count_; }
  bool IsRewritten(const std::string& input) const {
    return std::ranges::find(rewritten_, input) != rewritten_.end();
  }
  void CheckConstants() const {
    for (const auto& [constant, held] : constants_)
      RequireSame(constant.value, held, "constant " + constant.name);
  }

 private:
  // Adds the constants of the graph and of its bodies.
  void AddConstants(const Graph& graph) {
    for (const Graph::Constant& constant : graph.constants())
      constants_.push_back({constant, mixed_graphs::HeldBy(constant.value)});
    for (const OperatorDef& node : graph.nodes())
      for (const detail::NamedSubgraph& body : node.subgraphs())
        AddConstants(*GraphOf(*body.graph));
  }

  mixed_graphs::MixedOptions options_;
  Graph open_, known_;
  int64_t count_ = 0;
  std::vector<std::string> rewritten_;
  std::vector<Scope> inputs_;
  std::vector<std::pair<Graph::Constant, Held>> constants_;
};

// How a call ended, as Done; or refused, since no value that is rewritten is copied to where a node
// must read it.
template <class F>
bool DoneOrRefused(const MixedCase& mixed, F&& call) {
  bool ran = false;
  Done(
      [&] {
        try {
          call();
          ran = true;
        } catch (const Error& error) {
          if (error.code() != ErrorCode::kUnsupported || !mixed.options().rewrites ||
              std::string(error.what()).find("rewritten in place") == std::string::npos)
            throw;
        }
      },
      false);
  return ran;
}

// One executor, and what it has returned.
class MixedRuns {
 public:
  MixedRuns(Random& random, const MixedCase& mixed, const Graph& graph, const Plan& plan,
            const PlanOptions& options)
      : random_(random),
        mixed_(mixed),
        graph_(graph),
        executor_(plan),
        donated_(options.memory.donated_inputs),
        is_on_host_(options.devices.empty() && !mixed.options().there) {}

  void Run(const Scope& inputs) {
    scope_ = inputs;
    given_.clear();
    bound_.clear();
    for (const Graph::Input& input : graph_.inputs()) Give(input.name);
    Evaluate(graph_, scope_);
    for (const std::string& output : graph_.outputs())
      if (random_.OneIn(2)) BindOutput(output);
    const bool ran = DoneOrRefused(mixed_, [&] { RunOnce(); });
    CheckGiven(ran);
    CheckHeld();
    mixed_.CheckConstants();
    for (const NamedTensor& bound : bound_) executor_.Bind(bound.name, {});
    for (const Given& given : given_) executor_.Bind(given.name, {});
  }

 private:
  struct Given {
    std::string name;
    Tensor tensor, whole;  // `whole`: the elements around, where the tensor has strides
    Held around;
    bool is_donated = false, is_rewritten = false;
    const Held* bound_over = nullptr;
  };
  struct Kept {
    std::string name;
    Tensor tensor;
    Held expected;
  };

  void Give(const std::string& name) {
    Given& given = given_.emplace_back();
    given.name = name;
    given.is_donated = std::ranges::find(donated_, name) != donated_.end();
    given.is_rewritten = mixed_.IsRewritten(name);
    const Held& held = scope_.at(name);
    if (held.shape.empty()) {
      given.tensor = Tensor::Scalar(held.elements[0] != 0);
      return;
    }
    const int64_t rows = held.shape[0];
    Tensor dense = Tensor::From<int64_t>({rows, 3}, held.elements);
    given.tensor = dense;
    if (given.is_rewritten) return;
    if (random_.OneIn(4)) {  // columns 1 to 3 of 5
      given.whole = Tensor({rows, 5}, DType::kInt64);
      for (int64_t i = 0; i < 5 * rows; ++i) given.whole.mutable_data<int64_t>()[i] = -i;
      given.tensor = given.whole.Slice(1, 1, 4);
      for (int64_t i = 0; i < 3 * rows; ++i)
        given.whole.mutable_data<int64_t>()[i / 3 * 5 + 1 + i % 3] =
            held.elements[detail::Index(i)];
    } else if (random_.OneIn(4)) {
      given.whole = dense.Permute({1, 0}).Contiguous();
      given.tensor = given.whole.Permute({1, 0});
    } else if (random_.OneIn(4) && !given.is_donated) {
      for (const Given& other : given_)  // the tensor of another input
        if (&other != &given && !other.is_rewritten && !other.is_donated &&
            other.tensor.dtype() == DType::kInt64) {
          given.tensor = other.tensor;
          scope_[name] = Held(scope_.at(other.name));
        }
    }
    if (given.whole.initialized()) given.around = mixed_graphs::HeldBy(given.whole);
  }
  void BindOutput(const std::string& name) {
    // A value that a pass has made an input or a constant cannot be bound.
    const Plan& plan = executor_.plan();
    if (plan.graph().Producer(name) < 0) return;
    const Held& expected = scope_.at(name);
    // The device of an output follows from the shapes.
    if (&graph_ != &mixed_.known() && !is_on_host_) return;
    const Device device = is_on_host_ ? Device{} : MemoryDevice(plan.type(name).device);
    Tensor tensor(Shape(expected.shape), DType::kInt64, device);
    for (Given& given : given_)
      if (device == Device{} && random_.OneIn(2) && given.tensor.dtype() == DType::kInt64 &&
          given.tensor.is_dense() && given.tensor.shape() == tensor.shape() &&
          MayBeWritten(given)) {
        tensor = given.tensor;
        for (Given& other : given_)
          if (other.tensor.SharesMemoryWith(tensor)) other.bound_over = &expected;
        break;
      }
    bound_.push_back({name, tensor});
    executor_.Bind(name, tensor);
  }
  // No input that shares the memory is an output too, which is the caller's tensor itself.
  bool MayBeWritten(const Given& given) const {
    for (const Given& other : given_)
      if (other.tensor.SharesMemoryWith(given.tensor) &&
          (other.bound_over || other.is_rewritten || IsReturned(other.name)))
        return false;
    return true;
  }
  bool IsReturned(const std::string& input) const {
    const Graph& graph = executor_.plan().graph();
    return graph_.IsOutput(input) || graph.IsOutput(input);
  }

  void RunOnce() {
    std::vector<NamedTensor> named;
    for (const Given& given : given_) named.push_back({given.name, given.tensor});
    const int how = random_.Below(3);
    if (how == 0) return CheckOutputs(executor_.Run(named));
    for (const NamedTensor& one : named) executor_.Bind(one.name, one.tensor);
    if (how == 1)
      executor_.RunAsync().Finish();
    else
      executor_.Run();
    CheckOutputs(executor_.outputs());
    bool is_same = bound_.empty();
    for (const Given& given : given_) is_same &= !given.is_rewritten && !given.is_donated;
    if (!is_same || random_.OneIn(2)) return;
    executor_.Run();
    CheckOutputs(executor_.outputs());
  }
  void CheckOutputs(const NamedTensors& outputs) {
    for (const auto& [name, tensor] : outputs) {
      RequireSame(tensor, scope_.at(name), "output " + name);
      bool is_callers = false;
      for (const Given& given : given_)
        is_callers |= given.tensor.SharesMemoryWith(tensor) && !given.is_donated;
      for (const NamedTensor& bound : bound_) {
        if (bound.name == name)
          RequireSame(bound.tensor, scope_.at(name), "what is bound to output " + name);
        is_callers |= bound.tensor.SharesMemoryWith(tensor);
      }
      if (!is_callers && random_.OneIn(2)) kept_.push_back({name, tensor, scope_.at(name)});
    }
  }
  void CheckGiven(bool ran) const {
    for (const Given& given : given_) {
      if (given.bound_over) {
        if (ran) RequireSame(given.tensor, *given.bound_over, "what is bound over " + given.name);
      } else if (given.whole.initialized() && !given.tensor.is_dense()) {
        RequireSame(given.whole, given.around, "input " + given.name + " with strides");
      } else if (given.is_rewritten) {
        if (ran) RequireSame(given.tensor, scope_.at(given.name), "rewritten input " + given.name);
      } else if (!given.is_donated) {
        RequireSame(given.tensor, scope_.at(given.name), "input " + given.name);
      }
    }
  }
  void CheckHeld() {
    for (const Kept& kept : kept_)
      RequireSame(kept.tensor, kept.expected, "output " + kept.name + " of an earlier run");
    while (kept_.size() > 8) kept_.erase(kept_.begin());
  }

  Random& random_;
  const MixedCase& mixed_;
  const Graph& graph_;
  Executor executor_;
  const std::vector<std::string>& donated_;
  const bool is_on_host_;
  Scope scope_;
  std::vector<Given> given_;
  std::vector<NamedTensor> bound_;
  std::vector<Kept> kept_;
};

}  // namespace mixed_programs

#endif  // OPKIT_TESTS_STRESS_MIXED_RUNS_HPP_
