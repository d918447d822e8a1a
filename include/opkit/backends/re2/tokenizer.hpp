// The kernel of Tokenizer of com.microsoft. Each operator compiles its expressions once.
#ifndef OPKIT_BACKENDS_RE2_TOKENIZER_HPP_
#define OPKIT_BACKENDS_RE2_TOKENIZER_HPP_

#include <re2/re2.h>

#include <memory>

#include "opkit/backends/re2/backend.hpp"
#include "opkit/ops/text/tokenizer.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

class Re2TokenizerOp final : public TokenizerOpBase {
 public:
  // Throws kInvalidArgument for an expression that RE2 cannot read.
  Re2TokenizerOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : TokenizerOpBase(def, ws, config) {
    if (IsByCharacter()) return;
    for (const std::string& separator : separators_) Add(separator);
    if (separators_.empty()) Add(expression_);
  }

 protected:
  std::vector<std::string_view> Split(std::string_view text) override {
    if (IsByCharacter()) return CharactersOf(text);
    std::vector<std::string_view> words;
    if (separators_.empty()) {
      ForEachMatch(*expressions_[0], text,
                   [&](std::string_view, std::string_view match) { words.push_back(match); });
      return words;
    }
    words.push_back(text);
    for (const auto& separator : expressions_) {
      std::vector<std::string_view> parts;
      for (const std::string_view word : words)
        parts.push_back(ForEachMatch(
            *separator, word, [&](std::string_view before, auto) { parts.push_back(before); }));
      words = std::move(parts);
    }
    return words;
  }

 private:
  void Add(const std::string& expression) {
    RE2::Options options(RE2::Quiet);
    options.set_longest_match(true);
    expressions_.push_back(std::make_unique<RE2>(expression, options));
    if (!expressions_.back()->ok())
      Throw(ErrorCode::kInvalidArgument, type(), ": the expression '", expression,
            "' is wrong: ", expressions_.back()->error());
  }
  // Calls f(text between the match before and this one, match). Returns the text behind the last
  // match. The character behind an empty match belongs to no text.
  template <class F>
  static std::string_view ForEachMatch(const RE2& expression, std::string_view text, F f) {
    size_t begin = 0;
    re2::StringPiece found;
    while (begin < text.size() &&
           expression.Match(re2::StringPiece(text.data(), text.size()), begin, text.size(),
                            RE2::UNANCHORED, &found, 1)) {
      const auto at = static_cast<size_t>(found.data() - text.data());
      f(text.substr(begin, at - begin), text.substr(at, found.size()));
      begin = at + (found.empty() ? CharacterSize(text.substr(at)) : found.size());
      if (found.empty() && at == text.size()) break;
    }
    return text.substr(begin);
  }

  std::vector<std::unique_ptr<const RE2>> expressions_;
};

OPKIT_REGISTER_OPERATOR_STR(DeviceType::kCPU, "com.microsoft.Tokenizer", kRe2Backend,
                            Re2TokenizerOp);

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_RE2_TOKENIZER_HPP_
