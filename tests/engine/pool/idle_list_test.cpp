#include "opkit/engine/pool/idle_list.hpp"

#include <doctest/doctest.h>

#include <sched.h>

#include <thread>

namespace idle_list_test { namespace {

using namespace opkit::detail;

TEST_CASE("the latest sleeper is woken first and counts as searching from then on") {
  IdleList list;
  IdleThread first, second;
  list.Enlist(first);
  list.Enlist(second);
  CHECK(list.sleeping() == 2);
  CHECK(list.WakeForTask());
  CHECK(list.sleeping() == 1);
  CHECK(list.searching() == 1);
  CHECK(second.parker.Wait(0));
  CHECK_FALSE(first.parker.Wait(0));
  CHECK_FALSE(list.Delist(second));  // woken
  CHECK(list.Delist(first));         // left by itself
  CHECK(list.sleeping() == 0);
  CHECK(list.searching() == 1);
}

TEST_CASE("while a thread searches, submitters wake none, but loops and WakeAll do") {
  IdleList list;
  IdleThread a, b, c;
  list.Enlist(a);
  list.Enlist(b);
  list.Enlist(c);
  list.StartSearching();
  CHECK_FALSE(list.WakeForTask());
  CHECK(list.sleeping() == 3);
  CHECK(list.WakeForLoop(/*elsewhere=*/false));
  CHECK(list.sleeping() == 2);
  list.WakeAll();
  CHECK(list.sleeping() == 0);
  CHECK(list.searching() == 4);
  CHECK_FALSE(list.WakeForLoop(/*elsewhere=*/false));
}

TEST_CASE("a thread woken for a loop knows it, and avoids its waker's CPU until it has woken") {
  const auto may_run_on = [](int cpu) {
    cpu_set_t allowed;
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    return CPU_ISSET(static_cast<size_t>(cpu), &allowed) != 0;
  };
  const bool has_others = AvailableCpus() > 1;
  IdleList list;
  int waker_cpu = -1;
  const auto wake = [&](auto how) {
    std::thread([&] {
      PinCurrentThread(0);
      waker_cpu = CurrentCpu();
      CHECK(how());
      list.StopSearching();
    }).join();
  };
  {
    IdleThread self;
    list.Enlist(self);
    wake([&] { return list.WakeForLoop(/*elsewhere=*/true); });
    CHECK(self.for_loop);
    CHECK(may_run_on(waker_cpu) == !has_others);
  }
  CHECK(may_run_on(waker_cpu));
  {
    IdleThread self;
    list.Enlist(self);
    wake([&] { return list.WakeForLoop(/*elsewhere=*/false); });
    CHECK(self.for_loop);
    CHECK(may_run_on(waker_cpu));
  }
  {
    IdleThread self;
    list.Enlist(self);
    wake([&] { return list.WakeForTask(); });
    CHECK_FALSE(self.for_loop);
    CHECK(may_run_on(waker_cpu));
  }
}

TEST_CASE("StopSearching returns true to the last searcher") {
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
