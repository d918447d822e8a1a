// Definitions of ConvertedGraph: inserts converters and copies.
#ifndef OPKIT_GRAPH_PLAN_IMPL_CONVERTED_GRAPH_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_CONVERTED_GRAPH_IPP_

#include <algorithm>
#include <map>

#include "opkit/base/algorithm.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/graph/plan/converters.hpp"
#include "opkit/graph/plan/explain_selection.hpp"
#include "opkit/graph/plan/kernel_selector.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE Tensor ConvertedConstants::Get(const Tensor& constant, const Layout& layout,
                                            Device device) {
  MutexLock lock(mutex_);
  for (const Item& item : items_)
    if (item.constant.storage() == constant.storage() &&
        item.constant.raw_data() == constant.raw_data() &&
        item.constant.dtype() == constant.dtype() && item.constant.shape() == constant.shape() &&
        item.constant.strides() == constant.strides() && item.tensor.layout() == layout &&
        MemoryDevice(item.tensor.device()) == MemoryDevice(device))
      return item.tensor;
  Tensor made = constant;
  if (MemoryDevice(made.device()) != MemoryDevice(device)) {
    Tensor there(device);
    Copy(made, &there);
    made = std::move(there);
  }
  items_.push_back({constant, ConvertLayout(made, layout)});
  return items_.back().tensor;
}

// Adds the converters and makes nodes read their outputs.
struct ConvertedGraph::Builder {
  Builder(const GraphView& from, const GraphTypes& known, IndexedVector<NodeChoice>& chosen,
          ConvertedConstants& converted_constants, const Device* device_of_outputs)
      : view(from),
        types(known),
        choices(chosen),
        constants(converted_constants),
        outputs_on(device_of_outputs) {
    const Graph& plan = view.graph();
    for (const Graph::Input& input : plan.inputs()) graph.AddInput(input);
    for (const Graph::Constant& constant : plan.constants())
      graph.AddConstant(constant.name, constant.value);
    IndexedVector<OperatorDef> nodes = plan.nodes();
    // An output that must be converted gives its name to the converted value.
    for (const int value : view.outputs())
      if (!OutputPlace(value).Is(types[value].layout, types[value].device)) Rename(value, nodes);
    for (int node = 0; node < view.num_nodes(); ++node) {
      const auto inputs = view.inputs(node);
      // A copy, because adding a converter reallocates `choices`.
      const NodeChoice choice = choices[node];
      if (choice.device != nodes[node].device()) nodes[node].Device(choice.device);
      const std::vector<ValuePlace> wanted = WantedPlaces(view, types, choice, node);
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] < 0) continue;
        const std::string name = NameIn(inputs[i], wanted[i]);
        if (name != nodes[node].inputs()[i]) nodes[node].mutable_inputs()[i] = name;
      }
    }
    for (const int value : view.outputs()) NameIn(value, OutputPlace(value));
    for (OperatorDef& node : nodes) graph.AddNode(std::move(node));
    for (OperatorDef& converter : converters) graph.AddNode(std::move(converter));
    for (const std::string& output : plan.outputs()) graph.AddOutput(output);
  }

  ValuePlace OutputPlace(int value) const {
    const TensorInfo& made = types[value];
    return {Layout(), IsElsewhere(made, outputs_on) ? *outputs_on : made.device};
  }
  // Gives the value a new name in the node that makes it and in those that rewrite it.
  void Rename(int value, std::vector<OperatorDef>& nodes) {
    made_as[value] =
        FreshName(value, NameOf(OutputPlace(value), {types[value].layout, types[value].device}));
    for (OperatorDef& node : nodes)
      if (Contains(node.outputs(), view.name(value)))
        std::ranges::replace(node.mutable_outputs(), view.name(value), made_as[value]);
  }
  std::string FreshName(int value, const std::string& place) {
    std::string name = view.graph().FreshName(StrCat(view.name(value), "@", place));
    while (names.Find(name) >= 0) name += "'";
    names.Add(name);
    return name;
  }
  // Returns the places that a value passes through to the target. Between devices it is copied in
  // the standard layout.
  std::vector<ValuePlace> RouteOf(const TensorInfo& info, const ValuePlace& target) const {
    std::vector<ValuePlace> route;
    const auto convert = [&](const Layout& from, const Layout& to, Device device) {
      for (const Layout& step : FindLayoutPath(from, to, info.shape.ToShape(), info.dtype).steps)
        route.push_back({step, device});
    };
    if (MemoryDevice(info.device) == MemoryDevice(target.device)) {
      convert(info.layout, target.layout, info.device);
    } else {
      convert(info.layout, Layout(), info.device);
      route.push_back({Layout(), MemoryDevice(target.device)});
      convert(Layout(), target.layout, MemoryDevice(target.device));
    }
    return route;
  }
  // Returns the name of the value in a place; adds the converters that bring it there.
  std::string NameIn(int value, const ValuePlace& target) {
    const TensorInfo& info = types[value];
    const auto renamed = made_as.find(value);
    const std::string& made = renamed == made_as.end() ? view.name(value) : renamed->second;
    if (target.Is(info.layout, info.device)) return made;
    if (const Tensor* constant = view.constant(value)) {
      if (const std::string* known = FindPlace(value, target)) return *known;
      const Device memory = MemoryDevice(target.device);
      std::string name = FreshName(value, NameOf({info.layout, info.device}, target));
      const Tensor converted = InContext(
          [&] { return constants.Get(*constant, target.layout, memory); },
          [&] { return StrCat("in the conversion of constant '", view.name(value), "'"); });
      graph.AddConstantInLayout(name, converted);
      placed.push_back({name, value, {converted.layout(), memory}});
      return name;
    }
    std::string name = made;
    ValuePlace last{info.layout, info.device};
    for (const ValuePlace& step : RouteOf(info, target)) {
      if (const std::string* known = FindPlace(value, step)) {
        name = *known;
      } else {
        const ValuePlace returned = OutputPlace(value);
        const bool is_own = renamed != made_as.end() && step.Is(returned.layout, returned.device);
        std::string next = is_own ? view.name(value) : FreshName(value, NameOf(last, step));
        AddConverter(value, name, next, last, step);
        placed.push_back({next, value, step});
        name = std::move(next);
      }
      last = step;
    }
    return name;
  }
  // Returns the name of the new layout, or of the new device if the layout is the same.
  static std::string NameOf(const ValuePlace& from, const ValuePlace& to) {
    return from.layout == to.layout ? ToString(to.device) : LayoutName(to.layout.id);
  }
  const std::string* FindPlace(int value, const ValuePlace& place) const {
    for (const Placed& one : placed)
      if (one.value == value && one.place.Is(place.layout, place.device)) return &one.name;
    return nullptr;
  }
  void AddConverter(int value, const std::string& from, const std::string& to,
                    const ValuePlace& from_place, const ValuePlace& to_place) {
    const std::string of = " of " + view.name(value);
    NodeChoice& choice = choices.emplace_back();
    if (MemoryDevice(from_place.device) != MemoryDevice(to_place.device)) {
      converters.push_back(CopyToDevice(from, to, to_place.device)
                               .Name(StrCat(from_place.device, " to ", to_place.device, of)));
      choice.kernel = &CopyToDeviceKernel();
      return;
    }
    converters.push_back(OperatorDef("ConvertLayout", {from}, {to})
                             .Name(StrCat(LayoutName(from_place.layout.id), " to ",
                                          LayoutName(to_place.layout.id), of)));
    choice.kernel = &ConvertLayoutKernel();
    choice.config.input_layouts = {from_place.layout};
    choice.config.output_layouts = {to_place.layout};
  }

  // A converted value or constant.
  struct Placed {
    std::string name;
    int value;
    ValuePlace place;
  };
  const GraphView& view;
  const GraphTypes& types;
  IndexedVector<NodeChoice>& choices;
  ConvertedConstants& constants;
  const Device* const outputs_on;
  Graph graph;
  NameIndex names;                     // names that FreshName has made
  std::map<int, std::string> made_as;  // by value: its name after Rename
  std::vector<OperatorDef> converters;
  std::vector<Placed> placed;  // all converted values, to be found again
};

OPKIT_INLINE std::unique_ptr<ConvertedGraph> ConvertedGraph::Make(
    const GraphView& view, const GraphTypes& types, IndexedVector<NodeChoice>& choices,
    ConvertedConstants& constants, const Device* outputs_on) {
  return std::unique_ptr<ConvertedGraph>(
      new ConvertedGraph(Builder(view, types, choices, constants, outputs_on)));
}

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
  for (const Builder::Placed& one : builder.placed) {
    TensorInfo& info = types_[view_.FindValue(one.name)];
    info = builder.types[one.value];
    info.layout = one.place.layout;
    info.device = one.place.device;
    if (view_.IsConstant(view_.FindValue(one.name)))
      info.constant = view_.constant(view_.FindValue(one.name));
  }
  for (int node = 0; node < plan.num_nodes(); ++node)
    types_.SetLacksData(node, builder.types.LacksData(node));
}

OPKIT_IMAGE_LOCAL inline const bool kFillsMakeConvertedGraph =
    g_make_converted_graph.Fill(&ConvertedGraph::Make);
OPKIT_IMAGE_LOCAL inline const bool kFillsExplainConverted =
    g_explain_converted.Fill(&ExplainSelection);

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_IMPL_CONVERTED_GRAPH_IPP_
