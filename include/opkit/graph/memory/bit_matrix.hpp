// BitMatrix: a relation between numbered things, such as the steps that precede each step, as rows
// of bits.
#ifndef OPKIT_GRAPH_MEMORY_BIT_MATRIX_HPP_
#define OPKIT_GRAPH_MEMORY_BIT_MATRIX_HPP_

#include <cstdint>
#include <vector>

#include "opkit/base/index.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Rows of bits, each of whole 64-bit words, so that a row is searched word by word.
class BitMatrix {
 public:
  BitMatrix() = default;
  BitMatrix(size_t rows, size_t columns) : words_((columns + 63) / 64), bits_(rows * words_) {}

  size_t words() const { return words_; }  // words per row
  uint64_t* row(size_t i) { return bits_.data() + i * words_; }
  const uint64_t* row(size_t i) const { return bits_.data() + i * words_; }
  const std::vector<uint64_t>& bits() const { return bits_; }

  bool Get(size_t i, size_t j) const { return (row(i)[j / 64] >> (j % 64)) & 1; }
  void Set(size_t i, size_t j) { row(i)[j / 64] |= uint64_t{1} << (j % 64); }
  void Clear(size_t i, size_t j) { row(i)[j / 64] &= ~(uint64_t{1} << (j % 64)); }
  // Sets in row i every bit that is set in row j.
  void Include(size_t i, size_t j) {
    const uint64_t* const from = row(j);
    uint64_t* const to = row(i);
    for (size_t w = 0, words = words_; w < words; ++w) to[w] |= from[w];
  }

 private:
  size_t words_ = 0;
  std::vector<uint64_t> bits_;
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_BIT_MATRIX_HPP_
