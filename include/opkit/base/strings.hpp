// StrCat: builds messages by concatenation, without <sstream>. All text for users goes through it,
// so numbers look the same everywhere. Messages are built at hundreds of places with as many
// combinations of types; a template would be instantiated for each combination. A call therefore
// passes an array of parts, two words each, to one ordinary function.
#ifndef OPKIT_BASE_STRINGS_HPP_
#define OPKIT_BASE_STRINGS_HPP_

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// One part of a message: a string, character, bool, integer, floating-point number (9 significant
// digits), anything with a `ToString(value)` found by argument-dependent lookup, or a vector of
// these (`[1, 2]`). Use Text as a parameter type only: it refers to its source object and does not
// copy it. No string is built until a message is needed; a call costs a few stores.
class Text {
 public:
  constexpr Text() : Text("") {}
  constexpr Text(const char* text) : value_{text}, append_(AppendLiteral) {}
  Text(const std::string& text) : value_{&text}, append_(AppendString) {}
  Text(const std::string_view& text) : value_{&text}, append_(AppendView) {}
  Text(char c) : Text(int64_t{c}, AppendCharacter) {}
  Text(bool b) : Text(b ? "true" : "false") {}
  Text(double number) : append_(AppendFloat) { value_.number = number; }
  Text(int i) : Text(int64_t{i}, AppendInt) {}
  Text(long i) : Text(int64_t{i}, AppendInt) {}
  Text(long long i) : Text(int64_t{i}, AppendInt) {}
  Text(unsigned i) : Text(int64_t{i}, AppendInt) {}
  Text(unsigned long i) : Text(static_cast<int64_t>(i), AppendUInt) {}
  Text(unsigned long long i) : Text(static_cast<int64_t>(i), AppendUInt) {}
  // First tests for a class or an enumeration with the compiler's built-in traits, so that a
  // literal causes no instantiation.
  template <class T>
    requires((__is_class(T) || __is_enum(T)) &&
             requires(const T& value) { std::string_view(ToString(value)); })
  Text(const T& value) : value_{&value} {
    append_ = [](std::string& out, Value part) {
      out += ToString(*static_cast<const T*>(part.object));
    };
  }
  template <class T>
  Text(const std::vector<T>& values) : value_{&values} {
    append_ = [](std::string& out, Value part) {
      const auto& all = *static_cast<const std::vector<T>*>(part.object);
      out += '[';
      for (size_t i = 0; i < all.size(); ++i) {
        if (i) out += ", ";
        Text(static_cast<const T&>(all[i])).AppendTo(out);
      }
      out += ']';
    };
  }

  void AppendTo(std::string& out) const { append_(out, value_); }

 private:
  union Value {
    const void* object = nullptr;
    int64_t integer;
    double number;
  };
  using Append = void(std::string& out, Value part);

  Text(int64_t integer, Append* append) : append_(append) { value_.integer = integer; }
  OPKIT_COLD static void AppendLiteral(std::string& out, Value part);
  OPKIT_COLD static void AppendString(std::string& out, Value part);
  OPKIT_COLD static void AppendView(std::string& out, Value part);
  OPKIT_COLD static void AppendCharacter(std::string& out, Value part);
  OPKIT_COLD static void AppendInt(std::string& out, Value part);
  OPKIT_COLD static void AppendUInt(std::string& out, Value part);
  OPKIT_COLD static void AppendFloat(std::string& out, Value part);

  Value value_;
  Append* append_;
};

OPKIT_COLD std::string Join(std::initializer_list<Text> parts);

}  // namespace detail

// Concatenates the parts; each has a type that detail::Text accepts.
template <class... Parts>
OPKIT_COLD std::string StrCat(const Parts&... parts) {
  return detail::Join({parts...});
}

// Prints any type that has a ToString: std::cout << shape.
template <class Char, class Traits, class T>
  requires((std::is_class_v<T> || std::is_enum_v<T>) &&
           !std::is_convertible_v<const T&, std::string_view> &&
           requires(const T& value) { std::string_view(ToString(value)); })
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out,
                                             const T& value) {
  return out << ToString(value);
}

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/strings.ipp"
#endif

#endif  // OPKIT_BASE_STRINGS_HPP_
