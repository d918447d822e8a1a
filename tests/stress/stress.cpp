// Runs random programs with random failures until so many operators have run, or so many minutes
// have passed: nothing may be lost, left or wrong.
//
//   stress [--operators N] [--programs N] [--minutes M] [--seed S] [--threads T]
#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "engine_programs.hpp"
#include "graph_programs.hpp"
#include "mixed_programs.hpp"
#include "support/sanitizers.hpp"
#include "support/thread_sanitizer.hpp"

namespace {

// By hand only: where nothing has run for a minute, every thread's stack is written, and the
// program ends.
class HangWatch {
 public:
  explicit HangWatch(bool wanted) {
    if (!wanted) return;
    std::signal(SIGUSR1, [](int) {
      void* frames[64];
      backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
      [[maybe_unused]] const auto written = write(2, "\n", 1);
    });
    std::thread([] {
      for (int64_t before = -1;;) {
        std::this_thread::sleep_for(std::chrono::minutes(1));
        if (g_operators.load() == before) Tell();
        before = g_operators.load();
      }
    }).detach();
  }

 private:
  [[noreturn]] static void Tell() {
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      const int id = std::stoi(thread.path().filename());
      std::fprintf(stderr, "thread %d\n", id);
      syscall(SYS_tgkill, getpid(), id, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // one after the other
    }
    Require(false, "nothing has run for a minute");
    std::abort();
  }
};

void RunProgram(uint64_t seed, int most_threads) {
  g_seed = seed;
  g_details.clear();
  Random random(seed);
  const int size = 50 << random.Below(6);
  switch (random.Below(5)) {
    case 0:
      g_doing = "an engine and its serial model";
      return engine_programs::ModelProgram(random, size).Run(most_threads);
    case 1:
      g_doing = "an engine and many pushers";
      return engine_programs::CrowdProgram(random, size).Run(most_threads);
    case 2:
      g_doing = "operators called by name";
      return graph_programs::InvokeProgram(random, size).Run(most_threads);
    case 3:
      g_doing = "mixed graphs";
      for (int graph = 0; graph < 1 + Rounds(size / 64); ++graph)
        mixed_programs::MixedProgram(Random(random.Next())).Run(most_threads);
      return;
    default:
      g_doing = "executors";
      return graph_programs::ExecutorProgram(random).Run(most_threads);
  }
}

uint64_t Number(const char* option, const char* text) {
  char* end = nullptr;
  const uint64_t value = text ? std::strtoull(text, &end, 10) : 0;
  if (end && *end == '\0' && end != text) return value;
  std::fprintf(stderr, "stress: expected %s NUMBER, found '%s'\n", option, text ? text : "");
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t operators = 0, programs = 0, minutes = 0, seed = 1, threads = 8;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    uint64_t* const value = option == "--operators"  ? &operators
                            : option == "--programs" ? &programs
                            : option == "--minutes"  ? &minutes
                            : option == "--seed"     ? &seed
                            : option == "--threads"  ? &threads
                                                     : nullptr;
    if (!value) {
      std::fprintf(stderr,
                   "stress: no option '%s' (--operators --programs --minutes --seed "
                   "--threads)\n",
                   argv[i]);
      return 2;
    }
    *value = Number(argv[i], argv[i + 1]);
  }
  if (operators + programs + minutes == 0) operators = 1'000'000;
  auto& allocator = *new FaultyAllocator;  // outlives every tensor
  opkit::SetAllocator(opkit::DeviceType::kCPU, &allocator);
  mixed_ops::AddDevice();
  const HangWatch watch(minutes > 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(minutes);
  uint64_t ran = 0;
  const auto goes_on = [&] {
    return ran < programs || static_cast<uint64_t>(g_operators.load()) < operators ||
           (minutes > 0 && std::chrono::steady_clock::now() < end);
  };
  for (; goes_on(); ++ran) {
    RunProgram(seed + ran, static_cast<int>(threads));
    DrainStreams();
    Require(allocator.live_bytes() == 0,
            std::to_string(allocator.live_bytes()) + " bytes were left");
  }
  std::printf("%llu programs of seeds from %llu, %lld operators: nothing lost, left or wrong\n",
              static_cast<unsigned long long>(ran), static_cast<unsigned long long>(seed),
              static_cast<long long>(g_operators.load()));
}
