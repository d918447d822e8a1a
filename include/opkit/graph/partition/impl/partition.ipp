// Partition's definition: runs each partitioner on the result of the one before it.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_PARTITION_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_PARTITION_IPP_

#include <algorithm>
#include <cstring>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/hosted_graph.hpp"
#include "opkit/graph/partition/node_sets.hpp"
#include "opkit/graph/partition/options.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/partition/partitioner.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/subgraph.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The graph between two partitioners.
struct PartitionState {
  Graph graph;
  // By node: the nodes of the first graph that this node represents.
  IndexedVector<std::vector<int>> origin;
  IndexedVector<char> taken;  // by node: 1 if a partitioner made it
};

// Returns the shortest time of several runs of a plan of the graph, in ns: a disturbance can only
// make a run longer. Inputs are zeros, which every operator accepts as indices and lengths.
inline double MeasureNs(const Graph& graph) {
  constexpr int kLeastRuns = 3, kMostRuns = 100;
  constexpr int64_t kEnoughNs = 20'000'000;
  std::vector<NamedTensor> inputs;
  for (const Graph::Input& input : graph.inputs()) {
    Tensor tensor(input.info.shape.ToShape(), input.info.dtype);
    if (!IsObject(input.info.dtype) && tensor.nbytes() > 0)
      std::memset(tensor.raw_mutable_data(), 0, static_cast<size_t>(tensor.nbytes()));
    inputs.push_back({input.name, std::move(tensor)});
  }
  const PassList none;
  Executor executor(Compile(graph, {.passes = &none}));
  executor.Run(inputs);
  int64_t best = INT64_MAX;
  const int64_t begin = MonotonicNs();
  for (int run = 0; run < kLeastRuns || (run < kMostRuns && MonotonicNs() - begin < kEnoughNs);
       ++run) {
    const int64_t start = MonotonicNs();
    executor.Run(inputs);
    best = (std::min)(best, MonotonicNs() - start);
  }
  return static_cast<double>(best);
}

// True if a run of `def` takes less time than a run of the nodes of `body`. The time of `def`
// includes the copies that it makes of its inputs and outputs. Stores both times in `entry`.
// Returns true without a measurement if an operator of the body is not registered. Throws
// kFailedPrecondition for an input with unknown dtype or shape, kUnsupported for a node on a device
// whose memory the host cannot access, and the errors of a run.
inline bool IsFaster(const Graph& body, const OperatorDef& def, PartitionReport::Subgraph& entry) {
  for (const OperatorDef& node : body.nodes())
    if (!OpRegistry::Global().FindSchema(node.type())) return true;
  if (!IsHostAccessible(def.device().type))
    Throw(ErrorCode::kUnsupported, "accept_if_faster can measure only on the host, but ",
          ToString(def), " runs on ", def.device());
  Graph whole;
  for (const Graph::Input& input : body.inputs()) {
    if (input.info.dtype == DType::kUndefined || !input.info.shape.is_known())
      Throw(ErrorCode::kFailedPrecondition,
            "accept_if_faster needs the dtype and shape of every value, but '", input.name, "' is ",
            ToString(input.info), "; declare the shapes of the graph's inputs");
    whole.AddInput(input.name, input.info.dtype, input.info.shape);
  }
  OperatorDef alone(def);
  alone.mutable_control_inputs().clear();
  whole.AddNode(std::move(alone));
  for (const std::string& output : body.outputs()) whole.AddOutput(output);
  entry.flat_ns = MeasureNs(body);
  entry.own_ns = MeasureNs(whole);
  return entry.own_ns < entry.flat_ns;
}

// The run of one partitioner on one graph.
class PartitionRun {
 public:
  PartitionRun(const PartitionState& state, const PartitionerRequest& request,
               PartitionReport& report)
      : state_(state),
        request_(request),
        report_(report),
        partitioner_(PartitionerRegistry::Global().Get(request.name)),
        limits_(ReadPartitionLimits(request.options)),
        structure_(state.graph),
        types_(InferGraph(structure_, {}, UnknownOperators::kAllowed)),
        view_(structure_, types_, state.taken),
        problem_(CutProblemOf(structure_)),
        why_(Index(structure_.num_nodes())) {}

  PartitionState Run() {
    const std::unique_ptr<PartitionWork> work = partitioner_->Begin(view_, limits_.rest);
    Ask(*work);
    Cut();
    DropSmall();
    Review(*work);
    if (limits_.require_all) RequireAll();
    Record();
    return Replace();
  }

 private:
  // A subgraph that CutSubgraphs found.
  struct Group {
    std::vector<int> nodes;  // in ascending order
    int kind = kAnySubgraph;
    bool dropped = false;
    PartitionReport::Subgraph entry;  // its entry in the report
  };

  // Calls Mark and applies the exclusions: sets the kinds of nodes and the reasons for the others.
  void Ask(PartitionWork& work) {
    PartitionAnswer answer(view_);
    work.Mark(answer);
    problem_.kinds = answer.kinds();
    problem_.classes = answer.sets();
    CheckExcludedNodes();
    for (int node = 0; node < view_.num_nodes(); ++node) {
      const OperatorDef& def = state_.graph.node(node);
      if (state_.taken[node] && !limits_.see_taken)
        Keep(node, "taken already");
      else if (problem_.kinds[node] == kNotTaken)
        why_[node] = answer.reasons()[node].empty() ? "unsupported" : answer.reasons()[node];
      else if (Contains(limits_.exclude_ops, def.type()))
        Keep(node, StrCat("excluded: operator ", def.type()));
      else if (!def.name().empty() && Contains(limits_.exclude_nodes, def.name()))
        Keep(node, "excluded by name");
    }
  }
  void Keep(int node, std::string why) {
    problem_.kinds[node] = kNotTaken;
    why_[node] = std::move(why);
  }
  void CheckExcludedNodes() const {
    if (limits_.exclude_nodes.empty()) return;
    NameIndex names;
    for (const OperatorDef& def : state_.graph.nodes())
      if (!def.name().empty()) names.Add(def.name());
    for (const std::string& name : limits_.exclude_nodes)
      if (names.Find(name) < 0)
        Throw(ErrorCode::kNotFound, "option exclude_nodes names '", name,
              "', which the graph does not have", SuggestName(name, names.names()));
  }

  // Cuts the taken nodes into groups. A node that rewrites a value must be in the group of the
  // value's producer: leaves out rewriting nodes that are not, and cuts again until none is left.
  void Cut() {
    problem_.max_size = limits_.max_size;
    SetClasses();
    CutResult cut;
    constexpr int kMaxRounds = 3;
    for (int round = 0;; ++round) {
      cut = CutSubgraphs(problem_);
      bool changed = false;
      for (const GraphView::Rewrite& rewrite : structure_.rewrites()) {
        const int group = cut.group[rewrite.node];
        if (group < 0) continue;
        const int maker = structure_.producer(rewrite.value);
        if (maker >= 0 && cut.group[maker] == group && round < kMaxRounds) continue;
        Keep(rewrite.node, StrCat("rewrites '", structure_.name(rewrite.value),
                                  "', which is made outside of the subgraph"));
        changed = true;
      }
      if (!changed) break;
    }
    groups_.resize(Index(cut.num_groups));
    for (int node = 0; node < view_.num_nodes(); ++node) {
      if (cut.group[node] < 0) continue;
      Group& group = groups_[cut.group[node]];
      group.nodes.push_back(node);
      group.kind = (std::max)(group.kind, problem_.kinds[node]);
    }
    group_of_ = std::move(cut.group);
  }
  // Sets the classes so that nodes of different devices or different sets are not joined.
  void SetClasses() {
    std::vector<Device> devices;
    std::vector<int> device_of;
    for (const OperatorDef& def : state_.graph.nodes()) {
      const auto found = std::find(devices.begin(), devices.end(), def.device());
      device_of.push_back(static_cast<int>(found - devices.begin()));
      if (found == devices.end()) devices.push_back(def.device());
    }
    for (size_t node = 0; node < device_of.size(); ++node)
      problem_.classes[node] =
          problem_.classes[node] * static_cast<int>(devices.size()) + device_of[node];
  }

  // Drops groups below min_size, and all but the max_subgraphs largest groups.
  void DropSmall() {
    int left = 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      const auto size = static_cast<int>(group.nodes.size());
      if (size < limits_.min_size)
        Drop(group, StrCat("too small: ", size, " of at least ", limits_.min_size, " nodes",
                           CycleText(static_cast<int>(g))));
      else
        ++left;
    }
    if (limits_.max_subgraphs <= 0 || left <= limits_.max_subgraphs) return;
    std::vector<Group*> by_size;
    for (Group& group : groups_)
      if (!group.dropped) by_size.push_back(&group);
    std::stable_sort(by_size.begin(), by_size.end(), [](const Group* a, const Group* b) {
      return a->nodes.size() > b->nodes.size();
    });
    for (size_t i = Index(limits_.max_subgraphs); i < by_size.size(); ++i)
      Drop(*by_size[i], StrCat("max_subgraphs is ", limits_.max_subgraphs, ", and ",
                               limits_.max_subgraphs, " others have as many nodes or more"));
  }
  void Drop(Group& group, const std::string& why) {
    group.dropped = true;
    for (const int node : group.nodes) why_[node] = why;
  }
  // Returns the reason why the group could not be joined with a neighbour; "" if unknown. Searches
  // only for the first few groups, since each path takes time linear in the size of the graph.
  std::string CycleText(int g) {
    if (neighbours_.empty()) {
      neighbours_.assign(groups_.size(), -1);
      for (const GraphView::Edge& edge : problem_.joins) {
        const int from = group_of_[edge.from], to = group_of_[edge.to];
        if (from == to || from < 0 || to < 0) continue;
        neighbours_[from] = to;
        neighbours_[to] = from;
      }
    }
    const int other = neighbours_[g];
    if (other < 0 || paths_left_ == 0) return "";
    --paths_left_;
    IndexedVector<char> inside(group_of_.size(), 0);
    for (size_t node = 0; node < group_of_.size(); ++node)
      inside[node] = group_of_[node] == g || group_of_[node] == other;
    const std::vector<int> path = PathThroughOutside(problem_, inside);
    if (path.empty()) return "";
    return "; with its neighbour it would close a cycle: " + PathText(state_.graph, path);
  }

  // Extracts each group, calls Review, and collects the accepted groups as replacements.
  void Review(PartitionWork& work) {
    SubgraphExtractor extractor(structure_, &types_);
    NameIndex names;
    for (const OperatorDef& def : state_.graph.nodes()) names.Add(def.name());
    int id = 0;
    for (Group& group : groups_) {
      if (group.dropped) continue;
      ExtractedSubgraph extracted = extractor.Extract(group.nodes);
      const std::string op = partitioner_->SubgraphOperator(group.kind);
      FillEntry(group, op, extracted);
      if (extracted.outputs.empty()) {
        Reject(group, "rejected: it has no outputs");
        continue;
      }
      const OpSchema* schema = OpRegistry::Global().FindSchema(op);
      if (!schema)
        Throw(ErrorCode::kNotFound, "the subgraph operator '", op, "' is not registered",
              op == "Subgraph" ? "; include opkit/ops/subgraph.hpp, or link opkit::ops"
                               : SuggestName(op, OpRegistry::Global().Operators()));
      const Device device = state_.graph.node(group.nodes[0]).device();
      if (device != Device{} && OpRegistry::Global().FindKernels(op, device.type).empty()) {
        Reject(group, StrCat("rejected: operator ", op, " has no kernel for ", device));
        continue;
      }
      std::string name = StrCat(op, id);
      for (int n = 1; names.Find(name) >= 0; ++n) name = StrCat(op, id, "_", n);
      OperatorDef def(op, extracted.inputs, extracted.outputs);
      def.Name(name).Device(device);
      for (const std::string& control : extracted.control_inputs) def.ControlInput(control);
      if (!schema->needs_subgraph())
        Throw(ErrorCode::kInvalidArgument, "the operator '", op,
              "' takes the place of a subgraph but does not run one; call .setIsSubgraphOp() in "
              "its registration or .NeedsSubgraph() in its schema");
      SubgraphReview review(view_, group.nodes, extracted.body, def, id, group.kind);
      MarkInputs(*schema, review.IsArg(), def);
      work.Review(review);
      ++id;
      if (review.is_rejected()) {
        const std::string& why = review.why_rejected();
        Reject(group, why.empty() ? "rejected" : "rejected: " + why);
        continue;
      }
      const Graph body = std::move(extracted.body);
      def.Subgraph("body", MakeSubgraph(body));
      if (const std::string why = schema->Verify(def); !why.empty())
        Throw(ErrorCode::kInvalidArgument, why, "; in the node for a subgraph, ", ToString(def));
      if (limits_.accept_if_faster && !IsFaster(body, def, group.entry)) {
        Reject(group, StrCat("not faster: ", group.entry.own_ns, " ns, against ",
                             group.entry.flat_ns, " ns of its nodes"));
        continue;
      }
      names.Add(name);
      group.entry.name = name;
      replacements_.push_back({group.nodes, std::move(def)});
    }
  }
  // Sets the attributes isArg (1 for each input of the whole graph) and isAux (all 0), if the
  // operator takes them.
  static void MarkInputs(const OpSchema& schema, const std::vector<bool>& is_arg,
                         OperatorDef& def) {
    if (schema.TakesArgument("isArg"))
      def.Arg("isArg", std::vector<int64_t>(is_arg.begin(), is_arg.end()));
    if (schema.TakesArgument("isAux")) def.Arg("isAux", std::vector<int64_t>(is_arg.size(), 0));
  }
  void Reject(Group& group, std::string why) {
    group.entry.rejected = why;
    Drop(group, why);
  }
  // Fills in the report's entry of a group.
  void FillEntry(Group& group, const std::string& op, const ExtractedSubgraph& extracted) {
    PartitionReport::Subgraph& entry = group.entry;
    entry.partitioner = request_.name;
    entry.op = op;
    entry.kind = group.kind;
    entry.inputs = extracted.inputs;
    entry.outputs = extracted.outputs;
    const auto add = [&](const std::string& name, uint64_t& bytes) {
      const TensorInfo& info = types_.Get(name);
      if (info.dtype == DType::kUndefined || !info.shape.is_known())
        ++entry.open_values;
      else
        bytes += OpSchema::Bytes(info);
    };
    for (const std::string& name : entry.inputs) add(name, entry.input_bytes);
    for (const std::string& name : entry.outputs) add(name, entry.output_bytes);
    for (const int node : group.nodes) {
      for (const int original : state_.origin[node]) entry.nodes.push_back(original);
      AddCost(node, entry);
    }
    std::sort(entry.nodes.begin(), entry.nodes.end());
  }
  void AddCost(int node, PartitionReport::Subgraph& entry) const {
    const OperatorDef& def = state_.graph.node(node);
    const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
    const std::vector<TensorInfo> inputs = types_.Of(structure_.inputs(node));
    const std::vector<TensorInfo> outputs = types_.Of(structure_.outputs(node));
    bool known = schema && schema->has_cost();
    for (const auto* infos : {&inputs, &outputs})
      for (const TensorInfo& info : *infos) known &= info.shape.is_known();
    if (known)
      entry.flops += static_cast<uint64_t>(schema->Cost(def, inputs, outputs).flops);
    else
      ++entry.unknown_costs;
  }

  void RequireAll() const {
    std::string list;
    int outside = 0;
    for (int node = 0; node < view_.num_nodes(); ++node) {
      if (why_[node].empty() || state_.taken[node]) continue;
      constexpr int kMaxListed = 50;
      if (++outside <= kMaxListed)
        list += StrCat("\n  ", state_.graph.node(node), ": ", why_[node]);
    }
    if (outside > 0)
      Throw(ErrorCode::kFailedPrecondition, "require_all is set, and ", outside, " of ",
            view_.num_nodes(), " nodes stay outside:", list);
  }
  void Record() {
    for (Group& group : groups_) {
      if (group.entry.op.empty()) continue;  // dropped before Review
      const auto number = static_cast<int>(report_.subgraphs.size());
      if (group.entry.rejected.empty())
        for (const int node : group.entry.nodes) report_.nodes[Index(node)].subgraph = number;
      report_.subgraphs.push_back(std::move(group.entry));
    }
    for (int node = 0; node < view_.num_nodes(); ++node) {
      if (why_[node].empty() || state_.taken[node]) continue;
      for (const int original : state_.origin[node])
        report_.nodes[Index(original)].refused.emplace_back(request_.name, why_[node]);
    }
  }
  PartitionState Replace() const {
    if (replacements_.empty()) return state_;
    const NodeReplacer replacer(structure_, replacements_);
    PartitionState next;
    next.graph = replacer.Result();
    for (const std::vector<int>& nodes : replacer.NodesInOrder()) {
      std::vector<int> origin;
      for (const int node : nodes)
        origin.insert(origin.end(), state_.origin[node].begin(), state_.origin[node].end());
      next.origin.push_back(std::move(origin));
      next.taken.push_back(why_[nodes[0]].empty() || state_.taken[nodes[0]]);
    }
    return next;
  }

  const PartitionState& state_;
  const PartitionerRequest& request_;
  PartitionReport& report_;
  const IntrusivePtr<const Partitioner> partitioner_;
  const PartitionLimits limits_;
  const GraphView structure_;
  const GraphTypes types_;
  const PartitionView view_;
  CutProblem problem_;
  IndexedVector<std::string> why_;  // by node: the reason why it stays; empty: it is taken
  IndexedVector<Group> groups_;
  IndexedVector<int> group_of_;    // by node; -1: none
  IndexedVector<int> neighbours_;  // by group: a group that it was not joined with; -1: none
  int paths_left_ = 16;            // how often CycleText may still search
  std::vector<NodeReplacement> replacements_;
};

}  // namespace detail

OPKIT_INLINE Graph Partition(const Graph& graph,
                             const std::vector<PartitionerRequest>& partitioners,
                             PartitionReport* report) {
  const detail::RegistryUse use;
  std::vector<PartitionerRequest> requests;
  for (const PartitionerRequest& request : partitioners) {
    const std::vector<std::string> names = PartitionerRegistry::Global().Requested(request.name);
    for (const std::string& name : names) {
      requests.emplace_back(name, request.options);
      if (name != names.back())  // what all strategies together must do
        std::erase_if(requests.back().options,
                      [](const auto& option) { return option.first == "require_all"; });
    }
  }
  Check(graph, UnknownOperators::kAllowed);
  PartitionReport made;
  made.graph = graph;
  made.nodes.resize(detail::Index(graph.num_nodes()));
  detail::PartitionState state{graph, {}, std::vector<char>(made.nodes.size(), 0)};
  for (int node = 0; node < graph.num_nodes(); ++node) state.origin.push_back({node});
  for (const PartitionerRequest& request : requests) try {
      state = detail::PartitionRun(state, request, made).Run();
    } catch (...) {
      detail::RethrowInContext("in partitioner '" + request.name + "'");
    }
  if (report) *report = std::move(made);
  return std::move(state.graph);
}

namespace detail {

// The Partition that Compile calls: `report` is the report of the plan.
inline Graph PartitionForPlan(const Graph& graph,
                              const std::vector<PartitionerRequest>& partitioners,
                              std::shared_ptr<const PartitionReport>& report) {
  const auto made = std::make_shared<PartitionReport>();
  report = made;
  return Partition(graph, partitioners, made.get());
}

}  // namespace detail

OPKIT_INLINE bool RegisterPartitioner(detail::IntrusivePtr<const Partitioner> partitioner,
                                      const char* file, int line) noexcept {
  detail::g_partition.Fill(&detail::PartitionForPlan);
  return PartitionerRegistry::Global().Register(std::move(partitioner), file, line);
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_IMPL_PARTITION_IPP_
