// StrCat: message building by concatenation, without <sstream>. Everything that reports to a user
// goes through it, so numbers look the same everywhere.
#ifndef OPKIT_BASE_STRINGS_HPP_
#define OPKIT_BASE_STRINGS_HPP_

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline void AppendTo(std::string& out, std::string_view text) { out += text; }
inline void AppendTo(std::string& out, const char* text) { out += text ? text : "(null)"; }
inline void AppendTo(std::string& out, const std::string& text) { out += text; }
inline void AppendTo(std::string& out, char c) { out += c; }
inline void AppendTo(std::string& out, bool b) { out += b ? "true" : "false"; }

inline void AppendTo(std::string& out, double value) {
  char buffer[32];
  out.append(buffer, static_cast<size_t>(std::snprintf(buffer, sizeof buffer, "%.9g", value)));
}

template <class T>
  requires std::is_integral_v<T>
void AppendTo(std::string& out, T value) {
  out += std::to_string(value);
}

// Anything with a `ToString(value)` found by argument-dependent lookup.
template <class T>
  requires requires(const T& value) { std::string_view(ToString(value)); }
void AppendTo(std::string& out, const T& value) {
  out += ToString(value);
}

template <class T>
void AppendTo(std::string& out, const std::vector<T>& values) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) out += ", ";
    AppendTo(out, static_cast<const T&>(values[i]));
  }
  out += ']';
}

}  // namespace detail

// Concatenates strings, characters, bools, integers, floating-point numbers (9 significant digits),
// vectors of these (`[1, 2]`) and types with a ToString.
template <class... Parts>
std::string StrCat(const Parts&... parts) {
  std::string out;
  (detail::AppendTo(out, parts), ...);
  return out;
}

}  // namespace opkit

#endif  // OPKIT_BASE_STRINGS_HPP_
