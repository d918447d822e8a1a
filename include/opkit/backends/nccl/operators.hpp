// The kernels on CUDA of the operators by which processes communicate, for plans with a
// communicator on NCCL.
#ifndef OPKIT_BACKENDS_NCCL_OPERATORS_HPP_
#define OPKIT_BACKENDS_NCCL_OPERATORS_HPP_

#include "opkit/backends/cuda/context.hpp"
#include "opkit/backends/nccl/types.hpp"
#include "opkit/cluster/operators.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

inline constexpr const char* kNcclBackend = "nccl";
inline constexpr int kNcclRank = 100;
OPKIT_REGISTER_BACKEND_RANK(kNcclBackend, kNcclRank);

// Puts the communication of its node on the CUDA stream.
class NcclOp final : public CommunicationOp<CUDAContext> {
 public:
  using CommunicationOp::CommunicationOp;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const auto& args = query.def.args();
    const CommunicatorPtr communicator = Communicator::Find(args.Get<int64_t>("communicator", -1));
    if (!communicator || communicator->backend() != kNcclBackend)
      throw UnsupportedOperatorFeature("the plan has no communicator on NCCL");
    if (args.Get<int64_t>("is_dynamic", 0) != 0)
      throw UnsupportedOperatorFeature(
          "NCCL sends only tensors whose dtype and shape are known before a run");
    if (args.Get<int64_t>("deterministic", 0) != 0)
      throw UnsupportedOperatorFeature(
          "NCCL does not combine elements in the order of the processes (deterministic = 1)");
    const std::string_view name = detail::CommunicationOf(query.def);
    const auto reduction = args.Get<std::string>("reduction", "sum");
    if (name.ends_with("Reduce") || name == "ReduceScatter")
      for (const TensorInfo& input : query.inputs)
        if (input.dtype != DType::kUndefined &&
            !detail::CanNcclReduce(input.dtype, reduction == "mean"))
          throw UnsupportedOperatorFeature(StrCat("NCCL does not compute the ", reduction,
                                                  " of elements of ", ToString(input.dtype)));
    KernelConfig config;
    if (name == "AllReduce")
      for (int i = 0; i < static_cast<int>(query.inputs.size()); ++i)
        config.inplace.emplace_back(i, i);
    return {config};
  }
};

OPKIT_REGISTER_OPERATOR_STR(DeviceType::kCUDA, "opkit.cluster.Send", kNcclBackend, NcclOp);
OPKIT_REGISTER_OPERATOR_STR(DeviceType::kCUDA, "opkit.cluster.Recv", kNcclBackend, NcclOp);
OPKIT_REGISTER_OPERATOR_STR(DeviceType::kCUDA, "opkit.cluster.AllReduce", kNcclBackend, NcclOp);
OPKIT_REGISTER_OPERATOR_STR(DeviceType::kCUDA, "opkit.cluster.Reduce", kNcclBackend, NcclOp);
OPKIT_REGISTER_OPERATOR_STR(DeviceType::kCUDA, "opkit.cluster.Broadcast", kNcclBackend, NcclOp);
OPKIT_REGISTER_OPERATOR_STR(DeviceType::kCUDA, "opkit.cluster.AllGather", kNcclBackend, NcclOp);
OPKIT_REGISTER_OPERATOR_STR(DeviceType::kCUDA, "opkit.cluster.Gather", kNcclBackend, NcclOp);
OPKIT_REGISTER_OPERATOR_STR(DeviceType::kCUDA, "opkit.cluster.ReduceScatter", kNcclBackend, NcclOp);
OPKIT_REGISTER_OPERATOR_STR(DeviceType::kCUDA, "opkit.cluster.Scatter", kNcclBackend, NcclOp);
OPKIT_REGISTER_OPERATOR_STR(DeviceType::kCUDA, "opkit.cluster.AllToAll", kNcclBackend, NcclOp);
OPKIT_REGISTER_OPERATOR_STR(DeviceType::kCUDA, "opkit.cluster.Barrier", kNcclBackend, NcclOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_NCCL_OPERATORS_HPP_
