// CheckGradient's definition: runs the gradient operators and compares their results with
// differences.
#ifndef OPKIT_OP_GRADIENT_IMPL_GRADIENT_CHECK_IPP_
#define OPKIT_OP_GRADIENT_IMPL_GRADIENT_CHECK_IPP_

#include <algorithm>
#include <cstring>

#include "opkit/base/index.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/op/gradient/gradient_check.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE std::string ToString(const GradientCheckResult& result) {
  std::string out;
  if (result.ok() && result.elements_checked == 0)
    out = "no element of a gradient was checked";
  else if (result.ok())
    out = StrCat("gradient right in ", result.elements_checked, " elements, largest error ",
                 result.largest_error);
  for (const std::string& finding : result.findings) out += (out.empty() ? "" : "\n") + finding;
  for (const std::string& note : result.notes) out += StrCat("\n(not checked: ", note, ")");
  return out;
}

namespace detail {

// Checks the gradient of one node, in a workspace of its own.
class GradientChecker {
 public:
  GradientChecker(const OperatorDef& def, std::vector<Tensor> inputs,
                  const GradientCheckOptions& options)
      : def_(def), inputs_(std::move(inputs)), options_(options) {
    if (inputs_.size() != def.inputs().size())
      Throw(ErrorCode::kInvalidArgument, "CheckGradient of ", ToString(def), " needs ",
            def.inputs().size(), " inputs, found ", inputs_.size());
    if (!IsHostAccessible(def.device().type))
      Throw(ErrorCode::kUnsupported, "CheckGradient runs on the host, not on ",
            ToString(def.device()), "; check the gradient of its CPU kernel");
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (!def.inputs()[i].empty()) ws_.CreateTensor(def.inputs()[i]);
  }

  GradientCheckResult Check() {
    RunForward(-1, 0, 0);
    RunGradient();
    for (int i = 0; i < static_cast<int>(inputs_.size()); ++i)
      if (!def_.inputs()[Index(i)].empty()) CheckInput(i);
    return std::move(result_);
  }

 private:
  // Runs the node with `value` as element `element` of input `changed` and of all other inputs with
  // the same name.
  void RunForward(int changed, int64_t element, double value) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (def_.inputs()[i].empty()) continue;
      Tensor* tensor = ws_.GetTensor(def_.inputs()[i]);
      tensor->CopyFrom(inputs_[i]);
      if (changed >= 0 && def_.inputs()[i] == def_.inputs()[Index(changed)])
        SetNumber(*tensor, element, value);
    }
    if (forward_ && OpRegistry::Global().GetSchema(def_.type()).is_stateful()) forward_.reset();
    if (!forward_) forward_ = CreateOperator(def_, &ws_);
    forward_->Run();
  }
  std::vector<Tensor> Outputs() const {
    std::vector<Tensor> out;
    for (const std::string& name : def_.outputs())
      out.push_back(name.empty() ? Tensor() : CopyOf(*ws_.GetTensor(name)));
    return out;
  }

  // Makes output gradients of both signs and of magnitude 0.25 to 1.25, and runs the gradient
  // operators. The loss is the product of these weights and the outputs.
  void RunGradient() {
    const std::vector<Tensor> outputs = Outputs();
    GradientNames names;
    names.ReserveNamesOf(def_, {});
    std::vector<GradientValue> g_output(outputs.size());
    weights_.resize(outputs.size());
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (!IsFloatingPoint(outputs[o].dtype())) continue;
      weights_[o] = RandomTensor(outputs[o].shape(), outputs[o].dtype(), options_.seed + o);
      g_output[o] = names.Of(def_.outputs()[o]);
      ws_.CreateTensor(g_output[o].dense)->CopyFrom(weights_[o]);
    }
    all_weights_ = weights_;
    gradient_ = GetGradientForOp(def_, g_output, names);
    for (size_t o = 0; o < outputs.size(); ++o)
      if (weights_[o].initialized() && !IsRead(g_output[o].dense)) LeaveOut(o);
    for (const OperatorDef& op : gradient_.ops) CreateOperator(op, &ws_)->Run();
    for (const GradientValue& value : gradient_.g_input)
      analytic_.push_back(value.IsEmpty() ? Tensor() : Dense(value));
  }
  // True if the gradient of an input depends on this output gradient.
  bool IsRead(const std::string& g_output) const {
    const auto is_it = [&](const GradientValue& value) {
      return value.dense == g_output || value.values == g_output;
    };
    return std::ranges::any_of(gradient_.g_input, is_it) ||
           std::ranges::any_of(gradient_.ops, [&](const OperatorDef& op) {
             return std::ranges::count(op.inputs(), g_output) > 0;
           });
  }
  // Removes an output from the loss, because the maker does not read its gradient. Forward makes
  // such an output only for backward.
  void LeaveOut(size_t output) {
    weights_[output] = Tensor();
    result_.notes.push_back(StrCat("output ", output, " '", def_.outputs()[output],
                                   "', whose gradient the maker reads nowhere: none flows through "
                                   "it"));
  }
  // Returns the gradient as float64, with sparse slices added; undefined dtype after a finding.
  Tensor Dense(const GradientValue& value) {
    const size_t i = analytic_.size();
    const Shape& shape = inputs_[i].shape();
    Tensor out(shape, DType::kFloat64);
    if (out.nbytes()) std::memset(out.raw_mutable_data(), 0, Index(out.nbytes()));
    const auto wrong = [&](const std::string& how) { return Find(i, how), Tensor(); };
    if (value.IsDense()) {
      const Tensor gradient = CopyOf(*ws_.GetTensor(value.dense));
      if (gradient.shape() != shape || gradient.dtype() != inputs_[i].dtype())
        return wrong(StrCat("is ", gradient.dtype(), ToString(gradient.shape()),
                            ", but the input is ", inputs_[i].dtype(), ToString(shape)));
      for (int64_t n = 0; n < shape.numel(); ++n) SetNumber(out, n, GetNumber(gradient, n));
      return out;
    }
    const Tensor indices = CopyOf(*ws_.GetTensor(value.indices));
    const Tensor values = CopyOf(*ws_.GetTensor(value.values));
    const int64_t rows = shape.rank() > 0 ? shape[0] : 0;
    const int64_t width = shape.rank() > 0 ? shape.NumelBetween(1, shape.rank()) : 0;
    if (values.numel() != indices.numel() * width)
      return wrong(StrCat("has ", values.numel(), " values for ", indices.numel(),
                          " indices of slices of ", width));
    for (int64_t k = 0; k < indices.numel(); ++k) {
      const auto row = static_cast<int64_t>(GetNumber(indices, k));
      if (row < 0 || row >= rows)
        return wrong(StrCat("has index ", row, ", but the input has ", rows, " slices"));
      for (int64_t n = 0; n < width; ++n)
        SetNumber(out, row * width + n,
                  GetNumber(out, row * width + n) + GetNumber(values, k * width + n));
    }
    return out;
  }

  void CheckInput(int i) {
    const auto index = Index(i);
    const bool asked = std::ranges::count(options_.inputs, i) > 0;
    if (!asked && !options_.inputs.empty()) return;
    if (gradient_.g_input[index].IsEmpty()) {
      if (asked) Find(index, "was asked for, but the gradient maker gives none");
      if (!asked && Matters(i))
        result_.notes.push_back(StrCat("the gradient of input ", i, " '", def_.inputs()[index],
                                       "', which changes the outputs: its maker gives none"));
      return;
    }
    if (!IsFloatingPoint(inputs_[index].dtype()) || analytic_[index].dtype() == DType::kUndefined)
      return;
    // A value that several inputs read is tested once, with the sum of their gradients.
    Tensor sum = CopyOf(analytic_[index]);
    for (size_t k = 0; k < inputs_.size(); ++k) {
      if (k == index || def_.inputs()[k] != def_.inputs()[index]) continue;
      if (k < index && !gradient_.g_input[k].IsEmpty()) return;
      if (analytic_[k].dtype() == DType::kUndefined) continue;
      for (int64_t n = 0; n < sum.numel(); ++n)
        SetNumber(sum, n, GetNumber(sum, n) + GetNumber(analytic_[k], n));
    }
    const int64_t count = inputs_[index].numel();
    const int64_t stride =
        count / (options_.max_elements > 0 ? options_.max_elements : count + 1) + 1;
    size_t wrong = 0, first = result_.mismatches.size();
    for (int64_t n = 0; n < count; n += stride) wrong += !CheckElement(i, n, GetNumber(sum, n));
    if (wrong == 0) return;
    const GradientMismatch& shown = result_.mismatches[first];
    Find(index, StrCat("is wrong: element ", PositionOf(inputs_[index].shape(), shown.element),
                       " is ", shown.analytic, ", but the numeric gradient is ", shown.numeric,
                       wrong > 1 ? StrCat(" (", wrong, " elements of ", count, " differ)") : ""));
  }
  // True if an output changes with one of the first elements of input i, including outputs whose
  // gradient the maker does not read.
  bool Matters(int i) {
    constexpr int64_t kElements = 4;
    const Tensor& input = inputs_[Index(i)];
    if (!IsFloatingPoint(input.dtype())) return false;
    try {
      for (int64_t n = 0; n < kElements && n < input.numel(); ++n)
        if (Difference(i, n, 0x1p-4, all_weights_) != 0) return true;
    } catch (const Error&) {  // the operator refuses the value
    }
    return false;
  }
  bool CheckElement(int i, int64_t element, double analytic) {
    const DType dtype = inputs_[Index(i)].dtype();
    const int place = dtype == DType::kFloat64 ? 0 : dtype == DType::kFloat32 ? 1 : 2;
    constexpr double kThresholds[] = {1e-6, 5e-3, 0.1}, kSteps[] = {1e-5, 0x1p-7, 0x1p-4};
    const double threshold = options_.threshold > 0 ? options_.threshold : kThresholds[place];
    const double step = options_.step > 0 ? options_.step : kSteps[place];
    ++result_.elements_checked;
    double numeric = Difference(i, element, step, weights_);
    // Tries other steps. A kink within the step, or rounding in a flat function, makes the
    // difference wrong. A wrong gradient is wrong with every step.
    for (const double other : {step / 8, step * 4}) {
      if (RelativeError(analytic, numeric) <= threshold) break;
      const double again = Difference(i, element, other, weights_);
      if (RelativeError(analytic, again) <= threshold) numeric = again;
    }
    if (const double error = RelativeError(analytic, numeric); error <= threshold) {
      if (error > result_.largest_error) result_.largest_error = error;
      return true;
    }
    result_.mismatches.push_back({i, element, analytic, numeric});
    return false;
  }
  // Returns the slope of the loss with these weights, summed in float64 over the differences of
  // each output element.
  double Difference(int i, int64_t element, double step, const std::vector<Tensor>& weights) {
    const Tensor& input = inputs_[Index(i)];
    const double x = GetNumber(input, element);
    Tensor probe(Shape{2}, input.dtype());  // x + step and x - step, rounded to this dtype
    SetNumber(probe, 0, x + step);
    SetNumber(probe, 1, x - step);
    RunForward(i, element, GetNumber(probe, 0));
    const std::vector<Tensor> above = Outputs();
    RunForward(i, element, GetNumber(probe, 1));
    const std::vector<Tensor> below = Outputs();
    double sum = 0;
    for (size_t o = 0; o < weights.size(); ++o) {
      if (!weights[o].initialized()) continue;
      if (above[o].shape() != weights[o].shape() || below[o].shape() != weights[o].shape())
        return 0;  // the input decides a shape
      for (int64_t n = 0; n < weights[o].numel(); ++n)
        sum += GetNumber(weights[o], n) * (GetNumber(above[o], n) - GetNumber(below[o], n));
    }
    return sum / (GetNumber(probe, 0) - GetNumber(probe, 1));
  }
  void Find(size_t input, const std::string& what) {
    result_.findings.push_back(
        StrCat("the gradient of input ", input, " '", def_.inputs()[input], "' ", what));
  }

  const OperatorDef def_;
  const std::vector<Tensor> inputs_;
  const GradientCheckOptions options_;
  Workspace ws_;
  std::unique_ptr<OperatorBase> forward_;
  GradientOpsMeta gradient_;
  std::vector<Tensor> weights_, analytic_;
  std::vector<Tensor> all_weights_;  // includes the weights of outputs outside the loss
  GradientCheckResult result_;
};

}  // namespace detail

OPKIT_INLINE GradientCheckResult CheckGradient(const OperatorDef& def, std::vector<Tensor> inputs,
                                               const GradientCheckOptions& options) {
  return detail::GradientChecker(def, std::move(inputs), options).Check();
}

}}  // namespace opkit

#endif  // OPKIT_OP_GRADIENT_IMPL_GRADIENT_CHECK_IPP_
