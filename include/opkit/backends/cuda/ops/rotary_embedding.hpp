// RotaryEmbedding on CUDA: a thread rotates each pair of numbers.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ROTARY_EMBEDDING_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ROTARY_EMBEDDING_HPP_

#include "opkit/backends/cuda/ops/moving/index_fault.hpp"
#include "opkit/backends/cuda/ops/sum_type.hpp"
#include "opkit/ops/nn/rotary_embedding.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Writes zeros for a step whose position lies outside the caches.
template <class T>
struct CUDARotaryLoop {
  using C = CUDASumType<T>;
  const T *x, *cosines, *sines;
  T* y;
  RotaryRows rows;
  CUDAIndices positions;
  int64_t cached;  // positions in the caches
  OPKIT_DEVICE void operator()(int64_t i) const {
    // A row has its pairs, and then the elements that are not rotated.
    const int64_t work = rows.size - rows.pairs, row = i / work, pair = i % work;
    const int64_t begin = row * rows.size;
    if (pair >= rows.pairs) {
      const int64_t at = begin + pair + rows.pairs;
      y[at] = x[at];
      return;
    }
    const int64_t first = begin + rows.First(pair), second = begin + rows.Second(pair);
    int64_t position = rows.Token(row);
    if (positions.data) position = positions.FromStart(position, cached);
    if (position < 0) {
      y[first] = y[second] = T{};
      return;
    }
    const C a = static_cast<C>(x[first]), b = static_cast<C>(x[second]);
    const C cosine = static_cast<C>(cosines[position * rows.pairs + pair]);
    const C sine = static_cast<C>(sines[position * rows.pairs + pair]);
    y[first] = ElementOfSum<T>(cosine * a - sine * b);
    y[second] = ElementOfSum<T>(sine * a + cosine * b);
  }
};

}  // namespace detail

class CUDARotaryEmbeddingOp final : public RotaryEmbeddingOn<CUDAIndexedOperator> {
 public:
  using RotaryEmbeddingOn::RotaryEmbeddingOn;
  static constexpr auto& Propose = ProposeTypes<FloatTypes>;

 private:
  bool RunIndexed() override {
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const Tensor &x = DenseInput(0), &cosines = DenseInput(1), &sines = DenseInput(2);
    const RotaryRows rows = Rows(x.shape());
    return Visit<FloatTypes>([&]<class T>() {
      ParallelFor(context_, x.numel() / rows.size * (rows.size - rows.pairs),
                  detail::CUDARotaryLoop<T>{
                      x.data<T>(), cosines.data<T>(), sines.data<T>(), y->mutable_data<T>(), rows,
                      HasInput(3) ? Indices(3) : detail::CUDAIndices(), cosines.dim(0)});
    });
  }
};

OPKIT_CUDA_OPERATOR(RotaryEmbedding, CUDARotaryEmbeddingOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ROTARY_EMBEDDING_HPP_
