// The host's side of opkit_abi.h: the table of functions that operators made of functions are
// served by, in this program and in the libraries it loads, and what is kept for each of them.
#ifndef OPKIT_OP_ABI_HOST_TABLE_HPP_
#define OPKIT_OP_ABI_HOST_TABLE_HPP_

#include "opkit/engine/parallel_for.hpp"
#include "opkit/op/abi/op_resource.hpp"
#include "opkit/op/invoke.hpp"

namespace opkit::inline OPKIT_ABI {

// Where operators' log lines go. Called from any thread.
using LogHook = void (*)(LogLevel level, std::string_view op, std::string_view text);

namespace detail {

inline void LogToStderr(LogLevel level, std::string_view op, std::string_view text) {
  std::fprintf(stderr, "opkit %s: %.*s: %.*s\n", ToString(level), static_cast<int>(op.size()),
               op.data(), static_cast<int>(text.size()), text.data());
}
inline constinit std::atomic<LogHook> g_log_hook{&LogToStderr};

// Why the function that this thread runs fails.
struct HostError {
  std::string text;              // the operator's
  std::string failure;           // of a function of the host's table
  std::exception_ptr exception;  // behind either, where it was thrown in this program
};
struct HostErrorSlot {
  std::unique_ptr<HostError> error;  // made when something fails
};
inline constinit thread_local HostErrorSlot* t_host_error = nullptr;  // of the innermost scope
OPKIT_COLD inline HostError& CurrentHostError() {
  static thread_local HostErrorSlot outside;  // of a thread that runs no function
  HostErrorSlot& slot = t_host_error ? *t_host_error : outside;
  if (!slot.error) slot.error = std::make_unique<HostError>();
  return *slot.error;
}
// Nothing has failed at the scope's beginning; what was before returns with its end.
class HostErrorScope {
 public:
  HostErrorScope() : outer_(t_host_error) { t_host_error = &slot_; }
  HostErrorScope(const HostErrorScope&) = delete;
  HostErrorScope& operator=(const HostErrorScope&) = delete;
  ~HostErrorScope() { t_host_error = outer_; }

 private:
  HostErrorSlot slot_;
  HostErrorSlot* outer_;
};

// A tensor with a view of it that stays in place.
struct TensorSlot : RefCounted {
  Tensor tensor;
  Shape shape;
  Dims strides;
  OpTensor view;

  // Views `tensor` as it is now.
  void Bind(OpReq req) { Bind(tensor, req); }
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

// Another operator that this one calls, kept from call to call.
template <class Resolved>
struct InvokedOperator : RefCounted {
  InvokedOperator(const std::string& name, const std::vector<bool>& inputs,
                  const Arguments& arguments, const InvokeOptions& options)
      : op(name), args(arguments), present(inputs), resolved(name, inputs, arguments, options) {}
  std::string op;
  Arguments args;
  std::vector<bool> present;
  Resolved resolved;
};

// target += term, element by element; both dense.
template <class AnyTensor>
void AddTensor(const AnyTensor& target, const AnyTensor& term) {
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
// A result that is to be added to what the output holds.
struct Addition {
  Tensor target, term;
};

// What the function has been given, or is still using, after it has returned.
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

// A run that goes on after its function has returned: ended by whoever comes second, the function's
// return or its completion.
template <class State>
struct BasicDeferredRun : RefCounted {
  IntrusivePtr<EventState> event;
  RefCountedList kept;     // views, the operator's state, the library
  State* state = nullptr;  // of its operator, which `kept` keeps
  RunMemory memory;
  std::string op;
  std::exception_ptr failure;  // why it was completed with a failure
  std::atomic<bool> half{false};

  // Called once by each of the two. Acquire and release: the second one reads what the first wrote.
  void Arrive() {
    if (half.exchange(true, std::memory_order_acq_rel)) End();
  }

 private:
  void End() {
    try {
      if (!failure)
        for (const Addition& sum : memory.additions) AddTensor(sum.target, sum.term);
    } catch (...) {
      failure = std::current_exception();
    }
    if (state) state->Ended(this);
    memory.Clear();
    kept.clear();  // who waited for the event may run it again, or unload its library
    event->Complete(std::move(failure));  // of one that was cancelled nobody waits for this
  }
};
struct ResourceState;
using DeferredRun = BasicDeferredRun<ResourceState>;

// What the table's functions find behind a call: one for each operator.
struct ResourceState {
  Device device;
  std::string op;
  bool asynchronous = false;
  void* context = nullptr;
  void (*launch)(void* context, UniqueFunction<void()> work) = nullptr;
  Mutex mutex;  // guards `memory`, `late` and what `late` owns
  RunMemory memory;
  bool used = false;  // this run has something in `memory` or is deferred
  // A run whose function has returned, until it is completed: what its thread allocates is its own.
  DeferredRun* late = nullptr;
  std::vector<IntrusivePtr<InvokedOperator<ResolvedOperator>>> invoked;
  RefCountedList kept_by_work;  // what work that was launched needs to be there: a library's code
  OperatorBase* deferrable = nullptr;  // of an operator with setAsync(), while its forward runs
  IntrusivePtr<DeferredRun> deferred;

  // `add` puts something into the memory of the run.
  template <class Add>
  void Keep(Add add) {
    MutexLock lock(mutex);
    if (late) return add(late->memory);
    used = true;
    add(memory);
  }
  // The function of `run` returns: what it has been given goes with the run.
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

// Runs into `wanted`'s memory: an operator that could not use it has its result copied there.
template <class Resolved>
void RunInto(Resolved& resolved, std::string_view op, const std::vector<Tensor>& inputs,
             const std::vector<Tensor>& wanted) {
  std::vector<Tensor> results(wanted);
  resolved.Run(inputs, results);
  for (size_t o = 0; o < wanted.size(); ++o) {
    const Tensor &got = results[o], &want = wanted[o];
    if (got.dtype() != want.dtype() || got.shape() != want.shape())
      Throw(ErrorCode::kInvalidArgument, "invoke(\"", op, "\"): output ", o, " is ", got,
            ", but the tensor given for it is ", want);
    if (got.raw_data() == want.raw_data() || want.nbytes() == 0) continue;
    if (!want.is_dense())
      Throw(ErrorCode::kUnsupported, "invoke(\"", op, "\"): output ", o, ", ", want,
            ", is strided; give it a dense tensor and copy from there");
    const Tensor dense = got.is_dense() ? got : got.Contiguous();
    std::memmove(want.raw_mutable_data(), dense.raw_data(), static_cast<size_t>(want.nbytes()));
  }
}

// A template, so that programs without function operators do not compile it.
template <class State>
struct OPKIT_IMAGE_LOCAL HostFunctions {
  static State& StateOf(const opkit_call* call) { return *static_cast<State*>(call->context); }

  // Runs `body`; what it throws is told to the caller.
  template <class Body>
  static opkit_status Answer(Body body) noexcept {
    try {
      body();
      return OPKIT_OK;
    } catch (const std::exception& thrown) {
      return Failed(thrown.what());
    } catch (...) {
      return Failed("it threw something that is not a std::exception");
    }
  }
  OPKIT_COLD static opkit_status Failed(const char* text) noexcept {
    HostError& now = CurrentHostError();
    now.exception = std::current_exception();
    now.failure = text;
    try {
      throw;
    } catch (const Error& error) {
      return StatusOf(error.code());
    } catch (...) {
      return OPKIT_FAILED;
    }
  }
  // Throws what a function of an operator has reported.
  [[noreturn]] OPKIT_COLD static void Rethrow(opkit_status status) {
    HostError& now = CurrentHostError();
    const std::string text = std::exchange(now.text, {});
    if (std::exception_ptr kept = std::exchange(now.exception, nullptr))
      std::rethrow_exception(kept);
    throw Error(CodeOfStatus(status), text);
  }
  [[noreturn]] OPKIT_COLD static void NotOnThisDevice(const State& state, const char* what) {
    Throw(ErrorCode::kUnsupported, what, " in operator ", state.op, " is not possible on ",
          state.device, "; issue the work on stream() yourself");
  }

  static void SetError(opkit_status, const char* text, uint64_t size) {
    HostError& now = CurrentHostError();
    now.text.assign(text ? text : "", text ? size : 0);
    now.exception = nullptr;
  }
  static void AddError(const char* text, uint64_t size) {
    if (text) CurrentHostError().text.append(text, size);
  }
  static const char* FailureText() { return CurrentHostError().failure.c_str(); }

  static opkit_status Alloc(const opkit_call* call, int64_t bytes, void** memory) {
    return Answer([&] {
      State& state = StateOf(call);
      *memory = nullptr;
      if (bytes < 0)
        Throw(ErrorCode::kInvalidArgument, "alloc(", bytes, ") in operator ", state.op);
      Storage storage = AllocateStorage(MemoryDevice(state.device), bytes);
      *memory = storage->data();
      state.Keep([&](RunMemory& kept) { kept.memory.push_back(std::move(storage)); });
    });
  }
  static opkit_status Temporary(const opkit_call* call, int32_t dtype, int32_t rank,
                                const int64_t* shape, opkit_tensor* tensor) {
    return Answer([&] {
      State& state = StateOf(call);
      if (dtype <= 0 || dtype >= kNumDTypes || rank < 0 || (rank > 0 && !shape))
        Throw(ErrorCode::kInvalidArgument, "temporary of dtype ", dtype, " and rank ", rank,
              " in operator ", state.op);
      auto slot = MakeIntrusive<TensorSlot>();
      slot->tensor = Tensor(Shape(Dims(shape, static_cast<size_t>(rank))),
                            static_cast<DType>(dtype), MemoryDevice(state.device));
      slot->Bind(OpReq::kWrite);
      CopyView(slot->view.view(), tensor);
      state.Keep([&](RunMemory& kept) { kept.temporaries.push_back(std::move(slot)); });
    });
  }
  // As much of it as the caller knows.
  static void CopyView(const opkit_tensor& from, opkit_tensor* to) {
    const uint64_t size = to->size < sizeof from ? to->size : sizeof from;
    std::memcpy(static_cast<void*>(to), &from, size);
    to->size = size;
  }

  static opkit_status ParallelFor(const opkit_call*, int64_t n, int64_t grain,
                                  opkit_status (*body)(void*, int64_t, int64_t), void* context) {
    struct Stopped {
      opkit_status status;
      std::string text;
    };
    try {
      if (!body) Throw(ErrorCode::kInvalidArgument, "parallel_for() of null");
      ParallelForRange(n, grain, [&](int64_t begin, int64_t end) {
        const HostErrorScope message;
        if (const opkit_status status = body(context, begin, end); status != OPKIT_OK) [[unlikely]]
          throw Stopped{status, CurrentHostError().text};
      });
      return OPKIT_OK;
    } catch (const Stopped& stopped) {
      HostError& now = CurrentHostError();
      if (now.text.empty()) now.text = stopped.text;
      now.failure = stopped.text;
      return stopped.status;
    } catch (const std::exception& thrown) {
      return Failed(thrown.what());
    } catch (...) {
      return Failed("a loop of the host's threw something that is not a std::exception");
    }
  }

  // Work in the form that a stream takes.
  struct Launched {
    opkit_status (*work)(void*);
    void (*drop)(void*);
    void* context;
    RefCountedList kept;  // a library's code must stay while its work waits

    Launched(opkit_status (*run)(void*), void (*end)(void*), void* what)
        : work(run), drop(end), context(what) {}
    Launched(Launched&& other) noexcept
        : work(other.work),
          drop(std::exchange(other.drop, nullptr)),
          context(other.context),
          kept(std::move(other.kept)) {}
    Launched& operator=(Launched&&) = delete;
    ~Launched() {
      if (drop) drop(context);
    }
    void operator()() {
      HostErrorScope message;
      if (const opkit_status status = work(context); status != OPKIT_OK) Rethrow(status);
    }
  };
  static opkit_status Launch(const opkit_call* call, opkit_status (*work)(void*),
                             void (*drop)(void*), void* context) {
    Launched launched(work, drop, context);
    return Answer([&] {
      State& state = StateOf(call);
      if (!work) Throw(ErrorCode::kInvalidArgument, "launch() in operator ", state.op, " of null");
      if (!state.launch) NotOnThisDevice(state, "launch");
      launched.kept = state.kept_by_work;
      state.launch(state.context, std::move(launched));
    });
  }

  static std::vector<Tensor> Tensors(const opkit_tensor* views, uint64_t count) {
    std::vector<Tensor> tensors;
    if (count > kMostParts || (count > 0 && (!views || views->size < kTensorBytes)))
      Throw(ErrorCode::kInvalidArgument, "invoke() is given ", count,
            " tensors that are null or shorter than version 1.0's");
    for (uint64_t i = 0; i < count; ++i) {
      const opkit_tensor& view = *opkit_tensor_at(views, i);
      if (view.dtype == OPKIT_UNDEFINED)
        tensors.emplace_back();
      else
        tensors.push_back(TensorOfView(view, static_cast<const Tensor*>(view.host)));
    }
    return tensors;
  }
  static InvokeOptions Options(size_t num_outputs, Device device) {
    InvokeOptions options;
    options.device = device;
    options.num_outputs = static_cast<int>(num_outputs);
    return options;
  }
  static constexpr size_t kMostInvoked = 32;  // attributes may differ in every call
  static ResolvedOperator& Resolve(State& state, std::string_view op,
                                   const std::vector<Tensor>& inputs, size_t num_outputs,
                                   const Arguments& args) {
    std::vector<bool> present = PresentInputs(inputs);
    for (const auto& known : state.invoked)
      if (known->op == op && known->args == args && known->present == present &&
          static_cast<size_t>(known->resolved.op().OutputSize()) == num_outputs)
        return known->resolved;
    auto made = MakeIntrusive<InvokedOperator<ResolvedOperator>>(
        std::string(op), present, args, Options(num_outputs, state.device));
    if (state.invoked.size() >= kMostInvoked) state.invoked.erase(state.invoked.begin());
    state.invoked.push_back(std::move(made));
    return state.invoked.back()->resolved;
  }
  static opkit_status Invoke(const opkit_call* call, const char* op, uint64_t num_inputs,
                             const opkit_tensor* inputs, uint64_t num_outputs,
                             const opkit_tensor* outputs, uint64_t num_attrs,
                             const opkit_attr* const* attrs) {
    return Answer([&] {
      State& state = StateOf(call);
      if (!op) Throw(ErrorCode::kInvalidArgument, "invoke() is not told which operator");
      std::vector<Tensor> ins = Tensors(inputs, num_inputs), outs = Tensors(outputs, num_outputs);
      Arguments args = ArgumentsOfAbi(attrs, num_attrs);
      if (!state.asynchronous) {
        RunInto(Resolve(state, op, ins, outs.size(), args), op, ins, outs);
      } else if (state.launch && IsHostAccessible(state.device.type)) {
        state.launch(state.context, [op = std::string(op), ins = std::move(ins),
                                     outs = std::move(outs), args = std::move(args)] {
          ResolvedOperator resolved(op, PresentInputs(ins), args, Options(outs.size(), Device{}));
          RunInto(resolved, op, ins, outs);
        });
      } else {
        NotOnThisDevice(state, "invoke");
      }
    });
  }

  static void Log(const opkit_call* call, int32_t level, const char* text) {
    const bool known = level >= OPKIT_LOG_INFO && level <= OPKIT_LOG_ERROR;
    g_log_hook.load(std::memory_order_acquire)(
        known ? static_cast<LogLevel>(level) : LogLevel::kError, StateOf(call).op,
        text ? text : "");
  }

  static_assert(sizeof(InvocationScope) <= sizeof(opkit_scope));
  static void ScopeBegin(const opkit_call*, const char*, opkit_scope* scope) {
    new (static_cast<void*>(scope)) InvocationScope(InvocationKind::kUserCode);
  }
  static void ScopeEnd(opkit_scope* scope) {
    std::launder(reinterpret_cast<InvocationScope*>(scope))->~InvocationScope();
  }
  static void CurrentIdentity(opkit_invocation* identity) {
    const Invocation now = CurrentInvocation();
    *identity = {now.id, now.parent, static_cast<uint64_t>(now.kind)};
  }
  static void Adopt(const opkit_invocation* identity, opkit_scope* scope) {
    struct Adopted {
      InvocationScope scope;
    };
    new (static_cast<void*>(scope)) Adopted{InvocationScope::Adopt(
        {identity->id, identity->parent, static_cast<InvocationKind>(identity->kind)})};
  }

  static opkit_status Defer(const opkit_call* call, opkit_completion** completion) {
    return Answer([&] {
      State& state = StateOf(call);
      *completion = nullptr;
      if (!state.deferrable)
        Throw(ErrorCode::kFailedPrecondition, "defer() in operator ", state.op,
              state.asynchronous
                  ? ", which runs on a stream already: issue the work there"
                  : ": only forward of an operator with .setAsync() may end later than it returns");
      if (state.deferred)
        Throw(ErrorCode::kFailedPrecondition, "defer() in operator ", state.op,
              " is called twice in a run");
      auto run = MakeIntrusive<DeferredRun>();
      run->event = state.deferrable->event().state();
      run->op = state.op;
      state.deferred = run;
      state.used = true;
      *completion = reinterpret_cast<opkit_completion*>(new IntrusivePtr<DeferredRun>(run));
    });
  }
  static void Complete(opkit_completion* completion, opkit_status status, const char* text) {
    auto* handle = reinterpret_cast<IntrusivePtr<DeferredRun>*>(completion);
    const IntrusivePtr<DeferredRun> run = *handle;
    delete handle;
    if (status != OPKIT_OK)
      run->failure = std::make_exception_ptr(
          Error(CodeOfStatus(status), StrCat("operator ", run->op, " failed after it had returned",
                                             text && *text ? ": " : "", text ? text : "")));
    run->Arrive();
  }

  static void Keep() noexcept { CurrentHostError().exception = std::current_exception(); }
  static void RethrowKept() {
    HostError& now = CurrentHostError();
    if (std::exception_ptr kept = std::exchange(now.exception, nullptr))
      std::rethrow_exception(kept);
  }

  static constexpr opkit_host kTable{sizeof(opkit_host),
                                     nullptr,
                                     OPKIT_ABI_MAJOR,
                                     OPKIT_ABI_MINOR,
                                     OPKIT_VERSION_STRING,
                                     &SetError,
                                     &AddError,
                                     &FailureText,
                                     &Alloc,
                                     &Temporary,
                                     &ParallelFor,
                                     &Launch,
                                     &Invoke,
                                     &Log,
                                     &ScopeBegin,
                                     &ScopeEnd,
                                     &CurrentIdentity,
                                     &Adopt,
                                     &Defer,
                                     &Complete};
  static constexpr ExceptionKeeper kExceptions{&Keep, &RethrowKept};
};

// This program's own table, in use from the first function operator on.
template <class State = ResourceState>
const opkit_host& ProgramHost() {
  using Functions = HostFunctions<State>;
  if (!g_host) {
    g_exceptions = &Functions::kExceptions;
    g_host = &Functions::kTable;
  }
  return Functions::kTable;
}

}  // namespace detail

// Replaces the log hook and returns the one before; null goes back to stderr.
inline LogHook SetLogHook(LogHook hook) {
  return detail::g_log_hook.exchange(hook ? hook : &detail::LogToStderr, std::memory_order_acq_rel);
}

}  // namespace opkit

#endif  // OPKIT_OP_ABI_HOST_TABLE_HPP_
