// Philox: random numbers by position. A number depends on a key and a position alone, so that any
// number of threads, and any device, gives the same numbers. Source: Salmon, Moraes, Dror, Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011: Philox4x32-10.
#ifndef OPKIT_OPS_RANDOM_PHILOX_HPP_
#define OPKIT_OPS_RANDOM_PHILOX_HPP_

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Makes 128 random bits for each position. Costs about 10 ns a position.
//
//   const Philox random(seed);
//   for (int64_t i = begin; i < end; ++i) out[i] = random.At(i).Uniform();
class Philox {
 public:
  // The random bits of one position: four words of 32 bits.
  struct Bits {
    std::array<uint32_t, 4> words;

    // Returns a number in [0, 1), a multiple of 2^-53, made of the first two words.
    OPKIT_HOST_DEVICE constexpr double Uniform() const { return Fraction(words[0], words[1]); }
    // Returns a number with mean 0 and variance 1, made of all words (Box and Muller, "A note on
    // the generation of random normal deviates", 1958).
    OPKIT_HOST_DEVICE double Normal() const {
      const double radius = std::sqrt(-2 * std::log1p(-Fraction(words[0], words[1])));
      return radius * std::cos(2 * std::numbers::pi * Fraction(words[2], words[3]));
    }

   private:
    OPKIT_HOST_DEVICE static constexpr double Fraction(uint32_t high, uint32_t low) {
      return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
    }
  };

  explicit constexpr Philox(uint64_t key) : key_(key) {}

  // Returns the bits of a position of a stream. Streams of one key are independent of each other.
  constexpr Bits At(uint64_t position, uint64_t stream = 0) const {
    std::array<uint32_t, 4> x = {Low(position), High(position), Low(stream), High(stream)};
    uint32_t key_low = Low(key_), key_high = High(key_);
    for (int round = 0; round < 10; ++round) {
      const uint64_t first = uint64_t{0xd2511f53} * x[0], second = uint64_t{0xcd9e8d57} * x[2];
      x = {High(second) ^ x[1] ^ key_low, Low(second), High(first) ^ x[3] ^ key_high, Low(first)};
      key_low += 0x9e3779b9;
      key_high += 0xbb67ae85;
    }
    return {x};
  }

 private:
  static constexpr uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
  static constexpr uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

  uint64_t key_;
};

}}  // namespace opkit

#endif  // OPKIT_OPS_RANDOM_PHILOX_HPP_
