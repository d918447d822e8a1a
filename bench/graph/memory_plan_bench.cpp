// The memory planner on the public instances A to K, on rectangles cut at random (a perfect packing
// exists), by each search that takes them, and on 100,000 buffers by the greedy portfolio alone.
// Peers' figures on A to K are quoted: their programs are in no package registry.
//
//   OPKIT_MINIMALLOC_DIR   folder of A.1048576.csv to K.1048576.csv (github.com/google/minimalloc,
//                          benchmarks/challenging); without it that part is skipped and says so
//   OPKIT_MEMORY_PLAN_SVG  a file to draw one plan to
//
// Every repetition plans with another seed, so the spread is that of the search, too.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "../../tests/graph/memory/guillotine.hpp"
#include "../../tools/opkit/memory_csv.hpp"
#include "opkit/graph/memory/plan_memory.hpp"
#include "opkit/graph/memory/search/search.hpp"
#include "opkit/graph/memory/verify.hpp"
#include "opkit/graph/print/memory_svg.hpp"

namespace {

using opkit::MemoryInterval;
using opkit::MemoryPlan;
using opkit::MemorySearchOptions;

constexpr int64_t kCapacity = 1048576;
constexpr double kSeconds = 2;

// Quoted figures. Greedy by size: peak / capacity. MiniMalloc (Moffitt, 2023): ms as published, and
// s of a build with -O3 on a 2.5 GHz Cascade Lake class machine.
struct Instance {
  const char* name;
  double greedy, minimalloc_published_ms, minimalloc_s;
};
constexpr Instance kInstances[] = {
    {"A", 1.31, 4910, 10.5}, {"B", 1.37, 3661, 10.0}, {"C", 1.35, 637, 1.7},
    {"D", 1.28, 2674, 8.1},  {"E", 1.44, 3717, 7.1},  {"F", 1.37, 5358, 10.4},
    {"G", 1.39, 1181, 2.3},  {"H", 1.29, 1808, 2.8},  {"I", 1.41, 3908, 5.8},
    {"J", 1.29, 883, 2.5},   {"K", 1.33, 628, 1.1}};

std::vector<MemoryInterval> ReadInstance(const std::string& name) {
  const char* folder = std::getenv("OPKIT_MINIMALLOC_DIR");
  if (!folder) return {};
  std::ifstream file(std::string(folder) + "/" + name + "." + std::to_string(kCapacity) + ".csv");
  std::stringstream text;
  text << file.rdbuf();
  return text.str().empty() ? std::vector<MemoryInterval>()
                            : cli::ParseMemoryCsv(text.str()).buffers;
}

MemoryPlan Plan(benchmark::State& state, const std::vector<MemoryInterval>& buffers,
                MemorySearchOptions options, int64_t capacity) {
  static uint64_t seed = 0;
  MemoryPlan plan;
  for (auto _ : state) {
    options.seed = ++seed;
    plan = opkit::PlanMemory(buffers, options);
    benchmark::DoNotOptimize(plan.arena_bytes);
  }
  if (buffers.size() <= 10'000) opkit::VerifyMemoryPlan(buffers, plan);
  const auto share = [&](int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(capacity);
  };
  state.counters["buffers"] = static_cast<double>(buffers.size());
  state.counters["arena"] = share(plan.arena_bytes);
  state.counters["bound"] = share(plan.lower_bound_bytes);
  state.counters["naive"] = share(plan.naive_bytes);
  return plan;
}

void PlanInstance(benchmark::State& state, const Instance& instance, int64_t enough,
                  double seconds) {
  const std::vector<MemoryInterval> buffers = ReadInstance(instance.name);
  if (buffers.empty()) {
    state.SkipWithError("no instance here: set OPKIT_MINIMALLOC_DIR to the folder of A to K");
    return;
  }
  MemorySearchOptions options;
  options.time_budget = std::chrono::duration<double>(seconds);
  options.enough_bytes = enough;
  Plan(state, buffers, options, kCapacity);
  state.counters["greedy_by_size_quoted"] = instance.greedy;
  state.counters["minimalloc_s_quoted"] = instance.minimalloc_s;
  state.counters["minimalloc_ms_published"] = instance.minimalloc_published_ms;
}

// Makes a few long lives among many short ones, like those of weights and activations, or lives of
// one kind.
std::vector<MemoryInterval> ManyBuffers(int longest) {
  opkit::RandomGenerator random(1);
  std::vector<MemoryInterval> buffers;
  constexpr int64_t kCount = 100'000;
  for (int64_t i = 0; i < kCount; ++i) {
    const bool is_long = random() % 100 == 0;
    const auto length = 1 + static_cast<int64_t>(
                                random() % static_cast<uint64_t>(is_long ? 20 * longest : longest));
    const auto size = 64 * (1 + static_cast<int64_t>(random() % (is_long ? 10'000 : 100)));
    buffers.push_back({i, i + length, size, 64});
  }
  return buffers;
}

void Portfolio(benchmark::State& state, const std::vector<MemoryInterval>& buffers) {
  MemorySearchOptions options;
  options.max_steps = 0;
  const MemoryPlan plan = opkit::PlanMemory(buffers, options);
  Plan(state, buffers, options, plan.lower_bound_bytes);
}

void DrawOne() {
  const char* path = std::getenv("OPKIT_MEMORY_PLAN_SVG");
  if (!path) return;
  opkit::MemorySvgOptions svg;
  svg.title = "Public instance E, 215 buffers";
  svg.time_label = "time";
  std::vector<MemoryInterval> buffers = ReadInstance("E");
  if (buffers.empty()) {
    opkit::RandomGenerator random(1);
    buffers = CutRectangle(200, 1000, kCapacity, random);
    svg.title = "A rectangle cut into 200 buffers";
  }
  MemorySearchOptions options;
  options.time_budget = std::chrono::duration<double>(kSeconds);
  std::ofstream(path) << opkit::ToSvg(buffers, opkit::PlanMemory(buffers, options), svg);
}

const bool kRegistered = [] {
  const auto add = [](const std::string& name, auto run) {
    benchmark::RegisterBenchmark(name.c_str(), run)
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  };
  for (const Instance& instance : kInstances) {
    const std::string name = instance.name;
    add("WithinCapacity/" + name,
        [&instance](benchmark::State& state) { PlanInstance(state, instance, kCapacity, 10); });
    add("LowestInTwoSeconds/" + name,
        [&instance](benchmark::State& state) { PlanInstance(state, instance, 0, kSeconds); });
    add("Portfolio/" + name,
        [&instance](benchmark::State& state) { PlanInstance(state, instance, 0, 0); });
  }
  for (const size_t count : {100, 300, 1000, 3000}) {
    opkit::RandomGenerator random(count);
    const std::vector<MemoryInterval> buffers = CutRectangle(count, 100'000, kCapacity, random);
    for (const opkit::detail::PlannerSearch& search : opkit::detail::kPlannerSearches)
      add(opkit::StrCat("PerfectPacking/", count, "/", search.name),
          [buffers, &search](benchmark::State& state) {
            MemorySearchOptions options;
            options.time_budget = std::chrono::duration<double>(kSeconds);
            options.name = search.name;
            if (Plan(state, buffers, options, kCapacity).steps == 0)
              state.SkipWithError("the search does not take these buffers");
          });
    add("PerfectPackingPortfolio/" + std::to_string(count),
        [buffers](benchmark::State& state) { Portfolio(state, buffers); });
  }
  for (const int longest : {20, 100, 1000})
    add("Portfolio100k/longest:" + std::to_string(longest),
        [longest](benchmark::State& state) { Portfolio(state, ManyBuffers(longest)); });
  DrawOne();
  return true;
}();

}  // namespace
