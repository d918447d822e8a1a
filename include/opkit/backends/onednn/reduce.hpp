// ReduceSum and the other reductions of float32 for the "onednn" backend. Plain loops reduce the
// pixels of images in blocks of channels, so that a chain of nodes keeps its layout. oneDNN reduces
// the last axes of other tensors.
#ifndef OPKIT_BACKENDS_ONEDNN_REDUCE_HPP_
#define OPKIT_BACKENDS_ONEDNN_REDUCE_HPP_

#include <cmath>
#include <cstring>

#include "opkit/backends/onednn/blocks.hpp"
#include "opkit/backends/onednn/primitive.hpp"
#include "opkit/ops/math/reduce.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns oneDNN's algorithm for ReduceSum and ReduceMean. oneDNN's other reductions differ from
// the reference kernels in their results, or are slower: for them throws UnsupportedOperatorFeature
// with the reason.
inline dnnl::algorithm OnednnReduction(std::string_view op) {
  if (op == "ReduceSum") return dnnl::algorithm::reduction_sum;
  if (op == "ReduceMean") return dnnl::algorithm::reduction_mean;
  if (op == "ReduceMax" || op == "ReduceMin")
    throw UnsupportedOperatorFeature("oneDNN's loses a NaN");
  if (op == "ReduceProd")
    throw UnsupportedOperatorFeature(
        "oneDNN multiplies in float, which does not show what a product lost on the way");
  throw UnsupportedOperatorFeature("oneDNN takes one element at a time for it");
}

// Eight channels of a pixel, and eight sums. Vector types, because compilers do not vectorize the
// selections below by themselves.
typedef float OnednnFloats __attribute__((vector_size(32)));
typedef double OnednnDoubles __attribute__((vector_size(64)));

// The reductions of eight channels at once: Add takes a pixel, Join takes the result of other
// pixels.
struct OnednnSum {
  using Lanes = OnednnDoubles;
  static void Add(Lanes& sum, const OnednnFloats& x) { sum += __builtin_convertvector(x, Lanes); }
  static void Join(Lanes& sum, const Lanes& other) { sum += other; }
};
struct OnednnSumSquare : OnednnSum {
  static void Add(Lanes& sum, const OnednnFloats& x) {
    const Lanes wide = __builtin_convertvector(x, Lanes);
    sum += wide * wide;
  }
};
struct OnednnL1 : OnednnSum {
  static void Add(Lanes& sum, const OnednnFloats& x) { OnednnSum::Add(sum, x < 0 ? -x : x); }
};
struct OnednnProd {
  using Lanes = OnednnDoubles;
  static void Add(Lanes& product, const OnednnFloats& x) {
    product *= __builtin_convertvector(x, Lanes);
  }
  static void Join(Lanes& product, const Lanes& other) { product *= other; }
};
template <bool kMax>
struct OnednnExtreme {
  using Lanes = OnednnFloats;
  static void Add(Lanes& best, const OnednnFloats& x) {
    if constexpr (kMax)
      best = ((x > best) | (x != x)) ? x : best;
    else
      best = ((x < best) | (x != x)) ? x : best;
  }
  static void Join(Lanes& best, const Lanes& other) { Add(best, other); }
};

}  // namespace detail

// `Kind` is a reduction of ops/math/reduce.hpp; `Fold` is the same reduction of eight channels,
// with sums in double, too. oneDNN adds in float, so only rows of at most kMostAdded elements are
// accepted. Rows whose sum is not finite are added again in double.
template <class Kind, class Fold>
class ReduceOnednnOp final : public ReduceOpBase {
 public:
  using ReduceOpBase::ReduceOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireOnednnTensors(query, 1);
    const ReducePlan plan = PlanOf(query);
    const Shape x = query.inputs[0].shape.ToShape(), y = query.outputs[0].shape.ToShape();
    KernelConfig config;
    if (const int64_t block = detail::OnednnBlockOf(query.inputs[0].layout); block > 0) {
      if (!IsOverPixels(plan, x))
        throw UnsupportedOperatorFeature("in blocks of channels it reduces all pixels of each");
      config.input_layouts.resize(query.inputs.size());
      config.input_layouts[0] = query.inputs[0].layout;
      config.output_layouts.resize(1);
      if (y.rank() == x.rank()) config.output_layouts[0] = detail::OnednnBlocked(y, block);
      return {config};
    }
    detail::OnednnReduction(query.def.type());
    if (query.def.backends() != kOnednnBackend)
      throw UnsupportedOperatorFeature(
          "in the standard layout Eigen's takes less time (bench/kernels); a node that asks for "
          "this backend gets it");
    RequireRows(plan);
    return {config};
  }

  bool RunOnDevice() override {
    RequireOnednnFloat32(*this);
    Tensor* y = InferredOutput(0);
    const ReducePlan& plan = Plan();
    switch (detail::OnednnBlockOf(Input(0).layout())) {
      case 8:
        return RunInBlocks<8>(plan, *y);
      case 16:
        return RunInBlocks<16>(plan, *y);
      default:
        return RunRows(plan, *y);
    }
  }

 private:
  // Returns the plan of a node. Throws UnsupportedOperatorFeature if its axes are not constant,
  // because they decide in which layouts the node can run.
  static ReducePlan PlanOf(const KernelQuery& query) {
    const bool has_axes = query.inputs.size() > 1 && !query.def.inputs()[1].empty();
    if (has_axes && !query.inputs[1].constant)
      throw UnsupportedOperatorFeature("its axes are not constant");
    const Dims axes =
        has_axes ? IntegerList(*query.inputs[1].constant, "the axes of a reduction") : Dims();
    const bool noop = query.def.args().Get<int64_t>("noop_with_empty_axes", 0) != 0;
    const Shape x = query.inputs[0].shape.ToShape();
    return {x, Mask(axes, noop, x.rank(), query.def.type())};
  }
  // True if images [N, C, D1, ...] are reduced to [N, C], apart from axes of extent 1.
  static bool IsOverPixels(const ReducePlan& plan, const Shape& x) {
    return plan.outputs == x[0] * x[1] && AreRows(plan);
  }
  // True if the elements of each output are contiguous.
  static bool AreRows(const ReducePlan& plan) {
    return plan.reduced.empty() || (plan.reduces_last && plan.reduced.size() == 1);
  }

  template <int kBlock>
  bool RunInBlocks(const ReducePlan& plan, Tensor& out) {
    const Tensor& image = Input(0);
    if (!IsOverPixels(plan, image.shape()))
      throw UnsupportedOperatorFeature("in blocks of channels it reduces all pixels of each");
    const detail::OnednnBlocks blocks(image.shape(), kBlock);
    const auto* x = static_cast<const float*>(image.raw_data());
    auto* y = static_cast<float*>(out.raw_mutable_data());
    const bool has_pads = !out.layout().is_standard();
    constexpr int64_t kGrainFloats = 8192;
    ParallelForRange(
        blocks.planes(), kGrainFloats / blocks.plane() + 1, [&](int64_t begin, int64_t end) {
          for (int64_t plane = begin; plane < end; ++plane) {
            float reduced[kBlock];
            for (int lane = 0; lane < kBlock; lane += kLanes)
              Reduce<kBlock>(x + plane * blocks.plane() + lane, blocks.pixels, reduced + lane);
            const int64_t image_at = plane / blocks.blocks();
            const int64_t channel = plane % blocks.blocks() * kBlock;
            // Pads are 0, and every reduction of zeros is 0.
            if (has_pads)
              std::copy_n(reduced, kBlock, y + plane * kBlock);
            else
              std::copy_n(reduced, (std::min)(int64_t{kBlock}, blocks.channels - channel),
                          y + image_at * blocks.channels + channel);
          }
        });
    return true;
  }
  // Reduces the pixels of eight channels from `x` on. Adds four pixels at once, because each
  // addition waits for the one before.
  template <int kBlock>
  static void Reduce(const float* x, int64_t pixels, float* y) {
    constexpr int kAtOnce = 4;
    typename Fold::Lanes sums[kAtOnce];
    for (auto& sum : sums) sum = typename Fold::Lanes{} + Kind::Start();
    const auto add = [x](typename Fold::Lanes& sum, int64_t pixel) {
      detail::OnednnFloats in;
      std::memcpy(&in, x + pixel * kBlock, sizeof in);
      Fold::Add(sum, in);
    };
    int64_t pixel = 0;
    for (; pixel + kAtOnce <= pixels; pixel += kAtOnce)
      for (int i = 0; i < kAtOnce; ++i) add(sums[i], pixel + i);
    for (; pixel < pixels; ++pixel) add(sums[0], pixel);
    for (int i = 1; i < kAtOnce; ++i) Fold::Join(sums[0], sums[i]);
    for (int k = 0; k < kLanes; ++k)
      y[k] = detail::ElementOfSum<float>(Kind::Finish(sums[0][k], pixels));
  }

  // Throws UnsupportedOperatorFeature unless the last axes alone are reduced, and are short enough.
  static void RequireRows(const ReducePlan& plan) {
    if (!AreRows(plan) || plan.count <= 1)
      throw UnsupportedOperatorFeature("it reduces the last axes, and no others");
    if (plan.count > kMostAdded)
      throw UnsupportedOperatorFeature(
          StrCat("of ", plan.count, " elements a sum in float is not exact enough"));
  }
  // Reduces the last axes with oneDNN.
  bool RunRows(const ReducePlan& plan, Tensor& out) {
    const dnnl::algorithm algorithm = detail::OnednnReduction(type());
    const Tensor& x = DenseInput(0);
    auto* y = out.mutable_data<float>();
    if (x.numel() == 0) {
      std::fill_n(y, out.numel(), detail::ElementOfSum<float>(Kind::Finish(Kind::Start(), 0)));
      return true;
    }
    RequireRows(plan);
    primitive_.Run(*this, inference().version(), {x.raw_data(), y}, [&](int threads) {
      const double flops = static_cast<double>(x.numel());
      const int64_t parts = detail::OnednnPieces(flops, threads, plan.outputs);
      std::vector<detail::OnednnPiece> pieces;
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t first = plan.outputs * i / parts, last = plan.outputs * (i + 1) / parts;
        const auto from = detail::RowMajorDesc({last - first, plan.count});
        const auto to = detail::RowMajorDesc({last - first, 1});
        const dnnl::reduction::primitive_desc kernel(detail::OnednnEngine(), algorithm, from, to,
                                                     0.f, 0.f, detail::OnednnAttributes());
        pieces.push_back({dnnl::reduction(kernel),
                          {{DNNL_ARG_SRC, from, first * plan.count}, {DNNL_ARG_DST, to, first}},
                          kernel.scratchpad_desc()});
      }
      return pieces;
    });
    for (int64_t o = 0; o < plan.outputs; ++o)
      if (!std::isfinite(y[o])) {
        auto sum = Kind::Start();
        for (int64_t i = 0; i < plan.count; ++i)
          Kind::Add(sum, x.data<float>()[o * plan.count + i]);
        y[o] = detail::ElementOfSum<float>(Kind::Finish(sum, plan.count));
      }
    return true;
  }

  static constexpr int kLanes = 8;

  // The largest number of elements of a sum. Each of eight lanes adds at most 512 of them in float,
  // so that the error is at most 3e-5 of the sum of their magnitudes.
  static constexpr int64_t kMostAdded = 4096;

  detail::OnednnPrimitive primitive_;
};

#define OPKIT_ONEDNN_REDUCTION(name, ...) \
  OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(name, onednn, ReduceOnednnOp<__VA_ARGS__>)

OPKIT_ONEDNN_REDUCTION(ReduceSum, detail::ReduceAsSum<float, double>, detail::OnednnSum);
OPKIT_ONEDNN_REDUCTION(ReduceMean, detail::ReduceAsMean<float, double>, detail::OnednnSum);
OPKIT_ONEDNN_REDUCTION(ReduceProd, detail::ReduceAsProd<float, double>, detail::OnednnProd);
OPKIT_ONEDNN_REDUCTION(ReduceMax, detail::ReduceAsExtreme<true>::Of<float, double>,
                       detail::OnednnExtreme<true>);
OPKIT_ONEDNN_REDUCTION(ReduceMin, detail::ReduceAsExtreme<false>::Of<float, double>,
                       detail::OnednnExtreme<false>);
OPKIT_ONEDNN_REDUCTION(ReduceL1, detail::ReduceAsL1<float, double>, detail::OnednnL1);
OPKIT_ONEDNN_REDUCTION(ReduceL2, detail::ReduceAsL2<float, double>, detail::OnednnSumSquare);
OPKIT_ONEDNN_REDUCTION(ReduceSumSquare, detail::ReduceAsSumSquare<float, double>,
                       detail::OnednnSumSquare);
#undef OPKIT_ONEDNN_REDUCTION

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_REDUCE_HPP_
