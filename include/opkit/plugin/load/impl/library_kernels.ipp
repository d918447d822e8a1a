// Runs a library's kernels, and collects their proposals and their fused nodes.
#ifndef OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_KERNELS_IPP_
#define OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_KERNELS_IPP_

#include <memory>
#include <optional>

#include "opkit/op/boundary/convert/abi_config.hpp"
#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/op/fusion.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "opkit/plugin/load/library_ops.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Calls a function of a library's kernel. Throws UnsupportedOperatorFeature if the kernel does not
// support the node, so that another kernel may run the node.
template <class Call>
void CallOrDecline(const char* what, const std::string& op, const std::string& library, Call call) {
  try {
    CallOperatorFunction(what, op, library, call);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) throw UnsupportedOperatorFeature(error.message());
    throw;
  }
}

// Collects the configurations that a library's kernel proposes for a node.
class LibraryProposals {
 public:
  static constexpr const char* kStruct = "opkit_proposals";

  LibraryProposals(const LibraryImage& image, const KernelQuery& query)
      : image_(image),
        op_(query.def.type()),
        inputs_(query.inputs.size()),
        outputs_(query.outputs.size()) {
    view_.size = sizeof view_;
    view_.context = this;
    view_.add = &AnswerBy<LibraryProposals, &LibraryProposals::Add>;
  }
  LibraryProposals(const LibraryProposals&) = delete;

  // Returns the proposals. Throws UnsupportedOperatorFeature with the reason if the kernel refuses
  // the node.
  std::vector<KernelConfig> Collect(const opkit_kernel* original, const opkit_kernel& kernel,
                                    const KernelQuery& query) {
    AbiQuery asked(query);
    CallOrDecline("propose", op_, image_.name, [&] {
      return kernel.propose(original, &asked.node.node(), asked.inputs.data(), asked.outputs.data(),
                            &view_);
    });
    return std::move(configs_);
  }

 private:
  void Add(const opkit_config* config) {
    try {
      configs_.push_back(ConfigOfAbi(config, inputs_, outputs_));
    } catch (Error& error) {
      if (error.code() == ErrorCode::kNotFound)
        error.AddContext(StrCat("in what operator ", op_, " of library ", image_.name,
                                " proposes; a library registers its layouts when it is loaded, "
                                "by a variable: const LayoutId kMine = RegisterLayout({...})"));
      throw;
    }
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
  static constexpr const char* kStruct = "opkit_fusion";

  // Returns the fused node if the kernel fuses the next node. Returns nullopt if a configuration
  // cannot be described in opkit_abi.h.
  static std::optional<FusedNode> Offer(const LibraryImage& image, const opkit_kernel* original,
                                        const opkit_kernel& kernel, const FusionQuery& query) {
    std::optional<LibraryFusion> fusion;
    try {
      fusion.emplace(query);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      return std::nullopt;
    }
    CallOperatorFunction("fuse", query.node.def.type(), image.name,
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
    view_.fuse = &AnswerBy<LibraryFusion, &LibraryFusion::Fuse>;
  }
  LibraryFusion(const LibraryFusion&) = delete;

 private:
  static std::unique_ptr<AbiConfig> Config(const KernelQuery& query, const KernelConfig& config) {
    return std::make_unique<AbiConfig>(config, query.def.inputs().size(),
                                       query.def.outputs().size());
  }
  void Fuse(const opkit_node* node, const opkit_config* config) {
    OperatorDef def = DefinitionOfAbi(node);
    if (std::string_view(view_.next->outputs[0]) !=
            (def.outputs().empty() ? "" : def.outputs()[0]) ||
        def.outputs().size() != 1)
      Throw(ErrorCode::kInvalidArgument, "the node that is to compute both makes ", def.outputs(),
            ", expected the output of the next one, '", view_.next->outputs[0], "'");
    KernelConfig chosen = ConfigOfAbi(config, def.inputs().size(), def.outputs().size());
    answer_ = FusedNode{std::move(def), std::move(chosen)};
  }

  AbiQuery node_, next_;
  const std::unique_ptr<AbiConfig> config_, next_config_;
  std::optional<FusedNode> answer_;
  opkit_fusion view_{};
};

// The instance of a library's kernel that runs an operator. `kernel` is a copy of the library's
// struct `original`.
class LibraryInstance final : public DirectState {
 public:
  LibraryInstance(LibraryImagePtr image, const opkit_kernel* original, const opkit_kernel& kernel,
                  const OpContext& context, IntrusivePtr<KernelCalls> calls)
      : image_(std::move(image)), kernel_(kernel), node_(*context.def), calls_(std::move(calls)) {
    instance = const_cast<void*>(kernel.author);
    const bool configured = kernel.create_for && context.config;
    if (!kernel.create && !configured) return;
    instance = nullptr;
    CallOrDecline("createOpState", context.def->type(), image_->name, [&] {
      if (!configured) return kernel.create(original, &node_.node(), &instance);
      const OperatorDef& def = *context.def;
      const AbiConfig config(*context.config, def.inputs().size(), def.outputs().size());
      return kernel.create_for(original, &node_.node(), &config.config(), &instance);
    });
    calls_->Returned(KernelCalls::kCreate);
  }
  ~LibraryInstance() override {
    if (Finalizers::ProcessEnds()) {  // leaked, but reachable for leak checkers
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

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_KERNELS_IPP_
