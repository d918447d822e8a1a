// The arithmetic of operators that slide a window over an image (convolutions, pools): output
// extents, pads, and the elements under a window. Used by inference and by every kernel.
#ifndef OPKIT_OPS_SUPPORT_WINDOW_HPP_
#define OPKIT_OPS_SUPPORT_WINDOW_HPP_

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

enum class AutoPad : uint8_t { kNotSet, kSameUpper, kSameLower, kValid };

// The windows along one spatial axis: element k of window o is input element
// o * stride + k * dilation - pad_begin, which may be in a pad.
struct WindowAxis {
  int64_t input = 0, output = 0, kernel = 1;
  int64_t stride = 1, dilation = 1, pad_begin = 0, pad_end = 0;

  // Returns the extent of a window, including the gaps of its dilation.
  OPKIT_HOST_DEVICE int64_t extent() const { return (kernel - 1) * dilation + 1; }
  OPKIT_HOST_DEVICE int64_t Start(int64_t o) const { return o * stride - pad_begin; }
  // Elements [KernelBegin, KernelEnd) of window o are in the input, not in pads.
  OPKIT_HOST_DEVICE int64_t KernelBegin(int64_t o) const {
    const int64_t before = -Start(o);
    return before <= 0 ? 0 : (std::min)(kernel, (before + dilation - 1) / dilation);
  }
  OPKIT_HOST_DEVICE int64_t KernelEnd(int64_t o) const { return KernelEndBefore(o, input); }
  OPKIT_HOST_DEVICE int64_t KernelEndBefore(int64_t o, int64_t end) const {
    const int64_t room = end - Start(o);
    return room <= 0 ? 0 : (std::min)(kernel, (room - 1) / dilation + 1);
  }
  // Returns the number of elements of window o in the input and its pads. The number is below
  // `kernel` if ceil_mode adds the window and the window reaches past the end pad.
  OPKIT_HOST_DEVICE int64_t CountWithPads(int64_t o) const {
    return KernelEndBefore(o, input + pad_end);
  }
  // Returns the number of elements of window o that an average counts: with or without pads.
  OPKIT_HOST_DEVICE int64_t Divisor(int64_t o, bool with_pads) const {
    return with_pads ? CountWithPads(o) : KernelEnd(o) - KernelBegin(o);
  }
  // Windows [InteriorBegin, InteriorEnd) touch no pad.
  int64_t InteriorBegin() const { return (std::min)(output, (pad_begin + stride - 1) / stride); }
  int64_t InteriorEnd() const {
    const int64_t room = input + pad_begin - extent();
    return room < 0 ? InteriorBegin()
                    : (std::max)(InteriorBegin(), (std::min)(output, room / stride + 1));
  }
  friend bool operator==(const WindowAxis&, const WindowAxis&) = default;
};
using WindowAxes = std::vector<WindowAxis>;

// The attributes of a convolution or pool. The constructor refuses values that are wrong for every
// input.
struct WindowAttributes {
  std::string op;
  std::vector<int64_t> kernel_shape, strides, dilations, pads;  // empty: left out
  AutoPad auto_pad = AutoPad::kNotSet;
  bool ceil_mode = false;

  // Throws kInvalidArgument for numbers out of range and for an unknown auto_pad.
  explicit WindowAttributes(const OperatorDef& def) : op(def.type()) {
    kernel_shape = List(def, "kernel_shape", 1);
    strides = List(def, "strides", 1);
    dilations = List(def, "dilations", 1);
    pads = List(def, "pads", 0);
    ceil_mode = def.args().Get<int64_t>("ceil_mode", 0) != 0;
    if (OpRegistry::Global().GetSchema(op).FindAttribute("auto_pad"))
      auto_pad = EnumeratorOf<AutoPad>(op, def.args(), "auto_pad");
  }
  // Returns the list of an attribute; empty if the node leaves it out. Throws kInvalidArgument for
  // numbers below `least` or of more than 31 bits, so that sums and products of two numbers do not
  // overflow.
  static std::vector<int64_t> List(const OperatorDef& def, const char* name, int64_t least) {
    auto values = def.args().Get<std::vector<int64_t>>(name, {});
    for (const int64_t value : values)
      if (value < least || value > INT32_MAX)
        Throw(ErrorCode::kInvalidArgument, def.type(), ": ", name, " is ", values,
              ", expected numbers from ", least, " to ", INT32_MAX);
    return values;
  }
  // Throws kInvalidArgument unless each list is empty or has one entry for each spatial axis (pads:
  // two), and a window has at most 2^62 elements.
  void CheckRank(int spatial) const {
    CheckLength("kernel_shape", kernel_shape, spatial, 1);
    CheckLength("strides", strides, spatial, 1);
    CheckLength("dilations", dilations, spatial, 1);
    CheckLength("pads", pads, spatial, 2);
    double window = 1;
    for (const int64_t extent : kernel_shape) window *= static_cast<double>(extent);
    if (window > 0x1p62)
      Throw(ErrorCode::kInvalidArgument, op, ": kernel_shape is ", kernel_shape,
            ", a window of more elements than can be counted");
  }
  void CheckLength(const char* name, const std::vector<int64_t>& values, int spatial,
                   int each) const {
    if (!values.empty() && values.size() != static_cast<size_t>(spatial) * each)
      Throw(ErrorCode::kInvalidArgument, op, ": ", name, " is ", values, ", expected ",
            spatial * each, " numbers for ", spatial, " spatial axes (the input's rank less 2)");
  }

  bool is_same() const {
    return auto_pad == AutoPad::kSameUpper || auto_pad == AutoPad::kSameLower;
  }

  // Returns the windows along spatial axis `axis` (0 is the first) of an input. An auto_pad other
  // than NOTSET overrides `pads`. Throws kInvalidArgument if no window fits, kOutOfRange for
  // extents that are too large.
  WindowAxis At(int axis, int64_t input, int64_t kernel) const {
    if (input > INT64_MAX / 4 || kernel > INT32_MAX)
      Throw(ErrorCode::kOutOfRange, op, ": an extent of ", input, " with a kernel of ", kernel,
            " is too large");
    WindowAxis out = Steps(axis, kernel);
    out.input = input;
    if (is_same()) {
      out.output = input / out.stride + (input % out.stride != 0);
      SplitPads(out, (out.output - 1) * out.stride + out.extent() - input,
                auto_pad == AutoPad::kSameUpper);
      return out;
    }
    // With ceil_mode the last window may reach past the input and its pads.
    const int64_t past_end = ceil_mode && auto_pad == AutoPad::kNotSet ? out.stride - 1 : 0;
    const int64_t room = input - out.extent() + out.pad_begin + out.pad_end + past_end;
    if (kernel < 1 || room < 0)
      Throw(ErrorCode::kInvalidArgument, op, ": a window of ", out.extent(), " (kernel ", kernel,
            ", dilation ", out.dilation, ") does not fit in the extent ", input,
            " of spatial axis ", axis, " with pads ", out.pad_begin, " and ", out.pad_end);
    out.output = room / out.stride + 1;
    // A window that would start in the end pad is dropped.
    if (past_end > 0 && out.Start(out.output - 1) >= input) --out.output;
    return out;
  }
  // Returns the output's extent as far as it is known. Returns the input's symbol if both extents
  // are equal.
  Dim OutputDim(int axis, const Dim& input, const Dim& kernel) const {
    const WindowAxis steps = Steps(axis, kernel.is_known() ? kernel.value() : 1);
    if (!kernel.is_known() && !is_same()) return {};
    if (input.is_known()) return At(axis, input.value(), steps.kernel).output;
    const bool kept = is_same() || steps.extent() == steps.pad_begin + steps.pad_end + 1;
    if (steps.stride == 1 && kept) return input;
    return input.most() ? Dim::AtMost(At(axis, *input.most(), steps.kernel).output) : Dim();
  }
  // Returns a WindowAxis with all members set that do not depend on the input. For an auto_pad
  // other than NOTSET the pads are 0.
  WindowAxis Steps(int axis, int64_t kernel) const {
    WindowAxis out;
    const auto i = static_cast<size_t>(axis);
    out.kernel = kernel;
    if (!strides.empty()) out.stride = strides[i];
    if (!dilations.empty()) out.dilation = dilations[i];
    if (!pads.empty() && auto_pad == AutoPad::kNotSet) {
      out.pad_begin = pads[i];
      out.pad_end = pads[i + pads.size() / 2];
    }
    return out;
  }
  // Splits `total` into two pads, the larger at the end or at the beginning. A negative total
  // counts as 0.
  static void SplitPads(WindowAxis& axis, int64_t total, bool larger_at_end) {
    if (total < 0) total = 0;
    axis.pad_begin = larger_at_end ? total / 2 : total - total / 2;
    axis.pad_end = total - axis.pad_begin;
  }
};

// A pair of elements that a window multiplies: the index in the kernel and the index in the input,
// both in row-major order.
struct WindowTap {
  int64_t kernel = 0, input = 0;
};

// Computes the taps of one window after another; only the first call allocates.
class WindowTaps {
 public:
  explicit WindowTaps(const WindowAxes& axes) : axes_(&axes) {}

  // Returns the taps of window `o` (counted in row-major order) without the taps in pads, in the
  // kernel's row-major order. Valid until the next call.
  const std::vector<WindowTap>& At(int64_t o) {
    taps_.assign(1, WindowTap());
    // Goes from the last axis to the first, because `o` is decomposed in that order.
    int64_t kernel_step = 1, input_step = 1;
    for (size_t axis = axes_->size(); axis-- > 0;) {
      const WindowAxis& along = (*axes_)[axis];
      const int64_t index = o % along.output;
      o /= along.output;
      const int64_t start = along.Start(index), end = along.KernelEnd(index);
      outer_.clear();
      for (int64_t k = along.KernelBegin(index); k < end; ++k)
        for (const WindowTap& inner : taps_)
          outer_.push_back({k * kernel_step + inner.kernel,
                            (start + k * along.dilation) * input_step + inner.input});
      taps_.swap(outer_);
      kernel_step *= along.kernel;
      input_step *= along.input;
    }
    return taps_;
  }

 private:
  const WindowAxes* axes_;
  std::vector<WindowTap> taps_, outer_;
};

inline constexpr const char* kAutoPadDoc =
    "NOTSET: pads are given; SAME_UPPER, SAME_LOWER: so many that the output's extents are the "
    "input's over the strides (rounded up), an odd one at the end or at the beginning; VALID: "
    "none. Other than NOTSET it goes before `pads`";
inline constexpr const char* kPadsDoc =
    "elements added at the beginning of each spatial axis, then at the end of each; 0 where it is "
    "left out";
// Declares the attributes that all convolutions and pools have. For FillUsing.
inline void FillWindowSchema(OpSchema& schema, const char* auto_pad_doc, const char* pads_doc) {
  schema.Arg("auto_pad", auto_pad_doc, {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"})
      .Arg<std::vector<int64_t>>(
          "dilations",
          "distance of a kernel's elements along each spatial axis; 1 where it is left out")
      .Arg<std::vector<int64_t>>("pads", pads_doc)
      .Arg<std::vector<int64_t>>(
          "strides", "distance of windows along each spatial axis; 1 where it is left out");
}

// Returns TrafficCost of all inputs and outputs. The inputs from `first_parameter` on are
// parameters.
inline OpCost WindowCost(uint64_t flops, const std::vector<TensorInfo>& inputs,
                         const std::vector<TensorInfo>& outputs, size_t first_parameter) {
  OpCost cost = TrafficCost(flops, inputs, outputs);
  for (size_t i = first_parameter; i < inputs.size(); ++i)
    cost.params_bytes += OpSchema::Bytes(inputs[i]);
  return cost;
}

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_WINDOW_HPP_
