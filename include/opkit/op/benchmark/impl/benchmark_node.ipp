// Definitions of BenchmarkNode.
#ifndef OPKIT_OP_BENCHMARK_IMPL_BENCHMARK_NODE_IPP_
#define OPKIT_OP_BENCHMARK_IMPL_BENCHMARK_NODE_IPP_

#include <algorithm>

#include "opkit/op/benchmark/benchmark_node.hpp"
#include "opkit/op/schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_COLD OPKIT_INLINE BenchmarkNode::BenchmarkNode(OperatorDef def, std::vector<Tensor> inputs,
                                                     std::vector<bool> constants)
    : def_(std::move(def)), inputs_(std::move(inputs)), constants_(std::move(constants)) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(def_.type());
  if (inputs_.size() != def_.inputs().size())
    Throw(ErrorCode::kInvalidArgument, "timing kernels of ", def_, " needs ", def_.inputs().size(),
          " inputs, found ", inputs_.size(), " tensors and shapes");
  for (size_t i = 0; i < inputs_.size(); ++i)
    infos_.push_back(i < constants_.size() && constants_[i] ? TensorInfo::OfConstant(inputs_[i])
                                                            : TensorInfo::Of(inputs_[i]));
  outputs_ = schema.InferOutputs(def_, infos_);
}

OPKIT_COLD OPKIT_INLINE std::string NodeName(const OperatorDef& def) {
  std::string attributes;
  for (const NamedAttribute& arg : def.args())
    attributes += StrCat(attributes.empty() ? "" : ",", arg.name, "=", arg.value);
  return attributes.empty() ? def.type() : StrCat(def.type(), "(", attributes, ")");
}

OPKIT_COLD OPKIT_INLINE std::vector<KernelCandidate> BenchmarkNode::Candidates(
    const std::vector<std::string>& backends) const {
  std::vector<KernelCandidate> out;
  for (KernelCandidate& one : KernelCandidates(def_, infos_, outputs_))
    if ((one.kernel || !one.dropped.empty()) &&
        (backends.empty() || std::ranges::count(backends, one.backend) > 0))
      out.push_back(std::move(one));
  return out;
}

OPKIT_COLD OPKIT_INLINE std::string BenchmarkNode::NameOf(const KernelCandidate& candidate) {
  const bool is_numbered = candidate.number > 0 && candidate.config.variant.empty();
  return is_numbered ? StrCat(candidate.backend, " #", candidate.number) : candidate.name();
}

OPKIT_COLD OPKIT_INLINE KernelRun BenchmarkNode::Prepare(const KernelCandidate& candidate,
                                                         ColdData cold) const {
  return KernelRun(def_, *candidate.kernel, candidate.config, inputs_,
                   {.cold = cold, .constants = constants_});
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BENCHMARK_IMPL_BENCHMARK_NODE_IPP_
