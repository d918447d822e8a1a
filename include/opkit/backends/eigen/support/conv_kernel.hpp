// ConvKernel: the kernel of Conv and of ConvTranspose for the "eigen" backend, around the algorithm
// that computes a convolution of known sizes.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_CONV_KERNEL_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_CONV_KERNEL_HPP_

#include <memory>
#include <optional>
#include <string_view>

#include "opkit/backends/eigen/backend.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/ops/nn/conv.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Runs the loops of this thread on this thread alone. `pool` has one thread.
class OneThreadScope {
 public:
  explicit OneThreadScope(ThreadPool& pool) : pool_(pool) {}

 private:
  const ScopedValue<const LoopRunner*> no_runner_{t_loop_runner, nullptr};
  const PoolScope pool_;
};

// The variant in which a kernel runs on the caller's thread alone.
inline constexpr std::string_view kOneThread = "threads=1";

// An Algorithm is constructed from the ConvSizes, the number of groups, the number of threads, the
// name of a variant and the layout of W. Its function Variants returns the names other than the
// usual, empty one, and Weights returns the layout of W for a variant. If kOneThread is among the
// names, the kernel runs the usual algorithm on one thread. The kernel keeps the algorithm until a
// shape, the layout of W or the number of threads changes. The function kSizes returns the
// ConvSizes; it takes the attributes, the number of groups and the shapes of X and W.
template <class Attributes, class Algorithm, auto kSizes>
class ConvKernel final : public BasicConvOpBase<Attributes> {
 public:
  using BasicConvOpBase<Attributes>::BasicConvOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireFloat32(query);
    std::vector<KernelConfig> configs(1);
    const SymbolicShape &x = query.inputs[0].shape, &w = query.inputs[1].shape;
    const SymbolicShape& y = query.outputs[0].shape;
    if (x.is_known() && w.is_known() && y.is_known() && y.ToShape().numel() > 0) {
      const int64_t groups = ConvGroups(query.def);
      const ConvSizes sizes = kSizes(Attributes(query.def), groups, x.ToShape(), w.ToShape());
      const int threads = ThreadPool::Current().threads();
      const bool is_constant = query.inputs[1].constant;
      configs[0].scratch_bytes =
          Algorithm(sizes, groups, threads, "", Layout()).ScratchBytes(threads);
      // A variant requests at least the scratch of the usual way, so that a plan of the least
      // memory does not choose one that may be slower.
      for (const std::string_view variant :
           Algorithm::Variants(sizes, groups, threads, is_constant)) {
        KernelConfig& config = configs.emplace_back(configs[0]);
        config.variant = variant;
        const Layout weights = Algorithm::Weights(variant, is_constant);
        if (!weights.is_standard()) {
          config.input_layouts.resize(query.inputs.size());
          config.input_layouts[1] = weights;
          config.output_layouts.resize(1);
        }
        if (variant != kOneThread)
          config.scratch_bytes =
              (std::max)(config.scratch_bytes,
                         Algorithm(sizes, groups, threads, variant, weights).ScratchBytes(threads));
      }
    }
    return configs;
  }

  bool RunOnDevice() override {
    RequireFloat32(*this);
    const Shape &x = this->Input(0).shape(), &w = this->Input(1).shape();
    const Layout& weights = this->Input(1).layout();
    Tensor* y = this->InferredOutput(0);
    if (y->numel() == 0) return true;
    std::optional<OneThreadScope> one_thread;
    if (single_) one_thread.emplace(*single_);
    const int threads = ThreadPool::Current().threads();
    if (!algorithm_ || x != x_shape_ || w != w_shape_ || weights.id != weights_ ||
        threads != threads_) {
      const KernelConfig* const config = this->config();
      algorithm_ =
          std::make_unique<Algorithm>(kSizes(this->attributes_, this->groups_, x, w), this->groups_,
                                      threads, config ? config->variant : std::string(), weights);
      algorithm_->MakeTables();
      x_shape_ = x;
      w_shape_ = w;
      weights_ = weights.id;
      threads_ = threads;
    }
    algorithm_->Run(this->template DataOf<float>(*y),
                    this->Scratch(algorithm_->ScratchBytes(threads)), threads);
    return true;
  }

 private:
  // Set for the variant "threads=1".
  const std::unique_ptr<ThreadPool> single_{this->config() && this->config()->variant == kOneThread
                                                ? std::make_unique<ThreadPool>(1)
                                                : nullptr};
  // Made for the shapes and the number of threads below.
  std::unique_ptr<Algorithm> algorithm_;
  Shape x_shape_, w_shape_;
  LayoutId weights_ = kStandardLayout;
  int threads_ = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_CONV_KERNEL_HPP_
