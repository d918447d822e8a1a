// CUDAStandardOperator: the base of the standard operators' kernels on CUDA. Every header of this
// folder includes this header first.
#ifndef OPKIT_BACKENDS_CUDA_OPS_CUDA_OPERATOR_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_CUDA_OPERATOR_HPP_

#include "opkit/backends/cuda/context.hpp"
#include "opkit/backends/cuda/parallel_for.hpp"
#include "opkit/backends/cuda/teams.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The kernels of this folder that only need the CUDA runtime.
inline constexpr const char* kCUDABackend = "cuda";
inline constexpr int kCUDARank = 100;
OPKIT_REGISTER_BACKEND_RANK(kCUDABackend, kCUDARank);

using CUDAStandardOperator = StandardOperatorOn<CUDAContext>;

// Throws UnsupportedOperatorFeature unless the dtype of input i is known and one of Types. For
// Propose.
template <class Types>
void RequireTypes(const KernelQuery& query, size_t i = 0) {
  RequireDTypes(query, i, Types::DTypes());
}
// Throws UnsupportedOperatorFeature if every input is a short list of integers in the host's
// memory. Such lists are shapes, which the host reads again: a kernel on the device would only add
// copies there and back. For Propose.
inline void LeaveShapesOnHost(const KernelQuery& query) {
  constexpr int64_t kLong = 64;
  for (const TensorInfo& input : query.inputs) {
    if (input.dtype == DType::kUndefined) continue;  // left out
    const SymbolicShape& shape = input.shape;
    const bool is_list = shape.is_known() && shape.rank() <= 1 && shape.ToShape().numel() <= kLong;
    const bool is_integer = input.dtype == DType::kInt64 || input.dtype == DType::kInt32;
    if (!is_list || !is_integer || !IsHostAccessible(input.device.type)) return;
  }
  if (!query.inputs.empty())
    throw UnsupportedOperatorFeature("it leaves shapes, short lists of integers, on the host");
}
// Returns a configuration with the in-place pairs of the schema. Throws as LeaveShapesOnHost. For
// Propose.
inline KernelConfig InplaceConfig(const KernelQuery& query) {
  LeaveShapesOnHost(query);
  const OpSchema& schema = OpRegistry::Global().GetSchema(query.def.type());
  KernelConfig config;
  for (int i = 0; i < static_cast<int>(query.inputs.size()); ++i)
    if (schema.CanInplace(i, 0)) config.inplace.emplace_back(i, 0);
  return config;
}
// Returns one configuration, with the in-place pairs of the schema, if input 0 is of one of Types.
// For Propose.
template <class Types>
std::vector<KernelConfig> ProposeTypes(const KernelQuery& query) {
  RequireTypes<Types>(query);
  return {InplaceConfig(query)};
}

}}  // namespace opkit

// Registers the kernel of an operator for a backend of CUDA, and for the backend "cuda". The class
// comes last, so that it may contain commas.
#define OPKIT_CUDA_OPERATOR_OF(backend, name, ...) \
  OPKIT_REGISTER_OPERATOR(::opkit::DeviceType::kCUDA, name, backend, kDefault, __VA_ARGS__)
#define OPKIT_CUDA_OPERATOR(name, ...) \
  OPKIT_CUDA_OPERATOR_OF(::opkit::kCUDABackend, name, __VA_ARGS__)

#endif  // OPKIT_BACKENDS_CUDA_OPS_CUDA_OPERATOR_HPP_
