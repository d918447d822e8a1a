// StrCat: message building by concatenation, without <sstream>. Everything that reports to a user
// goes through it, so numbers look the same everywhere. Not a variadic template: a message is built
// at a hundred places with a hundred combinations of types, and each would be an instantiation.
#ifndef OPKIT_BASE_STRINGS_HPP_
#define OPKIT_BASE_STRINGS_HPP_

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

namespace detail {

// One part of a message: a string, character, bool, integer, floating-point number (9 significant
// digits), anything with a `ToString(value)` found by argument-dependent lookup, or a vector of
// these (`[1, 2]`). A parameter type only: it refers to what it was made from, so that a call that
// reports nothing builds no strings, and one that does is a few stores.
class Text {
 public:
  Text() : kind_(Kind::kChars) {}
  Text(const char* text) : kind_(Kind::kLiteral) { value_.object = text; }
  Text(const std::string& text) : Text(std::string_view(text)) {}
  Text(std::string_view text) : kind_(Kind::kChars), size_(text.size()) {
    value_.object = text.data();
  }
  Text(char c) : kind_(Kind::kCharacter) { value_.integer = c; }
  Text(bool b) : Text(b ? "true" : "false") {}
  Text(double number) : kind_(Kind::kFloat) { value_.number = number; }
  template <class T>
    requires std::is_integral_v<T>
  Text(T integer) : kind_(std::is_signed_v<T> ? Kind::kInt : Kind::kUInt) {
    value_.integer = static_cast<int64_t>(integer);
  }
  template <class T>
    requires requires(const T& value) { std::string_view(ToString(value)); }
  Text(const T& value) : kind_(Kind::kObject) {
    value_.object = &value;
    append_ = [](std::string& out, const void* object) {
      out += ToString(*static_cast<const T*>(object));
    };
  }
  template <class T>
  Text(const std::vector<T>& values) : kind_(Kind::kObject) {
    value_.object = &values;
    append_ = [](std::string& out, const void* object) {
      const auto& all = *static_cast<const std::vector<T>*>(object);
      out += '[';
      for (size_t i = 0; i < all.size(); ++i) {
        if (i) out += ", ";
        Text(static_cast<const T&>(all[i])).AppendTo(out);
      }
      out += ']';
    };
  }

  OPKIT_COLD void AppendTo(std::string& out) const;

 private:
  enum class Kind : uint8_t { kLiteral, kChars, kCharacter, kInt, kUInt, kFloat, kObject };
  union Value {
    const void* object = nullptr;
    int64_t integer;
    double number;
  };
  Kind kind_;
  Value value_;
  union {
    size_t size_ = 0;
    void (*append_)(std::string& out, const void* object);
  };
};

OPKIT_COLD std::string Join(std::initializer_list<const Text*> parts);

}  // namespace detail

// Concatenates up to 16 parts; nest calls for more. Three overloads, so that a short message does
// not build sixteen parts.
OPKIT_COLD std::string StrCat(const detail::Text& a, const detail::Text& b = {},
                              const detail::Text& c = {}, const detail::Text& d = {});
OPKIT_COLD std::string StrCat(const detail::Text& a, const detail::Text& b, const detail::Text& c,
                              const detail::Text& d, const detail::Text& e,
                              const detail::Text& f = {}, const detail::Text& g = {},
                              const detail::Text& h = {});
OPKIT_COLD std::string StrCat(const detail::Text& a, const detail::Text& b, const detail::Text& c,
                              const detail::Text& d, const detail::Text& e, const detail::Text& f,
                              const detail::Text& g, const detail::Text& h, const detail::Text& i,
                              const detail::Text& j = {}, const detail::Text& k = {},
                              const detail::Text& l = {}, const detail::Text& m = {},
                              const detail::Text& n = {}, const detail::Text& o = {},
                              const detail::Text& p = {});

// std::cout << shape: whatever has a ToString is printed by it.
template <class Char, class Traits, class T>
  requires((std::is_class_v<T> || std::is_enum_v<T>) &&
           !std::is_convertible_v<const T&, std::string_view> &&
           requires(const T& value) { std::string_view(ToString(value)); })
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out,
                                             const T& value) {
  return out << ToString(value);
}

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/strings.ipp"
#endif

#endif  // OPKIT_BASE_STRINGS_HPP_
