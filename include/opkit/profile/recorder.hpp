// Recorder: the sink that keeps what threads do while a profile is recorded. Every thread writes
// fixed-size records with raw clock ticks to chunks of its own; Read decodes them.
#ifndef OPKIT_PROFILE_RECORDER_HPP_
#define OPKIT_PROFILE_RECORDER_HPP_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "opkit/core/allocator.hpp"
#include "opkit/profile/options.hpp"
#include "opkit/profile/profile.hpp"
#include "opkit/profile/tool_ranges.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A record for each span, each completion, push, counter and marker. Behind records kText, which
// hold its bytes, comes the one that has this text as its name. The work of a span has its
// flops in `begin`, its bytes in `end`, its shapes in `name` and its backend in `node`; a change of
// an allocator's memory its bytes in `parent` and what lives after it in `end`; a run on a device
// its times in ns, not in ticks, in `begin` and `end`; what was counted
// during a span three numbers in `begin`, `end` and `parent`, and in `node` which of them is the
// first.
struct ProfileRecord {
  enum class Type : uint8_t {
    kSpan,
    kAdopted,
    kCompleted,
    kOnDevice,
    kPushed,
    kCounter,
    kMarker,
    kFrame,
    kWork,
    kMemory,
    kCounts,
    kText
  };

  uint64_t begin = 0;  // ticks; the only time of what is no span
  uint64_t end = 0;    // ticks; 0 while a span is open; of a counter the bits of its value
  uint64_t id = 0;
  uint64_t parent = 0;
  uint32_t name = 0, node = 0, custom = 0;
  Type type = Type::kSpan;
  InvocationKind kind = InvocationKind::kNone;
  int8_t device_type = 0;
  int8_t device_index = 0;

  // Relaxed, both: a reader finds the span open or ended, and either was true a moment ago.
  void EndSpan(uint64_t now) { std::atomic_ref(end).store(now, std::memory_order_relaxed); }
  uint64_t EndOfSpan() const {
    return std::atomic_ref(const_cast<uint64_t&>(end)).load(std::memory_order_relaxed);
  }
};
static_assert(sizeof(ProfileRecord) == 48);
// A record kText is this instead, with its type in the same place.
struct ProfileText {
  static constexpr size_t kBytes = 44;
  char text[kBytes] = {};  // with zeros behind a shorter one
  ProfileRecord::Type type = ProfileRecord::Type::kText;
  char unused[3] = {};
};
static_assert(sizeof(ProfileText) == sizeof(ProfileRecord) &&
              offsetof(ProfileText, type) == offsetof(ProfileRecord, type));

struct ProfileChunk {
  static constexpr uint32_t kRecords = 2048;
  // What follows of a name that has no number is cut off: the open spans that a ring keeps in a
  // chunk, with their names, must leave room in it.
  static constexpr size_t kLongestText = 6;  // records
  // Release by the owning thread, with the reader's acquire: the records before it are written.
  std::atomic<uint32_t> count{0};
  // Written once as they are made: pages of memory that is new come here, between spans, and not
  // one by one inside of them.
  ProfileRecord records[kRecords];
};

// The records of one thread. Only it writes; the mutex guards the list of chunks.
class ThreadProfile {
 public:
  static constexpr int kMaxDepth = 256;
  static_assert(kMaxDepth * (1 + ProfileChunk::kLongestText) < ProfileChunk::kRecords);

  ThreadProfile();

  // Room for the record of a span that begins, which the caller fills and publishes; null where it
  // is dropped. `text` is its name where that has no number.
  ProfileRecord* Open(uint32_t session, std::string_view text = {}) {
    if (session_ != session) [[unlikely]]
      BeginSession(session);
    const int depth = this->depth_;
    ProfileRecord* record = nullptr;
    if (depth < kMaxDepth) [[likely]] {
      if (counters_) [[unlikely]]
        StartCounts(depth);
      open_[depth] = record = NewRecord(text);
    } else {
      CountDropped();
    }
    depth_ = depth + 1;
    return record;
  }
  void Close(uint32_t session, uint64_t now) {
    if (depth_ == 0) [[unlikely]]
      return;  // the scope began on another thread, where its span stays open
    const int depth = --depth_;
    if (depth < earlier_) [[unlikely]] {
      earlier_ = depth;  // it began in an earlier session
      return;
    }
    if (session_ != session || depth >= kMaxDepth || !open_[depth]) [[unlikely]]
      return;
    ProfileRecord& record = *open_[depth];
    if (record.end == 0) record.EndSpan(now);
    if (counters_) [[unlikely]]
      AddCounts(depth, record.id);
  }
  // The span that began last has ended, though it closes later.
  void End(uint32_t session, uint64_t now) {
    if (ProfileRecord* record = innermost(session)) record->EndSpan(now);
  }
  // The record of the span that began last; null where none of this session is open.
  ProfileRecord* innermost(uint32_t session) const {
    return session_ == session && depth_ > earlier_ && depth_ <= kMaxDepth ? open_[depth_ - 1]
                                                                           : nullptr;
  }
  // The records until now may be read.
  void Publish() { chunk_->count.store(count_, std::memory_order_release); }
  void Add(uint32_t session, const ProfileRecord& record, std::string_view text = {}) {
    if (session_ != session) [[unlikely]]
      BeginSession(session);
    ProfileRecord* const room = NewRecord(text);
    if (!room) return;
    *room = record;
    Publish();
  }
  void ResetAfterFork() {
    mutex_.ResetAfterFork();
    BeginSession(0);
    thread_.id = CurrentThreadId();
  }

 private:
  friend class Recorder;

  // Room for one record, or null, which is counted.
  ProfileRecord* NewRecord(std::string_view text = {}) {
    if (!text.empty()) [[unlikely]]
      return NewNamedRecord(text);
    if (count_ == ProfileChunk::kRecords) [[unlikely]]
      if (!NextChunk()) return CountDropped(), nullptr;
    return &chunk_->records[count_++];
  }
  // The same, behind the text, in one chunk with it.
  OPKIT_COLD ProfileRecord* NewNamedRecord(std::string_view text);
  // Relaxed: a statistic that one thread writes.
  void CountDropped(int64_t records = 1) {
    dropped_.store(dropped_.load(std::memory_order_relaxed) + records, std::memory_order_relaxed);
  }
  OPKIT_COLD void BeginSession(uint32_t session);
  OPKIT_COLD bool NextChunk();
  OPKIT_COLD void StartCounts(int depth);
  OPKIT_COLD void AddCounts(int depth, uint64_t id);

  ProfileChunk* chunk_ = nullptr;
  uint32_t count_ = ProfileChunk::kRecords;
  uint32_t session_ = 0;
  int depth_ = 0;    // of the spans that are open on the thread
  int earlier_ = 0;  // how many of them began in earlier sessions
  std::atomic<int64_t> dropped_{0};
  ProfileRecord* open_[kMaxDepth] = {};       // the open spans, the outermost first
  std::unique_ptr<ThreadCounters> counters_;  // of the session
  int num_counters_ = 0;
  std::vector<ProfileCounts> counts_;  // at the begin of each open span

  Mutex mutex_;
  std::vector<std::unique_ptr<ProfileChunk>> chunks_;  // the oldest first
  ProfileThread thread_;
  bool ended_ = false;
};

// The process has one, which is never destroyed: scopes that are open while it ends still use it.
class Recorder final : public SpanSink, public MemorySink {
 public:
  static Recorder& Get();

  // Begins an empty session. Error (kFailedPrecondition) while one runs.
  void Start(const ProfileOptions& options);
  // Ends or interrupts the recording; what was recorded stays until the next Start.
  void Stop();
  void Pause();
  void Resume();
  bool is_running() const { return CurrentSpanSink() == this; }
  // What this session has recorded until now. Threads go on recording meanwhile.
  Profile Read();

  void Open(Invocation& now, SpanNames names, const Device* device, bool adopted) noexcept override;
  void Close() noexcept override;
  bool WantsWork() const noexcept override { return shapes_.load(std::memory_order_relaxed); }
  bool WantsEngine() const noexcept override { return engine_.load(std::memory_order_relaxed); }
  void Marked(uint32_t name) noexcept override { Note(ProfileRecord::Type::kMarker, {name}, 0); }
  void EndSpan() noexcept override;
  void Describe(const SpanWork& work) noexcept override;
  void Completed(uint64_t id) noexcept override;
  void RanOnDevice(uint64_t id, int64_t begin, int64_t end) noexcept override;
  void Pushed(const Invocation& task, SpanNames names) noexcept override;
  void Note(ProfileRecord::Type type, SpanNames names, double value) noexcept;
  void Changed(const Allocator& allocator, int64_t bytes, int64_t live) noexcept override;

  // A chunk's place in the bound on memory. False where there is none.
  bool TakeChunk();
  // The oldest chunk of a thread that has ended, for a ring that has no room; null where there is
  // none.
  std::unique_ptr<ProfileChunk> TakeChunkOfEnded();
  bool is_ring() const { return ring_.load(std::memory_order_relaxed); }
  bool wants_crash_trace() const { return crash_trace_.load(std::memory_order_relaxed); }
  // A thread ends. What it has recorded stays, and it is deleted when nothing is left of that.
  void Ended(ThreadProfile* thread);
  // The session's counters on the calling thread, and how many; null where it counts nothing.
  std::unique_ptr<ThreadCounters> OpenCounters(int& count);

 private:
  struct Instant {
    uint64_t ticks;
    int64_t ns;
    static Instant Now();
  };
  ThreadProfile* OfThread();
  OPKIT_COLD ThreadProfile* MakeOfThread();
  // Deletes the profile of a thread that has ended, under the mutex.
  void Forget(ThreadProfile* thread);
  void Add(const ProfileRecord& record, std::string_view text = {}) noexcept;
  static uint32_t CustomPath(uint32_t outer, uint32_t name);
  static void Sort(Profile& profile);
  // What a span costs its thread, measured now.
  double TicksOfSpan();
  void ResetAfterFork();
  OPKIT_COLD static void PushRange(const ToolRanges& tools, const Invocation& now, SpanNames names,
                                   bool adopted) noexcept;
  // Lets the threads record, or not.
  void Install(bool on);

  // Relaxed: it never changes once it is there, and that is before a span finds the recorder, which
  // CurrentSpanSink orders.
  std::atomic<const ToolRanges*> tools_{nullptr};
  Mutex mutex_;  // guards what follows, but for the atomics
  std::vector<ThreadProfile*> threads_;
  const Instant origin_ = Instant::Now();
  Instant start_ = origin_;
  uint64_t stopped_ = 0;  // ticks; 0 while it runs or is paused
  int64_t dropped_ = 0;   // records of threads that have been deleted
  bool memory_ = false;
  Mutex counters_mutex_;  // guards the next three; a thread may see a session before it has begun
  std::vector<std::string> counted_, absent_;
  CounterSource* counter_source_ = nullptr;
  // Relaxed, as the two below.
  std::atomic<bool> shapes_{false}, engine_{false}, ring_{false}, crash_trace_{false};
  // Relaxed, both: a thread that sees a new session late still writes to the one before.
  std::atomic<uint32_t> session_{0};
  std::atomic<int64_t> chunks_left_{0};
};

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/impl/recorder.ipp"
#endif

#endif  // OPKIT_PROFILE_RECORDER_HPP_
