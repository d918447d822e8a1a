#include "opkit/interop/trace_times.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "opkit/profile/chrome_trace.hpp"
#include "opkit/profile/profiler.hpp"
#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/text.hpp"

namespace trace_times_test {
namespace {

using namespace opkit;

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string Problem(const TemporaryFolder& folder, const std::string& text) {
  WriteFile(folder / "bad.json", text);
  const Error error = ErrorOf([&] { ReadTraceTimes(folder / "bad.json"); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(), "bad.json"));
  return error.message();
}

}  // namespace

TEST_CASE("the times of a trace that was written are those of its profile") {
  const TemporaryFolder folder;
  Profiler::Start();
  for (int i = 0; i < 3; ++i) {
    const ProfileScope outer("outer \"quoted\"");
    const ProfileScope inner("inner");
  }
  Profiler::Stop();
  const Profile profile = Profiler::Read();
  WriteChromeTrace(profile, folder / "trace.json");
  const std::vector<NamedTimes> expected = TimesByName(profile);
  std::vector<NamedTimes> read = ReadTraceTimes(folder / "trace.json");
  REQUIRE(read.size() == 2);
  for (size_t i = 0; i < read.size(); ++i) {
    CHECK(read[i].name == expected[i].name);
    std::vector<double> times = expected[i].times;
    std::sort(times.begin(), times.end());
    std::sort(read[i].times.begin(), read[i].times.end());
    CHECK(read[i].times == times);
  }
}

TEST_CASE("parts, pushes, user code and open spans are no runs; completions end them") {
  const TemporaryFolder folder;
  WriteFile(folder / "trace.json", R"({"otherData":{"traceEvents":1},"traceEvents":[
    {"name":"thread_name","ph":"M","args":{"name":"id"}},
    {"name":"Add","ph":"X","ts":1.000,"dur":2.500,"args":{"id":7,"parent":0,"node":"first"}},
    {"name":"Add","ph":"b","ts":1.000,"cat":"asynchronous","id":7},
    {"name":"Add","ph":"e","ts":10.000,"cat":"asynchronous","id":7},
    {"name":"Add","ph":"X","ts":2,"dur":1,"args":{"id":7,"parent":0,"node":"first"}},
    {"name":"Add","ph":"X","ts":20,"dur":4,"args":{"id":8,"parent":0,"node":"second"}},
    {"name":"Add","ph":"X","ts":30,"dur":4,"args":{"id":9,"parent":0,"open":true}},
    {"name":"task","ph":"X","ts":30,"dur":0,"cat":"push","bind_id":9},
    {"name":"My::user_code","ph":"X","ts":30,"dur":6,"args":{"parent":8}}]})");
  const std::vector<NamedTimes> times = ReadTraceTimes(folder / "trace.json");
  REQUIRE(times.size() == 1);
  std::vector<double> sorted = times[0].times;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == std::vector<double>{4000, 9000});
  const std::vector<NamedTimes> nodes = ReadTraceTimes(folder / "trace.json", true);
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0].name == "Add (first)");
  CHECK(nodes[0].times == std::vector<double>{9000});
}

TEST_CASE("traces of other programs, in both forms") {
  const TemporaryFolder folder;
  WriteFile(folder / "list.json",
            R"([{"name":"f","ph":"X","ts":0,"dur":3},{"name":"f","ph":"X","ts":5,"dur":1.5},
                {"name":"f","ph":"B","ts":9}])");
  const std::vector<NamedTimes> times = ReadTraceTimes(folder / "list.json");
  REQUIRE(times.size() == 1);
  CHECK(times[0].times == std::vector<double>{3000, 1500});
  WriteFile(folder / "empty.json", R"({"traceEvents":[]})");
  CHECK(ReadTraceTimes(folder / "empty.json").empty());
}

TEST_CASE("what is no trace is an Error") {
  const TemporaryFolder folder;
  CHECK(ErrorOf([&] { ReadTraceTimes(folder / "absent.json"); }).code() == ErrorCode::kNotFound);
  CHECK(Contains(Problem(folder, ""), "no Chrome trace in JSON"));
  CHECK(Contains(Problem(folder, R"({"traceEvents":[{"name":"f")"), "parse error"));
  CHECK(Contains(Problem(folder, "\x0a\x05 a Perfetto trace"), "no Chrome trace in JSON"));
  CHECK(Contains(Problem(folder, R"({"rows":[]})"), "has no list \"traceEvents\""));
}

}  // namespace trace_times_test
