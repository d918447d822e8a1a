// KernelSelector: the step of a plan that fixes a device, a kernel and one of its configurations
// for each node, before converters and copies are inserted and memory is planned. Node by node in
// the order in which they run: what a kernel costs includes what brings its inputs from the layouts
// and devices that they have by then.
#ifndef OPKIT_GRAPH_PLAN_KERNEL_SELECTOR_HPP_
#define OPKIT_GRAPH_PLAN_KERNEL_SELECTOR_HPP_

#include <optional>

#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/plan/types.hpp"
#include "opkit/op/kernel_candidates.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The candidates of a node in the order of preference, those that cannot be chosen among them, with
// the reason.
struct NodeRating {
  struct Rated {
    KernelCandidate candidate;
    Device device;
    double conversion_ns = 0;  // an estimate, of its inputs' conversions and copies
    int64_t bytes = -1;        // of a run, where memory is the objective
  };
  std::vector<Rated> candidates;
  int best = -1;  // -1: none can be chosen

  // Why a candidate is not the best one.
  std::string WhyNot(int i) const;
};

// The devices of a node's values, as its schema says.
class NodeDevices {
 public:
  explicit NodeDevices(const OperatorDef& def);
  // The device that an input must be on; nullopt where it may be on any.
  std::optional<Device> input(size_t i) const;
  Device output(size_t o) const {
    return o < placement_.second.size() ? placement_.second[o] : device_;
  }

 private:
  Device device_;
  bool inputs_cross_;
  OpSchema::DevicePlacement placement_;  // empty: all are on device_
};

// Where a value's elements are, and how they lie there.
struct ValuePlace {
  Layout layout;
  Device device;
  bool Is(const Layout& other, Device memory) const {
    return layout == other && MemoryDevice(device) == MemoryDevice(memory);
  }
};
// Where a node that runs on its chosen device reads its inputs.
std::vector<ValuePlace> WantedPlaces(const GraphView& view, const GraphTypes& types,
                                     const NodeChoice& choice, int node);
// Whether a node runs on another device than the graph says, or reads a value in another layout
// or on another device than it is made, or the graph returns one that is not in the standard
// layout.
// `outputs_on`: the device on which what the graph returns must be; null: that which makes it.
bool NeedsConverters(const GraphView& view, const GraphTypes& types,
                     const std::vector<NodeChoice>& choices, const Device* outputs_on);
inline bool IsElsewhere(const TensorInfo& output, const Device* outputs_on) {
  return outputs_on && MemoryDevice(output.device) != MemoryDevice(*outputs_on);
}

// Of a copy between two devices, about: over a bus.
constexpr double EstimatedCopyNs(int64_t bytes) {
  return 10'000 + 0.1 * static_cast<double>(bytes);
}

class KernelSelector {
 public:
  struct Options {
    bool strict_backends = false;
    const Selection* forced = nullptr;
    const std::vector<Device>* devices = nullptr;  // of nodes that name none
    SelectionObjective objective = SelectionObjective::kTime;
  };

  // `types` has what inference knows, and gets the layouts of the values that nodes make.
  KernelSelector(const GraphView& view, GraphTypes& types, const Options& options);

  // Chooses for every node. Errors: as KernelCandidates; kUnsupported with each candidate's reason
  // where none takes a node; kNotFound and kUnsupported for a forced choice that cannot be made.
  void SelectAll(std::vector<NodeChoice>& choices);
  // The constructor of the node's kernel has refused it: chooses again without that kernel. False
  // where other layouts come of it, so that all nodes must be chosen again.
  bool SelectAfterRefusal(int node, const std::string& why, NodeChoice& choice);

  // What is forced on the nodes in a body of a node.
  Selection ForcedInside(int node, std::string_view body) const;
  // With the layouts that the node's inputs have now.
  NodeRating Rate(int node) const;

 private:
  void Select(int node, NodeChoice& choice);
  // The node with the backends that it must have; null where the graph's own will do.
  std::optional<OperatorDef> Restricted(int node) const;
  // Adds the candidates of one device.
  void RateOn(Device device, const OperatorDef& def, int node, NodeRating& rating) const;
  // Why no input can be brought to the node's devices; empty where all can.
  std::string WhyNoCopy(int node, const NodeDevices& devices) const;
  std::string WhyNot(int node, const KernelCandidate& candidate) const;
  double ConversionCost(int node, const NodeDevices& devices, const KernelConfig& config) const;
  // The memory of a run; -1 while a shape that decides it is unknown.
  int64_t MemoryOf(int node, const KernelConfig& config) const;
  // The node names no device, and there are some to choose from.
  bool Chooses(const OperatorDef& def) const {
    return options_.devices && !options_.devices->empty() && def.device() == Device{};
  }
  void FindForced();
  void CheckForcedDevice(const SelectedKernel& forced, const OperatorDef& def) const;
  const SelectedKernel* Forced(int node) const {
    return forced_.empty() ? nullptr : forced_[Index(node)];
  }

  const GraphView& view_;
  GraphTypes& types_;
  const Options options_;
  struct Refusal {
    const Kernel* kernel;
    int config;
    std::string why;
  };
  std::vector<std::vector<Refusal>> refused_;  // by node; empty where nothing is
  // By node, empty where nothing is forced: null for one on which nothing is, and its name.
  std::vector<const SelectedKernel*> forced_;
  std::vector<std::string> names_;
};

// The first output, by which selections know a node that makes it.
const std::string& SelectionName(const OperatorDef& def);
// The names by which selections know the nodes of a graph. Where several have the same first
// output, since they rewrite it, "y#2" is the second of them.
std::vector<std::string> SelectionNames(const Graph& graph);
// The name of the node that carries it and its own, "y/body/", come before the names of the nodes
// in a body.
std::string SelectionPrefix(const std::string& node, std::string_view body);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/kernel_selector.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_KERNEL_SELECTOR_HPP_
