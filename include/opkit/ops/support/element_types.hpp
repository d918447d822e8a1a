// Lists of element types for operators: as C++ types, to instantiate a kernel for each, and as
// DTypes, for schemas and the checks of inference. Also how the elements of a type are read.
#ifndef OPKIT_OPS_SUPPORT_ELEMENT_TYPES_HPP_
#define OPKIT_OPS_SUPPORT_ELEMENT_TYPES_HPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/op/inference.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A list of element types, with conversion from a DType to its C++ type.
template <class... Ts>
struct ElementTypes {
  static std::vector<DType> DTypes() { return {kDTypeOf<Ts>...}; }
  // Calls f.template operator()<T>() with the C++ type T of `dtype`. False if T is not listed.
  template <class F>
  static bool Visit(DType dtype, F&& f) {
    return ((dtype == kDTypeOf<Ts> && (f.template operator()<Ts>(), true)) || ...);
  }
  static bool Has(DType dtype) { return ((dtype == kDTypeOf<Ts>) || ...); }
  // Returns f.template operator()<T>() for the C++ type T of `dtype`; Result() if T is not listed.
  template <class Result, class F>
  static Result Find(DType dtype, F&& f) {
    Result found = Result();
    Visit(dtype, [&]<class T>() { found = f.template operator()<T>(); });
    return found;
  }
};

using FloatTypes = ElementTypes<float, double, float16, bfloat16>;
using SignedTypes =
    ElementTypes<float, double, float16, bfloat16, int8_t, int16_t, int32_t, int64_t>;
using NumericTypes = ElementTypes<float, double, float16, bfloat16, int8_t, int16_t, int32_t,
                                  int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;
using PlainTypes = ElementTypes<float, double, float16, bfloat16, int8_t, int16_t, int32_t, int64_t,
                                uint8_t, uint16_t, uint32_t, uint64_t, bool>;

// The types of indices, axes, starts and steps.
using IndexTypes = ElementTypes<int64_t, int32_t>;
// The types of matrix products and most reductions.
using MatrixTypes =
    ElementTypes<float, double, float16, bfloat16, int32_t, int64_t, uint32_t, uint64_t>;

// Returns every plain dtype, for operators that only copy elements.
inline std::vector<DType> AllDTypes() {
  std::vector<DType> all;
  for (int i = 1; i < kNumPlainDTypes; ++i) all.push_back(static_cast<DType>(i));
  return all;
}

// Returns every dtype: also string, sequence and optional.
inline std::vector<DType> AnyDType() {
  std::vector<DType> all = AllDTypes();
  for (const DType dtype : {DType::kString, DType::kSequence, DType::kOptional})
    all.push_back(dtype);
  return all;
}
// Returns the dtypes and string.
inline std::vector<DType> WithStrings(std::vector<DType> dtypes) {
  dtypes.push_back(DType::kString);
  return dtypes;
}

namespace detail {

// The type in which arithmetic on T is done: float for the 16-bit types, so that a result is
// rounded once.
template <class T>
using ComputeType =
    std::conditional_t<std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>, float, T>;

// The type as which elements of T are read and written. For bool it is a byte, because any byte
// other than 0 is true.
template <class T>
using StoredType = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
template <class T>
OPKIT_HOST_DEVICE ComputeType<T> LoadElement(const StoredType<T>& stored) {
  if constexpr (std::is_same_v<T, bool>)
    return stored != 0;
  else
    return static_cast<ComputeType<T>>(stored);
}

// Returns the elements of a floating-point tensor as numbers of type To. Throws kTypeMismatch for
// another dtype.
template <class To>
std::vector<To> NumbersOf(const Tensor& tensor) {
  return DispatchDType<float, double, float16, bfloat16>(tensor.dtype(), [&]<class T>() {
    const std::vector<T> values = tensor.ToVector<T>();
    return std::vector<To>(values.begin(), values.end());
  });
}

}  // namespace detail

// Throws kTypeMismatch if the dtype of input i is known and not in `allowed`. For inference
// functions.
inline void ExpectDType(const InferenceContext& c, int i, const std::vector<DType>& allowed) {
  const DType found = c.input_dtype(i);
  if (found == DType::kUndefined) return;
  if (detail::Contains(allowed, found)) return;
  Throw(ErrorCode::kTypeMismatch, c.def().type(), ": input ", i, " is ", ToString(c.input(i)),
        ", expected one of ", allowed);
}
// Gives all inputs from `first` on the first known dtype among them. Returns this dtype; kUndefined
// if none is known. Throws kTypeMismatch if two dtypes differ. For inference functions.
inline DType ExpectSameDType(InferenceContext& c, int first = 0) {
  DType dtype = DType::kUndefined;
  for (int i = first; i < c.num_inputs() && dtype == DType::kUndefined; ++i)
    if (c.HasInput(i)) dtype = c.input_dtype(i);
  for (int i = first; i < c.num_inputs(); ++i)
    if (c.HasInput(i)) c.SetInput(i, dtype, c.input_shape(i));
  return dtype;
}

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_ELEMENT_TYPES_HPP_
