// Random numbers for operators: a small generator, seeded by the host. The numbers depend only on
// the seed, the operator and the number of its runs, not on threads or other operators.
#ifndef OPKIT_OP_RANDOM_HPP_
#define OPKIT_OP_RANDOM_HPP_

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// One step of SplitMix64 (Steele, Lea, Flood 2014): spreads a counter over all bits.
constexpr uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The program's seed, set by SetSeed.
struct RandomSeed {
  std::atomic<uint64_t> seed{0};
  std::atomic<uint64_t> epoch{1};  // number of SetSeed calls, plus 1
  std::atomic<uint64_t> calls{0};  // calls of Invoke that have drawn random numbers since SetSeed
};
inline constinit RandomSeed g_random_seed;
// True while this thread executes a call of Invoke, which makes a new operator. The operator's seed
// then depends on the number of the call, so that equal calls give different random numbers.
inline constinit thread_local bool t_in_invoke = false;

// The seeds of an operator's runs: a seed depends on SetSeed, the operator's key, and the number of
// runs since SetSeed.
class RunSeeds {
 public:
  void SetKey(std::string_view text) {
    key_ = 0;
    for (const char c : text) key_ = MixBits(key_ ^ static_cast<unsigned char>(c));
  }
  // Relaxed: SetSeed must not be called while an operator runs, and calls of Invoke on different
  // threads have no defined order.
  uint64_t Next() {
    const uint64_t epoch = g_random_seed.epoch.load(std::memory_order_relaxed);
    if (epoch != epoch_) [[unlikely]] {
      epoch_ = epoch;
      next_ = MixBits(g_random_seed.seed.load(std::memory_order_relaxed) ^ key_);
      if (t_in_invoke)
        next_ += MixBits(g_random_seed.calls.fetch_add(1, std::memory_order_relaxed));
    }
    return next_++;
  }

 private:
  uint64_t key_ = 0, epoch_ = 0, next_ = 0;
};

}  // namespace detail

// Restarts the random numbers of all operators from their next run on. An operator's numbers then
// depend on its name and run; in Invoke, on the order of the calls. Must not be called while an
// operator runs.
inline void SetSeed(uint64_t seed) {
  // Relaxed: later runs are ordered after this call by other synchronisation, which also makes the
  // store visible.
  detail::g_random_seed.seed.store(seed, std::memory_order_relaxed);
  detail::g_random_seed.calls.store(0, std::memory_order_relaxed);
  detail::g_random_seed.epoch.fetch_add(1, std::memory_order_relaxed);
}

// xoshiro256** (Blackman, Vigna 2018), a uniform random bit generator. Different (seed, stream)
// pairs give different sequences. Costs about 1 ns a number.
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
  // Returns a number in [0, 1).
  constexpr double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
  // Returns a number with mean 0 and variance 1 (Marsaglia's polar method).
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

}}  // namespace opkit

#endif  // OPKIT_OP_RANDOM_HPP_
