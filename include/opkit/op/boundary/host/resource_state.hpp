// The state behind the calls of a function operator: its memory, the operators that it invoked, and
// runs that end after their function. Only the definitions of host_table.hpp and function_body.hpp
// use it.
#ifndef OPKIT_OP_BOUNDARY_HOST_RESOURCE_STATE_HPP_
#define OPKIT_OP_BOUNDARY_HOST_RESOURCE_STATE_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/function/op_tensor.hpp"
#include "opkit/op/invoke.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A tensor with a view of it, whose address does not change.
struct TensorSlot : RefCounted {
  Tensor tensor;
  Shape shape;
  Dims strides;
  OpTensor view;

  // Sets the view to the present state of `viewed`.
  void Bind(const Tensor& viewed, OpReq req) {
    const bool changed = view.dtype() != viewed.dtype() || shape != viewed.shape();
    if (changed) shape = viewed.shape();
    if (changed || !dense || !viewed.is_dense()) strides = viewed.strides();
    dense = viewed.is_dense();
    view = OpTensor(viewed.raw_mutable_data(), viewed.dtype(), shape.data(), strides.data(),
                    shape.rank(), viewed.device(), req);
    view.Bind(&viewed);
  }
  bool dense = false;
};

// An operator that this operator invokes, kept between calls. Each stream has its own instance,
// because work of two streams may run at the same time.
struct InvokedOperator : RefCounted {
  InvokedOperator(const std::string& name, const std::vector<int>& inputs,
                  const Arguments& arguments, const InvokeOptions& options, const void* its_stream)
      : op(name),
        args(arguments),
        present(inputs),
        stream(its_stream),
        resolved(name, inputs, arguments, options) {}
  std::string op;
  Arguments args;
  std::vector<int> present;
  const void* stream;
  ResolvedOperator resolved;
  // True while a thread of the pool runs the operator. Release by that thread, acquire by the next
  // thread that uses it.
  std::atomic<bool> busy{false};
};

// An operator that runs in parallel to its caller.
struct PendingInvoke : RefCounted {
  ThreadPool& pool = ThreadPool::Current();
  Latch done{1};
  std::exception_ptr failure;  // written before the latch opens
  bool failure_taken = false;  // a Wait of the caller has thrown the failure

  void Wait() {
    if (!done.done()) pool.Wait(done);
  }
};

// Adds `term` to `target`, element by element; both are dense.
inline void AddTensor(const Tensor& target, const Tensor& term) {
  const DType dtype = target.dtype();
  auto add = [&]<class T>(std::type_identity<T>, int64_t count) {
    auto* to = static_cast<T*>(target.raw_mutable_data());
    const auto* from = static_cast<const T*>(term.raw_data());
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(to[i] + from[i]);
  };
  if (dtype == DType::kComplex64) {
    add(std::type_identity<float>{}, 2 * target.numel());
  } else if (dtype == DType::kComplex128) {
    add(std::type_identity<double>{}, 2 * target.numel());
  } else {
    DispatchDType<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, float16,
                  bfloat16, float, double>(
        dtype, [&]<class T>() { add(std::type_identity<T>{}, target.numel()); });
  }
}
// A result to be added to the elements of the output.
struct Addition {
  Tensor target, term;
};

// The memory that a function has allocated. Work may use the memory after the function has
// returned.
struct RunMemory {
  std::vector<Storage> memory;
  std::vector<IntrusivePtr<TensorSlot>> temporaries;
  std::vector<Addition> additions;

  bool empty() const { return memory.empty() && temporaries.empty() && additions.empty(); }
};

// Makes the outputs whose shapes inference cannot determine.
class OutputMaker {
 public:
  virtual const OpTensor& MakeOutput(size_t output, const Shape& shape, DType dtype) = 0;

 protected:
  ~OutputMaker() = default;
};

// A prepared graph that the program runs for a function operator. `key` is the address of the
// opkit_graph.
class HostedGraph : public RefCounted {
 public:
  explicit HostedGraph(const opkit_graph* graph) : key(graph) {}
  virtual void Run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) = 0;
  const opkit_graph* const key;
};
// Prepares a graph.
OPKIT_IMAGE_LOCAL inline constinit Hook<IntrusivePtr<HostedGraph>(const opkit_graph* graph)>
    g_make_hosted_graph{"run_graph", "opkit/partition.hpp"};

struct ResourceState;
// A run that continues after its function has returned. Ends once two things have happened: the
// function has returned, and the completion handle was used.
struct DeferredRun : RefCounted {
  IntrusivePtr<EventState> event;
  RefCountedList kept;  // views, the operator's state, the library
  // The library's count of deferred runs, for messages (hence relaxed); null for the program's
  // operators.
  std::atomic<int64_t>* count = nullptr;
  ResourceState* state = nullptr;  // state of the run's operator; `kept` keeps it alive
  RunMemory memory;
  std::string op;
  std::exception_ptr failure;  // the failure of the completion, if any
  std::atomic<bool> arrived_once{false};

  // Called twice: when the function returns, and by the completion handle. The second call ends the
  // run. Acquire and release: the second caller reads the first caller's writes.
  void Arrive() {
    if (arrived_once.exchange(true, std::memory_order_acq_rel)) End();
  }

 private:
  inline void End();
};

// The state of an operator that the host table's functions use during a call.
struct ResourceState {
  Device device;
  std::string op;
  bool asynchronous = false;
  void* context = nullptr;
  void (*launch)(void* context, UniqueFunction<void()> work) = nullptr;
  Mutex mutex;  // guards `memory`, `deferred_run` and the data of `deferred_run`
  RunMemory memory;
  bool used = false;  // this run has memory, pending operators or a completion handle
  // A deferred run between the return of its function and its completion: memory allocated in this
  // time belongs to it.
  DeferredRun* deferred_run = nullptr;
  std::vector<IntrusivePtr<InvokedOperator>> invoked;
  std::vector<IntrusivePtr<HostedGraph>> graphs;
  // Operators that this run has started; they use its tensors.
  std::vector<IntrusivePtr<PendingInvoke>> pending;
  RefCountedList kept_by_work;          // kept until launched work has run: a library's code
  OutputMaker* output_maker = nullptr;  // set for an operator with allocatesOutputs()
  OperatorBase* deferrable = nullptr;   // set for an operator with async(), while its forward runs
  IntrusivePtr<DeferredRun> deferred;

  // Calls `add` with the memory of the current run.
  template <class Add>
  void Keep(Add add) {
    MutexLock lock(mutex);
    if (deferred_run) return add(deferred_run->memory);
    used = true;
    add(memory);
  }
  // Throws kFailedPrecondition after the function has returned. For services that only the function
  // may use.
  void RequireFunction(const char* what) {
    MutexLock lock(mutex);
    if (deferred_run)
      Throw(ErrorCode::kFailedPrecondition, what, " in operator ", op,
            " after forward has returned; call it before");
  }
  // Waits for all operators that run in parallel to the function; returns the first failure that no
  // Wait has thrown.
  std::exception_ptr AwaitPending() noexcept {
    std::exception_ptr failure;
    for (const auto& one : pending) {
      one->Wait();
      if (!one->failure_taken && !failure) failure = one->failure;
    }
    pending.clear();
    return failure;
  }
  // Moves the function's memory to `run`; called when the function has returned.
  void HandOver(DeferredRun* run) {
    MutexLock lock(mutex);
    run->memory = std::exchange(memory, {});
    run->state = this;
    used = false;
    deferred_run = run;
  }
  void Ended(const DeferredRun* run) {
    MutexLock lock(mutex);
    if (deferred_run == run) deferred_run = nullptr;
  }
};

inline void DeferredRun::End() {
  try {
    if (!failure)
      for (const Addition& sum : memory.additions) AddTensor(sum.target, sum.term);
  } catch (...) {
    failure = std::current_exception();
  }
  if (state) state->Ended(this);
  memory = {};
  if (count) count->fetch_sub(1, std::memory_order_relaxed);
  // Cleared before the event completes: a thread that waits for the event may run the operator
  // again, or unload its library.
  kept.clear();
  event->Complete(std::move(failure));  // no effect for a cancelled run
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_HOST_RESOURCE_STATE_HPP_
