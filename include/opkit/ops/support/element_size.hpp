// WithElementOfSize: selects an element type by its size. Used by operators that copy elements
// without computing with them, so that each size, not each dtype, needs a kernel.
#ifndef OPKIT_OPS_SUPPORT_ELEMENT_SIZE_HPP_
#define OPKIT_OPS_SUPPORT_ELEMENT_SIZE_HPP_

#include <cstdint>
#include <cstring>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Stands for an element of 16 bytes, such as complex128.
struct Bytes16 {
  uint64_t low, high;
};

// Calls f with a value of a type of `bytes` bytes and returns true; false if the size is not 1, 2,
// 4, 8 or 16.
template <class F>
bool WithElementOfSize(int64_t bytes, F&& f) {
  if (bytes == 1) return f(uint8_t{}), true;
  if (bytes == 2) return f(uint16_t{}), true;
  if (bytes == 4) return f(uint32_t{}), true;
  if (bytes == 8) return f(uint64_t{}), true;
  if (bytes == 16) return f(Bytes16{}), true;
  return false;
}

// Copies one element. memcpy, because callers move several small elements as one large element,
// which may be misaligned.
template <class T>
void MoveElement(char* to, const char* from) {
  std::memcpy(to, from, sizeof(T));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_SUPPORT_ELEMENT_SIZE_HPP_
