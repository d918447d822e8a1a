#include "opkit/base/unique_function.hpp"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <type_traits>
#include <utility>

namespace unique_function_test { namespace {

using opkit::UniqueFunction;

// Counts the objects alive and the moves made, in places the test owns.
struct Probe {
  Probe(int& alive_count, int& move_count) : alive(&alive_count), moves(&move_count) { ++*alive; }
  Probe(Probe&& other) noexcept : alive(other.alive), moves(other.moves) {
    ++*alive;
    ++*moves;
  }
  ~Probe() { --*alive; }
  int* alive;
  int* moves;
};

struct ThrowingMove {
  ThrowingMove() = default;
  ThrowingMove(ThrowingMove&&) noexcept(false) {}
  int operator()() { return 5; }
};

TEST_CASE("UniqueFunction is one cache line and move-only") {
  using F = UniqueFunction<void()>;
  CHECK(sizeof(F) == 64);
  CHECK_FALSE(std::is_copy_constructible_v<F>);
  CHECK(std::is_nothrow_move_constructible_v<F>);
  CHECK_FALSE(std::is_constructible_v<F, int>);
  CHECK_FALSE(std::is_constructible_v<F, void (*)(int)>);
}

TEST_CASE("an empty UniqueFunction is false, one that was moved from too") {
  UniqueFunction<int()> empty;
  UniqueFunction<int()> null = nullptr;
  CHECK_FALSE(empty);
  CHECK_FALSE(null);
  UniqueFunction<int()> f = [] { return 3; };
  REQUIRE(f);
  UniqueFunction<int()> g = std::move(f);
  CHECK_FALSE(f);
  CHECK(g() == 3);
  g = nullptr;
  CHECK_FALSE(g);
}

TEST_CASE("callables of up to 48 bytes are stored inside, others on the heap; both work") {
  std::array<int, 12> small{};
  std::array<int, 13> large{};
  small[11] = 11;
  large[12] = 12;
  auto inside = [small](int i) { return small[static_cast<size_t>(i)]; };
  auto outside = [large](int i) { return large[static_cast<size_t>(i)]; };
  CHECK(UniqueFunction<int(int)>::kFitsInline<decltype(inside)>);
  CHECK_FALSE(UniqueFunction<int(int)>::kFitsInline<decltype(outside)>);
  CHECK_FALSE(UniqueFunction<int()>::kFitsInline<ThrowingMove>);
  UniqueFunction<int(int)> f = inside;
  UniqueFunction<int(int)> g = outside;
  std::swap(f, g);
  CHECK(g(11) == 11);
  CHECK(f(12) == 12);
  CHECK(UniqueFunction<int()>(ThrowingMove())() == 5);
}

TEST_CASE("each callable is destroyed once, after any moves and assignments") {
  int alive = 0;
  int moves = 0;
  {
    UniqueFunction<int()> f = [p = Probe(alive, moves)] { return *p.alive; };
    CHECK(alive == 1);
    UniqueFunction<int()> g = std::move(f);
    CHECK(alive == 1);
    CHECK(g() == 1);
    f = [p = Probe(alive, moves)] { return *p.alive; };
    CHECK(alive == 2);
    f = std::move(g);  // ends what f held
    CHECK(alive == 1);
    UniqueFunction<int()>& same = f;
    f = std::move(same);
    CHECK(f() == 1);
  }
  CHECK(alive == 0);

  moves = 0;
  std::array<char, 64> padding{};
  UniqueFunction<int()> heap = [p = Probe(alive, moves), padding] { return *p.alive + padding[0]; };
  const int moves_to_make = moves;
  UniqueFunction<int()> moved = std::move(heap);
  CHECK(moves == moves_to_make);  // the pointer moves, not the callable
  CHECK(moved() == 1);
  moved = nullptr;
  CHECK(alive == 0);
}

TEST_CASE("a UniqueFunction owns move-only state, keeps it between calls and forwards arguments") {
  UniqueFunction<int(std::unique_ptr<int>)> sum =
      [total = std::make_unique<int>(0)](std::unique_ptr<int> n) { return *total += *n; };
  CHECK(sum(std::make_unique<int>(2)) == 2);
  CHECK(sum(std::make_unique<int>(3)) == 5);
  int seen = 0;
  UniqueFunction<void(int&)> set = [](int& out) { return out = 9; };
  set(seen);
  CHECK(seen == 9);
}

}  // namespace
}  // namespace unique_function_test
