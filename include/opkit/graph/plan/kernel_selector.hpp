// KernelSelector: the step of a plan that fixes a device, a kernel and one of its configurations
// for each node, before converters and copies are inserted and memory is planned. It visits the
// nodes in the order in which they run. A kernel's cost includes bringing its inputs from the
// layouts and devices that were chosen for them.
#ifndef OPKIT_GRAPH_PLAN_KERNEL_SELECTOR_HPP_
#define OPKIT_GRAPH_PLAN_KERNEL_SELECTOR_HPP_

#include <optional>

#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/plan/node_choice.hpp"
#include "opkit/graph/plan/options.hpp"
#include "opkit/op/kernel_candidates.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The candidates of a node in the order of preference. Those that cannot be chosen are listed too,
// with the reason.
struct NodeRating {
  struct Rated {
    KernelCandidate candidate;
    Device device;
    double conversion_ns = 0;  // estimate for converting and copying its inputs
    int64_t bytes = -1;        // memory of a run, if that is the objective; -1: unknown
  };
  IndexedVector<Rated> candidates;
  int best = -1;  // -1: none can be chosen

  // Returns why a candidate is not the best one.
  std::string WhyNot(int i) const;
};

// The devices of a node's inputs and outputs, by its schema.
class NodeDevices {
 public:
  explicit NodeDevices(const OperatorDef& def);
  // Returns the device that an input must be on; nullopt if it may be on any.
  std::optional<Device> input(size_t i) const;
  Device output(size_t o) const {
    return o < placement_.second.size() ? placement_.second[o] : device_;
  }

 private:
  Device device_;
  bool inputs_cross_;
  OpSchema::DevicePlacement placement_;  // empty: all are on device_
};

// The layout and the device of a value's elements.
struct ValuePlace {
  Layout layout;
  Device device;
  bool Is(const Layout& other, Device memory) const {
    return layout == other && MemoryDevice(device) == MemoryDevice(memory);
  }
};
// Returns the places in which a node reads its inputs on its chosen device.
std::vector<ValuePlace> WantedPlaces(const GraphView& view, const GraphTypes& types,
                                     const NodeChoice& choice, int node);
// True if a node runs on another device than the graph says, or reads a value in another layout or
// on another device than it was made in. Also true if the graph returns a value that is not in the
// standard layout, or not on `outputs_on` (null: any device).
bool NeedsConverters(const GraphView& view, const GraphTypes& types,
                     const IndexedVector<NodeChoice>& choices, const Device* outputs_on);
inline bool IsElsewhere(const TensorInfo& output, const Device* outputs_on) {
  return outputs_on && MemoryDevice(output.device) != MemoryDevice(*outputs_on);
}

// Estimates roughly how many ns a copy over the bus between two devices takes.
constexpr double EstimatedCopyNs(int64_t bytes) {
  return 10'000 + 0.1 * static_cast<double>(bytes);
}

// Selects a kernel and a configuration for each node; the next best if a constructor refuses.
class KernelSelector {
 public:
  struct Options {
    OperatorDef::BackendNeed backend_need = kPreferred;
    const Selection* forced = nullptr;
    const std::vector<Device>* devices = nullptr;  // devices for nodes that name none
    Selection::Objective objective = Selection::Objective::kTime;
    bool is_body = false;  // the node that carries the graph reads its outputs
  };

  // `types` has the inferred types. Selection sets the layouts and devices of the values that nodes
  // make.
  KernelSelector(const GraphView& view, GraphTypes& types, const Options& options);

  // Chooses for every node. Throws the errors of KernelCandidates; kUnsupported, with each
  // candidate's reason, if no candidate takes a node; kNotFound and kUnsupported for a forced
  // choice that cannot be made.
  void SelectAll(IndexedVector<NodeChoice>& choices);
  // Chooses another kernel for a node whose kernel's constructor has refused the node. Returns
  // false if the layouts or the device change: all nodes must then be chosen again.
  bool SelectAfterRefusal(int node, const std::string& why, NodeChoice& choice);

  // Returns the part of the forced selection that concerns nodes in a body of this node.
  Selection ForcedInside(int node, std::string_view body) const;
  // Rates a node's candidates with the layouts that its inputs have now.
  NodeRating Rate(int node) const;
  // Finds the layouts in which each value can be made, whatever is chosen for the other nodes.
  void FindPossibleLayouts();
  // Returns a node's candidates for all layouts in which its inputs can be made: kernels propose
  // what suits the layouts in which inputs come. Each kernel, device and configuration is listed
  // once. Call FindPossibleLayouts first.
  IndexedVector<NodeRating::Rated> AllCandidates(int node) const;

 private:
  void Select(int node, NodeChoice& choice);
  // Returns the node with the backends that it requires; nullopt if the graph's node is enough.
  std::optional<OperatorDef> Restricted(int node) const;
  // Calls `visit` with each device that the node may run on and the node on that device. Lists
  // the other devices of the options, with the reason, in `dropped`.
  using VisitDevice = FunctionRef<void(Device, const OperatorDef&)>;
  void ForEachDevice(int node, VisitDevice visit, IndexedVector<NodeRating::Rated>& dropped) const;
  // Adds the candidates of one device.
  void RateOn(Device device, const OperatorDef& def, int node, NodeRating& rating) const;
  // Returns the candidates on one device for inputs in the layouts of a forced choice, as far as
  // LayoutFromText makes them.
  std::vector<KernelCandidate> CandidatesInLayouts(const Selection::Node& forced,
                                                   const OperatorDef& def, int node) const;
  // Returns the candidates on one device for all layouts in which inputs can be made.
  std::vector<KernelCandidate> CandidatesInAnyLayout(const OperatorDef& def, int node) const;
  // Returns why an input cannot be copied to the device where the node reads it; empty if all can.
  std::string WhyNoCopy(int node, const NodeDevices& devices) const;
  // Returns why a node that may run on the host must not run on this device: no copy can lead its
  // outputs to their readers. Empty if it may.
  std::string WhyStaysOnHost(int node, Device device) const;
  std::string WhyNot(int node, const KernelCandidate& candidate) const;
  double ConversionCost(int node, const NodeDevices& devices, const KernelConfig& config) const;
  // Returns the bytes of memory that a run takes; -1 if they depend on an unknown shape.
  int64_t MemoryOf(int node, const KernelConfig& config) const;
  // True if the node names no device and there are devices to choose from.
  bool Chooses(const OperatorDef& def) const {
    return options_.devices && !options_.devices->empty() && def.device() == Device{};
  }
  void FindForced();
  // Returns the index of the candidate that is forced; -1: none of them.
  static int FindForced(const Selection::Node& forced,
                        const std::vector<KernelCandidate>& candidates);
  // Returns why the node cannot have its forced kernel; empty if nothing speaks against it.
  std::string WhyNotForced(const Selection::Node& forced, const OperatorDef& def) const;
  // Returns null for a node without a forced kernel.
  const Selection::Node* Forced(int node) const {
    return forced_.empty() ? nullptr : forced_[node];
  }

  const GraphView& view_;
  GraphTypes& types_;
  const Options options_;
  // A configuration whose constructor has refused the node.
  struct Refusal {
    const Kernel* kernel;
    int number;
    KernelConfig config;
    std::string why;
  };
  IndexedVector<std::vector<Refusal>> refused_;  // by node; empty before the first refusal
  // Both by node, and empty if nothing is forced: its forced kernel or null; its selection name.
  IndexedVector<const Selection::Node*> forced_;
  IndexedVector<std::string> names_;
  // By value: the layouts in which it can be made besides the standard layout. Empty until needed.
  IndexedVector<std::vector<Layout>> possible_;
};

// Returns the layouts of a configuration as selections write them: "standard" if all are.
std::string SelectionLayouts(const KernelConfig& config);
// Returns the entry of a node with this kernel and configuration.
Selection::Node SelectionEntry(std::string name, const std::string& op, const Kernel& kernel,
                               Device device, const KernelConfig& config, int number);
// Returns a node's name in selections: its first output, or its own name if it has no output.
const std::string& SelectionName(const OperatorDef& def);
// Returns the names of a graph's nodes in selections. If several nodes have the same first output,
// because they rewrite it, "y#2" is the second of them.
std::vector<std::string> SelectionNames(const Graph& graph);
// Returns the prefix of the names of nodes in a body, "y/body/": the name of the node that carries
// the body, and the body's name.
std::string SelectionPrefix(const std::string& node, std::string_view body);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/kernel_selector.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_KERNEL_SELECTOR_HPP_
