// ConvertedGraph: the graph of a plan with converters between the layouts of its kernels and copies
// between their devices, once for each value and place. The nodes of the plan's graph keep their
// indices; converters come behind them. Values that leave or enter the graph keep their names and
// are in the standard layout. converters.hpp has the definitions.
#ifndef OPKIT_GRAPH_PLAN_CONVERTED_GRAPH_HPP_
#define OPKIT_GRAPH_PLAN_CONVERTED_GRAPH_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/plan/node_choice.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The constants of a plan in other layouts and on other devices, which its specializations share.
// Thread-safe.
class ConvertedConstants {
 public:
  // Returns the constant in this layout on this device; the first call converts it. Throws the
  // errors of ConvertLayout.
  Tensor Get(const Tensor& constant, const Layout& layout, Device device);
  // Drops all constants; graphs keep those that they use.
  void Clear() {
    MutexLock lock(mutex_);
    items_.clear();
  }

 private:
  struct Item {
    Tensor constant;
    Tensor tensor;
  };
  Mutex mutex_;
  std::vector<Item> items_;
};

// Owns the graph with converters and its types, and maps the numbers of the graph before to its
// own.
class ConvertedGraph {
 public:
  // Inserts the converters. `types` has the layouts that the choices give to the values of `view`.
  // Constants that are read in other layouts are converted here. Appends the converters' choices to
  // `choices`. `outputs_on`: as for NeedsConverters. Throws the errors of ConvertLayout.
  static std::unique_ptr<ConvertedGraph> Make(const GraphView& view, const GraphTypes& types,
                                              IndexedVector<NodeChoice>& choices,
                                              ConvertedConstants& constants,
                                              const Device* outputs_on);

  const GraphView& view() const { return view_; }
  const GraphTypes& types() const { return types_; }
  // Converts a value's number in the plan's view to its number in this graph, which may have the
  // value in several layouts. For an output of the graph, returns the number of the returned value,
  // in the standard layout. For other values, returns the number of the value that the node makes.
  int ValueOf(int plan_value) const { return value_of_[plan_value]; }
  // Returns the names of the constants that nodes read in `before`, from which this graph was made,
  // but that nothing reads here: only converted copies are read.
  std::vector<std::string> UnreadConstants(const GraphView& before) const {
    std::vector<std::string> names;
    for (int value = 0; value < before.num_values(); ++value) {
      const bool was_read = before.IsConstant(value) && !before.consumers(value).empty();
      if (was_read && !before.IsOutput(value) && view_.consumers(ValueOf(value)).empty())
        names.push_back(before.name(value));
    }
    return names;
  }
  void ReleaseConstant(const std::string& name) { graph_.ReleaseConstant(name); }

 private:
  struct Builder;
  explicit ConvertedGraph(Builder&& builder);

  Graph graph_;
  GraphView view_;
  GraphTypes types_;
  IndexedVector<int> value_of_;
};

// Hook for ConvertedGraph::Make; called if NeedsConverters is true.
OPKIT_IMAGE_LOCAL inline constinit Hook<std::unique_ptr<ConvertedGraph>(
    const GraphView&, const GraphTypes&, IndexedVector<NodeChoice>&, ConvertedConstants&,
    const Device* outputs_on)>
    g_make_converted_graph{"a plan of kernels that differ in layout or device",
                           "opkit/graph/plan/converters.hpp"};

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_CONVERTED_GRAPH_HPP_
