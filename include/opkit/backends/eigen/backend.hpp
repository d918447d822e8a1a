// The "eigen" backend: kernels of the standard operators, made of single-threaded Eigen and plain
// loops over blocks that ParallelFor spreads over the toolkit's threads. Every header of this
// folder includes this one first.
#ifndef OPKIT_BACKENDS_EIGEN_BACKEND_HPP_
#define OPKIT_BACKENDS_EIGEN_BACKEND_HPP_

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit::inline OPKIT_ABI {

inline constexpr const char* kEigenBackend = "eigen";
inline constexpr int kEigenRank = 100;
OPKIT_REGISTER_BACKEND_RANK(kEigenBackend, kEigenRank);

// For Propose of a kernel for float32: refuses a node whose first input is not known to be float32.
inline void RequireFloat32(const KernelQuery& query) {
  const DType found = query.inputs[0].dtype;
  if (found != DType::kFloat32)
    throw UnsupportedOperatorFeature(
        StrCat("it computes float32, and input 0 is ",
               found == DType::kUndefined ? "not known" : ToString(found)));
}
inline std::vector<KernelConfig> ProposeFloat32(const KernelQuery& query) {
  RequireFloat32(query);
  return {KernelConfig()};
}
// A proposal for float32, with the output in the memory of input 0 if possible.
inline std::vector<KernelConfig> ProposeInplaceFloat32(const KernelQuery& query) {
  std::vector<KernelConfig> proposed = ProposeFloat32(query);
  proposed[0].inplace = {{0, 0}};
  return proposed;
}
// For runs, as CreateOperator makes operators before their inputs' types are known.
inline void RequireFloat32(const OperatorBase& op) {
  RequireDTypes(op, kEigenBackend, {DType::kFloat32});
}

}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_BACKEND_HPP_
