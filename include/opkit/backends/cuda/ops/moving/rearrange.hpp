// Operators on CUDA that are copies between two orders of elements: Transpose, Slice, Concat,
// Split, Expand, Tile, DepthToSpace and SpaceToDepth. Also registers the copy of strided tensors.
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_REARRANGE_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_REARRANGE_HPP_

#include "opkit/backends/cuda/ops/moving/strided_copy.hpp"
#include "opkit/ops/concat.hpp"
#include "opkit/ops/expand.hpp"
#include "opkit/ops/indexing/depth_space.hpp"
#include "opkit/ops/slice.hpp"
#include "opkit/ops/support/broadcast.hpp"
#include "opkit/ops/transpose.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// The copy of strided tensors within a device, for RegisterStridedCopy.
inline void CopyStridedCUDA(const Tensor& source, void* target, void* native_stream) {
  const Device device = source.device();
  CUDAStream* own = nullptr;
  if (!native_stream) {
    own = CUDAStream::Current(device.index);
    if (!own) own = &CUDAStream::Get(device, 0);
  }
  CUDADeviceGuard guard(device.index);
  const Dims from = source.strides(), to = source.shape().DenseStrides();
  StridedCopy copy;
  copy.Start(ItemSize(source.dtype()));
  for (int i = 0; i < source.rank(); ++i) copy.Axis(source.dim(i), from[i], to[i]);
  LaunchStridedCopy(device.index, own ? own->handle() : static_cast<cudaStream_t>(native_stream),
                    copy, source.raw_data(), target);
  if (own) own->Synchronize();
}
inline const bool cuda_strided_copy_registered = [] {
  RegisterStridedCopy(DeviceType::kCUDA, &CopyStridedCUDA);
  return true;
}();

}  // namespace detail

class CUDATransposeOp final : public CUDAMovingOperator {
 public:
  using CUDAMovingOperator::CUDAMovingOperator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = InferredOutput(0);
    const Dims from = x.strides(), to = y->shape().DenseStrides();
    const Dims order = detail::TransposeOrder(def().args(), x.rank());
    copy_.Start(ItemSize(x.dtype()));
    for (int i = 0; i < x.rank(); ++i)
      copy_.Axis(y->dim(i), from[static_cast<int>(order[i])], to[i]);
    Launch(copy_, x.raw_data(), y->raw_mutable_data());
    return true;
  }

 private:
  StridedCopy copy_;
};

class CUDASliceOp final : public CUDAMovingOperatorOn<SliceBase<CUDAContext>> {
 public:
  using CUDAMovingOperatorOn::CUDAMovingOperatorOn;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const void* const first = AddAxes(x, *y);
    Launch(copy_, first, y->raw_mutable_data());
    return true;
  }
};

class CUDAConcatOp final : public CUDAMovingOperator {
 public:
  using CUDAMovingOperator::CUDAMovingOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const int axis = NormalizeAxis(GetSingleArgument<int64_t>("axis"), y->rank(), type());
    const Dims to = y->shape().DenseStrides();
    const int64_t item = ItemSize(y->dtype());
    auto* place = static_cast<char*>(y->raw_mutable_data());
    for (int i = 0; i < InputSize(); ++i) {
      const Tensor& x = Input(i);
      const Dims from = x.strides();
      copy_.Start(item);
      for (int k = 0; k < x.rank(); ++k) copy_.Axis(x.dim(k), from[k], to[k]);
      Launch(copy_, x.raw_data(), place);
      if (y->numel() > 0) place += x.dim(axis) * to[axis] * item;
    }
    return true;
  }

 private:
  StridedCopy copy_;
};

class CUDASplitOp final : public CUDAMovingOperator {
 public:
  using CUDAMovingOperator::CUDAMovingOperator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    const int axis = NormalizeAxis(GetSingleArgument<int64_t>("axis"), x.rank(), type());
    const Dims from = x.strides();
    const int64_t item = ItemSize(x.dtype());
    const auto* place = static_cast<const char*>(x.raw_data());
    Infer();
    for (int o = 0; o < OutputSize(); ++o) {
      const Shape part = inference().outputs()[detail::Index(o)].shape;
      if (HasOutput(o)) {
        Tensor* y = InferredOutput(o);
        const Dims to = part.DenseStrides();
        copy_.Start(item);
        for (int k = 0; k < x.rank(); ++k) copy_.Axis(part[k], from[k], to[k]);
        Launch(copy_, place, y->raw_mutable_data());
      }
      if (x.numel() > 0) place += part[axis] * from[axis] * item;
    }
    return true;
  }

 private:
  StridedCopy copy_;
};

class CUDAExpandOp final : public CUDAMovingOperator {
 public:
  using CUDAMovingOperator::CUDAMovingOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const SymbolicShape& out = query.outputs[0].shape;
    if (!out.has_rank() || out.rank() > kCUDAMovedRank)
      throw UnsupportedOperatorFeature(StrCat("it expands to a known rank of at most ",
                                              kCUDAMovedRank, ", and output 0 is ", ToString(out)));
    return ProposeMoving(query);
  }
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const Dims from = BroadcastStrides(x.shape(), y->shape()), to = y->shape().DenseStrides();
    copy_.Start(ItemSize(x.dtype()));
    for (int i = 0; i < y->rank(); ++i) copy_.Axis(y->dim(i), from[i], to[i]);
    Launch(copy_, x.raw_data(), y->raw_mutable_data());
    return true;
  }

 private:
  StridedCopy copy_;
};

class CUDATileOp final : public CUDAMovingOperator {
 public:
  using CUDAMovingOperator::CUDAMovingOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireRank(query, 0, kCUDAMovedRank / 2);  // each axis becomes two
    return ProposeMoving(query);
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    detail::AddTileAxes(copy_, x, *y);
    Launch(copy_, x.raw_data(), y->raw_mutable_data());
    return true;
  }

 private:
  StridedCopy copy_;
};

class CUDADepthSpaceOp final : public CUDAMovingOperatorOn<DepthSpaceBase<CUDAContext>> {
 public:
  using CUDAMovingOperatorOn::CUDAMovingOperatorOn;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    AddAxes(x, *y);
    Launch(copy_, x.raw_data(), y->raw_mutable_data());
    return true;
  }
};

OPKIT_CUDA_OPERATOR(Transpose, CUDATransposeOp);
OPKIT_CUDA_OPERATOR(Slice, CUDASliceOp);
OPKIT_CUDA_OPERATOR(Concat, CUDAConcatOp);
OPKIT_CUDA_OPERATOR(Split, CUDASplitOp);
OPKIT_CUDA_OPERATOR(Expand, CUDAExpandOp);
OPKIT_CUDA_OPERATOR(Tile, CUDATileOp);
OPKIT_CUDA_OPERATOR(DepthToSpace, CUDADepthSpaceOp);
OPKIT_CUDA_OPERATOR(SpaceToDepth, CUDADepthSpaceOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_REARRANGE_HPP_
