// A run in the form in which its memory is planned: the order of its steps, and the values that
// they write and read. Plain numbers for the planner and the verifier, without a graph.
#ifndef OPKIT_GRAPH_MEMORY_RUN_ORDER_HPP_
#define OPKIT_GRAPH_MEMORY_RUN_ORDER_HPP_

#include <cstdint>
#include <vector>

#include "opkit/base/indexed_vector.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The steps of a run, numbered 0 to nodes - 1 in the stored order, and the order that the executor
// guarantees.
struct RunOrder {
  int nodes = 0;
  // Pairs (before[i], after[i]): `after[i]` starts when `before[i]` has completed, asynchronous
  // part included. before[i] < after[i].
  IndexedVector<int> before, after;
  // The stage of each step, ascending: no step starts before all steps of lower stages have
  // returned. 0, 1, 2, … means that one thread runs the steps in the stored order. Empty: only the
  // edges order steps, on any number of threads.
  IndexedVector<int> stages;
  // 1 for each step that returns before it has completed; empty: none. Matters only with stages.
  IndexedVector<uint8_t> asynchronous;
};

// A value's bytes are live from the start of its producer until all users have completed.
struct RunValue {
  int64_t bytes = 0;
  int64_t alignment = 64;
  int producer = -1;       // -1: there when the run starts
  std::vector<int> users;  // steps that read it; scratch of a step has none
  bool kept = false;       // read after the run has ended
  bool external = false;   // in memory that the planner does not place
  // The value whose bytes this value shares, from `view_offset` on; -1 for none. The producer of a
  // view is the step that makes the view.
  int view_of = -1;
  int64_t view_offset = 0;
};

// `node`'s kernel may write value `output` over value `input`, which it reads.
struct InPlaceOption {
  int node = 0;
  int input = 0;
  int output = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_MEMORY_RUN_ORDER_HPP_
