// Gather, GatherElements and GatherND on CUDA. An index outside its axis selects a zero
// (CUDAIndexedOperator).
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_GATHER_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_GATHER_HPP_

#include <utility>

#include "opkit/backends/cuda/ops/broadcast_index.hpp"
#include "opkit/backends/cuda/ops/moving/index_fault.hpp"
#include "opkit/backends/cuda/ops/moving/strided_copy.hpp"
#include "opkit/ops/gather.hpp"
#include "opkit/ops/indexing/gather_nd.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The places of elements that indices select in a tensor: Find(i) returns the place of element i of
// the selection, -1 if an index is outside its axis.

// Places in slices: list l has `depth` indices, of the axes after the batch axes. A slice has
// `block` elements.
struct CUDASlicePlaces {
  static constexpr int kMaxDepth = 16;

  CUDAIndices indices;
  int64_t block = 1;
  int depth = 1;
  int64_t lists_of_batch = 1;  // lists of one position of the batch axes
  int64_t extents[kMaxDepth] = {};

  // `batch` is the number of batch axes of the lists and of the tensor.
  CUDASlicePlaces(const CUDAIndices& of, const Shape& lists, int batch, const Shape& tensor)
      : indices(of),
        depth(static_cast<int>(lists[-1])),
        lists_of_batch(lists.NumelBetween(batch, lists.rank() - 1)) {
    for (int k = 0; k < depth; ++k) extents[k] = tensor[batch + k];
  }
  OPKIT_DEVICE int64_t Find(int64_t i) const {
    const int64_t list = DivideIndex(i, block);
    int64_t slice = DivideIndex(list, lists_of_batch);
    for (int k = 0; k < depth; ++k) {
      const int64_t index = indices.At(list * depth + k, extents[k]);
      if (index < 0) return -1;
      slice = slice * extents[k] + index;
    }
    return slice * block + (i - list * block);
  }
};

// Places of the positions [outer, position, k] along an axis.
struct CUDAAxisPlaces {
  CUDAIndices indices;
  int64_t positions, extent, block;

  OPKIT_DEVICE int64_t Find(int64_t i) const {
    const int64_t row = DivideIndex(i, block), outer = DivideIndex(row, positions);
    const int64_t index = indices.At(row - outer * positions, extent);
    return index < 0 ? -1 : (outer * extent + index) * block + (i - row * block);
  }
};

// Places at the positions of the indices themselves, but for the index along one axis.
struct CUDAElementPlaces {
  CUDAIndices indices;
  int64_t extent, stride;  // of that axis of the tensor
  BroadcastIndex places;

  CUDAElementPlaces(const CUDAIndices& of, const Shape& positions, int axis, const Shape& tensor)
      : indices(of), extent(tensor[axis]) {
    Dims strides = tensor.DenseStrides();
    stride = std::exchange(strides[axis], 0);
    places = BroadcastIndex::Of(positions, {strides});
  }
  OPKIT_DEVICE int64_t Find(int64_t i) const {
    int64_t place = 0;
    places.Find<1>(i, &place);
    const int64_t index = indices.At(i, extent);
    return index < 0 ? -1 : place + index * stride;
  }
};

template <class T, class Places>
struct CUDAGatherLoop {
  const T* x;
  T* y;
  Places places;

  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t place = places.Find(i);
    y[i] = place < 0 ? T{} : x[place];
  }
};

// Calls f(from, to, block) with the widest vectors of which blocks of `bytes` consist: pointers to
// the first vectors, and the vectors of a block.
template <class F>
void WithCUDABlocks(int64_t bytes, const void* from, void* to, F f) {
  const int64_t width =
      CUDAVectorBytes({static_cast<uint64_t>(bytes), reinterpret_cast<uintptr_t>(from),
                       reinterpret_cast<uintptr_t>(to)});
  WithCUDAVector(width, [&]<class T>(T) {
    f(static_cast<const T*>(from), static_cast<T*>(to), bytes / width);
  });
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
    const int64_t positions = Input(1).numel();
    detail::WithCUDABlocks(
        split.inner * ItemSize(x.dtype()), x.raw_data(), y->raw_mutable_data(),
        [&]<class T>(const T* from, T* to, int64_t block) {
          const detail::CUDAAxisPlaces places{indices, positions, split.extent, block};
          ParallelFor(context_, y->nbytes() / static_cast<int64_t>(sizeof(T)),
                      detail::CUDAGatherLoop<T, detail::CUDAAxisPlaces>{from, to, places});
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
    const detail::CUDAElementPlaces places(indices, y->shape(), axis, x.shape());
    detail::WithElementOfSize(ItemSize(x.dtype()), [&]<class T>(T) {
      ParallelFor(
          context_, y->numel(),
          detail::CUDAGatherLoop<T, detail::CUDAElementPlaces>{
              static_cast<const T*>(x.raw_data()), static_cast<T*>(y->raw_mutable_data()), places});
    });
    return true;
  }
};

class CUDAGatherNDOp final : public CUDAIndexedOperator {
 public:
  using CUDAIndexedOperator::CUDAIndexedOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireRank(query, 0, detail::CUDASlicePlaces::kMaxDepth);
    return ProposeMoving(query);
  }

 protected:
  bool RunIndexed() override {
    const Tensor& x = DenseInput(0);
    const auto indices = Indices(1);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const auto batch = static_cast<int>(Arg<int64_t>("batch_dims"));
    detail::CUDASlicePlaces places(indices, Input(1).shape(), batch, x.shape());
    const int64_t bytes =
        x.shape().NumelBetween(batch + places.depth, x.rank()) * ItemSize(x.dtype());
    detail::WithCUDABlocks(
        bytes, x.raw_data(), y->raw_mutable_data(),
        [&]<class T>(const T* from, T* to, int64_t block) {
          places.block = block;
          ParallelFor(context_, y->nbytes() / static_cast<int64_t>(sizeof(T)),
                      detail::CUDAGatherLoop<T, detail::CUDASlicePlaces>{from, to, places});
        });
    return true;
  }
};

OPKIT_CUDA_OPERATOR(Gather, CUDAGatherOp);
OPKIT_CUDA_OPERATOR(GatherElements, CUDAGatherElementsOp);
OPKIT_CUDA_OPERATOR(GatherND, CUDAGatherNDOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_GATHER_HPP_
