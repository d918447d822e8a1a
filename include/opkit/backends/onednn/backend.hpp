// The "onednn" backend: kernels of the standard operators made with oneDNN 3, for float32. Where
// the weights are constant they work in blocks of channels (nChw8c), and so do the light operators
// between them, so that a chain converts once at its start and once at its end. Every header of
// this folder includes this one first.
#ifndef OPKIT_BACKENDS_ONEDNN_BACKEND_HPP_
#define OPKIT_BACKENDS_ONEDNN_BACKEND_HPP_

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit::inline OPKIT_ABI {

inline constexpr const char* kOnednnBackend = "onednn";
inline constexpr int kOnednnRank = 200;
OPKIT_REGISTER_BACKEND_RANK(kOnednnBackend, kOnednnRank);

// For Propose: refuses a node unless its inputs and output 0 have known shapes with elements and
// its tensors are of this dtype. Inputs from `first_other` on are not looked at.
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
// For Propose of a kernel that other backends have as well, for the same layouts: the operations
// below which a call of oneDNN, of about half a microsecond, takes longer than what it saves
// (bench/kernels).
inline constexpr double kOnednnLeastFlops = 1e5;

// Refuses a node of less work, unless it asks for this backend.
inline void RequireOnednnWork(const KernelQuery& query, double flops) {
  if (flops >= kOnednnLeastFlops || query.def.engine() == kOnednnBackend) return;
  throw UnsupportedOperatorFeature(StrCat("for ", static_cast<int64_t>(flops),
                                          " operations a call of oneDNN takes longer than what it "
                                          "saves"));
}
}  // namespace detail

// For runs, as CreateOperator makes operators before their inputs' types are known.
inline void RequireOnednnFloat32(const OperatorBase& op) {
  RequireDTypes(op, kOnednnBackend, {DType::kFloat32});
}

}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_BACKEND_HPP_
