// StringOf and NumberOf: numbers as texts and texts as numbers, for Cast. Source:
// https://onnx.ai/onnx/operators/onnx__Cast.html, opset 21.
#ifndef OPKIT_OPS_TEXT_STRING_NUMBERS_HPP_
#define OPKIT_OPS_TEXT_STRING_NUMBERS_HPP_

#include <charconv>
#include <cmath>
#include <string>

#include "opkit/core/tensor.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the shortest text that reads back as the number: "3.14", "1e+20", "NaN", "INF", "-INF".
// A bool is "1" or "0".
template <class T>
std::string StringOf(T value) {
  if constexpr (kIsHalf<T>) {
    return StringOf(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "INF" : "-INF";
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
  } else {
    return std::to_string(value);
  }
}

// True if the two texts are equal when no letter is a capital letter of A to Z.
inline bool IsWord(std::string_view text, std::string_view small_letters) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; };
  return std::equal(text.begin(), text.end(), small_letters.begin(), small_letters.end(), same);
}

// Returns the number that a text spells: an integer, a number with a point or an exponent, or NaN
// and INF in any case. A text such as "2.5" becomes 2 in an integer type. Blanks around the number
// do not count. Throws kInvalidArgument for another text, kOutOfRange for an integer that T cannot
// hold.
template <class T>
T NumberOf(const std::string& text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  std::string_view digits = text;
  digits.remove_prefix((std::min)(digits.find_first_not_of(kBlanks), digits.size()));
  if (const size_t last = digits.find_last_not_of(kBlanks); last != digits.npos)
    digits = digits.substr(0, last + 1);
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
  const char* const end = digits.data() + digits.size();
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    T whole{};
    const auto read = std::from_chars(digits.data(), end, whole);
    if (!digits.empty() && read.ptr == end) {
      if (read.ec == std::errc()) return whole;
      Throw(ErrorCode::kOutOfRange, "Cast: the text '", text, "' is outside ", kDTypeOf<T>);
    }
  }
  const bool negative = !digits.empty() && digits[0] == '-';
  const std::string_view word = digits.substr(negative);
  double value = 0;
  if (IsWord(word, "nan")) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (IsWord(word, "inf") || IsWord(word, "infinity")) {
    value = std::numeric_limits<double>::infinity() * (negative ? -1 : 1);
  } else {
    const auto read = std::from_chars(digits.data(), end, value);
    // Beyond double's range strtod gives the infinity or zero that is nearest.
    if (read.ec == std::errc::result_out_of_range && read.ptr == end)
      value = std::strtod(std::string(digits).c_str(), nullptr);
    else if (read.ec != std::errc() || read.ptr != end)
      Throw(ErrorCode::kInvalidArgument, "Cast: the text '", text, "' is no number");
  }
  // A float is read as a float: rounding to double first could round twice.
  if constexpr (std::is_same_v<T, float>) {
    float single = 0;
    if (std::from_chars(digits.data(), end, single).ec == std::errc()) return single;
  }
  return ConvertElement<T>(value);
}

// Converts a dense tensor to `y`, which has the same shape. One of the two holds strings.
inline void CastStrings(const Tensor& x, Tensor& y) {
  const auto move = [&](const auto* from, auto* to, auto convert) {
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = convert(from[i]);
  };
  const auto same = [](const std::string& text) { return text; };
  if (x.dtype() == y.dtype())
    return move(x.data<std::string>(), y.mutable_data<std::string>(), same);
  const bool known =
      y.dtype() == DType::kString
          ? PlainTypes::Visit(
                x.dtype(),
                [&]<class T>() { move(x.data<T>(), y.mutable_data<std::string>(), StringOf<T>); })
          : PlainTypes::Visit(y.dtype(), [&]<class T>() {
              move(x.data<std::string>(), y.mutable_data<T>(), NumberOf<T>);
            });
  if (!known)
    Throw(ErrorCode::kUnsupported, "Cast does not convert ", x.dtype(), " to ", y.dtype());
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_TEXT_STRING_NUMBERS_HPP_
