// Random numbers for operators: a small generator, seeded by the host, whose numbers depend on the
// seed, the operator and its run, and on nothing else: not on threads, nor on what else was built.
#ifndef OPKIT_OP_RANDOM_HPP_
#define OPKIT_OP_RANDOM_HPP_

#include <atomic>
#include <cstdint>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// One step of SplitMix64 (Steele, Lea, Flood 2014): spreads a counter over all bits.
constexpr uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct RandomSeed {
  std::atomic<uint64_t> seed{0};
  std::atomic<uint64_t> epoch{1};  // how often it was set
};
inline constinit RandomSeed g_random_seed;

}  // namespace detail

// Operators draw the same numbers again from their next run on. Not while an operator runs.
inline void SetSeed(uint64_t seed) {
  // Relaxed: operators that run later see it by whatever orders them after this call.
  detail::g_random_seed.seed.store(seed, std::memory_order_relaxed);
  detail::g_random_seed.epoch.fetch_add(1, std::memory_order_relaxed);
}

// xoshiro256** (Blackman, Vigna 2018), a uniform random bit generator. Different (seed, stream)
// are different sequences. Costs about 1 ns a number.
class RandomGenerator {
 public:
  using result_type = uint64_t;

  explicit constexpr RandomGenerator(uint64_t seed = 0, uint64_t stream = 0) {
    uint64_t x = detail::MixBits(seed) ^ detail::MixBits(~stream);
    for (uint64_t& word : state_) word = x = detail::MixBits(x);
  }
  static constexpr uint64_t(min)() { return 0; }
  static constexpr uint64_t(max)() { return ~uint64_t{0}; }

  constexpr uint64_t operator()() {
    const uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }
  // In [0, 1).
  constexpr double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
  // Mean 0, variance 1 (Marsaglia's polar method).
  double normal() {
    for (;;) {
      const double x = 2 * uniform() - 1, y = 2 * uniform() - 1;
      const double r = x * x + y * y;
      if (r > 0 && r < 1) return x * __builtin_sqrt(-2 * __builtin_log(r) / r);
    }
  }

 private:
  static constexpr uint64_t Rotate(uint64_t x, int k) { return x << k | x >> (64 - k); }
  uint64_t state_[4];
};

}  // namespace opkit

#endif  // OPKIT_OP_RANDOM_HPP_
