// The writer of Chrome traces.
#ifndef OPKIT_PROFILE_IMPL_CHROME_TRACE_IPP_
#define OPKIT_PROFILE_IMPL_CHROME_TRACE_IPP_

#include <utility>

#include "opkit/base/index.hpp"
#include "opkit/base/output_file.hpp"
#include "opkit/profile/chrome_trace.hpp"
#include "opkit/profile/json_text.hpp"
#include "opkit/profile/trace_visitor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The text of a trace's file, which goes there in blocks of about kBlock bytes.
class ChromeTraceFile {
 public:
  explicit ChromeTraceFile(const std::string& path) : file_(path) {}
  void Begin(int64_t dropped) {
    json.BeginObject().Member("displayTimeUnit", "ns");
    json.Key("distributedInfo").BeginObject().Member("rank", 0).EndObject();
    json.Key("otherData").BeginObject().Member("dropped", dropped).EndObject();
    json.Key("traceEvents").BeginArray();
  }
  // Writes a full block.
  void Flush() {
    if (out_.size() <= kBlock) return;
    file_.Write(out_);
    out_.clear();
  }
  void End() {
    json.NewLine().EndArray().EndObject();
    file_.Write(out_ + '\n');
    file_.Commit();
  }

 private:
  static constexpr size_t kBlock = 1 << 20;

  OutputFile file_;
  std::string out_;

 public:
  JsonWriter json{out_, JsonWriter::kCompact};
};

// Writes the events of one profile.
class ChromeTrace final : TraceVisitor {
 public:
  ChromeTrace(const Profile& profile, ChromeTraceFile& file, int64_t pid)
      : TraceVisitor(profile), file_(file), pid_(pid) {}

  void Write(std::string_view process) {
    WriteName("process_name", -1, process);
    for (size_t i = 0; i < profile_.threads.size(); ++i)
      WriteName("thread_name", static_cast<int>(i), profile_.threads[i].name);
    VisitSpans();
    VisitCounters();
    VisitMarkers();
  }
  // Writes one end of an arrow: its begin ("flow_out") or its end ("flow_in").
  void WriteArrow(const TraceArrow& arrow, const char* end, const TraceArrow::End& place) {
    Begin("X", Quoted(arrow.name), place.time);
    Time("dur", 0);
    Thread(place.thread);
    json_.Member("cat", "communication");
    Flow(arrow.id, end);
    json_.EndObject();
  }

 private:
  void WriteName(const char* kind, int thread, std::string_view name) {
    Begin("M", Quoted(kind), 0);
    if (thread >= 0) Thread(thread);
    json_.Key("args").BeginObject().Member("name", name).EndObject().EndObject();
  }
  void OnSpan(const ProfileSpan& span, const TraceName& name) override {
    Begin("X", Quoted(name), span.begin);
    Time("dur", span.end - span.begin);
    Thread(span.thread);
    json_.Member("cat", name.domain).Key("args").BeginObject();
    json_.Member("id", span.id).Member("parent", span.parent);
    if (span.node != 0) json_.Member("node", Text(span.node));
    VisitFacts(span);
    json_.EndObject();
    if (IsTask(span)) Flow(span.id, "flow_in");
    json_.EndObject();
  }
  void OnFact(const TraceFact& fact) override {
    switch (fact.kind) {
      case TraceFact::Kind::kText:
        json_.Member(fact.name, fact.text);
        return;
      case TraceFact::Kind::kCount:
        json_.Member(fact.name, fact.number);
        return;
      case TraceFact::Kind::kTime:
        return Time(StrCat(fact.name, "_us"), static_cast<int64_t>(fact.number));
      case TraceFact::Kind::kFlag:
        json_.Member(fact.name, true);
    }
  }
  // Writes the push as a slice: an arrow begins at a slice, and there may be none at a push.
  void OnPush(const ProfileSpan& span, const TraceName& name) override {
    Begin("X", Quoted(name), span.pushed);
    Time("dur", 0);
    Thread(span.pusher);
    json_.Member("cat", "push");
    Flow(span.id, "flow_out");
    json_.EndObject();
  }
  // Writes two events that the invocation's id connects.
  void OnAsynchronous(const ProfileSpan& span, const TraceName& name, int64_t begin,
                      int64_t end) override {
    for (const auto& [phase, time] : {std::pair("b", begin), std::pair("e", end)}) {
      Begin(phase, Quoted(name), time);
      Thread(span.thread);
      json_.Member("cat", "asynchronous").Member("id", span.id).EndObject();
    }
  }
  void OnUserCode(const ProfileSpan& span, const TraceName& name, int64_t begin,
                  int64_t end) override {
    Begin("X", Quoted(name), begin);
    Time("dur", end - begin);
    Thread(span.thread);
    json_.Member("cat", name.domain).Key("args").BeginObject().Member("parent", span.id);
    json_.EndObject().EndObject();
  }
  void OnCounter(const ProfileCounter& counter, const std::string& name) override {
    if (!__builtin_isfinite(counter.value)) return;  // not in JSON; viewers reject null
    Begin("C", Quoted(name), counter.time);
    json_.Key("args").BeginObject().Member("value", counter.value).EndObject().EndObject();
  }
  void OnMarker(const ProfileMarker& marker, const std::string& name) override {
    Begin("i", Quoted(name), marker.time);
    Thread(marker.thread);
    json_.Member("cat", marker.frame ? "frame" : "marker").Member("s", marker.frame ? "p" : "t");
    json_.EndObject();
  }

  // Marks the event as the beginning ("flow_out") or end ("flow_in") of an arrow.
  void Flow(uint64_t id, const char* end) { json_.Member("bind_id", id).Member(end, true); }
  // Begins an event; `name` is in quotes.
  void Begin(const char* phase, std::string_view name, int64_t time) {
    file_.Flush();
    json_.NewLine().BeginObject().Member("ph", phase).Key("name").Item() += name;
    Time("ts", time);
    json_.Member("pid", pid_);
  }
  void Time(std::string_view key, int64_t ns) { AppendMicroseconds(json_.Key(key).Item(), ns); }
  void Thread(int thread) { json_.Member("tid", profile_.threads[Index(thread)].id); }

  static std::string Quoted(std::string_view text) {
    std::string out;
    AppendJsonString(out, text);
    return out;
  }
  // Cached, since spans share few names.
  const std::string& Quoted(const TraceName& name) {
    if (name.number >= quoted_.size()) quoted_.resize(name.number + 1);
    std::string& quoted = quoted_[name.number];
    if (quoted.empty()) quoted = Quoted(name.text);
    return quoted;
  }

  ChromeTraceFile& file_;
  const int64_t pid_;
  JsonWriter& json_ = file_.json;
  std::vector<std::string> quoted_;  // by number of the name
};

}  // namespace detail

OPKIT_INLINE void SaveChromeTrace(const Profile& profile, const std::string& path) {
  detail::ChromeTraceFile file(path);
  file.Begin(profile.dropped);
  detail::ChromeTrace(profile, file, getpid()).Write(program_invocation_short_name);
  file.End();
}

OPKIT_INLINE void SaveChromeTrace(const std::vector<TraceProcess>& processes,
                                  const std::vector<TraceArrow>& arrows, const std::string& path) {
  int64_t dropped = 0;
  for (const TraceProcess& process : processes) dropped += process.profile->dropped;
  detail::ChromeTraceFile file(path);
  file.Begin(dropped);
  const auto trace = [&](size_t process) {
    return detail::ChromeTrace(*processes[process].profile, file, static_cast<int64_t>(process));
  };
  for (size_t process = 0; process < processes.size(); ++process)
    trace(process).Write(processes[process].name);
  for (const TraceArrow& arrow : arrows) {
    trace(arrow.from.process).WriteArrow(arrow, "flow_out", arrow.from);
    trace(arrow.to.process).WriteArrow(arrow, "flow_in", arrow.to);
  }
  file.End();
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_CHROME_TRACE_IPP_
