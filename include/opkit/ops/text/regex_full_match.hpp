// RegexFullMatch: tests whether whole strings match a pattern. The kernel is in backends/re2.
// Source: https://onnx.ai/onnx/operators/onnx__RegexFullMatch.html, opset 20.
#ifndef OPKIT_OPS_TEXT_REGEX_FULL_MATCH_HPP_
#define OPKIT_OPS_TEXT_REGEX_FULL_MATCH_HPP_

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Stands for the kernel in programs without RE2, and names what they lack.
class RegexFullMatchOp final : public StandardOperator {
 public:
  RegexFullMatchOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : StandardOperator(def, ws, config) {
    throw UnsupportedOperatorFeature(
        "RegexFullMatch needs RE2: link opkit::re2 or include opkit/backends/re2/all.hpp (the "
        "package libre2-dev)");
  }
  bool RunOnDevice() override { return false; }
};

OPKIT_STANDARD_OPERATOR(RegexFullMatch, kNone, RegexFullMatchOp)
    .Input(0, "X", "strings", {DType::kString})
    .Output(0, "Y", "true for each string that matches from begin to end", {DType::kBool})
    .RequiredArg<std::string>("pattern", "a regular expression in RE2's syntax")
    .Infer([](InferenceContext& c) { c.SetOutput(0, DType::kBool, c.input_shape(0)); })
    .Doc("Tests whether each string matches the pattern as a whole.");

}}  // namespace opkit

#endif  // OPKIT_OPS_TEXT_REGEX_FULL_MATCH_HPP_
