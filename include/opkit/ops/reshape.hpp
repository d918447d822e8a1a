// Reshape, Flatten, Squeeze, Unsqueeze: give the same elements another shape. An output in place
// costs no copy.
#ifndef OPKIT_OPS_RESHAPE_HPP_
#define OPKIT_OPS_RESHAPE_HPP_

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The kernel of all four operators.
class ViewOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (IsObject(x.dtype())) [[unlikely]]
      detail::CopyObjects(x.dtype(), y->raw_mutable_data(), x.raw_data(), x.numel());
    else
      CopyBytes(y->raw_mutable_data(), x.raw_data(), x.nbytes());
    return true;
  }
};

namespace detail {

// A product of extents: the product of the known extents, and the list of the unknown extents.
struct DimProduct {
  int64_t number = 1;
  std::vector<Dim> open;

  void Multiply(const Dim& dim) {
    if (!dim.is_known())
      open.push_back(dim);
    else if (__builtin_mul_overflow(number, dim.value(), &number))
      Throw(ErrorCode::kOutOfRange, "the extents multiply to more than a 64-bit count can hold");
  }
  Dim dim() const {
    if (open.empty() || number == 0) return number;
    if (open.size() == 1 && number == 1) return open[0];
    std::vector<Dim> all = open;
    all.emplace_back(number);
    return SymbolicShape(std::move(all)).Elements();
  }
};

// Returns the output shape of Reshape. In `wanted`, 0 copies the input's extent (unless
// `allow_zero`) and -1 is computed from the other extents, as in ONNX.
inline SymbolicShape ReshapedShape(const SymbolicShape& input, const Dims& wanted,
                                   bool allow_zero) {
  std::vector<Dim> dims;
  // The products of the extents of both shapes. Extents that a 0 copies are equal and left out.
  DimProduct from, to;
  int inferred = -1;
  bool empty_possible = false;
  for (int i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == -1) {
      if (inferred >= 0)
        Throw(ErrorCode::kInvalidArgument, "Reshape: the shape ", wanted, " has more than one -1");
      inferred = i;
      dims.emplace_back();
    } else if (wanted[i] == 0 && !allow_zero) {
      if (input.has_rank() && i >= input.rank())
        Throw(ErrorCode::kInvalidArgument, "Reshape: the 0 at index ", i, " of the shape ", wanted,
              " copies an extent of the input, but the input has shape ", ToString(input));
      dims.push_back(input.has_rank() ? input[i] : Dim());
      empty_possible |= !dims.back().is_known() || dims.back().value() == 0;
    } else {
      if (wanted[i] < 0)
        Throw(ErrorCode::kInvalidArgument, "Reshape: the shape ", wanted, " has the extent ",
              wanted[i], ", expected at least 0, or -1 for an extent that is computed");
      dims.emplace_back(wanted[i]);
      to.Multiply(wanted[i]);
    }
  }
  if (!input.has_rank()) return SymbolicShape(std::move(dims));
  for (int i = 0; i < input.rank(); ++i) {
    const bool taken_over = i < wanted.size() && wanted[i] == 0 && !allow_zero;
    if (!taken_over) from.Multiply(input[i]);
  }
  auto fail = [&](const char* why) {
    Throw(ErrorCode::kInvalidArgument, "Reshape: a tensor of shape ", ToString(input),
          " cannot be reshaped to ", wanted, why);
  };
  if (inferred < 0) {
    if (from.open.empty() && from.number != to.number && !empty_possible)
      fail(": the element counts differ");
    return SymbolicShape(std::move(dims));
  }
  if (to.number == 0) fail(": beside an extent of 0, -1 could be any number");
  if (from.number % to.number == 0) {
    from.number /= to.number;
    dims[Index(inferred)] = from.dim();
  } else if (from.open.empty()) {
    fail(": the element count is not a multiple of the given extents");
  } else {
    dims[Index(inferred)] = from.dim() / to.number;
  }
  return SymbolicShape(std::move(dims));
}

inline void InferReshape(InferenceContext& c) {
  const SymbolicShape& input = c.input_shape(0);
  const bool allow_zero = c.Arg<int64_t>("allowzero") != 0;
  const auto wanted = KnownIntegerList(c, 1, "shape");
  c.SetOutput(0, c.input_dtype(0),
              wanted ? ReshapedShape(input, *wanted, allow_zero) : ShapeInInput(c, 1, "shape"));
}

inline void InferFlatten(InferenceContext& c) {
  const SymbolicShape& input = c.input_shape(0);
  SymbolicShape shape = SymbolicShape::OfRank(2);
  if (input.has_rank()) {
    const int64_t axis = c.Arg<int64_t>("axis");
    const int split =
        axis == input.rank() ? input.rank() : NormalizeAxis(axis, input.rank(), "Flatten");
    DimProduct sides[2];
    for (int i = 0; i < input.rank(); ++i) sides[i < split ? 0 : 1].Multiply(input[i]);
    shape = {sides[0].dim(), sides[1].dim()};
  }
  c.SetOutput(0, c.input_dtype(0), shape);
}

inline void InferSqueeze(InferenceContext& c) {
  const SymbolicShape& input = c.input_shape(0);
  const auto axes = KnownIntegerList(c, 1, "axes");
  std::vector<Dim> dims;
  SymbolicShape shape;
  if (input.has_rank() && axes) {
    const std::vector<char> mask = AxisMask({axes->begin(), axes->end()}, input.rank(), "Squeeze");
    for (int i = 0; i < input.rank(); ++i) {
      if (!mask[Index(i)]) {
        dims.push_back(input[i]);
      } else if (input[i].is_known() && input[i].value() != 1) {
        Throw(ErrorCode::kInvalidArgument, "Squeeze: axis ", i, " of shape ", ToString(input),
              " has extent ", ToString(input[i]), ", and only an extent of 1 can be left out");
      }
    }
    shape = SymbolicShape(std::move(dims));
  } else if (input.has_rank() && c.HasInput(1)) {
    const Dim left_out = IntegerListSize(c, 1, "axes");
    if (left_out.is_known()) shape = ShapeOfRank(input.rank() - left_out.value());
  } else if (input.is_known()) {
    for (const Dim& dim : input.dims())
      if (dim.value() != 1) dims.push_back(dim);
    shape = SymbolicShape(std::move(dims));
  }
  c.SetOutput(0, c.input_dtype(0), shape);
}

inline void InferUnsqueeze(InferenceContext& c) {
  const SymbolicShape& input = c.input_shape(0);
  const auto axes = KnownIntegerList(c, 1, "axes");
  SymbolicShape shape;
  if (input.has_rank() && axes) {
    const int rank = ShapeOfRank(int64_t{input.rank()} + axes->size()).rank();
    const std::vector<char> mask = AxisMask({axes->begin(), axes->end()}, rank, "Unsqueeze");
    std::vector<Dim> dims;
    for (int i = 0, from = 0; i < rank; ++i)
      dims.push_back(mask[Index(i)] ? Dim(1) : input[from++]);
    shape = SymbolicShape(std::move(dims));
  } else if (const Dim added = IntegerListSize(c, 1, "axes");
             input.has_rank() && added.is_known()) {
    shape = ShapeOfRank(input.rank() + added.value());
  }
  c.SetOutput(0, c.input_dtype(0), shape);
}

// The gradient of the four operators: reshapes the output's gradient to the shape of the input.
class ReshapeBackGradient final : public NodeGradient {
  using NodeGradient::NodeGradient;
  void Make() override { Give(0, "Reshape", {GO(0), Node("Shape", {I(0)})}, {{"allowzero", 1}}); }
};

}  // namespace detail

// Registers an operator with ViewOp and its gradient, and begins its schema.
#define OPKIT_VIEW_OPERATOR(name)                             \
  OPKIT_REGISTER_GRADIENT(name, detail::ReshapeBackGradient); \
  OPKIT_STANDARD_OPERATOR(name, kMaker, ViewOp).TakesStrings().Inplace({{0, 0}})

OPKIT_VIEW_OPERATOR(Reshape)
    .NumInputs(2)
    .InputsOnHost({1})
    .Input(0, "data", "any tensor")
    .Input(1, "shape",
           "the extents of the output: -1 for one that follows from the others, 0 for "
           "that of the input at the same axis",
           {DType::kInt64})
    .Output(0, "reshaped", "the elements of `data` in the same order")
    .Arg<int64_t>("allowzero", "1: a 0 in `shape` is an extent of 0", 0)
    .Infer(detail::InferReshape)
    .Doc("Gives a tensor another shape of the same element count.");

OPKIT_VIEW_OPERATOR(Flatten)
    .Input(0, "input", "any tensor")
    .Output(0, "output", "of rank 2: the axes before `axis` in the first, the others in the second")
    .Arg<int64_t>("axis", "the first axis that goes into the second; -rank to rank", 1)
    .Infer(detail::InferFlatten)
    .Doc("Makes a matrix of a tensor.");

OPKIT_VIEW_OPERATOR(Squeeze)
    .NumInputs(1, 2)
    .InputsOnHost({1})
    .Input(0, "data", "any tensor")
    .Input(1, "axes", "to leave out; by default all of extent 1", {DType::kInt64})
    .Output(0, "squeezed", "the same elements")
    .Infer(detail::InferSqueeze)
    .Doc("Leaves out axes of extent 1.");

OPKIT_VIEW_OPERATOR(Unsqueeze)
    .NumInputs(2)
    .InputsOnHost({1})
    .Input(0, "data", "any tensor")
    .Input(1, "axes", "of the output, that are new", {DType::kInt64})
    .Output(0, "expanded", "the same elements")
    .Infer(detail::InferUnsqueeze)
    .Doc("Adds axes of extent 1.");
#undef OPKIT_VIEW_OPERATOR

}}  // namespace opkit

#endif  // OPKIT_OPS_RESHAPE_HPP_
