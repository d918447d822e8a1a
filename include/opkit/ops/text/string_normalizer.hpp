// StringNormalizer: removes words from a list of strings and changes the case of the others.
// Source: https://onnx.ai/onnx/operators/onnx__StringNormalizer.html, opset 10.
#ifndef OPKIT_OPS_TEXT_STRING_NORMALIZER_HPP_
#define OPKIT_OPS_TEXT_STRING_NORMALIZER_HPP_

#include <algorithm>

#include "opkit/ops/support/standard_operator.hpp"
#include "opkit/ops/text/letter_case.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class StringNormalizerOp final : public StandardOperator {
 public:
  StringNormalizerOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : StandardOperator(def, ws, config) {
    static_cast<void>(GetSingleArgument<std::string>("locale", ""));
    for (std::string& word : stopwords_)
      if (!is_case_sensitive_) word = detail::ToLowerText(word);
    std::ranges::sort(stopwords_);
  }
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Infer();  // checks the input's type and shape
    std::vector<std::string> kept;
    for (const std::string& text : x.ToVector<std::string>()) {
      if (std::ranges::binary_search(stopwords_,
                                     is_case_sensitive_ ? text : detail::ToLowerText(text)))
        continue;
      kept.push_back(action_ == "LOWER"   ? detail::ToLowerText(text)
                     : action_ == "UPPER" ? detail::ToUpperText(text)
                                          : text);
    }
    if (kept.empty()) kept.emplace_back();
    const auto count = static_cast<int64_t>(kept.size());
    Tensor* y = Output(0, x.rank() == 2 ? Shape{1, count} : Shape{count}, DType::kString);
    std::ranges::move(kept, y->mutable_data<std::string>());
    return true;
  }

 private:
  const std::string action_ = GetSingleArgument<std::string>("case_change_action", "NONE");
  const bool is_case_sensitive_ = GetSingleArgument<int64_t>("is_case_sensitive", 0) != 0;
  std::vector<std::string> stopwords_ = GetRepeatedArgument<std::string>("stopwords");
};

OPKIT_STANDARD_OPERATOR(StringNormalizer, kNone, StringNormalizerOp)
    .Input(0, "X", "strings, [C] or [1, C]", {DType::kString})
    .Output(0, "Y", "those that are kept, [K] or [1, K]; a single \"\" if none is",
            {DType::kString})
    .Arg("case_change_action", "the case of the output's letters", {"NONE", "LOWER", "UPPER"})
    .Arg<int64_t>("is_case_sensitive", "0: stop words are found in any case", 0)
    .Arg<std::vector<std::string>>("stopwords", "the strings to remove")
    .Arg<std::string>("locale", "not used: letters change their case as in Unicode's simple rules")
    .Infer([](InferenceContext& c) {
      const SymbolicShape& shape = c.input_shape(0);
      SymbolicShape kept;
      if (shape.has_rank()) {
        if (shape.rank() != 1 && (shape.rank() != 2 || !Dim::Compatible(shape[0], 1)))
          Throw(ErrorCode::kInvalidArgument, "StringNormalizer: the input is ", ToString(shape),
                ", expected [C] or [1, C]");
        kept = shape.rank() == 1 ? SymbolicShape({Dim()}) : SymbolicShape({Dim(1), Dim()});
      }
      c.SetOutput(0, DType::kString, kept);
    })
    .Doc(
        "Removes stop words and changes the case of the other strings. Letters of the Latin, "
        "Greek, Cyrillic and Armenian scripts have two cases.");

}}  // namespace opkit

#endif  // OPKIT_OPS_TEXT_STRING_NORMALIZER_HPP_
