// The reductions and the errors of NCCL, as the communicator and the kernels on NCCL use them.
#ifndef OPKIT_BACKENDS_NCCL_TYPES_HPP_
#define OPKIT_BACKENDS_NCCL_TYPES_HPP_

#include <nccl.h>

#include <optional>
#include <utility>

#include "opkit/base/error.hpp"
#include "opkit/cluster/communication.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns "<what> failed: <NCCL's text>", with NCCL's last message if there is one.
inline std::string NcclErrorText(ncclComm_t comm, ncclResult_t result, std::string_view what) {
  const char* const last = ncclGetLastError(comm);
  return StrCat(what, " failed: ", ncclGetErrorString(result), last && *last ? ": " : "",
                last ? last : "");
}

// Returns NCCL's type of elements that it reduces; none for another dtype.
inline std::optional<ncclDataType_t> NcclTypeOf(DType dtype) {
  constexpr std::pair<DType, ncclDataType_t> kTypes[] = {
      {DType::kFloat16, ncclFloat16}, {DType::kBFloat16, ncclBfloat16},
      {DType::kFloat32, ncclFloat32}, {DType::kFloat64, ncclFloat64},
      {DType::kInt8, ncclInt8},       {DType::kInt32, ncclInt32},
      {DType::kInt64, ncclInt64},     {DType::kUInt8, ncclUint8},
      {DType::kUInt32, ncclUint32},   {DType::kUInt64, ncclUint64}};
  for (const auto& [ours, nccls] : kTypes)
    if (ours == dtype) return nccls;
  return {};
}
// True if NCCL reduces elements of the dtype. The mean of integers has no result that all
// communicators agree on.
inline bool CanNcclReduce(DType dtype, bool is_mean) {
  return NcclTypeOf(dtype) && (!is_mean || IsFloatingPoint(dtype));
}

// How NCCL reduces elements. Its mean adds terms that it has multiplied by the rounded reciprocal
// of their number, so the last bits may differ from those of the CPU, which divides the sum.
struct NcclReduction {
  ncclDataType_t type;
  ncclRedOp_t op;
};
// Throws kTypeMismatch unless CanNcclReduce.
inline NcclReduction NcclReductionOf(const CommunicationPlan& plan, DType dtype) {
  if (!CanNcclReduce(dtype, plan.is_mean))
    Throw(ErrorCode::kTypeMismatch, "NCCL does not compute the ",
          plan.is_mean ? "mean" : ToString(plan.reduction), " of elements of ", ToString(dtype));
  constexpr ncclRedOp_t kOps[] = {ncclSum, ncclProd, ncclMax, ncclMin};  // by Reduction
  return {*NcclTypeOf(dtype), plan.is_mean ? ncclAvg : kOps[static_cast<int>(plan.reduction)]};
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_NCCL_TYPES_HPP_
