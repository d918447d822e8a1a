// BitMatrix: a relation between numbered items as rows of bits, such as the steps that precede each
// step.
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
  uint64_t* row(std::integral auto i) { return bits_.data() + Index(i) * words_; }
  const uint64_t* row(std::integral auto i) const { return bits_.data() + Index(i) * words_; }
  const std::vector<uint64_t>& bits() const { return bits_; }

  bool Get(std::integral auto i, std::integral auto j) const {
    return row(i)[Index(j) / 64] & Bit(j);
  }
  void Set(std::integral auto i, std::integral auto j) { row(i)[Index(j) / 64] |= Bit(j); }
  void Clear(std::integral auto i, std::integral auto j) { row(i)[Index(j) / 64] &= ~Bit(j); }
  // Sets in row i every bit that is set in row j.
  void Include(std::integral auto i, std::integral auto j) {
    const uint64_t* const from = row(j);
    uint64_t* const to = row(i);
    for (size_t w = 0, words = words_; w < words; ++w) to[w] |= from[w];
  }

 private:
  static uint64_t Bit(std::integral auto j) { return uint64_t{1} << (Index(j) % 64); }

  size_t words_ = 0;
  std::vector<uint64_t> bits_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_MEMORY_BIT_MATRIX_HPP_
