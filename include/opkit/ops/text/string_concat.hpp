// StringConcat and StringSplit. Source: https://onnx.ai/onnx/operators/onnx__StringConcat.html and
// onnx__StringSplit.html, opset 20.
#ifndef OPKIT_OPS_TEXT_STRING_CONCAT_HPP_
#define OPKIT_OPS_TEXT_STRING_CONCAT_HPP_

#include <algorithm>

#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/text/string_broadcast.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class StringConcatOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor &x = DenseInput(0), &y = DenseInput(1);
    Infer();
    const Shape shape = inference().outputs()[0].shape;
    std::vector<std::string> joined(static_cast<size_t>(shape.numel()));
    detail::ForEachPair(x, y, shape, [&](int64_t i, const std::string& a, const std::string& b) {
      joined[detail::Index(i)] = a + b;
    });
    std::move(joined.begin(), joined.end(), InferredOutput(0)->mutable_data<std::string>());
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(StringConcat, kNone, StringConcatOp)
    .NumInputs(2)
    .Input(0, "X", "strings", {DType::kString})
    .Input(1, "Y", "strings, broadcast with X", {DType::kString})
    .Output(0, "Z", "each string of X and that of Y behind it", {DType::kString})
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, DType::kString, detail::BroadcastInputs(c, 2));
    })
    .Doc("Joins strings. Inputs are broadcast as in NumPy.");

namespace detail {

// Splits a text at a separator, at most `most` times; a negative number means always. An empty
// separator means every run of blanks; blanks at the begin of the text then separate nothing.
inline std::vector<std::string> SplitText(std::string_view text, std::string_view separator,
                                          int64_t most) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  std::vector<std::string> parts;
  if (separator.empty()) {
    size_t at = text.find_first_not_of(kBlanks);
    while (at != text.npos) {
      const bool last = most >= 0 && static_cast<int64_t>(parts.size()) == most;
      const size_t end = last ? text.npos : text.find_first_of(kBlanks, at);
      parts.emplace_back(text.substr(at, end == text.npos ? end : end - at));
      at = end == text.npos ? end : text.find_first_not_of(kBlanks, end);
    }
    return parts;
  }
  size_t at = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t end = text.find(separator, at);
    if (end == text.npos) break;
    parts.emplace_back(text.substr(at, end - at));
    at = end + separator.size();
  }
  parts.emplace_back(text.substr(at));
  return parts;
}

}  // namespace detail

class StringSplitOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Infer();  // checks the input's type
    const auto* texts = x.data<std::string>();
    std::vector<std::vector<std::string>> parts;
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < x.numel(); ++i) {
      parts.push_back(detail::SplitText(texts[i], delimiter_, maxsplit_));
      sizes.push_back(static_cast<int64_t>(parts.back().size()));
    }
    const size_t most = sizes.empty() ? 0 : detail::Index(*std::ranges::max_element(sizes));
    std::vector<int64_t> dims(x.shape().begin(), x.shape().end());
    const Shape counts(dims);
    dims.push_back(static_cast<int64_t>(most));
    auto* out = Output(0, Shape(dims), DType::kString)->mutable_data<std::string>();
    for (std::vector<std::string>& row : parts) {
      row.resize(most);
      out = std::move(row.begin(), row.end(), out);
    }
    if (!HasOutput(1)) return true;
    std::ranges::copy(sizes, Output(1, counts, DType::kInt64)->mutable_data<int64_t>());
    return true;
  }

 private:
  const std::string delimiter_ = GetSingleArgument<std::string>("delimiter", "");
  const int64_t maxsplit_ = GetSingleArgument<int64_t>("maxsplit", -1);
};

OPKIT_STANDARD_OPERATOR(StringSplit, kNone, StringSplitOp)
    .NumOutputs(1, 2)
    .Input(0, "X", "strings", {DType::kString})
    .Output(0, "Y", "the parts of each string along a new last axis, \"\" behind the last part",
            {DType::kString})
    .Output(1, "Z", "the number of parts of each string", {DType::kInt64})
    .Arg<std::string>("delimiter", "what separates two parts; without it, runs of blanks")
    .Arg<int64_t>("maxsplit", "the largest number of splits of a string; by default there is none")
    .Infer([](InferenceContext& c) {
      SymbolicShape parts = c.input_shape(0);
      if (parts.has_rank()) {
        std::vector<Dim> dims = parts.dims();
        dims.emplace_back();
        parts = SymbolicShape(std::move(dims));
      }
      c.SetOutput(0, DType::kString, parts);
      if (c.num_outputs() > 1) c.SetOutput(1, DType::kInt64, c.input_shape(0));
    })
    .Doc("Splits each string from its begin on.");

}}  // namespace opkit

#endif  // OPKIT_OPS_TEXT_STRING_CONCAT_HPP_
