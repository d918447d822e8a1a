// ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceL1, ReduceL2 and ReduceSumSquare
// of float32 for the "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_REDUCE_HPP_
#define OPKIT_BACKENDS_EIGEN_REDUCE_HPP_

#include <cmath>

#include "opkit/backends/eigen/support/eigen.hpp"
#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/ops/math/reduce.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The reductions, in vectors of Numbers. Block reduces a short run to one number; Add folds a run
// into another run of the same length. Join combines the results of blocks in double. With kMayFail
// a result in float is valid only if IsSound() is true; otherwise it is computed again in double.
struct FastSum {
  using Number = float;
  static constexpr double kStart = 0;
  static constexpr bool kMayFail = true;
  static bool IsSound(float sum) { return std::isfinite(sum); }
  static auto Block(const auto& x) { return x.sum(); }
  static void Add(auto& sum, const auto& x) { sum += x; }
  static double Join(double a, double b) { return a + b; }
  static double Finish(double sum, int64_t) { return sum; }
};
struct FastMean : FastSum {
  static double Finish(double sum, int64_t count) { return sum / static_cast<double>(count); }
};
struct FastSumSquare : FastSum {
  // True if the sum is finite and above a bound: squares that underflow are lost, but cannot change
  // such a sum.
  static bool IsSound(float sum) { return std::isfinite(sum) && sum > 1e-30f; }
  static auto Block(const auto& x) { return x.square().sum(); }
  static void Add(auto& sum, const auto& x) { sum += x.square(); }
};
struct FastL2 : FastSumSquare {
  static double Finish(double sum, int64_t) { return std::sqrt(sum); }
};
struct FastL1 : FastSum {
  static auto Block(const auto& x) { return x.abs().sum(); }
  static void Add(auto& sum, const auto& x) { sum += x.abs(); }
};
// Multiplies in double only, because a product in float does not show that an intermediate result
// overflowed or underflowed.
struct FastProd {
  using Number = double;
  static constexpr double kStart = 1;
  static constexpr bool kMayFail = false;
  static double Block(const auto& x) { return x.template cast<double>().prod(); }
  static void Add(auto& product, const auto& x) { product *= x; }
  static double Join(double a, double b) { return a * b; }
  static double Finish(double product, int64_t) { return product; }
};
// The maximum or minimum. A NaN makes the result NaN.
template <bool kMax>
struct FastExtreme {
  using Number = float;
  static constexpr bool kMayFail = false;
  static constexpr double kStart =
      kMax ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  static float Block(const ConstFloatArray& x) {
    if constexpr (kMax)
      return x.template maxCoeff<Eigen::PropagateNaN>();
    else
      return x.template minCoeff<Eigen::PropagateNaN>();
  }
  static void Add(auto& best, const ConstFloatArray& x) {
    using Greater = Eigen::internal::scalar_max_op<float, float, Eigen::PropagateNaN>;
    using Less = Eigen::internal::scalar_min_op<float, float, Eigen::PropagateNaN>;
    best = best.binaryExpr(x, std::conditional_t<kMax, Greater, Less>());
  }
  static double Join(double a, double b) {
    if (a != a || b != b) return a + b;
    return kMax == (a > b) ? a : b;
  }
  static double Finish(double best, int64_t) { return best; }
};

}  // namespace detail

// Reduces runs along a reduced last axis to one number each. If the last axis is kept, folds blocks
// of columns row by row. The blocks depend only on the shape, not on the number of threads.
template <class Fold>
class ReduceEigenOp final : public ReduceOpBase {
 public:
  using ReduceOpBase::ReduceOpBase;

  static constexpr auto& Propose = ProposeFloat32;

  bool RunOnDevice() override {
    RequireFloat32(*this);
    Tensor* out = InferredOutput(0);
    const ReducePlan& plan = Plan();
    const float* x = DenseInput(0).template data<float>();
    float* y = out->mutable_data<float>();
    if (plan.outputs == 0) return true;
    if (plan.count == 0)
      for (int64_t o = 0; o < plan.outputs; ++o)
        y[o] = static_cast<float>(Fold::Finish(Fold::kStart, 0));
    else if (plan.kept.empty() && plan.reduced.size() == 1 && plan.count > kPart)
      All(plan.count, x, y);
    else if (plan.reduces_last || plan.kept.empty())
      Rows(plan, x, y);
    else
      Columns(plan, x, y);
    return true;
  }

 private:
  static constexpr int64_t kGrain = 32768;  // elements for one thread
  static constexpr int64_t kPart = 65536;
  // The number of columns of a block, and of rows that are added in Number.
  static constexpr int64_t kBlock = 256;

  using Totals = Eigen::Array<double, Eigen::Dynamic, 1, 0, kBlock, 1>;

  // Reduces `count` neighbouring elements.
  static double Run(int64_t count, const float* x) {
    constexpr int64_t kFloats = 2048;
    double sum = Fold::kStart;
    for (int64_t at = 0; at < count; at += kFloats) {
      const detail::ConstFloatArray block(x + at, (std::min)(kFloats, count - at));
      const auto part = Fold::Block(block);
      auto joined = static_cast<double>(part);
      if constexpr (Fold::kMayFail)
        if (!Fold::IsSound(part)) joined = Fold::Block(block.template cast<double>());
      sum = Fold::Join(sum, joined);
    }
    return sum;
  }
  // Reduces all elements to one, in parts for the threads.
  void All(int64_t count, const float* x, float* y) {
    parts_.resize(static_cast<size_t>((count - 1) / kPart + 1));
    ParallelForRange(static_cast<int64_t>(parts_.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        parts_[detail::Index(i)] = Run((std::min)(kPart, count - i * kPart), x + i * kPart);
    });
    double sum = Fold::kStart;
    for (const double part : parts_) sum = Fold::Join(sum, part);
    *y = static_cast<float>(Fold::Finish(sum, count));
  }
  // Computes each output from runs along the last axis.
  static void Rows(const ReducePlan& plan, const float* x, float* y) {
    const size_t outer = plan.reduced.empty() ? 0 : plan.reduced.size() - 1;
    const int64_t length = plan.reduced.empty() ? 1 : plan.reduced.back().extent;
    ParallelForRange(plan.outputs, kGrain / plan.count + 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        double sum = Fold::kStart;
        ReducePlan::Walk(plan.reduced.data(), outer,
                         ReducePlan::Offset(plan.kept, plan.kept.size(), o),
                         [&](int64_t at) { sum = Fold::Join(sum, Run(length, x + at)); });
        y[o] = static_cast<float>(Fold::Finish(sum, plan.count));
      }
    });
  }
  // Computes the totals of a block of columns from `offset` on, from sums of up to kBlock rows in
  // Number. False if one of these sums is not sound.
  template <class Number>
  static bool AddRows(const ReducePlan& plan, int64_t offset, const float* x, Totals& totals) {
    const int64_t count = totals.size();
    Eigen::Array<Number, Eigen::Dynamic, 1, 0, kBlock, 1> sum(count);
    totals.setConstant(Fold::kStart);
    bool sound = true;
    int64_t added = 0;
    auto flush = [&] {
      for (int64_t j = 0; j < count; ++j) {
        if constexpr (Fold::kMayFail && std::is_same_v<Number, float>)
          sound &= Fold::IsSound(sum[j]);
        totals[j] = Fold::Join(totals[j], static_cast<double>(sum[j]));
      }
      added = 0;
    };
    ReducePlan::Walk(plan.reduced.data(), plan.reduced.size(), offset, [&](int64_t at) {
      if (added == 0) sum.setConstant(static_cast<Number>(Fold::kStart));
      Fold::Add(sum, detail::ConstFloatArray(x + at, count).template cast<Number>());
      if (++added == kBlock) flush();
    });
    if (added > 0) flush();
    return sound;
  }
  // Computes the outputs in blocks of columns.
  static void Columns(const ReducePlan& plan, const float* x, float* y) {
    const int64_t width = plan.kept.back().extent, blocks = (width - 1) / kBlock + 1;
    const int64_t rows = plan.outputs / width, work = plan.count * (std::min)(width, kBlock);
    ParallelForRange(rows * blocks, kGrain / work + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / blocks, column = i % blocks * kBlock;
        const int64_t count = (std::min)(kBlock, width - column);
        const int64_t offset = ReducePlan::Offset(plan.kept, plan.kept.size() - 1, row) + column;
        Totals totals(count);
        const bool sound = AddRows<typename Fold::Number>(plan, offset, x, totals);
        if constexpr (Fold::kMayFail)
          if (!sound) AddRows<double>(plan, offset, x, totals);
        for (int64_t j = 0; j < count; ++j)
          y[row * width + column + j] = static_cast<float>(Fold::Finish(totals[j], plan.count));
      }
    });
  }

  std::vector<double> parts_;
};

#define OPKIT_FAST_REDUCTION(name, Fold) OPKIT_EIGEN_OPERATOR(name, ReduceEigenOp<Fold>)

OPKIT_FAST_REDUCTION(ReduceSum, detail::FastSum);
OPKIT_FAST_REDUCTION(ReduceMean, detail::FastMean);
OPKIT_FAST_REDUCTION(ReduceProd, detail::FastProd);
OPKIT_FAST_REDUCTION(ReduceMax, detail::FastExtreme<true>);
OPKIT_FAST_REDUCTION(ReduceMin, detail::FastExtreme<false>);
OPKIT_FAST_REDUCTION(ReduceL1, detail::FastL1);
OPKIT_FAST_REDUCTION(ReduceL2, detail::FastL2);
OPKIT_FAST_REDUCTION(ReduceSumSquare, detail::FastSumSquare);
#undef OPKIT_FAST_REDUCTION

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_REDUCE_HPP_
