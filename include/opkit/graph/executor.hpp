// Executor: runs a plan. It owns the memory that a run writes to: operators, tensors, an arena; so
// that many executors of one plan run at once.
#ifndef OPKIT_GRAPH_EXECUTOR_HPP_
#define OPKIT_GRAPH_EXECUTOR_HPP_

#include <memory>

#include "opkit/device/event.hpp"
#include "opkit/graph/plan.hpp"
#include "opkit/op/observer.hpp"

namespace opkit::inline OPKIT_ABI {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// Tensors by name, in the order of the graph's outputs.
//
//   auto out = exec.Run(inputs);
//   out["Y"];  out[0];
//   for (const auto& [name, tensor] : out) …
class NamedTensors {
 public:
  // Null where there is none of that name.
  const Tensor* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name); }
  // Errors: kNotFound that names the nearest; kOutOfRange for a position.
  const Tensor& at(std::string_view name) const;
  const Tensor& operator[](std::string_view name) const { return at(name); }
  const Tensor& operator[](size_t position) const;
  void Add(const std::string& name, const Tensor& tensor);
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  size_t size() const { return items_.size(); }

 private:
  std::vector<NamedTensor> items_;
};

// One run at a time; different executors of one plan may run at once. The tensors that Run returns
// are the caller's: later runs write to other memory while somebody holds them. A dense input is
// read where it is, one with strides is copied first; a bound output is written where it is. An
// output that lies in a donated input is that input's memory: a run with the same tensor reads what
// the run before left in it, and writes there again, so give it anew or write to it first.
//
//   Executor exec(plan);
//   auto out = exec.Run({{"X", x}});
//   out.at("Y");
//
//   exec.Bind("X", x);                   // for hot loops: nothing is allocated
//   exec.Bind("Y", y);
//   for (…) exec.Run();
//
// Shapes other than those of the last run are planned once and kept (PlanOptions::max_shapes).
class Executor : public Observable<Executor> {
 public:
  explicit Executor(Plan plan);
  // Cancels a run in flight, and returns when no operator is running.
  ~Executor();

  const Plan& plan() const;

  // Runs with these inputs, besides those that are bound. Errors: kNotFound for a name that is no
  // input; kInvalidArgument, kTypeMismatch for a tensor that is not what the graph says, or an
  // input that nothing was given for; kDeadlineExceeded after `timeout` and kCancelled, when
  // operators that run have returned and no other is called; the exception of the operator that
  // failed first.
  NamedTensors Run(const std::vector<NamedTensor>& inputs, Timeout timeout = {});
  NamedTensors Run(std::initializer_list<NamedTensor> inputs, Timeout timeout = {}) {
    return Run(std::vector<NamedTensor>(inputs), timeout);
  }
  // The same with a map of tensors by name.
  template <class Map>
    requires requires { typename Map::mapped_type; }
  NamedTensors Run(const Map& inputs, Timeout timeout = {}) {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : inputs) named.push_back({name, tensor});
    return Run(named, timeout);
  }
  // Runs with the bound tensors.
  void Run(Timeout timeout = {});
  // Starts a run with the bound tensors and returns. The event completes with it; outputs() are
  // there then. Errors: as Run for what is wrong before anything has run. There is no deadline,
  // which nobody would watch: the event can be waited for with one, and Cancel ends the run. Where
  // the plan has a pool of its own, a callback of the event must not end the last executor of the
  // plan.
  Event RunAsync();
  // From any thread. A run in progress ends with kCancelled: steps that have not begun are skipped,
  // work that a device still does goes on in memory of its own.
  void Cancel();

  // The tensor that runs read input `name` from, or write output `name` to, from now on; a
  // default-constructed one unbinds. Errors: kNotFound; kInvalidArgument, kTypeMismatch as for Run.
  void Bind(std::string_view name, Tensor tensor);
  // Of the last run. Error (kFailedPrecondition) before one, during one, and after one that failed.
  NamedTensors outputs() const;
  // One of them. Errors: kNotFound, and as outputs().
  const Tensor& output(std::string_view name) const;

  // The operator of a node of plan().graph(), which may be that of other nodes too (NodeChoice's
  // computed_by). It is another one after a run with other input
  // shapes, and has the observers of the one before: what is attached here watches the node. Error
  // (kFailedPrecondition) before the first run of a plan whose shapes are not known.
  //
  //   auto* time = Observe<TimeObserver>(exec.op(3));
  //   exec.Run({{"X", short_one}});
  //   exec.Run({{"X", long_one}});
  //   time->runs();                              // 2
  //   exec.op(3).DetachObserver(time);
  OperatorBase& op(int node);
  // How nodes are run, and why.
  std::string ExplainMode() const;

 private:
  class Impl;
  Impl* const impl_;  // its own
};

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/executor.ipp"
#endif
#endif  // OPKIT_GRAPH_EXECUTOR_HPP_
