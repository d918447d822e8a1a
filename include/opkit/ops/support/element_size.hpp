// WithElementOfSize: for operators that move elements whatever they mean, a type for each size.
#ifndef OPKIT_OPS_SUPPORT_ELEMENT_SIZE_HPP_
#define OPKIT_OPS_SUPPORT_ELEMENT_SIZE_HPP_

#include <cstdint>
#include <cstring>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

struct Bytes16 {
  uint64_t low, high;
};

// Calls f with a value of a type of `bytes` bytes; false if there is none (1, 2, 4, 8 and 16 have
// one).
template <class F>
bool WithElementOfSize(int64_t bytes, F&& f) {
  if (bytes == 1) return f(uint8_t{}), true;
  if (bytes == 2) return f(uint16_t{}), true;
  if (bytes == 4) return f(uint32_t{}), true;
  if (bytes == 8) return f(uint64_t{}), true;
  if (bytes == 16) return f(Bytes16{}), true;
  return false;
}

// By memcpy, since rows of small elements are moved as larger ones, whatever their alignment.
template <class T>
void MoveElement(char* to, const char* from) {
  std::memcpy(to, from, sizeof(T));
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_ELEMENT_SIZE_HPP_
