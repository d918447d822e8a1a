// Runs one operator of a library's registries for its host.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORTED_INSTANCE_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORTED_INSTANCE_IPP_

#include <optional>

#include "opkit/base/algorithm.hpp"
#include "opkit/core/layout_hooks.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/device/native_stream.hpp"
#include "opkit/op/boundary/convert/abi_config.hpp"
#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/op/call/bound_operator.hpp"
#include "opkit/op/call/direct_call.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/plugin/export/host_spans.hpp"
#include "opkit/plugin/export/impl/export_threads.ipp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The library's operator behind one operator of the host, with the tensors that the operator reads
// and writes. A typed operator on the CPU is called directly, as a program's Invoke calls it. Any
// other operator is bound to a workspace.
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

  // Runs the operator. If the host has a stream, runs it in the order of the stream: a CPU stream
  // waits for the operator; on a native stream the operator only issues its work.
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

  // Gives output o its own name, or the name of the input whose memory it must use.
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
    return tensor.IsDenseAt(view.data, static_cast<DType>(view.dtype), view.shape, view.rank) &&
           tensor.storage() && OpTensor(view).is_dense();
  }
  static const char* InputLayout(const opkit_call* call, size_t i) {
    const bool has = OPKIT_ABI_HAS(call, input_layouts) && call->input_layouts;
    return has ? call->input_layouts[i] : nullptr;
  }
  static const char* OutputLayout(const opkit_call* call, size_t o) {
    const bool has = OPKIT_ABI_HAS(call, output_layouts) && call->output_layouts;
    return has ? call->output_layouts[o] : nullptr;
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
    Tensor& output = bound_.bound ? *bound_.output(*bound_.bound, o) : outputs_[o];
    if (shared < 0 || view.dtype != OPKIT_UNDEFINED) Bind(output, view, OutputLayout(call, o));
    if (bound_.bound || shared < 0) return;
    Tensor& input = inputs_[Index(shared)];
    view.dtype == OPKIT_UNDEFINED ? output = input : input = output;
  }
  void RunOperator(const opkit_call* call) {
    const HostLoops loops;
    const PoolScope threads(LibraryPool());
    const ScopedValue on_host(t_loop_runner, &loops);
    const ScopedValue of_host(t_host_call, call);
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
  // Throws the error without the lines about this operator, because the host adds such lines
  // itself.
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

  // A run that the host's stream starts later. It has its own call, with copies of the data to
  // which the host's call points.
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
  std::vector<int> shared_inputs_;  // by output: the input whose memory it must use; -1: none
  BoundOperator bound_;             // null if call_ is set
  std::unique_ptr<DirectCall> call_;
  std::vector<Tensor> inputs_, outputs_;  // tensors of call_
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORTED_INSTANCE_IPP_
