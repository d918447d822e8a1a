// opkit plan: reads a table of buffers with lifetimes and writes it with their offsets.
#include <CLI/CLI.hpp>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "file.hpp"
#include "memory_csv.hpp"
#include "opkit/graph/memory/plan_memory.hpp"
#include "opkit/graph/memory/verify.hpp"
#include "opkit/graph/print/memory_svg.hpp"
#include "opkit/interop/mapped_file.hpp"
#include "options.hpp"
#include "program.hpp"
#include "terminal.hpp"

namespace cli {
namespace {

using namespace opkit;

struct PlanCommand {
  std::string table, output = "-", svg;
  int64_t capacity = 0;
  double seconds = 60;
  uint64_t seed = 0;
};

// Shows from its own thread how much of its time the search has used.
class SearchProgress {
 public:
  explicit SearchProgress(double seconds) {
    if (!IsTerminal(stderr)) return;
    thread_ = std::thread([this, seconds] {
      const auto begin = std::chrono::steady_clock::now();
      Progress bar("planning", static_cast<int64_t>(seconds * 1000));
      std::unique_lock lock(mutex_);
      while (!done_.wait_for(lock, std::chrono::milliseconds(100), [this] { return ended_; })) {
        const std::chrono::duration<double> used = std::chrono::steady_clock::now() - begin;
        bar.Update(static_cast<int64_t>(used.count() * 1000),
                   Fixed(used.count(), 0) + " of at most " + Fixed(seconds, 0) + " s");
      }
    });
  }
  ~SearchProgress() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    done_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool ended_ = false;
  std::thread thread_;
};

MemoryTable ReadTable(const std::string& path) {
  return FailWith(ExitCode::kBadFile, "", [&] {
    try {
      const Storage file = MapFile(path);
      return ParseMemoryCsv(BytesOf(file));
    } catch (Error& error) {
      if (error.message().find(path) == std::string::npos) error.AddContext("in '" + path + "'");
      throw;
    }
  });
}

void PlanTable(const PlanCommand& command) {
  const MemoryTable table = ReadTable(command.table);
  MemorySearchOptions options;
  options.max_steps = 0;  // greedy orders only
  MemoryPlan plan = FailWith(ExitCode::kBadFile, "correct " + command.table,
                             [&] { return PlanMemory(table.buffers, options); });
  if (plan.lower_bound_bytes > command.capacity)
    throw Failure(ExitCode::kNoPlan,
                  StrCat("no plan fits in ", command.capacity, " bytes: buffers of ",
                         plan.lower_bound_bytes, " bytes are live at once"),
                  StrCat("give --capacity ", plan.lower_bound_bytes, " or more"));
  if (plan.arena_bytes > command.capacity) {
    options.max_steps = -1;
    options.time_budget = std::chrono::duration<double>(command.seconds);
    options.seed = command.seed;
    options.enough_bytes = command.capacity;
    const SearchProgress progress(command.seconds);
    plan = PlanMemory(table.buffers, options);
  }
  if (plan.arena_bytes > command.capacity)
    throw Failure(ExitCode::kNoPlan,
                  StrCat("found no plan within ", command.capacity, " bytes in ",
                         Fixed(plan.seconds, 1), " s, the best needs ", plan.arena_bytes),
                  StrCat("give --seconds more than ", command.seconds, ", or another --seed"));
  VerifyMemoryPlan(table.buffers, plan);
  WriteFile(command.output, table.buffers.empty() ? "id,lower,upper,size,offset\n"
                                                  : ToCsv(table.buffers, plan.offsets, table.ids));
  if (!command.svg.empty()) {
    MemorySvgOptions look;
    look.title = command.table;
    look.names = table.ids;
    WriteFile(command.svg, ToSvg(table.buffers, plan, look));
  }
  std::fprintf(stderr, "%s in %lld bytes (at least %lld, ratio %s) by %s in %s s\n",
               Counted(table.buffers.size(), "buffer").c_str(),
               static_cast<long long>(plan.arena_bytes),
               static_cast<long long>(plan.lower_bound_bytes), Fixed(plan.ratio(), 4).c_str(),
               plan.method, Fixed(plan.seconds, 3).c_str());
}

}  // namespace

void AddPlanCommand(CLI::App& program) {
  auto command = std::make_shared<PlanCommand>();
  CLI::App* app = program.add_subcommand("plan", "Place buffers with lifetimes in one arena");
  app->add_option("FILE", command->table,
                  "CSV with the columns id,lower,upper,size: a buffer is live in [lower, upper)")
      ->required()
      ->option_text("REQUIRED");
  app->add_option("--capacity", command->capacity, "Sets the size of the arena in bytes")
      ->required()
      ->check(WholeNumber(0))
      ->option_text("BYTES REQUIRED");
  app->add_option("-o,--output", command->output,
                  "Writes the same table with the column offset; - is standard output (default)")
      ->option_text("OUT.csv");
  app->add_option("--svg", command->svg, "Also writes a drawing of the plan")
      ->option_text("FILE.svg");
  app->add_option("--seconds", command->seconds, "Limits the time of the search")
      ->check(Seconds())
      ->option_text("S=60");
  app->add_option("--seed", command->seed, "Sets the seed of the search")
      ->check(WholeNumber(0))
      ->option_text("N=0");
  app->footer(
      "If no plan fits, nothing is written and the exit code is 6.\n\n"
      "Examples:\n"
      "  opkit plan buffers.csv --capacity 1048576 -o planned.csv\n"
      "  opkit plan buffers.csv --capacity 1048576 --svg plan.svg | column -s, -t");
  app->callback([command] { PlanTable(*command); });
}

}  // namespace cli
