#include "opkit/profile/chrome_trace.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/awkward.hpp"
#include "support/temporary_folder.hpp"

namespace chrome_trace_test { namespace {

using namespace opkit;
using Json = nlohmann::json;

// The events of the trace of a profile, of one phase.
struct Trace {
  explicit Trace(const Profile& profile) {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/trace.json";
    SaveChromeTrace(profile, path);
    document = Json::parse(std::ifstream(path));
  }
  std::vector<Json> Of(const std::string& phase) const {
    std::vector<Json> found;
    for (const Json& event : document.at("traceEvents"))
      if (event.at("ph") == phase) found.push_back(event);
    return found;
  }
  Json document;
};

ProfileSpan Span(const char* name, uint64_t id, uint64_t parent, int64_t begin, int64_t end) {
  ProfileSpan span;
  span.name = InternName(name);
  span.id = id;
  span.parent = parent;
  span.begin = begin;
  span.end = end;
  span.kind = Invocation::Kind::kOperator;
  return span;
}

TEST_CASE("a span is a complete event in microseconds with three decimals") {
  Profile profile;
  profile.threads = {{7, "worker"}};
  profile.spans = {Span("Add", 5, 3, 1'234'567, 1'300'068)};
  profile.spans[0].node = InternName("n1");
  const Trace trace(profile);
  const auto events = trace.Of("X");
  REQUIRE(events.size() == 1);
  CHECK(events[0].at("name") == "Add");
  CHECK(events[0].at("cat") == "operator");
  CHECK(events[0].at("ts").dump() == "1234.567");
  CHECK(events[0].at("dur").dump() == "65.501");
  CHECK(events[0].at("tid") == 7);
  CHECK(events[0].at("args").at("id") == 5);
  CHECK(events[0].at("args").at("parent") == 3);
  CHECK(events[0].at("args").at("node") == "n1");
  std::set<std::string> names;
  for (const Json& event : trace.Of("M"))
    names.insert(event.at("name").get<std::string>() + "=" +
                 event.at("args").at("name").get<std::string>());
  CHECK(names.count("thread_name=worker") == 1);
  CHECK(trace.document.at("distributedInfo").at("rank") == 0);
}

TEST_CASE("the time of a custom operator outside its sub-operators is its user code") {
  Profile profile;
  profile.threads = {{1, "main"}};
  ProfileSpan mine = Span("MyOp", 1, 0, 0, 100'000), sub = Span("Add", 2, 1, 20'000, 50'000);
  mine.kind = Invocation::Kind::kCustomOperator;
  mine.custom = sub.custom = InternName("MyOp");
  profile.spans = {mine, sub};
  std::vector<std::string> seen;
  for (const Json& event : Trace(profile).Of("X")) {
    CHECK(event.at("cat") == "Custom Operators");
    seen.push_back(event.at("name").get<std::string>() + " " + event.at("ts").dump() + " " +
                   event.at("dur").dump());
  }
  CHECK(seen == std::vector<std::string>{"MyOp 0.0 100.0", "MyOp::user_code 0.0 20.0",
                                         "MyOp::Add 20.0 30.0", "MyOp::user_code 50.0 50.0"});
}

TEST_CASE("work timed by a device is an asynchronous pair with the device's times") {
  Profile profile;
  profile.threads = {{1, "main"}};
  ProfileSpan issued = Span("OnDevice", 8, 0, 10, 20);
  issued.completed = 900;
  issued.device_begin = 300;
  issued.device_end = 700;
  profile.spans = {issued};
  const Trace trace(profile);
  CHECK(trace.Of("b").at(0).at("ts").dump() == "0.3");
  CHECK(trace.Of("e").at(0).at("ts").dump() == "0.7");
}

TEST_CASE("work after its span is an asynchronous pair, and a push is an arrow to its run") {
  Profile profile;
  profile.threads = {{1, "main"}, {2, "worker"}};
  ProfileSpan issued = Span("OnStream", 8, 0, 10, 20), task = Span("fill", 9, 0, 30, 40);
  issued.completed = 500;
  task.thread = 1;
  task.kind = Invocation::Kind::kTask;
  task.pushed = 12;
  task.pusher = 0;
  profile.spans = {issued, task};
  const Trace trace(profile);
  const auto begin = trace.Of("b"), end = trace.Of("e"), slices = trace.Of("X");
  REQUIRE(begin.size() == 1);
  REQUIRE(end.size() == 1);
  CHECK(begin[0].at("id") == end[0].at("id"));
  CHECK(begin[0].at("cat") == end[0].at("cat"));
  CHECK(end[0].at("ts").dump() == "0.5");
  REQUIRE(slices.size() == 3);
  const Json &run = slices[1], &push = slices[2];
  CHECK(run.at("tid") == 2);
  CHECK(run.at("flow_in") == true);
  CHECK(run.at("args").at("wait_us").dump() == "0.018");
  CHECK(push.at("tid") == 1);
  CHECK(push.at("ts").dump() == "0.012");
  CHECK(push.at("dur").dump() == "0.0");
  CHECK(push.at("cat") == "push");
  CHECK(push.at("flow_out") == true);
  CHECK(push.at("bind_id") == run.at("bind_id"));
  CHECK_FALSE(slices[0].contains("bind_id"));
}

TEST_CASE("names of any bytes and any numbers make a trace that is valid JSON") {
  Profile profile;
  size_t finite = 0;
  for (const auto& [name, utf8] : AwkwardNames()) {
    const uint32_t number = InternName(name);
    const auto id = profile.spans.size() + (uint64_t{1} << 63);
    profile.threads.push_back({INT64_MIN, name});
    profile.spans.push_back(Span("", id, UINT64_MAX, 0, 1));
    ProfileSpan& span = profile.spans.back();
    span.name = span.node = span.custom = number;
    span.work = {number, UINT64_MAX, UINT64_MAX, number};
    span.completed = INT64_MAX;
    profile.markers.push_back({INT64_MIN, number, 0, false});
    for (const double value : AwkwardNumbers()) {
      profile.counters.push_back({INT64_MAX, number, value});
      finite += std::isfinite(value);
    }
  }
  const Trace trace(profile);
  const auto slices = trace.Of("X"), markers = trace.Of("i"), threads = trace.Of("M"),
             counters = trace.Of("C");
  const auto names = AwkwardNames();
  REQUIRE(slices.size() == names.size());
  REQUIRE(markers.size() == names.size());
  REQUIRE(threads.size() == 1 + names.size());
  REQUIRE(counters.size() == finite);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i].utf8;
    CHECK(markers[i].at("name") == name);
    CHECK(threads[1 + i].at("args").at("name") == name);
    CHECK(slices[i].at("name") == (name.empty() ? "(unnamed)" : name + "::" + name));
    CHECK(slices[i].at("args").at("parent") == UINT64_MAX);
    if (!name.empty()) CHECK(slices[i].at("args").at("backend") == name);
  }
  size_t at = 0;
  for (const auto& [name, utf8] : names)
    for (const double value : AwkwardNumbers())
      if (std::isfinite(value)) {
        const Json& counter = counters[at++];
        CHECK(counter.at("name") == utf8);
        CHECK(counter.at("args").at("value") == value);
      }
}

TEST_CASE("counters and markers are events of their own") {
  Profile profile;
  profile.threads = {{1, "main"}};
  profile.counters = {{5, InternName("queue"), 2.5}};
  profile.markers = {{6, InternName("here"), 0, false}, {7, InternName("frame"), 0, true}};
  const Trace trace(profile);
  REQUIRE(trace.Of("C").size() == 1);
  CHECK(trace.Of("C")[0].at("args").at("value") == 2.5);
  REQUIRE(trace.Of("i").size() == 2);
  CHECK(trace.Of("i")[0].at("s") == "t");
}

TEST_CASE("counts of a span are among its arguments") {
  Profile profile;
  profile.threads = {{1, "main"}};
  profile.counted = {"a \"name\""};
  profile.spans = {Span("Add", 7, 0, 0, 1)};
  profile.counts = {{7, {3}}};
  CHECK(Trace(profile).Of("X")[0].at("args").at("a \"name\"") == 3);
}

TEST_CASE("a trace of several processes has a track for each, and arrows between them") {
  Profile first, second;
  first.threads = {{7, "one"}};
  first.spans = {Span("Add", 5, 0, 1000, 3000)};
  second.threads = {{7, "other"}};
  second.spans = {Span("Mul", 6, 0, 500, 600)};
  second.dropped = 3;
  const TemporaryFolder folder;
  SaveChromeTrace({{"p0", &first}, {"p1", &second}}, {{5, "x", {0, 0, 2000}, {1, 0, 2500}}},
                  folder / "trace.json");
  const Json document = Json::parse(std::ifstream(folder / "trace.json"));
  CHECK(document.at("otherData").at("dropped") == 3);
  std::vector<std::string> events;
  for (const Json& event : document.at("traceEvents")) {
    std::string text = event.at("name").get<std::string>() + " " + event.at("pid").dump();
    if (event.contains("args") && event.at("args").contains("name"))
      text += " " + event.at("args").at("name").get<std::string>();
    for (const char* key : {"ts", "dur", "bind_id", "flow_out", "flow_in"})
      if (event.contains(key)) text += std::string(" ") + key + " " + event.at(key).dump();
    events.push_back(text);
  }
  CHECK(events == std::vector<std::string>{"process_name 0 p0 ts 0.0", "thread_name 0 one ts 0.0",
                                           "Add 0 ts 1.0 dur 2.0", "process_name 1 p1 ts 0.0",
                                           "thread_name 1 other ts 0.0", "Mul 1 ts 0.5 dur 0.1",
                                           "x 0 ts 2.0 dur 0.0 bind_id 5 flow_out true",
                                           "x 1 ts 2.5 dur 0.0 bind_id 5 flow_in true"});
}

TEST_CASE("a path that cannot be written is an error that names it") {
  CHECK_THROWS_WITH_AS(SaveChromeTrace({}, "/no/such/folder/trace.json"),
                       doctest::Contains("/no/such/folder/trace.json"), Error);
}

}  // namespace
}  // namespace chrome_trace_test
