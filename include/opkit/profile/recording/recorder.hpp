// Recorder: the sink that records what threads do while a profiler session runs. Each thread writes
// fixed-size records with raw clock ticks to its own chunks; Read decodes them (decoder.hpp).
#ifndef OPKIT_PROFILE_RECORDING_RECORDER_HPP_
#define OPKIT_PROFILE_RECORDING_RECORDER_HPP_

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "opkit/core/allocator.hpp"
#include "opkit/profile/options.hpp"
#include "opkit/profile/profile.hpp"
#include "opkit/profile/recording/record.hpp"
#include "opkit/profile/tool_ranges.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

struct ProfileChunk {
  static constexpr uint32_t kRecords = 2048;
  // Limit on a name without an interned number; the rest is cut off. A ring keeps the open spans
  // and their names in one chunk, which must have room for more.
  static constexpr size_t kLongestText = 6;  // records
  // Stored with release by the owning thread, loaded with acquire by the reader: the records before
  // it are complete.
  std::atomic<uint32_t> count{0};
  // Zeroed once when the chunk is made: the page faults of new memory then happen between spans,
  // and do not make single spans longer.
  ProfileRecord records[kRecords] = {};
};

// The records of one thread. No other thread writes them. The mutex guards the list of chunks.
class ThreadProfile {
 public:
  static constexpr int kMaxDepth = 256;
  static_assert(kMaxDepth * (1 + ProfileChunk::kLongestText) < ProfileChunk::kRecords);

  ThreadProfile();

  // Returns room for the record of a new span, which the caller fills and publishes; null if the
  // span is dropped. `text` is the span's name if it has no interned number.
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
      earlier_ = depth;  // the span began in an earlier session
      return;
    }
    if (session_ != session || depth >= kMaxDepth || !open_[depth]) [[unlikely]]
      return;
    SpanRecord& span = open_[depth]->span;
    if (span.end == 0) span.End(now);
    if (counters_) [[unlikely]]
      AddCounts(depth, span.id);
  }
  // Sets the end of the innermost span, which closes later.
  void End(uint32_t session, uint64_t now) {
    if (ProfileRecord* record = innermost(session)) record->span.End(now);
  }
  // Returns the record of the innermost open span; null if this session has none.
  ProfileRecord* innermost(uint32_t session) const {
    return session_ == session && depth_ > earlier_ && depth_ <= kMaxDepth ? open_[depth_ - 1]
                                                                           : nullptr;
  }
  // Makes the records written so far visible to readers.
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

  // Returns room for one record. If there is none, counts a dropped record and returns null.
  ProfileRecord* NewRecord(std::string_view text = {}) {
    if (!text.empty()) [[unlikely]]
      return NewNamedRecord(text);
    if (count_ == ProfileChunk::kRecords) [[unlikely]]
      if (!NextChunk()) return CountDropped(), nullptr;
    return &chunk_->records[count_++];
  }
  // Writes `text` into as many records as it needs, and returns room for one record directly behind
  // them, in the same chunk.
  OPKIT_COLD ProfileRecord* NewNamedRecord(std::string_view text);
  // Relaxed: a statistic with one writer.
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
  int depth_ = 0;    // number of open spans on the thread
  int earlier_ = 0;  // how many of them began in earlier sessions
  std::atomic<int64_t> dropped_{0};
  ProfileRecord* open_[kMaxDepth] = {};       // the open spans, the outermost first
  std::unique_ptr<ThreadCounters> counters_;  // the session's; null if it counts nothing
  int num_counters_ = 0;
  std::vector<ProfileCounts> counts_;  // at the begin of each open span, by depth

  Mutex mutex_;
  std::vector<std::unique_ptr<ProfileChunk>> chunks_;  // the oldest first
  ProfileThread thread_;
  bool ended_ = false;
};

// Records the spans and allocations of all threads. One object per process, never destroyed: scopes
// that are open when the process ends still use it.
class Recorder final : public SpanSink, public MemorySink {
 public:
  static Recorder& Global();

  // Begins an empty session. Throws kFailedPrecondition while a session runs, kInvalidArgument for
  // wrong options.
  void Start(const ProfileOptions& options);
  // Stop ends the recording, Pause interrupts it. The records stay until the next Start.
  void Stop();
  void Pause();
  void Resume();
  bool is_running() const { return CurrentSpanSink() == this; }
  // Returns this session's recording so far. Threads continue to record meanwhile.
  Profile Read();

  void Open(Invocation& now, SpanNames names, const Device* device, bool adopted) noexcept override;
  void Close() noexcept override;
  bool WantsWork() const noexcept override { return shapes_.load(std::memory_order_relaxed); }
  bool WantsEngine() const noexcept override { return engine_.load(std::memory_order_relaxed); }
  void Marked(uint32_t name) noexcept override { Mark({name}, /*frame=*/false); }
  void EndSpan() noexcept override;
  void Describe(const SpanWork& work) noexcept override;
  void Completed(uint64_t id) noexcept override;
  void RanOnDevice(uint64_t id, int64_t begin, int64_t end) noexcept override;
  void Pushed(const Invocation& task, SpanNames names) noexcept override;
  void Mark(SpanNames names, bool frame) noexcept;
  void Count(SpanNames names, double value) noexcept;
  // Records that the run `id` sent or received a message.
  void Communicated(uint64_t id, const ProfileMessage& message) noexcept;
  void Changed(const Allocator& allocator, int64_t bytes, int64_t live) noexcept override;

  // Reserves one chunk of the bound on memory. False if the bound is reached.
  bool TakeChunk();
  // Takes the oldest chunk of a thread that has ended, for a full ring; null if there is none.
  std::unique_ptr<ProfileChunk> TakeChunkOfEnded();
  bool is_ring() const { return ring_.load(std::memory_order_relaxed); }
  bool wants_crash_trace() const { return crash_trace_.load(std::memory_order_relaxed); }
  // Marks a thread as ended. Its records stay; the object is deleted with the last of them.
  void Ended(ThreadProfile* thread);
  // Opens the session's counters on the calling thread and sets `count` to their number; null if
  // the session counts nothing.
  std::unique_ptr<ThreadCounters> OpenCounters(int& count);

 private:
  // One point in time on both clocks.
  struct Instant {
    uint64_t ticks;
    int64_t ns;
    static Instant Now();
  };
  // Returns the calling thread's profile, and makes it first if needed; null if that fails or while
  // the thread ends.
  ThreadProfile* OfThread();
  OPKIT_COLD ThreadProfile* MakeOfThread();
  // Deletes the profile of a thread that has ended. The caller holds the mutex.
  void Forget(ThreadProfile* thread);
  void Add(const ProfileRecord& record, std::string_view text = {}) noexcept;
  // Returns the interned path "outer::name".
  static uint32_t CustomPath(uint32_t outer, uint32_t name);
  // Measures the ticks that a span costs its thread.
  double TicksOfSpan();
  void ResetAfterFork();
  OPKIT_COLD static void PushRange(const ToolRanges& tools, const Invocation& now, SpanNames names,
                                   bool adopted) noexcept;
  // Installs the recorder as the sink of spans and memory, or removes it.
  void Install(bool on);

  // Relaxed: every Start stores the same pointer. A thread finds the recorder by an acquire load
  // in CurrentSpanSink, so it also sees the pointer that the first Start stored before.
  std::atomic<const ToolRanges*> tools_{nullptr};
  Mutex mutex_;  // guards the members below, except atomics and those of counters_mutex_
  std::vector<ThreadProfile*> threads_;
  const Instant origin_ = Instant::Now();
  Instant start_ = origin_;
  uint64_t stopped_ = 0;  // ticks; 0 while the session runs or is paused
  int64_t dropped_ = 0;   // records dropped by deleted threads, or in chunks taken from ended ones
  bool memory_ = false;
  // Guards the next three members: a thread may see the new session before Start stores them.
  Mutex counters_mutex_;
  std::vector<std::string> counted_, absent_;
  CounterSource* counter_source_ = nullptr;
  // Relaxed, like the two below.
  std::atomic<bool> shapes_{false}, engine_{false}, ring_{false}, crash_trace_{false};
  // Both relaxed: a thread that sees a new session late still writes to the previous one.
  std::atomic<uint32_t> session_{0};
  std::atomic<int64_t> chunks_left_{0};
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/recording/impl/recorder.ipp"
#endif

#endif  // OPKIT_PROFILE_RECORDING_RECORDER_HPP_
