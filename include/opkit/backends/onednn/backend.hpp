// The "onednn" backend: kernels of the standard operators for float32 (some also for bfloat16),
// made with oneDNN 3. If the weights are constant, these kernels work in blocks of channels
// (nChw16c). The cheap operators between them keep that layout, so that a chain of nodes converts
// once at its start and once at its end. Every header of this folder includes this header first.
#ifndef OPKIT_BACKENDS_ONEDNN_BACKEND_HPP_
#define OPKIT_BACKENDS_ONEDNN_BACKEND_HPP_

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

inline constexpr const char* kOnednnBackend = "onednn";
inline constexpr int kOnednnRank = 200;
OPKIT_REGISTER_BACKEND_RANK(kOnednnBackend, kOnednnRank);

// Throws UnsupportedOperatorFeature unless inputs before `first_other` and output 0 have known
// shapes, at least one element and the given dtype. For Propose.
inline void RequireOnednnTensors(const KernelQuery& query, size_t first_other = 2,
                                 DType dtype = DType::kFloat32) {
  const auto require = [dtype](const TensorInfo& info, const char* what, size_t i) {
    if (info.dtype != dtype)
      throw UnsupportedOperatorFeature(
          StrCat("it computes ", dtype, ", and ", what, i, " is ",
                 info.dtype == DType::kUndefined ? "not known" : ToString(info.dtype)));
    if (!info.shape.is_known())
      throw UnsupportedOperatorFeature(StrCat("the shape of ", what, i, " is not known yet"));
    if (info.shape.ToShape().numel() == 0)
      throw UnsupportedOperatorFeature(StrCat(what, i, " has no elements"));
  };
  for (size_t i = 0; i < query.inputs.size() && i < first_other; ++i)
    require(query.inputs[i], "input ", i);
  require(query.outputs[0], "output ", 0);
}
namespace detail {
// With fewer operations, a call of oneDNN (half a microsecond) costs more than it saves
// (bench/kernels). For Propose, if other backends have kernels for the same layouts.
inline constexpr double kOnednnLeastFlops = 1e5;

// Throws UnsupportedOperatorFeature for fewer operations, unless the node names this backend.
inline void RequireOnednnWork(const KernelQuery& query, double flops) {
  if (flops >= kOnednnLeastFlops || query.def.backends() == kOnednnBackend) return;
  throw UnsupportedOperatorFeature(StrCat("for ", static_cast<int64_t>(flops),
                                          " operations a call of oneDNN takes longer than what it "
                                          "saves"));
}
}  // namespace detail

// Throws UnsupportedOperatorFeature unless input 0 is float32. For runs, because CreateOperator
// makes operators before the types of their inputs are known.
inline void RequireOnednnFloat32(const OperatorBase& op) {
  RequireDTypes(op, kOnednnBackend, {DType::kFloat32});
}

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_BACKEND_HPP_
