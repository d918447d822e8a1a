// Imports the operators of a loaded library into its host: they become records like those of
// REGISTER_OP, with functions that call the library's. Included by the definitions of library.hpp.
#ifndef OPKIT_PLUGIN_LOAD_LIBRARY_OPS_HPP_
#define OPKIT_PLUGIN_LOAD_LIBRARY_OPS_HPP_

#include <algorithm>
#include <list>
#include <memory>
#include <optional>

#include "opkit/graph/abi_graph.hpp"
#include "opkit/graph/plan/fusion.hpp"
#include "opkit/op/boundary/convert/abi_config.hpp"
#include "opkit/op/boundary/convert/op_conversion.hpp"
#include "opkit/op/function/function_calls.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "opkit/plugin/load/finalizers.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Calls a function of a library. Throws an Error that begins with `what` if the function reports a
// failure.
template <class Call, class... What>
void AskLibrary(const std::string& library, Call call, const What&... what) {
  const RegistryUse use;
  HostErrorScope message;
  const opkit_status status = CallGuarded(call);
  if (status == OPKIT_OK) [[likely]]
    return;
  Throw(CodeOfStatus(status), StrCat(what...), " of library ", library,
        " failed: ", ReasonOf(status));
}
template <class Call>
void CallLibrary(const char* what, const std::string& op, const std::string& library, Call call) {
  AskLibrary(library, call, what, " of operator ", op);
}

// Implements the hooks of an operator by calls of the library's functions.
class LibraryHooks final : public FunctionHooks {
 public:
  LibraryHooks(LibraryImagePtr image, const opkit_op* op, const opkit_op& functions)
      : image_(std::move(image)), op_(op), functions_(functions), name_(op->name) {}

  std::pair<int, int> Arity(const Arguments& args) override {
    if (!functions_.parse_attrs) return {-1, -1};
    const AbiNode node(OperatorDef(name_, {}, {}, args));
    int32_t inputs = -1, outputs = -1;
    CallLibrary("parseAttrs", name_, image_->name,
                [&] { return functions_.parse_attrs(op_, &node.node(), &inputs, &outputs); });
    if (inputs < -1 || outputs < -1 || inputs > kMostValues || outputs > kMostValues)
      Throw(ErrorCode::kInvalidArgument, "parseAttrs of operator ", name_, " of library ",
            image_->name, " says ", inputs, " inputs and ", outputs, " outputs; -1 is any number, ",
            kMostValues, " are the most");
    return {inputs, outputs};
  }

  bool has_inference() const override { return functions_.infer_type || functions_.infer_shape; }
  void Infer(InferenceContext& context) override {
    const AbiNode node(context.def());
    std::vector<std::string> symbols;
    AbiValues inputs(context.inputs(), symbols), outputs(context.outputs(), symbols);
    bool types_known = true, shapes_known = true, anything = context.num_inputs() == 0;
    for (int i = 0; i < context.num_inputs(); ++i) {
      if (!context.HasInput(i)) {
        inputs[Index(i)].present = 0;
        continue;
      }
      const TensorInfo& input = context.input(i);
      types_known &= input.dtype != DType::kUndefined;
      shapes_known &= input.shape.is_known();
      anything |= input.shape.has_rank();
      if (input.constant) inputs.SetConstant(Index(i), *input.constant);
    }
    for (const TensorInfo& output : context.outputs()) anything |= output.shape.has_rank();
    // Calls the library's inference of dtypes or shapes; false if the library cannot infer them
    // yet. `read` returns a value's dtype or shape from the library's answer.
    const auto ask = [&](const char* what, bool all_known, auto function, auto read) {
      try {
        CallLibrary(what, name_, image_->name,
                    [&] { return function(op_, &node.node(), inputs.data(), outputs.data()); });
      } catch (const Error&) {
        if (all_known) throw;
        return false;
      }
      try {
        for (int i = 0; i < context.num_inputs(); ++i)
          if (context.HasInput(i)) {
            const TensorInfo info = read(inputs, Index(i), "input");
            context.SetInput(i, info.dtype, info.shape);
          }
        for (int o = 0; o < context.num_outputs(); ++o) {
          const TensorInfo info = read(outputs, Index(o), "output");
          context.SetOutput(o, info.dtype, info.shape);
        }
        return true;
      } catch (...) {
        RethrowInContext(StrCat("in what ", what, " of operator ", name_, " of library ",
                                image_->name, " answers"));
      }
    };
    if (functions_.infer_type) {
      ask("inferType", types_known, functions_.infer_type,
          [](auto& values, auto... place) { return TensorInfo(values.dtype(place...), {}); });
    } else if (context.num_inputs() > 0) {
      for (int o = 0; o < context.num_outputs(); ++o)
        context.SetOutput(o, context.input_dtype(0), {});
    }
    if (!functions_.infer_shape || !anything) return;
    const auto infer_shapes = [&](bool all_known) {
      return ask("inferShape", all_known, functions_.infer_shape,
                 [](auto& values, auto... place) {
                   return TensorInfo(DType::kUndefined, values.shape(place...));
                 }) &&
             std::ranges::all_of(context.outputs(),
                                 [](auto& output) { return output.shape.is_known(); });
    };
    // Passes the elements of short lists of integers only if shapes alone do not decide: a result
    // that came from data is valid for that run alone.
    std::vector<int> lists;
    for (int i = 0; i < context.num_inputs(); ++i)
      if (const TensorInfo& input = context.input(i);
          context.HasInput(i) && IsInteger(input.dtype) && input.shape.has_rank() &&
          input.shape.rank() < 2)
        lists.push_back(i);
    if (infer_shapes(shapes_known && lists.empty()) || lists.empty()) return;
    bool more_is_known = shapes_known;
    for (const int i : lists)
      if (const Tensor* data = context.input_constant(i)) {
        inputs.SetConstant(Index(i), *data);
        more_is_known = true;
      }
    if (more_is_known) infer_shapes(shapes_known);
  }
  std::vector<int> MutatedInputs(const OperatorDef& def) override {
    std::vector<int> inputs;
    if (!functions_.mutated_inputs) return inputs;
    const AbiNode node(def);
    std::vector<uint8_t> mutated(def.inputs().size());
    CallLibrary("mutateInputs", name_, image_->name,
                [&] { return functions_.mutated_inputs(op_, &node.node(), mutated.data()); });
    for (size_t i = 0; i < mutated.size(); ++i)
      if (mutated[i]) inputs.push_back(static_cast<int>(i));
    return inputs;
  }
  int64_t Scratch(const OperatorDef& def, std::span<const TensorInfo> infos) override {
    if (!functions_.scratch_bytes) return 0;
    const AbiNode node(def);
    std::vector<std::string> symbols;
    AbiValues inputs(infos, symbols);
    int64_t bytes = 0;
    CallLibrary("scratch's function", name_, image_->name,
                [&] { return functions_.scratch_bytes(op_, &node.node(), inputs.data(), &bytes); });
    if (bytes < 0)
      Throw(ErrorCode::kInvalidArgument, "operator ", name_, " of library ", image_->name,
            " asks for ", bytes, " bytes of scratch");
    return bytes;
  }

  void Cost(const OperatorDef& def, std::span<const TensorInfo> in, std::span<const TensorInfo> out,
            OpCost& cost) override {
    const AbiNode node(def);
    std::vector<std::string> symbols;
    AbiValues inputs(in, symbols), outputs(out, symbols);
    opkit_cost said{sizeof said,        nullptr,          cost.flops, cost.bytes_read,
                    cost.bytes_written, cost.params_bytes};
    CallLibrary("cost", name_, image_->name, [&] {
      return functions_.cost(op_, &node.node(), inputs.data(), outputs.data(), &said);
    });
    cost = {said.flops, said.bytes_read, said.bytes_written, said.params_bytes};
  }

  std::vector<Tensor> TestInputs(DType dtype, uint64_t seed) override {
    std::vector<Tensor> made;
    opkit_test_inputs answer{};
    answer.size = sizeof answer;
    answer.context = &made;
    answer.add = [](const opkit_test_inputs* inputs, const opkit_tensor* tensor) {
      return AnswerCaller([&] {
        if (!inputs) Throw(ErrorCode::kInvalidArgument, "test inputs are added to nothing");
        if (const std::string problem = ProblemOfView(tensor); !problem.empty())
          Throw(ErrorCode::kInvalidArgument, "a test input ", problem);
        auto& all = *static_cast<std::vector<Tensor>*>(inputs->context);
        all.emplace_back().CopyFrom(TensorOfView(*tensor));
      });
    };
    CallLibrary("the test inputs", name_, image_->name, [&] {
      return functions_.test_inputs(op_, static_cast<int32_t>(dtype), seed, &answer);
    });
    return made;
  }

 private:
  static constexpr int32_t kMostValues = 65535;  // a node names each of them

  LibraryImagePtr image_;
  const opkit_op* op_;
  const opkit_op functions_;  // a copy of *op, with null for functions that its version lacks
  const std::string name_;
};

// Collects the configurations that a library's kernel proposes for a node.
class LibraryProposals {
 public:
  LibraryProposals(const LibraryImage& image, const KernelQuery& query)
      : image_(image),
        op_(query.def.type()),
        inputs_(query.inputs.size()),
        outputs_(query.outputs.size()) {
    view_.size = sizeof view_;
    view_.context = this;
    view_.add = &Add;
  }
  LibraryProposals(const LibraryProposals&) = delete;

  // Returns the proposals. Throws UnsupportedOperatorFeature with the reason if the kernel refuses
  // the node.
  std::vector<KernelConfig> Ask(const opkit_kernel* original, const opkit_kernel& kernel,
                                const KernelQuery& query) {
    const AbiNode node(query.def);
    std::vector<std::string> symbols;
    AbiValues inputs(query.inputs, symbols), outputs(query.outputs, symbols);
    for (size_t i = 0; i < query.inputs.size(); ++i) {
      if (query.def.inputs()[i].empty()) inputs[i].present = 0;
      if (query.inputs[i].constant) inputs.SetConstant(i, *query.inputs[i].constant);
    }
    try {
      CallLibrary("propose", op_, image_.name, [&] {
        return kernel.propose(original, &node.node(), inputs.data(), outputs.data(), &view_);
      });
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kUnsupported)
        throw UnsupportedOperatorFeature(error.message());
      throw;
    }
    return std::move(configs_);
  }

 private:
  static opkit_status Add(const opkit_proposals* proposals, const opkit_config* config) {
    return AnswerCaller([&] {
      if (!proposals) Throw(ErrorCode::kInvalidArgument, "a proposal is made to nobody");
      auto& self = *static_cast<LibraryProposals*>(proposals->context);
      try {
        self.configs_.push_back(ConfigOfAbi(config, self.inputs_, self.outputs_));
      } catch (Error& error) {
        if (error.code() == ErrorCode::kNotFound)
          error.AddContext(StrCat("in what operator ", self.op_, " of library ", self.image_.name,
                                  " proposes; a library registers its layouts when it is loaded, "
                                  "by a variable: const LayoutId kMine = RegisterLayout({...})"));
        throw;
      }
    });
  }

  const LibraryImage& image_;
  const std::string op_;
  const size_t inputs_, outputs_;
  std::vector<KernelConfig> configs_;
  opkit_proposals view_{};
};

// Offers the next node to a library's kernel for fusion, and receives the fused node.
class OPKIT_IMAGE_LOCAL LibraryFusion {
 public:
  // Returns the fused node if the kernel takes the next node in. Nothing is fused if a
  // configuration has no form in opkit_abi.h.
  static std::optional<FusedNode> Ask(const LibraryImage& image, const opkit_kernel* original,
                                      const opkit_kernel& kernel, const FusionQuery& query) {
    std::optional<LibraryFusion> fusion;
    try {
      fusion.emplace(query);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      return std::nullopt;
    }
    CallLibrary("fuse", query.node.def.type(), image.name,
                [&] { return kernel.fuse(original, &fusion->view_); });
    return std::move(fusion->answer_);
  }
  explicit LibraryFusion(const FusionQuery& query)
      : node_(query.node),
        next_(query.next),
        config_(Config(query.node, query.config)),
        next_config_(Config(query.next, query.next_config)) {
    view_.size = sizeof view_;
    view_.context = this;
    view_.node = &node_.node.node();
    view_.inputs = node_.inputs.data();
    view_.outputs = node_.outputs.data();
    view_.config = &config_->config();
    view_.next = &next_.node.node();
    view_.next_inputs = next_.inputs.data();
    view_.next_outputs = next_.outputs.data();
    view_.next_config = &next_config_->config();
    view_.read = query.read;
    view_.fuse = &Fuse;
  }
  LibraryFusion(const LibraryFusion&) = delete;

 private:
  // A node and its values, in the form of opkit_abi.h.
  struct Side {
    explicit Side(const KernelQuery& query)
        : node(query.def), inputs(query.inputs, symbols), outputs(query.outputs, symbols) {
      for (size_t i = 0; i < query.inputs.size(); ++i) {
        if (query.def.inputs()[i].empty()) inputs[i].present = 0;
        if (query.inputs[i].constant) inputs.SetConstant(i, *query.inputs[i].constant);
      }
    }
    const AbiNode node;
    std::vector<std::string> symbols;
    AbiValues inputs, outputs;
  };
  static std::unique_ptr<AbiConfig> Config(const KernelQuery& query, const KernelConfig& config) {
    return std::make_unique<AbiConfig>(config, query.def.inputs().size(),
                                       query.def.outputs().size());
  }
  static opkit_status Fuse(const opkit_fusion* fusion, const opkit_node* node,
                           const opkit_config* config) {
    return AnswerCaller([&] {
      if (!fusion) Throw(ErrorCode::kInvalidArgument, "a fusion is answered to nobody");
      auto& self = *static_cast<LibraryFusion*>(fusion->context);
      OperatorDef def = DefinitionOfAbi(node);
      if (std::string_view(self.view_.next->outputs[0]) !=
              (def.outputs().empty() ? "" : def.outputs()[0]) ||
          def.outputs().size() != 1)
        Throw(ErrorCode::kInvalidArgument, "the node that is to compute both makes ", def.outputs(),
              ", expected the output of the next one, '", self.view_.next->outputs[0], "'");
      KernelConfig chosen = ConfigOfAbi(config, def.inputs().size(), def.outputs().size());
      self.answer_ = FusedNode{std::move(def), std::move(chosen)};
    });
  }

  Side node_, next_;
  const std::unique_ptr<AbiConfig> config_, next_config_;
  std::optional<FusedNode> answer_;
  opkit_fusion view_{};
};

// One operator that a library's kernel runs. `kernel` is a copy of the library's struct `original`.
class LibraryInstance final : public DirectState {
 public:
  LibraryInstance(LibraryImagePtr image, const opkit_kernel* original, const opkit_kernel& kernel,
                  const OpContext& context, IntrusivePtr<KernelCalls> calls)
      : image_(std::move(image)), kernel_(kernel), node_(*context.def), calls_(std::move(calls)) {
    instance = const_cast<void*>(kernel.author);
    const bool configured = kernel.create_for && context.config;
    if (!kernel.create && !configured) return;
    instance = nullptr;
    try {
      CallLibrary("createOpState", context.def->type(), image_->name, [&] {
        if (!configured) return kernel.create(original, &node_.node(), &instance);
        const OperatorDef& def = *context.def;
        const AbiConfig config(*context.config, def.inputs().size(), def.outputs().size());
        return kernel.create_for(original, &node_.node(), &config.config(), &instance);
      });
    } catch (const Error& error) {  // so that another kernel may take the node
      if (error.code() == ErrorCode::kUnsupported)
        throw UnsupportedOperatorFeature(error.message());
      throw;
    }
    calls_->Returned(KernelCalls::kCreate);
  }
  ~LibraryInstance() override {
    if (Finalizers::ProcessEnds()) {  // left to the process, reachable for leak checkers
      static auto* const left = new std::vector<void*>;
      left->push_back(instance);
      return;
    }
    if ((!kernel_.create && !kernel_.create_for) || !kernel_.destroy) return;
    HostErrorScope message;
    CallGuarded([&] { return kernel_.destroy(instance), OPKIT_OK; });
  }
  // Runs forward or backward. Slow path: an operator's first run, and every run of a backward
  // operator that shares the forward operator's instance.
  OpStatus Run(FunctionPass pass, std::span<const OpTensor>, std::span<OpTensor>,
               OpResource& resource) override {
    const auto run = pass == FunctionPass::kForward ? kernel_.forward : kernel_.backward;
    const opkit_status status = CallGuarded([&] { return run(instance, resource.call()); });
    calls_->Returned(pass == FunctionPass::kForward ? KernelCalls::kForward
                                                    : KernelCalls::kBackward);
    if (status == OPKIT_OK) [[likely]]
      return {};
    const std::string reason = ReasonOf(status);
    CurrentHostError().text.clear();
    if (CodeOfStatus(status) != ErrorCode::kOperatorFailed)
      throw Error(CodeOfStatus(status), reason);
    return OpStatus::Failure(reason);
  }

 private:
  const LibraryImagePtr image_;
  const opkit_kernel kernel_;
  const AbiNode node_;  // the instance may point into it
  const IntrusivePtr<KernelCalls> calls_;
};

// Makes a record, which was read from `op`, call the library's functions.
inline void BindRecord(FunctionOpRecord& record, const LibraryImagePtr& image, const opkit_op& op) {
  record.library = image->name;
  record.library_name = image->announced;
  if (const char* version = image->library->version) record.library_version = version;
  if (OPKIT_ABI_HAS(image->library, own_version) && image->library->own_version)
    record.library_version = image->library->own_version;
  record.hooks = MakeIntrusive<LibraryHooks>(image, &op, record.abi);
  for (size_t k = 0; k < record.devices.size(); ++k) {
    FunctionDevice& device = record.devices[k];
    device.create_state = [image, original = op.kernels[k], kernel = device.abi,
                           calls = MakeIntrusive<KernelCalls>()](
                              const AttrMap&, const OpContext& context,
                              IntrusivePtr<StatefulOp>& state) -> OpStatus {
      state = MakeIntrusive<LibraryInstance>(image, original, kernel, context, calls);
      return {};
    };
    if (!device.abi.propose) continue;
    UseSelection();
    device.propose = [image, original = op.kernels[k],
                      kernel = device.abi](const KernelQuery& query) {
      return LibraryProposals(*image, query).Ask(original, kernel, query);
    };
    if (!device.abi.fuse) continue;
    device.fuse = [image, original = op.kernels[k], kernel = device.abi](const FusionQuery& query) {
      return LibraryFusion::Ask(*image, original, kernel, query);
    };
  }
}

// Makes one call of a library's gradient function, and keeps the nodes and names that it returns.
class LibraryGradientCall {
 public:
  LibraryGradientCall(const OperatorDef& def, const std::vector<GradientValue>& g_output,
                      GradientNames& names)
      : def_(def), g_output_(g_output), names_(names), node_(def) {
    answer_.g_input.resize(def.inputs().size());
    for (const GradientValue& value : g_output) {
      dense_.push_back(value.dense.c_str());
      indices_.push_back(value.indices.c_str());
      values_.push_back(value.values.c_str());
    }
    view_.size = sizeof view_;
    view_.node = &node_.node();
    view_.dense = dense_.data();
    view_.indices = indices_.data();
    view_.values = values_.data();
    view_.context = this;
    view_.new_name = &NewName;
    view_.add_node = &AddNode;
    view_.set_input = &SetInput;
  }
  LibraryGradientCall(const LibraryGradientCall&) = delete;

  const opkit_gradient* view() const { return &view_; }
  GradientOpsMeta TakeAnswer() { return std::move(answer_); }

 private:
  static LibraryGradientCall& Of(const opkit_gradient* gradient) {
    if (!gradient) Throw(ErrorCode::kInvalidArgument, "a function of a gradient is given none");
    return *static_cast<LibraryGradientCall*>(gradient->context);
  }
  static const char* NewName(const opkit_gradient* gradient, const char* value,
                             const char* suffix) {
    const char* name = nullptr;
    static_cast<void>(AnswerCaller([&] {
      LibraryGradientCall& self = Of(gradient);
      if (!value || !*value)
        Throw(ErrorCode::kInvalidArgument, "new_name() is not told of which value");
      name = self.kept_.emplace_back(self.Name(TextOfAbi(value), TextOfAbi(suffix))).c_str();
    }));
    return name;
  }
  // Returns a gradient's name, as GradientMakerBase::GI does. A value's second gradient, and a
  // gradient whose usual name comes in already (in place), get new names.
  std::string Name(const std::string& value, const std::string& suffix) {
    if (!suffix.empty()) return names_.Fresh(value, suffix);
    const std::string& name = names_.Of(value);
    const bool taken = std::ranges::count(g_output_, name, &GradientValue::dense) > 0 ||
                       std::ranges::count(kept_, name) > 0;
    return taken ? names_.Fresh(value) : name;
  }
  static opkit_status AddNode(const opkit_gradient* gradient, const opkit_node* node) {
    return AnswerCaller([&] {
      LibraryGradientCall& self = Of(gradient);
      OperatorDef def = DefinitionOfAbi(node);
      // Removes arguments that the library copied from the node, if the program's operator does not
      // take them.
      const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
      for (const auto& [name, value] : self.def_.args())
        if (const Attribute* given = def.args().Find(name))
          if (schema && !schema->TakesArgument(name) && *given == value)
            def.mutable_args().Remove(name);
      def.Backends(self.def_.backends()).IsGradientOp(true);
      self.answer_.ops.push_back(std::move(def));
    });
  }
  static opkit_status SetInput(const opkit_gradient* gradient, uint64_t input, const char* dense,
                               const char* indices, const char* values) {
    return AnswerCaller([&] {
      std::vector<GradientValue>& all = Of(gradient).answer_.g_input;
      if (input >= all.size())
        Throw(ErrorCode::kOutOfRange, "it names a gradient of input ", input, ", but the node has ",
              all.size());
      all[input] = dense && *dense ? GradientValue(TextOfAbi(dense))
                                   : GradientValue::Sparse(TextOfAbi(indices), TextOfAbi(values));
    });
  }

  const OperatorDef& def_;
  const std::vector<GradientValue>& g_output_;
  GradientNames& names_;
  const AbiNode node_;
  std::vector<const char*> dense_, indices_, values_;
  std::list<std::string> kept_;  // names given to the library
  GradientOpsMeta answer_;
  opkit_gradient view_{};
};

// True if the library describes the operator's gradient by other means than a backward function.
inline bool SaysGradient(const FunctionOpRecord& record) {
  return record.abi.gradient || record.Has(OPKIT_OP_NO_GRADIENT | OPKIT_OP_SHOULD_NOT_GRADIENT |
                                           OPKIT_OP_GRADIENT_NOT_IMPLEMENTED);
}

// Returns the gradient that the library describes.
inline GradientRegistration MakeLibraryGradient(const LibraryImagePtr& image, const opkit_op& op,
                                                const FunctionOpRecord& record) {
  GradientRegistration gradient;
  gradient.file = record.file;
  gradient.line = record.line;
  gradient.kind = record.Has(OPKIT_OP_NO_GRADIENT)                ? GradientKind::kNone
                  : record.Has(OPKIT_OP_SHOULD_NOT_GRADIENT)      ? GradientKind::kShouldNot
                  : record.Has(OPKIT_OP_GRADIENT_NOT_IMPLEMENTED) ? GradientKind::kNotImplemented
                                                                  : GradientKind::kMaker;
  if (gradient.kind == GradientKind::kMaker)
    gradient.make = [image, op = &op, function = record.abi.gradient](
                        const OperatorDef& def, const std::vector<GradientValue>& g_output,
                        GradientNames& names) {
      LibraryGradientCall call(def, g_output, names);
      CallLibrary("gradient", op->name, image->name, [&] { return function(op, call.view()); });
      return call.TakeAnswer();
    };
  return gradient;
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PLUGIN_LOAD_LIBRARY_OPS_HPP_
