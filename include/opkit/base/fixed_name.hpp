// FixedName: a string literal as a template argument, so that names are checked at compile time.
#ifndef OPKIT_BASE_FIXED_NAME_HPP_
#define OPKIT_BASE_FIXED_NAME_HPP_

#include <cstddef>
#include <cstdint>
#include <string>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

// Up to 31 characters, packed into integers: nvcc rejects extended lambdas inside functions whose
// template arguments hold a char array.
struct FixedName {
  uint64_t words[4] = {};

  template <size_t N>
  consteval FixedName(const char (&text)[N]) {
    static_assert(N >= 2 && N <= 32, "a name has 1 to 31 characters");
    for (size_t i = 0; i + 1 < N; ++i)
      words[i / 8] |= static_cast<uint64_t>(static_cast<unsigned char>(text[i])) << (i % 8 * 8);
  }
  friend constexpr bool operator==(const FixedName&, const FixedName&) = default;

  std::string str() const {
    std::string out;
    for (size_t i = 0; i < 31; ++i) {
      const char c = static_cast<char>(words[i / 8] >> (i % 8 * 8) & 0xff);
      if (c == 0) break;
      out += c;
    }
    return out;
  }
};

}  // namespace opkit

#endif  // OPKIT_BASE_FIXED_NAME_HPP_
