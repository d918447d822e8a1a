#include "opkit/base/platform.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>

namespace platform_test { namespace {

using namespace opkit::detail;

TEST_CASE("a Parker that was signalled first does not sleep") {
  Parker parker;
  parker.Set();
  CHECK(parker.Wait());
  CHECK(parker.Wait(0));  // even past its deadline
}

TEST_CASE("a Parker's wait ends at its deadline") {
  Parker parker;
  CHECK_FALSE(parker.Wait(MonotonicNs()));
  CHECK_FALSE(parker.Wait(MonotonicNs() + 1'000'000));
}

TEST_CASE("writes before Set are seen after Wait") {
  for (int round = 0; round < 1000; ++round) {
    int written = 0;
    Parker parker;
    std::thread waker([&] {
      written = round + 1;
      Parker::Wake(parker.Set());
    });
    parker.Wait();
    CHECK(written == round + 1);
    waker.join();
  }
}

TEST_CASE("a Mutex lets one thread in at a time") {
  Mutex mutex;
  int count = 0;
  auto add = [&] {
    for (int i = 0; i < 10'000; ++i) {
      MutexLock lock(mutex);
      ++count;
    }
  };
  std::thread other(add);
  add();
  other.join();
  CHECK(count == 20'000);
}

TEST_CASE("a thread's name is cut to the system's limit") {
  std::string name;
  std::thread([&] {
    SetCurrentThreadName("a-name-that-is-far-too-long");
    char buffer[32];
    pthread_getname_np(pthread_self(), buffer, sizeof buffer);
    name = buffer;
  }).join();
  CHECK(name == "a-name-that-is-");
}

TEST_CASE("pinning leaves a thread one of its CPUs, for every index") {
  for (int index : {0, 1, 1000}) {
    cpu_set_t before, after;
    std::thread([&] {
      pthread_getaffinity_np(pthread_self(), sizeof before, &before);
      PinCurrentThread(index);
      pthread_getaffinity_np(pthread_self(), sizeof after, &after);
    }).join();
    CHECK(CPU_COUNT(&after) == 1);
    cpu_set_t both;
    CPU_AND(&both, &before, &after);
    CHECK(CPU_COUNT(&both) == 1);
  }
  CHECK(AvailableCpus() >= 1);
  int visited = 0, last = -1;
  bool rising = true;
  VisitAvailableCpus([&](int cpu) {
    ++visited;
    rising = rising && cpu > last;
    last = cpu;
  });
  CHECK(visited == AvailableCpus());
  CHECK(rising);
}

TEST_CASE("the start of a file is read, though the file has no size") {
  char text[64];
  CHECK(ReadStartOfFile("/proc/self/stat", text, sizeof text) == sizeof text);
  const std::string pid = std::to_string(getpid()) + " (";
  CHECK(std::string(text, sizeof text).starts_with(pid));
  CHECK(ReadStartOfFile("/dev/null", text, sizeof text) == 0);
  CHECK(ReadStartOfFile("/dev/null/none", text, sizeof text) == 0);
}

TEST_CASE("the clock of the calendar counts milliseconds") {
  const int64_t before = time(nullptr), now = UnixMs() / 1000, after = time(nullptr);
  CHECK(before <= now);
  CHECK(now <= after + 1);  // time() reads a clock that moves in steps
}

TEST_CASE("the processor's caches are listed from the nearest on") {
  CpuCache caches[kMostCpuCaches];
  const int count = CpuCaches(caches);
  REQUIRE(count <= kMostCpuCaches);
  for (int i = 0; i < count; ++i) {
    CHECK(caches[i].level >= (i > 0 ? caches[i - 1].level + 1 : 1));
    CHECK(caches[i].bytes >= 1024);
    CHECK(caches[i].shared_by >= 1);
  }
}

}  // namespace
}  // namespace platform_test
