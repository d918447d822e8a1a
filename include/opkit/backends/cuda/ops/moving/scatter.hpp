// ScatterElements and ScatterND on CUDA, without a reduction. Of updates with equal indices one is
// kept, and runs may differ. An update whose index is outside its axis is left out
// (CUDAIndexedOperator).
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_SCATTER_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_SCATTER_HPP_

#include "opkit/backends/cuda/ops/moving/gather.hpp"
#include "opkit/ops/scatter.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// y[slice of the list, k] = updates[list, k].
template <class T>
struct CUDAScatterLoop {
  const T* updates;
  T* y;
  int64_t block;
  CUDASlices slices;

  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t list = DivideIndex(i, block), slice = slices.Find(list);
    if (slice >= 0) y[slice * block + (i - list * block)] = updates[i];
  }
};

// The element of y at the place of i, but for the index along one axis, = updates[i].
template <class T>
struct CUDAScatterElementsLoop {
  const T* updates;
  T* y;
  int64_t extent, stride;  // of that axis of y
  BroadcastIndex places;
  CUDAIndices indices;

  OPKIT_DEVICE void operator()(int64_t i) const {
    int64_t place = 0;
    places.Find<1>(i, &place);
    const int64_t index = indices.At(i, extent);
    if (index >= 0) y[place + index * stride] = updates[i];
  }
};

}  // namespace detail

// The base of both operators: copies `data` to the output unless that is in place.
class CUDAScatterOperator : public CUDAIndexedOperator {
 public:
  using CUDAIndexedOperator::CUDAIndexedOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const auto reduction = query.def.args().Get<std::string>("reduction", "none");
    if (reduction != "none")
      throw UnsupportedOperatorFeature(
          StrCat("it has no reduction, and the node has reduction=", reduction));
    RequireWholeBytes(query);
    RequireRank(query, 0, detail::BroadcastIndex::kMaxAxes);
    KernelConfig config;
    config.inplace = {{0, 0}};
    return {std::move(config)};
  }

 protected:
  bool RunIndexed() final {
    const Tensor &data = DenseInput(0), &updates = DenseInput(2);
    const auto indices = Indices(1);
    Tensor* y = InferredOutput(0);
    if (y->nbytes() > 0 && y->raw_data() != data.raw_data())
      OPKIT_CUDA_CHECK(cudaMemcpyAsync(y->raw_mutable_data(), data.raw_data(),
                                       static_cast<size_t>(y->nbytes()), cudaMemcpyDeviceToDevice,
                                       context_.cuda_stream()));
    if (updates.numel() > 0) Scatter(indices, updates, *y);
    return true;
  }
  virtual void Scatter(const detail::CUDAIndices& indices, const Tensor& updates, Tensor& y) = 0;
};

class CUDAScatterNDOp final : public CUDAScatterOperator {
 public:
  using CUDAScatterOperator::CUDAScatterOperator;

 protected:
  void Scatter(const detail::CUDAIndices& indices, const Tensor& updates, Tensor& y) override {
    const Shape& lists = Input(1).shape();
    detail::CUDASlices slices;
    slices.indices = indices;
    slices.depth = static_cast<int>(lists[-1]);
    slices.lists_of_batch = lists.NumelBetween(0, lists.rank() - 1);
    for (int k = 0; k < slices.depth; ++k) slices.extents[k] = y.dim(k);
    const int64_t bytes = updates.nbytes() / slices.lists_of_batch;
    const int64_t width = detail::CUDAVectorBytes({static_cast<uint64_t>(bytes),
                                                   reinterpret_cast<uintptr_t>(updates.raw_data()),
                                                   reinterpret_cast<uintptr_t>(y.raw_data())});
    detail::WithCUDAVector(width, [&]<class T>(T) {
      ParallelFor(
          context_, updates.nbytes() / width,
          detail::CUDAScatterLoop<T>{static_cast<const T*>(updates.raw_data()),
                                     static_cast<T*>(y.raw_mutable_data()), bytes / width, slices});
    });
  }
};

class CUDAScatterElementsOp final : public CUDAScatterOperator {
 public:
  using CUDAScatterOperator::CUDAScatterOperator;

 protected:
  void Scatter(const detail::CUDAIndices& indices, const Tensor& updates, Tensor& y) override {
    const int axis = NormalizeAxis(Arg<int64_t>("axis"), y.rank(), type());
    const auto places =
        detail::BroadcastIndex::Of(updates.shape(), {detail::StridesWithout(axis, y.shape())});
    detail::WithElementOfSize(ItemSize(y.dtype()), [&]<class T>(T) {
      ParallelFor(
          context_, updates.numel(),
          detail::CUDAScatterElementsLoop<T>{static_cast<const T*>(updates.raw_data()),
                                             static_cast<T*>(y.raw_mutable_data()), y.dim(axis),
                                             y.shape().DenseStrides()[axis], places, indices});
    });
  }
};

OPKIT_CUDA_OPERATOR(ScatterND, CUDAScatterNDOp);
OPKIT_CUDA_OPERATOR(ScatterElements, CUDAScatterElementsOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_SCATTER_HPP_
