// Operators on CUDA that make tensors of a few numbers: Constant, ConstantOfShape, EyeLike, OneHot,
// Range.
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_GENERATORS_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_GENERATORS_HPP_

#include "opkit/backends/cuda/ops/moving/strided_copy.hpp"
#include "opkit/ops/generators.hpp"
#include "opkit/ops/one_hot.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

template <class T>
struct CUDAFillLoop {
  T value;
  T* y;
  OPKIT_DEVICE void operator()(int64_t i) const { y[i] = value; }
};

// `one` where column - row is k, else 0.
template <class T>
struct CUDAEyeLoop {
  T one;
  T* y;
  int64_t columns, k;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t row = DivideIndex(i, columns);
    y[i] = i - row * columns - row == k ? one : T{};
  }
};

template <class T>
struct CUDARangeLoop {
  T start, delta;
  T* y;
  OPKIT_DEVICE void operator()(int64_t i) const { y[i] = RangeElement(start, delta, i); }
};

// Indices of OneHot: integers of 32 or 64 bits, or numbers of float. Others are truncated towards
// 0.
struct CUDAOneHotIndices {
  const void* data;
  DType dtype;
  // Returns the place that is on; a number outside [0, depth) if none is.
  OPKIT_DEVICE int64_t At(int64_t i, int64_t depth) const {
    int64_t index = -1;
    if (dtype == DType::kInt64) {
      index = static_cast<const int64_t*>(data)[i];
    } else if (dtype == DType::kInt32) {
      index = static_cast<const int32_t*>(data)[i];
    } else {
      const float number = static_cast<const float*>(data)[i];
      if (!(number >= -0x1p62f && number <= 0x1p62f)) return -1;
      index = static_cast<int64_t>(number);
    }
    return index < 0 ? index + depth : index;
  }
};
// y[outer, place, inner] = values[1] at the place that indices[outer, inner] gives, else values[0].
template <class T>
struct CUDAOneHotLoop {
  CUDAOneHotIndices indices;
  const T* values;
  T* y;
  int64_t depth, inner;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t row = DivideIndex(i, inner), outer = DivideIndex(row, depth);
    const int64_t on = indices.At(outer * inner + (i - row * inner), depth);
    y[i] = values[row - outer * depth == on ? 1 : 0];
  }
};

}  // namespace detail

class CUDAConstantOp final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    if (IsObject(detail::ConstantValue(query.def.args()).dtype()))
      throw UnsupportedOperatorFeature("it copies numbers, and the value is of another type");
    return {KernelConfig()};
  }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    if (y->nbytes() > 0)
      OPKIT_CUDA_CHECK(cudaMemcpyAsync(y->raw_mutable_data(), value_.raw_data(),
                                       static_cast<size_t>(y->nbytes()), cudaMemcpyHostToDevice,
                                       context_.cuda_stream()));
    return true;
  }

 private:
  const Tensor value_ = detail::ConstantValue(def().args());
};

class CUDAConstantOfShapeOp final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const DType dtype = detail::FillElement(query.def.args()).dtype();
    if (IsObject(dtype) || IsPacked(dtype))
      throw UnsupportedOperatorFeature(
          StrCat("it fills elements of whole bytes, and the value is ", dtype));
    return {KernelConfig()};
  }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    detail::WithElementOfSize(ItemSize(y->dtype()), [&]<class T>(T value) {
      std::memcpy(&value, value_.raw_data(), sizeof(T));
      ParallelFor(context_, y->numel(),
                  detail::CUDAFillLoop<T>{value, static_cast<T*>(y->raw_mutable_data())});
    });
    return true;
  }

 private:
  const Tensor value_ = detail::FillElement(def().args());
};

class CUDAEyeLikeOp final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    Tensor one(Shape{}, y->dtype());
    PlainTypes::Visit(y->dtype(), [&]<class T>() { *one.mutable_data<T>() = T(1); });
    detail::WithElementOfSize(ItemSize(y->dtype()), [&]<class T>(T value) {
      std::memcpy(&value, one.raw_data(), sizeof(T));
      ParallelFor(context_, y->numel(),
                  detail::CUDAEyeLoop<T>{value, static_cast<T*>(y->raw_mutable_data()), y->dim(1),
                                         Arg<int64_t>("k")});
    });
    return true;
  }
};

class CUDARangeOp final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    detail::RangeTypes::Visit(y->dtype(), [&]<class T>() {
      const T start = detail::RangeNumber<T>(Input(0, DeviceType::kCPU), "start");
      const T delta = detail::RangeNumber<T>(Input(2, DeviceType::kCPU), "delta");
      ParallelFor(context_, y->numel(),
                  detail::CUDARangeLoop<T>{start, delta, static_cast<T*>(y->raw_mutable_data())});
    });
    return true;
  }
};

class CUDAOneHotOp final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<ElementTypes<int64_t, int32_t, float>>(query);
    RequireWholeBytes(query, 2);
    return {KernelConfig()};
  }
  bool RunOnDevice() override {
    const Tensor &indices = DenseInput(0), &values = DenseInput(2);
    Tensor* y = InferredOutput(0);
    const AxisSplit split(y->shape(), NormalizeAxis(Arg<int64_t>("axis"), y->rank(), type()));
    detail::WithElementOfSize(ItemSize(y->dtype()), [&]<class T>(T) {
      ParallelFor(context_, y->numel(),
                  detail::CUDAOneHotLoop<T>{{indices.raw_data(), indices.dtype()},
                                            static_cast<const T*>(values.raw_data()),
                                            static_cast<T*>(y->raw_mutable_data()),
                                            split.extent,
                                            split.inner});
    });
    return true;
  }
};

OPKIT_CUDA_OPERATOR(Constant, CUDAConstantOp);
OPKIT_CUDA_OPERATOR(ConstantOfShape, CUDAConstantOfShapeOp);
OPKIT_CUDA_OPERATOR(EyeLike, CUDAEyeLikeOp);
OPKIT_CUDA_OPERATOR(Range, CUDARangeOp);
OPKIT_CUDA_OPERATOR(OneHot, CUDAOneHotOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_GENERATORS_HPP_
