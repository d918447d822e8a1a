// The elements of packed tensors: int2, uint2, int4, uint4 and float4_e2m1fn. A byte has four or
// two of them, the first one in the low bits, as in ONNX files
// (https://onnx.ai/onnx/technical/int4.html). A code is the two or four bits of an element in a
// byte of its own.
#ifndef OPKIT_CORE_PACKED_HPP_
#define OPKIT_CORE_PACKED_HPP_

#include "opkit/core/float8.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the code of element i of the packed elements at `bytes`. `bits` is 2 or 4.
inline uint8_t PackedCode(const void* bytes, int bits, int64_t i) {
  const int64_t bit = i * bits;
  const unsigned byte = static_cast<const uint8_t*>(bytes)[bit / 8];
  return static_cast<uint8_t>(byte >> (bit % 8) & ((1u << bits) - 1));
}
// Writes the code of element i. Two threads must not write to one byte.
inline void SetPackedCode(void* bytes, int bits, int64_t i, uint8_t code) {
  const int64_t bit = i * bits;
  const unsigned mask = ((1u << bits) - 1) << (bit % 8);
  uint8_t& byte = static_cast<uint8_t*>(bytes)[bit / 8];
  byte = static_cast<uint8_t>((byte & ~mask) | (static_cast<unsigned>(code) << (bit % 8) & mask));
}

// Writes the codes of elements [at, at + count) to `codes`, one in a byte.
inline void Unpack(const void* bytes, int bits, int64_t at, int64_t count, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) codes[i] = PackedCode(bytes, bits, at + i);
}
// Packs `count` codes to elements from `at` on, which must begin a byte. Only the low bits of a
// code are used; the unused bits of the last byte become 0.
inline void Pack(const uint8_t* codes, int bits, int64_t at, int64_t count, void* bytes) {
  const int in_a_byte = 8 / bits;
  auto* out = static_cast<uint8_t*>(bytes) + at / in_a_byte;
  for (int64_t i = 0; i < count; i += in_a_byte) {
    unsigned byte = 0;
    for (int k = 0; k < in_a_byte && i + k < count; ++k)
      byte |= (codes[i + k] & ((1u << bits) - 1)) << (k * bits);
    *out++ = static_cast<uint8_t>(byte);
  }
}

namespace detail {

// Returns the bits of the last of `count` packed elements' bytes that no element uses.
inline unsigned UnusedBits(DType dtype, int64_t count) {
  const int64_t used = IsPacked(dtype) ? count * BitSize(dtype) % 8 : 0;
  return used == 0 ? 0 : 0xffu << used & 0xffu;
}
// True if unused bits of the last byte are not 0. Elements of other dtypes use all bits.
inline bool HasUnusedBits(DType dtype, int64_t count, const void* bytes) {
  const unsigned unused = UnusedBits(dtype, count);
  return unused != 0 &&
         (static_cast<const uint8_t*>(bytes)[BytesOf(count, dtype) - 1] & unused) != 0;
}
// Sets the unused bits of the last byte to 0.
inline void ClearUnusedBits(DType dtype, int64_t count, void* bytes) {
  if (const unsigned unused = UnusedBits(dtype, count))
    static_cast<uint8_t*>(bytes)[BytesOf(count, dtype) - 1] &= static_cast<uint8_t>(~unused);
}

}  // namespace detail

// Returns the number that a code of a packed dtype means: -8 to 7 for int4, -6 to 6 for
// float4_e2m1fn.
inline float NumberOfCode(DType dtype, uint8_t code) {
  switch (dtype) {
    case DType::kInt2:
      return static_cast<float>((code ^ 2) - 2);
    case DType::kInt4:
      return static_cast<float>((code ^ 8) - 8);
    case DType::kFloat4E2M1:
      return detail::Float4E2M1Format::Decode(code);
    default:
      return code;
  }
}

}}  // namespace opkit

#endif  // OPKIT_CORE_PACKED_HPP_
