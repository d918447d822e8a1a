// SetParallelFor: loops on threads of the program's own.
#include "opkit/engine/pool/own_threads.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <vector>
#ifdef OPKIT_TEST_TBB
#include <tbb/parallel_for.h>
#endif

#include "opkit/engine/parallel_for.hpp"
#include "support/error_of.hpp"
#include "support/watchdog.hpp"

namespace own_threads_test { namespace {

using namespace opkit;

// For the life of a test.
struct Own {
  Own(int threads, detail::RunOnThreads run) { SetParallelFor(threads, std::move(run)); }
  Own(const Own&) = delete;
  ~Own() { SetParallelFor(0, {}); }
};
// New threads for every loop, which is slow and simple.
void OnStdThreads(int count, FunctionRef<void()> work) {
  std::vector<std::thread> threads;
  for (int i = 1; i < count; ++i) threads.emplace_back([&] { work(); });
  work();
  for (std::thread& thread : threads) thread.join();
}
void OneAfterTheOther(int count, FunctionRef<void()> work) {
  for (int i = 0; i < count; ++i) work();
}
void CheckLoops() {
  for (int64_t n : {0, 1, 2, 7, 1000, 65'537})
    for (int64_t grain : {kAutoGrain, int64_t{1}, int64_t{64}, n}) {
      if (n == 65'537 && grain == 1) continue;
      std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
      ParallelFor(
          n, [&](int64_t i) { ++visits[static_cast<size_t>(i)]; }, grain);
      for (const auto& count : visits) REQUIRE(count == 1);
    }
}

TEST_CASE(
    "every index is visited once on the program's own threads, in parallel or one after the "
    "other") {
  Watchdog watchdog;
  for (int threads : {1, 2, 8})
    for (const auto run : {&OnStdThreads, &OneAfterTheOther}) {
      const Own own(threads, run);
      CHECK(NumThreads() == threads);
      CheckLoops();
    }
#ifdef OPKIT_TEST_TBB
  const Own own(4, [](int count, FunctionRef<void()> work) {
    tbb::parallel_for(0, count, [&](int) { work(); });
  });
  CheckLoops();
#endif
}

TEST_CASE("an exception of a loop reaches its caller, and a loop in a loop stays on its thread") {
  const Own own(4, &OnStdThreads);
  CHECK_THROWS_AS(
      ParallelFor(
          100, [](int64_t i) { i == 50 ? throw std::runtime_error("at 50") : void(); }, 1),
      std::runtime_error);
  std::atomic<int> elsewhere{0};
  ParallelFor(
      8,
      [&](int64_t) {
        const auto here = std::this_thread::get_id();
        ParallelFor(
            8, [&](int64_t) { elsewhere += std::this_thread::get_id() != here; }, 1);
      },
      1);
  CHECK(elsewhere == 0);
}

TEST_CASE("loops run on the threads of a host for the length of a scope, and on no others") {
  Watchdog watchdog;
  std::atomic<int> calls{0};
  const auto count_calls = [&](int count, FunctionRef<void()> work) {
    ++calls;
    CHECK(count <= 4);
    OnStdThreads(count, work);
  };
  {
    const detail::LoopsOnHost loops(4, count_calls);
    const detail::ScopedValue on_host(detail::t_loop_runner, &loops);
    CheckLoops();
    CHECK(calls > 0);
    CHECK_THROWS_AS(
        ParallelFor(
            100, [](int64_t i) { i == 50 ? throw std::runtime_error("at 50") : void(); }, 1),
        std::runtime_error);
    // A loop in a loop does not ask the host again.
    calls = 0;
    ParallelFor(
        8,
        [](int64_t) {
          ParallelFor(
              8, [](int64_t) {}, 1);
        },
        1);
    CHECK(calls == 1);
  }
  CheckLoops();
  CHECK(calls == 1);
}

TEST_CASE("a PoolScope still asks for its pool, and the process's pool gets its size back") {
  const int before = NumThreads();
  {
    const Own own(3, [](int, FunctionRef<void()>) { FAIL("not asked for"); });
    CHECK(ThreadPool::Global().threads() == 1);
    ThreadPool pool(2);
    const PoolScope scope(pool);
    CHECK(NumThreads() == 2);
    std::atomic<int> count{0};
    ParallelFor(
        100, [&](int64_t) { ++count; }, 1);
    CHECK(count == 100);
  }
  CHECK(NumThreads() == before);
  for (int threads : {0, -1, ThreadPool::kMaxThreads + 1})
    CHECK(ErrorOf([&] { SetParallelFor(threads, &OneAfterTheOther); }).code() ==
          ErrorCode::kInvalidArgument);
  CHECK(NumThreads() == before);
}

TEST_CASE("with the program's own threads the toolkit starts none") {
  const pid_t child = fork();  // which has none yet
  if (child == 0) {
    SetParallelFor(4, &OneAfterTheOther);
    std::atomic<int> count{0};
    for (int i = 0; i < 10; ++i)
      ParallelFor(
          1000, [&](int64_t) { ++count; }, 1);
    std::ptrdiff_t threads = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
      threads += entry.exists();
    _exit(threads == 1 && count == 10'000 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace own_threads_test
