#include "opkit/profile/counters.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>

#include <thread>

#include "opkit/profile/profiler.hpp"
#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"

namespace counters_test {
namespace {

using namespace opkit;

// Counters that the test moves: the first by what it says, the others by ten and a hundred times
// as much.
thread_local uint64_t t_count = 0;
struct FakeSource final : CounterSource {
  struct Fake final : ThreadCounters {
    explicit Fake(size_t count) : names(count) {}
    void Read(uint64_t* values) noexcept override {
      uint64_t factor = 1;
      for (size_t i = 0; i < names; ++i, factor *= 10) values[i] = 1000 + factor * t_count;
    }
    size_t names;
  };
  std::unique_ptr<ThreadCounters> Open(const std::vector<std::string>& names,
                                       std::vector<std::string>* absent,
                                       CounterSource::Threads) override {
    if (absent) absent->push_back("last: it is a fake");
    return std::make_unique<Fake>(names.size());
  }
};
FakeSource g_fake;

const ProfileTableRow& RowOf(const ProfileTable& table, const std::string& name) {
  for (const ProfileTableRow& row : table.rows)
    if (row.name == name) return row;
  FAIL("no row ", name);
  return table.rows[0];
}

}  // namespace

TEST_CASE("a span has the counts of its time, of all its threads") {
  Profiler::Start({.counters = {"a", "b", "c", "last"}, .counter_source = &g_fake});
  {
    const ProfileScope outer("outer");
    t_count += 1;
    {
      const ProfileScope inner("inner");
      t_count += 2;
    }
    std::thread([token = CurrentInvocation()] {
      const InvocationScope scope = InvocationScope::Adopt(token);
      t_count += 5;
    }).join();
    {
      const ProfileScope inner("inner");
      t_count += 3;
    }
  }
  Profiler::Stop();
  const TemporaryFolder folder;
  SaveChromeTrace(Profiler::Read(), folder / "trace.json");
  const ProfileTable table = MakeProfileTable(Profiler::Read());
  CHECK(table.counted == std::vector<std::string>{"a", "b", "c", "last"});
  CHECK(table.absent_counters == std::vector<std::string>{"last: it is a fake"});
  CHECK(RowOf(table, "inner").counts == std::vector<uint64_t>{5, 50, 500, 5000});
  CHECK(RowOf(table, "outer").counts == std::vector<uint64_t>{11, 110, 1100, 11000});
  CHECK(Contains(ToString(table), "not counted: last: it is a fake\n"));
  CHECK(Contains(ToJson(table), ", \"last\": 11000"));
  CHECK(Contains(ReadFile(folder / "trace.json"), R"(,"a":11,"b":110,"c":1100,"last":11000)"));
}

TEST_CASE("a session without counters counts nothing") {
  Profiler::Start();
  { const ProfileScope scope("scope"); }
  Profiler::Stop();
  CHECK(Profiler::Read().counts.empty());
  CHECK(MakeProfileTable(Profiler::Read()).rows[0].counts.empty());
}

TEST_CASE("the system's counters count, or give the reason why not") {
  Profiler::Start({.counters = {"page_faults", "cycles", "task_clock"}});
  {
    const ProfileScope scope("touches");
    const std::vector<char> memory(64 << 20, 1);
    CHECK(memory.back() == 1);
  }
  Profiler::Stop();
  const ProfileTable table = MakeProfileTable(Profiler::Read());
  const ProfileTableRow& row = RowOf(table, "touches");
  REQUIRE(row.counts.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    bool absent = false;
    for (const std::string& one : table.absent_counters)
      absent |= one.starts_with(table.counted[i] + ": ");
    CAPTURE(table.counted[i]);
    CHECK((row.counts[i] == 0) == absent);
  }
}

TEST_CASE("threads that start later count where it is wanted") {
  const auto touch = [] {
    const std::vector<char> memory(64 << 20, 1);
    CHECK(memory.back() == 1);
  };
  for (const CounterSource::Threads threads :
       {CounterSource::Threads::kThis, CounterSource::Threads::kThisAndNew}) {
    std::vector<std::string> absent;
    const auto counters = PerfCounters().Open({"page_faults"}, &absent, threads);
    uint64_t before = 0, after = 0;
    counters->Read(&before);
    std::thread([&] { std::thread(touch).join(); }).join();
    counters->Read(&after);
    CAPTURE(after - before);
    // Pages of 2 MiB are the largest that the system takes for them.
    const bool counted = after - before >= 32;
    CHECK(counted == (absent.empty() && threads == CounterSource::Threads::kThisAndNew));
  }
}

TEST_CASE("an absent counter has its name and the reason") {
  const std::vector<std::string> names = {"cycles", "context_switches"};
  std::vector<std::string> absent;
  PerfCounters().Open(names, &absent, CounterSource::Threads::kThisAndNew);
  for (const std::string& one : absent) {
    CHECK((one.starts_with("cycles: ") || one.starts_with("context_switches: ")));
    CHECK((Contains(one, "has no such counter") || Contains(one, "may not count")));
  }
  CHECK(Contains(detail::WhyNotCounted(ENOENT), "has no such counter"));
  CHECK(Contains(detail::WhyNotCounted(EACCES), "may not count"));
  CHECK(detail::WhyNotCounted(EMFILE) == std::strerror(EMFILE));
}

TEST_CASE("names that no counter has, and more than there is room for, are Errors") {
  const Error unknown = ErrorOf([] { Profiler::Start({.counters = {"cycels"}}); });
  CHECK(unknown.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(unknown.message(), "there is no counter 'cycels' (did you mean 'cycles'?"));
  const Error many =
      ErrorOf([] { Profiler::Start({.counters = std::vector<std::string>(7, "cycles")}); });
  CHECK(many.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(many.message(), "7 names; 6 are the most"));
  CHECK_FALSE(Profiler::IsRunning());
}

}  // namespace counters_test
