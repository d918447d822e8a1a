// ConvKernel: the kernel of Conv and of ConvTranspose for the "eigen" backend, around the algorithm
// that computes a convolution of known sizes.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_CONV_KERNEL_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_CONV_KERNEL_HPP_

#include "opkit/backends/eigen/backend.hpp"
#include "opkit/ops/nn/conv.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An Algorithm is constructed from the ConvSizes, the number of groups and the number of threads.
// The kernel keeps it until a shape or the number of threads changes. The function kSizes returns
// the ConvSizes; it takes the attributes, the number of groups and the shapes of X and W.
template <class Attributes, class Algorithm, auto kSizes>
class ConvKernel final : public BasicConvOpBase<Attributes> {
 public:
  using BasicConvOpBase<Attributes>::BasicConvOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireFloat32(query);
    KernelConfig config;
    const SymbolicShape &x = query.inputs[0].shape, &w = query.inputs[1].shape;
    const SymbolicShape& y = query.outputs[0].shape;
    if (x.is_known() && w.is_known() && y.is_known() && y.ToShape().numel() > 0) {
      const int64_t groups = ConvGroups(query.def);
      const ConvSizes sizes = kSizes(Attributes(query.def), groups, x.ToShape(), w.ToShape());
      const int threads = ThreadPool::Current().threads();
      config.scratch_bytes = Algorithm(sizes, groups, threads).ScratchBytes(threads);
    }
    return {config};
  }

  bool RunOnDevice() override {
    RequireFloat32(*this);
    const Shape &x = this->Input(0).shape(), &w = this->Input(1).shape();
    Tensor* y = this->InferredOutput(0);
    if (y->numel() == 0) return true;
    const int threads = ThreadPool::Current().threads();
    if (!algorithm_ || x != x_shape_ || w != w_shape_ || threads != threads_) {
      algorithm_ = std::make_unique<Algorithm>(kSizes(this->attributes_, this->groups_, x, w),
                                               this->groups_, threads);
      algorithm_->MakeTables();
      x_shape_ = x;
      w_shape_ = w;
      threads_ = threads;
    }
    algorithm_->Run(this->template DataOf<float>(*y),
                    this->Scratch(algorithm_->ScratchBytes(threads)), threads);
    return true;
  }

 private:
  // Made for the shapes and the number of threads below.
  std::unique_ptr<Algorithm> algorithm_;
  Shape x_shape_, w_shape_;
  int threads_ = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_CONV_KERNEL_HPP_
