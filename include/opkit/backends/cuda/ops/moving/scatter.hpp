// ScatterElements and ScatterND on CUDA, without a reduction. Of updates with equal indices one is
// kept, and runs may differ. An update whose index is outside its axis is left out
// (CUDAIndexedOperator).
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_SCATTER_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_SCATTER_HPP_

#include "opkit/backends/cuda/ops/moving/gather.hpp"
#include "opkit/ops/scatter.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

template <class T, class Places>
struct CUDAScatterLoop {
  const T* updates;
  T* y;
  Places places;

  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t place = places.Find(i);
    if (place >= 0) y[place] = updates[i];
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
    detail::CUDASlicePlaces places(indices, Input(1).shape(), 0, y.shape());
    detail::WithCUDABlocks(
        updates.nbytes() / places.lists_of_batch, updates.raw_data(), y.raw_mutable_data(),
        [&]<class T>(const T* from, T* to, int64_t block) {
          places.block = block;
          ParallelFor(context_, updates.nbytes() / static_cast<int64_t>(sizeof(T)),
                      detail::CUDAScatterLoop<T, detail::CUDASlicePlaces>{from, to, places});
        });
  }
};

class CUDAScatterElementsOp final : public CUDAScatterOperator {
 public:
  using CUDAScatterOperator::CUDAScatterOperator;

 protected:
  void Scatter(const detail::CUDAIndices& indices, const Tensor& updates, Tensor& y) override {
    const int axis = NormalizeAxis(Arg<int64_t>("axis"), y.rank(), type());
    const detail::CUDAElementPlaces places(indices, updates.shape(), axis, y.shape());
    detail::WithElementOfSize(ItemSize(y.dtype()), [&]<class T>(T) {
      ParallelFor(context_, updates.numel(),
                  detail::CUDAScatterLoop<T, detail::CUDAElementPlaces>{
                      static_cast<const T*>(updates.raw_data()),
                      static_cast<T*>(y.raw_mutable_data()), places});
    });
  }
};

OPKIT_CUDA_OPERATOR(ScatterND, CUDAScatterNDOp);
OPKIT_CUDA_OPERATOR(ScatterElements, CUDAScatterElementsOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_SCATTER_HPP_
