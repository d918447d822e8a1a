// The "eigen" backend: kernels of the standard operators. They run single-threaded Eigen and plain
// loops on blocks, and ParallelFor distributes the blocks over the toolkit's threads. Every header
// of this folder includes this header first.
#ifndef OPKIT_BACKENDS_EIGEN_BACKEND_HPP_
#define OPKIT_BACKENDS_EIGEN_BACKEND_HPP_

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

inline constexpr const char* kEigenBackend = "eigen";
inline constexpr int kEigenRank = 100;
OPKIT_REGISTER_BACKEND_RANK(kEigenBackend, kEigenRank);

// Throws UnsupportedOperatorFeature unless the first input is known to be float32. For Propose of
// kernels for float32.
inline void RequireFloat32(const KernelQuery& query) { RequireDTypes(query, 0, {DType::kFloat32}); }
// Returns a default configuration if the first input is float32. For Propose.
inline std::vector<KernelConfig> ProposeFloat32(const KernelQuery& query) {
  RequireFloat32(query);
  return {KernelConfig()};
}
// Returns a configuration for float32 in which the output may share the memory of input 0. For
// Propose.
inline std::vector<KernelConfig> ProposeInplaceFloat32(const KernelQuery& query) {
  std::vector<KernelConfig> proposed = ProposeFloat32(query);
  proposed[0].inplace = {{0, 0}};
  return proposed;
}
// Throws UnsupportedOperatorFeature unless input 0 is float32. For runs, because CreateOperator
// makes operators before the types of their inputs are known.
inline void RequireFloat32(const OperatorBase& op) {
  RequireDTypes(op, kEigenBackend, {DType::kFloat32});
}

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_BACKEND_HPP_
