#include "opkit/engine/pool/work_deque.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace work_deque_test { namespace {

using opkit::detail::WorkDeque;

TEST_CASE("the owner gets the newest item, thieves the oldest") {
  WorkDeque<int, 8> deque;
  std::array<int, 3> items{};
  CHECK(deque.empty());
  CHECK(deque.Pop() == nullptr);
  CHECK(deque.Steal() == nullptr);
  for (int& item : items) REQUIRE(deque.Push(&item));
  CHECK_FALSE(deque.empty());
  CHECK(deque.Pop() == &items[2]);
  CHECK(deque.Steal() == &items[0]);
  CHECK(deque.Pop() == &items[1]);
  CHECK(deque.Pop() == nullptr);
  CHECK(deque.empty());
}

TEST_CASE("a full deque refuses an item, and takes one again after each removal, around the ring") {
  WorkDeque<int, 4> deque;
  std::array<int, 5> items{};
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < 4; ++i) REQUIRE(deque.Push(&items[i]));
    CHECK_FALSE(deque.Push(&items[4]));
    CHECK(deque.Steal() == &items[0]);
    CHECK(deque.Push(&items[4]));
    for (size_t i : {4, 3, 2, 1}) CHECK(deque.Pop() == &items[i]);
    CHECK(deque.Pop() == nullptr);
  }
}

TEST_CASE("owner and thieves together take every item exactly once, and see its contents") {
  constexpr int kItems = 100'000;
  constexpr int kThieves = 3;
  auto deque = std::make_unique<WorkDeque<int, 16>>();
  std::vector<int> items(kItems, 0);
  std::vector<std::atomic<int>> taken(kItems);
  std::atomic<bool> done{false};
  auto take = [&](const int* item) { ++taken[static_cast<size_t>(*item)]; };
  std::vector<std::thread> thieves;
  for (int t = 0; t < kThieves; ++t) {
    thieves.emplace_back([&] {
      while (!done || !deque->empty())
        if (const int* item = deque->Steal())
          take(item);
        else
          std::this_thread::yield();
    });
  }
  for (int i = 0; i < kItems; ++i) {
    items[static_cast<size_t>(i)] = i;  // not atomic: Push publishes it
    bool pushed = deque->Push(&items[static_cast<size_t>(i)]);
    if (!pushed || i % 3 == 0) {
      if (const int* item = deque->Pop()) take(item);
    }
    while (!pushed) pushed = deque->Push(&items[static_cast<size_t>(i)]);
  }
  while (const int* item = deque->Pop()) take(item);
  done = true;
  for (std::thread& thief : thieves) thief.join();
  int wrong = 0;
  for (const std::atomic<int>& count : taken) wrong += count != 1;
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace work_deque_test
