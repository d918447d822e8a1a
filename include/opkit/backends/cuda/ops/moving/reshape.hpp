// Operators on CUDA whose output has the bytes of the input: Reshape, Flatten, Squeeze, Unsqueeze
// and Identity. An output in place costs no copy.
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_RESHAPE_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_RESHAPE_HPP_

#include "opkit/backends/cuda/ops/moving/strided_copy.hpp"
#include "opkit/ops/identity.hpp"
#include "opkit/ops/reshape.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class CUDAViewOp final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    LeaveShapesOnHost(query);
    const DType dtype = query.inputs[0].dtype;
    if (dtype == DType::kUndefined || IsObject(dtype))
      throw UnsupportedOperatorFeature("it copies numbers, and input 0 is of another type");
    KernelConfig config;
    config.inplace = {{0, 0}};
    return {std::move(config)};
  }

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (y->raw_data() != x.raw_data() && x.nbytes() > 0)
      OPKIT_CUDA_CHECK(cudaMemcpyAsync(y->raw_mutable_data(), x.raw_data(),
                                       static_cast<size_t>(x.nbytes()), cudaMemcpyDeviceToDevice,
                                       context_.cuda_stream()));
    return true;
  }
};

OPKIT_CUDA_OPERATOR(Reshape, CUDAViewOp);
OPKIT_CUDA_OPERATOR(Flatten, CUDAViewOp);
OPKIT_CUDA_OPERATOR(Squeeze, CUDAViewOp);
OPKIT_CUDA_OPERATOR(Unsqueeze, CUDAViewOp);
OPKIT_CUDA_OPERATOR(Identity, CUDAViewOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_RESHAPE_HPP_
