// The host's table: its functions and the failures that they report.
#ifndef OPKIT_OP_BOUNDARY_HOST_IMPL_HOST_TABLE_IPP_
#define OPKIT_OP_BOUNDARY_HOST_IMPL_HOST_TABLE_IPP_

#include <algorithm>
#include <cstring>

#include "opkit/device/copy.hpp"
#include "opkit/device/native_stream.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/op/boundary/host/host_table.hpp"
#include "opkit/op/boundary/host/resource_state.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/op_registry.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE HostError& CurrentHostError() {
  static thread_local HostErrorSlot outside;  // used while the thread has no open HostErrorScope
  HostErrorSlot& slot = t_host_error ? *t_host_error : outside;
  if (!slot) slot = MakeIntrusive<HostError>();
  return *slot;
}

OPKIT_INLINE opkit_status KeepFailure(const char* unknown) noexcept {
  HostError& now = CurrentHostError();
  now.exception = std::current_exception();
  return DescribeException(now.failure, unknown);
}

// Runs an operator into the memory of `wanted`; copies results that the operator has placed
// elsewhere. With `native_stream`, only issues the work, on that stream's thread.
inline void RunInto(InvokedOperator& invoked, const std::vector<Tensor>& inputs,
                    const std::vector<Tensor>& wanted, void* native_stream = nullptr) {
  std::vector<Tensor> results(wanted);
  native_stream ? invoked.resolved.Issue(inputs, results) : invoked.resolved.Run(inputs, results);
  for (size_t o = 0; o < wanted.size(); ++o) {
    const Tensor &got = results[o], &want = wanted[o];
    if (got.dtype() != want.dtype() || got.shape() != want.shape())
      Throw(ErrorCode::kInvalidArgument, "invoke(\"", invoked.op, "\"): output ", o, " is ", got,
            ", but the tensor given for it is ", want);
    if (got.raw_data() == want.raw_data() || want.nbytes() == 0) continue;
    if (!want.is_dense())
      Throw(ErrorCode::kUnsupported, "invoke(\"", invoked.op, "\"): output ", o, ", ", want,
            ", is strided; give it a dense tensor and copy from there");
    CopyElements(got, want, native_stream);
  }
}

// The functions of the table, each with the signature that opkit_abi.h declares.
struct OPKIT_IMAGE_LOCAL HostFunctions {
  // Makes a function of the table from a function that throws its failures.
  template <auto kBody, class... Args>
  static opkit_status Answer(Args... args) {
    return AnswerCaller([&] { kBody(args...); });
  }

  static ResourceState& StateOf(const opkit_call* call) {
    if (!call)
      Throw(ErrorCode::kInvalidArgument,
            "a function of the host's table is called without its opkit_call");
    return *static_cast<ResourceState*>(call->context);
  }

  // Throws the kept exception, if any.
  static void RethrowKept() {
    if (std::exception_ptr kept = std::exchange(CurrentHostError().exception, nullptr))
      std::rethrow_exception(kept);
  }
  // Throws the failure that an operator's function has reported.
  [[noreturn]] OPKIT_COLD static void Rethrow(opkit_status status) {
    const std::string text = std::exchange(CurrentHostError().text, {});
    RethrowKept();
    throw Error(CodeOfStatus(status), text);
  }
  [[noreturn]] OPKIT_COLD static void NotOnThisDevice(const ResourceState& state,
                                                      const char* what) {
    Throw(ErrorCode::kUnsupported, what, " in operator ", state.op, " is not possible on ",
          state.device, "; issue the work on stream() yourself");
  }

  static void SetError(opkit_status, const char* text, uint64_t size) {
    HostError& now = CurrentHostError();
    now.text = TextOfSize(text, size);
    now.exception = nullptr;
  }
  static void AddError(const char* text, uint64_t size) {
    CurrentHostError().text += TextOfSize(text, size);
  }
  // Returns the text, at most `size` bytes of it.
  static std::string_view TextOfSize(const char* text, uint64_t size) {
    if (!text) return {};
    return {text, ::strnlen(text, (std::min)(size, kMostTextBytes))};
  }
  static const char* FailureText() { return CurrentHostError().failure.c_str(); }

  static void Alloc(const opkit_call* call, int64_t bytes, void** memory) {
    ResourceState& state = StateOf(call);
    RequireRoom(memory, "alloc()");
    *memory = nullptr;
    if (bytes < 0)
      Throw(ErrorCode::kInvalidArgument, "alloc(", bytes, ") in operator ", state.op,
            " asks for less than 0 bytes");
    Storage storage = AllocateStorage(MemoryDevice(state.device), bytes);
    *memory = storage->data();
    state.Keep([&](RunMemory& kept) { kept.memory.push_back(std::move(storage)); });
  }
  static Shape ShapeOfCall(const ResourceState& state, const char* what, int32_t dtype,
                           int32_t rank, const int64_t* shape) {
    if (dtype <= 0 || dtype >= kNumPlainDTypes || rank < 0 || rank > OPKIT_MAX_RANK ||
        (rank > 0 && !IsUsable(shape)))
      Throw(ErrorCode::kInvalidArgument, what, " of dtype ", dtype, " and rank ", rank,
            " in operator ", state.op, " has no such dtype or rank, or a null shape");
    return Shape(Dims(shape, static_cast<size_t>(rank)));
  }
  static void Temporary(const opkit_call* call, int32_t dtype, int32_t rank, const int64_t* shape,
                        opkit_tensor* tensor) {
    ResourceState& state = StateOf(call);
    auto slot = MakeIntrusive<TensorSlot>();
    slot->tensor = Tensor(ShapeOfCall(state, "temporary", dtype, rank, shape),
                          static_cast<DType>(dtype), MemoryDevice(state.device));
    slot->Bind(slot->tensor, OpReq::kWrite);
    CopyView(slot->view.view(), tensor);
    state.Keep([&](RunMemory& kept) { kept.temporaries.push_back(std::move(slot)); });
  }
  static void AllocateOutput(const opkit_call* call, uint64_t output, int32_t dtype, int32_t rank,
                             const int64_t* shape, opkit_tensor* tensor) {
    ResourceState& state = StateOf(call);
    state.RequireFunction("allocate_output");
    if (!state.output_maker)
      Throw(ErrorCode::kFailedPrecondition, "allocate_output in operator ", state.op,
            state.asynchronous && state.launch
                ? ", which runs on a stream of the CPU's, where all shapes must be inferred"
                : ": only forward of an operator with .allocatesOutputs() makes its outputs");
    CopyView(state.output_maker
                 ->MakeOutput(output, ShapeOfCall(state, "output", dtype, rank, shape),
                              static_cast<DType>(dtype))
                 .view(),
             tensor);
  }
  // Copies the members that exist in the caller's version.
  static void CopyView(const opkit_tensor& from, opkit_tensor* to) {
    RequireRoom(to, "a tensor");
    if (!IsReadable(to, 0))
      Throw(ErrorCode::kInvalidArgument, "the room for a tensor says ", to->size,
            " bytes; fill in opkit_tensor.size with sizeof(opkit_tensor)");
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
      if (!body) Throw(ErrorCode::kInvalidArgument, "parallel_for() is given a null function");
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
    } catch (...) {
      return KeepFailure("a loop of the host's threw something that is not a std::exception");
    }
  }

  // A function and its data as work for a stream.
  struct Launched {
    opkit_status (*work)(void*);
    void (*drop)(void*);
    void* context;
    RefCountedList kept;  // keeps a library's code loaded while its work waits

    Launched(opkit_status (*run)(void*), void (*end)(void*), void* argument)
        : work(run), drop(end), context(argument) {}
    Launched(Launched&& other) noexcept
        : work(other.work),
          drop(std::exchange(other.drop, nullptr)),
          context(other.context),
          kept(std::move(other.kept)) {}
    ~Launched() {
      if (drop) drop(context);
    }
    void operator()() {
      HostErrorScope message;
      if (const opkit_status status = work(context); status != OPKIT_OK) Rethrow(status);
    }
  };
  static void Launch(const opkit_call* call, opkit_status (*work)(void*), void (*drop)(void*),
                     void* context) {
    Launched launched(work, drop, context);
    ResourceState& state = StateOf(call);
    if (!work)
      Throw(ErrorCode::kInvalidArgument, "launch() in operator ", state.op,
            " is given a null function");
    if (!state.launch) NotOnThisDevice(state, "launch");
    launched.kept = state.kept_by_work;
    state.launch(state.context, std::move(launched));
  }

  static std::vector<Tensor> Tensors(const opkit_tensor* views, uint64_t count) {
    std::vector<Tensor> tensors;
    if (count > kMostParts || (count > 0 && !IsReadable(views)))
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
  static constexpr size_t kMostInvoked = 32;  // attributes may differ in every call
  static IntrusivePtr<InvokedOperator> Resolve(ResourceState& state, const std::string& op,
                                               const std::vector<Tensor>& inputs,
                                               size_t num_outputs, const Arguments& args,
                                               Device device, const void* stream) {
    std::vector<int> present = PresentInputs(inputs);
    for (const auto& known : state.invoked)
      if (!known->busy.load(std::memory_order_acquire) && known->stream == stream &&
          known->op == op && known->args == args && known->present == present &&
          Index(known->resolved.num_outputs()) == num_outputs)
        return known;
    const InvokeOptions options{device, {}, static_cast<int>(num_outputs)};
    auto made = MakeIntrusive<InvokedOperator>(op, present, args, options, stream);
    if (state.invoked.size() >= kMostInvoked) state.invoked.erase(state.invoked.begin());
    state.invoked.push_back(made);
    return made;
  }
  // Runs an operator on tensors of the call. If the call is not asynchronous and `pending` is not
  // null, a thread of the pool runs the operator. Returns false if that thread may still run it.
  static bool InvokeOn(const opkit_call* call, const char* op, std::vector<Tensor> ins,
                       std::vector<Tensor> outs, const Arguments& args, PendingInvoke* pending) {
    ResourceState& state = StateOf(call);
    if (!op) Throw(ErrorCode::kInvalidArgument, "invoke() has no operator's name");
    const bool is_native = call->asynchronous && !state.launch;
    const NativeStreamFunction on_stream =
        is_native ? FindNativeStreams(state.device.type) : nullptr;
    if (is_native && !on_stream) NotOnThisDevice(state, "invoke");
    // The stream's thread runs the operator as on the CPU.
    const Device device = state.launch && state.asynchronous ? Device{} : state.device;
    IntrusivePtr<InvokedOperator> invoked =
        Resolve(state, TextOfAbi(op), ins, outs.size(), args, device, call->stream);
    if (pending && !call->asynchronous && pending->pool.threads() > 1) {
      RunBeside(state, std::move(invoked), std::move(ins), std::move(outs), pending);
      return false;
    }
    if (!call->asynchronous)
      RunInto(*invoked, ins, outs);
    else if (is_native)
      on_stream(device, call->stream, [&] { RunInto(*invoked, ins, outs, call->stream); });
    else
      state.launch(state.context, [invoked = std::move(invoked), ins = std::move(ins),
                                   outs = std::move(outs)] { RunInto(*invoked, ins, outs); });
    return true;
  }
  static void Invoke(const opkit_call* call, const char* op, uint64_t num_inputs,
                     const opkit_tensor* inputs, uint64_t num_outputs, const opkit_tensor* outputs,
                     uint64_t num_attrs, const opkit_attr* const* attrs) {
    InvokeOn(call, op, Tensors(inputs, num_inputs), Tensors(outputs, num_outputs),
             ArgumentsOfAbi(attrs, num_attrs), nullptr);
  }
  static void RunBeside(ResourceState& state, IntrusivePtr<InvokedOperator> invoked,
                        std::vector<Tensor> ins, std::vector<Tensor> outs, PendingInvoke* pending) {
    const IntrusivePtr<PendingInvoke> kept(pending);
    state.pending.push_back(kept);
    state.used = true;
    invoked->busy.store(true, std::memory_order_relaxed);  // the pool's queue publishes it
    try {
      pending->pool.Submit([kept, invoked, ins = std::move(ins), outs = std::move(outs)]() mutable {
        try {
          RunInto(*invoked, ins, outs);
        } catch (...) {
          kept->failure = std::current_exception();
        }
        // Releases the tensors and the operator before the waiting caller continues.
        ins.clear();
        outs.clear();
        std::exchange(invoked, {})->busy.store(false, std::memory_order_release);
        kept->done.CountDown();
      });
    } catch (...) {
      state.pending.pop_back();
      invoked->busy.store(false, std::memory_order_relaxed);
      throw;
    }
  }
  static void InvokeAsync(const opkit_call* call, const char* op, uint64_t num_inputs,
                          const opkit_tensor* inputs, uint64_t num_outputs,
                          const opkit_tensor* outputs, uint64_t num_attrs,
                          const opkit_attr* const* attrs, opkit_pending** handle) {
    RequireRoom(handle, "invoke_async()");
    *handle = nullptr;
    ResourceState& state = StateOf(call);
    state.RequireFunction("invoke_async");
    const auto pending = MakeIntrusive<PendingInvoke>();
    if (InvokeOn(call, op, Tensors(inputs, num_inputs), Tensors(outputs, num_outputs),
                 ArgumentsOfAbi(attrs, num_attrs), pending.get())) {
      pending->done.CountDown();
      state.pending.push_back(pending);
      state.used = true;
    }
    *handle = reinterpret_cast<opkit_pending*>(pending.get());
  }
  static void Wait(const opkit_call*, opkit_pending* handle) {
    if (!handle) Throw(ErrorCode::kInvalidArgument, "wait() has no handle");
    auto* const pending = reinterpret_cast<PendingInvoke*>(handle);
    pending->Wait();
    pending->failure_taken = true;
    if (pending->failure) std::rethrow_exception(pending->failure);
  }

  static void RunGraph(const opkit_call* call, const opkit_graph* graph, uint64_t num_inputs,
                       const opkit_tensor* inputs, uint64_t num_outputs,
                       const opkit_tensor* outputs) {
    ResourceState& state = StateOf(call);
    if (!graph)
      Throw(ErrorCode::kInvalidArgument, "run_graph() in operator ", state.op,
            " is given a null graph");
    if (!IsHostAccessible(state.device.type)) NotOnThisDevice(state, "run_graph");
    const auto known = std::ranges::find(state.graphs, graph, [](auto& one) { return one->key; });
    const IntrusivePtr<HostedGraph> ready =
        known == state.graphs.end() ? g_make_hosted_graph(graph) : *known;
    if (known == state.graphs.end()) state.graphs.push_back(ready);
    std::vector<Tensor> ins = Tensors(inputs, num_inputs), outs = Tensors(outputs, num_outputs);
    if (!call->asynchronous) return ready->Run(ins, outs);
    state.launch(state.context,
                 [ready, ins = std::move(ins), outs = std::move(outs)] { ready->Run(ins, outs); });
  }

  static void Log(const opkit_call* call, int32_t level, const char* text) {
    const bool known = level >= OPKIT_LOG_INFO && level <= OPKIT_LOG_ERROR;
    static_cast<void>(AnswerCaller([&] {
      WriteLog(known ? static_cast<LogLevel>(level) : LogLevel::kError,
               call ? StateOf(call).op : std::string(), TextOfAbi(text));
    }));
  }

  static_assert(sizeof(InvocationScope) <= sizeof(opkit_scope));
  static uint32_t NameOfSpan(const char* name) { return name ? InternName(TextOfSpan(name)) : 0; }
  static std::string_view TextOfSpan(const char* name) { return TextOfSize(name, kMostTextBytes); }
  static void ScopeBegin(const opkit_call*, const char* name, opkit_scope* scope) {
    if (!IsUsable(scope)) return;
    new (static_cast<void*>(scope)) InvocationScope(
        Invocation::Kind::kUserCode, [&] { return SpanNames::OfText(TextOfSpan(name)); });
  }
  static void ScopeEnd(opkit_scope* scope) {
    if (!IsUsable(scope)) return;
    std::launder(reinterpret_cast<InvocationScope*>(scope))->~InvocationScope();
  }
  static void CurrentIdentity(opkit_invocation* identity) {
    if (IsUsable(identity)) *identity = ToAbi(CurrentInvocation());
  }
  static void Adopt(const opkit_invocation* identity, opkit_scope* scope) {
    if (!IsUsable(scope)) return;
    Invocation token = IsUsable(identity) ? FromAbi(*identity) : CurrentInvocation();
    token.flushes_denormals = CurrentInvocation().flushes_denormals;  // the ABI has no place for it
    new (static_cast<void*>(scope)) InvocationScope(InvocationScope::Adopt(token));
  }

  static void Defer(const opkit_call* call, opkit_completion** completion) {
    ResourceState& state = StateOf(call);
    RequireRoom(completion, "defer()");
    *completion = nullptr;
    state.RequireFunction("defer()");
    if (!state.deferrable)
      Throw(ErrorCode::kFailedPrecondition, "defer() in operator ", state.op,
            state.asynchronous
                ? ", which runs on a stream already: issue the work there"
                : ": only forward of an operator with .async() may end later than it returns");
    if (state.deferred)
      Throw(ErrorCode::kFailedPrecondition, "defer() in operator ", state.op,
            " is called twice in a run");
    auto run = MakeIntrusive<DeferredRun>();
    run->event = state.deferrable->event().state();
    run->op = state.op;
    state.deferred = run;
    state.used = true;
    *completion = reinterpret_cast<opkit_completion*>(new IntrusivePtr<DeferredRun>(run));
  }
  static void Complete(opkit_completion* completion, opkit_status status, const char* text) {
    if (!completion) return;
    auto* handle = reinterpret_cast<IntrusivePtr<DeferredRun>*>(completion);
    const IntrusivePtr<DeferredRun> run = *handle;
    delete handle;
    if (status != OPKIT_OK)
      run->failure = std::make_exception_ptr(
          Error(CodeOfStatus(status),
                StrCat("operator ", run->op, " failed after it had returned",
                       text && *text ? ": " : "", TextOfSize(text, kMostTextBytes))));
    run->Arrive();
  }

  static int32_t HasOperator(const char* op) {
    bool has = false;
    static_cast<void>(AnswerCaller(
        [&] { has = static_cast<bool>(OpRegistry::Global().FindSchema(TextOfAbi(op))); }));
    return has;
  }
  static void Infer(const opkit_node* node, opkit_value* inputs, opkit_value* outputs) {
    const RegistryUse use;
    const NodeOfAbi asked(node, inputs, outputs);
    InferenceContext context(asked.def, asked.inputs.infos(), asked.outputs.infos());
    const OpSchema& schema = OpRegistry::Global().GetSchema(asked.def.type());
    CheckNode(schema, asked.def);
    schema.Infer(context);
    for (const auto& [infos, values] :
         {std::pair(&context.inputs(), inputs), std::pair(&context.outputs(), outputs)}) {
      ValuesOfAbi::StoreTypes(*infos, values);
      ValuesOfAbi::StoreShapes(*infos, values);
    }
  }

  static void Allocate(int32_t device_type, int32_t device_index, int64_t bytes, void** memory,
                       void** owner) {
    RequireRoom(memory, "allocate()");
    RequireRoom(owner, "allocate()");
    *memory = *owner = nullptr;
    if (bytes <= 0) Throw(ErrorCode::kInvalidArgument, "allocate(", bytes, ") asks for no memory");
    Allocator& allocator = GetAllocator(static_cast<DeviceType>(device_type));
    *memory = allocator.Allocate(bytes, device_index);
    *owner = &allocator;
  }
  static void Deallocate(void* owner, void* memory, int64_t bytes) {
    if (owner) static_cast<Allocator*>(owner)->Deallocate(memory, bytes);
  }

  static int32_t IsProfiling() { return static_cast<bool>(CurrentSpanSink()); }
  static void SpanBegin(int32_t kind, const char* name, const char* node, opkit_scope* scope) {
    if (!IsUsable(scope)) return;
    const bool is_kind = kind >= 0 && kind <= static_cast<int32_t>(Invocation::Kind::kEngine);
    new (static_cast<void*>(scope)) InvocationScope(
        is_kind ? static_cast<Invocation::Kind>(kind) : Invocation::Kind::kUserCode, [&] {
          return SpanNames{NameOfSpan(name), NameOfSpan(node)};
        });
  }

  static void Keep() noexcept { CurrentHostError().exception = std::current_exception(); }

  static constexpr opkit_host kTable{sizeof(opkit_host),
                                     nullptr,
                                     OPKIT_ABI_MAJOR,
                                     OPKIT_ABI_MINOR,
                                     OPKIT_VERSION_STRING,
                                     &SetError,
                                     &AddError,
                                     &FailureText,
                                     &Answer<&Alloc>,
                                     &Answer<&Temporary>,
                                     &ParallelFor,
                                     &Answer<&Launch>,
                                     &Answer<&Invoke>,
                                     &Log,
                                     &ScopeBegin,
                                     &ScopeEnd,
                                     &CurrentIdentity,
                                     &Adopt,
                                     &Answer<&Defer>,
                                     &Complete,
                                     &Answer<&AllocateOutput>,
                                     &Answer<&InvokeAsync>,
                                     &Answer<&Wait>,
                                     &Answer<&RunGraph>,
                                     &HasOperator,
                                     &Answer<&Infer>,
                                     &Answer<&Allocate>,
                                     &Deallocate,
                                     &IsProfiling,
                                     &SpanBegin};
  static constexpr ExceptionKeeper kExceptions{&Keep, &RethrowKept};
};

OPKIT_INLINE const opkit_host& HostTable::Global() {
  g_program_host.store(&HostFunctions::kTable, std::memory_order_relaxed);
  if (!g_host) {
    g_exceptions = &HostFunctions::kExceptions;
    g_host = &HostFunctions::kTable;
  }
  return HostFunctions::kTable;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_HOST_IMPL_HOST_TABLE_IPP_
