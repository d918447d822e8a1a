// Concat joins tensors along an axis; Split cuts a tensor into parts.
#ifndef OPKIT_OPS_CONCAT_HPP_
#define OPKIT_OPS_CONCAT_HPP_

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/moving_strings.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferConcat(InferenceContext& c) {
  const DType dtype = ExpectSameDType(c);
  SymbolicShape shape;
  int axis = 0;
  Dim total(0);
  for (int i = 0; i < c.num_inputs(); ++i) {
    const SymbolicShape& input = c.input_shape(i);
    if (!input.has_rank()) {
      total = Dim();
      continue;
    }
    if (!shape.has_rank()) {
      shape = input;
      axis = NormalizeAxis(c.args().Get<int64_t>("axis"), input.rank(), "Concat");
    }
    auto differ = [&](const char* what) {
      Throw(ErrorCode::kInvalidArgument, "Concat: input ", i, " has shape ", ToString(input),
            ", expected ", what, " of the inputs before it, ", ToString(shape),
            ", except along axis ", axis);
    };
    if (input.rank() != shape.rank()) differ("the rank");
    if (!total.is_known() || !input[axis].is_known()) {
      total = total + input[axis];
    } else {
      int64_t sum = 0;
      if (__builtin_add_overflow(total.value(), input[axis].value(), &sum))
        Throw(ErrorCode::kOutOfRange, "Concat: the extents of axis ", axis,
              " add up to more than a 64-bit count can hold");
      total = sum;
    }
    for (int k = 0; k < shape.rank(); ++k) {
      if (k == axis) continue;
      auto merged = Dim::Merge(shape[k], input[k]);
      if (!merged) differ("the extents");
      shape[k] = *std::move(merged);
    }
  }
  if (shape.has_rank()) shape[axis] = c.num_inputs() == 1 ? shape[axis] : total;
  c.SetOutput(0, dtype, shape);
}

// Returns the extents of Split's parts along the axis, as far as they are known.
inline std::vector<Dim> SplitExtents(const InferenceContext& c, const Dim& whole) {
  const int parts = c.num_outputs();
  std::vector<Dim> extents(static_cast<size_t>(parts));
  const bool counted = c.args().Has("num_outputs");
  if (c.HasInput(1)) {
    if (counted)
      Throw(ErrorCode::kInvalidArgument, "Split takes either the input 'split' or the argument ",
            "'num_outputs', found both");
    const auto known = KnownIntegerList(c, 1, "split");
    if (!known) return std::vector<Dim>(static_cast<size_t>(parts), Dim::AtMost(whole));
    if (known->size() != parts)
      Throw(ErrorCode::kInvalidArgument, "Split: 'split' gives ", known->size(), " extents, ",
            *known, ", but the node has ", parts, " outputs");
    int64_t sum = 0;
    for (int o = 0; o < parts; ++o) {
      if ((*known)[o] < 0 || __builtin_add_overflow(sum, (*known)[o], &sum))
        Throw(ErrorCode::kInvalidArgument, "Split: 'split' is ", *known,
              ", expected extents of at least 0");
      extents[Index(o)] = (*known)[o];
    }
    if (whole.is_known() && sum != whole.value())
      Throw(ErrorCode::kInvalidArgument, "Split: 'split' ", *known, " adds up to ", sum,
            ", but the axis has extent ", ToString(whole));
    return extents;
  }
  if (counted && c.Arg<int64_t>("num_outputs") != parts)
    Throw(ErrorCode::kInvalidArgument, "Split: num_outputs is ", c.Arg<int64_t>("num_outputs"),
          ", but the node has ", parts, " outputs");
  if (parts == 1) return {whole};
  if (!whole.is_known())
    return std::vector<Dim>(static_cast<size_t>(parts), (whole + (parts - 1)) / parts);
  const int64_t most = whole.value() == 0 ? 0 : (whole.value() - 1) / parts + 1;
  const int64_t last = whole.value() - most * (parts - 1);
  if (last != most && !counted)
    Throw(ErrorCode::kInvalidArgument, "Split: the axis of '", c.def().inputs()[0],
          "' has the extent ", ToString(whole), ", no multiple of the ", parts,
          " equal parts; other parts need the input 'split'");
  if (last < 0)
    Throw(ErrorCode::kInvalidArgument, "Split: an axis of extent ", ToString(whole),
          " cannot be cut into ", parts, " parts, of which all but the last are equal");
  for (Dim& extent : extents) extent = most;
  extents.back() = last;
  return extents;
}

inline void InferSplit(InferenceContext& c) {
  const SymbolicShape& input = c.input_shape(0);
  const int axis =
      input.has_rank() ? NormalizeAxis(c.Arg<int64_t>("axis"), input.rank(), "Split") : 0;
  const std::vector<Dim> extents = SplitExtents(c, input.has_rank() ? input[axis] : Dim());
  SymbolicShape shape = input;
  for (int o = 0; o < c.num_outputs(); ++o) {
    if (shape.has_rank()) shape[axis] = extents[Index(o)];
    c.SetOutput(o, c.input_dtype(0), shape);
  }
}

// Splits the output's gradient by the extents of the inputs.
OPKIT_NODE_GRADIENT(Concat) {
  const auto axis = Def().args().Get<int64_t>("axis");
  Arguments range = {{"start", axis}};
  if (axis != -1) range.Set("end", axis + 1);
  std::vector<std::string> extents, gradients;
  for (int i = 0; i < static_cast<int>(Def().inputs().size()); ++i) {
    extents.push_back(Node("Shape", {I(i)}, range));
    gradients.push_back(GI(i));
  }
  const std::string all = Node("Concat", extents, {{"axis", 0}});
  AddNode(OperatorDef("Split", {GO(0), all}, gradients, {{"axis", axis}}));
}

// Joins the gradients of the outputs; zeros stand for an output without a gradient.
OPKIT_NODE_GRADIENT(Split) {
  std::vector<std::string> parts;
  for (int o = 0; o < static_cast<int>(Def().outputs().size()); ++o) {
    if (!HasGO(o) && O(o).empty())
      Throw(ErrorCode::kUnsupported, "the gradient of ", ToString(Def()),
            " needs all of its outputs, and output ", o, " is left out");
    parts.push_back(HasGO(o) ? GO(o) : Node("ZerosLike", {O(o)}));
  }
  Give(0, "Concat", parts, {{"axis", Def().args().Get<int64_t>("axis", 0)}});
}

}  // namespace detail

class ConcatOp : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const int axis = Axis(y->rank());
    const Dims to = y->shape().DenseStrides();
    const int64_t item = ItemSize(y->dtype());
    auto* place = static_cast<char*>(y->raw_mutable_data());
    for (int i = 0; i < InputSize(); ++i) {
      const Tensor& x = Input(i);
      copy_.Copy(x.shape(), item, x.raw_data(), x.strides(), place, to);
      if (y->numel() > 0) place += x.dim(axis) * to[axis] * item;
    }
    return true;
  }

 private:
  StridedCopy copy_;
};

class SplitOp : public AxisOperator {
 public:
  using AxisOperator::AxisOperator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    const int axis = Axis(x.rank());
    const Dims from = x.strides();
    const int64_t item = ItemSize(x.dtype());
    const auto* place = static_cast<const char*>(x.raw_data());
    Infer();
    for (int o = 0; o < OutputSize(); ++o)
      if (HasOutput(o)) InferredOutput(o);
    for (int o = 0; o < OutputSize(); ++o) {
      const int64_t extent = inference().outputs()[detail::Index(o)].shape[axis];
      if (HasOutput(o)) {
        Tensor* y = Output(o);
        copy_.Copy(y->shape(), item, place, from, y->raw_mutable_data(), y->shape().DenseStrides());
      }
      if (x.numel() > 0) place += extent * from[axis] * item;
    }
    return true;
  }

 private:
  StridedCopy copy_;
};

OPKIT_STANDARD_OPERATOR(Concat, kMaker, MovingStrings<ConcatOp>)
    .TakesStrings()
    .NumInputs(1, 1 << 20)
    .Input(0, "inputs", "tensors of one dtype whose shapes differ along `axis` alone")
    .Output(0, "concat_result", "all of them, one behind the other")
    .RequiredArg<int64_t>("axis", "along which they are joined; negative ones count from the end")
    .Infer(detail::InferConcat)
    .Doc("Joins tensors along an axis.");

OPKIT_STANDARD_OPERATOR(Split, kMaker, MovingStrings<SplitOp>)
    .TakesStrings()
    .NumInputs(1, 2)
    .InputsOnHost({1})
    .NumOutputs(1, 1 << 20)
    .Input(0, "input", "any tensor")
    .Input(1, "split", "the extents of the parts along `axis`", {DType::kInt64})
    .Output(0, "outputs", "the parts, in order")
    .Arg<int64_t>("axis", "along which it is cut; negative ones count from the end", 0)
    .Arg<int64_t>("num_outputs",
                  "cuts into that many equal parts, of which the last may be smaller")
    .Infer(detail::InferSplit)
    .Doc("Cuts a tensor into parts along an axis, equal ones unless `split` gives their extents.");

}}  // namespace opkit

#endif  // OPKIT_OPS_CONCAT_HPP_
