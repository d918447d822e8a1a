// Executor: runs a plan. Each executor owns the operators, tensors and arenas that a run writes to,
// so that many executors of one plan can run at once.
#ifndef OPKIT_GRAPH_EXECUTOR_HPP_
#define OPKIT_GRAPH_EXECUTOR_HPP_

#include <memory>

#include "opkit/device/event.hpp"
#include "opkit/graph/plan.hpp"
#include "opkit/op/observer.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {
class BoundPlan;
class NodeTimes;  // opkit/graph/tune/node_times.hpp
}  // namespace detail

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// The outputs of a run by name, in the order of the graph's outputs.
//
//   auto out = exec.Run(inputs);
//   out.Get("Y");  out[0];
//   for (const auto& [name, tensor] : out) …
class NamedTensors {
 public:
  // Returns null if there is no tensor of that name.
  const Tensor* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name); }
  // Throws kNotFound, with the nearest name, for an unknown name, and kOutOfRange for a position
  // past the end.
  const Tensor& Get(std::string_view name) const;
  const Tensor& operator[](size_t position) const;
  void Add(const std::string& name, const Tensor& tensor);
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  size_t size() const { return items_.size(); }

 private:
  std::vector<NamedTensor> items_;
};

// Runs once at a time; different executors of one plan may run at once. Executors of a plan of
// several processes may not: a run throws kFailedPrecondition during a run of another executor of
// the plan, and ends both on all processes. The tensors that Run returns belong to the caller:
// later runs write to other memory while a copy of them exists. A run reads a dense input in place
// and copies a strided input first. It writes bound outputs in place. An output may lie in the
// memory of a donated input. Another run with that tensor would read the earlier result: first
// write new data to the tensor, or give another tensor.
//
//   Executor exec(plan);
//   auto out = exec.Run({{"X", x}});
//   out.Get("Y");
//
//   exec.Bind("X", x);                   // for hot loops: nothing is allocated
//   exec.Bind("Y", y);
//   for (…) exec.Run();
//
// Each new set of input shapes is planned once and kept, for up to PlanOptions::max_shapes sets.
class Executor : public detail::Observable<Executor> {
 public:
  // Makes the operators and allocates their memory if the plan knows all shapes. Otherwise the
  // first run and every run with new shapes do so.
  explicit Executor(Plan plan);
  // Cancels a run of RunAsync that is in progress; returns when no operator is running.
  ~Executor();

  // Returns the plan that runs.
  const Plan& plan() const;

  // Runs with these inputs and the bound tensors; another input with a default reads that
  // (Graph::SetDefault). Throws kNotFound for a name that is no input;
  // kInvalidArgument, kTypeMismatch or kUninitialized for a tensor that does not fit the graph's
  // declaration; kInvalidArgument for an input without a tensor; and kFailedPrecondition during
  // another run. Throws kDeadlineExceeded after `timeout`, and kCancelled after Cancel: no further
  // operator starts, and those that run return first. Throws the exception of the operator that
  // failed first.
  NamedTensors Run(const std::vector<NamedTensor>& inputs, Timeout timeout = {});
  NamedTensors Run(std::initializer_list<NamedTensor> inputs, Timeout timeout = {}) {
    return Run(std::vector<NamedTensor>(inputs), timeout);
  }
  // Runs with the inputs in a map of tensors by name.
  template <class Map>
    requires requires { typename Map::mapped_type; }
  NamedTensors Run(const Map& inputs, Timeout timeout = {}) {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : inputs) named.push_back({name, tensor});
    return Run(named, timeout);
  }
  // Runs with the bound tensors.
  void Run(Timeout timeout = {});
  // Starts a run with the bound tensors and returns. The event completes when the run ends; read
  // outputs() then. Throws the errors of Run that are found before an operator runs. The run has no
  // deadline, because no thread waits to enforce it: wait for the event with a timeout, and call
  // Cancel to end the run. If the plan has its own thread pool, a callback of the event must not
  // destroy the plan's last executor.
  Event RunAsync();
  // Cancels the run in progress, from any thread. The run ends with kCancelled: steps that have not
  // begun are skipped. Work that a device still does continues in memory that later runs do not
  // use, except that it may still write to a bound output: bind another tensor for the next run.
  void Cancel();

  // Makes runs read input `name` from this tensor, or write output `name` to it. A
  // default-constructed tensor unbinds. Throws kNotFound for an unknown name; kInvalidArgument,
  // kTypeMismatch or kUninitialized like Run; and kFailedPrecondition during a run.
  void Bind(std::string_view name, Tensor tensor);
  // Returns the outputs of the last run. Throws kFailedPrecondition before the first run, during a
  // run, and after a run that failed.
  NamedTensors outputs() const;
  // Returns one output of the last run. Throws kNotFound for an unknown name, and like outputs().
  const Tensor& output(std::string_view name) const;

  // Returns the operator of a node of plan().graph(); several nodes may share an operator
  // (NodeChoice::computed_by). A run with other input shapes uses another operator, which takes
  // over the observers: an observer that is attached here watches the node. Throws kOutOfRange for
  // a wrong index, and kFailedPrecondition before the first run if shapes are unknown.
  //
  //   auto* time = Observe<TimeObserver>(exec.op(3));
  //   exec.Run({{"X", short_one}});
  //   exec.Run({{"X", long_one}});
  //   time->runs();                              // 2
  //   exec.op(3).DetachObserver(time);
  OperatorBase& op(int node);
  // Explains in which mode (ReplayMode) nodes run, and why.
  std::string ExplainMode() const;

 private:
  friend class detail::NodeTimes;
  // The operators of the last run, converters included. Throws like op().
  detail::BoundPlan& bound();

  class Impl;
  Impl* const impl_;  // owned
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/executor.ipp"
#endif
#endif  // OPKIT_GRAPH_EXECUTOR_HPP_
