// TextsHash: the name of a result in a cache, made of the texts on which the result depends.
#ifndef OPKIT_BASE_CACHE_TEXTS_HASH_HPP_
#define OPKIT_BASE_CACHE_TEXTS_HASH_HPP_

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Hashes texts one after the other: two hashes of 64 bits (FNV-1a, from two starts). It recognises
// texts that differ by chance; it is no defence against texts that are made to be mistaken.
class TextsHash {
 public:
  void Add(std::string_view text) {
    for (const char c : text) AddUnit(static_cast<unsigned char>(c));
    AddUnit(0x1ff);  // no byte: "a", "bc" is another list than "ab", "c"
  }
  static constexpr size_t kDigits = 32;
  // Returns kDigits hexadecimal digits.
  std::string text() const {
    char text[40];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(a_),
                  static_cast<unsigned long long>(b_));
    return text;
  }

 private:
  void AddUnit(unsigned value) {
    constexpr uint64_t kPrime = 1099511628211U;
    a_ = (a_ ^ value) * kPrime;
    b_ = (b_ ^ (value + 1)) * kPrime;
  }
  uint64_t a_ = 14695981039346656037U, b_ = 0x9e3779b97f4a7c15U;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_CACHE_TEXTS_HASH_HPP_
