// The kernel of RegexFullMatch. Each operator compiles its pattern once.
#ifndef OPKIT_BACKENDS_RE2_REGEX_FULL_MATCH_HPP_
#define OPKIT_BACKENDS_RE2_REGEX_FULL_MATCH_HPP_

#include <re2/re2.h>

#include "opkit/backends/re2/backend.hpp"
#include "opkit/ops/text/regex_full_match.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

class Re2FullMatchOp final : public StandardOperator {
 public:
  // Throws kInvalidArgument for a pattern that RE2 cannot read.
  Re2FullMatchOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : StandardOperator(def, ws, config),
        pattern_(GetSingleArgument<std::string>("pattern"), RE2::Quiet) {
    if (!pattern_.ok())
      Throw(ErrorCode::kInvalidArgument, "RegexFullMatch: the pattern '", pattern_.pattern(),
            "' is wrong: ", pattern_.error());
  }
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    bool* matches = InferredOutput(0)->mutable_data<bool>();
    const auto* texts = x.data<std::string>();
    for (int64_t i = 0; i < x.numel(); ++i) matches[i] = RE2::FullMatch(texts[i], pattern_);
    return true;
  }

 private:
  const RE2 pattern_;
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(RegexFullMatch, re2, Re2FullMatchOp);

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_RE2_REGEX_FULL_MATCH_HPP_
