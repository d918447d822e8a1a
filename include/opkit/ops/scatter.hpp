// ScatterND: copies a tensor and replaces slices of it, or combines them with updates.
#ifndef OPKIT_OPS_SCATTER_HPP_
#define OPKIT_OPS_SCATTER_HPP_

#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/extremes.hpp"
#include "opkit/ops/support/standard_operator.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferScatterND(InferenceContext& c) {
  const SymbolicShape &data = c.input_shape(0), &indices = c.input_shape(1);
  const SymbolicShape& updates = c.input_shape(2);
  auto fail = [&](const std::string& expected) {
    Throw(ErrorCode::kInvalidArgument, "ScatterND: data ", ToString(data), ", indices ",
          ToString(indices), ", updates ", ToString(updates), ": expected ", expected);
  };
  c.SetInput(2, c.input_dtype(0), {});
  if (indices.has_rank() && indices.rank() == 0) fail("indices of rank 1 or more");
  if (data.has_rank() && indices.has_rank() && indices[-1].is_known()) {
    const int64_t depth = indices[-1].value();
    if (depth > data.rank()) fail("indices whose last extent is at most the rank of data");
    const int batch = indices.rank() - 1, tail = data.rank() - static_cast<int>(depth);
    std::vector<Dim> expected(indices.dims().begin(), indices.dims().end() - 1);
    expected.insert(expected.end(), data.dims().begin() + static_cast<int>(depth),
                    data.dims().end());
    if (updates.has_rank() &&
        (updates.rank() != batch + tail || !SymbolicShape::Merge(updates, SymbolicShape(expected))))
      fail("updates of shape " + ToString(SymbolicShape(expected)));
  }
  c.SetOutput(0, c.input_dtype(0), data);
}

}  // namespace detail

class ScatterNDOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor &data = DenseInput(0), &indices = DenseInput(1), &updates = DenseInput(2);
    Tensor* y = InferredOutput(0);
    // Do not store the indices of empty slices: they may be too many for memory.
    if (updates.numel() == 0) offsets_.clear();
    const auto& offsets = updates.numel() == 0 ? offsets_ : Offsets(data.shape(), indices);
    CopyBytes(y->raw_mutable_data(), data.raw_data(), data.nbytes());
    if (offsets.empty()) return true;
    const int64_t block = updates.numel() / static_cast<int64_t>(offsets.size());
    if (reduction_ == Reduction::kNone) {
      const int64_t bytes = block * ItemSize(data.dtype());
      for (size_t i = 0; i < offsets.size() && bytes > 0; ++i)
        std::memcpy(static_cast<char*>(y->raw_mutable_data()) + offsets[i] * bytes,
                    static_cast<const char*>(updates.raw_data()) + static_cast<int64_t>(i) * bytes,
                    static_cast<size_t>(bytes));
      return true;
    }
    return Visit<PlainTypes>([&]<class T>() {
      T* out = y->mutable_data<T>();
      const T* update = updates.data<T>();
      for (const int64_t offset : offsets)
        for (int64_t k = 0; k < block; ++k)
          out[offset * block + k] = Reduce(out[offset * block + k], *update++);
    });
  }

 private:
  enum class Reduction : uint8_t { kNone, kAdd, kMul, kMax, kMin };

  // Combines an element with its update. Integers wrap around.
  template <class T>
  T Reduce(T a, T b) const {
    using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
    switch (reduction_) {
      case Reduction::kAdd:
        return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
      case Reduction::kMul:
        return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
      case Reduction::kMax:
        return detail::LargerOf(a, b);
      default:
        return detail::SmallerOf(a, b);
    }
  }
  // Returns the number of each slice of `data` to write. Throws kOutOfRange for a wrong index,
  // before any slice is written.
  const std::vector<int64_t>& Offsets(const Shape& data, const Tensor& indices) {
    const int64_t depth = indices.dim(-1);
    const int64_t count = indices.shape().NumelBetween(0, indices.rank() - 1);
    offsets_.assign(static_cast<size_t>(count), 0);
    const int64_t* index = indices.data<int64_t>();
    for (int64_t& offset : offsets_)
      for (int axis = 0; axis < depth; ++axis, ++index) {
        const int64_t extent = data[axis];
        const int64_t at = *index < 0 ? *index + extent : *index;
        if (at < 0 || at >= extent)
          Throw(ErrorCode::kOutOfRange, "ScatterND: index ", *index, " is outside axis ", axis,
                " of extent ", extent);
        offset = offset * extent + at;
      }
    return offsets_;
  }

  const Reduction reduction_ = EnumeratorOf<Reduction>("ScatterND", def().args(), "reduction");
  std::vector<int64_t> offsets_;
};

OPKIT_STANDARD_OPERATOR(ScatterND, kNotImplemented, ScatterNDOp)
    .NumInputs(3)
    .Inplace({{0, 0}})
    .Input(0, "data", "any tensor of rank 1 or more")
    .Input(1, "indices", "the last axis holds the first indices into `data` of a slice of it",
           {DType::kInt64})
    .Input(2, "updates", "a slice for each of `indices`")
    .Output(0, "output", "`data` with the slices written one after the other")
    .Arg("reduction",
         "how a slice meets what is there: none replaces it; max and min of a NaN are NaN",
         {"none", "add", "mul", "max", "min"})
    .Infer(detail::InferScatterND)
    .Doc("Writes slices of a tensor to places that indices give.");

}}  // namespace opkit

#endif  // OPKIT_OPS_SCATTER_HPP_
