// PlannedMemory: the place in memory of each value of a specialization and of the bodies that are
// planned with it. specialization.hpp includes the definitions, which need both classes.
#ifndef OPKIT_GRAPH_PLAN_PLANNED_MEMORY_HPP_
#define OPKIT_GRAPH_PLAN_PLANNED_MEMORY_HPP_

#include <string>
#include <vector>

#include "opkit/base/index.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/core/device.hpp"
#include "opkit/graph/memory/arena.hpp"
#include "opkit/graph/memory/lifetimes.hpp"
#include "opkit/graph/plan/options.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The memory of one device, as the planner and the verifier see it. Steps and values have the
// numbers of PlannedMemory; those of bodies are included.
struct ArenaPlan {
  Device device;
  IndexedVector<RunValue> values;
  std::vector<uint8_t> bounded;  // by value: 1 if its bytes are an upper bound
  std::vector<InPlaceOption> inplace;
  MemoryLifetimes lifetimes;
  MemoryPlan plan;
  // The memory of an input that the caller has donated. Offsets from `begin` to `end` lie behind
  // the arena and mean bytes of that input's tensor.
  struct Donated {
    int input;  // a value of the view
    int64_t begin, end;
  };
  std::vector<Donated> donated;

  // Returns the offset of a value; -1 if it is not in this arena.
  int64_t OffsetOf(size_t value) const {
    const int buffer = lifetimes.buffer_of[value];
    if (buffer < 0) return -1;
    return plan.offsets[buffer] + lifetimes.offset_in_buffer[value];
  }
};

class Specialization;
struct PlannedBody;

// Numbers the values and steps of a memory plan and plans the arenas. The outermost graph numbers
// the values of its view first, then the scratch of each step, then the values of each body. A step
// that runs bodies is one step for its beginning, the steps of the bodies, and one for its end.
class PlannedMemory {
 public:
  // The options of PlanArenas.
  struct Options {
    PlanOptions::MemoryOptions plan;
    bool walked = false;       // steps run one after the other, in their order
    std::vector<int> donated;  // donated inputs, as values of the view
  };

  // The specialization must have its schedule and its bodies before PlanArenas is called.
  PlannedMemory(const Specialization& plan, const PlanOptions::MemoryOptions& options)
      : plan_(plan), most_bound_bytes_(options.most_bound_bytes) {}
  // Plans the memory of the outermost graph and of all bodies in it. Throws kOutOfMemory, with the
  // values that are live together, if a capacity is too small; else the errors of PlanMemory.
  void PlanArenas(const Options& options);

  const std::vector<ArenaPlan>& arenas() const { return arenas_; }
  const RunOrder& run_order() const { return run_order_; }
  const MemorySummary& summary() const { return summary_; }
  // True if the value lies in an arena or a donated input. In general: a node makes it, its size or
  // a bound of it is known, and the graph does not return it.
  bool IsPlanned(int value) const;
  // True if an output of the graph lies in a donated input.
  bool IsDonated(int output) const;

  size_t NumberOf(int value) const { return value_numbers_[value]; }
  size_t NumberOfScratch(int step) const { return first_scratch_ + Index(step); }
  // Returns the step of the schedule that a step of the memory plan belongs to.
  int StepOf(int64_t memory_step) const;
  bool IsScratchOfStep(size_t number) const;
  // Returns the name of a value or scratch: "sum", "scratch of step 3", "branch/sum".
  std::string Name(size_t number) const;
  // Describes the value or scratch that takes most of an arena, for an Error about the whole arena.
  std::string LargestIn(const ArenaPlan& arena) const;

 private:
  static PlannedMemory& Of(const PlannedBody& body);
  int NumberSteps(int next);
  size_t NumberValues(size_t next, const PlannedMemory* enclosing);
  bool Has(size_t number) const { return first_number_ <= number && number < end_number_; }
  void OrderSteps(bool walked);
  void OrderBodies(int step, RunOrder& order) const;
  void AddArenas(std::vector<ArenaPlan>& arenas) const;
  void TryArenas(const Options& options);
  void PlanArena(ArenaPlan& arena, const Options& options);
  void FindLifetimesOf(ArenaPlan& arena, int& planned_values) const;
  void Describe(ArenaPlan& arena, int carrier_end, int& planned_values) const;
  size_t BodyCount(int node) const;
  bool ForwardsInput(int node, int value) const;
  void AllowInPlace(ArenaPlan& arena) const;
  void AllowInPlace(ArenaPlan& arena, int node, int input, int output) const;
  bool MayShare(int node, int input, int output) const;
  bool HaveSameElements(int node, int input, int output) const;
  void FindDonatedOutputs(ArenaPlan& arena);
  void PlaceDonated(ArenaPlan& arena) const;
  void CheckCapacity(const ArenaPlan& arena, int64_t capacity) const;
  void AddNaive(const RunValue& value);
  bool Verify(const ArenaPlan& arena) const;
  void AddTouches(IndexedVector<RunValue>& values) const;
  std::string DescribeMemory(size_t number) const;
  std::string NameOfStep(int step) const;
  int BufferOf(const ArenaPlan& arena, int value) const {
    return arena.lifetimes.buffer_of[NumberOf(value)];
  }
  // True if a node makes the value, and its size (or a bound of it) is known before a run.
  bool HasKnownSize(int value) const;
  bool HasBoundedSize(int value) const;
  // Plans no memory for values of bounded size, in bodies too: each run allocates it.
  void LeaveBounded();
  int64_t Scratch(int node) const;
  size_t first_body_value() const;

  const Specialization& plan_;
  int64_t most_bound_bytes_;             // negative: bounds are not used
  std::vector<int> donated_;             // inputs whose memory the plan may use
  std::vector<int> donated_outputs_;     // outputs that lie in a donated input
  IndexedVector<size_t> value_numbers_;  // by value: its number in the memory plan
  size_t first_scratch_ = 0;             // the memory plan's number of the first step's scratch
  // The numbers in [first_number_, end_number_) belong to this graph and its bodies.
  size_t first_number_ = 0, end_number_ = 0;
  IndexedVector<int> begin_, end_;  // by step: its first and last step in the memory plan
  RunOrder run_order_;
  std::vector<ArenaPlan> arenas_;
  MemorySummary summary_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_PLANNED_MEMORY_HPP_
