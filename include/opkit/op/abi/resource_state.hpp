// The state behind the calls of a function operator: memory it was given, operators it invoked, and
// runs that end after their function. Read by the definitions of host_table.hpp and
// function_body.hpp alone.
#ifndef OPKIT_OP_ABI_RESOURCE_STATE_HPP_
#define OPKIT_OP_ABI_RESOURCE_STATE_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/abi/op_tensor.hpp"
#include "opkit/op/invoke.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A tensor with a view of it that stays in place.
struct TensorSlot : RefCounted {
  Tensor tensor;
  Shape shape;
  Dims strides;
  OpTensor view;

  // Views `viewed` as it is now.
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

// An operator that this operator calls, kept from call to call. Each stream has its own, since the
// work of two may run at once.
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
  // While a thread of the pool runs it. Release by that thread, acquire by the next that takes it.
  std::atomic<bool> busy{false};
};

// An operator that runs beside its caller.
struct PendingInvoke : RefCounted {
  ThreadPool& pool = ThreadPool::Current();
  Latch done{1};
  std::exception_ptr failure;  // before the latch opens
  bool told = false;           // the caller has waited for it

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
// A result that is to be added to the elements of the output.
struct Addition {
  Tensor target, term;
};

// Memory that the function was given, and that may be in use after it has returned.
struct RunMemory {
  std::vector<Storage> memory;
  std::vector<IntrusivePtr<TensorSlot>> temporaries;
  std::vector<Addition> additions;

  bool empty() const { return memory.empty() && temporaries.empty() && additions.empty(); }
  void Clear() {
    memory.clear();
    temporaries.clear();
    additions.clear();
  }
};

// Makes the outputs of an operator that inference leaves open.
class OutputMaker {
 public:
  virtual const OpTensor& MakeOutput(size_t output, const Shape& shape, DType dtype) = 0;

 protected:
  ~OutputMaker() = default;
};

// A graph that an operator of functions has its program run, made ready. `key` is its address.
class HostedGraph : public RefCounted {
 public:
  explicit HostedGraph(const opkit_graph* graph) : key(graph) {}
  virtual void Run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) = 0;
  const opkit_graph* const key;
};
// Makes a graph ready.
OPKIT_IMAGE_LOCAL inline constinit Hook<IntrusivePtr<HostedGraph>(const opkit_graph* graph)>
    g_make_hosted_graph{"run_graph", "opkit/partition.hpp"};

struct ResourceState;
// A run that goes on after its function has returned. Ends once both the function has returned and
// its completion was signalled.
struct DeferredRun : RefCounted {
  IntrusivePtr<EventState> event;
  RefCountedList kept;  // views, the operator's state, the library
  // Of such runs, the library's, for messages (so relaxed); null in the program itself.
  std::atomic<int64_t>* count = nullptr;
  ResourceState* state = nullptr;  // of its operator, which `kept` keeps
  RunMemory memory;
  std::string op;
  std::exception_ptr failure;  // why it was completed with a failure
  std::atomic<bool> half{false};

  // Called once by the function's end and once by the completion. Acquire and release: the second
  // caller reads what the first wrote.
  void Arrive() {
    if (half.exchange(true, std::memory_order_acq_rel)) End();
  }

 private:
  inline void End();
};

// The state of an operator that the table's functions work on in a call of it.
struct ResourceState {
  Device device;
  std::string op;
  bool asynchronous = false;
  void* context = nullptr;
  void (*launch)(void* context, UniqueFunction<void()> work) = nullptr;
  Mutex mutex;  // guards `memory`, `late` and what `late` owns
  RunMemory memory;
  bool used = false;  // this run has something in `memory` or is deferred
  // A run whose function has returned, until it is completed: memory allocated then belongs to it.
  DeferredRun* late = nullptr;
  std::vector<IntrusivePtr<InvokedOperator>> invoked;
  std::vector<IntrusivePtr<HostedGraph>> graphs;
  std::vector<IntrusivePtr<PendingInvoke>> pending;  // of this run; they use its tensors
  RefCountedList kept_by_work;          // until launched work has run: a library's code
  OutputMaker* output_maker = nullptr;  // of an operator with setAllocatesOutputs()
  OperatorBase* deferrable = nullptr;   // of an operator with setAsync(), while its forward runs
  IntrusivePtr<DeferredRun> deferred;

  // `add` puts something into the memory of the run.
  template <class Add>
  void Keep(Add add) {
    MutexLock lock(mutex);
    if (late) return add(late->memory);
    used = true;
    add(memory);
  }
  // Error (kFailedPrecondition) after the function has returned, for what only it may call.
  void RequireFunction(const char* what) {
    MutexLock lock(mutex);
    if (late)
      Throw(ErrorCode::kFailedPrecondition, what, " in operator ", op,
            " after forward has returned; call it before");
  }
  // Returns when nothing runs beside the function any more; the first failure that nobody was told.
  std::exception_ptr AwaitPending() noexcept {
    std::exception_ptr failure;
    for (const auto& one : pending) {
      one->Wait();
      if (!one->told && !failure) failure = one->failure;
    }
    pending.clear();
    return failure;
  }
  // Called when the function of `run` has returned: hands the memory that it was given over to the
  // run.
  void HandOver(DeferredRun* run) {
    MutexLock lock(mutex);
    run->memory = std::exchange(memory, {});
    run->state = this;
    used = false;
    late = run;
  }
  void Ended(const DeferredRun* run) {
    MutexLock lock(mutex);
    if (late == run) late = nullptr;
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
  memory.Clear();
  if (count) count->fetch_sub(1, std::memory_order_relaxed);
  // Cleared first: a thread that waits for the event may run the operator again, or unload its
  // library.
  kept.clear();
  event->Complete(std::move(failure));  // nobody waits for the event of a cancelled run
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_ABI_RESOURCE_STATE_HPP_
