// Reads inputs that are short lists of integers (axes, extents, starts, repeats): in kernels
// without an allocation, and in inference as far as their data is known.
#ifndef OPKIT_OPS_SUPPORT_INTEGER_INPUTS_HPP_
#define OPKIT_OPS_SUPPORT_INTEGER_INPUTS_HPP_

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit::inline OPKIT_ABI {

// The elements of a list of int64 or int32: a tensor of rank 1, or a scalar, which is a list of
// one. Errors begin with `what`: kTypeMismatch, kInvalidArgument for a higher rank.
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

// For inference: the list in input i, if the node has that input and its data is known.
inline std::optional<Dims> KnownIntegerList(const InferenceContext& c, int i,
                                            std::string_view what) {
  if (!c.HasInput(i)) return std::nullopt;
  const Tensor* data = c.input_constant(i);
  if (!data) return std::nullopt;
  return IntegerList(*data, what);
}

// For inference: the number of elements of the list in input i. Error (kInvalidArgument) if its
// rank is above 1.
inline Dim IntegerListSize(const InferenceContext& c, int i, std::string_view what) {
  const SymbolicShape& shape = c.input_shape(i);
  if (!shape.has_rank()) return {};
  if (shape.rank() > 1)
    Throw(ErrorCode::kInvalidArgument, what, " must be a list of integers, found shape ",
          ToString(shape));
  return shape.rank() == 0 ? Dim(1) : shape[0];
}

// A shape of unknown extents whose rank is the size of some list. Error (kInvalidArgument) for a
// rank that no tensor has.
inline SymbolicShape ShapeOfRank(int64_t rank) {
  constexpr int64_t kMaxRank = 1024;  // against files that claim absurd ranks
  if (rank < 0 || rank > kMaxRank)
    Throw(ErrorCode::kInvalidArgument, "rank ", rank, " is not between 0 and ", kMaxRank);
  return SymbolicShape::OfRank(static_cast<int>(rank));
}

// For inference: the shape that the list in input i gives, as far as it is known.
inline SymbolicShape ShapeInInput(const InferenceContext& c, int i, std::string_view what) {
  if (const auto known = KnownIntegerList(c, i, what)) return Shape(*known);
  const Dim rank = IntegerListSize(c, i, what);
  return rank.is_known() ? ShapeOfRank(rank.value()) : SymbolicShape();
}

}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_INTEGER_INPUTS_HPP_
