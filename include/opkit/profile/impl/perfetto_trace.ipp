// The writer of Perfetto traces. Field numbers are those of perfetto's protos/perfetto/trace.
#ifndef OPKIT_PROFILE_IMPL_PERFETTO_TRACE_IPP_
#define OPKIT_PROFILE_IMPL_PERFETTO_TRACE_IPP_

#include <algorithm>
#include <bit>
#include <map>

#include "opkit/base/index.hpp"
#include "opkit/base/output_file.hpp"
#include "opkit/profile/json_text.hpp"
#include "opkit/profile/nesting.hpp"
#include "opkit/profile/perfetto_trace.hpp"

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
class PerfettoTrace {
 public:
  PerfettoTrace(const Profile& profile, OutputFile& file)
      : profile_(profile), file_(file), pid_(static_cast<uint64_t>(getpid())) {}

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
    WriteSlices();
    WriteAsynchronous();
    WriteCounters();
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
  // Writes what a reader needs before the sequence's first event: a clock that counts ns from the
  // event before, and `track` as the track of events that name no other.
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
  // Writes an event. `event` holds all members except type, name and category. An end has neither
  // name nor category: those of its begin count.
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

  static void AnnotateName(ProtoMessage& event, std::string_view name, uint32_t interned) {
    event.Message(4, ProtoMessage().Text(10, name).Text(6, Utf8(InternedName(interned))));
  }

  void WriteSlices() {
    int thread = -1;
    Sequence sequence{0};
    const auto end = [&](int64_t time) { Event(sequence, kEnd, time, "", ""); };
    WalkSpans(
        profile_,
        [&](const ProfileSpan& span) {
          if (span.thread != thread) {
            thread = span.thread;
            sequence = BeginSequence(TrackOf(thread));
          }
          ProtoMessage event;
          const bool is_task = span.pushed >= 0;
          if (span.adopted || is_task || AsynchronousTime(span).second >= 0 ||
              span.kind == InvocationKind::kCustomOperator)
            Annotate(event, "id", span.id);
          if (span.node != 0) AnnotateName(event, "node", span.node);
          if (span.work.shapes != 0) {
            AnnotateName(event, "shapes", span.work.shapes);
            AnnotateName(event, "backend", span.work.backend);
            Annotate(event, "flops", span.work.flops);
            Annotate(event, "bytes", span.work.bytes);
          }
          if (is_task) event.Fixed(48, span.id);
          Event(sequence, kBegin, span.begin, NameOf(span), DomainOf(span), std::move(event));
        },
        [&](const ProfileSpan& span, int64_t from, int64_t to) {
          if (!HasUserCode(span)) return;
          Event(sequence, kBegin, from, UserCodeName(span), DomainOf(span));
          end(to);
        },
        [&](const ProfileSpan& span, int64_t) { end(span.end); });
  }
  void WriteAsynchronous() {
    struct Run {
      int64_t begin, end;
      const ProfileSpan* span;
    };
    std::vector<Run> runs;
    for (const ProfileSpan& span : profile_.spans)
      if (const auto [from, to] = AsynchronousTime(span); to >= 0)
        runs.push_back({from, to, &span});
    std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.span->id < b.span->id;
    });
    struct Lane {
      uint64_t track;
      Sequence sequence;
      int64_t end;
    };
    std::vector<Lane> lanes;
    for (const auto& [begin, end, span] : runs) {
      auto lane = std::find_if(lanes.begin(), lanes.end(),
                               [from = begin](const Lane& other) { return other.end <= from; });
      if (lane == lanes.end()) {
        const uint64_t track = NewTrack("asynchronous");
        lane = lanes.insert(lane, {track, BeginSequence(track), 0});
      }
      ProtoMessage event;
      Annotate(event, "id", span->id);
      Event(lane->sequence, kBegin, begin, NameOf(*span), "asynchronous", std::move(event));
      Event(lane->sequence, kEnd, end, "", "");
      lane->end = end;
    }
  }
  void WriteCounters() {
    std::map<uint32_t, uint64_t> tracks;
    if (profile_.counters.empty()) return;
    Sequence sequence = BeginSequence(kProcess);
    for (const ProfileCounter& counter : profile_.counters) {
      if (!__builtin_isfinite(counter.value)) continue;  // as in a Chrome trace
      uint64_t& track = tracks[counter.name];
      if (track == 0) track = NewTrack(InternedName(counter.name), /*is_counter=*/true);
      Event(sequence, kCounter, counter.time, "", "",
            ProtoMessage().Number(11, track).Fixed(44, std::bit_cast<uint64_t>(counter.value)));
    }
  }
  // Writes the markers, and the pushes at which arrows begin.
  void WriteInstants() {
    struct Instant {
      int64_t time;
      std::string name;
      const char* category;
      uint64_t track, flow;
    };
    std::vector<Instant> instants;
    for (const ProfileMarker& marker : profile_.markers)
      instants.push_back({marker.time, InternedName(marker.name), marker.frame ? "frame" : "marker",
                          TrackOf(marker.thread), 0});
    for (const ProfileSpan& span : profile_.spans)
      if (span.pushed >= 0 && span.pusher >= 0)
        instants.push_back({span.pushed, NameOf(span), "push", TrackOf(span.pusher), span.id});
    if (instants.empty()) return;
    std::stable_sort(instants.begin(), instants.end(),
                     [](const Instant& a, const Instant& b) { return a.time < b.time; });
    Sequence sequence = BeginSequence(kProcess);
    for (const Instant& instant : instants) {
      ProtoMessage event;
      event.Number(11, instant.track);
      if (instant.flow != 0) event.Fixed(47, instant.flow);
      Event(sequence, kInstant, instant.time, instant.name, instant.category, std::move(event));
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
  const std::string& NameOf(const ProfileSpan& span) {
    std::string& name = names_.Of(span);
    if (name.empty()) name = DisplayName(span);
    return name;
  }

  const Profile& profile_;
  OutputFile& file_;
  const uint64_t pid_;
  uint64_t sequences_ = 0, tracks_ = 0;
  ProtoMessage out_;
  PerName<std::string> names_;
};

}  // namespace detail

OPKIT_INLINE void SavePerfettoTrace(const Profile& profile, const std::string& path) {
  detail::OutputFile file(path);
  detail::PerfettoTrace(profile, file).Write();
  file.Commit();
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_IMPL_PERFETTO_TRACE_IPP_
