// SharedLevel: a level of a Schedule that the threads of a replay run together, in pieces that they
// claim by number.
#ifndef OPKIT_ENGINE_SCHEDULE_SHARED_LEVEL_HPP_
#define OPKIT_ENGINE_SCHEDULE_SHARED_LEVEL_HPP_

#include "opkit/engine/pool/latch.hpp"
#include "opkit/engine/schedule/schedule.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Nodes by position in level order.
struct LevelPiece {
  int begin, end;
};

class SharedLevel {
 public:
  static constexpr int kMaxPieces = 0xffff;

  // For one thread, once the level before is done.
  void Share(int level, int pieces) {
    left_.Add(pieces);
    // Release: a claim sees what the levels before have written.
    word_.store(static_cast<uint64_t>(level) << 32 | static_cast<uint64_t>(pieces) << 16,
                std::memory_order_release);
  }

  // False when no piece is left. A claimed piece is ended by EndPiece.
  bool Claim(const Schedule& schedule, LevelPiece& claimed) {
    // Relaxed: a look that the claim below makes good.
    if (!HasPiece(word_.load(std::memory_order_relaxed))) return false;
    // Acquire: see Share. Other claims in between continue its release sequence.
    const uint64_t word = word_.fetch_add(1, std::memory_order_acquire);
    if (!HasPiece(word)) return false;
    const size_t level = word >> 32;
    const int64_t pieces = word >> 16 & 0xffff, piece = word & 0xffff;
    const int64_t begin = schedule.level_begin()[level];
    const int64_t width = schedule.level_begin()[level + 1] - begin;
    claimed = {static_cast<int>(begin + width * piece / pieces),
               static_cast<int>(begin + width * (piece + 1) / pieces)};
    return true;
  }
  void EndPiece() { left_.CountDown(); }

  // Pieces that have not ended.
  const Latch& left() const { return left_; }

 private:
  static bool HasPiece(uint64_t word) { return (word & 0xffff) < (word >> 16 & 0xffff); }

  // The level, its number of pieces, and the next piece: one word, so that a claim is a claim of
  // just that level.
  std::atomic<uint64_t> word_{0};
  Latch left_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_ENGINE_SCHEDULE_SHARED_LEVEL_HPP_
