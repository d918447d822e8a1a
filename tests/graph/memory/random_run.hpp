// Random runs for the tests of lifetimes and of the verifier, and a simulation of them: memory is
// an array of tags, and steps start and complete in some legal order. A step that finds a foreign
// tag in its buffer proves the plan wrong.
#ifndef OPKIT_TESTS_GRAPH_MEMORY_RANDOM_RUN_HPP_
#define OPKIT_TESTS_GRAPH_MEMORY_RANDOM_RUN_HPP_

#include <algorithm>
#include <string>
#include <vector>

#include "opkit/graph/memory/run_order.hpp"
#include "opkit/op/random.hpp"

struct RandomRun {
  opkit::detail::RunOrder order;
  std::vector<opkit::detail::RunValue> values;
  std::vector<opkit::detail::InPlaceOption> in_place;
};

enum class RunKind { kAnyThreads, kStages, kWalk };

inline RandomRun MakeRun(opkit::RandomGenerator& random, RunKind kind) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  RandomRun run;
  const int nodes = run.order.nodes = 1 + below(14);
  const int reach = 1 + below(6);
  if (kind != RunKind::kAnyThreads) {
    int stage = 0;
    for (int v = 0; v < nodes; ++v) {
      run.order.stages.push_back(stage);
      if (kind == RunKind::kWalk || below(3) == 0) ++stage;
    }
  }
  if (below(2) == 0)
    for (int v = 0; v < nodes; ++v) run.order.asynchronous.push_back(below(3) == 0);
  const auto edge = [&](int before, int after) {
    run.order.before.push_back(before);
    run.order.after.push_back(after);
  };
  for (int v = 1; v < nodes; ++v)
    if (below(4) == 0) edge(below(v), v);
  for (int count = 1 + below(20); count > 0; --count) {
    opkit::detail::RunValue value;
    const auto id = static_cast<int>(run.values.size());
    value.bytes = below(8) == 0 ? 0 : 1 + below(12);
    value.alignment = int64_t{1} << below(3);
    value.producer = below(nodes + 1) - 1;
    if (id > 0 && below(6) == 0) {
      value.view_of = below(id);
      const opkit::detail::RunValue& viewed = run.values[static_cast<size_t>(value.view_of)];
      if (viewed.producer >= nodes - 1 || viewed.bytes == 0) continue;
      value.view_offset = below(static_cast<int>(viewed.bytes));
      value.bytes = 1 + below(static_cast<int>(viewed.bytes - value.view_offset));
      value.producer = viewed.producer + 1 + below(nodes - 1 - viewed.producer);
      if (viewed.producer >= 0) edge(viewed.producer, value.producer);
    } else {
      value.external = below(10) == 0;
    }
    value.kept = below(6) == 0;
    for (int user = value.producer + 1; user < std::min(nodes, value.producer + 1 + reach); ++user)
      if (below(3) == 0) {
        value.users.push_back(user);
        if (value.producer >= 0) edge(value.producer, user);
        for (int output = 0; output < id; ++output)
          if (run.values[static_cast<size_t>(output)].producer == user && below(2) == 0)
            run.in_place.push_back({user, id, output});
      }
    if (value.producer >= 0)
      for (int input = 0; input < id; ++input)
        for (int user : run.values[static_cast<size_t>(input)].users)
          if (user == value.producer && below(2) == 0) run.in_place.push_back({user, input, id});
    run.values.push_back(value);
  }
  return run;
}

// Runs in one random legal order. `addresses` has the first byte of each value. Says what went
// wrong, or nothing.
class Simulation {
 public:
  Simulation(const RandomRun& run, const std::vector<int64_t>& addresses,
             opkit::RandomGenerator& random)
      : run_(run), addresses_(addresses), random_(random) {
    for (size_t i = 0; i < run.values.size(); ++i) {
      size_t root = i;
      while (run.values[root].view_of >= 0) root = static_cast<size_t>(run.values[root].view_of);
      family_.push_back(root);
      planned_.push_back(!run.values[root].external);
      if (planned_[i])
        memory_.resize(
            std::max(memory_.size(), static_cast<size_t>(addresses[i] + run.values[i].bytes)));
    }
  }

  std::string Run() {
    const int nodes = run_.order.nodes;
    std::vector<int> state(static_cast<size_t>(nodes), 0);  // 1: started, 2: completed
    for (size_t i = 0; i < run_.values.size(); ++i)
      if (run_.values[i].producer < 0) Write(i);
    for (size_t i = 0; i < run_.values.size(); ++i)
      if (run_.values[i].producer < 0) Check(i, "at the start");
    // One step tends to start after all that can go before it, one to complete so: the orders that
    // show most.
    const size_t late = random_() % static_cast<uint64_t>(nodes);
    const size_t slow = random_() % static_cast<uint64_t>(nodes);
    for (int completed = 0; completed < nodes && fault_.empty();) {
      const auto v = static_cast<size_t>(random_() % static_cast<uint64_t>(nodes));
      if (v == (state[v] == 0 ? late : slow) && random_() % 256 != 0) continue;
      if (state[v] == 0 && MayStart(static_cast<int>(v), state)) {
        state[v] = 1;
        Start(static_cast<int>(v));
      } else if (state[v] == 1) {
        state[v] = 2;
        Complete(static_cast<int>(v));
        ++completed;
      }
    }
    for (size_t i = 0; i < run_.values.size(); ++i)
      if (run_.values[i].kept) Check(i, "after the run");
    return fault_;
  }

 private:
  bool MayStart(int v, const std::vector<int>& state) const {
    const opkit::detail::RunOrder& order = run_.order;
    for (size_t e = 0; e < order.after.size(); ++e)
      if (order.after[e] == v && state[static_cast<size_t>(order.before[e])] != 2) return false;
    for (int u = 0; !order.stages.empty() && u < v; ++u) {
      const auto i = static_cast<size_t>(u);
      const bool asynchronous = !order.asynchronous.empty() && order.asynchronous[i];
      if (order.stages[i] < order.stages[static_cast<size_t>(v)] &&
          state[i] < (asynchronous ? 1 : 2))
        return false;
    }
    return true;
  }
  void Write(size_t i) {
    if (!planned_[i] || run_.values[i].view_of >= 0) return;
    for (int64_t byte = 0; byte < run_.values[i].bytes; ++byte)
      memory_[static_cast<size_t>(addresses_[i] + byte)] = family_[i] + 1;
  }
  void Check(size_t i, const char* when) {
    if (!planned_[i]) return;
    for (int64_t byte = 0; byte < run_.values[i].bytes; ++byte)
      if (memory_[static_cast<size_t>(addresses_[i] + byte)] != family_[i] + 1)
        fault_ = "value " + std::to_string(i) + " is lost " + when;
  }
  bool Reads(int v, size_t i) const {
    const std::vector<int>& users = run_.values[i].users;
    return std::find(users.begin(), users.end(), v) != users.end();
  }
  // A step reads its inputs and then writes its outputs, unless that is in place; until it has
  // completed it may do either again.
  void Start(int v) {
    for (size_t i = 0; i < run_.values.size(); ++i)
      if (Reads(v, i)) Check(i, "when it is read");
    for (size_t i = 0; i < run_.values.size(); ++i)
      if (run_.values[i].producer == v) Write(i);
  }
  void Complete(int v) {
    for (size_t i = 0; i < run_.values.size(); ++i) {
      if (run_.values[i].producer == v) Check(i, "as it is made");
      if (Reads(v, i) && !Overwritten(v, i)) Check(i, "while it is read");
    }
  }
  bool Overwritten(int v, size_t i) const {
    for (const opkit::detail::InPlaceOption& option : run_.in_place)
      if (option.node == v && static_cast<size_t>(option.input) == i &&
          planned_[static_cast<size_t>(option.output)] &&
          addresses_[static_cast<size_t>(option.output)] == addresses_[i] &&
          run_.values[static_cast<size_t>(option.output)].bytes <= run_.values[i].bytes)
        return true;
    return false;
  }

  const RandomRun& run_;
  const std::vector<int64_t>& addresses_;
  opkit::RandomGenerator& random_;
  std::vector<size_t> family_;
  std::vector<bool> planned_;
  std::vector<size_t> memory_;
  std::string fault_;
};

#endif  // OPKIT_TESTS_GRAPH_MEMORY_RANDOM_RUN_HPP_
