// ScatterElements and ScatterND: copy a tensor and replace elements or slices of it, or combine
// them with updates.
#ifndef OPKIT_OPS_SCATTER_HPP_
#define OPKIT_OPS_SCATTER_HPP_

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/extremes.hpp"
#include "opkit/ops/support/moving_strings.hpp"
#include "opkit/ops/support/node_gradient.hpp"
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

inline void InferScatterElements(InferenceContext& c) {
  const SymbolicShape &data = c.input_shape(0), &indices = c.input_shape(1);
  c.SetInput(2, c.input_dtype(0), indices);
  if (data.has_rank() && indices.has_rank()) {
    auto fail = [&](const char* what) {
      Throw(ErrorCode::kInvalidArgument, "ScatterElements: indices of shape ", ToString(indices),
            " for data of shape ", ToString(data), what);
    };
    if (data.rank() != indices.rank()) fail(", expected the same rank");
    const int axis = NormalizeAxis(c.Arg<int64_t>("axis"), data.rank(), "ScatterElements");
    for (int i = 0; i < data.rank(); ++i)
      if (i != axis && data[i].is_known() && indices[i].is_known() &&
          indices[i].value() > data[i].value())
        fail(", expected no larger extents, except along `axis`");
  }
  c.SetOutput(0, c.input_dtype(0), data);
}

// The gradient of both operators. Without a reduction the updates hide elements of `data`, whose
// gradient is 0; indices that occur twice have no defined result, and no right gradient.
class ScatterGradient final : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;

 private:
  void Make() override {
    const auto reduction = Def().args().Get<std::string>("reduction", "none");
    Arguments axis;
    if (Def().args().Has("axis")) axis.Set("axis", Def().args().Get<int64_t>("axis"));
    if (reduction == "add")
      SetDense(0, GO(0));
    else if (reduction == "none")
      Give(0, Def().type(), {GO(0), I(1), Node("ZerosLike", {I(2)})}, axis);
    else
      Throw(ErrorCode::kUnsupported, Def().type(),
            " has a gradient only with reduction=none or add");
    Give(2, Def().type() == "ScatterND" ? "GatherND" : "GatherElements", {GO(0), I(1)}, axis);
  }
};
OPKIT_REGISTER_GRADIENT(ScatterElements, ScatterGradient);
OPKIT_REGISTER_GRADIENT(ScatterND, ScatterGradient);

}  // namespace detail

// The base of both operators: copies `data` to the output and writes a slice of `updates` to each
// place, one after the other.
class ScatterOperator : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor &data = DenseInput(0), &indices = DenseInput(1), &updates = DenseInput(2);
    Tensor* y = InferredOutput(0);
    // Do not store the indices of empty slices: they may be too many for memory.
    offsets_.clear();
    if (updates.numel() != 0) FindOffsets(data.shape(), indices);
    CopyBytes(y->raw_mutable_data(), data.raw_data(), data.nbytes());
    if (offsets_.empty()) return true;
    const int64_t block = updates.numel() / static_cast<int64_t>(offsets_.size());
    if (reduction_ == Reduction::kNone) {
      const int64_t bytes = block * ItemSize(data.dtype());
      for (size_t i = 0; i < offsets_.size() && bytes > 0; ++i)
        std::memcpy(static_cast<char*>(y->raw_mutable_data()) + offsets_[i] * bytes,
                    static_cast<const char*>(updates.raw_data()) + static_cast<int64_t>(i) * bytes,
                    static_cast<size_t>(bytes));
      return true;
    }
    return Visit<PlainTypes>([&]<class T>() {
      T* out = y->mutable_data<T>();
      const T* update = updates.data<T>();
      for (const int64_t offset : offsets_)
        for (int64_t k = 0; k < block; ++k)
          out[offset * block + k] = Reduce(out[offset * block + k], *update++);
    });
  }

 protected:
  // Adds the number of each slice of `data` to write to offsets_. Throws kOutOfRange for a wrong
  // index, before any slice is written.
  virtual void FindOffsets(const Shape& data, const Tensor& indices) = 0;

  std::vector<int64_t> offsets_;

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

  const Reduction reduction_ = EnumeratorOf<Reduction>(type(), def().args(), "reduction");
};

class ScatterNDOp : public ScatterOperator {
 public:
  using ScatterOperator::ScatterOperator;

 private:
  void FindOffsets(const Shape& data, const Tensor& indices) override {
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
  }
};

class ScatterElementsOp : public ScatterOperator {
 public:
  using ScatterOperator::ScatterOperator;

 private:
  void FindOffsets(const Shape& data, const Tensor& indices) override {
    const int axis = NormalizeAxis(axis_, data.rank(), type());
    const Dims steps = data.DenseStrides();
    DispatchDType<int64_t, int32_t>(indices.dtype(), [&]<class T>() {
      const T* index = indices.data<T>();
      for (int64_t i = 0; i < indices.numel(); ++i) {
        const int64_t at = index[i] < 0 ? index[i] + data[axis] : index[i];
        if (at < 0 || at >= data[axis])
          Throw(ErrorCode::kOutOfRange, "ScatterElements: index ", static_cast<int64_t>(index[i]),
                " is outside an axis of extent ", data[axis]);
        int64_t offset = at * steps[axis], rest = i;
        for (int k = data.rank() - 1; k >= 0; --k) {
          if (k != axis) offset += rest % indices.dim(k) * steps[k];
          rest /= indices.dim(k);
        }
        offsets_.push_back(offset);
      }
    });
  }

  const int64_t axis_ = GetSingleArgument<int64_t>("axis");
};

OPKIT_STANDARD_OPERATOR(ScatterND, kMaker, MovingStrings<ScatterNDOp>)
    .TakesStrings()
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

OPKIT_STANDARD_OPERATOR(ScatterElements, kMaker, MovingStrings<ScatterElementsOp>)
    .TakesStrings()
    .NumInputs(3)
    .Inplace({{0, 0}})
    .Input(0, "data", "any tensor of rank 1 or more")
    .Input(1, "indices", "along `axis`, of the same rank; negative ones count from the end",
           IndexTypes::DTypes())
    .Input(2, "updates", "an element for each of `indices`")
    .Output(0, "output",
            "`data`, with each update written to the place of its index along `axis` and to its "
            "own place along the others")
    .Arg<int64_t>("axis", "of `data`; negative ones count from the end", 0)
    .Arg("reduction",
         "how an update meets what is there: none replaces it; max and min of a NaN are NaN",
         {"none", "add", "mul", "max", "min"})
    .Infer(detail::InferScatterElements)
    .Doc("Writes single elements to places that indices along one axis give.");

}}  // namespace opkit

#endif  // OPKIT_OPS_SCATTER_HPP_
