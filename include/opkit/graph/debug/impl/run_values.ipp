// RunKeepingValues' definition: attaches to each operator an observer that copies its outputs.
#ifndef OPKIT_GRAPH_DEBUG_IMPL_RUN_VALUES_IPP_
#define OPKIT_GRAPH_DEBUG_IMPL_RUN_VALUES_IPP_

#include <algorithm>
#include <cstring>
#include <map>

#include "opkit/core/layout_registry.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/graph/debug/run_values.hpp"
#include "opkit/op/observers.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the plan's value for the name in an operator's definition; -1 if there is none. An output
// of the plan that is converted afterwards has a suffix in that name: "y@NHWC".
inline int PlanValueOf(const GraphView& view, const std::string& name) {
  const int value = view.FindValue(name);
  const size_t at = name.rfind('@');
  return value >= 0 || at == std::string::npos ? value : view.FindValue(name.substr(0, at));
}

// Values of another run. Overwrites the outputs of nodes of this run with them.
class ForeignValues {
 public:
  ForeignValues(const Plan& plan, const std::vector<NodeValue>& values) : plan_(plan) {
    for (const NodeValue& value : values) {
      const int number = plan_.view().FindValue(value.name);
      if (number >= 0 && !plan_.view().IsRewritten(number)) values_[number] = value.tensor;
    }
  }
  void Write(const std::string& name, const Tensor& to) const {
    const auto found = values_.find(PlanValueOf(plan_.view(), name));
    if (found == values_.end() || found->second.dtype() != to.dtype() ||
        found->second.shape() != to.shape() || !IsHostAccessible(to.device().type) ||
        IsConstant(to) || !to.is_dense())
      return;
    Tensor target = to;  // shares the memory of `to`
    if (IsObject(to.dtype())) return target.CopyFrom(found->second);
    const auto bytes = static_cast<size_t>(to.nbytes());
    if (!to.layout().is_standard()) ConvertLayoutTo(found->second, target);
    // Do not write equal bytes: `to` may be a view of a value that other nodes read at this time.
    else if (bytes > 0 && std::memcmp(to.raw_data(), found->second.raw_data(), bytes) != 0)
      std::memcpy(target.raw_mutable_data(), found->second.raw_data(), bytes);
  }

 private:
  // True if the tensor is in the memory of a constant, which an operator may return as its output.
  bool IsConstant(const Tensor& tensor) const {
    for (const Graph::Constant& constant : plan_.graph().constants())
      if (constant.value.storage() == tensor.storage()) return true;
    return false;
  }

  const Plan plan_;
  std::map<int, Tensor> values_;  // by the value's number in the plan's view
};

// An observer that copies the outputs of one operator after each run.
class OutputKeeper final : public ObserverBase<OperatorBase> {
 public:
  struct Output {
    std::string name;  // the output's name in the operator's definition
    Tensor copy;
  };

  using ObserverBase::ObserverBase;
  void Stop(bool succeeded) override {
    outputs_.clear();
    if (!succeeded) return;
    OperatorBase& op = *subject();
    op.SyncDeviceBarrierForObservers();
    const bool has_event = op.HasAsyncPart() && !op.IsEventDisabled();
    if (has_event && (op.event().IsScheduled() || op.event().exception())) return;
    for (int i = 0; i < op.OutputSize(); ++i) {
      if (!op.HasOutput(i) || !op.OutputIsType<Tensor>(i) || !op.Output(i)->initialized()) continue;
      const std::string& name = op.def().outputs()[Index(i)];
      outputs_.push_back({name, HostCopy(*op.Output(i))});
      if (foreign_) foreign_->Write(name, *op.Output(i));
    }
  }
  std::vector<Output>& outputs() { return outputs_; }
  void SetForeign(const ForeignValues* values) { foreign_ = values; }

 private:
  static Tensor HostCopy(const Tensor& tensor) {
    Tensor here = tensor;
    if (!IsHostAccessible(tensor.device().type)) {
      here = Tensor();
      Copy(tensor, &here);
    }
    return here.layout().is_standard() ? here.Contiguous() : ConvertLayout(here, Layout());
  }

  std::vector<Output> outputs_;
  const ForeignValues* foreign_ = nullptr;
};

// Attaches an OutputKeeper to each operator of an executor; the destructor detaches them.
class OutputKeepers {
 public:
  explicit OutputKeepers(Executor& executor, const ForeignValues* foreign = nullptr)
      : executor_(executor) {
    const Plan& plan = executor.plan();
    for (const int node : plan.view().order()) {
      // Throws kFailedPrecondition before the first run of a plan with unknown shapes.
      OperatorBase& op = executor.op(node);
      if (plan.choice(node).computed_by >= 0) continue;
      keepers_.emplace_back(node, Observe<OutputKeeper>(op));
      keepers_.back().second->SetForeign(foreign);
    }
  }
  OutputKeepers(const OutputKeepers&) = delete;
  ~OutputKeepers() {
    for (const auto& [node, keeper] : keepers_) executor_.op(node).DetachObserver(keeper);
  }
  std::vector<NodeValue> Take() {
    const GraphView& view = executor_.plan().view();
    std::vector<NodeValue> values;
    for (const auto& [node, keeper] : keepers_)
      for (OutputKeeper::Output& output : keeper->outputs()) {
        const int value = PlanValueOf(view, output.name);
        if (value < 0) continue;
        // Other outputs belong to nodes that the same kernel computes.
        const auto own = view.outputs(node);
        const bool is_own = std::find(own.begin(), own.end(), value) != own.end();
        values.push_back(
            {is_own ? node : view.producer(value), view.name(value), std::move(output.copy)});
      }
    return values;
  }

 private:
  Executor& executor_;
  // One keeper for each operator, with the first of the nodes that the operator computes.
  std::vector<std::pair<int, OutputKeeper*>> keepers_;
};

OPKIT_INLINE std::vector<NodeValue> RunNodesOnValues(Executor& executor,
                                                     const std::vector<NamedTensor>& inputs,
                                                     const std::vector<NodeValue>& values) {
  const ForeignValues foreign(executor.plan(), values);
  OutputKeepers keepers(executor, &foreign);
  executor.Run(inputs);
  return keepers.Take();
}

}  // namespace detail

OPKIT_INLINE std::vector<NodeValue> RunKeepingValues(Executor& executor,
                                                     const std::vector<NamedTensor>& inputs) {
  detail::OutputKeepers keepers(executor);
  executor.Run(inputs);
  return keepers.Take();
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_DEBUG_IMPL_RUN_VALUES_IPP_
