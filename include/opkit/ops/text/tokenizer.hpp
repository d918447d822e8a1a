// Tokenizer of com.microsoft: splits texts into words. The kernel for separators and words that are
// regular expressions is in backends/re2. Source: Tokenizer in ONNX Runtime's ContribOperators.md.
#ifndef OPKIT_OPS_TEXT_TOKENIZER_HPP_
#define OPKIT_OPS_TEXT_TOKENIZER_HPP_

#include <algorithm>
#include <string_view>

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns true for a byte of UTF-8 that begins a character.
inline bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

// Returns the number of bytes of the first character of `text`; 0 if `text` is empty.
inline size_t CharacterSize(std::string_view text) {
  size_t size = text.empty() ? 0 : 1;
  while (size < text.size() && !BeginsCharacter(text[size])) ++size;
  return size;
}

}  // namespace detail

// The base of the kernels of Tokenizer.
class TokenizerOpBase : public StandardOperator {
 public:
  TokenizerOpBase(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : StandardOperator(def, ws, config) {
    if (separators_.empty() && expression_.empty())
      Throw(ErrorCode::kInvalidArgument, type(),
            ": expected 'separators', or a regular expression of words in 'tokenexp'");
    if (least_ < 1 || (IsByCharacter() && least_ > 1))
      Throw(ErrorCode::kInvalidArgument, type(), ": 'mincharnum' is ", least_, ", expected ",
            IsByCharacter() ? "1, because each character is a word" : "a number from 1 on");
  }
  bool RunOnDevice() final {
    const Tensor& x = DenseInput(0);
    Infer();  // checks the input's type
    const auto* texts = x.data<std::string>();
    std::vector<std::vector<std::string>> rows(detail::Index(x.numel()));
    size_t most = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      for (const std::string_view word : Split(texts[i]))
        if (std::ranges::count_if(word, &detail::BeginsCharacter) >= least_)
          rows[detail::Index(i)].emplace_back(word);
      most = (std::max)(most, rows[detail::Index(i)].size());
    }
    const bool marks = mark_ && most > 0;
    const size_t width = most + (marks ? 2 : 0);
    std::vector<int64_t> dims(x.shape().begin(), x.shape().end());
    dims.push_back(static_cast<int64_t>(width));
    auto* out = Output(0, Shape(dims), DType::kString)->mutable_data<std::string>();
    for (std::vector<std::string>& row : rows) {
      if (marks) {
        row.insert(row.begin(), "\x02");
        row.emplace_back("\x03");
      }
      row.resize(width, pad_);
      out = std::move(row.begin(), row.end(), out);
    }
    return true;
  }

 protected:
  // Returns the words of a text, those too short included.
  virtual std::vector<std::string_view> Split(std::string_view text) = 0;

  bool IsByCharacter() const { return separators_.size() == 1 && separators_[0].empty(); }
  static std::vector<std::string_view> CharactersOf(std::string_view text) {
    std::vector<std::string_view> characters;
    for (size_t size = 0; (size = detail::CharacterSize(text)) > 0; text.remove_prefix(size))
      characters.push_back(text.substr(0, size));
    return characters;
  }

  const std::vector<std::string> separators_ = GetRepeatedArgument<std::string>("separators");
  const std::string expression_ = GetSingleArgument<std::string>("tokenexp", "");

 private:
  const int64_t least_ = GetSingleArgument<int64_t>("mincharnum");
  const bool mark_ = GetSingleArgument<int64_t>("mark") != 0;
  const std::string pad_ = GetSingleArgument<std::string>("pad_value");
};

// Splits texts into characters. Names what a program without RE2 lacks for anything else.
class TokenizerOp final : public TokenizerOpBase {
 public:
  TokenizerOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : TokenizerOpBase(def, ws, config) {
    if (!IsByCharacter())
      throw UnsupportedOperatorFeature(
          "Tokenizer needs RE2 for regular expressions: link opkit::re2 or include "
          "opkit/backends/re2/all.hpp (the package libre2-dev)");
  }

 protected:
  std::vector<std::string_view> Split(std::string_view text) override { return CharactersOf(text); }
};

OPKIT_DOMAIN_OPERATOR("com.microsoft", Tokenizer, kNone, TokenizerOp)
    .Input(0, "X", "texts, [C] or [N, C]", {DType::kString})
    .Output(0, "Y",
            "the words of each text along a new last axis; its extent is the largest number of "
            "words, and 2 more with marks",
            {DType::kString})
    .RequiredArg<int64_t>(
        "mark", "1: the characters 2 and 3 stand before and behind the words of each text")
    .RequiredArg<std::string>("pad_value", "stands behind the last word of a text")
    .RequiredArg<int64_t>("mincharnum", "shorter words are left out")
    .Arg<std::vector<std::string>>(
        "separators",
        "regular expressions in RE2's syntax, by which a text is split in turn. One empty string: "
        "each character is a word")
    .Arg<std::string>("tokenexp", "without separators, a regular expression that the words match")
    .Infer([](InferenceContext& c) {
      SymbolicShape shape = c.input_shape(0);
      if (shape.has_rank()) {
        if (shape.rank() != 1 && shape.rank() != 2)
          Throw(ErrorCode::kInvalidArgument, c.def().type(), ": the input is ", ToString(shape),
                ", expected [C] or [N, C]");
        std::vector<Dim> dims = shape.dims();
        dims.emplace_back();
        shape = SymbolicShape(std::move(dims));
      }
      c.SetOutput(0, DType::kString, shape);
    })
    .Doc("Splits texts into words. The longest match of an expression counts.");

}}  // namespace opkit

#endif  // OPKIT_OPS_TEXT_TOKENIZER_HPP_
