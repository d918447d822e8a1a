// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear on CUDA: a thread converts each
// element.
#ifndef OPKIT_BACKENDS_CUDA_OPS_QUANTIZED_QUANTIZE_LINEAR_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_QUANTIZED_QUANTIZE_LINEAR_HPP_

#include "opkit/backends/cuda/ops/cuda_operator.hpp"
#include "opkit/ops/quantized/dynamic_quantize_linear.hpp"
#include "opkit/ops/quantized/quantize_linear.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Integers of 2 to 32 bits in the device's memory, also packed ones. The kernels find their type
// when they run, because one kernel for each pair of types would be many.
struct CUDASmallIntegers {
  const void* data = nullptr;
  int bits = 8;
  bool is_signed = false;

  CUDASmallIntegers() = default;
  explicit CUDASmallIntegers(const Tensor& x)
      : data(x.raw_data()),
        bits(BitSize(x.dtype())),
        is_signed(x.dtype() == DType::kInt2 || x.dtype() == DType::kInt4 ||
                  x.dtype() == DType::kInt8 || x.dtype() == DType::kInt16 ||
                  x.dtype() == DType::kInt32) {}

  OPKIT_DEVICE int32_t At(int64_t i) const {
    if (bits == 32) return static_cast<const int32_t*>(data)[i];
    const int64_t bit = i * bits;
    uint32_t code = bits == 16 ? static_cast<const uint16_t*>(data)[i]
                               : static_cast<const uint8_t*>(data)[bit / 8];
    if (bits < 8) code = code >> (bit % 8) & ((1u << bits) - 1);
    const uint32_t sign = is_signed ? 1u << (bits - 1) : 0;
    return static_cast<int32_t>(code ^ sign) - static_cast<int32_t>(sign);
  }
};
// Numbers of float32, float16, bfloat16 or int32 in the device's memory.
struct CUDAReals {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;

  CUDAReals() = default;
  explicit CUDAReals(const Tensor& x) : data(x.raw_data()), dtype(x.dtype()) {}

  OPKIT_DEVICE float At(int64_t i) const {
    if (dtype == DType::kFloat16) return static_cast<float>(static_cast<const float16*>(data)[i]);
    if (dtype == DType::kBFloat16) return static_cast<float>(static_cast<const bfloat16*>(data)[i]);
    if (dtype == DType::kInt32) return static_cast<float>(static_cast<const int32_t*>(data)[i]);
    return static_cast<const float*>(data)[i];
  }
};

template <class T>
struct CUDAQuantizeLoop {
  CUDAReals x, scale;
  const T* zero_point;  // null: 0
  T* y;
  ScaledRuns runs;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t at = runs.ScaleOf(i);
    y[i] = Quantize<T>(x.At(i) / scale.At(at), zero_point ? zero_point[at] : T{0});
  }
};
// The same for packed integers: a thread makes the elements of a byte.
struct CUDAQuantizePackedLoop {
  CUDAReals x, scale;
  CUDASmallIntegers zero_point;  // without data: 0
  uint8_t* y;
  ScaledRuns runs;
  int64_t n;
  int bits;
  float low, high;  // limits of the type
  OPKIT_DEVICE void operator()(int64_t byte) const {
    const int64_t in_a_byte = 8 / bits;
    unsigned codes = 0;
    for (int64_t k = 0; k < in_a_byte && byte * in_a_byte + k < n; ++k) {
      const int64_t i = byte * in_a_byte + k, at = runs.ScaleOf(i);
      const auto zero = static_cast<float>(zero_point.data ? zero_point.At(at) : 0);
      const auto code =
          static_cast<unsigned>(Quantize<int8_t>(x.At(i) / scale.At(at), zero, low, high));
      codes |= (code & ((1u << bits) - 1)) << (k * bits);
    }
    y[byte] = static_cast<uint8_t>(codes);
  }
};
template <class T>
struct CUDADequantizeLoop {
  CUDASmallIntegers x, zero_point;  // without data: 0
  CUDAReals scale;
  T* y;
  ScaledRuns runs;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t at = runs.ScaleOf(i);
    const int32_t zero = zero_point.data ? zero_point.At(at) : 0;
    y[i] = Dequantize<T>(x.At(i), zero, scale.At(at));
  }
};

// The limits of a part of the elements.
struct CUDALimitsLoop {
  const float* x;
  int64_t n, part;  // elements of all parts, and of each one but the last
  FloatLimits* limits;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t number, const Team& team) const {
    const int64_t first = number * part, count = n - first < part ? n - first : part;
    FloatLimits all;
    team.Each(count, [&](int64_t i) { all.Add(x[first + i]); });
    all = team.Combine(all, AddLimits());
    if (team.is_first()) limits[number] = all;
  }
  struct AddLimits {
    OPKIT_DEVICE FloatLimits operator()(FloatLimits a, const FloatLimits& b) const {
      a.Add(b);
      return a;
    }
  };
};
struct CUDADynamicScaleLoop {
  const FloatLimits* limits;
  int64_t parts;
  float* scale;
  uint8_t* zero_point;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t, const Team& team) const {
    FloatLimits all;
    team.Each(parts, [&](int64_t i) { all.Add(limits[i]); });
    all = team.Combine(all, CUDALimitsLoop::AddLimits());
    if (!team.is_first()) return;
    const auto found = DynamicScale::Covering(all);
    *scale = found.scale;
    *zero_point = found.zero_point;
  }
};

}  // namespace detail

// The attributes of QuantizeLinear and DequantizeLinear.
class CUDAQuantizationOp : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;

 protected:
  detail::ScaledRuns Runs() {
    return detail::ScaledRuns(Input(0).shape(), Input(1).shape(), axis_, block_);
  }

 private:
  const int64_t axis_ = GetSingleArgument<int64_t>("axis");
  const int64_t block_ = GetSingleArgument<int64_t>("block_size");
};

class CUDAQuantizeLinearOp final : public CUDAQuantizationOp {
 public:
  using CUDAQuantizationOp::CUDAQuantizationOp;
  using XTypes = ElementTypes<float, float16, bfloat16, int32_t>;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<XTypes>(query);
    RequireTypes<ScaleTypes>(query, 1);
    const DType to = query.outputs[0].dtype;
    if (!QuantizedTypes::Has(to) && !detail::IsPackedInteger(to))
      throw UnsupportedOperatorFeature(StrCat("it quantises to integers, and the output is ", to));
    return {KernelConfig()};
  }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const int64_t n = y->numel();
    if (n == 0) return true;
    const detail::CUDAReals x(DenseInput(0)), scale(DenseInput(1));
    const Tensor* zero_point = HasInput(2) ? &DenseInput(2) : nullptr;
    const DType dtype = y->dtype();
    if (QuantizedTypes::Visit(dtype, [&]<class T>() {
          ParallelFor(
              context_, n,
              detail::CUDAQuantizeLoop<T>{x, scale, zero_point ? zero_point->data<T>() : nullptr,
                                          y->mutable_data<T>(), Runs()});
        }))
      return true;
    if (!detail::IsPackedInteger(dtype))
      throw UnsupportedOperatorFeature(
          StrCat("the kernel of QuantizeLinear for \"cuda\" does not quantise to ", dtype));
    const detail::PackedLimits limits(dtype);
    const int bits = BitSize(dtype);
    ParallelFor(
        context_, (n * bits + 7) / 8,
        detail::CUDAQuantizePackedLoop{
            x, scale,
            zero_point ? detail::CUDASmallIntegers(*zero_point) : detail::CUDASmallIntegers(),
            static_cast<uint8_t*>(y->raw_mutable_data()), Runs(), n, bits,
            static_cast<float>(limits.low), static_cast<float>(limits.high)});
    return true;
  }
};

class CUDADequantizeLinearOp final : public CUDAQuantizationOp {
 public:
  using CUDAQuantizationOp::CUDAQuantizationOp;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireDTypes(query, 0, DTypes());
    RequireTypes<ScaleTypes>(query, 1);
    return {KernelConfig()};
  }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    if (y->numel() == 0) return true;
    const Tensor &x = DenseInput(0), &scale = DenseInput(1);
    if (!detail::Contains(DTypes(), x.dtype()))
      throw UnsupportedOperatorFeature(
          StrCat("the kernel of DequantizeLinear for \"cuda\" computes integers, and x is ", x));
    ScaleTypes::Visit(y->dtype(), [&]<class T>() {
      ParallelFor(
          context_, y->numel(),
          detail::CUDADequantizeLoop<T>{
              detail::CUDASmallIntegers(x),
              HasInput(2) ? detail::CUDASmallIntegers(DenseInput(2)) : detail::CUDASmallIntegers(),
              detail::CUDAReals(scale), y->mutable_data<T>(), Runs()});
    });
    return true;
  }

 private:
  static std::vector<DType> DTypes() {
    return {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16, DType::kInt32,
            DType::kInt4, DType::kUInt4, DType::kInt2,  DType::kUInt2};
  }
};

class CUDADynamicQuantizeLinearOp final : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<ElementTypes<float>>(query);
    KernelConfig config;
    config.scratch_bytes = kMostParts * static_cast<int64_t>(sizeof(detail::FloatLimits));
    return {std::move(config)};
  }
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor *y = InferredOutput(0), *scale = InferredOutput(1), *zero_point = InferredOutput(2);
    const int64_t n = x.numel();
    constexpr int64_t kLeastPart = 4096;
    const int64_t of_most = (n + kMostParts - 1) / kMostParts;
    const int64_t part = of_most > kLeastPart ? of_most : kLeastPart;
    const int64_t parts = (n + part - 1) / part;
    auto* limits = static_cast<detail::FloatLimits*>(
        Scratch(kMostParts * static_cast<int64_t>(sizeof(detail::FloatLimits))));
    const float* from = x.data<float>();
    ParallelForTeamsOf<256>(context_, parts, detail::CUDALimitsLoop{from, n, part, limits});
    ParallelForTeamsOf<256>(
        context_, 1,
        detail::CUDADynamicScaleLoop{limits, parts, scale->mutable_data<float>(),
                                     zero_point->mutable_data<uint8_t>()});
    ParallelFor(
        context_, n,
        detail::CUDAQuantizeLoop<uint8_t>{detail::CUDAReals(x), detail::CUDAReals(*scale),
                                          zero_point->data<uint8_t>(), y->mutable_data<uint8_t>(),
                                          detail::ScaledRuns(x.shape(), scale->shape(), 0, 0)});
    return true;
  }

 private:
  static constexpr int64_t kMostParts = 1024;
};

OPKIT_CUDA_OPERATOR(QuantizeLinear, CUDAQuantizeLinearOp);
OPKIT_CUDA_OPERATOR(DequantizeLinear, CUDADequantizeLinearOp);
OPKIT_CUDA_OPERATOR(DynamicQuantizeLinear, CUDADynamicQuantizeLinearOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_QUANTIZED_QUANTIZE_LINEAR_HPP_
