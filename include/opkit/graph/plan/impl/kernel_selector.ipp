// Definitions of KernelSelector: rates the candidates of a node and chooses one.
#ifndef OPKIT_GRAPH_PLAN_IMPL_KERNEL_SELECTOR_IPP_
#define OPKIT_GRAPH_PLAN_IMPL_KERNEL_SELECTOR_IPP_

#include <algorithm>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/name_index.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/graph/plan/kernel_selector.hpp"
#include "opkit/profile/text_columns.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE const std::string& SelectionName(const OperatorDef& def) {
  for (const std::string& output : def.outputs())
    if (!output.empty()) return output;
  return def.name();
}

OPKIT_COLD OPKIT_INLINE std::vector<std::string> SelectionNames(const Graph& graph) {
  std::vector<std::string> out;
  NameTable<int> writers;  // by name
  for (const OperatorDef& def : graph.nodes()) {
    out.push_back(SelectionName(def));
    if (const int writer = ++writers[out.back()]; writer > 1) out.back() += StrCat("#", writer);
  }
  return out;
}

OPKIT_INLINE std::string SelectionPrefix(const std::string& node, std::string_view body) {
  return StrCat(node, "/", body, "/");
}
OPKIT_COLD OPKIT_INLINE Selection KernelSelector::ForcedInside(int node,
                                                               std::string_view body) const {
  Selection inside;
  if (!options_.forced) return inside;
  const std::string prefix = SelectionPrefix(names_[node], body);
  for (const Selection::Node& one : options_.forced->nodes)
    if (one.node.starts_with(prefix)) {
      inside.nodes.push_back(one);
      inside.nodes.back().node.erase(0, prefix.size());
    }
  return inside;
}

OPKIT_INLINE NodeDevices::NodeDevices(const OperatorDef& def) : device_(def.device()) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  inputs_cross_ = schema.inputs_can_cross_devices();
  if (schema.infers_devices()) placement_ = schema.InferDevices(def);
}
OPKIT_INLINE std::optional<Device> NodeDevices::input(size_t i) const {
  if (inputs_cross_) return {};
  return i < placement_.first.size() ? placement_.first[i] : device_;
}

OPKIT_INLINE std::vector<ValuePlace> WantedPlaces(const GraphView& view, const GraphTypes& types,
                                                  const NodeChoice& choice, int node) {
  const OperatorDef& def = view.graph().node(node);
  const NodeDevices devices(choice.device == def.device() ? def
                                                          : OperatorDef(def).Device(choice.device));
  std::vector<ValuePlace> places;
  for (size_t i = 0; i < view.inputs(node).size(); ++i) {
    const int value = view.inputs(node)[i];
    const Device is = value < 0 ? Device{} : types[value].device;
    places.push_back({choice.config.input_layout(i), devices.input(i).value_or(is)});
  }
  return places;
}

OPKIT_INLINE bool NeedsConverters(const GraphView& view, const GraphTypes& types,
                                  const IndexedVector<NodeChoice>& choices,
                                  const Device* outputs_on) {
  for (const int value : view.outputs())
    if (!types[value].layout.is_standard() || IsElsewhere(types[value], outputs_on)) return true;
  for (int node = 0; node < view.num_nodes(); ++node) {
    const NodeChoice& choice = choices[node];
    if (choice.device != view.graph().node(node).device()) return true;
    const auto inputs = view.inputs(node);
    const std::vector<ValuePlace> wanted = WantedPlaces(view, types, choice, node);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] >= 0 && !wanted[i].Is(types[inputs[i]].layout, types[inputs[i]].device))
        return true;
  }
  return false;
}

OPKIT_INLINE KernelSelector::KernelSelector(const GraphView& view, GraphTypes& types,
                                            const Options& options)
    : view_(view), types_(types), options_(options) {
  if (options_.forced) FindForced();
}

// Finds the forced kernel of each node. Throws kNotFound for a forced choice whose node does not
// exist, and kInvalidArgument for one that contradicts the graph or another choice.
OPKIT_COLD OPKIT_INLINE void KernelSelector::FindForced() {
  forced_.assign(Index(view_.num_nodes()), nullptr);
  names_ = SelectionNames(view_.graph());
  NameTable<std::optional<int>> node_of;
  std::vector<std::string> bodies;
  for (int node = 0; node < view_.num_nodes(); ++node) {
    if (std::optional<int>& known = node_of[names_[node]]; !known) known = node;
    for (const NamedSubgraph& item : view_.graph().node(node).subgraphs())
      bodies.push_back(SelectionPrefix(names_[node], item.name));
  }
  for (const Selection::Node& one : options_.forced->nodes) {
    if (std::ranges::any_of(bodies,
                            [&](const std::string& body) { return one.node.starts_with(body); }))
      continue;  // the plan of the body checks it
    const std::optional<int>* const found = node_of.Find(one.node);
    if (!found) {
      if (!one.required) continue;
      std::vector<std::string> known = names_;
      StableSort(known, [](const std::string& a, const std::string& b) { return a < b; });
      Throw(ErrorCode::kNotFound, "the selection has a kernel for node '", one.node,
            "', which the graph does not have", SuggestName(one.node, known),
            "; nodes are known by their first output, after the passes");
    }
    const int node = **found;
    if (const std::string why = WhyNotForced(one, view_.graph().node(node)); !why.empty()) {
      if (!one.required) continue;
      Throw(ErrorCode::kInvalidArgument, why);
    }
    const Selection::Node*& forced = forced_[node];
    if (forced && (forced->backend != one.backend || forced->config != one.config ||
                   forced->device != one.device || forced->layouts != one.layouts ||
                   forced->variant != one.variant)) {
      if (!one.required) continue;
      Throw(ErrorCode::kInvalidArgument, "the selection has two kernels for node '", one.node,
            "': ", forced->backend, " and ", one.backend, ", in configurations ", forced->config,
            StrCat(" ", forced->layouts, " and ", one.config, " ", one.layouts));
    }
    forced = &one;
  }
}

// True if the text names the device: "cuda" and "cuda:0" are one.
OPKIT_COLD inline bool NamesDevice(const std::string& text, Device device) {
  return text == ToString(device) || text == StrCat(ToString(device.type), ":", device.index);
}

OPKIT_COLD OPKIT_INLINE std::string KernelSelector::WhyNotForced(const Selection::Node& forced,
                                                                 const OperatorDef& def) const {
  if (!forced.op.empty() && forced.op != def.type())
    return StrCat("the selection says that node '", forced.node, "' is ", forced.op, ", but it is ",
                  ToString(def));
  if (!forced.required &&
      std::ranges::none_of(OpRegistry::Global().FindKernels(def.type(), def.device().type),
                           [&](const Kernel* one) { return one->backend == forced.backend; }) &&
      !Chooses(def))
    return StrCat("the operator has no kernel '", forced.backend, "'");
  if (forced.device.empty() || NamesDevice(forced.device, def.device())) return {};
  if (Chooses(def))
    for (const Device device : *options_.devices)
      if (NamesDevice(forced.device, device)) return {};
  return StrCat(
      "the selection has node '", forced.node, "' run on ", forced.device,
      ", but it may not: ", ToString(def), " runs on ",
      def.device() == Device{} ? "those of PlanOptions::devices" : "the device that it names");
}

OPKIT_COLD OPKIT_INLINE std::optional<OperatorDef> KernelSelector::Restricted(int node) const {
  const OperatorDef& def = view_.graph().node(node);
  if (const Selection::Node* forced = Forced(node))
    return OperatorDef(def).Backends(forced->backend, kRequired);
  if (options_.backend_need == kPreferred) return {};
  CheckBackends(def);
  return OperatorDef(def).Backends(def.backends(), kRequired);
}

OPKIT_COLD OPKIT_INLINE std::string KernelSelector::WhyNoCopy(int node,
                                                              const NodeDevices& devices) const {
  for (size_t i = 0; i < view_.inputs(node).size(); ++i) {
    const int value = view_.inputs(node)[i];
    const std::optional<Device> wanted = devices.input(i);
    if (value < 0 || !wanted) continue;
    const Device is = MemoryDevice(types_[value].device), goes = MemoryDevice(*wanted);
    if (is == goes) continue;
    const char* why = nullptr;
    if (!FindCopy(is.type, goes.type)) why = "no copy is registered (RegisterCopy)";
    if (view_.IsRewritten(value)) why = "it is rewritten in place";
    if (!types_[value].shape.is_known()) why = "only a run decides its shape";
    if (why)
      return StrCat("it reads '", view_.name(value), "' on ", *wanted, ", but that is on ",
                    types_[value].device, ", and ", why);
  }
  return {};
}
OPKIT_INLINE std::string KernelSelector::WhyStaysOnHost(int node, Device device) const {
  if (!Chooses(view_.graph().node(node)) || IsHostAccessible(device.type) ||
      std::ranges::none_of(*options_.devices,
                           [](Device one) { return IsHostAccessible(one.type); }))
    return {};
  for (const int value : view_.outputs(node))
    if (value >= 0 && !types_[value].shape.is_known() &&
        (options_.is_body || !view_.consumers(value).empty()))
      return StrCat("only a run decides the shape of '", view_.name(value),
                    "', so that it could not be copied from ", device);
  return {};
}
OPKIT_INLINE std::string KernelSelector::WhyNot(int node, const KernelCandidate& candidate) const {
  if (!candidate.dropped.empty()) return candidate.dropped;
  if (!refused_.empty())
    for (const Refusal& one : refused_[node])
      if (one.kernel == candidate.kernel && one.number == candidate.number &&
          IsSameConfig(one.config, candidate.config))
        return one.why;
  const auto why_no_layout = [&](std::span<const int> values, const std::vector<Layout>& layouts,
                                 const char* kind) -> std::string {
    for (size_t i = 0; i < layouts.size(); ++i) {
      const int value = values[i];
      if (value < 0 || layouts[i].is_standard()) continue;
      const char* why = nullptr;
      if (view_.IsRewritten(value)) why = "' is rewritten in place, in the standard layout";
      if (!types_[value].shape.is_known() || types_[value].dtype == DType::kUndefined)
        why = "' has a shape that only a run decides";
      if (why)
        return StrCat("it wants ", ToString(layouts[i]), " for ", kind, i, ", but '",
                      view_.name(value), why);
    }
    return {};
  };
  std::string why = why_no_layout(view_.inputs(node), candidate.config.input_layouts, "input ");
  if (why.empty())
    why = why_no_layout(view_.outputs(node), candidate.config.output_layouts, "output ");
  return why;
}

OPKIT_INLINE double KernelSelector::ConversionCost(int node, const NodeDevices& devices,
                                                   const KernelConfig& config) const {
  const auto inputs = view_.inputs(node);
  double sum = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] < 0 || view_.IsConstant(inputs[i])) continue;  // converted when the plan is built
    const TensorInfo& info = types_[inputs[i]];
    const Layout wanted = config.input_layout(i);
    if (info.layout != wanted)
      sum += FindLayoutPath(info.layout, wanted, info.shape.ToShape(), info.dtype).cost_ns;
    const std::optional<Device> device = devices.input(i);
    if (device && MemoryDevice(*device) != MemoryDevice(info.device))
      sum += EstimatedCopyNs(LayoutBytes(Layout(), info.shape.ToShape(), info.dtype));
  }
  return sum;
}

OPKIT_INLINE int64_t KernelSelector::MemoryOf(int node, const KernelConfig& config) const {
  const auto bytes_of = [&](int value, const Layout& layout) {
    const TensorInfo& info = types_[value];
    return info.shape.is_known() && info.dtype != DType::kUndefined
               ? LayoutBytes(layout, info.shape.ToShape(), info.dtype)
               : int64_t{-1};
  };
  int64_t sum = config.scratch_bytes;
  const auto add = [&](int64_t bytes) { sum = bytes < 0 || sum < 0 ? -1 : sum + bytes; };
  const auto inputs = view_.inputs(node), outputs = view_.outputs(node);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] >= 0 && types_[inputs[i]].layout != config.input_layout(i))
      add(bytes_of(inputs[i], config.input_layout(i)));
  for (size_t o = 0; o < outputs.size(); ++o) {
    const auto takes_memory = [&](const std::pair<int, int>& pair) {
      return Index(pair.second) == o;
    };
    if (outputs[o] >= 0 && std::ranges::none_of(config.inplace, takes_memory))
      add(bytes_of(outputs[o], config.output_layout(o)));
  }
  return sum;
}

// True if the second candidate is better than the first, which comes before it in the order of
// preference.
inline bool IsBetter(const NodeRating::Rated& first, const NodeRating::Rated& second) {
  if (first.bytes != second.bytes && first.bytes >= 0 && second.bytes >= 0)
    return second.bytes < first.bytes;
  const double first_ns = first.candidate.config.cost_ns;
  const double second_ns = second.candidate.config.cost_ns;
  return first_ns >= 0 && second_ns >= 0 &&
         second_ns + second.conversion_ns < first_ns + first.conversion_ns;
}
OPKIT_COLD OPKIT_INLINE std::string NodeRating::WhyNot(int i) const {
  const Rated& one = candidates[i];
  if (!one.candidate.dropped.empty() || best < 0) return one.candidate.dropped;
  const Rated& chosen = candidates[best];
  const auto estimate = [](const Rated& rated) {
    const auto us = [](double ns) { return StrCat(Microseconds(ns), " us"); };
    return us(rated.candidate.config.cost_ns) +
           (rated.conversion_ns > 0 ? StrCat(" and ", us(rated.conversion_ns), " of conversions")
                                    : "");
  };
  if (one.bytes != chosen.bytes && one.bytes >= 0 && chosen.bytes >= 0)
    return StrCat("needs ", one.bytes, " bytes, against ", chosen.bytes);
  if (one.candidate.config.cost_ns >= 0 && chosen.candidate.config.cost_ns >= 0)
    return StrCat("estimated at ", estimate(one), ", against ", estimate(chosen));
  if (i < best) return "";
  const std::string &backend = one.candidate.backend, &first = chosen.candidate.backend;
  if (backend == first) return "comes later among what its kernel proposes";
  const OpRegistry& registry = OpRegistry::Global();
  const int rank = registry.BackendRank(backend), first_rank = registry.BackendRank(first);
  if (rank == first_rank)
    return StrCat("has the rank of ", first, ", whose kernel was registered first");
  return rank < first_rank ? StrCat("comes later in the order of backends: rank ", rank,
                                    ", and that of ", first, " is ", first_rank)
                           : StrCat("comes later in the order of backends, which prefers ", first);
}

OPKIT_INLINE void KernelSelector::ForEachDevice(int node, VisitDevice visit,
                                                IndexedVector<NodeRating::Rated>& dropped) const {
  const OperatorDef& def = view_.graph().node(node);
  const std::optional<OperatorDef> restricted = Restricted(node);
  const OperatorDef& asked = restricted ? *restricted : def;
  if (!Chooses(def)) return visit(def.device(), asked);
  const Selection::Node* const forced = Forced(node);
  for (const Device device : *options_.devices) {
    if (forced && !forced->device.empty() && !NamesDevice(forced->device, device)) continue;
    std::string why = WhyNoDevice(device);
    if (why.empty() && OpRegistry::Global().FindKernels(def.type(), device.type).empty())
      why = StrCat("the operator has no kernel for ", device);
    if (why.empty()) {
      visit(device, OperatorDef(asked).Device(device));
      continue;
    }
    NodeRating::Rated& rated = dropped.emplace_back();
    rated.candidate.dropped = std::move(why);
    rated.candidate.backend = ToString(device);
    rated.device = device;
  }
}

OPKIT_INLINE NodeRating KernelSelector::Rate(int node) const {
  NodeRating rating;
  const auto rate = [&](Device device, const OperatorDef& def) {
    RateOn(device, def, node, rating);
  };
  ForEachDevice(node, rate, rating.candidates);
  return rating;
}

OPKIT_COLD OPKIT_INLINE std::string SelectionLayouts(const KernelConfig& config) {
  std::string text = LayoutsText(config);
  return text.empty() ? "standard" : text;
}
OPKIT_COLD OPKIT_INLINE Selection::Node SelectionEntry(std::string name, const std::string& op,
                                                       const Kernel& kernel, Device device,
                                                       const KernelConfig& config, int number) {
  return {std::move(name),  kernel.backend,
          number,           op,
          ToString(device), kernel.propose ? SelectionLayouts(config) : "",
          config.variant};
}
OPKIT_COLD OPKIT_INLINE int KernelSelector::FindForced(
    const Selection::Node& forced, const std::vector<KernelCandidate>& candidates) {
  int first = -1;
  for (int i = 0; const KernelCandidate& candidate : candidates) {
    const bool has_layouts =
        forced.layouts.empty() || forced.layouts == SelectionLayouts(candidate.config);
    const bool has_variant = (forced.layouts.empty() && forced.variant.empty()) ||
                             forced.variant == candidate.config.variant;
    if (candidate.dropped.empty() && has_layouts && has_variant) {
      if (forced.config < 0 || forced.config == candidate.number) return i;
      if (first < 0 && !forced.layouts.empty()) first = i;
    }
    ++i;
  }
  return first;
}

OPKIT_INLINE void KernelSelector::RateOn(Device device, const OperatorDef& def, int node,
                                         NodeRating& rating) const {
  const Selection::Node* const forced = Forced(node);
  const bool is_forced =
      forced && (forced->config >= 0 || !forced->layouts.empty() || !forced->variant.empty());
  const NodeDevices devices(def);
  std::string no_copy = WhyNoCopy(node, devices);
  if (no_copy.empty()) no_copy = WhyStaysOnHost(node, device);
  std::vector<KernelCandidate> candidates =
      KernelCandidates(def, types_.Of(view_.inputs(node)), types_.Of(view_.outputs(node)));
  int wanted = is_forced ? FindForced(*forced, candidates) : -1;
  if (is_forced && wanted < 0 && !forced->layouts.empty()) {
    candidates = CandidatesInLayouts(*forced, def, node);
    wanted = FindForced(*forced, candidates);
  }
  if (is_forced && wanted < 0 && !possible_.empty()) {
    candidates = CandidatesInAnyLayout(def, node);
    wanted = FindForced(*forced, candidates);
  }
  for (int i = 0; KernelCandidate & candidate : candidates) {
    candidate.dropped = WhyNot(node, candidate);
    if (candidate.dropped.empty()) candidate.dropped = no_copy;
    if (const int place = i++; candidate.dropped.empty() && is_forced && place != wanted)
      candidate.dropped =
          forced->layouts.empty() && forced->variant.empty()
              ? StrCat("the selection asks for configuration ", forced->config, ", not ",
                       candidate.number)
              : StrCat("the selection asks for ", forced->layouts,
                       forced->variant.empty() ? "" : StrCat(" ", forced->variant), ", not ",
                       SelectionLayouts(candidate.config), " ", candidate.config.variant);
    const bool can_run = candidate.dropped.empty();
    NodeRating::Rated& rated = rating.candidates.emplace_back();
    rated.candidate = std::move(candidate);
    rated.device = device;
    if (!can_run) continue;
    const KernelConfig& config = rated.candidate.config;
    rated.conversion_ns = ConversionCost(node, devices, config);
    if (options_.objective == Selection::Objective::kMemory) rated.bytes = MemoryOf(node, config);
    if (rating.best < 0 || IsBetter(rating.candidates[rating.best], rated))
      rating.best = static_cast<int>(rating.candidates.size()) - 1;
  }
}

OPKIT_COLD OPKIT_INLINE std::vector<KernelCandidate> KernelSelector::CandidatesInLayouts(
    const Selection::Node& forced, const OperatorDef& def, int node) const {
  std::vector<TensorInfo> infos = types_.Of(view_.inputs(node));
  std::string_view texts = forced.layouts;
  texts = texts.substr(0, texts.find(" -> "));
  for (TensorInfo& info : infos) {
    const std::string_view text = texts.substr(0, texts.find(", "));
    texts.remove_prefix((std::min)(texts.size(), text.size() + 2));
    if (info.constant || !info.shape.is_known() || ToString(info.layout) == text) continue;
    info.layout = LayoutFromText(text, info.shape.ToShape(), info.dtype).value_or(Layout());
  }
  return KernelCandidates(def, infos, types_.Of(view_.outputs(node)));
}

// True if two candidates are the same configuration of a kernel.
inline bool IsSame(const KernelCandidate& a, const KernelCandidate& b) {
  return a.kernel == b.kernel && a.dropped == b.dropped && IsSameConfig(a.config, b.config);
}
OPKIT_COLD OPKIT_INLINE std::vector<KernelCandidate> KernelSelector::CandidatesInAnyLayout(
    const OperatorDef& def, int node) const {
  std::vector<TensorInfo> standard = types_.Of(view_.inputs(node));
  std::vector<Layout> layouts = {Layout()};
  const auto inputs = view_.inputs(node);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] < 0) continue;
    standard[i].layout = Layout();
    for (const Layout& layout : possible_[inputs[i]])
      if (std::ranges::none_of(
              layouts, [&](const Layout& known) { return ToString(known) == ToString(layout); }))
        layouts.push_back(layout);
  }
  // Two values of different shapes have different descriptors. Their texts are equal where both
  // are, for example, in blocks of 16 channels.
  std::vector<KernelCandidate> out;
  for (const Layout& layout : layouts) {
    std::vector<TensorInfo> infos = standard;
    const std::string text = ToString(layout);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] >= 0)
        for (const Layout& possible : possible_[inputs[i]])
          if (ToString(possible) == text) infos[i].layout = possible;
    std::vector<KernelCandidate> asked =
        KernelCandidates(def, infos, types_.Of(view_.outputs(node)));
    const size_t before = out.size();
    for (KernelCandidate& one : asked)
      if (std::none_of(out.begin(), out.begin() + static_cast<ptrdiff_t>(before),
                       [&](const KernelCandidate& other) { return IsSame(one, other); }))
        out.push_back(std::move(one));
  }
  return out;
}

OPKIT_COLD OPKIT_INLINE void KernelSelector::FindPossibleLayouts() {
  possible_.assign(Index(view_.num_values()), {});
  auto forced = std::exchange(forced_, {});  // of other nodes
  for (const int node : view_.order()) {
    const auto outputs = view_.outputs(node);
    for (const NodeRating::Rated& rated : AllCandidates(node))
      for (size_t o = 0; o < outputs.size() && rated.candidate.dropped.empty(); ++o) {
        Layout layout = rated.candidate.config.output_layout(o);
        if (outputs[o] < 0 || layout.is_standard()) continue;
        std::vector<Layout>& possible = possible_[outputs[o]];
        if (!std::ranges::count(possible, layout)) possible.push_back(std::move(layout));
      }
  }
  forced_ = std::move(forced);
}

OPKIT_COLD OPKIT_INLINE IndexedVector<NodeRating::Rated> KernelSelector::AllCandidates(
    int node) const {
  IndexedVector<NodeRating::Rated> out;
  const auto add = [&](Device device, const OperatorDef& def) {
    const std::string no_copy = WhyNoCopy(node, NodeDevices(def));
    for (KernelCandidate& candidate : CandidatesInAnyLayout(def, node)) {
      candidate.dropped = WhyNot(node, candidate);
      if (candidate.dropped.empty()) candidate.dropped = no_copy;
      NodeRating::Rated& rated = out.emplace_back();
      rated.candidate = std::move(candidate);
      rated.device = device;
    }
  };
  // A kernel may decline a node that another backend computes better by its estimates, unless the
  // node asks for its backend.
  const auto add_backends = [&](Device device, const OperatorDef& def) {
    if (def.requires_backends()) return add(device, def);
    std::vector<std::string> backends;
    for (const Kernel* kernel : OpRegistry::Global().FindKernels(def.type(), device.type))
      if (!std::ranges::count(backends, kernel->backend)) backends.push_back(kernel->backend);
    for (const std::string& backend : backends)
      add(device, OperatorDef(def).Backends(backend, kRequired));
  };
  ForEachDevice(node, add_backends, out);
  return out;
}

OPKIT_INLINE void KernelSelector::Select(int node, NodeChoice& choice) {
  NodeRating rating = Rate(node);
  const Selection::Node* const forced = Forced(node);
  if (rating.best < 0 && forced && !forced->layouts.empty() && possible_.empty()) {
    FindPossibleLayouts();
    rating = Rate(node);
  }
  if (rating.best < 0 && forced && !forced->required) {
    forced_[node] = nullptr;
    rating = Rate(node);
  }
  const int count = static_cast<int>(rating.candidates.size());
  std::string passed_over;
  for (int i = 0; i < (rating.best < 0 ? count : rating.best); ++i)
    passed_over +=
        StrCat("\n  backend ", rating.candidates[i].candidate.name(), ": ", rating.WhyNot(i));
  if (rating.best < 0) {
    OperatorDef def = view_.graph().node(node);
    if (Chooses(def)) def.Device(options_.devices->front());
    ThrowNoKernel(def, passed_over);
  }
  KernelCandidate& best = rating.candidates[rating.best].candidate;
  const Device device = rating.candidates[rating.best].device;
  choice.kernel = best.kernel;
  choice.config = std::move(best.config);
  choice.config_number = best.number;
  choice.owner = best.kernel->owner;
  choice.passed_over = std::move(passed_over);
  choice.device = device;
  const OperatorDef& def = view_.graph().node(node);
  const bool moved = device != def.device();
  const NodeDevices devices(moved ? OperatorDef(def).Device(device) : def);
  const auto outputs = view_.outputs(node);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o] < 0) continue;
    types_[outputs[o]].device = devices.output(o);
    // If chosen again, an equal layout keeps its descriptor, which the value's readers already
    // have.
    if (Layout made = choice.config.output_layout(o); types_[outputs[o]].layout != made)
      types_[outputs[o]].layout = std::move(made);
  }
}

OPKIT_INLINE void KernelSelector::SelectAll(IndexedVector<NodeChoice>& choices) {
  const RegistryUse use;
  choices.assign(Index(view_.num_nodes()), {});
  for (const int node : view_.order()) Select(node, choices[node]);
}

OPKIT_COLD OPKIT_INLINE bool KernelSelector::SelectAfterRefusal(int node, const std::string& why,
                                                                NodeChoice& choice) {
  const RegistryUse use;
  if (refused_.empty()) refused_.resize(Index(view_.num_nodes()));
  refused_[node].push_back({choice.kernel, choice.config_number, choice.config, why});
  const KernelConfig before = std::move(choice.config);
  const Device device = choice.device;
  Select(node, choice);
  return choice.device == device && choice.config.input_layouts == before.input_layouts &&
         choice.config.output_layouts == before.output_layouts;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_PLAN_IMPL_KERNEL_SELECTOR_IPP_
