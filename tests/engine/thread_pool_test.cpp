#include "opkit/engine/thread_pool.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "child_process.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/engine/task_group.hpp"
#include "support/emulator.hpp"
#include "support/watchdog.hpp"

namespace {

using opkit::ParallelFor;
using opkit::PoolScope;
using opkit::ThreadPool;
using opkit::detail::Latch;

// Used by the destructor of a static object, when the program ends.
struct UsesPoolAtExit {
  ~UsesPoolAtExit() {
    if (std::getenv("OPKIT_TEST_EXPECT_THREADS") != nullptr) return;
    Watchdog watchdog;
    std::atomic<int> count{0};
    ParallelFor(
        1000, [&](int64_t) { ++count; }, 1);
    opkit::TaskGroup group;
    for (int i = 0; i < 100; ++i) group.Run([&] { ++count; });
    group.Wait();
    if (count == 1100) return;
    std::fprintf(stderr, "the pool did not work in a static object's destructor\n");
    _exit(1);
  }
} uses_pool_at_exit;

// A loop of `count` parts that ends only where the current pool has a thread for each of them.
void TakesThreads(int count) {
  std::atomic<int> arrived{0};
  ParallelFor(
      count,
      [&](int64_t) {
        ++arrived;
        while (arrived < count) std::this_thread::yield();
      },
      1);
}

TEST_CASE("submitted tasks run, without a waiter too") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    std::atomic<int> count{0};
    for (int i = 0; i < 1000; ++i) pool.Submit([&] { ++count; });
    while (count != 1000) std::this_thread::yield();
    CHECK(count == 1000);
  }
}

TEST_CASE("tasks may be submitted from many threads and from inside tasks") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    Latch latch(4 * 200 * 11);
    std::atomic<int> count{0};
    std::vector<std::thread> submitters;
    for (int t = 0; t < 4; ++t) {
      submitters.emplace_back([&] {
        for (int i = 0; i < 200; ++i) {
          pool.Submit([&] {
            for (int j = 0; j < 10; ++j) {
              pool.Submit([&] {
                ++count;
                latch.CountDown();
              });
            }
            latch.CountDown();
          });
        }
      });
    }
    CHECK(pool.Wait(latch));
    CHECK(count == 8000);
    for (std::thread& submitter : submitters) submitter.join();
  }
}

TEST_CASE("one task may submit more than its worker's queue holds") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    Latch latch(20'000);
    pool.Submit([&] {
      for (int i = 0; i < 20'000; ++i) pool.Submit([&] { latch.CountDown(); });
    });
    CHECK(pool.Wait(latch));
  }
}

TEST_CASE("a tree of tasks, wider than the queues, runs every task once") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    constexpr int kTasks = (1 << 15) - 1;
    std::vector<std::atomic<int>> ran(kTasks);
    Latch latch(kTasks);
    struct Node {
      ThreadPool& pool;
      std::vector<std::atomic<int>>& ran;
      Latch& latch;
      size_t index;
      void operator()() {
        ++ran[index];
        for (size_t child : {2 * index + 1, 2 * index + 2})
          if (child < ran.size()) pool.Submit(Node{pool, ran, latch, child});
        latch.CountDown();
      }
    };
    pool.Submit(Node{pool, ran, latch, 0});
    CHECK(pool.Wait(latch));
    int wrong = 0;
    for (const std::atomic<int>& count : ran) wrong += count != 1;
    CHECK(wrong == 0);
  }
}

TEST_CASE("a worker whose tasks submit tasks for ever still serves the others") {
  Watchdog watchdog;
  for (int threads : {1, 2}) {
    for (bool from_inside : {false, true}) {
      std::atomic<bool> stop{false};
      std::atomic<bool> served{false};
      std::atomic<bool> running{false};
      ThreadPool pool(threads);
      struct Chain {
        ThreadPool& pool;
        std::atomic<bool>& stop;
        std::atomic<bool>& running;
        void operator()() {
          running = true;
          if (!stop) pool.Submit(Chain{pool, stop, running});
        }
      };
      const Chain chain{pool, stop, running};
      auto other = [&] { served = true; };
      if (from_inside) {  // the other lies under the chain in the worker's own queue
        pool.Submit([&] {
          pool.Submit(other);
          pool.Submit(chain);
        });
      } else {  // the other is in the shared queue, the worker's own one is never empty
        pool.Submit(chain);
        while (!running) std::this_thread::yield();
        pool.Submit(other);
      }
      while (!served) std::this_thread::yield();
      stop = true;
      CHECK(served);
    }
  }
}

TEST_CASE("a chain of waits in tasks makes progress on any number of threads") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    struct Nest {
      ThreadPool& pool;
      int depth;
      void operator()() {
        if (depth == 0) return;
        Latch inner(2);
        for (int i = 0; i < 2; ++i) {
          pool.Submit([this, &inner] {
            Nest{pool, depth - 1}();
            inner.CountDown();
          });
        }
        pool.Wait(inner);
      }
    };
    Latch latch(1);
    pool.Submit([&] {
      Nest{pool, 8}();
      latch.CountDown();
    });
    CHECK(pool.Wait(latch));
  }
}

TEST_CASE("tasks of a pool of one never overlap, and their waiter runs none of them") {
  Watchdog watchdog;
  ThreadPool pool(1);
  const std::thread::id self = std::this_thread::get_id();
  int inside = 0;  // not atomic: TSan sees an overlap
  bool here = false;
  bool overlap = false;
  Latch latch(1000);
  for (int i = 0; i < 1000; ++i) {
    pool.Submit([&] {
      overlap |= ++inside != 1;
      here |= std::this_thread::get_id() == self;
      --inside;
      latch.CountDown();
    });
  }
  pool.Wait(latch);
  CHECK_FALSE(overlap);
  CHECK_FALSE(here);
}

TEST_CASE("the waiting thread takes part: n tasks that wait for each other need it") {
  Watchdog watchdog;
  for (int threads : {2, 8}) {
    std::atomic<int> arrived{0};
    Latch latch(threads);
    ThreadPool pool(threads);
    for (int i = 0; i < threads; ++i) {
      pool.Submit([&, threads] {
        ++arrived;
        while (arrived < threads) std::this_thread::yield();
        latch.CountDown();
      });
    }
    CHECK(pool.Wait(latch));
  }
}

TEST_CASE("a pool of n threads runs its tasks on n - 1 workers, named after the pool") {
  Watchdog watchdog;
  std::atomic<int> arrived{0};
  std::set<std::thread::id> ids;
  std::string name;
  opkit::detail::Mutex mutex;
  ThreadPool pool(3, "a-pool-with-a-long-name");
  ThreadPool named(2, "pool");
  for (int i = 0; i < 2; ++i) {
    pool.Submit([&] {
      {
        opkit::detail::MutexLock lock(mutex);
        ids.insert(std::this_thread::get_id());
      }
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
  }
  while (arrived < 2) std::this_thread::yield();
  Latch latch(1);
  named.Submit([&] {
    char buffer[32];
    pthread_getname_np(pthread_self(), buffer, sizeof buffer);
    name = buffer;
    latch.CountDown();
  });
  named.Wait(latch, 100'000'000'000);  // with a timeout this thread does not take the task itself
  CHECK(ids.size() == 2);
  CHECK(name == "pool-0");
}

TEST_CASE("RunOneTask runs one task, here") {
  Watchdog watchdog;
  std::atomic<bool> busy{false};
  std::atomic<bool> release{false};
  ThreadPool pool(2);
  CHECK_FALSE(pool.RunOneTask());
  pool.Submit([&] {  // keeps the only worker
    busy = true;
    while (!release) std::this_thread::yield();
  });
  while (!busy) std::this_thread::yield();
  std::vector<int> order;
  ThreadPool* current = nullptr;
  for (int i = 0; i < 3; ++i) {
    pool.Submit([&, i] {
      order.push_back(i);
      current = &ThreadPool::Current();
    });
  }
  CHECK(pool.RunOneTask());
  CHECK(order == std::vector<int>{0});
  CHECK(current == &pool);
  CHECK(&ThreadPool::Current() == &ThreadPool::Global());
  CHECK(pool.RunOneTask());
  CHECK(pool.RunOneTask());
  CHECK_FALSE(pool.RunOneTask());
  CHECK(order == std::vector<int>{0, 1, 2});
  release = true;
}

TEST_CASE("a wait with a timeout ends when it has passed") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    Latch never(1);
    CHECK_FALSE(pool.Wait(never, 0));
    CHECK_FALSE(pool.Wait(never, 100'000));
    bool timed_out_inside = false;
    Latch latch(1);
    pool.Submit([&] {
      timed_out_inside = !pool.Wait(never, 100'000);
      latch.CountDown();
    });
    CHECK(pool.Wait(latch, 100'000'000'000));
    CHECK(timed_out_inside);
    CHECK(pool.Wait(latch, 0));  // already done
  }
}

TEST_CASE("a task runs under the invocation that pushed it, also through several tasks") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    opkit::Invocation outer, inner, seen_outer, seen_inner;
    Latch latch(2);
    {
      opkit::InvocationScope scope(opkit::Invocation::Kind::kOperator);
      outer = opkit::CurrentInvocation();
      pool.Submit([&] {
        seen_outer = opkit::CurrentInvocation();
        opkit::InvocationScope sub(opkit::Invocation::Kind::kOperator);
        inner = opkit::CurrentInvocation();
        pool.Submit([&] {
          seen_inner = opkit::CurrentInvocation();
          latch.CountDown();
        });
        latch.CountDown();
      });
    }
    pool.Wait(latch);
    CHECK(seen_outer == outer);
    CHECK(seen_inner == inner);
    CHECK(inner.parent == outer.id);
    CHECK(opkit::CurrentInvocation() == opkit::Invocation{});
    opkit::Invocation after{1, 2, opkit::Invocation::Kind::kCopy};
    Latch second(1);
    pool.Submit([&] {
      after = opkit::CurrentInvocation();
      second.CountDown();
    });
    pool.Wait(second);
    CHECK(after == opkit::Invocation{});
  }
}

TEST_CASE(
    "an intrusive task is its owner's record: scheduled where it lies, and free again once run") {
  Watchdog watchdog;
  struct Counted : opkit::detail::PoolTask {
    Counted()
        : PoolTask([](opkit::detail::PoolTask* self) noexcept {
            static_cast<Counted*>(self)->latch->CountDown();
          }) {}
    Latch* latch = nullptr;
  };
  ThreadPool pool(2);
  Latch latch(100);
  std::vector<Counted> tasks(100);
  for (Counted& task : tasks) {
    task.latch = &latch;
    pool.Schedule(&task);
  }
  CHECK(pool.Wait(latch));
}

TEST_CASE("the destructor runs the queued tasks, and tasks that they submit") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    for (int round = 0; round < 50; ++round) {
      CAPTURE(threads);
      std::atomic<int> count{0};
      {
        ThreadPool pool(threads);
        for (int i = 0; i < 50; ++i) {
          pool.Submit([&] {
            ++count;
            pool.Submit([&] {
              ++count;
              pool.Submit([&] { ++count; });
            });
          });
        }
      }
      CHECK(count == 150);
    }
  }
}

TEST_CASE("pools are destroyed unused, idle and just after use") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    for (int round = 0; round < 100; ++round) {
      ThreadPool unused(threads);
      ThreadPool used(threads);
      Latch latch(1);
      used.Submit([&] { latch.CountDown(); });
      used.Wait(latch);
    }
  }
}

TEST_CASE("a pool can be resized at any time, also while tasks and loops run") {
  Watchdog watchdog;
  ThreadPool pool(2);
  Latch latch(2000);
  std::atomic<int> count{0};
  for (int i = 0; i < 2000; ++i) {
    pool.Submit([&] {
      ParallelFor(
          4, [&](int64_t) { ++count; }, 1);
      latch.CountDown();
    });
    if (i % 20 == 0) pool.Resize(1 + i / 20 % 8);
  }
  CHECK(pool.Wait(latch));
  CHECK(count == 8000);
  pool.Resize(4);
  CHECK(pool.threads() == 4);
  PoolScope scope(pool);
  TakesThreads(4);
  pool.Resize(1);
  std::set<std::thread::id> ids;
  ParallelFor(
      100, [&](int64_t) { ids.insert(std::this_thread::get_id()); }, 1);
  CHECK(ids == std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST_CASE("a task may resize its own pool, and surplus workers leave their queues to others") {
  Watchdog watchdog;
  for (int round = 0; round < 100; ++round) {
    ThreadPool pool(8);
    Latch latch(8 * 101);
    for (int i = 0; i < 8; ++i) {
      pool.Submit([&] {
        for (int j = 0; j < 100; ++j) pool.Submit([&] { latch.CountDown(); });
        pool.Resize(1);
        latch.CountDown();
      });
    }
    CHECK(pool.Wait(latch));
  }
}

TEST_CASE("sizes out of range are errors that name the pool, and change nothing") {
  const char* const text =
      "expected a number of threads from 1 to 1024 for the pool \"p\", found 0";
  CHECK_THROWS_WITH_AS(ThreadPool(0, "p"), text, opkit::Error);
  ThreadPool pool(2, "p");
  CHECK_THROWS_WITH_AS(pool.Resize(0), text, opkit::Error);
  CHECK_THROWS_AS(pool.Resize(1025), opkit::Error);
  CHECK(pool.threads() == 2);
}

TEST_CASE("if no thread can be started, Submit throws; loops run on the caller") {
  CHECK(ExitStatusOfChild([] {
          ThreadPool pool(4, "p");
          const rlimit none{1, 1};
          setrlimit(RLIMIT_NPROC, &none);
          RefuseThreads();
          PoolScope scope(pool);
          int64_t sum = 0;
          ParallelFor(
              100, [&](int64_t i) { sum += i; }, 1);
          if (sum != 4950) return 3;
          try {
            pool.Submit([] {});
            return 4;
          } catch (const opkit::Error& error) {
            return error.message() ==
                           "expected to start a thread of the pool \"p\", but the system refused "
                           "it; raise the limit on processes (ulimit -u) or on memory"
                       ? 0
                       : 5;
          }
        }) == 0);
}

TEST_CASE("the process has one default pool and one setting of its size, before and after use") {
  Watchdog watchdog;
  CHECK(&ThreadPool::Global() == &ThreadPool::Global());
  CHECK(&ThreadPool::Current() == &ThreadPool::Global());
  const int before = opkit::NumThreads();
  opkit::SetNumThreads(3);
  CHECK(opkit::NumThreads() == 3);
  TakesThreads(3);
  opkit::SetNumThreads(before);
  CHECK(opkit::NumThreads() == before);
}

// The tests below run this program with another environment for this case.
TEST_CASE("child: says how the default pool was made") {
  const char* expected = std::getenv("OPKIT_TEST_EXPECT_THREADS");
  if (expected == nullptr) return;
  try {
    const int threads = opkit::NumThreads();
    CHECK(std::to_string(threads) == expected);
  } catch (const opkit::Error& error) {
    CHECK(error.message() == expected);
  }
}

bool DefaultPoolIs(const std::string& setting, const std::string& expected) {
  const std::string command = "OPKIT_NUM_THREADS='" + setting + "' OPKIT_TEST_EXPECT_THREADS='" +
                              expected + "' " + CommandOfThisProgram() +
                              " --test-case='child: *' > /dev/null";
  return std::system(command.c_str()) == 0;
}

TEST_CASE("OPKIT_NUM_THREADS sizes the default pool") {
  CHECK(DefaultPoolIs("3", "3"));
  CHECK_FALSE(DefaultPoolIs("3", "4"));
  CHECK(DefaultPoolIs("", std::to_string(opkit::detail::AvailableCpus())));
}

TEST_CASE("an OPKIT_NUM_THREADS that is no number of threads is an error") {
  for (const char* wrong : {"0", "-1", "many", "2x", "1025"}) {
    CHECK(DefaultPoolIs(wrong,
                        "expected the environment variable OPKIT_NUM_THREADS to be a number from 1 "
                        "to 1024, found \"" +
                            std::string(wrong) + "\"; correct it or unset it"));
  }
}

TEST_CASE("a forked child can use pools that the parent has used, and leaves the parent's alone") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    CAPTURE(threads);
    ThreadPool pool(threads);
    PoolScope scope(pool);
    auto use = [&] {
      std::atomic<int> count{0};
      ParallelFor(
          1000, [&](int64_t) { ++count; }, 1);
      opkit::TaskGroup group;
      for (int i = 0; i < 100; ++i) group.Run([&] { ++count; });
      group.Wait();
      TakesThreads(pool.threads());
      return count == 1100 ? 0 : 1;
    };
    CHECK(use() == 0);
    CHECK(ExitStatusOfChild(use) == 0);
    CHECK(ExitStatusOfChild([&] { return ExitStatusOfChild(use); }) == 0);
    CHECK(use() == 0);
  }
}

TEST_CASE("a child forked while workers are busy starts with an empty pool") {
  Watchdog watchdog;
  ThreadPool pool(2);
  std::atomic<bool> release{false};
  std::atomic<int> ran{0};
  Latch latch(50);
  for (int i = 0; i < 50; ++i) {
    pool.Submit([&] {
      while (!release) std::this_thread::yield();
      ++ran;
      latch.CountDown();
    });
  }
  CHECK(ExitStatusOfChild([&] {
          Latch own(1);
          pool.Submit([&] { own.CountDown(); });
          pool.Wait(own);
          if (pool.RunOneTask() || ran != 0) return 1;
          pool.Resize(4);
          return 0;
        }) == 0);
  release = true;
  pool.Wait(latch);
  CHECK(ran == 50);
}

TEST_CASE("a child can fork amid the pool's own work and end") {
  Watchdog watchdog;
  ThreadPool pool(4);
  std::atomic<int> failures{0};
  Latch latch(16);
  for (int i = 0; i < 16; ++i) {
    pool.Submit([&] {
      failures += ExitStatusOfChild([&] {
                    PoolScope scope(pool);
                    std::atomic<int> count{0};
                    ParallelFor(
                        100, [&](int64_t) { ++count; }, 1);
                    return count == 100 ? 0 : 1;
                  }) != 0;
      latch.CountDown();
    });
  }
  pool.Wait(latch);
  CHECK(failures == 0);
}

TEST_CASE("workers can be pinned") {
  Watchdog watchdog;
  ThreadPool pool(3, "pinned", opkit::ThreadPool::Placement::kPinned);
  int cpus = 0;
  Latch latch(1);
  pool.Submit([&] {
    cpu_set_t set;
    pthread_getaffinity_np(pthread_self(), sizeof set, &set);
    cpus = CPU_COUNT(&set);
    latch.CountDown();
  });
  pool.Wait(latch, 100'000'000'000);
  CHECK(cpus == 1);
}

// By the system's own account of the threads: all of the pool's workers come to sleep, and stay so.
TEST_CASE("the workers of an idle pool sleep in the kernel") {
  Watchdog watchdog;
  for (int threads : {2, 8}) {
    ThreadPool pool(threads);
    PoolScope scope(pool);
    std::vector<pid_t> ids(static_cast<size_t>(threads));
    std::atomic<int> arrived{0};
    ParallelFor(
        threads,
        [&](int64_t i) {
          ids[static_cast<size_t>(i)] = static_cast<pid_t>(syscall(SYS_gettid));
          ++arrived;
          while (arrived < threads) std::this_thread::yield();
        },
        1);
    for (pid_t id : ids) {
      if (id == getpid()) continue;
      const std::string path = "/proc/self/task/" + std::to_string(id) + "/stat";
      char state = 0;
      while (state != 'S') {  // a worker that never sleeps keeps the test here
        std::this_thread::yield();
        char line[512] = {};
        std::FILE* file = std::fopen(path.c_str(), "r");
        REQUIRE(file != nullptr);
        REQUIRE(std::fgets(line, sizeof line, file) != nullptr);
        std::fclose(file);
        state = *(std::strrchr(line, ')') + 2);
      }
      CHECK(state == 'S');
    }
  }
}

// With a pool of 8 on fewer CPUs no worker spins before it sleeps: every round parks and wakes.
TEST_CASE("10,000 rounds of submit and wait lose no wake-up") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    int count = 0;
    for (int round = 0; round < 10'000; ++round) {
      Latch latch(1);
      pool.Submit([&] {
        ++count;
        latch.CountDown();
      });
      // Every other round the worker has to do it.
      pool.Wait(latch, round % 2 == 0 ? -1 : 100'000'000'000);
    }
    CHECK(count == 10'000);
  }
}

// The waiter is woken for a task and finds its latch done: it must pass the task on, and must not
// be counted as a thread that still looks for work.
TEST_CASE("a waiter that leaves just when it is woken for a task loses no wake-up") {
  Watchdog watchdog;
  for (int threads : {2, 8}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 600 / threads; ++round) {
      Latch latch(1);
      Latch tasks(threads);
      std::atomic<int> busy{0};
      std::atomic<bool> release{false};
      for (int i = 1; i < threads; ++i) {  // one for each worker
        pool.Submit([&] {
          ++busy;
          while (!release) std::this_thread::yield();
          tasks.CountDown();
        });
      }
      while (busy != threads - 1) std::this_thread::yield();
      std::thread waiter([&] { pool.Wait(latch); });
      for (int i = 0; i < 20 + round % 50; ++i) std::this_thread::yield();
      pool.Submit([&] { tasks.CountDown(); });
      latch.CountDown();
      waiter.join();
      release = true;
      CHECK(pool.Wait(tasks, 100'000'000'000));
    }
  }
}

TEST_CASE("bursts from several threads, with pauses in between, lose no wake-up") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    std::vector<std::thread> submitters;
    for (int t = 0; t < 3; ++t) {
      submitters.emplace_back([&, t] {
        for (int round = 0; round < 1000; ++round) {
          const int burst = 1 + (round + t) % 7;
          Latch latch(burst);
          for (int i = 0; i < burst; ++i) pool.Submit([&] { latch.CountDown(); });
          pool.Wait(latch, t == 0 ? -1 : 100'000'000'000);
        }
      });
    }
    for (std::thread& submitter : submitters) submitter.join();
  }
}

}  // namespace
