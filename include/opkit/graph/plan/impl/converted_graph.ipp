// The insertion of converters.
#ifndef OPKIT_GRAPH_PLAN_IMPL_CONVERTED_GRAPH_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_CONVERTED_GRAPH_IPP_

#include <algorithm>
#include <map>

#include "opkit/core/layout_registry.hpp"
#include "opkit/graph/plan/converted_graph.hpp"
#include "opkit/graph/plan/convert_layout.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

inline Layout WantedLayout(const NodeChoice& choice, size_t input) {
  const std::vector<Layout>& layouts = choice.config.input_layouts;
  return input < layouts.size() ? layouts[input] : Layout();
}

OPKIT_INLINE bool ConvertedGraph::IsNeeded(const GraphView& view, const GraphTypes& types,
                                           const std::vector<NodeChoice>& choices) {
  for (const int value : view.outputs())
    if (!types[value].layout.is_standard()) return true;
  for (int node = 0; node < view.num_nodes(); ++node) {
    const auto inputs = view.inputs(node);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] >= 0 && types[inputs[i]].layout != WantedLayout(choices[Index(node)], i))
        return true;
  }
  return false;
}

OPKIT_INLINE Tensor ConvertedConstants::Get(int value, const Tensor& constant,
                                            const Layout& layout) {
  MutexLock lock(mutex_);
  for (const Item& item : items_)
    if (item.value == value && item.tensor.layout() == layout) return item.tensor;
  items_.push_back({value, ConvertLayout(constant, layout)});
  return items_.back().tensor;
}

struct ConvertedGraph::Builder {
  Builder(const GraphView& from, const GraphTypes& known, std::vector<NodeChoice>& chosen,
          ConvertedConstants& converted_constants)
      : view(from), types(known), choices(chosen), constants(converted_constants) {
    const Graph& plan = view.graph();
    for (const GraphInput& input : plan.inputs())
      graph.AddInput(input.name, input.info.dtype, input.info.shape, input.info.device);
    for (const GraphConstant& constant : plan.constants())
      graph.AddConstant(constant.name, constant.value);
    std::vector<OperatorDef> nodes = plan.nodes();
    // What the graph returns keeps its name for the standard layout.
    for (const int value : view.outputs())
      if (!types[value].layout.is_standard()) Rename(value, nodes);
    for (int node = 0; node < view.num_nodes(); ++node) {
      const auto inputs = view.inputs(node);
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] < 0) continue;
        const std::string name = NameIn(inputs[i], WantedLayout(choices[Index(node)], i));
        if (name != nodes[Index(node)].inputs()[i])
          nodes[Index(node)].mutable_inputs()[i] = name;
      }
    }
    for (const int value : view.outputs()) NameIn(value, Layout());
    for (OperatorDef& node : nodes) graph.AddNode(std::move(node));
    for (OperatorDef& converter : converters) graph.AddNode(std::move(converter));
    for (const std::string& output : plan.outputs()) graph.AddOutput(output);
  }

  // The node that makes it makes it under another name.
  void Rename(int value, std::vector<OperatorDef>& nodes) {
    const int node = view.producer(value);
    made_as[value] = FreshName(value, types[value].layout);
    std::ranges::replace(nodes[Index(node)].mutable_outputs(), view.name(value), made_as[value]);
  }
  std::string FreshName(int value, const Layout& layout) {
    std::string name = view.graph().FreshName(StrCat(view.name(value), "@", LayoutName(layout.id)));
    while (names.Find(name) >= 0) name += "'";
    names.Add(name);
    return name;
  }
  // The name of the value in a layout; adds what converts it.
  std::string NameIn(int value, const Layout& layout) {
    const TensorInfo& info = types[value];
    const auto renamed = made_as.find(value);
    const std::string& made = renamed == made_as.end() ? view.name(value) : renamed->second;
    if (info.layout == layout) return made;
    for (const auto& [known, name] : converted[value])
      if (known == layout) return name;
    std::string name;
    if (const Tensor* constant = view.constant(value)) {
      name = FreshName(value, layout);
      graph.AddConstant(name, constants.Get(value, *constant, layout));
      layouts.push_back({name, value, layout});
    } else {
      name = made;
      Layout last = info.layout;
      for (const Layout& step :
           FindLayoutPath(info.layout, layout, info.shape.ToShape(), info.dtype).steps) {
        std::string next = step.is_standard() && renamed != made_as.end() ? view.name(value)
                                                                          : FreshName(value, step);
        AddConverter(value, std::exchange(name, next), next, std::exchange(last, step), step);
        converted[value].push_back({step, std::move(next)});
      }
      return name;
    }
    converted[value].push_back({layout, name});
    return name;
  }
  struct Named {
    std::string name;
    int value;
    Layout layout;
  };
  void AddConverter(int value, const std::string& from, const std::string& to,
                    const Layout& from_layout, const Layout& to_layout) {
    const Kernel& kernel = ConvertLayoutKernel();
    converters.push_back(OperatorDef("ConvertLayout", {from}, {to})
                             .Name(StrCat(LayoutName(from_layout.id), " to ",
                                          LayoutName(to_layout.id), " of ", view.name(value))));
    NodeChoice& choice = choices.emplace_back();
    choice.kernel = &kernel;
    choice.config.input_layouts = {from_layout};
    choice.config.output_layouts = {to_layout};
    layouts.push_back({to, value, to_layout});
  }

  const GraphView& view;
  const GraphTypes& types;
  std::vector<NodeChoice>& choices;
  ConvertedConstants& constants;
  Graph graph;
  NameIndex names;                    // those that were made here
  std::map<int, std::string> made_as;  // by value
  std::map<int, std::vector<std::pair<Layout, std::string>>> converted;  // by value
  std::vector<OperatorDef> converters;
  std::vector<Named> layouts;  // of the values that were made here
};

OPKIT_INLINE ConvertedGraph::ConvertedGraph(const GraphView& view, const GraphTypes& types,
                                            std::vector<NodeChoice>& choices,
                                            ConvertedConstants& constants)
    : ConvertedGraph(Builder(view, types, choices, constants)) {}

OPKIT_INLINE ConvertedGraph::ConvertedGraph(Builder&& builder)
    : graph_(std::move(builder.graph)), view_(graph_), types_(view_) {
  const GraphView& plan = builder.view;
  for (int value = 0; value < plan.num_values(); ++value) {
    const auto renamed = builder.made_as.find(value);
    const int made =
        view_.FindValue(renamed == builder.made_as.end() ? plan.name(value) : renamed->second);
    types_[made] = builder.types[value];
    value_of_.push_back(view_.FindValue(plan.name(value)));
  }
  for (const Builder::Named& one : builder.layouts) {
    TensorInfo& info = types_[view_.FindValue(one.name)];
    info = builder.types[one.value];
    info.layout = one.layout;
    if (view_.IsConstant(view_.FindValue(one.name)))
      info.constant = view_.constant(view_.FindValue(one.name));
  }
  for (int node = 0; node < plan.num_nodes(); ++node)
    types_.SetLacksData(node, builder.types.LacksData(node));
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_IMPL_CONVERTED_GRAPH_IPP_
