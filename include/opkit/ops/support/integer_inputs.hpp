// Functions that read inputs which are short lists of integers (axes, extents, starts, repeats).
// Kernels read them without an allocation; inference reads them if their data is known before the
// run.
#ifndef OPKIT_OPS_SUPPORT_INTEGER_INPUTS_HPP_
#define OPKIT_OPS_SUPPORT_INTEGER_INPUTS_HPP_

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the elements of a list of int64 or int32: a tensor of rank 1, or a scalar, which counts
// as a list of length 1. Throws kTypeMismatch for other dtypes, kInvalidArgument for a higher rank;
// the message begins with `what`.
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

// Returns the list in input i, if the node has that input and its data is known. For inference
// functions.
inline std::optional<Dims> KnownIntegerList(const InferenceContext& c, int i,
                                            std::string_view what) {
  if (!c.HasInput(i)) return std::nullopt;
  const Tensor* data = c.input_constant(i);
  if (!data) return std::nullopt;
  return IntegerList(*data, what);
}

// Returns the number of elements of the list in input i, as far as it is known. Throws
// kInvalidArgument if the input's rank is above 1. For inference functions.
inline Dim IntegerListSize(const InferenceContext& c, int i, std::string_view what) {
  const SymbolicShape& shape = c.input_shape(i);
  if (!shape.has_rank()) return {};
  if (shape.rank() > 1)
    Throw(ErrorCode::kInvalidArgument, what, " must be a list of integers, found shape ",
          ToString(shape));
  return shape.rank() == 0 ? Dim(1) : shape[0];
}

// Returns a shape of this rank with unknown extents. Throws kInvalidArgument if the rank is
// negative or above 1024.
inline SymbolicShape ShapeOfRank(int64_t rank) {
  constexpr int64_t kMaxRank = 1024;  // against files that claim absurd ranks
  if (rank < 0 || rank > kMaxRank)
    Throw(ErrorCode::kInvalidArgument, "rank ", rank, " is not between 0 and ", kMaxRank);
  return SymbolicShape::OfRank(static_cast<int>(rank));
}

// Returns the shape whose extents are the list in input i, as far as they are known. For inference
// functions.
inline SymbolicShape ShapeInInput(const InferenceContext& c, int i, std::string_view what) {
  if (const auto known = KnownIntegerList(c, i, what)) return Shape(*known);
  const Dim rank = IntegerListSize(c, i, what);
  return rank.is_known() ? ShapeOfRank(rank.value()) : SymbolicShape();
}

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_INTEGER_INPUTS_HPP_
