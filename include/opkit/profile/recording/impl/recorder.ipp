// Records on each thread, and manages chunks and sessions.
#ifndef OPKIT_PROFILE_RECORDING_IMPL_RECORDER_IPP_
#define OPKIT_PROFILE_RECORDING_IMPL_RECORDER_IPP_

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "opkit/base/index.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/profile/recording/decoder.hpp"
#include "opkit/profile/recording/recorder.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// --- one thread

OPKIT_INLINE ThreadProfile::ThreadProfile() {
  char name[16];
  GetCurrentThreadName(name);
  thread_ = {CurrentThreadId(), name};
}

OPKIT_INLINE void ThreadProfile::BeginSession(uint32_t session) {
  MutexLock lock(mutex_);
  chunks_.clear();
  chunk_ = nullptr;
  count_ = ProfileChunk::kRecords;
  session_ = session;
  earlier_ = depth_;
  dropped_.store(0, std::memory_order_relaxed);
  if (session != 0 && Recorder::Global().wants_crash_trace()) MakeSignalStack();
  counters_ = session == 0 ? nullptr : Recorder::Global().OpenCounters(num_counters_);
}

OPKIT_INLINE void ThreadProfile::StartCounts(int depth) {
  if (counts_.size() <= Index(depth)) counts_.resize(Index(depth) + 1);
  counters_->Read(counts_[Index(depth)].values);
}
OPKIT_INLINE void ThreadProfile::AddCounts(int depth, uint64_t id) {
  const ProfileCounts& before = counts_[Index(depth)];
  uint64_t now[ProfileCounts::kMost] = {};
  counters_->Read(now);
  for (int i = 0; i < ProfileCounts::kMost; ++i) now[i] -= before.values[i];
  for (int first = 0; first < num_counters_; first += 3) {
    ProfileRecord* const record = NewRecord();
    if (!record) return;
    *record = {.counts = {.first = static_cast<uint8_t>(first),
                          .id = id,
                          .values = {now[first], now[first + 1], now[first + 2]}}};
    Publish();
  }
}

OPKIT_INLINE bool ThreadProfile::NextChunk() {
  Recorder& recorder = Recorder::Global();
  std::unique_ptr<ProfileChunk> chunk;
  if (recorder.TakeChunk())
    chunk.reset(new (std::nothrow) ProfileChunk);
  else if (recorder.is_ring())
    chunk = recorder.TakeChunkOfEnded();  // a running thread may be writing to its chunks
  const bool makes_room = !chunk && recorder.is_ring() && !chunks_.empty();
  if (!chunk && !makes_room) return false;
  MutexLock lock(mutex_);
  uint32_t kept = 0;  // records of open spans, with their names, that stay in the reused chunk
  if (makes_room) {
    std::rotate(chunks_.begin(), chunks_.begin() + 1, chunks_.end());
    const std::span<ProfileRecord> records = chunks_.back()->records;
    for (int i = earlier_; i < (std::min)(depth_, kMaxDepth); ++i)
      if (ProfileRecord* const open = open_[i];
          open && open >= records.data() && open < records.data() + records.size()) {
        const ProfileRecord* from = open;
        while (from > records.data() && from[-1].type() == RecordType::kText) --from;
        // `from` never points before `kept`: records and open_ are both in order of begin.
        for (; from <= open; ++from) records[kept++] = *from;
        open_[i] = &records[kept - 1];
      }
    // Relaxed: this thread has stored the count.
    CountDropped(chunks_.back()->count.load(std::memory_order_relaxed) - kept);
  } else {
    chunks_.push_back(std::move(chunk));
  }
  chunk_ = chunks_.back().get();
  // Relaxed: the mutex orders the store.
  chunk_->count.store(kept, std::memory_order_relaxed);
  count_ = kept;
  return true;
}

OPKIT_INLINE ProfileRecord* ThreadProfile::NewNamedRecord(std::string_view text) {
  text = text.substr(0, ProfileChunk::kLongestText * TextRecord::kBytes);
  const size_t records = (text.size() + TextRecord::kBytes - 1) / TextRecord::kBytes;
  if (count_ + records >= ProfileChunk::kRecords && !NextChunk()) return CountDropped(), nullptr;
  for (size_t at = 0; at < text.size(); at += TextRecord::kBytes) {
    ProfileRecord& part = chunk_->records[count_++] = {.text = {}};
    text.copy(part.text.text, TextRecord::kBytes, at);
  }
  return &chunk_->records[count_++];
}

// The calling thread's profile; null before its first record and after the destruction of its
// thread-local objects.
inline constinit thread_local ThreadProfile* t_profile = nullptr;
inline constinit thread_local bool t_profile_ended = false;
// Ends the calling thread's profile when the thread ends.
struct ThreadProfileEnd {
  ~ThreadProfileEnd() {
    t_profile_ended = true;
    if (t_profile) Recorder::Global().Ended(std::exchange(t_profile, nullptr));
  }
};

// --- the recorder

OPKIT_INLINE Recorder& Recorder::Global() {
  static Recorder* recorder = [] {
    auto* made = new Recorder;
    // First makes the table of names, which registers its handlers for a fork. The recorder
    // registers its own afterwards. A fork calls the handlers in reverse order: it locks the
    // recorder's mutex first and the table's second. A recording thread that makes a name locks
    // them in the same order.
    static_cast<void>(InternName("recorder"));
    pthread_atfork([] { Global().mutex_.Lock(); }, [] { Global().mutex_.Unlock(); },
                   [] { Global().ResetAfterFork(); });
    return made;
  }();
  return *recorder;
}

// Reads both clocks several times and returns the closest pair: the thread may lose its core
// between two reads.
OPKIT_INLINE Recorder::Instant Recorder::Instant::Now() {
  Instant best{0, 0};
  uint64_t closest = UINT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const uint64_t before = Ticks();
    const int64_t ns = MonotonicNs();
    const uint64_t apart = Ticks() - before;
    if (apart >= closest) continue;
    closest = apart;
    best = {before + apart / 2, ns};
  }
  return best;
}

OPKIT_INLINE void Recorder::Start(const ProfileOptions& options) {
  if (options.max_bytes < static_cast<int64_t>(sizeof(ProfileChunk)))
    Throw(ErrorCode::kInvalidArgument, "ProfileOptions::max_bytes is ", options.max_bytes,
          "; expected at least ", sizeof(ProfileChunk), ", one chunk of records");
  CounterSource& source = options.counter_source ? *options.counter_source : PerfCounters();
  if (options.counters.size() > ProfileCounts::kMost)
    Throw(ErrorCode::kInvalidArgument, "ProfileOptions::counters has ", options.counters.size(),
          " names; ", ProfileCounts::kMost, " are the most");
  std::vector<std::string> absent;
  if (!options.counters.empty()) source.Open(options.counters, &absent);
  const ToolRanges* const tools = ToolRanges::Global();
  MutexLock lock(mutex_);
  if (session_.load(std::memory_order_relaxed) != 0 && stopped_ == 0)
    Throw(ErrorCode::kFailedPrecondition,
          "Profiler::Start: a session runs already; Profiler::Stop ends it");
  std::erase_if(threads_, [](ThreadProfile* thread) {
    const bool ended = thread->ended_;
    if (ended) delete thread;
    return ended;
  });
  dropped_ = 0;
  {
    MutexLock counters_lock(counters_mutex_);
    counted_ = options.counters;
    absent_ = std::move(absent);
    counter_source_ = &source;
  }
  SetRoomForNames(options.max_bytes / 4);
  ring_.store(options.ring, std::memory_order_relaxed);
  crash_trace_.store(!options.crash_trace.empty(), std::memory_order_relaxed);
  chunks_left_.store(options.max_bytes / static_cast<int64_t>(sizeof(ProfileChunk)),
                     std::memory_order_relaxed);
  session_.store(session_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  stopped_ = 0;
  start_ = Instant::Now();
  memory_ = options.memory;
  tools_.store(tools, std::memory_order_relaxed);
  shapes_.store(options.shapes, std::memory_order_relaxed);
  engine_.store(options.engine, std::memory_order_relaxed);
  Install(true);
}

OPKIT_INLINE void Recorder::Install(bool on) {
  // Release: a thread that loads the sink with acquire sees the recorder complete.
  g_span_sink.store(on ? this : nullptr, std::memory_order_release);
  g_memory_sink.store(on && memory_ ? this : nullptr, std::memory_order_release);
}

OPKIT_INLINE void Recorder::Stop() {
  MutexLock lock(mutex_);
  if (session_.load(std::memory_order_relaxed) == 0 || stopped_ != 0) return;
  Install(false);
  stopped_ = Ticks();
}

OPKIT_INLINE void Recorder::Pause() {
  MutexLock lock(mutex_);
  Install(false);
}

OPKIT_INLINE void Recorder::Resume() {
  MutexLock lock(mutex_);
  if (session_.load(std::memory_order_relaxed) == 0 || stopped_ != 0)
    Throw(ErrorCode::kFailedPrecondition, "Profiler::Resume: no session; call Profiler::Start");
  Install(true);
}

OPKIT_INLINE std::unique_ptr<ThreadCounters> Recorder::OpenCounters(int& count) {
  MutexLock lock(counters_mutex_);
  count = static_cast<int>(counted_.size());
  return counted_.empty() ? nullptr : counter_source_->Open(counted_, nullptr);
}

OPKIT_INLINE bool Recorder::TakeChunk() {
  return chunks_left_.load(std::memory_order_relaxed) > 0 &&
         chunks_left_.fetch_sub(1, std::memory_order_relaxed) > 0;
}

OPKIT_INLINE std::unique_ptr<ProfileChunk> Recorder::TakeChunkOfEnded() {
  MutexLock lock(mutex_);
  // Threads are in the order in which they began to record.
  const auto found = std::ranges::find_if(threads_, [&](ThreadProfile* thread) {
    return thread->ended_ && thread->session_ == session_.load(std::memory_order_relaxed);
  });
  if (found == threads_.end()) return nullptr;
  ThreadProfile* const thread = *found;
  std::unique_ptr<ProfileChunk> chunk = std::move(thread->chunks_.front());
  thread->chunks_.erase(thread->chunks_.begin());
  dropped_ += chunk->count.load(std::memory_order_relaxed);  // relaxed: the thread has ended
  if (thread->chunks_.empty()) {
    threads_.erase(found);
    Forget(thread);
  }
  return chunk;
}

OPKIT_INLINE void Recorder::Ended(ThreadProfile* thread) {
  MutexLock lock(mutex_);
  thread->ended_ = true;
  if (!thread->chunks_.empty()) return;
  std::erase(threads_, thread);
  Forget(thread);
}
OPKIT_INLINE void Recorder::Forget(ThreadProfile* thread) {
  if (thread->session_ == session_.load(std::memory_order_relaxed))
    dropped_ += thread->dropped_.load(std::memory_order_relaxed);
  delete thread;
}

OPKIT_INLINE ThreadProfile* Recorder::OfThread() {
  if (t_profile) [[likely]]
    return t_profile;
  return MakeOfThread();
}

OPKIT_INLINE ThreadProfile* Recorder::MakeOfThread() {
  if (t_profile_ended) return nullptr;
  static thread_local const ThreadProfileEnd end;
  static_cast<void>(&end);
  auto* made = new (std::nothrow) ThreadProfile;
  if (!made) return nullptr;
  MutexLock lock(mutex_);
  threads_.push_back(made);
  return t_profile = made;
}

OPKIT_INLINE uint32_t Recorder::CustomPath(uint32_t outer, uint32_t name) {
  if (outer == 0) return name;
  struct Known {
    uint32_t outer, name, path;
  };
  static thread_local Known known[8];
  Known& entry = known[(outer ^ name) & 7];
  if (entry.outer != outer || entry.name != name)
    entry = {outer, name, InternName(StrCat(InternedName(outer), "::", InternedName(name)))};
  return entry.path;
}

OPKIT_INLINE void Recorder::Open(Invocation& now, SpanNames names, const Device* device,
                                 bool adopted) noexcept {
  ThreadProfile* thread = OfThread();
  if (!thread) return;
  if (now.kind == Invocation::Kind::kCustomOperator && !adopted)
    now.custom = CustomPath(now.custom, names.name);
  if (const ToolRanges* tools = tools_.load(std::memory_order_relaxed)) [[unlikely]]
    PushRange(*tools, now, names, adopted);
  ProfileRecord* const record = thread->Open(session_.load(std::memory_order_relaxed), names.text);
  if (!record) return;
  const Device place = device ? *device : Device{};
  record->span = {.type = adopted ? RecordType::kAdopted : RecordType::kSpan,
                  .kind = now.kind,
                  .device_type = static_cast<int8_t>(place.type),
                  .device_index = static_cast<int8_t>(place.index),
                  .name = names.name,
                  .node = names.node,
                  .custom = now.custom,
                  .id = now.id,
                  .parent = now.parent};
  record->span.begin = Ticks();
  thread->Publish();
}

OPKIT_INLINE void Recorder::PushRange(const ToolRanges& tools, const Invocation& now,
                                      SpanNames names, bool adopted) noexcept {
  ProfileSpan span;
  span.kind = now.kind;
  span.name = names.name;
  span.custom = now.custom;
  span.adopted = adopted;
  const bool is_part = names.name == 0 && now.custom == 0;  // another thread's record has the name
  tools.Push(!names.text.empty() ? std::string(names.text)
             : is_part           ? "(part)"
                                 : DisplayName(span));
}

OPKIT_INLINE void Recorder::Close() noexcept {
  const uint64_t now = Ticks();
  ThreadProfile* const thread = t_profile;
  if (!thread) return;
  thread->Close(session_.load(std::memory_order_relaxed), now);
  if (const ToolRanges* tools = tools_.load(std::memory_order_relaxed)) [[unlikely]]
    tools->Pop();
}

OPKIT_INLINE void Recorder::EndSpan() noexcept {
  const uint64_t now = Ticks();
  if (ThreadProfile* thread = t_profile) thread->End(session_.load(std::memory_order_relaxed), now);
}
OPKIT_INLINE void Recorder::Describe(const SpanWork& work) noexcept {
  ThreadProfile* thread = t_profile;
  if (!thread) return;
  const uint32_t session = session_.load(std::memory_order_relaxed);
  if (const ProfileRecord* const open = thread->innermost(session))
    thread->Add(session, {.work = {.shapes = work.shapes,
                                   .backend = work.backend,
                                   .id = open->span.id,
                                   .flops = work.flops,
                                   .bytes = work.bytes}});
}
OPKIT_INLINE void Recorder::Communicated(uint64_t id, const ProfileMessage& message) noexcept {
  Add({.message = {.from = message.from,
                   .to = message.to,
                   .id = id,
                   .plan = message.plan,
                   .channel = message.channel,
                   .number = message.number}});
}
OPKIT_INLINE void Recorder::Changed(const Allocator& allocator, int64_t bytes,
                                    int64_t live) noexcept {
  Add({.memory = {.allocator = InternName(allocator.name()),
                  .id = CurrentInvocation().id,
                  .time = Ticks(),
                  .bytes = bytes,
                  .live = live}});
}

OPKIT_INLINE void Recorder::Add(const ProfileRecord& record, std::string_view text) noexcept {
  if (ThreadProfile* thread = OfThread())
    thread->Add(session_.load(std::memory_order_relaxed), record, text);
}
OPKIT_INLINE void Recorder::Completed(uint64_t id) noexcept {
  Add({.completed = {.id = id, .time = Ticks()}});
}
OPKIT_INLINE void Recorder::RanOnDevice(uint64_t id, int64_t begin, int64_t end) noexcept {
  Add({.on_device = {.id = id, .begin = begin, .end = end}});
}
OPKIT_INLINE void Recorder::Pushed(const Invocation& task, SpanNames names) noexcept {
  Add({.pushed = {.name = names.name, .id = task.id, .time = Ticks()}}, names.text);
}
OPKIT_INLINE void Recorder::Mark(SpanNames names, bool frame) noexcept {
  Add({.marker = {.frame = frame, .name = names.name, .time = Ticks()}}, names.text);
}
OPKIT_INLINE void Recorder::Count(SpanNames names, double value) noexcept {
  Add({.counter = {.name = names.name, .time = Ticks(), .value = value}}, names.text);
}

OPKIT_INLINE double Recorder::TicksOfSpan() {
  constexpr int kSpans = 600;  // number of spans that fit into one chunk with their counts
  static_assert(kSpans * (1 + ProfileCounts::kMost / 3) < ProfileChunk::kRecords);
  ThreadProfile probe;
  const uint32_t session = session_.load(std::memory_order_relaxed);
  probe.BeginSession(session);
  probe.chunks_.push_back(std::make_unique<ProfileChunk>());
  probe.chunk_ = probe.chunks_.back().get();
  probe.count_ = 0;
  const uint64_t begin = Ticks();
  for (int i = 0; i < kSpans; ++i) {
    *probe.Open(session) = {.span = {.begin = Ticks()}};
    probe.Publish();
    probe.Close(session, Ticks());
  }
  return static_cast<double>(Ticks() - begin) / kSpans;
}

OPKIT_INLINE Profile Recorder::Read() {
  MutexLock lock(mutex_);
  const uint32_t session = session_.load(std::memory_order_relaxed);
  if (session == 0) return {};
  Instant now = Instant::Now();
  constexpr int64_t kEnoughNs = 10'000'000;  // gives a rate with an error below 10^-4
  while (now.ns - origin_.ns < kEnoughNs) now = Instant::Now();
  const double ns_per_tick =
      static_cast<double>(now.ns - origin_.ns) / static_cast<double>(now.ticks - origin_.ticks);
  ProfileDecoder decoder(
      {start_.ticks, start_.ns, stopped_ != 0 ? stopped_ : now.ticks, ns_per_tick});
  int64_t dropped = dropped_, records = 0;
  for (ThreadProfile* thread : threads_) {
    MutexLock thread_lock(thread->mutex_);
    if (thread->session_ != session) continue;
    dropped += thread->dropped_.load(std::memory_order_relaxed);
    decoder.BeginThread(thread->thread_);
    for (const auto& chunk : thread->chunks_) {
      const uint32_t count = chunk->count.load(std::memory_order_acquire);
      records += count;
      decoder.Add({chunk->records, count});
    }
    decoder.EndThread();
  }
  Profile profile = decoder.Finish();
  profile.dropped = dropped;
  profile.cost = static_cast<int64_t>(static_cast<double>(records) * TicksOfSpan() * ns_per_tick);
  profile.counted = counted_;
  profile.absent_counters = absent_;
  return profile;
}

// Resets the recorder in the child of a fork: its one thread begins without the parent's records,
// and the parent's other threads do not exist.
OPKIT_INLINE void Recorder::ResetAfterFork() {
  mutex_.ResetAfterFork();
  counters_mutex_.ResetAfterFork();
  Install(false);
  stopped_ = 1;
  threads_.clear();
  if (ThreadProfile* mine = t_profile) {
    mine->ResetAfterFork();
    threads_.push_back(mine);
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_RECORDING_IMPL_RECORDER_IPP_
