#include "opkit/engine/pool/inbox.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/watchdog.hpp"

namespace inbox_test { namespace {

using opkit::detail::Inbox;
using opkit::detail::InboxNode;

struct Item : InboxNode {
  int producer = 0;
  int number = 0;
  int taken = 0;  // not atomic: TSan sees two takers of one item
};

TEST_CASE("the first item put is the first taken, also after the inbox was empty") {
  Inbox inbox;
  CHECK(inbox.empty());
  CHECK(inbox.Take() == nullptr);
  std::vector<Item> items(3);
  for (int round = 0; round < 3; ++round) {
    inbox.Put(&items[0]);
    CHECK_FALSE(inbox.empty());
    CHECK(inbox.Take() == &items[0]);
    CHECK(inbox.empty());
    inbox.Put(&items[1]);
    inbox.Put(&items[2]);
    CHECK(inbox.Take() == &items[1]);
    inbox.Put(&items[0]);  // again, as soon as it was taken
    CHECK(inbox.Take() == &items[2]);
    CHECK(inbox.Take() == &items[0]);
    CHECK(inbox.Take() == nullptr);
  }
}

TEST_CASE("many threads put and take: each item comes out once, each producer's in order") {
  Watchdog watchdog;
  for (int takers : {1, 3}) {
    CAPTURE(takers);
    constexpr int kProducers = 3;
    constexpr int kItems = 5000;
    Inbox inbox;
    std::vector<Item> items(kProducers * kItems);
    std::atomic<int> left{kProducers * kItems};
    std::vector<std::thread> threads;
    for (int p = 0; p < kProducers; ++p) {
      threads.emplace_back([&, p] {
        for (int i = 0; i < kItems; ++i) {
          Item& item = items[static_cast<size_t>(p * kItems + i)];
          item.producer = p;
          item.number = i;
          inbox.Put(&item);
        }
      });
    }
    std::atomic<int> disordered{0};
    for (int t = 0; t < takers; ++t) {
      threads.emplace_back([&] {
        int last[kProducers] = {-1, -1, -1};
        while (left > 0) {
          auto* item = static_cast<Item*>(inbox.Take());
          if (item == nullptr) {
            std::this_thread::yield();
            continue;
          }
          ++item->taken;
          disordered += item->number <= last[item->producer];
          last[item->producer] = item->number;
          --left;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(left == 0);
    CHECK(disordered == 0);
    CHECK(inbox.empty());
    int wrong = 0;
    for (const Item& item : items) wrong += item.taken != 1;
    CHECK(wrong == 0);
  }
}

}  // namespace
}  // namespace inbox_test
