// FixedName: a string literal as a template argument, so that names are checked at compile time.
#ifndef OPKIT_BASE_FIXED_NAME_HPP_
#define OPKIT_BASE_FIXED_NAME_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A name of 1 to 31 characters, packed into four integers because of nvcc. nvcc rejects extended
// lambdas inside functions whose template arguments hold a char array. It writes the name as
// FixedName{w0, w1, w2, w3} into the code for the host compiler, where it cannot write an array
// member.
struct FixedName {
  uint64_t w0 = 0, w1 = 0, w2 = 0, w3 = 0;

  template <size_t N>
  consteval FixedName(const char (&text)[N]) {
    static_assert(N >= 2 && N <= 32, "a name has 1 to 31 characters");
    uint64_t* words[] = {&w0, &w1, &w2, &w3};
    for (size_t i = 0; i + 1 < N; ++i)
      *words[i / 8] |= static_cast<uint64_t>(static_cast<unsigned char>(text[i])) << (i % 8 * 8);
  }
  explicit constexpr FixedName(uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0)
      : w0(a), w1(b), w2(c), w3(d) {}
  friend constexpr bool operator==(const FixedName&, const FixedName&) = default;

  std::string str() const {
    const uint64_t words[] = {w0, w1, w2, w3};
    std::string out;
    for (size_t i = 0; i < 31; ++i) {
      const char c = static_cast<char>(words[i / 8] >> (i % 8 * 8) & 0xff);
      if (c == 0) break;
      out += c;
    }
    return out;
  }
};

// True if the text looks like a C++ identifier: it is not empty and has no character of other
// names.
consteval bool IsIdentifier(std::string_view name) {
  for (const char c : name)
    if (c == ':' || c == '"' || c == ' ' || c == '<' || c == '.') return false;
  return !name.empty();
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_FIXED_NAME_HPP_
