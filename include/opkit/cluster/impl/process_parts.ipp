// Definitions of ProcessParts, and of the hook by which Compile takes the part of its process.
#ifndef OPKIT_CLUSTER_IMPL_PROCESS_PARTS_IPP_
#define OPKIT_CLUSTER_IMPL_PROCESS_PARTS_IPP_

#include <algorithm>
#include <climits>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/error.hpp"
#include "opkit/cluster/names.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/passes/pass_rules.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Throws kUnsupported if a node of a graph inside a node names a process or communicates.
inline void CheckBodies(const OperatorDef& def) {
  for (const NamedSubgraph& item : def.subgraphs()) {
    const Graph* body = GraphOf(*item.graph);
    if (!body) continue;
    for (const OperatorDef& inner : body->nodes()) {
      if (inner.process() >= 0 || IsCommunication(inner))
        Throw(ErrorCode::kUnsupported, "the graph '", item.name, "' of ", def, " has the node ",
              inner, ", but a graph inside a node runs on one process and does not communicate");
      CheckBodies(inner);
    }
  }
}
inline Tensor ZerosOf(const TensorInfo& info) {
  Tensor zeros(info.shape.ToShape(), info.dtype);
  if (zeros.nbytes() > 0) std::memset(zeros.raw_mutable_data(), 0, Index(zeros.nbytes()));
  return zeros;
}
inline std::string ProcessesText(const std::vector<int>& processes) {
  std::string text;
  for (const int process : processes) text += StrCat(text.empty() ? "" : ", ", process);
  return text;
}

}  // namespace detail

OPKIT_INLINE ProcessParts::ProcessParts(const Graph& graph, int processes)
    : graph_(WithProcesses(graph, processes)), processes_(processes) {
  if (processes < 1)
    Throw(ErrorCode::kInvalidArgument, "a graph has ", processes, " processes, expected 1 or more");
  for (int i = 0; i < processes; ++i) everywhere_.push_back(i);
  const auto nodes = detail::Index(graph_.num_nodes());
  places_.resize(nodes);
  crossing_of_.resize(nodes);
  turns_.resize(nodes);
  sender_of_.resize(nodes, -1);
  for (int node = 0; node < graph_.num_nodes(); ++node) Place(node);
  Order();
  CheckRewritten();
  FindCrossing();
  NumberCollectives();
}

OPKIT_INLINE Graph ProcessParts::WithProcesses(Graph graph, int processes) {
  for (int node = 0; node < graph.num_nodes(); ++node) {
    OperatorDef def = graph.node(node);
    if (!detail::IsCollective(def)) continue;
    const auto group = detail::GroupOf(def).size();
    def.Arg("processes", group > 0 ? static_cast<int64_t>(group) : int64_t{processes});
    graph.ReplaceNode(node, std::move(def));
  }
  return graph;
}

OPKIT_INLINE std::vector<int> ProcessParts::ReadersOf(int node) const {
  if (!detail::ReadsAtRoot(graph_.node(node))) return places_[node];
  return {detail::RootOf(graph_.node(node))};
}
OPKIT_INLINE std::vector<int> ProcessParts::WritersOf(int node) const {
  if (!detail::WritesAtRoot(graph_.node(node))) return places_[node];
  return {detail::RootOf(graph_.node(node))};
}

OPKIT_INLINE std::vector<int> ProcessParts::MakersOfOutput(const std::string& output) const {
  const int producer = graph_.Producer(output);
  std::vector<int> makers = producer < 0 ? everywhere_ : WritersOf(producer);
  for (const GraphView::Rewrite& rewrite : view_.rewrites())
    if (view_.name(rewrite.value) == output)
      std::erase_if(makers,
                    [&](int process) { return !detail::Contains(places_[rewrite.node], process); });
  return makers;
}
OPKIT_INLINE std::vector<int> ProcessParts::ReadersOfInput(const std::string& input) const {
  std::set<int> found, seen;
  std::vector<int> values = {view_.FindValue(input)};
  while (!values.empty()) {
    const int value = values.back();
    values.pop_back();
    if (value < 0 || !seen.insert(value).second) continue;
    if (graph_.IsOutput(view_.name(value))) return everywhere_;
    for (const int consumer : view_.consumers(value)) {
      const OperatorDef& def = graph_.node(consumer);
      const auto outputs = view_.outputs(consumer);
      // A node of all processes runs where its outputs are read.
      if (def.process() < 0 && !detail::IsCollective(def) && !detail::HasEffect(def) &&
          !detail::RewritesInputs(def)) {
        values.insert(values.end(), outputs.begin(), outputs.end());
      } else {
        const std::vector<int> readers = ReadersOf(consumer);
        found.insert(readers.begin(), readers.end());
      }
    }
  }
  return {found.begin(), found.end()};
}

OPKIT_INLINE void ProcessParts::Place(int node) {
  const OperatorDef& def = graph_.node(node);
  detail::CheckBodies(def);
  const auto checked = [&](int64_t process) {
    if (process < 0 || process >= processes_)
      Throw(ErrorCode::kInvalidArgument, "the node ", def, " names process ", process,
            ", but there are processes 0 to ", processes_ - 1);
    return static_cast<int>(process);
  };
  std::vector<int>& place = places_[node];
  if (def.process() >= 0) place = {checked(def.process())};
  if (detail::IsCollective(def)) {
    if (!place.empty())
      Throw(ErrorCode::kInvalidArgument, "the node ", def, " is a collective, and runs on all ",
            "processes of its attribute 'group'; do not set OperatorDef::Process");
    for (const int64_t process : detail::GroupOf(def)) place.push_back(checked(process));
    std::sort(place.begin(), place.end());
    if (std::adjacent_find(place.begin(), place.end()) != place.end())
      Throw(ErrorCode::kInvalidArgument, "the node ", def,
            " names a process twice in its attribute 'group'");
    for (const std::string& output : def.outputs())
      if (output.empty())
        Throw(ErrorCode::kUnsupported, "the node ", def,
              " leaves out an output; a collective makes all of them");
  } else if (detail::IsCommunication(def)) {
    if (place.empty())
      Throw(ErrorCode::kInvalidArgument, "the node ", def,
            " runs on one process; set OperatorDef::Process");
    checked(def.args().Get<int64_t>("process", -1));
    // A channel becomes a tag of MPI, which is an int. Compile adds channels behind the author's.
    const auto channel = def.args().Get<int64_t>("channel", 0);
    if (channel < 0 || channel > INT_MAX)
      Throw(ErrorCode::kInvalidArgument, "the node ", def, " has the channel ", channel,
            ", expected 0 to ", INT_MAX);
  }
  if (place.empty()) place = everywhere_;
  if ((detail::ReadsAtRoot(def) || detail::WritesAtRoot(def)) &&
      !detail::Contains(place, checked(def.args().Get<int64_t>("root", 0))))
    Throw(ErrorCode::kInvalidArgument, "the root of the node ", def, " is process ",
          detail::RootOf(def), ", which is not in its group ", detail::ProcessesText(place));
}

OPKIT_INLINE void ProcessParts::Order() {
  std::vector<GraphView::Edge> edges = view_.edges();
  // From, to and channel of a message; the nodes of its sender and receiver.
  std::map<std::vector<int64_t>, std::pair<int, int>> messages;
  for (int node = 0; node < graph_.num_nodes(); ++node) {
    const OperatorDef& def = graph_.node(node);
    const bool sends = detail::IsSend(def);
    if (!sends && !detail::IsReceive(def)) continue;
    const int64_t here = def.process(), there = def.args().Get<int64_t>("process", -1);
    const int64_t channel = def.args().Get<int64_t>("channel", 0);
    auto [found, is_new] = messages.try_emplace(
        sends ? std::vector{here, there, channel} : std::vector{there, here, channel}, -1, -1);
    int& end = sends ? found->second.first : found->second.second;
    if (end >= 0)
      Throw(ErrorCode::kInvalidArgument, "the nodes ", graph_.node(end), " and ", def,
            " have the same processes and channel; give one of them another attribute 'channel'");
    end = node;
  }
  for (const auto& [way, ends] : messages) {
    if (ends.first < 0 || ends.second < 0)
      Throw(ErrorCode::kInvalidArgument, "the node ",
            graph_.node(ends.first < 0 ? ends.second : ends.first), " has no counterpart: no ",
            ends.first < 0 ? "Send" : "Recv", " from process ", way[0],
            StrCat(" to process ", way[1], " has the channel ", way[2]));
    edges.push_back({ends.first, ends.second});
    sender_of_[ends.second] = ends.first;
  }
  std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) {
    return std::pair(a.to, a.from) < std::pair(b.to, b.from);
  });
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  order_ = detail::SortByEdges(graph_.num_nodes(), edges, {}, [&](const std::vector<int>& circle) {
    Throw(ErrorCode::kInvalidArgument, "processes wait for each other in a circle: ",
          detail::PathText(circle,
                           [&](int node) -> const OperatorDef& { return graph_.node(node); }));
  });
}

// Each process that has a rewritten value, such as an input, has a copy of its own.
OPKIT_INLINE void ProcessParts::CheckRewritten() const {
  for (const GraphView::Rewrite& rewrite : view_.rewrites())
    for (const int reader : view_.consumers(rewrite.value))
      for (const int process : ReadersOf(reader))
        if (!detail::Contains(places_[rewrite.node], process))
          Throw(ErrorCode::kUnsupported, "value '", view_.name(rewrite.value),
                "' is rewritten by the node ", graph_.node(rewrite.node), " on process ",
                StrCat(detail::ProcessesText(places_[rewrite.node]), ", and read by the node "),
                graph_.node(reader), " on process ", process,
                ", where it is not rewritten; set the same processes for both nodes");
}

OPKIT_INLINE void ProcessParts::FindCrossing() {
  // The author's own channels come first.
  int64_t channel = 0;
  for (const OperatorDef& def : graph_.nodes())
    if (detail::IsSend(def))
      channel = (std::max)(channel, def.args().Get<int64_t>("channel", 0) + 1);
  for (const int node : order_) {
    const std::vector<int> place = WritersOf(node);
    for (const std::string& control : graph_.node(node).control_inputs())
      for (int other = 0; other < graph_.num_nodes(); ++other)
        if (graph_.node(other).name() == control)
          for (const int process : places_[node])
            if (!detail::Contains(places_[other], process))
              Throw(ErrorCode::kUnsupported, "the node ", graph_.node(node), " on process ",
                    process, " waits for the node '", control, "', which runs on process ",
                    detail::ProcessesText(places_[other]));
    std::set<int> seen;
    for (const int value : view_.outputs(node)) {
      if (value < 0 || view_.producer(value) != node || !seen.insert(value).second) continue;
      if (place.size() == everywhere_.size()) continue;
      const bool is_gradient =
          detail::IsCollective(graph_.node(node)) && graph_.node(node).is_gradient_op();
      std::set<int> readers, readers_of_zeros;
      for (const int consumer : view_.consumers(value)) {
        const std::vector<int> read = ReadersOf(consumer);
        const bool is_shared = std::any_of(read.begin(), read.end(), [&](int process) {
          return detail::Contains(place, process);
        });
        for (const int process : read)
          if (!detail::Contains(place, process))
            (is_gradient && is_shared ? readers_of_zeros : readers).insert(process);
      }
      for (const int process : readers_of_zeros)
        if (readers.count(process) == 0) AddZeros(node, value, process);
      if (readers.empty()) continue;
      if (IsObject(types_[value].dtype))
        Throw(ErrorCode::kUnsupported, "value '", view_.name(value), "' is ",
              ToString(types_[value]), " and is read on another process than ",
              StrCat(detail::ProcessesText(place),
                     ", which makes it; only tensors of numbers cross"));
      if (view_.IsRewritten(value))
        Throw(ErrorCode::kUnsupported, "value '", view_.name(value),
              "' is rewritten by a node, and read on another process than ",
              detail::ProcessesText(place), ", which makes it");
      for (const int process : readers) {
        crossing_of_[node].push_back(crossing_.size());
        // Spreads the messages over the processes that have the value.
        const int from = place[detail::Index(process) % place.size()];
        crossing_.push_back({view_.name(value), from, process, channel++, types_[value]});
      }
    }
  }
}

OPKIT_INLINE void ProcessParts::AddZeros(int node, int value, int process) {
  const TensorInfo& info = types_[value];
  if (info.dtype == DType::kUndefined || !info.shape.is_known())
    Throw(ErrorCode::kUnsupported, "the gradient '", view_.name(value), "' is zero on process ",
          process, ", which is not among the processes ",
          StrCat(detail::ProcessesText(WritersOf(node)), " that get a result of the node ",
                 ToString(graph_.node(node))),
          "; its dtype and shape must be known before a run, but it is ", ToString(info));
  zeros_.push_back({view_.name(value), process, info});
}

OPKIT_INLINE void ProcessParts::NumberCollectives() {
  std::map<std::vector<int>, std::vector<int>> groups;  // the collectives of each group, in order
  for (const int node : order_)
    if (detail::IsCollective(graph_.node(node))) groups[places_[node]].push_back(node);
  const bool has_messages = !crossing_.empty() || std::any_of(graph_.nodes().begin(),
                                                              graph_.nodes().end(), detail::IsSend);
  if (has_messages) groups[everywhere_];
  for (const auto& [group, nodes] : groups) {
    groups_.push_back(group);
    for (size_t i = 0; i < nodes.size(); ++i)
      turns_[nodes[i]] = {static_cast<int64_t>(i), static_cast<int64_t>(nodes.size())};
  }
}

OPKIT_INLINE OperatorDef ProcessParts::NodeOf(int node, int process) const {
  OperatorDef def = graph_.node(node);
  if (!detail::IsCollective(def)) return def;
  def.Arg("channel", turns_[node].channel).Arg("collectives", turns_[node].collectives);
  if (process == detail::RootOf(def)) return def;
  if (detail::WritesAtRoot(def)) def.mutable_outputs() = {""};
  if (detail::ReadsAtRoot(def)) {
    const TensorInfo& info = types_[view_.outputs(node)[0]];
    if (info.dtype == DType::kUndefined || !info.shape.is_known())
      Throw(ErrorCode::kUnsupported, "the node ", def,
            " needs a result whose dtype and shape are known before a run; it is ", ToString(info));
    def.mutable_inputs() = {""};
    const Shape shape = info.shape.ToShape();
    def.Arg("dtype", static_cast<int64_t>(info.dtype))
        .Arg("shape", std::vector<int64_t>(shape.begin(), shape.end()));
  }
  return def;
}

OPKIT_INLINE Graph ProcessParts::Part(int process, const Communicator* communicator,
                                      bool is_in_order) const {
  if (process < 0 || process >= processes_)
    Throw(ErrorCode::kOutOfRange, "there is no process ", process, ": the graph has ", processes_);
  std::vector<OperatorDef> nodes;
  const bool is_on_device = communicator && communicator->device() != Device{};
  is_in_order |= is_on_device;
  // The names of the nodes: one that two nodes have cannot be a control input.
  std::map<std::string, int> names;
  for (const OperatorDef& def : graph_.nodes()) ++names[def.name()];
  const auto fresh = [&](const std::string& hint) {
    std::string name = hint;
    for (int n = 1; !names.try_emplace(name, 1).second; ++n) name = StrCat(hint, " ", n);
    return name;
  };
  std::string last;  // the last node that communicates
  const auto add = [&](OperatorDef def) {
    if (detail::IsCommunication(def)) {
      def.Arg("communicator", communicator ? communicator->number() : -1);
      if (is_on_device) def.Device(communicator->device());
      if (is_in_order) {
        if (!last.empty()) def.ControlInput(last);
        last = def.name();
      }
    }
    nodes.push_back(std::move(def));
  };
  const auto add_node = [&](int node) {
    std::string name = graph_.node(node).name();
    if (is_in_order && detail::IsCommunication(graph_.node(node)) &&
        (name.empty() || names.at(name) > 1))
      name = fresh(name.empty() ? "communication" : name);
    if (detail::Contains(places_[node], process)) add(NodeOf(node, process).Name(name));
  };
  for (const int node : order_) {
    // A message may keep its sender busy until it is received. So both nodes of a message have the
    // place of the Recv in the order.
    if (is_in_order && sender_of_[node] >= 0) add_node(sender_of_[node]);
    if (!is_in_order || !detail::IsSend(graph_.node(node))) add_node(node);
    for (const size_t i : crossing_of_[node]) {
      const CrossingValue& value = crossing_[i];
      const bool sends = value.from == process;
      if (!sends && value.to != process) continue;
      const bool is_known = value.info.dtype != DType::kUndefined && value.info.shape.is_known();
      OperatorDef def(sends ? "opkit.cluster.Send" : "opkit.cluster.Recv");
      def.Name(fresh(StrCat(value.value, sends ? " to process " : " from process ",
                            sends ? value.to : value.from)));
      if (sends)
        def.Input(value.value);
      else
        def.Output(value.value);
      def.Arg("process", int64_t{sends ? value.to : value.from}).Arg("channel", value.channel);
      def.Arg("is_dynamic", int64_t{!is_known});
      if (!sends && value.info.dtype != DType::kUndefined)
        def.Arg("dtype", static_cast<int64_t>(value.info.dtype));
      if (!sends && is_known) {
        const Shape shape = value.info.shape.ToShape();
        def.Arg("shape", std::vector<int64_t>(shape.begin(), shape.end()));
      }
      def.Process(process);
      add(std::move(def));
    }
  }
  std::set<std::string> read, made;
  std::vector<std::string> outputs;
  for (const std::string& output : graph_.outputs()) {
    if (!detail::Contains(MakersOfOutput(output), process)) continue;
    read.insert(output);
    outputs.push_back(output);
  }
  // Leaves out the nodes of all processes that this process does not need.
  const detail::NameIndex waited = detail::ControlNames(graph_);
  std::vector<char> is_needed(nodes.size(), 0);
  for (size_t i = nodes.size(); i-- > 0;) {
    const OperatorDef& def = nodes[i];
    is_needed[i] =
        detail::HasEffect(def) || detail::RewritesInputs(def) || detail::IsWaitedFor(def, waited);
    for (const std::string& output : def.outputs())
      is_needed[i] |= !output.empty() && read.count(output) > 0;
    if (!is_needed[i]) continue;
    read.insert(def.inputs().begin(), def.inputs().end());
    made.insert(def.outputs().begin(), def.outputs().end());
  }
  Graph part;
  const auto is_used = [&](const std::string& name) {
    return read.count(name) > 0 || made.count(name) > 0;
  };
  for (const Graph::Input& input : graph_.inputs())
    if (is_used(input.name)) part.AddInput(input);
  for (const Graph::Constant& constant : graph_.constants())
    if (is_used(constant.name)) part.AddConstantInLayout(constant.name, constant.value);
  for (const Zeros& zeros : zeros_)
    if (zeros.process == process && read.count(zeros.value) > 0)
      part.AddConstant(zeros.value, detail::ZerosOf(zeros.info));
  for (size_t i = 0; i < nodes.size(); ++i)
    if (is_needed[i]) part.AddNode(std::move(nodes[i]));
  for (const std::string& output : outputs) part.AddOutput(output);
  return part;
}

namespace detail {

// Returns the text of a graph that all processes compare.
inline std::string TextOf(const Graph& graph) {
  std::string text;
  for (const Graph::Input& input : graph.inputs())
    text += StrCat("input ", input.name, " ", ToString(input.info), "\n");
  for (const Graph::Constant& constant : graph.constants())
    text += StrCat("constant ", constant.name, " ", ToString(TensorInfo::Of(constant.value)), "\n");
  for (const OperatorDef& def : graph.nodes()) {
    text += ToString(def);
    if (def.process() >= 0) text += StrCat(" on process ", def.process());
    for (const NamedAttribute& arg : def.args())
      text += StrCat(" ", arg.name, "=", ToString(arg.value));
    text += "\n";
  }
  for (const std::string& output : graph.outputs()) text += StrCat("output ", output, "\n");
  return text + "no more outputs\n";
}
// Adds the values that processes exchange. Their types may depend on constants, whose values are
// not compared.
inline std::string TextOf(const ProcessParts& parts) {
  std::string text;
  for (const OperatorDef& def : parts.graph().nodes())
    for (const std::string& input : def.inputs())
      if (IsCollective(def) && !input.empty())
        text += StrCat("value ", input, " ", ToString(parts.types().Get(input)), " of ", def, "\n");
  for (const CrossingValue& value : parts.crossing())
    text += StrCat("value ", value.value, " ", ToString(value.info), " that crosses\n");
  return text;
}
// Returns the n-th line; "nothing" past the end.
inline std::string LineOf(const std::string& text, size_t n) {
  size_t begin = 0;
  for (; n > 0 && begin != std::string::npos; --n) {
    begin = text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  return begin >= text.size() ? "nothing" : text.substr(begin, text.find('\n', begin) - begin);
}
// Throws kInvalidArgument, with the first difference, unless all processes have this text. Returns
// a number that process 0 gives, which no other plan of the job has: it is a random one, because
// the parts of a job have communicators of their own.
inline int64_t CheckSameText(Communicator& communicator, const std::string& mine) {
  // FNV-1a, so that equal graphs exchange few bytes.
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : mine) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::random_device random;
  const int64_t own = (int64_t{random()} << 31) | (random() >> 1);
  std::vector<std::string> hashes = communicator.Exchange(StrCat(own, " ", hash));
  int64_t number = 0;
  for (std::string& text : hashes) {
    const size_t end = text.find(' ');
    if (&text == hashes.data()) number = std::stoll(text.substr(0, end));
    text.erase(0, end);
  }
  if (std::all_of(hashes.begin(), hashes.end(), [&](auto& other) { return other == hashes[0]; }))
    return number;
  const std::vector<std::string> texts = communicator.Exchange(mine);
  for (size_t process = 1; process < texts.size(); ++process) {
    if (texts[process] == texts[0]) continue;
    size_t line = 0;
    while (LineOf(texts[0], line) == LineOf(texts[process], line)) ++line;
    Throw(ErrorCode::kInvalidArgument,
          "the processes compile different graphs. The first difference: process 0 has '",
          LineOf(texts[0], line), "', process ", process,
          StrCat(" has '", LineOf(texts[process], line), "'"));
  }
  return number;
}

// Returns the inputs and outputs of the graph that the part of a process lacks.
inline std::vector<ProcessLink::MissingName> MissingNames(const ProcessParts& parts, int process,
                                                          const Graph& part) {
  std::vector<ProcessLink::MissingName> missing;
  const auto add = [&](const char* what, const std::string& name, const std::vector<int>& others,
                       const char* verb) {
    std::string where = "no process";
    if (others.size() == 1) where = StrCat("process ", others[0]);
    if (others.size() > 1) where = StrCat("the processes ", ProcessesText(others));
    missing.push_back(
        {name, StrCat("the part of process ", process, " has no ", what, " '", name,
                      StrCat("', which ", where, " ", verb, others.size() > 1 ? "" : "s"))});
  };
  for (const Graph::Input& input : parts.graph().inputs())
    if (!part.IsInput(input.name) && !part.IsOutput(input.name))
      add("input", input.name, parts.ReadersOfInput(input.name), "read");
  for (const std::string& output : parts.graph().outputs())
    if (!part.IsOutput(output)) add("output", output, parts.MakersOfOutput(output), "make");
  return missing;
}

inline Graph PartOfProcess(const Graph& graph, PlanOptions& plan_options) {
  PlanOptions::ClusterOptions& options = plan_options.cluster;
  const int processes = options.CountProcesses();
  auto* const communicator = dynamic_cast<Communicator*>(options.communicator.get());
  if (communicator && processes != communicator->processes())
    Throw(ErrorCode::kInvalidArgument, "PlanOptions::cluster.processes is ", processes,
          ", but the communicator has ", communicator->processes());
  if (communicator && options.process >= 0 && options.process != communicator->process())
    Throw(ErrorCode::kInvalidArgument, "PlanOptions::cluster.process is ", options.process,
          ", but the communicator is that of process ", communicator->process());
  const int process = communicator ? communicator->process() : options.process;
  if (process < 0)
    Throw(ErrorCode::kInvalidArgument,
          "PlanOptions::cluster has several processes; give it a communicator or a process");
  if (!communicator) return ProcessParts(graph, processes).Part(process);
  const CommunicatorPtr own = communicator->Duplicate();
  std::optional<ProcessParts> made;
  std::exception_ptr refused;
  std::string text = TextOf(graph);
  try {
    if (plan_options.tuning.use == PlanOptions::TuningOptions::Use::kMeasure)
      Throw(ErrorCode::kUnsupported,
            "PlanOptions::tuning.use is kMeasure, but a plan of several processes is not measured: "
            "its part alone would wait for other processes; tune the graph on one process (Tune), "
            "and give the kernels by PlanOptions::selection.forced, not required");
    text += TextOf(made.emplace(graph, processes));
  } catch (const std::exception& error) {
    refused = std::current_exception();
    text += StrCat("an Error: ", error.what());
  }
  // Before this process throws an Error of the graph, which then is that of all processes.
  own->SetPlan(CheckSameText(*own, text));
  if (refused) std::rethrow_exception(refused);
  options.communicator = own;
  const ProcessParts& parts = *made;
  for (const std::vector<int>& group : parts.groups()) own->MakeGroup(group);
  // A fixed order of this process's own could have a node that waits for another process before a
  // node for which that process waits.
  const bool is_in_order = plan_options.schedule.deterministic && plan_options.memory.reorder_nodes;
  Graph part = parts.Part(process, own.get(), is_in_order);
  own->SetMissing(MissingNames(parts, process, part));
  return part;
}
OPKIT_IMAGE_LOCAL inline const bool kFillsProcessPart = g_process_part.Fill(&PartOfProcess);

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_PROCESS_PARTS_IPP_
