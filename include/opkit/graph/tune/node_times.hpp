// NodeTimes: the time that each node of a plan takes in the plan's runs, and the names by which
// tuning knows what it has timed.
#ifndef OPKIT_GRAPH_TUNE_NODE_TIMES_HPP_
#define OPKIT_GRAPH_TUNE_NODE_TIMES_HPP_

#include <string>
#include <vector>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/plan/specialization.hpp"
#include "opkit/profile/timing/interleaved_times.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Observes the operators of an executor, those of bodies included. The executor has run before, and
// is not destroyed before this object.
class OPKIT_IMAGE_LOCAL NodeTimes {
 public:
  // The times of a node of the graph that runs, or of a converter.
  struct Row {
    const Specialization* specialization;  // of the graph or of the body
    int node;                              // in specialization->view()
    std::vector<double> ns;                // by run: all calls of the node together
  };

  NodeTimes(Executor& executor, TimingClock& clock);
  NodeTimes(NodeTimes&&) = delete;
  ~NodeTimes();

  // Takes the times since the last call as those of one run. With `keep` false drops them.
  void EndRun(bool keep);
  const std::vector<Row>& rows() const { return rows_; }

 private:
  class Clock;
  void Observe(const Specialization& specialization, BoundNodes& nodes);

  TimingClock& clock_;
  std::vector<Row> rows_;
  std::vector<Clock*> clocks_;  // by row; each operator owns its own
  std::vector<OperatorBase*> operators_;
};

// Returns the text that stands for all nodes that do the same work: the operator, its attributes,
// and the types of its inputs and outputs, in any layout.
OPKIT_IMAGE_LOCAL std::string WorkKey(const OperatorDef& def, std::span<const TensorInfo> inputs,
                                      std::span<const TensorInfo> outputs);
// Returns the text of one way to do it: the kernel, its device, its layouts and its variant.
OPKIT_IMAGE_LOCAL std::string WayKey(const Kernel& kernel, Device device,
                                     const KernelConfig& config);
// Returns the text of a conversion or copy of one value.
OPKIT_IMAGE_LOCAL std::string ConversionKey(const TensorInfo& value, const ValuePlace& from,
                                            const ValuePlace& to);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/tune/impl/node_times.ipp"
#endif

#endif  // OPKIT_GRAPH_TUNE_NODE_TIMES_HPP_
