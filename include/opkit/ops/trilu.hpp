// Trilu: keeps the upper or lower triangle of matrices and sets the other elements to 0.
#ifndef OPKIT_OPS_TRILU_HPP_
#define OPKIT_OPS_TRILU_HPP_

#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferTrilu(InferenceContext& c) {
  const SymbolicShape& input = c.input_shape(0);
  if (input.has_rank() && input.rank() < 2)
    Throw(ErrorCode::kInvalidArgument, "Trilu: the input has shape ", ToString(input),
          ", expected rank 2 or more");
  c.SetOutput(0, c.input_dtype(0), input);
}

// Returns the number of the diagonal, clamped to +-2^61 so that sums do not overflow. No matrix is
// so large.
inline int64_t TriluDiagonal(const Tensor& k) {
  const Dims list = IntegerList(k, "k");
  if (list.size() != 1)
    Throw(ErrorCode::kInvalidArgument, "Trilu: 'k' is ", k, ", expected one element");
  constexpr int64_t kFar = int64_t{1} << 61;
  return list[0] < -kFar ? -kFar : list[0] > kFar ? kFar : list[0];
}

OPKIT_NODE_GRADIENT(Trilu) {
  std::vector<std::string> inputs{GO(0)};
  if (Def().inputs().size() > 1) inputs.push_back(I(1));
  Give(0, "Trilu", inputs, Def().args());
}

}  // namespace detail

class TriluOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    const int64_t k = HasInput(1) ? detail::TriluDiagonal(Input(1)) : 0;
    Tensor* y = InferredOutput(0);
    const int64_t rows = x.dim(-2), columns = x.dim(-1), item = ItemSize(x.dtype());
    const bool in_place = x.raw_data() == y->raw_data();
    const auto* from = static_cast<const char*>(x.raw_data());
    auto* to = static_cast<char*>(y->raw_mutable_data());
    const int64_t all_rows = columns == 0 ? 0 : x.numel() / columns;
    const int64_t grain = columns == 0 ? 1 : detail::kCopyChunkBytes / (columns * item) + 1;
    const bool upper = upper_;
    ParallelForRange(all_rows, grain, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        // The row keeps elements [first, last).
        const int64_t diagonal = row % rows + k;
        const int64_t first = upper ? Clamp(diagonal, columns) : 0;
        const int64_t last = upper ? columns : Clamp(diagonal + 1, columns);
        const int64_t at = row * columns * item;
        std::memset(to + at, 0, static_cast<size_t>(first * item));
        if (!in_place)
          std::memcpy(to + at + first * item, from + at + first * item,
                      static_cast<size_t>((last - first) * item));
        std::memset(to + at + last * item, 0, static_cast<size_t>((columns - last) * item));
      }
    });
    return true;
  }

 private:
  static int64_t Clamp(int64_t at, int64_t columns) {
    return at < 0 ? 0 : at > columns ? columns : at;
  }

  const bool upper_ = GetSingleArgument<int64_t>("upper") != 0;
};

OPKIT_STANDARD_OPERATOR(Trilu, kMaker, TriluOp)
    .NumInputs(1, 2)
    .InputsOnHost({1})
    .Inplace({{0, 0}})
    .Input(0, "input", "matrices in the last two axes")
    .Input(1, "k",
           "the diagonal that the triangle ends at: 0, by default, is the main one, "
           "positive ones lie above it",
           {DType::kInt64})
    .Output(0, "output", "`input`, with zeros outside the triangle")
    .Arg<int64_t>("upper", "1: the upper triangle stays, 0: the lower one", 1)
    .Infer(detail::InferTrilu)
    .Doc("The upper or lower triangle of matrices, the diagonal included.");

}}  // namespace opkit

#endif  // OPKIT_OPS_TRILU_HPP_
