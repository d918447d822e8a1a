// ScanArguments: the arguments of a Scan node, read and checked.
#ifndef OPKIT_OPS_LOOPS_SCAN_ARGUMENTS_HPP_
#define OPKIT_OPS_LOOPS_SCAN_ARGUMENTS_HPP_

#include "opkit/ops/loops/iterated_body.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The arguments of a Scan node. The lists have one entry for each scanned input or stacked output;
// axes may be negative.
struct ScanArguments {
  IteratedBody body;
  size_t states = 0, inputs = 0, outputs = 0;
  std::vector<int64_t> input_axes, input_directions, output_axes, output_directions;
};

// Returns a list of `count` axes or directions; zeros if the node has none. Throws kInvalidArgument
// for a list of another length.
inline std::vector<int64_t> ScanList(const OperatorDef& def, const char* name, size_t count) {
  auto list = def.args().Get<std::vector<int64_t>>(name, {});
  if (list.empty()) list.assign(count, 0);
  if (list.size() != count)
    Throw(ErrorCode::kInvalidArgument, "Scan: '", name, "' has ", list.size(),
          " entries, expected ", count);
  return list;
}
inline std::vector<int64_t> ScanDirections(const OperatorDef& def, const char* name, size_t count) {
  std::vector<int64_t> list = ScanList(def, name, count);
  for (const int64_t direction : list)
    if (direction != 0 && direction != 1)
      Throw(ErrorCode::kInvalidArgument, "Scan: '", name, "' has ", direction,
            ", expected 0 (forward) or 1 (backward)");
  return list;
}
// Throws kInvalidArgument if the node's arguments do not fit each other or the body.
inline ScanArguments ScanArgumentsOf(const OperatorDef& def) {
  ScanArguments found;
  const auto scanned = def.args().Get<int64_t>("num_scan_inputs", 0);
  const int64_t own = static_cast<int64_t>(def.inputs().size()) - CountCaptures(def);
  if (scanned < 1 || scanned > own)
    Throw(ErrorCode::kInvalidArgument, "Scan: 'num_scan_inputs' is ", scanned,
          ", expected 1 to the number of inputs that are no captured values, ", own);
  found.body = IteratedBodyOf(def, static_cast<int>(own), def.outputs().size());
  found.inputs = static_cast<size_t>(scanned);
  found.states = static_cast<size_t>(own - scanned);
  if (def.outputs().size() < found.states)
    Throw(ErrorCode::kInvalidArgument, "Scan: the node has ", found.states, " states, but ",
          def.outputs().size(), " outputs");
  found.outputs = def.outputs().size() - found.states;
  found.input_axes = ScanList(def, "scan_input_axes", found.inputs);
  found.input_directions = ScanDirections(def, "scan_input_directions", found.inputs);
  found.output_axes = ScanList(def, "scan_output_axes", found.outputs);
  found.output_directions = ScanDirections(def, "scan_output_directions", found.outputs);
  return found;
}
// Returns an axis of the list as a number from 0 to rank - 1. Throws kOutOfRange.
inline int ScanAxis(int64_t axis, int rank, const char* name) {
  if (axis < -rank || axis >= rank)
    Throw(ErrorCode::kOutOfRange, "Scan: '", name, "' has the axis ", axis, ", expected ", -rank,
          " to ", rank - 1);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_LOOPS_SCAN_ARGUMENTS_HPP_
