// The writer of Perfetto traces. Field numbers are those of perfetto's protos/perfetto/trace.
#ifndef OPKIT_PROFILE_IMPL_PERFETTO_TRACE_IPP_
#define OPKIT_PROFILE_IMPL_PERFETTO_TRACE_IPP_

#include <algorithm>
#include <bit>
#include <map>

#include "opkit/base/output_file.hpp"
#include "opkit/profile/json_text.hpp"
#include "opkit/profile/perfetto_trace.hpp"
#include "opkit/profile/trace_visitor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Builds one message of a protocol buffer, with the wire types varint, fixed64 and
// length-delimited.
class ProtoMessage {
 public:
  ProtoMessage& Number(int field, uint64_t value) {
    Varint(static_cast<uint64_t>(field) << 3);
    Varint(value);
    return *this;
  }
  ProtoMessage& Fixed(int field, uint64_t value) {
    Varint(static_cast<uint64_t>(field) << 3 | 1);
    for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  ProtoMessage& Text(int field, std::string_view text) {
    Varint(static_cast<uint64_t>(field) << 3 | 2);
    Varint(text.size());
    bytes_ += text;
    return *this;
  }
  ProtoMessage& Message(int field, const ProtoMessage& message) {
    return Text(field, message.bytes_);
  }
  const std::string& bytes() const { return bytes_; }
  void Clear() { bytes_.clear(); }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

// Writes the packets of one profile to a file, in blocks of about kBlock bytes.
class PerfettoTrace final : TraceVisitor {
 public:
  PerfettoTrace(const Profile& profile, OutputFile& file)
      : TraceVisitor(profile), file_(file), pid_(static_cast<uint64_t>(getpid())) {}

  void Write() {
    ProtoMessage process;
    process.Number(1, pid_).Text(6, Utf8(program_invocation_short_name));
    Describe(ProtoMessage().Number(1, kProcess).Message(3, process));
    for (size_t i = 0; i < profile_.threads.size(); ++i) {
      const ProfileThread& thread = profile_.threads[i];
      ProtoMessage described;
      described.Number(1, pid_).Number(2, static_cast<uint64_t>(thread.id));
      described.Text(5, Utf8(thread.name));
      Describe(ProtoMessage().Number(1, TrackOf(static_cast<int>(i))).Message(4, described));
    }
    VisitMarkers();
    VisitSpans();
    WriteAsynchronous();
    VisitCounters();
    WriteInstants();
    Flush();
  }

 private:
  enum Type : uint64_t { kBegin = 1, kEnd = 2, kInstant = 3, kCounter = 4 };
  // A sequence of packets in order of time, with its own interned names and last time.
  struct Sequence {
    uint64_t id;
    int64_t time = 0;
    std::map<std::string, uint64_t> names = {}, categories = {};
  };
  // A run's work after its span. The writer writes it after all slices.
  struct Run {
    int64_t begin, end;
    uint64_t id;
    const TraceName* name;
  };
  // A marker, or a push at which an arrow begins.
  struct Instant {
    int64_t time;
    const std::string* name;
    const char* category;
    uint64_t track, flow;
  };
  static constexpr uint64_t kProcess = 1;
  static constexpr uint64_t kClock = 64;  // the first clock id that a sequence may define
  static constexpr size_t kBlock = 1 << 20;

  static uint64_t TrackOf(int thread) { return 2 + static_cast<uint64_t>(thread); }
  static std::string Utf8(std::string_view text) {
    std::string out;
    ForEachCharacter(text, [&](std::string_view character) { out += character; });
    return out;
  }

  void Flush() {
    file_.Write(out_.bytes());
    out_.Clear();
  }
  void Packet(const ProtoMessage& packet) {
    out_.Message(1, packet);
    if (out_.bytes().size() > kBlock) Flush();
  }
  void Describe(const ProtoMessage& track) { Packet(ProtoMessage().Message(60, track)); }
  // Writes the packet that a reader needs before the sequence's first event: a clock that counts ns
  // from the event before, and `track` as the track of events that name no other.
  Sequence BeginSequence(uint64_t track) {
    Sequence sequence{++sequences_};
    ProtoMessage clock, boot, snapshot, defaults;
    boot.Number(1, 6).Number(2, 0);
    clock.Number(1, kClock).Number(2, 0).Number(3, 1);
    snapshot.Message(1, boot).Message(1, clock);
    defaults.Number(58, kClock).Message(11, ProtoMessage().Number(11, track));
    ProtoMessage packet;
    packet.Number(10, sequence.id).Number(13, 1).Message(59, defaults);
    Packet(packet.Message(6, snapshot));
    return sequence;
  }
  static uint64_t Intern(std::map<std::string, uint64_t>& known, const std::string& text, int field,
                         ProtoMessage& interned) {
    const auto [found, is_new] = known.try_emplace(text, known.size() + 1);
    if (is_new)
      interned.Message(field, ProtoMessage().Number(1, found->second).Text(2, Utf8(text)));
    return found->second;
  }
  // Writes an event. `event` holds all members except type, name and category. An end event has
  // neither name nor category: a reader takes them from the begin event.
  void Event(Sequence& sequence, Type type, int64_t time, const std::string& name,
             const char* category, ProtoMessage event = {}) {
    ProtoMessage interned;
    if (*category) event.Number(3, Intern(sequence.categories, category, 1, interned));
    event.Number(9, type);
    if (!name.empty()) event.Number(10, Intern(sequence.names, name, 2, interned));
    ProtoMessage packet;
    packet.Number(8, static_cast<uint64_t>(time - sequence.time)).Number(10, sequence.id);
    packet.Message(11, event);
    if (!interned.bytes().empty()) packet.Message(12, interned);
    packet.Number(13, 2);
    sequence.time = time;
    Packet(packet);
  }
  static void Annotate(ProtoMessage& event, std::string_view name, uint64_t value) {
    event.Message(4, ProtoMessage().Text(10, name).Number(3, value));
  }

  void OnSpan(const ProfileSpan& span, const TraceName& name) override {
    if (span.thread != thread_) {
      thread_ = span.thread;
      slices_ = BeginSequence(TrackOf(thread_));
    }
    event_ = {};
    if (span.adopted || span.pushed >= 0 || AsynchronousTime(span).second >= 0 ||
        span.kind == Invocation::Kind::kCustomOperator)
      Annotate(event_, "id", span.id);
    if (span.node != 0) OnFact({TraceFact::Kind::kText, "node", 0, Text(span.node)});
    VisitFacts(span);
    if (span.pushed >= 0) event_.Fixed(48, span.id);
    Event(slices_, kBegin, span.begin, name.text, name.domain, std::move(event_));
  }
  void OnFact(const TraceFact& fact) override {
    if (fact.kind == TraceFact::Kind::kText)
      event_.Message(4, ProtoMessage().Text(10, fact.name).Text(6, Utf8(fact.text)));
    else if (fact.kind != TraceFact::Kind::kTime)  // viewers show the length of an arrow
      Annotate(event_, fact.name, fact.number);
  }
  void OnUserCode(const ProfileSpan&, const TraceName& name, int64_t begin, int64_t end) override {
    Event(slices_, kBegin, begin, name.text, name.domain);
    Event(slices_, kEnd, end, "", "");
  }
  void OnSpanEnd(const ProfileSpan& span) override { Event(slices_, kEnd, span.end, "", ""); }
  void OnAsynchronous(const ProfileSpan& span, const TraceName& name, int64_t begin,
                      int64_t end) override {
    runs_.push_back({begin, end, span.id, &name});
  }
  void OnPush(const ProfileSpan& span, const TraceName& name) override {
    instants_.push_back({span.pushed, &name.text, "push", TrackOf(span.pusher), span.id});
  }
  void OnMarker(const ProfileMarker& marker, const std::string& name) override {
    instants_.push_back(
        {marker.time, &name, marker.frame ? "frame" : "marker", TrackOf(marker.thread), 0});
  }
  void OnCounter(const ProfileCounter& counter, const std::string& name) override {
    if (!__builtin_isfinite(counter.value)) return;  // a Chrome trace leaves out such values, too
    if (counter_tracks_.empty()) counters_ = BeginSequence(kProcess);
    uint64_t& track = counter_tracks_[counter.name];
    if (track == 0) track = NewTrack(name, /*is_counter=*/true);
    Event(counters_, kCounter, counter.time, "", "",
          ProtoMessage().Number(11, track).Fixed(44, std::bit_cast<uint64_t>(counter.value)));
  }

  void WriteAsynchronous() {
    std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.id < b.id;
    });
    struct Lane {
      uint64_t track;
      Sequence sequence;
      int64_t end;
    };
    std::vector<Lane> lanes;
    for (const Run& run : runs_) {
      auto lane = std::find_if(lanes.begin(), lanes.end(),
                               [&](const Lane& other) { return other.end <= run.begin; });
      if (lane == lanes.end()) {
        const uint64_t track = NewTrack("asynchronous");
        lane = lanes.insert(lane, {track, BeginSequence(track), 0});
      }
      ProtoMessage event;
      Annotate(event, "id", run.id);
      Event(lane->sequence, kBegin, run.begin, run.name->text, "asynchronous", std::move(event));
      Event(lane->sequence, kEnd, run.end, "", "");
      lane->end = run.end;
    }
  }
  void WriteInstants() {
    if (instants_.empty()) return;
    std::stable_sort(instants_.begin(), instants_.end(),
                     [](const Instant& a, const Instant& b) { return a.time < b.time; });
    Sequence sequence = BeginSequence(kProcess);
    for (const Instant& instant : instants_) {
      ProtoMessage event;
      event.Number(11, instant.track);
      if (instant.flow != 0) event.Fixed(47, instant.flow);
      Event(sequence, kInstant, instant.time, *instant.name, instant.category, std::move(event));
    }
  }

  uint64_t NewTrack(const std::string& name, bool is_counter = false) {
    const uint64_t track = TrackOf(static_cast<int>(profile_.threads.size())) + tracks_++;
    ProtoMessage described;
    described.Number(1, track).Text(2, Utf8(name)).Number(5, kProcess);
    if (is_counter) described.Message(8, {});
    Describe(described);
    return track;
  }

  OutputFile& file_;
  const uint64_t pid_;
  uint64_t sequences_ = 0, tracks_ = 0;
  ProtoMessage out_;
  int thread_ = -1;  // the thread whose slices are written; -1 before the first
  Sequence slices_{0}, counters_{0};
  std::map<uint32_t, uint64_t> counter_tracks_;  // by the counter's name
  ProtoMessage event_;                           // the event of the span whose facts are visited
  std::vector<Run> runs_;
  std::vector<Instant> instants_;
};

}  // namespace detail

OPKIT_INLINE void SavePerfettoTrace(const Profile& profile, const std::string& path) {
  detail::OutputFile file(path);
  detail::PerfettoTrace(profile, file).Write();
  file.Commit();
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PERFETTO_TRACE_IPP_
