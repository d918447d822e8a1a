// Recorder: the sink that keeps what threads do while a profile is recorded. Every thread writes
// fixed-size records with raw clock ticks to chunks of its own; Read decodes them.
#ifndef OPKIT_PROFILE_RECORDER_HPP_
#define OPKIT_PROFILE_RECORDER_HPP_

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "opkit/core/allocator.hpp"
#include "opkit/profile/options.hpp"
#include "opkit/profile/profile.hpp"
#include "opkit/profile/tool_ranges.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// One of these for each span that has ended, each completion, push, counter and marker. The work of
// a span has its flops in `begin`, its bytes in `end`, its shapes in `name` and its backend in
// `node`; a change of an
// allocator's memory its bytes in `parent` and what lives after it in `end`; what was counted
// during a span three numbers in `begin`, `end` and `parent`, and in `node` which of them is the
// first.
struct ProfileRecord {
  enum class Type : uint8_t {
    kSpan,
    kAdopted,
    kCompleted,
    kPushed,
    kCounter,
    kMarker,
    kFrame,
    kWork,
    kMemory,
    kCounts
  };

  uint64_t begin = 0;  // ticks; the only time of what is no span
  uint64_t end = 0;    // ticks; of a counter the bits of its value
  uint64_t id = 0;
  uint64_t parent = 0;
  uint32_t name = 0, node = 0, custom = 0;
  Type type = Type::kSpan;
  InvocationKind kind = InvocationKind::kNone;
  int8_t device_type = 0;
  int8_t device_index = 0;
};
static_assert(sizeof(ProfileRecord) == 48);

// The record of a span that is open, in words that a reader may copy while the thread writes. Each
// is stored and loaded whole: a load of what narrower stores have just written would wait for them.
class OpenRecord {
 public:
  // Its thread only, both. The times are those of the begin, and 0.
  void Set(const ProfileRecord& record) {
    id_.store(0, std::memory_order_relaxed);
    // Release: a reader that sees one of these sees the 0 before it as well.
    parent_.store(record.parent, std::memory_order_release);
    names_.store(record.name | uint64_t{record.node} << 32, std::memory_order_release);
    what_.store(record.custom | uint64_t{static_cast<uint8_t>(record.type)} << 32 |
                    uint64_t{static_cast<uint8_t>(record.kind)} << 40 |
                    uint64_t{static_cast<uint8_t>(record.device_type)} << 48 |
                    uint64_t{static_cast<uint8_t>(record.device_index)} << 56,
                std::memory_order_release);
    begin_.store(Ticks(), std::memory_order_release);
    id_.store(record.id, std::memory_order_release);
  }
  void CopyTo(ProfileRecord& record, uint64_t end) const { CopyWords(record, id_, end); }
  uint64_t id() const { return id_.load(std::memory_order_relaxed); }

  // Any thread: false where the span has made room for another meanwhile.
  bool Peek(ProfileRecord& record) const {
    // Acquire: what is loaded below is of this id or of a later one, and then so is the id.
    const uint64_t id = id_.load(std::memory_order_acquire);
    CopyWords(record, id, 0);
    return id != 0 && id_.load(std::memory_order_relaxed) == id;
  }

 private:
  void CopyWords(ProfileRecord& record, uint64_t id, uint64_t end) const {
    // Acquire: for Peek.
    const uint64_t words[] = {begin_.load(std::memory_order_acquire),
                              end,
                              id,
                              parent_.load(std::memory_order_acquire),
                              names_.load(std::memory_order_acquire),
                              what_.load(std::memory_order_acquire)};
    static_assert(sizeof words == sizeof record && std::endian::native == std::endian::little);
    std::memcpy(static_cast<void*>(&record), words, sizeof words);
  }

  std::atomic<uint64_t> begin_{0}, id_{0}, parent_{0};
  std::atomic<uint64_t> names_{0};  // the name and the node
  std::atomic<uint64_t> what_{0};   // custom, type, kind, device
};

struct ProfileChunk {
  static constexpr uint32_t kRecords = 2048;
  // Release by the owning thread, with the reader's acquire: the records before it are written.
  std::atomic<uint32_t> count{0};
  ProfileRecord records[kRecords];
};

// The records of one thread. Only it writes; the mutex guards the list of chunks.
class ThreadProfile {
 public:
  static constexpr int kMaxDepth = 256;

  ThreadProfile();

  // A span begins now.
  void Open(uint32_t session, const ProfileRecord& record) {
    if (session_ != session) [[unlikely]]
      BeginSession(session);
    const int depth = this->depth();
    if (counters_ && depth < kMaxDepth) [[unlikely]]
      StartCounts(depth);
    open_[(std::min)(depth, kMaxDepth)].Set(record);
    SetDepth(depth + 1);
  }
  void Close(uint32_t session, uint64_t now) {
    const int depth = this->depth() - 1;
    SetDepth(depth);
    if (depth < earlier()) [[unlikely]]
      return SetEarlier(depth);  // it began in an earlier session
    if (session_ != session) return;
    if (depth >= kMaxDepth) [[unlikely]]
      return CountDropped();
    if (ProfileRecord* record = NewRecord()) [[likely]] {
      open_[depth].CopyTo(*record, ended_at_ == depth ? ended_ : now);
      Publish();
    }
    ended_at_ = -1;
    if (counters_) [[unlikely]]
      AddCounts(depth);
  }
  // The span that began last has ended, though it closes later.
  void End(uint64_t now) {
    ended_at_ = depth() - 1;
    ended_ = now;
  }
  // The id of the span that began last; 0 where none of this session is open.
  uint64_t open_id(uint32_t session) const {
    return session_ == session && depth() > earlier() && depth() <= kMaxDepth
               ? open_[depth() - 1].id()
               : 0;
  }
  void Add(uint32_t session, const ProfileRecord& record) {
    if (session_ != session) [[unlikely]]
      BeginSession(session);
    ProfileRecord* const room = NewRecord();
    if (!room) return;
    *room = record;
    Publish();
  }
  // The recorder deletes it at the next Start.
  void SetExited() {
    MutexLock lock(mutex_);
    exited_ = true;
  }
  bool exited() {
    MutexLock lock(mutex_);
    return exited_;
  }
  void ResetAfterFork() {
    mutex_.ResetAfterFork();
    BeginSession(0);
    thread_.id = CurrentThreadId();
  }

 private:
  friend class Recorder;

  // Room for one record, or null, which is counted; Publish when it is filled.
  ProfileRecord* NewRecord() {
    if (count_ == ProfileChunk::kRecords) [[unlikely]]
      if (!NextChunk()) return CountDropped(), nullptr;
    return &chunk_->records[count_++];
  }
  void Publish() { chunk_->count.store(count_, std::memory_order_release); }
  // Relaxed: only this thread writes it, and a reader makes sure of every record itself.
  int depth() const { return depth_.load(std::memory_order_relaxed); }
  void SetDepth(int depth) { depth_.store(depth, std::memory_order_relaxed); }
  int earlier() const { return earlier_.load(std::memory_order_relaxed); }
  void SetEarlier(int depth) { earlier_.store(depth, std::memory_order_relaxed); }
  // Relaxed: a statistic that one thread writes.
  void CountDropped(int64_t records = 1) {
    dropped_.store(dropped_.load(std::memory_order_relaxed) + records, std::memory_order_relaxed);
  }
  OPKIT_COLD void BeginSession(uint32_t session);
  OPKIT_COLD bool NextChunk();
  OPKIT_COLD void StartCounts(int depth);
  OPKIT_COLD void AddCounts(int depth);

  ProfileChunk* chunk_ = nullptr;
  uint32_t count_ = ProfileChunk::kRecords;
  uint32_t session_ = 0;
  std::atomic<int> depth_{0};    // of the spans that are open on the thread
  std::atomic<int> earlier_{0};  // how many of them began in earlier sessions; relaxed, as depth_
  int ended_at_ = -1;  // the depth of the span that has ended at ended_ and is open; -1 for none
  uint64_t ended_ = 0;
  std::atomic<int64_t> dropped_{0};
  OpenRecord open_[kMaxDepth + 1];            // the last for those that are too deep
  std::unique_ptr<ThreadCounters> counters_;  // of the session
  int num_counters_ = 0;
  std::vector<ProfileCounts> counts_;  // at the begin of each open span

  Mutex mutex_;
  std::vector<std::unique_ptr<ProfileChunk>> chunks_;  // the oldest first
  ProfileThread thread_;
  bool exited_ = false;
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
  void Marked(uint32_t name) noexcept override { Note(ProfileRecord::Type::kMarker, name, 0); }
  void EndSpan() noexcept override;
  void Describe(const SpanWork& work) noexcept override;
  void Completed(uint64_t id) noexcept override;
  void Pushed(const Invocation& task, SpanNames names) noexcept override;
  void Note(ProfileRecord::Type type, uint32_t name, double value) noexcept;
  void Changed(const Allocator& allocator, int64_t bytes, int64_t live) noexcept override;

  // A chunk's place in the bound on memory. False where there is none.
  bool TakeChunk();
  bool is_ring() const { return ring_; }
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
  void Add(const ProfileRecord& record) noexcept;
  static uint32_t CustomPath(uint32_t outer, uint32_t name);
  static void Sort(Profile& profile);
  // What a span costs its thread, measured now.
  double TicksOfSpan();
  void ResetAfterFork();
  OPKIT_COLD static void PushRange(const ToolRanges& tools, const Invocation& now, SpanNames names,
                                   bool adopted) noexcept;
  // Lets the threads record, or not.
  void Install(bool on);

  // Relaxed: it never changes once it is there, and that is before the first span.
  std::atomic<const ToolRanges*> tools_{nullptr};
  Mutex mutex_;  // guards what follows, but for the atomics
  std::vector<ThreadProfile*> threads_;
  const Instant origin_ = Instant::Now();
  Instant start_ = origin_;
  uint64_t stopped_ = 0;  // ticks; 0 while it runs or is paused
  bool ring_ = false;
  bool memory_ = false;
  Mutex counters_mutex_;  // guards the next three; a thread may see a session before it has begun
  std::vector<std::string> counted_, absent_;
  CounterSource* counter_source_ = nullptr;
  std::atomic<bool> shapes_{false}, engine_{false};  // relaxed, as the two below
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
