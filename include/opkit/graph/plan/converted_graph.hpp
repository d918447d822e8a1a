// ConvertedGraph: the graph of a plan with converters between the layouts of its kernels and copies
// between their devices, once for each value and place. The nodes of the plan's graph keep their
// indices; converters come behind them. Values that leave or enter the graph keep their names and
// are in the standard layout. converters.hpp has the definitions.
#ifndef OPKIT_GRAPH_PLAN_CONVERTED_GRAPH_HPP_
#define OPKIT_GRAPH_PLAN_CONVERTED_GRAPH_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/plan/types.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// The constants of a plan in other layouts and on other devices, which its specializations share.
// Thread-safe.
class ConvertedConstants {
 public:
  // Errors: as ConvertLayout.
  Tensor Get(const Tensor& constant, const Layout& layout, Device device);
  // Lets go of all of them; graphs that have them keep theirs.
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

class ConvertedGraph {
 public:
  // `types` has the layouts that the choices give the values of `view`. Constants that are read in
  // other layouts are converted here. `choices` grows by those of the converters. `outputs_on`: as
  // of NeedsConverters. Errors: as ConvertLayout.
  static std::unique_ptr<ConvertedGraph> Make(const GraphView& view, const GraphTypes& types,
                                              std::vector<NodeChoice>& choices,
                                              ConvertedConstants& constants,
                                              const Device* outputs_on);

  const GraphView& view() const { return view_; }
  const GraphTypes& types() const { return types_; }
  // The value here, by its number in the plan's view, as the plan's graph has it: in the standard
  // layout where a node outside the converters, or the caller, reads it so.
  int ValueOf(int plan_value) const { return value_of_[Index(plan_value)]; }
  // The names of the constants that nodes read in `before`, the view that this was made of, and
  // that nothing reads here, since it reads them converted.
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
  std::vector<int> value_of_;
};

// ConvertedGraph::Make, where NeedsConverters.
OPKIT_IMAGE_LOCAL inline constinit Hook<std::unique_ptr<ConvertedGraph>(
    const GraphView&, const GraphTypes&, std::vector<NodeChoice>&, ConvertedConstants&,
    const Device* outputs_on)>
    g_make_converted_graph{"a plan of kernels that differ in layout or device",
                           "opkit/graph/plan/converters.hpp"};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_CONVERTED_GRAPH_HPP_
