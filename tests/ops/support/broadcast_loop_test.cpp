// BroadcastLoop visits every element of the output once, with the right element of each input.
#include "opkit/ops/support/broadcast_loop.hpp"

#include <doctest/doctest.h>

#include "opkit/op/random.hpp"
#include "support/error_of.hpp"

namespace broadcast_loop_test {
using namespace opkit;

namespace {

struct Visit {
  int64_t at, n, from;
};
std::vector<Visit> Visits(const BroadcastLoop& loop, int64_t begin, int64_t end) {
  std::vector<Visit> visits;
  loop.Walk(begin, end, [&](int64_t at, int64_t n, const int64_t* from) {
    visits.push_back({at, n, from[0]});
  });
  return visits;
}

TEST_CASE("axes that lie side by side in every input become one row") {
  const Shape out{2, 3, 4, 5};
  CHECK(BroadcastLoop(out, {&out}).width() == 120);
  const Shape scalar, last{5}, middle{3, 1, 1}, first{2, 1, 1, 1}, ends{2, 1, 1, 5};
  CHECK(BroadcastLoop(out, {&scalar}).width() == 120);
  CHECK(BroadcastLoop(out, {&last}).width() == 5);
  CHECK(BroadcastLoop(out, {&middle}).width() == 20);
  CHECK(BroadcastLoop(out, {&first}).width() == 60);
  CHECK(BroadcastLoop(out, {&ends}).width() == 5);
  CHECK(BroadcastLoop(out, {&out, &middle, &last}).width() == 5);
  CHECK(BroadcastLoop(out, {&out, &middle}).step(0) == 1);
  CHECK(BroadcastLoop(out, {&out, &middle}).step(1) == 0);
}

TEST_CASE("extents of 1 make no rows of their own") {
  const Shape out{3, 1, 4, 1}, in{3, 1, 4, 1}, column{3, 1, 1, 1};
  CHECK(BroadcastLoop(out, {&in}).width() == 12);
  CHECK(BroadcastLoop(out, {&column}).width() == 4);
}

TEST_CASE("a walk may begin and end within rows") {
  const Shape out{2, 2, 3}, in{2, 1, 3};
  const auto visits = Visits(BroadcastLoop(out, {&in}), 1, 8);
  REQUIRE(visits.size() == 3);
  CHECK(visits[0].at == 1);
  CHECK(visits[0].n == 2);
  CHECK(visits[0].from == 1);
  CHECK(visits[1].at == 3);
  CHECK(visits[1].n == 3);
  CHECK(visits[1].from == 0);
  CHECK(visits[2].at == 6);
  CHECK(visits[2].n == 2);
  CHECK(visits[2].from == 3);
  CHECK(Visits(BroadcastLoop(out, {&in}), 5, 5).empty());
}

TEST_CASE("an empty output is not visited, a scalar is visited once") {
  const Shape empty{2, 0, 3}, one{1, 3}, scalar;
  const BroadcastLoop nothing(empty, {&one});
  CHECK(nothing.size() == 0);
  nothing.Run(16, [](int64_t, int64_t, const int64_t*) { FAIL("nothing to visit"); });
  const auto visits = Visits(BroadcastLoop(scalar, {&scalar}), 0, 1);
  REQUIRE(visits.size() == 1);
  CHECK(visits[0].n == 1);
}

TEST_CASE("an input that cannot be broadcast is an error of both shapes") {
  const Shape out{2, 3}, in{2};
  const Error error = ErrorOf([&] { BroadcastLoop(out, {&in}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() == "shape [2] cannot be broadcast to [2, 3]");
}

// The element of a dense tensor of shape `from` that stands at element `i` of shape `to`.
int64_t SourceOf(const Shape& from, const Shape& to, int64_t i) {
  int64_t source = 0, step = 1;
  for (int back = 1; back <= to.rank(); ++back) {
    const int64_t index = i % to.dim(-back);
    i /= to.dim(-back);
    if (back > from.rank()) continue;
    if (from.dim(-back) != 1) source += index * step;
    step *= from.dim(-back);
  }
  return source;
}

TEST_CASE("random shapes, in pieces on several threads, against arithmetic on indices") {
  const uint64_t seed = 20240521;
  CAPTURE(seed);
  RandomGenerator random(seed);
  auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  ThreadPool pool(3);
  const PoolScope scope(pool);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<int64_t> out;
    std::vector<int64_t> in[3];
    const int64_t rank = below(9);
    for (int64_t axis = 0; axis < rank; ++axis) {
      out.push_back(1 + below(4));
      for (auto& one : in)
        if (!one.empty() || below(3)) one.push_back(below(2) ? out.back() : 1);
    }
    const Shape to(out), a(in[0]), b(in[1]), c(in[2]);
    CAPTURE(to);
    CAPTURE(a);
    CAPTURE(b);
    CAPTURE(c);
    const BroadcastLoop loop(to, {&a, &b, &c});
    std::vector<int> visits(static_cast<size_t>(to.numel()), 0);
    std::vector<int> wrong(static_cast<size_t>(to.numel()), 0);
    loop.Run(1 + below(40), [&](int64_t at, int64_t n, const int64_t* from) {
      const Shape* shapes[] = {&a, &b, &c};
      for (int64_t i = 0; i < n; ++i) {
        ++visits[static_cast<size_t>(at + i)];
        for (int k = 0; k < 3; ++k)
          wrong[static_cast<size_t>(at + i)] +=
              from[k] + i * loop.step(k) != SourceOf(*shapes[k], to, at + i);
      }
    });
    CHECK(visits == std::vector<int>(visits.size(), 1));
    CHECK(wrong == std::vector<int>(wrong.size(), 0));
  }
}

}  // namespace
}  // namespace broadcast_loop_test
