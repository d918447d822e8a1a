// Definitions of Recompute: greedy rematerialization. Finds the live bytes of a run and the
// candidates at its peak, and rates them.
#ifndef OPKIT_GRAPH_MEMORY_IMPL_RECOMPUTE_IPP_
#define OPKIT_GRAPH_MEMORY_IMPL_RECOMPUTE_IPP_

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/memory/recompute.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Throws kInvalidArgument for an invalid problem. Returns, by value, the step that makes it; -1:
// none.
inline IndexedVector<int> CheckRecomputeProblem(const RecomputeProblem& problem) {
  const size_t values = problem.bytes.size();
  if (problem.kept.size() != values)
    Throw(ErrorCode::kInvalidArgument, "expected `kept` for each of ", values, " values, found ",
          problem.kept.size());
  for (size_t v = 0; v < values; ++v)
    if (problem.bytes[v] < 0)
      Throw(ErrorCode::kInvalidArgument, "value ", v, " has ", problem.bytes[v],
            " bytes: expected 0 or more");
  IndexedVector<int> maker(values, -1);
  const auto steps = static_cast<int>(problem.steps.size());
  for (int s = 0; s < steps; ++s)
    for (const int value : problem.steps[s].outputs) {
      if (value < 0 || Index(value) >= values)
        Throw(ErrorCode::kInvalidArgument, "step ", s, " makes value ", value,
              ": expected one of the ", values, " values");
      if (maker[value] >= 0)
        Throw(ErrorCode::kInvalidArgument, "value ", value, " is made by step ", maker[value],
              " and by step ", s);
      maker[value] = s;
    }
  for (int s = 0; s < steps; ++s) {
    const RecomputeProblem::Step& step = problem.steps[s];
    for (const int value : step.inputs) {
      if (value < 0 || Index(value) >= values)
        Throw(ErrorCode::kInvalidArgument, "step ", s, " reads value ", value,
              ": expected one of the ", values, " values");
      if (maker[value] >= s)
        Throw(ErrorCode::kInvalidArgument, "step ", s, " reads value ", value, ", which only step ",
              maker[value], " makes");
    }
    for (const auto& [input, output] : step.in_place)
      if (input < 0 || Index(input) >= step.inputs.size() || output < 0 ||
          Index(output) >= step.outputs.size())
        Throw(ErrorCode::kInvalidArgument, "step ", s, " has the in-place pair ", input, ", ",
              output, ", expected one of its ", step.inputs.size(), " inputs and one of its ",
              StrCat(step.outputs.size(), " outputs"));
    if (!(step.cost >= 0) || step.scratch_bytes < 0)
      Throw(ErrorCode::kInvalidArgument, "step ", s, " has the cost ", step.cost, " and ",
            step.scratch_bytes, " bytes of scratch: expected 0 or more");
  }
  return maker;
}

// Changes a run step by step until its peak reaches the target or nothing lowers it.
class Recomputer {
 public:
  Recomputer(const RecomputeProblem& problem, int64_t target)
      : problem_(problem), target_(target), turns_of_(problem.steps.size()) {
    const IndexedVector<int> maker = CheckRecomputeProblem(problem);
    IndexedVector<char> is_read(problem.steps.size(), 0);
    const auto steps = static_cast<int>(problem.steps.size());
    for (int s = 0; s < steps; ++s) {
      Turn turn{s, {}};
      IndexedVector<int>& made_as = made_as_.emplace_back();
      for (const int value : StepAt(s).inputs) {
        const int from = maker[value];
        turn.makers.push_back(from);
        made_as.push_back(-1);
        if (from < 0) continue;
        is_read[from] = 1;
        const IndexedVector<int>& outputs = StepAt(from).outputs;
        made_as.back() = static_cast<int>(std::ranges::find(outputs, value) - outputs.begin());
      }
      order_.push_back(AddTurn(std::move(turn)));
      given_cost_ += StepAt(s).cost;
    }
    for (int s = 0; s < steps; ++s) {
      const bool is_kept = std::ranges::any_of(StepAt(s).outputs,
                                               [&](int value) { return problem.kept[value] != 0; });
      droppable_.push_back(is_read[s] && !is_kept && StepAt(s).repeatable);
    }
    Measure();
    result_.given_bytes = peak_;
    result_.given_cost = given_cost_;
    for (int s = 0; s < steps; ++s)
      result_.least_bytes = (std::max)(result_.least_bytes, OwnBytes(s));
  }

  RecomputedRun Run() && {
    const size_t most_turns = 64 + 4 * problem_.steps.size();
    bool lowered = false;
    while (peak_ > target_ && turns_.size() < most_turns && Improve()) lowered = true;
    if (lowered && peak_ <= target_) Prune();
    result_.peak_bytes = peak_;
    IndexedVector<char> has_run(problem_.steps.size(), 0);
    for (const int number : order_) {
      const Turn& turn = turns_[number];
      RecomputedRun::Step& step = result_.steps.emplace_back();
      step.step = turn.step;
      for (const int maker : turn.makers) step.makers.push_back(maker < 0 ? -1 : place_[maker]);
      step.again = std::exchange(has_run[turn.step], 1) != 0;
      step.moved = turn.moved;
      if (step.again) result_.added_cost += StepAt(turn.step).cost;
    }
    return std::move(result_);
  }

 private:
  // A turn: one run of a step.
  struct Turn {
    int step;
    IndexedVector<int> makers;  // makers[i]: the turn that makes input i; -1: made before the run
    bool moved = false;
  };
  // A turn that a candidate adds just before its reader.
  struct NewTurn {
    int step;
    int turn;                   // the existing turn to move here; -1: the step runs again
    IndexedVector<int> makers;  // as in Turn; -2 - i for the new turn i
  };
  // The way to get values that a new turn reads and that are gone by then. If keeping a value
  // raises no place above the target, the value is kept instead.
  enum class Missing {
    kMoved,  // a later turn that makes the value moves here; if there is none, as kAgain
    kAgain,  // the steps that make them run again, for this turn alone
    kKept,
  };
  // Bytes that are added to the live bytes of some places.
  struct Change {
    int begin, end;  // places
    int64_t bytes;
  };
  // A turn whose values are not kept over the peak, but made again at `place`.
  struct Candidate {
    int turn;
    int place;
    double most;  // upper bound of gain / cost
  };
  // A candidate with its effects: turns that it adds or moves, changes of live bytes, gain, cost.
  struct Rating {
    Candidate of;
    std::vector<NewTurn> made = {};
    std::vector<Change> changes = {};
    std::vector<std::pair<int, int>> extended = {};  // turns and outputs that live on to the place
    int64_t extended_bytes = 0;
    double gain = 0, cost = 0;
    bool above = false;  // a place to which it adds bytes is above the target
  };

  const RecomputeProblem::Step& StepAt(int step) const { return problem_.steps[step]; }
  const RecomputeProblem::Step& StepOf(int turn) const { return StepAt(turns_[turn].step); }
  int64_t BytesOf(int value) const { return problem_.bytes[value]; }
  // True if an output is read after the run. Only the turns of the given run keep such outputs.
  bool IsKept(int turn, size_t output) const {
    return Index(turn) < problem_.steps.size() && problem_.kept[StepOf(turn).outputs[output]] != 0;
  }
  size_t Slot(int turn, size_t output) const { return first_slot_[turn] + output; }
  int PlaceOf(int turn) const { return place_[turn]; }
  int end() const { return static_cast<int>(order_.size()); }

  int AddTurn(Turn turn) {
    const int number = static_cast<int>(turns_.size());
    turns_of_[turn.step].push_back(number);
    first_slot_.push_back(slots_);
    slots_ += StepAt(turn.step).outputs.size();
    turns_.push_back(std::move(turn));
    return number;
  }
  // Returns the number of bytes that the step needs at least while it runs.
  int64_t OwnBytes(int number) const {
    const RecomputeProblem::Step& step = StepAt(number);
    int64_t bytes = step.scratch_bytes;
    IndexedVector<char> taken;  // by input: 1 if no output may take its bytes
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      taken.push_back(made_as_[number][i] < 0);
      if (!taken.back()) bytes += BytesOf(step.inputs[i]);
    }
    for (size_t o = 0; o < step.outputs.size(); ++o) {
      const int64_t made = BytesOf(step.outputs[o]);
      bytes += made;
      for (const auto& [input, output] : step.in_place) {
        if (Index(output) != o || taken[input] || made > BytesOf(step.inputs[input])) continue;
        taken[input] = 1;
        bytes -= made;
        break;
      }
    }
    return bytes;
  }

  // Lifetimes of values in the present order.

  // Finds the places, the last uses, the live bytes at each place, and the peak.
  void Measure() {
    place_.assign(turns_.size(), -1);
    last_use_.assign(slots_, -1);
    granted_.assign(slots_, 0);
    for (int at = 0; at < end(); ++at) place_[order_[at]] = at;
    for (int at = 0; at < end(); ++at) {
      const Turn& turn = turns_[order_[at]];
      for (size_t i = 0; i < turn.makers.size(); ++i)
        if (turn.makers[i] >= 0) last_use_[SlotRead(turn, i)] = at;
    }
    live_.assign(order_.size() + 1, 0);
    across_.assign(order_.size(), 0);
    for (const int turn : order_)
      for (size_t o = 0; o < StepOf(turn).outputs.size(); ++o) {
        live_[PlaceOf(turn)] += BytesOf(StepOf(turn).outputs[o]);
        live_[LastPlace(turn, o) + 1] -= BytesOf(StepOf(turn).outputs[o]);
      }
    for (size_t at = 1; at < live_.size(); ++at) live_[at] += live_[at - 1];
    live_.pop_back();
    for (int at = 0; at < end(); ++at) {
      const RecomputeProblem::Step& step = StepOf(order_[at]);
      across_[at] = live_[at];
      for (const int value : step.outputs) across_[at] -= BytesOf(value);
      live_[at] += step.scratch_bytes - Grant(at);
    }
    peak_ = 0;
    peak_at_ = -1;
    above_.assign(1, 0);
    for (int at = 0; at < end(); ++at) {
      above_.push_back(above_.back() + (live_[at] > target_));
      if (live_[at] > peak_) peak_ = live_[at], peak_at_ = at;
    }
  }
  size_t SlotRead(const Turn& turn, size_t input) const {
    return Slot(turn.makers[input], Index(made_as_[turn.step][input]));
  }
  // Returns the last place at which the value is live.
  int LastPlace(int turn, size_t output) const {
    if (IsKept(turn, output)) return end() - 1;
    return (std::max)(PlaceOf(turn), last_use_[Slot(turn, output)]);
  }
  // Returns the number of bytes that outputs at a place take over from inputs.
  int64_t Grant(int at) {
    const Turn& turn = turns_[order_[at]];
    const RecomputeProblem::Step& step = StepAt(turn.step);
    IndexedVector<char> given(step.in_place.empty() ? 0 : step.outputs.size(), 0);
    int64_t sum = 0;
    for (const auto& [i, o] : step.in_place) {
      const int value = step.inputs[i];
      const int64_t bytes = BytesOf(step.outputs[o]);
      const int maker = turn.makers[i];
      if (maker < 0 || bytes > BytesOf(value)) continue;
      const size_t output = Index(made_as_[turn.step][i]), slot = Slot(maker, output);
      if (IsKept(maker, output)) continue;
      if (last_use_[slot] != at || granted_[slot] > 0 || given[o]) continue;
      given[o] = 1;
      sum += granted_[slot] = bytes;
    }
    return sum;
  }

  // Candidates.

  // Makes the best change that lowers the peak. Returns false if there is none.
  bool Improve() {
    std::vector<Candidate> candidates = FindCandidates();
    const auto less = [](const Candidate& a, const Candidate& b) {
      return a.most != b.most ? a.most < b.most : a.turn > b.turn;
    };
    std::make_heap(candidates.begin(), candidates.end(), less);
    // A change without `above` is better than every change with `above`.
    std::optional<Rating> best;
    for (; !candidates.empty(); candidates.pop_back()) {
      if (best && !best->above && candidates.front().most <= Ratio(*best)) break;
      std::pop_heap(candidates.begin(), candidates.end(), less);
      for (const Missing missing : {Missing::kMoved, Missing::kKept, Missing::kAgain}) {
        Rating one{candidates.back()};
        if (Build(one, missing) && Rate(one) && (!best || IsBetter(one, *best)))
          best = std::move(one);
      }
    }
    if (!best) return false;
    Apply(*best);
    return true;
  }
  static double Ratio(const Rating& one) {
    return one.cost > 0 ? one.gain / one.cost : (std::numeric_limits<double>::max)();
  }
  static bool IsBetter(const Rating& one, const Rating& other) {
    if (one.above != other.above) return other.above;
    const double a = Ratio(one), b = Ratio(other);
    return a != b ? a > b : one.gain > other.gain;
  }

  // Finds the turns before the peak whose values are live across the peak, but not touched by it.
  std::vector<Candidate> FindCandidates() {
    last_touch_.assign(slots_, -1);
    next_use_.assign(slots_, -1);
    for (int at = 0; at < end(); ++at) {
      const int number = order_[at];
      const Turn& turn = turns_[number];
      for (size_t o = 0; at <= peak_at_ && o < StepAt(turn.step).outputs.size(); ++o)
        last_touch_[Slot(number, o)] = at;
      for (size_t i = 0; i < turn.makers.size(); ++i) {
        if (turn.makers[i] < 0) continue;
        const size_t slot = SlotRead(turn, i);
        if (at <= peak_at_)
          last_touch_[slot] = at;
        else if (next_use_[slot] < 0)
          next_use_[slot] = at;
      }
    }
    std::vector<Candidate> found;
    for (int at = 0; at < peak_at_; ++at) {
      Candidate one{order_[at], end(), 0};
      const RecomputeProblem::Step& step = StepOf(one.turn);
      if (!step.repeatable) continue;
      for (size_t o = 0; o < step.outputs.size(); ++o)
        if (const int use = next_use_[Slot(one.turn, o)]; use >= 0 && !IsKept(one.turn, o))
          one.place = (std::min)(one.place, use);
      if (one.place == end()) continue;
      bool lowers = false;
      for (size_t o = 0; o < step.outputs.size(); ++o) {
        if (!IsFreed(one.turn, o)) continue;
        const int touch = last_touch_[Slot(one.turn, o)];
        lowers |= touch < peak_at_;
        one.most +=
            static_cast<double>(BytesOf(step.outputs[o])) * (above_[one.place] - above_[touch + 1]);
      }
      if (!lowers) continue;
      const double cost = CostWithout(one.turn) + step.cost;
      one.most = cost > 0 ? one.most / cost : (std::numeric_limits<double>::max)();
      found.push_back(one);
    }
    return found;
  }
  // True if the output takes bytes, is next used after the peak, and need not be kept until that
  // use.
  bool IsFreed(int turn, size_t output) const {
    return BytesOf(StepOf(turn).outputs[output]) > 0 && next_use_[Slot(turn, output)] >= 0 &&
           !IsKept(turn, output);
  }
  // Returns the change of the run's cost if the readers after the peak read another turn. 0, or
  // negative if this turn has no other readers and is then dropped.
  double CostWithout(int turn) const {
    const RecomputeProblem::Step& step = StepOf(turn);
    if (!droppable_[turns_[turn].step]) return 0;
    for (size_t o = 0; o < step.outputs.size(); ++o)
      if (last_touch_[Slot(turn, o)] > PlaceOf(turn)) return 0;
    return -step.cost;
  }

  // Finds the turns that must run before the candidate's place. Returns false if there is no way.
  bool Build(Rating& one, Missing missing) const {
    const int turn = one.of.turn;
    for (size_t o = 0; o < StepOf(turn).outputs.size(); ++o)
      if (IsFreed(turn, o))
        one.changes.push_back(
            {last_touch_[Slot(turn, o)] + 1, one.of.place, -BytesOf(StepOf(turn).outputs[o])});
    one.cost = CostWithout(turn);
    int made = 0;
    return Make(one, turns_[turn].step, -1, missing, &made);
  }
  // Adds a turn for `step`, after the turns that it needs, and sets `made` to its number.
  bool Make(Rating& one, int step, int moved, Missing missing, int* made) const {
    constexpr size_t kMostMade = 64;
    NewTurn turn{step, moved, {}};
    for (size_t i = 0; i < StepAt(step).inputs.size(); ++i) {
      int maker = -1;
      const int given = turns_[turns_of_[step].front()].makers[i];
      if (given >= 0 && !Obtain(one, turns_[given].step, Index(made_as_[step][i]), missing, &maker))
        return false;
      turn.makers.push_back(maker);
    }
    if (one.made.size() == kMostMade) return false;
    *made = -2 - static_cast<int>(one.made.size());
    if (moved < 0) one.cost += StepAt(step).cost;
    one.made.push_back(std::move(turn));
    return true;
  }
  // Finds or adds a turn that makes the value, such that the value is still live at the candidate's
  // place.
  bool Obtain(Rating& one, int step, size_t output, Missing missing, int* maker) const {
    const int value = StepAt(step).outputs[output];
    for (size_t i = 0; i < one.made.size(); ++i)
      if (one.made[i].step == step) return *maker = -2 - static_cast<int>(i), true;
    int before = -1, after = -1;  // the nearest turns to the place
    for (const int turn : turns_of_[step]) {
      const int at = PlaceOf(turn);
      if (at < 0) continue;
      if (at >= one.of.place) {
        if (after < 0 || at < PlaceOf(after)) after = turn;
        continue;
      }
      if (LastPlace(turn, output) >= one.of.place) return *maker = turn, true;
      if (before < 0 || LastPlace(turn, output) > LastPlace(before, output)) before = turn;
    }
    const bool is_free =
        before >= 0 && (BytesOf(value) == 0 || !Raises(before, output, one.of.place));
    if (is_free || (missing == Missing::kKept && before >= 0)) {
      Extend(one, before, output);
      return *maker = before, true;
    }
    if (after >= 0 && missing == Missing::kMoved) {
      AddMove(one, after);
      return Make(one, step, after, missing, maker);
    }
    if (StepAt(step).repeatable) return Make(one, step, -1, missing, maker);
    if (before < 0) return false;
    Extend(one, before, output);
    return *maker = before, true;
  }
  // True if, with the value kept until `place`, some place before it is above the target.
  bool Raises(int turn, size_t output, int place) const {
    const int64_t bytes = BytesOf(StepOf(turn).outputs[output]);
    for (int at = LastPlace(turn, output) + 1; at < place; ++at)
      if (live_[at] + bytes > target_) return true;
    return false;
  }
  void Extend(Rating& one, int turn, size_t output) const {
    const std::pair known(turn, static_cast<int>(output));
    if (Contains(one.extended, known)) return;
    one.extended.push_back(known);
    const int64_t bytes = BytesOf(StepOf(turn).outputs[output]);
    const int last = LastPlace(turn, output);
    one.extended_bytes += bytes;
    one.changes.push_back({last + 1, one.of.place, bytes});
    if (const int64_t granted = granted_[Slot(turn, output)]; granted > 0)
      one.changes.push_back({last, last + 1, granted});
  }
  // Adds the outputs of a moved turn, which are live from the candidate's place on.
  void AddMove(Rating& one, int turn) const {
    for (size_t o = 0; o < StepOf(turn).outputs.size(); ++o)
      if (last_use_[Slot(turn, o)] >= 0)
        one.changes.push_back({one.of.place, PlaceOf(turn), BytesOf(StepOf(turn).outputs[o])});
  }

  // Fills in the least gain of the candidate. Returns false if it gains nothing, or if it raises
  // the live bytes of a place to the peak's.
  bool Rate(Rating& one) {
    change_.resize(order_.size() + 1, 0);
    int begin = end(), finish = 0;
    for (const Change& change : one.changes) {
      if (change.begin >= change.end) continue;
      change_[change.begin] += change.bytes;
      change_[change.end] -= change.bytes;
      begin = (std::min)(begin, change.begin);
      finish = (std::max)(finish, change.end);
    }
    const auto above = [&](int64_t bytes) {
      return static_cast<double>((std::max)(bytes - target_, int64_t{0}));
    };
    bool lowers = true;
    const auto look = [&](int64_t bytes) {
      if (bytes <= target_) return;
      one.above = true;
      lowers = lowers && bytes < peak_;
    };
    int64_t sum = 0;
    for (int at = begin; at < finish; ++at) {
      sum += std::exchange(change_[at], 0);
      const int64_t before = live_[at];
      one.gain += above(before) - above(before + sum);
      if (sum > 0) look(before + sum);
    }
    change_[finish] = 0;
    if (!lowers) return false;
    for (const int64_t bytes : BytesOfMade(one)) {
      one.gain -= above(bytes);
      look(bytes);
    }
    return lowers && one.gain > 0;
  }
  // Returns, for each new turn (run of a step), the bytes that are live while it runs.
  std::vector<int64_t> BytesOfMade(const Rating& one) const {
    const std::vector<NewTurn>& made = one.made;
    int64_t base = across_[one.of.place] + one.extended_bytes;
    const RecomputeProblem::Step& origin = StepOf(one.of.turn);
    for (size_t o = 0; o < origin.outputs.size(); ++o)
      if (last_use_[Slot(one.of.turn, o)] >= one.of.place && !IsKept(one.of.turn, o))
        base -= BytesOf(origin.outputs[o]);
    IndexedVector<size_t> last(made.size());  // the last new turn that reads a value of the turn
    for (size_t i = 0; i < made.size(); ++i) {
      last[i] = made[i].turn >= 0 || i + 1 == made.size() ? made.size() : i;
      for (const int maker : made[i].makers)
        if (maker <= -2 && last[-2 - maker] < i) last[-2 - maker] = i;
    }
    std::vector<int64_t> bytes(made.size(), base);
    for (size_t i = 0; i < made.size(); ++i) {
      int64_t outputs = 0;
      for (const int value : StepAt(made[i].step).outputs) outputs += BytesOf(value);
      bytes[i] += StepAt(made[i].step).scratch_bytes;
      for (size_t at = i; at <= last[i] && at < made.size(); ++at) bytes[at] += outputs;
    }
    return bytes;
  }

  // Changes.

  void Apply(const Rating& one) {
    IndexedVector<int> numbers;
    for (const NewTurn& made : one.made) {
      Turn turn{made.step, {}, true};
      for (const int maker : made.makers)
        turn.makers.push_back(maker <= -2 ? numbers[-2 - maker] : maker);
      if (made.turn < 0) {
        numbers.push_back(AddTurn(std::move(turn)));
        continue;
      }
      numbers.push_back(made.turn);
      std::erase(order_, made.turn);  // the turn was behind the place before the move
      turns_[made.turn] = std::move(turn);
    }
    for (size_t at = Index(one.of.place); at < order_.size(); ++at) {
      Turn& reader = turns_[order_[at]];
      for (size_t i = 0; i < reader.makers.size(); ++i)
        if (reader.makers[i] == one.of.turn &&
            !IsKept(one.of.turn, Index(made_as_[reader.step][i])))
          reader.makers[i] = numbers.back();
    }
    order_.insert(order_.begin() + one.of.place, numbers.begin(), numbers.end());
    DropUnused();
    Measure();
  }
  // Drops turns that nothing reads any more.
  void DropUnused() {
    IndexedVector<char> is_read(turns_.size(), 0);
    std::vector<int> left;
    for (size_t at = order_.size(); at-- > 0;) {
      const int number = order_[at];
      const Turn& turn = turns_[number];
      if (!is_read[number] && droppable_[turn.step]) continue;
      for (const int maker : turn.makers)
        if (maker >= 0) is_read[maker] = 1;
      left.push_back(number);
    }
    order_.assign(left.rbegin(), left.rend());
  }
  // Drops the turns that the target does not need, the most expensive first. The values of the turn
  // before a dropped turn are then kept.
  void Prune() {
    std::vector<int> again;
    for (const int turn : order_)
      if (TurnBefore(turn) >= 0) again.push_back(turn);
    StableSort(again, [&](int a, int b) { return StepOf(a).cost > StepOf(b).cost; });
    for (const int turn : again) {
      const int before = PlaceOf(turn) < 0 ? -1 : TurnBefore(turn);
      if (before < 0) continue;
      const std::vector<int> order = order_;
      std::vector<int*> changed;
      for (const int reader : order_)
        for (int& maker : turns_[reader].makers)
          if (maker == turn) changed.push_back(&maker);
      for (int* const maker : changed) *maker = before;
      DropUnused();
      Measure();
      if (peak_ <= target_) continue;
      for (int* const maker : changed) *maker = turn;
      order_ = order;
      Measure();
    }
  }
  // Returns the nearest earlier turn of the same step; -1 if there is none.
  int TurnBefore(int turn) const {
    int before = -1;
    for (const int other : turns_of_[turns_[turn].step])
      if (PlaceOf(other) >= 0 && PlaceOf(other) < PlaceOf(turn) &&
          (before < 0 || PlaceOf(other) > PlaceOf(before)))
        before = other;
    return before;
  }

  const RecomputeProblem& problem_;
  const int64_t target_;
  RecomputedRun result_;
  // By step and input: the index of this input among the outputs of its maker.
  IndexedVector<IndexedVector<int>> made_as_;
  IndexedVector<char> droppable_;  // by step: 1 if its turns are dropped when nothing reads them
  IndexedVector<std::vector<int>> turns_of_;  // by step: its turns
  IndexedVector<Turn> turns_;
  IndexedVector<int> order_;          // turns
  IndexedVector<size_t> first_slot_;  // by turn: its first slot; a slot is an output of a turn
  size_t slots_ = 0;
  double given_cost_ = 0;
  // Results of Measure.
  IndexedVector<int> place_;      // by turn: its place in order_; -1: no longer there
  std::vector<int> last_use_;     // by slot: the place of its last use; -1: none
  std::vector<int64_t> granted_;  // by slot: the bytes that its last reader takes over in place
  // By place: bytes that are live while its turn runs, and just before.
  IndexedVector<int64_t> live_, across_;
  // By place: number of earlier places whose live bytes exceed the target.
  IndexedVector<int> above_;
  int64_t peak_ = 0;
  int peak_at_ = -1;
  // By slot: the last touch up to the peak and the first after it; -1: none.
  std::vector<int> last_touch_, next_use_;
  // By place: the changes that Rate adds up; all 0 between its calls.
  IndexedVector<int64_t> change_;
};

}  // namespace detail

OPKIT_INLINE RecomputedRun Recompute(const RecomputeProblem& problem, int64_t bytes) {
  return detail::Recomputer(problem, bytes).Run();
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_MEMORY_IMPL_RECOMPUTE_IPP_
