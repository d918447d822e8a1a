// Inputs that are short lists of integers: axes, extents, starts, repeats. Read without an
// allocation where the kernel runs, and where inference may know their data.
#ifndef OPKIT_OPS_SUPPORT_INTEGER_INPUTS_HPP_
#define OPKIT_OPS_SUPPORT_INTEGER_INPUTS_HPP_

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit::inline OPKIT_ABI {

// The elements of a list (rank 1; a scalar is a list of one) of int64 or int32. `what` names it in
// errors: kTypeMismatch, kInvalidArgument for a higher rank.
inline Dims IntegerList(const Tensor& tensor, std::string_view what) {
  if (tensor.rank() > 1)
    Throw(ErrorCode::kInvalidArgument, what, " must be a list of integers, found ", tensor);
  if (tensor.dtype() != DType::kInt64 && tensor.dtype() != DType::kInt32)
    Throw(ErrorCode::kTypeMismatch, what, " must be int64 or int32, found ", tensor);
  if (tensor.numel() == 0) return {};
  if (tensor.dtype() == DType::kInt64 && tensor.is_dense())
    return Dims(tensor.data<int64_t>(), static_cast<size_t>(tensor.numel()));
  return Dims(IntegersOf(tensor));
}

// In inference: the list that input i gives, where it is there and its data is known.
inline std::optional<Dims> KnownIntegerList(const InferenceContext& c, int i,
                                            std::string_view what) {
  if (!c.HasInput(i)) return std::nullopt;
  const Tensor* data = c.input_constant(i);
  if (!data) return std::nullopt;
  return IntegerList(*data, what);
}

// In inference: how many elements the list of input i has. Error (kInvalidArgument) for one that is
// no list.
inline Dim IntegerListSize(const InferenceContext& c, int i, std::string_view what) {
  const SymbolicShape& shape = c.input_shape(i);
  if (!shape.has_rank()) return {};
  if (shape.rank() > 1)
    Throw(ErrorCode::kInvalidArgument, what, " must be a list of integers, found shape ",
          ToString(shape));
  return shape.rank() == 0 ? Dim(1) : shape[0];
}

// A rank that a list's size decides, as a shape of unknown extents. Error (kInvalidArgument) for
// one that no tensor has.
inline SymbolicShape ShapeOfRank(int64_t rank) {
  constexpr int64_t kMaxRank = 1024;  // against files that claim absurd ones
  if (rank < 0 || rank > kMaxRank)
    Throw(ErrorCode::kInvalidArgument, "rank ", rank, " is not between 0 and ", kMaxRank);
  return SymbolicShape::OfRank(static_cast<int>(rank));
}

}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_INTEGER_INPUTS_HPP_
