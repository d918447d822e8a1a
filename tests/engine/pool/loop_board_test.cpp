#include "opkit/engine/pool/loop_board.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace loop_board_test { namespace {

using opkit::detail::LoopBoard;
using opkit::detail::ParallelLoop;
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

TEST_CASE("chunks are multiples of the grain from the first index, the last one shorter") {
  Ranges ranges;
  auto body = [&](int64_t begin, int64_t end) { ranges.emplace_back(begin, end); };
  LoopBoard board;
  ParallelLoop loop(10, 17, 3, 3, body);
  loop.RunChunks(board.mutex());
  CHECK(ranges == Ranges{{10, 13}, {13, 16}, {16, 17}});
}

TEST_CASE("a loop takes as many helpers as it asked for, the newest loop first") {
  auto nothing = [](int64_t, int64_t) {};
  LoopBoard board;
  int wake = 0;
  CHECK(board.empty());
  CHECK(board.Join(&wake) == nullptr);
  ParallelLoop outer(0, 100, 1, 100, nothing);
  ParallelLoop inner(0, 100, 1, 100, nothing);
  CHECK(board.Post(outer, 1) == 1);
  CHECK(board.Post(inner, 2) == 2);
  CHECK(board.Join(&wake) == &inner);
  CHECK(board.Join(&wake) == &inner);
  CHECK(board.Join(&wake) == &outer);
  CHECK(board.Join(&wake) == nullptr);
  CHECK(board.empty());
  board.Work(inner);
  board.Work(inner);
  board.Work(outer);
  board.Finish(inner, 0);
  board.Finish(outer, 0);
}

TEST_CASE(
    "wake-ups spread as a tree: two by the caller, two by each that joins, no more than asked") {
  auto nothing = [](int64_t, int64_t) {};
  LoopBoard board;
  ParallelLoop loop(0, 100, 1, 100, nothing);
  std::vector<int> wakes{board.Post(loop, 5)};
  for (int i = 0; i < 5; ++i) {
    int wake = -1;
    REQUIRE(board.Join(&wake) == &loop);
    wakes.push_back(wake);
  }
  CHECK(wakes == std::vector<int>{2, 2, 1, 0, 0, 0});
  for (int i = 0; i < 5; ++i) board.Work(loop);
  board.Finish(loop, 0);
}

TEST_CASE("an exhausted loop leaves the board with its first helper; its caller rethrows") {
  int chunks = 0;
  auto body = [&](int64_t begin, int64_t) {
    ++chunks;
    if (begin == 1) throw std::runtime_error("chunk " + std::to_string(begin));
  };
  LoopBoard board;
  ParallelLoop loop(0, 100, 1, 100, body);
  int wake = 0;
  board.Post(loop, 3);
  REQUIRE(board.Join(&wake) == &loop);
  board.Work(loop);
  CHECK(board.empty());
  CHECK(chunks == 2);
  CHECK_THROWS_WITH_AS(board.Finish(loop, 0), "chunk 1", std::runtime_error);
}

TEST_CASE("of several exceptions the earliest is kept") {
  LoopBoard board;
  auto body = [&](int64_t begin, int64_t) {
    int wake = 0;
    if (begin == 0) board.Work(*board.Join(&wake));  // chunk 1 throws before chunk 0 does
    throw std::runtime_error("chunk " + std::to_string(begin));
  };
  ParallelLoop loop(0, 10, 1, 10, body);
  board.Post(loop, 1);
  loop.RunChunks(board.mutex());
  CHECK_THROWS_WITH_AS(board.Finish(loop, 0), "chunk 1", std::runtime_error);
}

TEST_CASE("a helper works under the invocation of the loop's caller") {
  opkit::Invocation inside;
  auto body = [&](int64_t, int64_t) { inside = opkit::CurrentInvocation(); };
  LoopBoard board;
  opkit::Invocation token;
  auto make = [&] {
    opkit::InvocationScope scope(opkit::Invocation::Kind::kOperator);
    token = opkit::CurrentInvocation();
    return ParallelLoop(0, 2, 1, 2, body);
  };
  ParallelLoop loop = make();
  int wake = 0;
  board.Post(loop, 1);
  board.Work(*board.Join(&wake));
  board.Finish(loop, 0);
  CHECK(inside == token);
  CHECK(token.id != 0);
  CHECK(opkit::CurrentInvocation() == opkit::Invocation{});
}

}  // namespace
}  // namespace loop_board_test
