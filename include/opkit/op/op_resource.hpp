// OpResource: what a function operator gets from its host: memory, scratch, threads, the stream,
// random numbers, logging, sub-events, and every other operator by name.
#ifndef OPKIT_OP_OP_RESOURCE_HPP_
#define OPKIT_OP_OP_RESOURCE_HPP_

#include "opkit/engine/parallel_for.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/op_tensor.hpp"
#include "opkit/op/random.hpp"

namespace opkit::inline OPKIT_ABI {

enum class LogLevel : uint8_t { kInfo, kWarning, kError };
inline const char* ToString(LogLevel level) {
  constexpr const char* kNames[] = {"info", "warning", "error"};
  return kNames[static_cast<int>(level)];
}
// Where operators' log lines go. Called from any thread.
using LogHook = void (*)(LogLevel level, std::string_view op, std::string_view text);

namespace detail {

inline void LogToStderr(LogLevel level, std::string_view op, std::string_view text) {
  std::fprintf(stderr, "opkit %s: %.*s: %.*s\n", ToString(level), static_cast<int>(op.size()),
               op.data(), static_cast<int>(text.size()), text.data());
}
inline constinit std::atomic<LogHook> g_log_hook{&LogToStderr};

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

// What the handles of one operator share.
struct ResourceState {
  std::string_view op;
  Device device;
  bool asynchronous = false;
  void* stream = nullptr;
  void* context = nullptr;
  void (*launch)(void* context, UniqueFunction<void()> work) = nullptr;
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
  uint64_t random_key = 0, run = 0;
  bool random_drawn = false;
  RandomGenerator random;
  Mutex mutex;  // guards `memory`
  std::vector<Storage> memory;
  std::vector<IntrusivePtr<TensorSlot>> temporaries;
  std::vector<IntrusivePtr<InvokedOperator<ResolvedOperator>>> invoked;

  uint64_t RandomSeedOfRun() const {
    return MixBits(g_random_seed.seed.load(std::memory_order_relaxed) ^ random_key) + run;
  }
};

template <class View>
Tensor ToTensor(const View& view) {
  if (!view.has_value()) return {};
  if (view.tensor()) return *view.tensor();
  int64_t last = 0;
  for (int i = 0; i < view.rank(); ++i)
    last += view.dim(i) > 0 ? (view.dim(i) - 1) * view.stride(i) : 0;
  return Tensor(AdoptStorage(MemoryDevice(view.device()), view.raw_data(),
                             (last + 1) * ItemSize(view.dtype())),
                0, Shape(view.shape()), view.dtype(), Dims(view.strides()));
}

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

}  // namespace detail

// Replaces the log hook and returns the one before; null goes back to stderr.
inline LogHook SetLogHook(LogHook hook) {
  return detail::g_log_hook.exchange(hook ? hook : &detail::LogToStderr, std::memory_order_acq_rel);
}

// A named part of an operator's own code, for the scope's life: work in it has an identity of its
// own, below the operator's.
class OpScope {
 public:
  explicit OpScope(const char* name) : scope_(InvocationKind::kUserCode), name_(name) {}
  const char* name() const { return name_; }

 private:
  InvocationScope scope_;
  const char* name_;
};

// A handle, copied freely, valid during the call it was given to. Members may be called from any
// thread of the call, except invoke(), temporary() and random(). A template, so that only what is
// called is compiled.
template <class State>
class BasicOpResource {
 public:
  explicit BasicOpResource(State* state) : state_(state) {}

  // `bytes` bytes of the device's memory, aligned to 64; each call its own. Freed when the operator
  // ends, also when it fails; on an asynchronous device when the stream has come past it. Null for
  // 0 bytes. Errors: kInvalidArgument, kOutOfMemory.
  void* alloc(int64_t bytes) const {
    if (bytes < 0)
      Throw(ErrorCode::kInvalidArgument, "alloc(", bytes, ") in operator ", state_->op);
    Storage storage = AllocateStorage(MemoryDevice(state_->device), bytes);
    void* data = storage->data();
    detail::MutexLock lock(state_->mutex);
    state_->memory.push_back(std::move(storage));
    return data;
  }
  template <class T>
  T* alloc(int64_t count) const {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(count, int64_t{sizeof(T)}, &bytes))
      Throw(ErrorCode::kOutOfRange, "alloc of ", count, " elements in operator ", state_->op);
    return static_cast<T*>(alloc(bytes));
  }
  // A tensor in such memory.
  OpTensor temporary(std::span<const int64_t> shape, DType dtype) const {
    auto slot = detail::MakeIntrusive<detail::TensorSlot>();
    slot->tensor = Tensor(Shape(shape), dtype, MemoryDevice(state_->device));
    slot->Bind(OpReq::kWrite);
    state_->temporaries.push_back(std::move(slot));
    return state_->temporaries.back()->view;
  }
  OpTensor temporary(std::initializer_list<int64_t> shape, DType dtype) const {
    return temporary(std::span(shape.begin(), shape.size()), dtype);
  }

  // The memory declared by setScratch, undefined at the start of every run; null without.
  void* scratch() const { return state_->scratch; }
  int64_t scratch_bytes() const { return state_->scratch_bytes; }

  Device device() const { return state_->device; }
  // The CPUStream or the cudaStream_t that work goes to; null on the CPU.
  void* stream() const { return state_->stream; }
  template <class T>
  T* stream() const {
    return static_cast<T*>(state_->stream);
  }
  // Runs `work` at its place in the stream; on the CPU, now. What it captures is copied.
  template <class F>
  void launch(F work) const {
    if (!state_->launch) NotOnThisDevice("launch");
    if (!state_->asynchronous) return state_->launch(state_->context, std::move(work));
    state_->launch(
        state_->context, [work = std::move(work), op = std::string(state_->op)]() mutable {
          try {
            work();
          } catch (const Error&) {
            throw;
          } catch (const std::exception& thrown) {
            Error error(ErrorCode::kOperatorFailed,
                        StrCat("work that operator ", op, " launched threw: ", thrown.what()));
            error.SetCause(std::current_exception());
            throw error;
          }
        });
  }
  // f(i) for every i in [0, n) on the host's threads; at its place in the stream where there is
  // one.
  template <class F>
  void parallel_for(int64_t n, F f, int64_t grain = kAutoGrain) const {
    static_assert(IndexBody<F>, "parallel_for: the body must be callable as f(int64_t index)");
    if (!state_->asynchronous) return ParallelFor(n, f, grain);
    if (!state_->launch || !IsHostAccessible(state_->device.type)) NotOnThisDevice("parallel_for");
    launch([n, f = std::move(f), grain]() mutable { ParallelFor(n, f, grain); });
  }

  // One sequence for each run, whose numbers SetSeed and the operator's name decide.
  RandomGenerator& random() const {
    if (!state_->random_drawn) state_->random = random(0);
    state_->random_drawn = true;
    return state_->random;
  }
  // Independent sequences, for instance one for each row of a parallel loop.
  RandomGenerator random(uint64_t stream) const {
    return RandomGenerator(state_->RandomSeedOfRun(), stream);
  }

  template <class... Parts>
  void log(LogLevel level, const Parts&... parts) const {
    detail::g_log_hook.load(std::memory_order_acquire)(level, state_->op, StrCat(parts...));
  }
  [[nodiscard]] OpScope scope(const char* name) const { return OpScope(name); }

  // Runs another operator on these tensors, writing into the outputs given. Kept ready from one run
  // to the next. On a CPU stream it runs at its place in the stream. Errors: as Invoke;
  // kInvalidArgument when an output has another dtype or shape than the result.
  //
  //   res.invoke("Add", {inputs[0], inputs[1]}, {outputs[0]});
  void invoke(std::string_view op, std::span<const OpTensor> inputs,
              std::span<const OpTensor> outputs, Arguments args = {}) const {
    std::vector<Tensor> ins, outs;
    for (const OpTensor& input : inputs) ins.push_back(detail::ToTensor(input));
    for (const OpTensor& output : outputs) outs.push_back(detail::ToTensor(output));
    if (!state_->asynchronous) {
      detail::RunInto(Resolve(op, ins, outs.size(), args), op, ins, outs);
    } else if (state_->launch && IsHostAccessible(state_->device.type)) {
      launch([op = std::string(op), ins = std::move(ins), outs = std::move(outs),
              args = std::move(args)] {
        ResolvedOperator resolved(op, Present(ins), args, Options(outs.size(), Device{}));
        detail::RunInto(resolved, op, ins, outs);
      });
    } else {
      NotOnThisDevice("invoke");
    }
  }
  void invoke(std::string_view op, std::initializer_list<OpTensor> inputs,
              std::initializer_list<OpTensor> outputs, Arguments args = {}) const {
    invoke(op, std::span(inputs.begin(), inputs.size()), std::span(outputs.begin(), outputs.size()),
           std::move(args));
  }

 private:
  static std::vector<bool> Present(const std::vector<Tensor>& tensors) {
    std::vector<bool> present;
    for (const Tensor& tensor : tensors) present.push_back(tensor.dtype() != DType::kUndefined);
    return present;
  }
  static InvokeOptions Options(size_t num_outputs, Device device) {
    InvokeOptions options;
    options.device = device;
    options.num_outputs = static_cast<int>(num_outputs);
    return options;
  }
  ResolvedOperator& Resolve(std::string_view op, const std::vector<Tensor>& inputs,
                            size_t num_outputs, const Arguments& args) const {
    std::vector<bool> present = Present(inputs);
    for (const auto& known : state_->invoked)
      if (known->op == op && known->args == args && known->present == present &&
          static_cast<size_t>(known->resolved.op().OutputSize()) == num_outputs)
        return known->resolved;
    state_->invoked.push_back(detail::MakeIntrusive<detail::InvokedOperator<ResolvedOperator>>(
        std::string(op), present, args, Options(num_outputs, state_->device)));
    return state_->invoked.back()->resolved;
  }
  [[noreturn]] OPKIT_COLD void NotOnThisDevice(const char* what) const {
    Throw(ErrorCode::kUnsupported, what, " in operator ", state_->op, " is not possible on ",
          state_->device, "; issue the work on stream() yourself");
  }

  State* state_;
};
using OpResource = BasicOpResource<detail::ResourceState>;

}  // namespace opkit

#endif  // OPKIT_OP_OP_RESOURCE_HPP_
