// Lists of element types that standard operators share: as types, from which a kernel for each is
// instantiated, and as DTypes, which schemas claim and inference checks.
#ifndef OPKIT_OPS_SUPPORT_ELEMENT_TYPES_HPP_
#define OPKIT_OPS_SUPPORT_ELEMENT_TYPES_HPP_

#include "opkit/op/inference.hpp"

namespace opkit::inline OPKIT_ABI {

template <class... Ts>
struct ElementTypes {
  static std::vector<DType> DTypes() { return {kDTypeOf<Ts>...}; }
  // Calls f.template operator()<T>() with the T of `dtype`; false where that is none of these.
  template <class F>
  static bool Visit(DType dtype, F&& f) {
    return ((dtype == kDTypeOf<Ts> && (f.template operator()<Ts>(), true)) || ...);
  }
};

using FloatTypes = ElementTypes<float, double, float16, bfloat16>;
using SignedTypes =
    ElementTypes<float, double, float16, bfloat16, int8_t, int16_t, int32_t, int64_t>;
using NumericTypes = ElementTypes<float, double, float16, bfloat16, int8_t, int16_t, int32_t,
                                  int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;
using PlainTypes = ElementTypes<float, double, float16, bfloat16, int8_t, int16_t, int32_t, int64_t,
                                uint8_t, uint16_t, uint32_t, uint64_t, bool>;

// What matrix products and most reductions take.
using MatrixTypes =
    ElementTypes<float, double, float16, bfloat16, int32_t, int64_t, uint32_t, uint64_t>;

// Every dtype that a tensor can have, for operators that only move elements.
inline std::vector<DType> AllDTypes() {
  std::vector<DType> all;
  for (int i = 1; i < kNumDTypes; ++i) all.push_back(static_cast<DType>(i));
  return all;
}

// In inference. Error (kTypeMismatch) for an input whose dtype is known and none of `allowed`.
inline void ExpectDType(const InferenceContext& c, int i, const std::vector<DType>& allowed) {
  const DType found = c.input_dtype(i);
  if (found == DType::kUndefined) return;
  for (const DType dtype : allowed)
    if (dtype == found) return;
  Throw(ErrorCode::kTypeMismatch, c.def().type(), ": input ", i, " is ", ToString(c.input(i)),
        ", expected one of ", allowed);
}
// Inputs [first, c.num_inputs()) that are there have one dtype: what is known of one holds for
// the others. Error (kTypeMismatch) where two differ. Returns it, kUndefined while none is known.
inline DType ExpectSameDType(InferenceContext& c, int first = 0) {
  DType dtype = DType::kUndefined;
  for (int i = first; i < c.num_inputs() && dtype == DType::kUndefined; ++i)
    if (c.HasInput(i)) dtype = c.input_dtype(i);
  for (int i = first; i < c.num_inputs(); ++i)
    if (c.HasInput(i)) c.SetInput(i, dtype, c.input_shape(i));
  return dtype;
}

}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_ELEMENT_TYPES_HPP_
