// Pad: adds elements at the ends of a tensor's axes, or removes them.
#ifndef OPKIT_OPS_PAD_HPP_
#define OPKIT_OPS_PAD_HPP_

#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/moving_strings.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/table_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the pads of every axis of a tensor of `rank`: first all pads before, then all behind.
// `pads` applies to `axes`, or to all axes if `axes` is null. Throws kInvalidArgument for a wrong
// count or a repeated axis, kOutOfRange for an axis outside the rank.
inline Dims PadsOfAllAxes(const Dims& pads, const Dims* axes, int rank) {
  const int count = axes ? axes->size() : rank;
  if (pads.size() != 2 * count)
    Throw(ErrorCode::kInvalidArgument, "Pad: 'pads' has ", pads.size(), " elements, expected ",
          2 * count, ", one before and one behind each of ", count, " axes");
  Dims all(std::vector<int64_t>(static_cast<size_t>(2 * rank), 0));
  Dims padded;
  if (axes) padded = NormalizeAxes({axes->begin(), axes->end()}, rank, "Pad");
  for (int i = 0; i < count; ++i) {
    const int axis = axes ? static_cast<int>(padded[i]) : i;
    all[axis] = pads[i];
    all[rank + axis] = pads[count + i];
  }
  return all;
}

inline int64_t PaddedExtent(int64_t extent, int64_t before, int64_t behind) {
  int64_t padded = 0;
  if (__builtin_add_overflow(extent, before, &padded) ||
      __builtin_add_overflow(padded, behind, &padded) || padded < 0)
    Throw(ErrorCode::kInvalidArgument, "Pad: an axis of extent ", extent, " cannot have pads ",
          before, " and ", behind);
  return padded;
}

inline void InferPad(InferenceContext& c) {
  const SymbolicShape& input = c.input_shape(0);
  if (!input.has_rank()) return c.SetOutput(0, c.input_dtype(0), {});
  SymbolicShape shape = input;
  const auto pads = KnownIntegerList(c, 1, "pads"), axes = KnownIntegerList(c, 3, "axes");
  if (pads && (axes || !c.HasInput(3))) {
    const Dims all = PadsOfAllAxes(*pads, axes ? &*axes : nullptr, input.rank());
    for (int i = 0; i < input.rank(); ++i) {
      const int64_t before = all[i], behind = all[input.rank() + i];
      if (before == 0 && behind == 0) continue;
      shape[i] = input[i].is_known() ? Dim(PaddedExtent(input[i].value(), before, behind))
                                     : Dim(input[i] + before + behind);
    }
  } else if (axes) {
    for (const int64_t axis : *axes) shape[NormalizeAxis(axis, input.rank(), "Pad")] = Dim();
  } else {
    shape = SymbolicShape::OfRank(input.rank());
  }
  c.SetOutput(0, c.input_dtype(0), shape);
}

// The gradient is a Pad node with negative pads, which cut the pads off again.
OPKIT_NODE_GRADIENT(Pad) {
  const auto mode = Def().args().Get<std::string>("mode", "constant");
  if (mode != "constant")
    Throw(ErrorCode::kUnsupported, "only mode 'constant' of Pad has a gradient, found '", mode,
          "'");
  std::vector<std::string> inputs{GO(0), Node("Neg", {I(1)})};
  if (Def().inputs().size() > 3) inputs.insert(inputs.end(), {"", I(3)});
  Give(0, "Pad", inputs);
}

enum class PadMode : uint8_t { kConstant, kReflect, kEdge, kWrap };

// How one axis is padded. Negative pads are applied first, so that modes never repeat elements that
// negative pads remove.
struct PadAxis {
  int64_t first = 0;   // the first index of the input that stays
  int64_t left = 0;    // how many stay
  int64_t before = 0;  // how many are added before these

  // Throws kInvalidArgument if the mode repeats elements and none is left.
  static PadAxis Of(PadMode mode, int axis, int64_t extent, int64_t before, int64_t padded) {
    const int64_t behind = padded - extent - before;
    PadAxis pad;
    pad.first = before < 0 ? -before : 0;
    pad.left = extent - pad.first + (behind < 0 ? behind : 0);
    pad.before = before < 0 ? 0 : before;
    if (pad.left <= 0 && mode != PadMode::kConstant)
      Throw(ErrorCode::kInvalidArgument, "Pad: axis ", axis, " has nothing to repeat: extent ",
            extent, ", pads ", before, " and ", behind);
    return pad;
  }
  // Returns the index of the element of the input that is copied to index `o` of the output;
  // negative for the constant.
  OPKIT_HOST_DEVICE int64_t Source(PadMode mode, int64_t o) const {
    const int64_t i = o - before;
    if (i >= 0 && i < left) return first + i;
    if (mode == PadMode::kConstant) return -1;
    if (mode == PadMode::kEdge) return first + (i < 0 ? 0 : left - 1);
    if (mode == PadMode::kWrap) return first + Modulo(i, left);
    if (left == 1) return first;
    const int64_t at = Modulo(i, 2 * (left - 1));
    return first + (at < left ? at : 2 * (left - 1) - at);
  }

 private:
  OPKIT_HOST_DEVICE static int64_t Modulo(int64_t i, int64_t n) {
    const int64_t rest = i % n;
    return rest < 0 ? rest + n : rest;
  }
};

// Throws kInvalidArgument unless Pad's constant is one element of `dtype`.
inline void CheckPadValue(const Tensor& value, DType dtype) {
  if (value.numel() != 1 || value.dtype() != dtype)
    Throw(ErrorCode::kInvalidArgument, "Pad: the constant is ", value, ", expected one element of ",
          dtype);
}

}  // namespace detail

class PadOp : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const int rank = x.rank();
    const Dims pads = IntegerList(Input(1), "pads");
    Dims axes;
    if (HasInput(3)) axes = IntegerList(Input(3), "axes");
    const Dims all = detail::PadsOfAllAxes(pads, HasInput(3) ? &axes : nullptr, rank);
    if (y->numel() == 0) return true;
    const int64_t item = ItemSize(x.dtype());
    if (x.shape() != shape_ || !(all == pads_) || item != item_) {
      item_ = 0;
      copy_.Start(item);
      for (int i = 0; i < rank; ++i)
        if (all[i] == 0 && all[rank + i] == 0)
          copy_.Keep(x.dim(i));
        else
          FillTable(copy_.Axis(x.dim(i)), x.dim(i), all[i], y->dim(i), i);
      shape_ = x.shape();
      pads_ = all;
      item_ = item;
    }
    const char zeros[16] = {};
    copy_.Run(x.raw_data(), y->raw_mutable_data(), HasInput(2) ? FillValue(x.dtype()) : zeros);
    return true;
  }

 private:
  void FillTable(std::vector<int64_t>& table, int64_t extent, int64_t before, int64_t padded,
                 int axis) const {
    const auto pad = detail::PadAxis::Of(mode_, axis, extent, before, padded);
    table.reserve(static_cast<size_t>(padded));
    for (int64_t o = 0; o < padded; ++o) table.push_back(pad.Source(mode_, o));
  }
  const void* FillValue(DType dtype) {
    detail::CheckPadValue(Input(2), dtype);
    return Input(2).raw_data();
  }

  const detail::PadMode mode_ = EnumeratorOf<detail::PadMode>("Pad", def().args(), "mode");
  TableCopy copy_;
  Shape shape_;  // copy_ is prepared for this input shape, these pads and this element size
  Dims pads_;
  int64_t item_ = 0;
};

OPKIT_STANDARD_OPERATOR(Pad, kMaker, MovingStrings<PadOp>)
    .TakesStrings()
    .NumInputs(2, 4)
    .InputsOnHost({1, 3})
    .Input(0, "data", "any tensor")
    .Input(1, "pads",
           "for each axis how many to add before it, then for each how many behind; "
           "negative ones take away",
           {DType::kInt64})
    .Input(2, "constant_value", "one element, by default 0")
    .Input(3, "axes", "that are padded; by default all", IndexTypes::DTypes())
    .Output(0, "output", "the padded tensor")
    .Arg(
        "mode",
        "what is added: a constant; edge, the element at the side; reflect, what lies on its other "
        "side; wrap, what the other side begins with",
        {"constant", "reflect", "edge", "wrap"})
    .Infer(detail::InferPad)
    .Doc("Adds elements at the sides of a tensor.");

}}  // namespace opkit

#endif  // OPKIT_OPS_PAD_HPP_
