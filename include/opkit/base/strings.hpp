// StrCat: message building by concatenation, without <sstream>. Everything that reports to a user
// goes through it, so numbers look the same everywhere. Not a variadic template: a message is built
// at a hundred places with a hundred combinations of types, and each would be an instantiation.
#ifndef OPKIT_BASE_STRINGS_HPP_
#define OPKIT_BASE_STRINGS_HPP_

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

// One part of a message: a string, character, bool, integer, floating-point number (9 significant
// digits), anything with a `ToString(value)` found by argument-dependent lookup, or a vector of
// these (`[1, 2]`).
class Text {
 public:
  Text() = default;
  Text(const char* text) : text_(text ? text : "(null)") {}
  Text(const std::string& text) : text_(text) {}
  Text(std::string_view text) : text_(text) {}
  Text(char c) : text_(1, c) {}
  Text(bool b) : text_(b ? "true" : "false") {}
  Text(double value) {
    char buffer[32];  // whatever the program's locale says
    text_.assign(
        buffer,
        std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, 9).ptr);
  }
  template <class T>
    requires std::is_integral_v<T>
  Text(T value) : text_(std::to_string(value)) {}
  template <class T>
    requires requires(const T& value) { std::string_view(ToString(value)); }
  Text(const T& value) : text_(ToString(value)) {}
  template <class T>
  Text(const std::vector<T>& values) {
    text_ = "[";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i) text_ += ", ";
      text_ += Text(static_cast<const T&>(values[i])).text_;
    }
    text_ += ']';
  }

  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

namespace detail {
inline std::string Join(std::initializer_list<const Text*> parts) {
  std::string out;
  for (const Text* part : parts) out += part->str();
  return out;
}
}  // namespace detail

// Concatenates up to 16 parts; nest calls for more. Three overloads, so that a short message does
// not build sixteen parts.
inline std::string StrCat(const Text& a, const Text& b = {}, const Text& c = {},
                          const Text& d = {}) {
  return detail::Join({&a, &b, &c, &d});
}
inline std::string StrCat(const Text& a, const Text& b, const Text& c, const Text& d, const Text& e,
                          const Text& f = {}, const Text& g = {}, const Text& h = {}) {
  return detail::Join({&a, &b, &c, &d, &e, &f, &g, &h});
}
inline std::string StrCat(const Text& a, const Text& b, const Text& c, const Text& d, const Text& e,
                          const Text& f, const Text& g, const Text& h, const Text& i,
                          const Text& j = {}, const Text& k = {}, const Text& l = {},
                          const Text& m = {}, const Text& n = {}, const Text& o = {},
                          const Text& p = {}) {
  return detail::Join({&a, &b, &c, &d, &e, &f, &g, &h, &i, &j, &k, &l, &m, &n, &o, &p});
}

}  // namespace opkit

#endif  // OPKIT_BASE_STRINGS_HPP_
