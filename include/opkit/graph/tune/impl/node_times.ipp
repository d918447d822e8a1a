// Definitions of NodeTimes.
#ifndef OPKIT_GRAPH_TUNE_IMPL_NODE_TIMES_IPP_
#define OPKIT_GRAPH_TUNE_IMPL_NODE_TIMES_IPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/graph/plan/bound_plan.hpp"
#include "opkit/graph/tune/node_times.hpp"
#include "opkit/op/operator_base.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Adds up the times of an operator's calls.
class NodeTimes::Clock final : public ObserverBase<OperatorBase> {
 public:
  Clock(OperatorBase* op, TimingClock& clock) : ObserverBase(op), clock_(clock) {}
  void Start() override { begin_ = clock_.Now(); }
  void Stop(bool) override {
    if (subject()->HasAsyncPart()) subject()->SyncDeviceBarrierForObservers();
    sum_ += clock_.Now() - begin_;
  }
  int64_t Take() { return std::exchange(sum_, 0); }

 private:
  TimingClock& clock_;
  int64_t begin_ = 0, sum_ = 0;
};

OPKIT_COLD OPKIT_INLINE NodeTimes::NodeTimes(Executor& executor, TimingClock& clock)
    : clock_(clock) {
  BoundPlan& bound = executor.bound();
  Observe(bound.specialization(), bound.nodes());
}
OPKIT_COLD OPKIT_INLINE NodeTimes::~NodeTimes() {
  for (size_t i = 0; i < clocks_.size(); ++i) operators_[i]->DetachObserver(clocks_[i]);
}

OPKIT_COLD OPKIT_INLINE void NodeTimes::Observe(const Specialization& specialization,
                                                BoundNodes& nodes) {
  for (int node = 0; node < specialization.view().num_nodes(); ++node) {
    OperatorBase& op = nodes.op(node);
    auto clock = std::make_unique<Clock>(&op, clock_);
    clocks_.push_back(clock.get());
    operators_.push_back(&op);
    op.AttachObserver(std::move(clock));
    rows_.push_back({&specialization, node, {}});
  }
  for (size_t i = 0; i < nodes.bodies().size(); ++i)
    Observe(*specialization.bodies()[i]->plan, *nodes.bodies()[i]);
}

OPKIT_COLD OPKIT_INLINE void NodeTimes::EndRun(bool keep) {
  for (size_t i = 0; i < rows_.size(); ++i)
    if (const int64_t ns = clocks_[i]->Take(); keep) rows_[i].ns.push_back(static_cast<double>(ns));
}

OPKIT_COLD OPKIT_INLINE std::string WorkKey(const OperatorDef& def,
                                            std::span<const TensorInfo> inputs,
                                            std::span<const TensorInfo> outputs) {
  std::vector<std::string> attributes;
  for (const NamedAttribute& arg : def.args())
    attributes.push_back(StrCat(arg.name, "=", arg.value));
  StableSort(attributes, [](const std::string& a, const std::string& b) { return a < b; });
  std::string key = def.type();
  for (const std::string& attribute : attributes) key += StrCat(" ", attribute);
  const auto add = [&](const char* before, std::span<const TensorInfo> infos) {
    key += before;
    for (const TensorInfo& info : infos)
      key +=
          StrCat(" ", info.constant ? "constant " : "", ToString(info.dtype), ToString(info.shape));
  };
  add(" (", inputs);
  add(") -> (", outputs);
  return key + ")";
}
OPKIT_COLD OPKIT_INLINE std::string WayKey(const Kernel& kernel, Device device,
                                           const KernelConfig& config) {
  const std::string version = OpRegistry::Global().BackendVersion(kernel.backend);
  std::string key = StrCat(kernel.origin.empty() ? "" : StrCat(kernel.origin, ": "), kernel.backend,
                           version.empty() ? "" : StrCat(" ", version), " on ", ToString(device),
                           StrCat(", ", SelectionLayouts(config)));
  if (!config.variant.empty()) key += StrCat(", ", config.variant);
  return key;
}
OPKIT_COLD OPKIT_INLINE std::string ConversionKey(const TensorInfo& value, const ValuePlace& from,
                                                  const ValuePlace& to) {
  const auto text = [](const ValuePlace& place) {
    return StrCat(ToString(place.layout), " on ", ToString(MemoryDevice(place.device)));
  };
  return StrCat("convert ", ToString(value.dtype), ToString(value.shape), " from ", text(from),
                " to ", text(to));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_TUNE_IMPL_NODE_TIMES_IPP_
