#include "opkit/profile/trace_visitor.hpp"

#include <doctest/doctest.h>

#include "opkit/profile/chrome_trace.hpp"
#include "opkit/profile/perfetto_trace.hpp"
#include "support/temporary_folder.hpp"
#include "support/text.hpp"

namespace trace_visitor_test {
namespace {

using namespace opkit;

using Lines = std::vector<std::string>;

// Lists the calls of a visit, a line for each.
class Listing final : detail::TraceVisitor {
 public:
  explicit Listing(const Profile& profile) : TraceVisitor(profile) {
    VisitSpans();
    VisitCounters();
    VisitMarkers();
  }
  Lines lines;

 private:
  void OnSpan(const ProfileSpan& span, const detail::TraceName& name) override {
    Add(name.number, " ", name.text, " [", name.domain, "]");
    VisitFacts(span);
  }
  void OnSpanEnd(const ProfileSpan& span) override { Add("end ", span.end); }
  void OnUserCode(const ProfileSpan&, const detail::TraceName& name, int64_t begin,
                  int64_t end) override {
    Add(name.number, " ", name.text, " ", begin, " ", end);
  }
  void OnPush(const ProfileSpan& span, const detail::TraceName& name) override {
    Add("push ", name.text, " by ", span.pusher);
  }
  void OnAsynchronous(const ProfileSpan&, const detail::TraceName& name, int64_t begin,
                      int64_t end) override {
    Add("work ", name.text, " ", begin, " ", end);
  }
  void OnFact(const detail::TraceFact& fact) override {
    Add("  ", fact.name, " ", fact.text.empty() ? StrCat(fact.number) : std::string(fact.text));
  }
  void OnCounter(const ProfileCounter& counter, const std::string& name) override {
    Add("counter ", name, " ", counter.value);
  }
  void OnMarker(const ProfileMarker& marker, const std::string& name) override {
    Add("marker ", name, " ", marker.time);
  }
  template <class... Parts>
  void Add(const Parts&... parts) {
    lines.push_back(StrCat(parts...));
  }
};

ProfileSpan Span(const char* name, uint64_t id, int64_t begin, int64_t end) {
  ProfileSpan span;
  span.kind = Invocation::Kind::kOperator;
  span.name = InternName(name);
  span.id = id;
  span.begin = begin;
  span.end = end;
  return span;
}

// A task that invokes an operator, about which everything is known.
Profile Everything() {
  Profile profile;
  profile.threads = {{1, "main"}, {2, "worker"}};
  ProfileSpan task = Span("Mine", 3, 10, 100), conv = Span("Conv", 4, 20, 50);
  task.kind = Invocation::Kind::kCustomOperator;
  task.custom = InternName("Mine");
  task.pushed = 4;
  task.pusher = 1;
  conv.device = {DeviceType::kCUDA, 1};
  conv.work = {InternName("float32[2]"), 30, 40, InternName("cudnn")};
  conv.device_begin = 60;
  conv.device_end = 90;
  conv.open = true;
  conv.message = {2, 3, 9, 5, 7};
  profile.spans = {task, conv, Span("Conv", 5, 100, 110)};
  profile.counted = {"cycles", "page_faults"};
  profile.counts = {{4, {1000, 2}}};
  profile.counters = {{7, InternName("queue"), 2.5}};
  profile.markers = {{8, InternName("here"), 0, false}};
  return profile;
}

}  // namespace

TEST_CASE("a visit has every span with its facts, in the order of the timeline") {
  CHECK(Listing(Everything()).lines == Lines{"0 Mine [Custom Operators]",
                                             "  wait 6",
                                             "push Mine by 1",
                                             "1 Mine::user_code 10 20",
                                             "2 Conv [operator]",
                                             "  device cuda:1",
                                             "  shapes float32[2]",
                                             "  backend cudnn",
                                             "  flops 30",
                                             "  bytes 40",
                                             "  message from process 2 to 3, channel 5, run 7",
                                             "  cycles 1000",
                                             "  page_faults 2",
                                             "  open 1",
                                             "work Conv 60 90",
                                             "end 50",
                                             "1 Mine::user_code 50 100",
                                             "end 100",
                                             "2 Conv [operator]",
                                             "end 110",
                                             "counter queue 2.5",
                                             "marker here 8"});
}

TEST_CASE("a fact about a span is in traces of both formats") {
  const TemporaryFolder folder;
  SaveChromeTrace(Everything(), folder / "trace.json");
  SavePerfettoTrace(Everything(), folder / "trace.pftrace");
  for (const char* file : {"trace.json", "trace.pftrace"}) {
    CAPTURE(file);
    const std::string trace = ReadFile(folder / file);
    for (const char* part :
         {"device", "cuda:1", "shapes", "float32[2]", "backend", "cudnn", "flops", "bytes",
          "from process 2 to 3", "cycles", "page_faults", "open"})
      CHECK(Contains(trace, part));
  }
}

}  // namespace trace_visitor_test
