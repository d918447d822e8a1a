// Gather, GatherElements and GatherND on CUDA. An index outside its axis selects a zero
// (CUDAIndexedOperator).
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_GATHER_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_GATHER_HPP_

#include "opkit/backends/cuda/ops/broadcast_index.hpp"
#include "opkit/backends/cuda/ops/moving/index_fault.hpp"
#include "opkit/backends/cuda/ops/moving/strided_copy.hpp"
#include "opkit/ops/gather.hpp"
#include "opkit/ops/indexing/gather_nd.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The slices of a tensor that lists of indices select: list i has `depth` indices, of the axes
// after the batch axes. A slice has `block` elements.
struct CUDASlices {
  static constexpr int kMaxDepth = 16;

  CUDAIndices indices;
  int depth = 1;
  int64_t lists_of_batch = 1;  // lists of one position of the batch axes
  int64_t extents[kMaxDepth] = {};

  // Returns the number of the slice; -1 if an index is outside its axis.
  OPKIT_DEVICE int64_t Find(int64_t list) const {
    int64_t slice = DivideIndex(list, lists_of_batch);
    for (int k = 0; k < depth; ++k) {
      const int64_t index = indices.At(list * depth + k, extents[k]);
      if (index < 0) return -1;
      slice = slice * extents[k] + index;
    }
    return slice;
  }
};

// y[list, k] = x[slice of the list, k].
template <class T>
struct CUDAGatherLoop {
  const T* x;
  T* y;
  int64_t block;
  CUDASlices slices;

  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t list = DivideIndex(i, block), slice = slices.Find(list);
    y[i] = slice < 0 ? T{} : x[slice * block + (i - list * block)];
  }
};

// y[outer, position, k] = x[outer, index of the position, k].
template <class T>
struct CUDAGatherAxisLoop {
  const T* x;
  T* y;
  int64_t positions, extent, block;
  CUDAIndices indices;

  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t row = DivideIndex(i, block), outer = DivideIndex(row, positions);
    const int64_t index = indices.At(row - outer * positions, extent);
    y[i] = index < 0 ? T{} : x[(outer * extent + index) * block + (i - row * block)];
  }
};

// y[i] = the element of x at the place of i, but for the index along one axis.
template <class T>
struct CUDAGatherElementsLoop {
  const T* x;
  T* y;
  int64_t extent, stride;  // of that axis of x
  BroadcastIndex places;
  CUDAIndices indices;

  OPKIT_DEVICE void operator()(int64_t i) const {
    int64_t place = 0;
    places.Find<1>(i, &place);
    const int64_t index = indices.At(i, extent);
    y[i] = index < 0 ? T{} : x[place + index * stride];
  }
};

// Returns the strides of a dense tensor of shape `x` with 0 for `axis`.
inline Dims StridesWithout(int axis, const Shape& x) {
  Dims strides = x.DenseStrides();
  strides[axis] = 0;
  return strides;
}

}  // namespace detail

class CUDAGatherOp final : public CUDAIndexedOperator {
 public:
  using CUDAIndexedOperator::CUDAIndexedOperator;
  static constexpr auto& Propose = ProposeMoving;

 protected:
  bool RunIndexed() override {
    const Tensor& x = DenseInput(0);
    const auto indices = Indices(1);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const AxisSplit split(x.shape(), NormalizeAxis(Arg<int64_t>("axis"), x.rank(), type()));
    const int64_t bytes = split.inner * ItemSize(x.dtype()), positions = Input(1).numel();
    const int64_t width = detail::CUDAVectorBytes({static_cast<uint64_t>(bytes),
                                                   reinterpret_cast<uintptr_t>(x.raw_data()),
                                                   reinterpret_cast<uintptr_t>(y->raw_data())});
    detail::WithCUDAVector(width, [&]<class T>(T) {
      ParallelFor(context_, y->nbytes() / width,
                  detail::CUDAGatherAxisLoop<T>{static_cast<const T*>(x.raw_data()),
                                                static_cast<T*>(y->raw_mutable_data()), positions,
                                                split.extent, bytes / width, indices});
    });
    return true;
  }
};

class CUDAGatherElementsOp final : public CUDAIndexedOperator {
 public:
  using CUDAIndexedOperator::CUDAIndexedOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireRank(query, 0, detail::BroadcastIndex::kMaxAxes);
    return ProposeMoving(query);
  }

 protected:
  bool RunIndexed() override {
    const Tensor& x = DenseInput(0);
    const auto indices = Indices(1);
    Tensor* y = InferredOutput(0);
    const int axis = NormalizeAxis(Arg<int64_t>("axis"), x.rank(), type());
    const auto places =
        detail::BroadcastIndex::Of(y->shape(), {detail::StridesWithout(axis, x.shape())});
    detail::WithElementOfSize(ItemSize(x.dtype()), [&]<class T>(T) {
      ParallelFor(context_, y->numel(),
                  detail::CUDAGatherElementsLoop<T>{
                      static_cast<const T*>(x.raw_data()), static_cast<T*>(y->raw_mutable_data()),
                      x.dim(axis), x.shape().DenseStrides()[axis], places, indices});
    });
    return true;
  }
};

class CUDAGatherNDOp final : public CUDAIndexedOperator {
 public:
  using CUDAIndexedOperator::CUDAIndexedOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireRank(query, 0, detail::CUDASlices::kMaxDepth);
    return ProposeMoving(query);
  }

 protected:
  bool RunIndexed() override {
    const Tensor& x = DenseInput(0);
    detail::CUDASlices slices;
    slices.indices = Indices(1);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const Shape& lists = Input(1).shape();
    const auto batch = static_cast<int>(Arg<int64_t>("batch_dims"));
    slices.depth = static_cast<int>(lists[-1]);
    slices.lists_of_batch = lists.NumelBetween(batch, lists.rank() - 1);
    for (int k = 0; k < slices.depth; ++k) slices.extents[k] = x.dim(batch + k);
    const int64_t bytes =
        x.shape().NumelBetween(batch + slices.depth, x.rank()) * ItemSize(x.dtype());
    const int64_t width = detail::CUDAVectorBytes({static_cast<uint64_t>(bytes),
                                                   reinterpret_cast<uintptr_t>(x.raw_data()),
                                                   reinterpret_cast<uintptr_t>(y->raw_data())});
    detail::WithCUDAVector(width, [&]<class T>(T) {
      ParallelFor(
          context_, y->nbytes() / width,
          detail::CUDAGatherLoop<T>{static_cast<const T*>(x.raw_data()),
                                    static_cast<T*>(y->raw_mutable_data()), bytes / width, slices});
    });
    return true;
  }
};

OPKIT_CUDA_OPERATOR(Gather, CUDAGatherOp);
OPKIT_CUDA_OPERATOR(GatherElements, CUDAGatherElementsOp);
OPKIT_CUDA_OPERATOR(GatherND, CUDAGatherNDOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_GATHER_HPP_
