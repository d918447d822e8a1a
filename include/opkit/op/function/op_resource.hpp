// OpResource: the services of a function operator's host: memory, scratch, threads, the stream,
// random numbers, logging, sub-events, and all other operators by name. It calls opkit_abi.h's
// table, so that it is the same in a program and in a library.
#ifndef OPKIT_OP_FUNCTION_OP_RESOURCE_HPP_
#define OPKIT_OP_FUNCTION_OP_RESOURCE_HPP_

#include "opkit/device/invocation.hpp"
#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/op/function/op_tensor.hpp"
#include "opkit/op/random.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

enum class LogLevel : uint8_t { kInfo, kWarning, kError };
inline const char* ToString(LogLevel level) {
  constexpr const char* kNames[] = {"info", "warning", "error"};
  return kNames[static_cast<int>(level)];
}

namespace detail {

// The functions by which the program's own host keeps exception objects, so that an exception of a
// program's operator keeps its type. Null in a library: its exceptions must not reach the program.
struct ExceptionKeeper {
  void (*keep)() noexcept;  // keeps the exception being handled
  void (*rethrow)();        // throws the last kept exception, if any
};
OPKIT_IMAGE_LOCAL inline constinit const ExceptionKeeper* g_exceptions = nullptr;

inline opkit_status StatusOf(ErrorCode code) { return static_cast<opkit_status>(code) + 1; }
inline ErrorCode CodeOfStatus(opkit_status status) {
  return status >= OPKIT_INVALID_ARGUMENT && status <= OPKIT_IO ? static_cast<ErrorCode>(status - 1)
                                                                : ErrorCode::kOperatorFailed;
}

// Returns the status and the text of the current exception for the ABI; for use in a catch block.
OPKIT_COLD inline opkit_status DescribeException(
    std::string& text, const char* unknown = "it threw something that is not a std::exception") {
  try {
    throw;
  } catch (const Error& error) {
    text = error.what();
    return StatusOf(error.code());
  } catch (const std::exception& thrown) {
    text = thrown.what();
  } catch (...) {
    text = unknown;
  }
  return OPKIT_FAILED;
}
// Reports the exception in flight to the host, and returns the status for it; for use in a catch
// block.
OPKIT_COLD OPKIT_IMAGE_LOCAL inline opkit_status ReportFailure() noexcept {
  std::string text;
  const opkit_status status = DescribeException(text);
  g_host->set_error(status, text.data(), text.size());
  if (g_exceptions) g_exceptions->keep();
  return status;
}
// Runs `body` for the host. `body` may return an OpStatus; exceptions are reported to the host.
template <class Body>
OPKIT_IMAGE_LOCAL opkit_status GuardedCall(Body body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return OPKIT_OK;
    } else {
      const OpStatus status = body();
      if (status.ok()) [[likely]]
        return OPKIT_OK;
      const std::string text = status.message();
      g_host->add_error(text.data(), text.size());
      return OPKIT_FAILED;
    }
  } catch (...) {
    return ReportFailure();
  }
}
// Throws the failure of a function of the host's table.
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL inline void ThrowHostFailure(const opkit_host* host,
                                                                       opkit_status status) {
  if (g_exceptions) g_exceptions->rethrow();
  throw Error(CodeOfStatus(status), host->failure_text());
}
// Throws the failure, if any, that a function of the host's table has returned.
OPKIT_IMAGE_LOCAL inline void AcceptAnswer(opkit_status status, const opkit_host* host = g_host) {
  if (status != OPKIT_OK) [[unlikely]]
    ThrowHostFailure(host, status);
}
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL inline void ThrowNoScratch(const opkit_call* call) {
  Throw(ErrorCode::kFailedPrecondition, "operator ", call->op,
        " has no scratch: declare it with scratch(bytes), or with scratch(f) where the bytes "
        "depend on f(attrs, shapes)");
}

// A loop's body behind a function pointer. Stores an exception of the body; the caller of the loop
// throws it.
template <class F>
struct LoopBody {
  F& f;
  std::exception_ptr thrown;
  std::atomic<bool> failed{false};

  static opkit_status Run(void* context, int64_t begin, int64_t end) {
    auto& self = *static_cast<LoopBody*>(context);
    try {
      self.f(begin, end);
      return OPKIT_OK;
    } catch (...) {
      // Relaxed: the loop's end orders this before the only read of `thrown`.
      if (!self.failed.exchange(true, std::memory_order_relaxed))
        self.thrown = std::current_exception();
      return OPKIT_FAILED;
    }
  }
};

// Calls f(begin, end) for ranges that together are [0, n), on the host's threads.
template <class F>
void RunHostRanges(const opkit_host* host, const opkit_call* call, int64_t n, int64_t grain, F f) {
  LoopBody<F> body{f, {}, {}};
  const opkit_status status = host->parallel_for(call, n, grain, &LoopBody<F>::Run, &body);
  if (body.thrown) [[unlikely]]
    std::rethrow_exception(body.thrown);
  AcceptAnswer(status, host);
}
template <class F>
void RunHostLoop(const opkit_host* host, const opkit_call* call, int64_t n, int64_t grain, F& f) {
  if (n <= 0) return;
  if (n <= grain) {
    for (int64_t i = 0; i < n; ++i) f(i);
    return;
  }
  RunHostRanges(host, call, n, grain, [&f](int64_t begin, int64_t end) {
    if constexpr (std::is_trivially_copyable_v<F> && std::is_invocable_v<const F&, int64_t>) {
      const F body = f;
      for (int64_t i = begin; i < end; ++i) body(i);
    } else {
      for (int64_t i = begin; i < end; ++i) f(i);
    }
  });
}

// The work of a launch() on its way to a stream.
template <class F>
struct LaunchedWork {
  F work;
  std::string op;

  static opkit_status Run(void* context) {
    return GuardedCall([&self = *static_cast<LaunchedWork*>(context)] {
      try {
        self.work();
      } catch (const Error&) {
        throw;
      } catch (...) {
        throw Error(
            ErrorCode::kOperatorFailed,
            StrCat("work that operator ", self.op, " launched threw: ", CurrentError().message()))
            .SetCause(std::current_exception());
      }
    });
  }
  static void Drop(void* context) { delete static_cast<LaunchedWork*>(context); }
};

}  // namespace detail

// Names a part of an operator's own code, for the scope's life. The work in the scope has its own
// identity, a child of the operator's.
class OpScope {
 public:
  OpScope(const opkit_call* call, const char* name) : host_(call->host), name_(name) {
    host_->scope_begin(call, name, &scope_);
  }
  OpScope(OpScope&&) = delete;
  ~OpScope() { host_->scope_end(&scope_); }
  const char* name() const { return name_; }

 private:
  const opkit_host* host_;
  const char* name_;
  opkit_scope scope_{};
};

// Completes an operator after its function has returned: call Complete or Fail once, from any
// thread. The operator fails if the handle is destroyed without a call. The operator's tensors and
// memory live until the completion.
class OpCompletion {
 public:
  OpCompletion(const opkit_host* host, opkit_completion* completion)
      : host_(host), completion_(completion) {}
  OpCompletion(OpCompletion&& other) noexcept
      : host_(other.host_), completion_(std::exchange(other.completion_, nullptr)) {}
  OpCompletion& operator=(OpCompletion&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(completion_, other.completion_);
    return *this;
  }
  ~OpCompletion() {
    if (completion_)
      End(OPKIT_FAILED, "its completion handle was dropped without Complete() or Fail()");
  }

  void Complete() { End(OPKIT_OK, ""); }
  void Fail(const char* text) { End(OPKIT_FAILED, text); }
  void Fail(const std::string& text) { End(OPKIT_FAILED, text.c_str()); }
  explicit operator bool() const { return completion_; }

 private:
  // Ends the operator; a second call does nothing.
  void End(opkit_status status, const char* text) {
    if (completion_) host_->complete(std::exchange(completion_, nullptr), status, text);
  }
  const opkit_host* host_;
  opkit_completion* completion_;
};

namespace detail {

// Converts an identity. The upper half of the ABI's `kind` stores the host's Invocation::custom.
inline opkit_invocation ToAbi(const Invocation& identity) {
  return {identity.id, identity.parent,
          static_cast<uint64_t>(identity.kind) | uint64_t{identity.custom} << 32};
}
inline Invocation FromAbi(const opkit_invocation& identity) {
  return {identity.id, identity.parent, static_cast<Invocation::Kind>(identity.kind & 0xff),
          static_cast<uint32_t>(identity.kind >> 32)};
}

}  // namespace detail

// Continues an operator's work in a thread of the author, for the scope's life. `identity` comes
// from OpResource::invocation.
class OpAdoption {
 public:
  explicit OpAdoption(const Invocation& identity) {
    const opkit_invocation token = detail::ToAbi(identity);
    detail::g_host->adopt(&token, &scope_);
  }
  OpAdoption(OpAdoption&&) = delete;
  ~OpAdoption() { detail::g_host->scope_end(&scope_); }

 private:
  opkit_scope scope_{};
};

// An operator that OpResource::invoke_async has started. Valid during the call.
class OpPending {
 public:
  OpPending(const opkit_call* call, opkit_pending* pending) : call_(call), pending_(pending) {}
  // Waits for the operator's end; meanwhile the thread runs other work of the host. Throws the
  // error with which the operator failed.
  void Wait() const { detail::AcceptAnswer(call_->host->wait(call_, pending_), call_->host); }

 private:
  const opkit_call* call_;
  opkit_pending* pending_;
};

// The author's handle of a call; may be copied. Valid during the call; after defer() until the
// completion, so that continuing work may capture a copy. Several threads may call its members at
// the same time, with four exceptions: invoke(), invoke_async(), temporary() and random() allow one
// thread at a time. After the function has returned, defer(), invoke_async() and allocate_output()
// throw kFailedPrecondition.
class OpResource {
 public:
  explicit OpResource(const opkit_call* call) : call_(call) {}

  // Returns the call itself, for the toolkit, and for members of opkit_abi.h that this class does
  // not have.
  const opkit_call* call() const { return call_; }

  // Allocates `bytes` bytes of the device's memory, aligned to 64 bytes; every call returns
  // different memory. The memory is freed when the operator ends, also after a failure; on an
  // asynchronous device when the stream has finished the run. Returns null for 0 bytes. Throws
  // kInvalidArgument, kOutOfMemory.
  void* alloc(int64_t bytes) const {
    void* memory = nullptr;
    Check(host()->alloc(call_, bytes, &memory));
    return memory;
  }
  template <class T>
  T* alloc(int64_t count) const {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(count, int64_t{sizeof(T)}, &bytes))
      Throw(ErrorCode::kOutOfRange, "alloc of ", count,
            " elements needs more bytes than 64 bits can count");
    return static_cast<T*>(alloc(bytes));
  }
  // Allocates a tensor in memory like that of alloc().
  OpTensor temporary(std::span<const int64_t> shape, DType dtype) const {
    opkit_tensor tensor = OpTensor().view();
    Check(host()->temporary(call_, static_cast<int32_t>(dtype), static_cast<int32_t>(shape.size()),
                            shape.data(), &tensor));
    return OpTensor(tensor);
  }
  OpTensor temporary(std::initializer_list<int64_t> shape, DType dtype) const {
    return temporary(std::span(shape.begin(), shape.size()), dtype);
  }

  // Makes an output whose shape depends on the data, in an operator with allocatesOutputs(). The
  // output must have no dtype yet, and req() must request it. Call it before forward returns, even
  // if the rest of the run is deferred. The call's list of outputs then contains the tensor. Throws
  // kInvalidArgument for any other output; kTypeMismatch if the inferred dtype differs;
  // kFailedPrecondition; kUnsupported in a program of an older ABI.
  OpTensor allocate_output(int output, std::span<const int64_t> shape, DType dtype) const {
    Need(OPKIT_ABI_HAS(host(), allocate_output), "allocate_output needs ABI 1.1");
    opkit_tensor tensor = OpTensor().view();
    Check(host()->allocate_output(call_, static_cast<uint64_t>(output), static_cast<int32_t>(dtype),
                                  static_cast<int32_t>(shape.size()), shape.data(), &tensor));
    return OpTensor(tensor);
  }
  OpTensor allocate_output(int output, std::initializer_list<int64_t> shape, DType dtype) const {
    return allocate_output(output, std::span(shape.begin(), shape.size()), dtype);
  }

  // Returns the memory declared by scratch(), undefined at the start of every run. Throws
  // kFailedPrecondition without scratch().
  void* scratch() const {
    if (!call_->scratch) [[unlikely]]
      detail::ThrowNoScratch(call_);
    return call_->scratch;
  }
  int64_t scratch_bytes() const { return call_->scratch_bytes; }

  Device device() const {
    return {static_cast<DeviceType>(call_->device_type), call_->device_index};
  }
  // Returns the stream for the operator's work: a CPUStream, or the native stream of the device;
  // null on the CPU.
  void* stream() const { return call_->stream; }
  template <class T>
  T* stream() const {
    return static_cast<T*>(call_->stream);
  }
  // Runs `work` in the order of the stream; on the CPU at once. Moves `work` with its captures to
  // the stream. Throws kUnsupported on a device that runs no host code, as do parallel_for and
  // invoke. On such a device issue work on stream().
  template <class F>
  void launch(F work) const {
    if (!call_->asynchronous) return static_cast<void>(work());
    using Work = detail::LaunchedWork<F>;
    Check(host()->launch(call_, &Work::Run, &Work::Drop, new Work{std::move(work), call_->op}));
  }
  // Calls f(i) for every i in [0, n) on the host's threads; in the order of the stream if there is
  // a stream. With opkit/backends/cuda/parallel_for.hpp in a .cu file, an OPKIT_DEVICE lambda is a
  // kernel on the stream.
  template <class F>
  void parallel_for(int64_t n, F f, int64_t grain = 0) const {
    if constexpr (requires(const OpResource& self) { IssueDeviceLoop(self, n, f); })
      IssueDeviceLoop(*this, n, f);
    else
      LoopOnHost(n, std::move(f), grain);
  }

  // Returns the generator of this run; its numbers depend on SetSeed, the operator's name and the
  // run.
  RandomGenerator& random() const {
    static_assert(sizeof(RandomGenerator) <= 7 * sizeof(uint64_t));
    uint64_t* room = const_cast<opkit_call*>(call_)->author;
    if (!room[7]) {
      room[7] = 1;
      return *new (room) RandomGenerator(random(0));
    }
    return *std::launder(reinterpret_cast<RandomGenerator*>(room));
  }
  // Returns a generator of an independent sequence, for instance for each row of a parallel loop.
  RandomGenerator random(uint64_t stream) const {
    return RandomGenerator(call_->random_seed, stream);
  }

  template <class... Parts>
  void log(LogLevel level, const Parts&... parts) const {
    host()->log(call_, static_cast<int32_t>(level), StrCat(parts...).c_str());
  }
  [[nodiscard]] OpScope scope(const char* name) const { return OpScope(call_, name); }
  // Returns the identity of this thread's work, for OpAdoption to continue it in another thread.
  Invocation invocation() const {
    opkit_invocation now{};
    host()->invocation(&now);
    return detail::FromAbi(now);
  }

  // Lets the function of an operator with async() return before its outputs are computed; the
  // holder of the handle completes the run. At most once in a call. Throws kFailedPrecondition.
  OpCompletion defer() const {
    opkit_completion* completion = nullptr;
    Check(host()->defer(call_, &completion));
    return OpCompletion(host(), completion);
  }

  // Runs another operator on these tensors and writes into the given outputs. The host keeps the
  // prepared operator from run to run. On a CPU stream the operator runs in the order of the
  // stream. Throws the errors of Invoke; kInvalidArgument if an output has another dtype or shape
  // than the result.
  //
  //   res.invoke("Add", {inputs[0], inputs[1]}, {outputs[0]});
  void invoke(std::string_view op, std::span<const OpTensor> inputs,
              std::span<const OpTensor> outputs, const Arguments& args = {}) const {
    const std::string name(op);
    const detail::AbiAttributes attributes(args);
    Check(host()->invoke(call_, name.c_str(), inputs.size(), Views(inputs), outputs.size(),
                         Views(outputs), attributes.size(), attributes.data()));
  }
  void invoke(std::string_view op, std::initializer_list<OpTensor> inputs,
              std::initializer_list<OpTensor> outputs, const Arguments& args = {}) const {
    invoke(op, std::span(inputs.begin(), inputs.size()), std::span(outputs.begin(), outputs.size()),
           args);
  }
  // Runs another operator like invoke, but on the host's threads, in parallel to the caller's own
  // code. A pool of one thread runs the operator at once; a stream runs it in the stream's order.
  // Wait throws the Error of the started operator. Without a Wait the calling operator fails with
  // this Error. The started operator always ends before the calling operator. Throws like invoke
  // for errors before the run; kUnsupported in a program of an older ABI.
  //
  //   const OpPending sum = res.invoke_async("Add", {inputs[0], inputs[1]}, {outputs[0]});
  //   …
  //   sum.Wait();
  OpPending invoke_async(std::string_view op, std::span<const OpTensor> inputs,
                         std::span<const OpTensor> outputs, const Arguments& args = {}) const {
    Need(OPKIT_ABI_HAS(host(), wait), "invoke_async needs ABI 1.2");
    const std::string name(op);
    const detail::AbiAttributes attributes(args);
    opkit_pending* pending = nullptr;
    Check(host()->invoke_async(call_, name.c_str(), inputs.size(), Views(inputs), outputs.size(),
                               Views(outputs), attributes.size(), attributes.data(), &pending));
    return OpPending(call_, pending);
  }
  OpPending invoke_async(std::string_view op, std::initializer_list<OpTensor> inputs,
                         std::initializer_list<OpTensor> outputs,
                         const Arguments& args = {}) const {
    return invoke_async(op, std::span(inputs.begin(), inputs.size()),
                        std::span(outputs.begin(), outputs.size()), args);
  }

  // Runs a graph that the operator's node carries (OpContext::node), or a part of a graph, in the
  // program. Useful for nodes that an operator has accepted but cannot run itself. Inputs and
  // outputs are matched by position; the results are written to the given tensors. The host
  // prepares the graph once; on a CPU stream the graph runs in the order of the stream. Throws the
  // errors of the graph's operators, and in its first run those of Compile; kInvalidArgument if
  // tensors do not fit; kUnsupported in a program of an older ABI and off the CPU.
  void run_graph(const opkit_graph& graph, std::span<const OpTensor> inputs,
                 std::span<const OpTensor> outputs) const {
    Need(OPKIT_ABI_HAS(host(), run_graph), "run_graph needs ABI 1.3");
    Check(host()->run_graph(call_, &graph, inputs.size(), Views(inputs), outputs.size(),
                            Views(outputs)));
  }

 private:
  template <class F>
  void LoopOnHost(int64_t n, F f, int64_t grain) const {
    static_assert(std::is_invocable_v<F&, int64_t>,
                  "parallel_for: the body must be callable as f(int64_t index)");
    if (!call_->asynchronous) return detail::RunHostLoop(host(), call_, n, grain, f);
    launch([n, f = std::move(f), grain, host = host()]() mutable {
      detail::RunHostLoop(host, static_cast<const opkit_call*>(nullptr), n, grain, f);
    });
  }
  static const opkit_tensor* Views(std::span<const OpTensor> tensors) {
    return tensors.empty() ? nullptr : &tensors.data()->view();
  }
  const opkit_host* host() const { return call_->host; }
  // Throws kUnsupported if the program's older ABI lacks a function.
  void Need(bool has, const char* what) const {
    if (!has)
      Throw(ErrorCode::kUnsupported, what, "; this program has ", host()->abi_major, ".",
            host()->abi_minor);
  }
  void Check(opkit_status status) const { detail::AcceptAnswer(status, host()); }

  const opkit_call* call_;
};

}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_OP_RESOURCE_HPP_
