// ProfileDecoder: makes a Profile of the records of a profiler session.
#ifndef OPKIT_PROFILE_RECORDING_DECODER_HPP_
#define OPKIT_PROFILE_RECORDING_DECODER_HPP_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "opkit/profile/profile.hpp"
#include "opkit/profile/recording/record.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Takes the records of one thread after the other, each thread's in order, and has one function for
// each type of record. Records that add a fact to a span are kept until Finish, since the span may
// be on a thread that comes later.
class ProfileDecoder {
 public:
  // When the session began, on both clocks, and when it ended, or now.
  struct Clock {
    uint64_t start_ticks;
    int64_t start_ns;
    uint64_t end_ticks;
    double ns_per_tick;
    // Returns the ns since the session began.
    int64_t Time(uint64_t ticks) const {
      return static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(ticks - start_ticks)) *
                                  ns_per_tick);
    }
  };

  explicit ProfileDecoder(const Clock& clock) : clock_(clock) {}

  void BeginThread(const ProfileThread& thread);
  void Add(std::span<const ProfileRecord> records);
  // Ends the thread's open spans at its last record, or at the end of the session.
  void EndThread();
  // Adds the kept facts to their spans and sorts everything.
  Profile Finish();

 private:
  // A record about the invocation `id`, and the index of the thread that wrote it.
  struct Fact {
    uint64_t id;
    ProfileRecord record;
    int thread;
  };

  void Decode(const ProfileRecord& record);
  void Decode(const SpanRecord& record);
  void Decode(const CounterRecord& record);
  void Decode(const MarkerRecord& record);
  void Decode(const MemoryRecord& record);
  void Decode(const CountsRecord& record);
  void Decode(const TextRecord& record);
  void AddFact(uint64_t id, const ProfileRecord& record) {
    facts_.push_back({id, record, Thread()});
  }

  // Adds a fact to the span of its invocation.
  void Apply(const Fact& fact, ProfileSpan& span) const;
  void ApplyFacts();
  // Gives a nameless part of an invocation the names of the invocation's own span.
  void NameAdopted();
  void AddMemoryCounters();
  void Sort();

  int Thread() const { return static_cast<int>(profile_.threads.size()) - 1; }
  // Returns the interned name of a record: `name`, or the texts that came before it.
  uint32_t NameOf(uint32_t name);

  const Clock clock_;
  Profile profile_;
  uint64_t last_ = 0;         // ticks of the thread's last record
  std::vector<size_t> open_;  // indices in profile_.spans of the thread's open spans
  std::string text_;          // name of the next record
  std::vector<Fact> facts_;
  std::map<uint64_t, ProfileCounts> counts_;  // by invocation
};

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/recording/impl/decoder.ipp"
#endif

#endif  // OPKIT_PROFILE_RECORDING_DECODER_HPP_
