// Runs the operators of a library's registries for its host, and describes them.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_OPERATORS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_OPERATORS_IPP_

#include <list>
#include <optional>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/own_names.hpp"
#include "opkit/core/layout_hooks.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/device/native_stream.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/boundary/convert/abi_config.hpp"
#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/op/boundary/convert/op_conversion.hpp"
#include "opkit/op/boundary/host/program_host.hpp"
#include "opkit/op/call/bound_operator.hpp"
#include "opkit/op/call/direct_call.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/gradient/gradient_hook.hpp"
#include "opkit/plugin/export/export_operators.hpp"
#include "opkit/plugin/export/host_memory.hpp"
#include "opkit/plugin/export/host_spans.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The thread that runs tasks, other than loops, of the library's operators: a second pool would
// take CPUs from the host's. Ended before the library is unloaded.
struct ExportThreads {
  Mutex mutex;
  std::atomic<ThreadPool*> pool{nullptr};
  void (*finalize)() = nullptr;  // the author's function
  bool described = false;        // true from the description to a host until finalize
};
inline OPKIT_IMAGE_LOCAL constinit ExportThreads g_export_threads;
inline OPKIT_IMAGE_LOCAL ThreadPool& LibraryPool() {
  ExportThreads& threads = g_export_threads;
  if (ThreadPool* pool = threads.pool.load(std::memory_order_acquire)) [[likely]]
    return *pool;
  MutexLock lock(threads.mutex);
  if (!threads.pool) threads.pool = new ThreadPool(1, "opkit-library");
  return *threads.pool;
}
OPKIT_COLD inline OPKIT_IMAGE_LOCAL void EndLibraryPool() {
  ExportThreads& threads = g_export_threads;
  const struct End {  // runs also if the author's function throws
    ~End() {
      delete g_export_threads.pool.exchange(nullptr);
      g_export_threads.described = false;
    }
  } end;
  if (threads.finalize) threads.finalize();
}
// Runs this image's loops on the host's threads.
struct OPKIT_IMAGE_LOCAL HostLoops : LoopRunner {
  HostLoops() : LoopRunner{&RunOnHost} {}

 private:
  // Gives the thread the pool that it had before the operator's run. The host may share this
  // variable.
  struct OuterPool {
    explicit OuterPool(ThreadPool* outer) : own(std::exchange(t_pool.pool, outer)) {}
    OuterPool(const OuterPool&) = delete;
    ~OuterPool() { t_pool.pool = own; }
    ThreadPool* const own;
  };
  static void RunOnHost(const LoopRunner& self, int64_t n, int64_t grain, RangeFunction body) {
    const OuterPool pool(static_cast<const HostLoops&>(self).pool_);
    RunHostRanges(g_host, nullptr, n, grain, [&](int64_t begin, int64_t end) {
      const LoopRunnerScope nested(&self);
      body(begin, end);
    });
  }

  ThreadPool* const pool_ = t_pool.pool;
};
// The host's call in which this thread runs an operator; null outside.
OPKIT_IMAGE_LOCAL inline constinit thread_local const opkit_call* t_host_call = nullptr;
// Sets t_host_call for its own life.
class OPKIT_IMAGE_LOCAL HostCallScope {
 public:
  explicit HostCallScope(const opkit_call* call) : outer_(std::exchange(t_host_call, call)) {}
  HostCallScope(const HostCallScope&) = delete;
  HostCallScope& operator=(const HostCallScope&) = delete;
  ~HostCallScope() { t_host_call = outer_; }

 private:
  const opkit_call* const outer_;
};

// The library's operator behind one operator of the host, and the tensors that it reads and writes.
// A typed operator on the CPU is called directly, as a program's Invoke calls it. Any other
// operator is bound to a workspace.
class OPKIT_IMAGE_LOCAL ExportedInstance : public RefCounted {
 public:
  // `config` is null if the host has chosen no configuration.
  ExportedInstance(const Kernel& kernel, const opkit_node& node, const KernelConfig* config)
      : def_(DefinitionOfAbi(&node)),
        registered_(StrCat("registered at ", kernel.Place())),
        shared_inputs_(def_.outputs().size(), -1) {
    const OpSchema& schema = OpRegistry::Global().GetSchema(kernel.op);
    def_.Backends("");  // the host has chosen the kernel
    for (size_t o = 0; o < shared_inputs_.size(); ++o) NameOutput(schema, o);
    const PoolScope threads(LibraryPool());
    if (!kernel.typed || kernel.make_typed) {
      bound_ = g_bind_operator(kernel, def_, config);
      return;
    }
    const RegistryUse use;
    CheckNode(OpRegistry::Global().GetSchema(def_.type()), def_);
    CheckIsFor(kernel, def_);
    call_ = std::make_unique<DirectCall>(kernel, schema, def_);
    inputs_.resize(def_.inputs().size());
    outputs_.resize(def_.outputs().size());
  }

  // Runs the operator, at its place in the host's stream if there is one. A CPU stream waits for
  // the operator; on a native stream the operator issues its work.
  void Run(const opkit_call* call) {
    const Device device = def_.device();
    if (!call->asynchronous) {
      Forward(call);
    } else if (IsHostAccessible(device.type)) {
      OpResource(call).launch(
          [run = MakeIntrusive<LaunchedRun>(this, call)] { run->instance->Forward(&run->call); });
    } else {
      FindNativeStreams(device.type)(device, call->stream, [&] { Forward(call); });
    }
  }

 private:
  void Forward(const opkit_call* call) {
    const size_t num_inputs = def_.inputs().size(), num_outputs = def_.outputs().size();
    for (size_t i = 0; i < num_inputs; ++i)
      if (Tensor* const place = InputPlace(i))
        Bind(*place, *opkit_input(call, i), InputLayout(call, i));
    for (size_t o = 0; o < num_outputs; ++o)
      if (!def_.outputs()[o].empty()) BindOutput(call, o);
    RunOperator(call);
    for (size_t o = 0; o < num_outputs; ++o)
      if (!def_.outputs()[o].empty()) Deliver(call, o);
  }
  Tensor* InputPlace(size_t i) {
    if (bound_.bound) return bound_.input(*bound_.bound, i);
    return def_.inputs()[i].empty() ? nullptr : &inputs_[i];
  }

  // Gives output o a name of its own, or the name of the input in whose place it must be.
  void NameOutput(const OpSchema& schema, size_t o) {
    std::string& name = def_.mutable_outputs()[o];
    if (name.empty()) return;
    for (size_t i = 0; i < def_.inputs().size(); ++i) {
      const std::string& input = def_.inputs()[i];
      if (input.empty() || !schema.MustInplace(static_cast<int>(i), static_cast<int>(o))) continue;
      shared_inputs_[o] = static_cast<int>(i);
      name = input;
      return;
    }
    while (Contains(def_.inputs(), name)) name += "_out";
  }

  // True if `tensor` is the view already, so that no new tensor is needed.
  static bool IsView(const Tensor& tensor, const opkit_tensor& view, const char* layout) {
    if (layout) [[unlikely]]
      return tensor.raw_data() == view.data && tensor.storage() &&
             tensor.dtype() == static_cast<DType>(view.dtype) &&
             tensor.layout() == LayoutOfAbi(layout) &&
             tensor.shape() == Shape(Dims(view.shape, static_cast<size_t>(view.rank)));
    return tensor.Is(view.data, static_cast<DType>(view.dtype), view.shape, view.rank) &&
           tensor.storage() && OpTensor(view).is_dense();
  }
  static const char* InputLayout(const opkit_call* call, size_t i) {
    return OPKIT_ABI_HAS(call, input_layouts) && call->input_layouts ? call->input_layouts[i]
                                                                     : nullptr;
  }
  static const char* OutputLayout(const opkit_call* call, size_t o) {
    return OPKIT_ABI_HAS(call, output_layouts) && call->output_layouts ? call->output_layouts[o]
                                                                       : nullptr;
  }
  static void Bind(Tensor& tensor, const opkit_tensor& view, const char* layout) {
    if (IsView(tensor, view, layout)) [[likely]]
      return;
    tensor = view.dtype == OPKIT_UNDEFINED ? Tensor() : TensorInLayout(view, layout);
  }
  void BindOutput(const opkit_call* call, size_t o) {
    const opkit_tensor& view = *opkit_output(call, o);
    const int shared = shared_inputs_[o];
    if (shared >= 0 && view.dtype != OPKIT_UNDEFINED) {
      const opkit_tensor& in = *opkit_input(call, static_cast<uint64_t>(shared));
      if (view.data != in.data) {
        const Tensor source = TensorOfView(in);
        CheckResult(o, source, view, "must be in place of an input that");
        if (view.data) CopyElements(source, TensorOfView(view), call->stream);
      }
    }
    if (bound_.bound) {
      if (shared < 0 || view.dtype != OPKIT_UNDEFINED)
        Bind(*bound_.output(*bound_.bound, o), view, OutputLayout(call, o));
      return;
    }
    if (shared < 0 || view.dtype != OPKIT_UNDEFINED) Bind(outputs_[o], view, OutputLayout(call, o));
    if (shared < 0) return;
    Tensor& input = inputs_[Index(shared)];
    view.dtype == OPKIT_UNDEFINED ? outputs_[o] = input : input = outputs_[o];
  }
  void RunOperator(const opkit_call* call) {
    const HostLoops loops;
    const PoolScope threads(LibraryPool());
    const LoopRunnerScope on_host(&loops);
    const HostCallScope of_host(call);
    std::optional<HostSpans::Known> known;
    if (HostSpans::Follow()) [[unlikely]]
      known.emplace(def_.type());
    try {
      if (call_) return call_->Run(inputs_, outputs_);
      bound_.run(*bound_.bound, call->scratch, call->scratch ? call->scratch_bytes : 0,
                 call->asynchronous);
    } catch (const Error& error) {
      RethrowForHost(error);
    }
  }
  // Throws the error without the lines about this operator, which the host adds itself.
  [[noreturn]] OPKIT_COLD void RethrowForHost(const Error& error) const {
    Error told(error.code(), error.message());
    for (const std::string& line : error.context()) {
      if (line.starts_with("in operator ") && line.ends_with(registered_)) break;
      told.AddContext(line);
    }
    throw told;
  }

  // Copies a result that does not lie in the host's memory to that memory.
  void Deliver(const opkit_call* call, size_t o) {
    opkit_tensor view = OpTensor(*opkit_output(call, o)).view();
    const bool is_open = view.dtype == OPKIT_UNDEFINED;
    if (is_open && view.req == OPKIT_REQ_NONE) return;
    const Tensor* const made = call_ ? &outputs_[o] : bound_.result(*bound_.bound, o);
    if (!made)
      Throw(ErrorCode::kTypeMismatch, "output ", o, " '", def_.outputs()[o], "' of operator ",
            def_.type(), " is not a tensor, which is all that a library can hand over");
    const Tensor& result = *made;
    const char* const layout = OutputLayout(call, o);
    if (IsView(result, view, layout)) [[likely]]
      return;
    if (!result.initialized())
      Throw(ErrorCode::kOperatorFailed, "operator ", def_.type(), " returned without making '",
            def_.outputs()[o], "'; get it with Output(i, shape, dtype) and write to it");
    if (is_open)
      view = OpResource(call)
                 .allocate_output(static_cast<int>(o),
                                  std::span(result.shape().data(), Index(result.rank())),
                                  result.dtype())
                 .view();
    CheckResult(o, result, view, "is");
    if (layout) {
      Tensor target = TensorInLayout(view, layout);
      g_convert_layout_to(result, target);
    } else {
      CopyElements(result, TensorOfView(view), call->stream);
    }
  }
  OPKIT_COLD void CheckResult(size_t o, const Tensor& result, const opkit_tensor& view,
                              const char* how) const {
    const Shape wanted(Dims(view.shape, static_cast<size_t>(view.rank)));
    if (static_cast<int32_t>(result.dtype()) == view.dtype && result.shape() == wanted) return;
    Throw(ErrorCode::kInvalidArgument, "output ", o, " '", def_.outputs()[o], "' of operator ",
          def_.type(), " ", how, " ", result.dtype(), result.shape(), ", but the program has ",
          static_cast<DType>(view.dtype), wanted,
          " for it; correct the schema's Infer, or write one");
  }

  // A run that the host's stream starts later: a call of its own, with copies of the data that the
  // host's call points to.
  struct LaunchedRun : RefCounted {
    IntrusivePtr<ExportedInstance> instance;
    opkit_call call;
    std::vector<opkit_tensor> inputs, outputs;
    std::vector<const char*> input_layouts, output_layouts;
    std::vector<Dims> extents;

    LaunchedRun(ExportedInstance* self, const opkit_call* from) : instance(self), call{} {
      std::memcpy(&call, from, (std::min)(from->size, uint64_t{sizeof call}));
      call.size = sizeof call;
      extents.reserve(2 * (call.num_inputs + call.num_outputs));
      for (uint64_t i = 0; i < call.num_inputs; ++i) Copy(*opkit_input(from, i), inputs);
      for (uint64_t o = 0; o < call.num_outputs; ++o) Copy(*opkit_output(from, o), outputs);
      call.inputs = inputs.data();
      call.outputs = outputs.data();
      call.asynchronous = 0;
      const auto keep = [](const char* const*& names, uint64_t count,
                           std::vector<const char*>& kept) {
        if (!names) return;
        kept.assign(names, names + count);
        names = kept.data();
      };
      keep(call.input_layouts, call.num_inputs, input_layouts);
      keep(call.output_layouts, call.num_outputs, output_layouts);
    }
    void Copy(const opkit_tensor& from, std::vector<opkit_tensor>& all) {
      const auto rank = static_cast<size_t>(from.rank);
      opkit_tensor view = OpTensor(from).view();
      view.shape = extents.emplace_back(from.shape, rank).data();
      view.strides = extents.emplace_back(from.strides, rank).data();
      all.push_back(view);
    }
  };

  OperatorDef def_;
  const std::string registered_;
  std::vector<int> shared_inputs_;  // by output: the input whose memory it must take, -1 for none
  BoundOperator bound_;             // null if call_ is set
  std::unique_ptr<DirectCall> call_;
  std::vector<Tensor> inputs_, outputs_;  // for call_
};

// Frees the registries when the library is unmapped, but not at the program's end.
struct OPKIT_IMAGE_LOCAL ExportedRegistries {
  ~ExportedRegistries() {
    if (g_export_threads.described) return;
    if (g_delete_gradients) g_delete_gradients();
    delete &OpRegistry::Global();
    if (g_delete_layout_registry) g_delete_layout_registry();
    if (g_delete_names) g_delete_names();
  }
};

// Functions of an opkit_op whose `author` is a schema, and of opkit_kernels whose `author` is a
// kernel of the registry.
struct OPKIT_IMAGE_LOCAL SchemaFunctions {
  OPKIT_COLD static void FillIn(opkit_op& op, const OpSchema& schema) {
    op.parse_attrs = &ParseAttrs;
    if (schema.has_inference()) {
      op.infer_type = &InferType;
      op.infer_shape = &InferShape;
    }
    op.mutated_inputs = &MutatedInputs;
    op.scratch_bytes = &ScratchBytes;
    if (schema.has_cost()) op.cost = &Cost;
    if (schema.has_test_inputs()) op.test_inputs = &TestInputs;
    op.author = &schema;
  }
  OPKIT_COLD static void FillIn(opkit_kernel& to, const Kernel& kernel) {
    to.create = &Create;
    if (kernel.propose) {
      to.propose = &Propose;
      to.create_for = &CreateFor;
    }
    if (kernel.fuse) to.fuse = &Fuse;
    to.destroy = &Destroy;
    to.forward = &Forward;
    to.author = &kernel;
  }

 private:
  static const OpSchema& SchemaOf(const opkit_op* op) {
    return *static_cast<const OpSchema*>(op->author);
  }
  static opkit_status Create(const opkit_kernel* kernel, const opkit_node* node, void** instance) {
    return GuardedCall([&] {
      const auto& own = *static_cast<const Kernel*>(kernel->author);
      *instance = new IntrusivePtr(new ExportedInstance(own, *node, nullptr));
    });
  }
  OPKIT_COLD static opkit_status CreateFor(const opkit_kernel* kernel, const opkit_node* node,
                                           const opkit_config* config, void** instance) {
    return GuardedCall([&] {
      const auto& own = *static_cast<const Kernel*>(kernel->author);
      const KernelConfig chosen = ConfigOfAbi(config, node->num_inputs, node->num_outputs);
      *instance = new IntrusivePtr(new ExportedInstance(own, *node, &chosen));
    });
  }
  OPKIT_COLD static opkit_status Propose(const opkit_kernel* kernel, const opkit_node* node,
                                         const opkit_value* inputs, const opkit_value* outputs,
                                         const opkit_proposals* proposals) {
    return GuardedCall([&] {
      const auto& own = *static_cast<const Kernel*>(kernel->author);
      const OperatorDef def = DefinitionOfAbi(node);
      const ValuesOfAbi ins(inputs, node->num_inputs, true), outs(outputs, node->num_outputs, true);
      for (const KernelConfig& config : own.propose({def, ins.infos(), outs.infos()})) {
        const AbiConfig abi(config, node->num_inputs, node->num_outputs);
        const opkit_status status = proposals->add(proposals, &abi.config());
        if (status != OPKIT_OK) Throw(CodeOfStatus(status), g_host->failure_text());
      }
    });
  }
  OPKIT_COLD static opkit_status Fuse(const opkit_kernel* kernel, const opkit_fusion* fusion) {
    return GuardedCall([&] {
      const auto& own = *static_cast<const Kernel*>(kernel->author);
      const opkit_node &node = *fusion->node, &next = *fusion->next;
      const OperatorDef def = DefinitionOfAbi(fusion->node),
                        next_def = DefinitionOfAbi(fusion->next);
      const ValuesOfAbi ins(fusion->inputs, node.num_inputs, true),
          outs(fusion->outputs, node.num_outputs, true),
          next_ins(fusion->next_inputs, next.num_inputs, true),
          next_outs(fusion->next_outputs, next.num_outputs, true);
      const KernelConfig config = ConfigOfAbi(fusion->config, node.num_inputs, node.num_outputs),
                         next_config =
                             ConfigOfAbi(fusion->next_config, next.num_inputs, next.num_outputs);
      const std::optional<FusedNode> made =
          own.fuse({{def, ins.infos(), outs.infos()},
                    config,
                    {next_def, next_ins.infos(), next_outs.infos()},
                    next_config,
                    static_cast<size_t>(fusion->read)});
      if (!made) return;
      const AbiNode both(made->def);
      const AbiConfig chosen(made->config, made->def.inputs().size(), made->def.outputs().size());
      const opkit_status status = fusion->fuse(fusion, &both.node(), &chosen.config());
      if (status != OPKIT_OK) Throw(CodeOfStatus(status), g_host->failure_text());
    });
  }
  static void Destroy(void* instance) {
    GuardedCall([&] { delete static_cast<IntrusivePtr<ExportedInstance>*>(instance); });
  }
  static opkit_status Forward(void* instance, const opkit_call* call) {
    return GuardedCall(
        [&] { (*static_cast<IntrusivePtr<ExportedInstance>*>(instance))->Run(call); });
  }

  OPKIT_COLD static opkit_status ParseAttrs(const opkit_op* op, const opkit_node* node,
                                            int32_t* num_inputs, int32_t* num_outputs) {
    return GuardedCall([&] {
      const OpSchema& schema = SchemaOf(op);
      const Arguments args = ArgumentsOfAbi(node->attrs, node->num_attrs);
      if (!schema.problem().empty()) return OpStatus::Failure(schema.problem());
      if (std::string why = schema.VerifyArguments(args); !why.empty())
        return OpStatus::Failure(why);
      const auto [inputs, outputs] = schema.Arity(args);
      *num_inputs = inputs;
      *num_outputs = outputs;
      return OpStatus();
    });
  }

  static void Infer(const OpSchema& schema, const opkit_node* node, opkit_value* inputs,
                    opkit_value* outputs, bool types, bool with_shapes) {
    OperatorDef def = DefinitionOfAbi(node);
    const ValuesOfAbi ins(inputs, node->num_inputs, with_shapes);
    const ValuesOfAbi outs(outputs, node->num_outputs, with_shapes);
    InferenceContext context(def, ins.infos(), outs.infos());
    schema.Infer(context);
    for (const auto& [infos, values] :
         {std::pair(&context.inputs(), inputs), std::pair(&context.outputs(), outputs)})
      types ? ValuesOfAbi::StoreTypes(*infos, values) : ValuesOfAbi::StoreShapes(*infos, values);
  }
  // Infers dtypes without shapes if inference with shapes fails: infer_shape reports wrong shapes.
  static opkit_status InferType(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                                opkit_value* outputs) {
    return GuardedCall([&] {
      const OpSchema& schema = SchemaOf(op);
      try {
        Infer(schema, node, inputs, outputs, true, true);
      } catch (...) {
        const std::exception_ptr failure = std::current_exception();
        try {
          Infer(schema, node, inputs, outputs, true, false);
        } catch (...) {
          std::rethrow_exception(failure);
        }
      }
    });
  }
  static opkit_status InferShape(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                                 opkit_value* outputs) {
    return GuardedCall([&] { Infer(SchemaOf(op), node, inputs, outputs, false, true); });
  }
  OPKIT_COLD static opkit_status MutatedInputs(const opkit_op* op, const opkit_node* node,
                                               uint8_t* mutated) {
    return GuardedCall([&] {
      for (const int input : SchemaOf(op).MutatedInputs(DefinitionOfAbi(node))) {
        if (input < 0 || static_cast<uint64_t>(input) >= node->num_inputs)
          return OpStatus::Failure("MutatesInputs of its schema names input ", input,
                                   ", but the node has ", node->num_inputs);
        mutated[input] = 1;
      }
      return OpStatus();
    });
  }
  OPKIT_COLD static opkit_status Cost(const opkit_op* op, const opkit_node* node,
                                      const opkit_value* inputs, const opkit_value* outputs,
                                      opkit_cost* cost) {
    return GuardedCall([&] {
      const ValuesOfAbi ins(inputs, node->num_inputs, true), outs(outputs, node->num_outputs, true);
      const OpCost said = SchemaOf(op).Cost(DefinitionOfAbi(node), ins.infos(), outs.infos());
      cost->flops = said.flops;
      cost->bytes_read = said.bytes_read;
      cost->bytes_written = said.bytes_written;
      cost->params_bytes = said.params_bytes;
    });
  }
  OPKIT_COLD static opkit_status TestInputs(const opkit_op* op, int32_t dtype, uint64_t seed,
                                            const opkit_test_inputs* inputs) {
    return GuardedCall([&] {
      for (const Tensor& one : SchemaOf(op).MakeTestInputs(static_cast<DType>(dtype), seed)) {
        const AbiAttributes tensor(Arguments{{"input", one}});
        const opkit_status status = inputs->add(inputs, (*tensor.data())->tensors[0]);
        if (status != OPKIT_OK) Throw(CodeOfStatus(status), g_host->failure_text());
      }
    });
  }
  // Computes the largest scratch of the device's kernels, each by its first proposed configuration
  // in standard layouts: the host does not name the kernel that it will run.
  OPKIT_COLD static opkit_status ScratchBytes(const opkit_op* op, const opkit_node* node,
                                              const opkit_value* inputs, int64_t* bytes) {
    return GuardedCall([&] {
      const OpSchema& schema = SchemaOf(op);
      *bytes = 0;
      const OperatorDef def = DefinitionOfAbi(node);
      const ValuesOfAbi ins(inputs, node->num_inputs, true);
      std::optional<std::vector<TensorInfo>> outs;
      for (const Kernel* kernel :
           OpRegistry::Global().FindKernels(schema.name(), def.device().type)) {
        if (!kernel->propose) continue;
        if (!outs) outs = schema.InferOutputs(def, ins.infos());
        try {
          for (const KernelConfig& config : kernel->propose({def, ins.infos(), *outs})) {
            if (!config.input_layouts.empty() || !config.output_layouts.empty()) continue;
            *bytes = (std::max)(*bytes, config.scratch_bytes);
            break;
          }
        } catch (const UnsupportedOperatorFeature&) {  // reported when the operator is created
        }
      }
    });
  }
};

OPKIT_COLD OPKIT_IMAGE_LOCAL inline void ReadKernels(const OpSchema& schema,
                                                     FunctionOpRecord& record) {
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(schema.name())) {
    if (!IsHostAccessible(kernel->device) && !FindNativeStreams(kernel->device) &&
        kernel->device < DeviceType::kFirstUserDevice)
      Throw(ErrorCode::kUnsupported, "operator ", schema.name(), " has a kernel for ",
            kernel->device,
            " that cannot issue work on its host's streams: include the header of the backend in "
            "the library (opkit/backends/<its name>/context.hpp), or call RegisterNativeStreams "
            "for a device of your own (at ",
            kernel->Place(), ")");
    FunctionDevice& device = record.devices.emplace_back();
    device.name = ToString(kernel->device);
    if (kernel->backend != kReferenceBackend) device.backend = kernel->backend;
    SchemaFunctions::FillIn(device.abi, *kernel);
  }
}
// Returns a record of a registered operator, like those of REGISTER_OP.
OPKIT_COLD OPKIT_IMAGE_LOCAL inline FunctionRecord ReadSchema(const OpSchema& schema) {
  FunctionRecord record(new FunctionOpRecord);
  record->name = schema.name();
  record->doc = schema.doc();
  record->file = schema.file();
  record->line = schema.line();
  // OPKIT_OP_EFFECTS protects the node from hosts that do not know OPKIT_OP_KEEPS_STATE.
  const bool keeps = schema.is_stateful() && !schema.runs_may_differ();
  record->flags = OPKIT_OP_ALLOCATES_OUTPUTS |  // a class makes outputs that inference leaves open
                  (schema.is_stateful() ? OPKIT_OP_EFFECTS : 0) |
                  (keeps ? OPKIT_OP_KEEPS_STATE : 0) |
                  (schema.needs_subgraph() ? OPKIT_OP_SUBGRAPH : 0) |
                  (schema.unknown_args_allowed() ? OPKIT_OP_OPEN_ATTRS : OPKIT_OP_CLOSED_ATTRS);
  SchemaFunctions::FillIn(record->abi, schema);
  if (g_read_gradient)
    g_read_gradient(*record);
  else if (g_has_gradient && g_has_gradient(record->name))
    Throw(ErrorCode::kFailedPrecondition, "the gradient of operator ", record->name,
          " is not handed over: include both opkit/op.hpp and opkit/graph.hpp in the unit that "
          "registers it");
  ReadKernels(schema, *record);
  // Adds the in-place pairs of the first values: a schema decides each pair by a function.
  constexpr int kMost = 16;
  for (int i = 0; i < (std::min)(schema.max_inputs(), kMost); ++i)
    for (int o = 0; o < (std::min)(schema.max_outputs(), kMost); ++o)
      if (schema.CanInplace(i, o)) record->inplace.emplace_back(i, o);
  record->attributes = schema.attributes();
  record->inputs = schema.inputs();
  record->outputs = schema.outputs();
  return record;
}

// Describes a backend of the library's kernels to the host: its rank and availability.
struct OPKIT_IMAGE_LOCAL ExportedBackend : RefCounted {
  explicit ExportedBackend(std::string its_name) : name(std::move(its_name)) {
    abi.size = sizeof abi;
    abi.name = name.c_str();
    abi.rank = OpRegistry::Global().BackendRank(name);
    if (OpRegistry::Global().HasAvailability(name)) abi.available = &Available;
    abi.author = this;
  }
  static opkit_status Available(const opkit_backend* backend) {
    return GuardedCall([&] {
      Kernel kernel;
      kernel.backend = static_cast<const ExportedBackend*>(backend->author)->name;
      if (std::string why = OpRegistry::Global().WhyUnavailable(kernel); !why.empty())
        return OpStatus::Failure(why);
      return OpStatus();
    });
  }

  const std::string name;
  opkit_backend abi{};
};
OPKIT_COLD OPKIT_IMAGE_LOCAL inline void AddBackends(const std::vector<FunctionRecord>& records,
                                                     LibraryContents& contents) {
  std::vector<std::string> names;
  for (const FunctionRecord& record : records)
    for (const FunctionDevice& device : record->devices)
      if (!device.backend.empty() && !Contains(names, device.backend)) {
        names.push_back(device.backend);
        AddExported<ExportedBackend>(contents, contents.backends, device.backend);
      }
}

OPKIT_COLD OPKIT_INLINE void AddRegisteredOperators(std::vector<FunctionRecord>& records) {
  if (IsProgramHost(g_host)) return;
  static const ExportedRegistries registries;
  HostMemory::Use();
  HostSpans::Use();
  if (const auto problems = CheckRegistrations(); !problems.empty())
    Throw(ErrorCode::kInvalidArgument, problems[0]);
  LibraryContents& contents = ThisLibrary();
  if (contents.finalize != &EndLibraryPool)
    g_export_threads.finalize = std::exchange(contents.finalize, &EndLibraryPool);
  for (const std::string& name : RegisteredOperators()) {
    const OpSchema& schema = OpRegistry::Global().GetSchema(name);
    if (!schema.is_internal()) records.push_back(ReadSchema(schema));
  }
  AddBackends(records, contents);
  g_export_threads.described = true;
}

}  // namespace detail

OPKIT_COLD OPKIT_INLINE void InvokeOnHost(std::string_view op, const std::vector<Tensor>& inputs,
                                          const std::vector<Tensor>& outputs,
                                          const Arguments& args) {
  if (!detail::t_host_call)
    Throw(ErrorCode::kFailedPrecondition, "InvokeOnHost(\"", op,
          "\") is called in a thread that runs no operator of a library; a program's own operator "
          "calls Invoke");
  std::list<Dims> strides;
  const auto views = [&](const std::vector<Tensor>& tensors) {
    std::vector<OpTensor> all;
    for (const Tensor& tensor : tensors) {
      strides.push_back(tensor.strides());
      all.emplace_back(tensor.raw_mutable_data(), tensor.dtype(), tensor.shape().data(),
                       strides.back().data(), tensor.rank(), tensor.device());
    }
    return all;
  };
  OpResource(detail::t_host_call).invoke(op, views(inputs), views(outputs), args);
}

}}  // namespace opkit

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_OPERATORS_IPP_
