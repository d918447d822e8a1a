// Gather and GatherElements: select elements of a tensor by indices in another tensor.
#ifndef OPKIT_OPS_GATHER_HPP_
#define OPKIT_OPS_GATHER_HPP_

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/moving_strings.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/table_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Calls f(i, index) for each element of a dense int64 or int32 tensor; negative indices count from
// the end of an axis of `extent`. Throws kOutOfRange for an index outside the axis.
template <class F>
void ForIndices(const Tensor& indices, int64_t extent, std::string_view op, F f) {
  DispatchDType<int64_t, int32_t>(indices.dtype(), [&]<class T>() {
    const T* data = indices.data<T>();
    for (int64_t i = 0; i < indices.numel(); ++i) {
      const int64_t index = data[i] < 0 ? data[i] + extent : data[i];
      if (index < 0 || index >= extent)
        Throw(ErrorCode::kOutOfRange, op, ": index ", static_cast<int64_t>(data[i]),
              " is outside an axis of extent ", extent);
      f(i, index);
    }
  });
}

inline void InferGather(InferenceContext& c) {
  const SymbolicShape &data = c.input_shape(0), &indices = c.input_shape(1);
  SymbolicShape shape;
  if (data.has_rank()) {
    const int axis = NormalizeAxis(c.Arg<int64_t>("axis"), data.rank(), "Gather");
    if (indices.has_rank()) {
      std::vector<Dim> dims(data.dims().begin(), data.dims().begin() + axis);
      dims.insert(dims.end(), indices.dims().begin(), indices.dims().end());
      dims.insert(dims.end(), data.dims().begin() + axis + 1, data.dims().end());
      shape = SymbolicShape(std::move(dims));
    }
  }
  c.SetOutput(0, c.input_dtype(0), shape);
}

inline void InferGatherElements(InferenceContext& c) {
  const SymbolicShape &data = c.input_shape(0), &indices = c.input_shape(1);
  if (data.has_rank() && indices.has_rank()) {
    auto fail = [&](const char* what) {
      Throw(ErrorCode::kInvalidArgument, "GatherElements: indices of shape ", ToString(indices),
            " for data of shape ", ToString(data), what);
    };
    if (data.rank() != indices.rank()) fail(", expected the same rank");
    const int axis = NormalizeAxis(c.Arg<int64_t>("axis"), data.rank(), "GatherElements");
    for (int i = 0; i < data.rank(); ++i)
      if (i != axis && data[i].is_known() && indices[i].is_known() &&
          indices[i].value() > data[i].value())
        fail(", expected no larger extents, except along `axis`");
  }
  c.SetOutput(0, c.input_dtype(0), indices);
}

OPKIT_NODE_GRADIENT(Gather) { Give(0, "GatherGradient", {GO(0), I(1), I(0)}, Def().args()); }
OPKIT_NODE_GRADIENT(GatherElements) {
  Arguments args = Def().args();
  args.Set("reduction", "add");
  Give(0, "ScatterElements", {Node("ZerosLike", {I(0)}), I(1), GO(0)}, std::move(args));
}

OPKIT_NODE_GRADIENT(GatherGradient) { Give(0, "Gather", {GO(0), I(1)}, Def().args()); }

}  // namespace detail

class GatherOp : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &indices = DenseInput(1);
    Tensor* y = InferredOutput(0);
    const int axis = Axis(x.rank());
    copy_.Start(ItemSize(x.dtype()));
    copy_.Keep(x.shape().NumelBetween(0, axis));
    std::vector<int64_t>& table = copy_.Axis(x.dim(axis));
    table.resize(static_cast<size_t>(indices.numel()));
    detail::ForIndices(indices, x.dim(axis), type(),
                       [&](int64_t i, int64_t index) { table[detail::Index(i)] = index; });
    copy_.Keep(x.shape().NumelBetween(axis + 1, x.rank()));
    copy_.Run(x.raw_data(), y->raw_mutable_data());
    return true;
  }

 private:
  TableCopy copy_;
};

// Adds each slice of Gather's gradient to the slice of `data` that it came from. Sums in double.
class GatherGradientOp final : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;
  bool RunOnDevice() override {
    const Tensor &dy = DenseInput(0), &indices = DenseInput(1);
    Tensor* dx = InferredOutput(0);
    const AxisSplit split(dx->shape(), Axis(dx->rank()));
    std::vector<double> sums(static_cast<size_t>(dx->numel()), 0);
    return Visit<FloatTypes>([&]<class T>() {
      const T* from = dy.data<T>();
      for (int64_t outer = 0; outer < split.outer; ++outer)
        detail::ForIndices(indices, split.extent, "Gather", [&](int64_t i, int64_t index) {
          const T* slice = from + (outer * indices.numel() + i) * split.inner;
          double* sum = sums.data() + (outer * split.extent + index) * split.inner;
          for (int64_t k = 0; k < split.inner; ++k) sum[k] += static_cast<double>(slice[k]);
        });
      T* out = dx->mutable_data<T>();
      for (const double sum : sums) *out++ = detail::ElementOfSum<T>(sum);
    });
  }
};

class GatherElementsOp : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &indices = DenseInput(1);
    Tensor* y = InferredOutput(0);
    const int axis = Axis(x.rank());
    const Dims steps = x.shape().DenseStrides();
    const auto* from = static_cast<const char*>(x.raw_data());
    auto* to = static_cast<char*>(y->raw_mutable_data());
    // `position` is the present place in `indices`. `base` is its offset in x for index 0 of
    // `axis`.
    Dims position(std::vector<int64_t>(static_cast<size_t>(x.rank()), 0));
    int64_t base = 0;
    detail::WithElementOfSize(ItemSize(x.dtype()), [&](auto element) {
      using T = decltype(element);
      constexpr auto kItem = static_cast<int64_t>(sizeof(T));
      detail::ForIndices(indices, x.dim(axis), type(), [&](int64_t i, int64_t index) {
        detail::MoveElement<T>(to + i * kItem, from + (base + index * steps[axis]) * kItem);
        for (int k = x.rank() - 1; k >= 0; --k) {
          const int64_t step = k == axis ? 0 : steps[k];
          base += step;
          if (++position[k] < indices.dim(k)) break;
          base -= position[k] * step;
          position[k] = 0;
        }
      });
    });
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(Gather, kMaker, MovingStrings<GatherOp>)
    .TakesStrings()
    .NumInputs(2)
    .Input(0, "data", "any tensor of rank 1 or more")
    .Input(1, "indices", "along `axis`; negative ones count from the end", IndexTypes::DTypes())
    .Output(0, "output", "the shape of `data` with that of `indices` in the place of `axis`")
    .Arg<int64_t>("axis", "of `data`; negative ones count from the end", 0)
    .Infer(detail::InferGather)
    .Cost([](auto&, auto& inputs, auto& outputs) {
      OpCost cost;
      cost.bytes_written = OpSchema::Bytes(outputs[0]);
      cost.bytes_read = OpSchema::Bytes(inputs[1]) + cost.bytes_written;
      return cost;
    })
    .Doc("Slices of a tensor along an axis, by their indices.");

OPKIT_STANDARD_OPERATOR(GatherGradient, kMaker, GatherGradientOp)
    .Private()
    .NumInputs(3)
    .Input(0, "dY", "of the shape of Gather's output", FloatTypes::DTypes())
    .Input(1, "indices", "of Gather", IndexTypes::DTypes())
    .Input(2, "data", "of Gather; only its shape is read", FloatTypes::DTypes())
    .Output(0, "dX", "of the shape of `data`", FloatTypes::DTypes())
    .Arg<int64_t>("axis", "of Gather", 0)
    .PointwiseCost(1)
    .Infer([](InferenceContext& c) {
      const SymbolicShape& data = c.input_shape(2);
      if (data.has_rank()) NormalizeAxis(c.Arg<int64_t>("axis"), data.rank(), "GatherGradient");
      c.SetOutput(0, c.input_dtype(0), data);
    })
    .Doc("The gradient of Gather: sums of slices by their indices.");

OPKIT_STANDARD_OPERATOR(GatherElements, kMaker, MovingStrings<GatherElementsOp>)
    .TakesStrings()
    .NumInputs(2)
    .Input(0, "data", "any tensor of rank 1 or more")
    .Input(1, "indices", "along `axis`, of the same rank; negative ones count from the end",
           IndexTypes::DTypes())
    .Output(0, "output",
            "for each index, the element of `data` at that place along `axis` and at "
            "the place of the index itself along the others")
    .Arg<int64_t>("axis", "of `data`; negative ones count from the end", 0)
    .Infer(detail::InferGatherElements)
    .Doc("Single elements of a tensor, by their indices along one axis.");

}}  // namespace opkit

#endif  // OPKIT_OPS_GATHER_HPP_
