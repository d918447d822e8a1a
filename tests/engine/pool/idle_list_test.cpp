#include "opkit/engine/pool/idle_list.hpp"

#include <doctest/doctest.h>

namespace idle_list_test {
namespace {

using opkit::detail::IdleList;
using opkit::detail::IdleThread;

TEST_CASE("the latest sleeper is woken first and counts as searching from then on") {
  IdleList list;
  IdleThread first, second;
  list.Enlist(first);
  list.Enlist(second);
  CHECK(list.sleeping() == 2);
  CHECK(list.WakeOne(/*unless_searching=*/true));
  CHECK(list.sleeping() == 1);
  CHECK(list.searching() == 1);
  CHECK(second.parker.Wait(0));
  CHECK_FALSE(first.parker.Wait(0));
  CHECK_FALSE(list.Delist(second));  // woken
  CHECK(list.Delist(first));         // left by itself
  CHECK(list.sleeping() == 0);
  CHECK(list.searching() == 1);
}

TEST_CASE("while somebody searches, submitters wake nobody, loops and WakeAll do") {
  IdleList list;
  IdleThread a, b, c;
  list.Enlist(a);
  list.Enlist(b);
  list.Enlist(c);
  list.StartSearching();
  CHECK_FALSE(list.WakeOne(/*unless_searching=*/true));
  CHECK(list.sleeping() == 3);
  CHECK(list.WakeOne(/*unless_searching=*/false));
  CHECK(list.sleeping() == 2);
  list.WakeAll();
  CHECK(list.sleeping() == 0);
  CHECK(list.searching() == 4);
  CHECK_FALSE(list.WakeOne(/*unless_searching=*/false));
}

TEST_CASE("StopSearching tells the last searcher") {
  IdleList list;
  list.StartSearching();
  list.StartSearching();
  CHECK_FALSE(list.StopSearching());
  CHECK(list.StopSearching());
}

TEST_CASE("a sleeper can leave from anywhere in the list") {
  for (int leaving = 0; leaving < 3; ++leaving) {
    IdleList list;
    IdleThread threads[3];
    for (IdleThread& thread : threads) list.Enlist(thread);
    CHECK(list.Delist(threads[leaving]));
    list.WakeAll();
    for (int i = 0; i < 3; ++i) CHECK(threads[i].parker.Wait(0) == (i != leaving));
  }
}

}  // namespace
}  // namespace idle_list_test
