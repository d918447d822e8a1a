#include "trace_times.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "opkit/profile/chrome_trace.hpp"
#include "opkit/profile/profiler.hpp"
#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/text.hpp"

namespace trace_times_test {
namespace {

using namespace opkit;
using cli::ReadTraceTimes;

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
  SaveChromeTrace(profile, folder / "trace.json");
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
  const std::vector<NamedTimes> nodes = ReadTraceTimes(folder / "trace.json", TimesOf::kNodes);
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
  // As Chrome leaves a list that it still writes: without an end.
  for (const char* end : {"", ",", ",\n", "\n ", "]"}) {
    CAPTURE(end);
    WriteFile(folder / "list.json",
              StrCat(R"([{"name":"f","ph":"X","ts":0,"dur":3,"args":{"a":[1]}})", end));
    const std::vector<NamedTimes> open = ReadTraceTimes(folder / "list.json");
    REQUIRE(open.size() == 1);
    CHECK(open[0].times == std::vector<double>{3000});
  }
  WriteFile(folder / "empty.json", R"({"traceEvents":[]})");
  CHECK(ReadTraceTimes(folder / "empty.json").empty());
}

TEST_CASE("events of other programs that begin and end, on a thread or by an id") {
  const TemporaryFolder folder;
  // f around g, in any order of the file; h on another thread; ends and begins without the other.
  WriteFile(folder / "trace.json", R"([
    {"ph":"E","ts":1,"pid":1,"tid":1},
    {"name":"g","ph":"B","ts":4,"pid":1,"tid":1},
    {"name":"f","ph":"B","ts":2,"pid":1,"tid":1},
    {"name":"h","ph":"B","ts":3,"pid":1,"tid":"2"},
    {"ph":"E","ts":5.5,"pid":1,"tid":1},
    {"name":"f","ph":"E","ts":12,"pid":1,"tid":1},
    {"name":"f","ph":"B","ts":20,"pid":1,"tid":1},
    {"ph":"E","ts":6,"pid":1,"tid":"2","args":{"pid":7,"tid":1}},
    {"name":"whole","ph":"X","ts":0,"dur":7,"pid":1,"tid":1},
    {"name":"load","cat":"net","ph":"b","ts":1,"pid":1,"id":"0x1"},
    {"name":"load","cat":"net","ph":"b","ts":2,"pid":1,"id":"0x2"},
    {"name":"load","cat":"net","ph":"e","ts":4,"pid":1,"id":"0x1"},
    {"name":"load","cat":"disk","ph":"e","ts":5,"pid":1,"id":"0x2"},
    {"name":"load","cat":"net","ph":"b","ts":5,"pid":1,"id2":{"local":"0x3"}},
    {"name":"load","cat":"net","ph":"b","ts":6,"pid":1,"id2":{"local":"0x4"}},
    {"name":"load","cat":"net","ph":"e","ts":9,"pid":1,"id2":{"local":"0x3"}},
    {"name":"old","cat":"net","ph":"S","ts":1,"pid":1,"id":8},
    {"name":"old","cat":"net","ph":"F","ts":3,"pid":1,"id":8}])");
  std::map<std::string, std::vector<double>> times;
  for (const NamedTimes& one : ReadTraceTimes(folder / "trace.json")) times[one.name] = one.times;
  CHECK(times == std::map<std::string, std::vector<double>>{{"f", {10'000}},
                                                            {"g", {1'500}},
                                                            {"h", {3'000}},
                                                            {"load", {3'000, 4'000}},
                                                            {"old", {2'000}},
                                                            {"whole", {7'000}}});
}

TEST_CASE("text that is no trace is an Error") {
  const TemporaryFolder folder;
  CHECK(ErrorOf([&] { ReadTraceTimes(folder / "absent.json"); }).code() == ErrorCode::kIo);
  CHECK(Contains(Problem(folder, ""), "no Chrome trace in JSON"));
  CHECK(Contains(Problem(folder, R"({"traceEvents":[{"name":"f")"), "parse error"));
  CHECK(Contains(Problem(folder, R"({"traceEvents":[)"), "parse error"));
  CHECK(Contains(Problem(folder, R"([{"name":"f"},{"ph)"), "parse error"));
  CHECK(Contains(Problem(folder, R"([{"name":"f"} {"ph":"X"}])"), "parse error"));
  CHECK(Contains(Problem(folder, "\x0a\x05 a Perfetto trace"), "no Chrome trace in JSON"));
  CHECK(Contains(Problem(folder, R"({"rows":[]})"), "has no list \"traceEvents\""));
}

}  // namespace trace_times_test
