// RotaryEmbedding: rotates pairs of numbers by angles that depend on their position in a sequence.
// Sources: https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html, opset 23; Su et al.,
// "RoFormer", 2021 (https://arxiv.org/abs/2104.09864).
#ifndef OPKIT_OPS_NN_ROTARY_EMBEDDING_HPP_
#define OPKIT_OPS_NN_ROTARY_EMBEDDING_HPP_

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferRotaryEmbedding(InferenceContext& c) {
  const SymbolicShape& x = c.input_shape(0);
  const auto heads = c.args().Get<int64_t>("num_heads", 0);
  const auto rotated = c.Arg<int64_t>("rotary_embedding_dim");
  auto fail = [&](const auto&... expected) {
    Throw(ErrorCode::kInvalidArgument, "RotaryEmbedding: X ", ToString(x), ", num_heads ", heads,
          ", rotary_embedding_dim ", rotated, ": expected ", expected...);
  };
  if (x.has_rank()) {
    if (x.rank() != 4 && (x.rank() != 3 || heads <= 0)) fail("rank 4, or rank 3 and num_heads");
    Dim size = x[-1];
    if (x.rank() == 3 && size.is_known()) {
      if (size.value() % heads != 0) fail("a last extent that is a multiple of num_heads");
      size = size.value() / heads;
    }
    if (size.is_known() && (rotated < 0 || rotated > size.value()))
      fail("rotary_embedding_dim of 0 to ", size.value());
    const Dim pairs = rotated > 0 ? Dim(rotated) : size;
    if (pairs.is_known() && pairs.value() % 2 != 0) fail("an even number of rotated elements");
    const Dim half = pairs.is_known() ? Dim(pairs.value() / 2) : Dim();
    const Dim batch = x[0], steps = x.rank() == 4 ? x[2] : x[1];
    for (int i = 1; i < 3; ++i) {
      const SymbolicShape& cache = c.input_shape(i);
      if (!cache.has_rank()) continue;
      const bool fits = c.HasInput(3) ? cache.rank() == 2 && Dim::Compatible(cache[1], half)
                                      : cache.rank() == 3 && Dim::Compatible(cache[0], batch) &&
                                            Dim::Compatible(cache[1], steps) &&
                                            Dim::Compatible(cache[2], half);
      if (!fits)
        fail(c.HasInput(3) ? "caches of shape [positions, " : "caches of shape [batch, steps, ",
             ToString(half), "], found ", ToString(cache));
    }
    if (c.HasInput(3)) c.SetInput(3, DType::kInt64, {batch, steps});
  }
  c.SetInput(1, c.input_dtype(0), c.input_shape(1));
  c.SetInput(2, c.input_dtype(0), c.input_shape(1));
  c.SetOutput(0, c.input_dtype(0), x);
}

// Rotates the gradient back, by the negative angles.
OPKIT_NODE_GRADIENT(RotaryEmbedding) {
  std::vector<std::string> inputs = Def().inputs();
  inputs[0] = GO(0);
  inputs[2] = Node("Neg", {I(2)});
  Give(0, "RotaryEmbedding", inputs, Def().args());
}

}  // namespace detail

// Where the rows of X lie, of `size` numbers for each step of each head, and which are pairs.
struct RotaryRows {
  int64_t heads, steps, size, pairs;
  bool packed;  // rank 3: the heads of a step are neighbours
  bool interleaved;

  // Returns the number of a row's step among the steps of all sequences.
  OPKIT_HOST_DEVICE int64_t Token(int64_t row) const {
    const int64_t step = packed ? row / heads % steps : row % steps;
    return row / (heads * steps) * steps + step;
  }
  OPKIT_HOST_DEVICE int64_t First(int64_t pair) const { return interleaved ? 2 * pair : pair; }
  OPKIT_HOST_DEVICE int64_t Second(int64_t pair) const {
    return interleaved ? 2 * pair + 1 : pair + pairs;
  }
};

// The attributes. Base is a StandardOperator of some device.
template <class Base>
class RotaryEmbeddingOn : public Base {
 public:
  using Base::Base;

 protected:
  RotaryRows Rows(const Shape& x) const {
    const bool packed = x.rank() == 3;  // [batch, steps, heads * size]
    const int64_t heads = packed ? heads_ : x[1], size = packed ? x[2] / heads : x[3];
    return {heads,  packed ? x[1] : x[2], size, (rotated_ > 0 ? rotated_ : size) / 2,
            packed, interleaved_};
  }

 private:
  const int64_t heads_ = this->template GetSingleArgument<int64_t>("num_heads", 0);
  const int64_t rotated_ = this->template GetSingleArgument<int64_t>("rotary_embedding_dim");
  const bool interleaved_ = this->template GetSingleArgument<int64_t>("interleaved") != 0;
};

// Computes in double.
class RotaryEmbeddingOp final : public RotaryEmbeddingOn<StandardOperator> {
 public:
  using RotaryEmbeddingOn::RotaryEmbeddingOn;
  bool RunOnDevice() override {
    Infer();
    const Tensor& x = DenseInput(0);
    const RotaryRows rows = Rows(x.shape());
    const std::vector<double> cosines = detail::NumbersOf<double>(DenseInput(1));
    const std::vector<double> sines = detail::NumbersOf<double>(DenseInput(2));
    std::vector<int64_t> positions;
    if (HasInput(3)) positions = IntegersOf(DenseInput(3));
    for (const int64_t position : positions)
      if (position < 0 || position >= Input(1).dim(0))
        Throw(ErrorCode::kOutOfRange, "RotaryEmbedding: position ", position,
              " is outside the caches of ", Input(1).dim(0), " positions");
    Tensor* y = InferredOutput(0);
    return Visit<FloatTypes>([&]<class T>() {
      const T* from = x.data<T>();
      T* to = y->mutable_data<T>();
      const int64_t size = rows.size;
      ParallelFor(size > 0 ? x.numel() / size : 0, [&](int64_t row) {
        const int64_t token = rows.Token(row);
        const int64_t position = positions.empty() ? token : positions[detail::Index(token)];
        const size_t at = detail::Index(position * rows.pairs);
        const T* in = from + row * size;
        T* out = to + row * size;
        for (int64_t i = 0; i < rows.pairs; ++i) {
          const int64_t first = rows.First(i), second = rows.Second(i);
          const auto a = static_cast<double>(in[first]), b = static_cast<double>(in[second]);
          const double cosine = cosines[at + detail::Index(i)];
          const double sine = sines[at + detail::Index(i)];
          out[first] = ConvertElement<T>(cosine * a - sine * b);
          out[second] = ConvertElement<T>(sine * a + cosine * b);
        }
        for (int64_t i = 2 * rows.pairs; i < size; ++i) out[i] = in[i];
      });
    });
  }
};

OPKIT_STANDARD_OPERATOR(RotaryEmbedding, kMaker, RotaryEmbeddingOp)
    .NumInputs(3, 4)
    .Input(0, "X", "[batch, heads, steps, size] or [batch, steps, heads * size]",
           FloatTypes::DTypes())
    .Input(1, "cos_cache",
           "cosines of the angles: [positions, pairs] with `position_ids`, else [batch, steps, "
           "pairs]",
           FloatTypes::DTypes())
    .Input(2, "sin_cache", "sines of the angles, of the shape of `cos_cache`", FloatTypes::DTypes())
    .Input(3, "position_ids", "[batch, steps]: the row of the caches for each step",
           {DType::kInt64})
    .Output(0, "Y", "of the type and shape of X", FloatTypes::DTypes())
    .Arg<int64_t>("interleaved", "1: pairs are neighbours; 0: a pair has one element of each half",
                  0)
    .Arg<int64_t>("num_heads", "the number of heads of X of rank 3")
    .Arg<int64_t>("rotary_embedding_dim",
                  "the number of first elements of each head that are rotated; 0: all", 0)
    .PointwiseCost(6)
    .Infer(detail::InferRotaryEmbedding)
    .Doc(
        "Rotates pairs of numbers of each head by the angle of their step. X has a gradient; the "
        "caches have none.");

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_ROTARY_EMBEDDING_HPP_
