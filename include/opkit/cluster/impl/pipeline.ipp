// Definitions of Pipeline: the costs of nodes and values, and the best cuts of the order of a run
// by dynamic programming.
#ifndef OPKIT_CLUSTER_IMPL_PIPELINE_IPP_
#define OPKIT_CLUSTER_IMPL_PIPELINE_IPP_

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "opkit/base/error.hpp"
#include "opkit/cluster/names.hpp"
#include "opkit/cluster/pipeline.hpp"
#include "opkit/graph/passes/pass_rules.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

class PipelineCutter {
 public:
  PipelineCutter(const Graph& graph, int processes, const PipelineOptions& options)
      : graph_(graph),
        options_(options),
        processes_(processes),
        places_(Index(graph.num_nodes()), -1),
        stages_(Index(graph.num_nodes()), -1) {
    FindOrder();
    FindValues();
    FindAllowed();
  }

  PipelineCut Cut() {
    const std::vector<int> ends = BestEnds();
    int begin = 0;
    for (size_t stage = 0; stage < ends.size(); begin = ends[stage++])
      for (int place = begin; place < ends[stage]; ++place)
        stages_[order_[place]] = static_cast<int>(stage);
    PipelineCut cut;
    cut.graph = graph_;
    cut.stages.resize(Index(processes_));
    for (const int node : order_) {
      cut.graph.ReplaceNode(node, OperatorDef(graph_.node(node)).Process(stages_[node]));
      PipelineStage& stage = cut.stages[Index(stages_[node])];
      ++stage.nodes;
      stage.ns += NodeNs(node);
    }
    for (int value = 0; value < view_.num_values(); ++value) AddMessages(value, cut.stages);
    const auto used = static_cast<int>(ends.size());
    if (used > 0 && used < processes_)
      cut.warnings.push_back(StrCat(
          "the pipeline has ", used, used == 1 ? " stage" : " stages", " with nodes for ",
          processes_, " processes: more would make the slowest stage no shorter. ",
          StrCat(used + 1 < processes_ ? StrCat("Processes ", used, " to ", processes_ - 1, " have")
                                       : StrCat("Process ", used, " has"),
                 " nothing to do")));
    return cut;
  }

 private:
  // The places of a value in order_.
  struct Value {
    int made = -1;  // -1: it is on each process
    int last = -1;  // its last reader
    double ns = 0;  // of a message
    int64_t bytes = 0;
  };

  // Puts the nodes that get a process into the order of a run.
  void FindOrder() {
    const NameIndex waited = ControlNames(graph_);
    IndexedVector<char> varies(Index(view_.num_values()), 0);  // with the inputs of the graph
    for (int value = 0; value < view_.num_values(); ++value) varies[value] = view_.IsInput(value);
    for (const int node : view_.order()) {
      const OperatorDef& def = graph_.node(node);
      bool has_process =
          !IsRepeatable(view_, node) || !def.control_inputs().empty() || IsWaitedFor(def, waited);
      for (const int input : view_.inputs(node)) has_process |= input >= 0 && varies[input];
      if (!has_process) continue;
      for (const int output : view_.outputs(node))
        if (output >= 0) varies[output] = 1;
      places_[node] = static_cast<int>(order_.size());
      order_.push_back(node);
    }
  }
  void FindValues() {
    values_.resize(Index(view_.num_values()));
    for (int i = 0; i < view_.num_values(); ++i) {
      Value& value = values_[i];
      if (view_.producer(i) >= 0) value.made = places_[view_.producer(i)];
      for (const int consumer : view_.consumers(i))
        value.last = (std::max)(value.last, places_[consumer]);
      value.bytes = static_cast<int64_t>(OpSchema::Bytes(types_[i]));
      value.ns =
          options_.message_ns + static_cast<double>(value.bytes) / options_.message_bytes_per_ns;
    }
  }
  double NodeNs(int node) const {
    const OperatorDef& def = graph_.node(node);
    if (!def.outputs().empty())
      if (const auto found = options_.times.find(def.outputs()[0]); found != options_.times.end())
        return found->second;
    const OpCost cost =
        OpRegistry::Global()
            .GetSchema(def.type())
            .Cost(def, types_.Of(view_.inputs(node)), types_.Of(view_.outputs(node)));
    const double bytes =
        static_cast<double>(cost.bytes_read) + static_cast<double>(cost.bytes_written);
    return options_.node_ns + (std::max)(static_cast<double>(cost.flops) / options_.flops_per_ns,
                                         bytes / options_.bytes_per_ns);
  }

  // Allows no cut between two places.
  void KeepTogether(int first, int last) {
    for (int place = first + 1; place <= last; ++place) allowed_[place] = 0;
  }
  void FindAllowed() {
    allowed_.assign(order_.size() + 1, 1);
    std::map<std::string_view, int> named;
    for (const int node : order_) named.emplace(graph_.node(node).name(), places_[node]);
    for (const int node : order_)
      for (const std::string& control : graph_.node(node).control_inputs())
        KeepTogether(named.at(control), places_[node]);
    std::map<int, std::pair<int, int>> rewritten;  // the first and the last place of each value
    const auto add = [&](int value, int node) {
      if (node < 0) return;
      const auto [found, is_new] = rewritten.try_emplace(value, places_[node], places_[node]);
      found->second.first = (std::min)(found->second.first, places_[node]);
      found->second.second = (std::max)(found->second.second, places_[node]);
    };
    for (const GraphView::Rewrite& rewrite : view_.rewrites()) {
      add(rewrite.value, rewrite.node);
      add(rewrite.value, view_.producer(rewrite.value));
      for (const int consumer : view_.consumers(rewrite.value)) add(rewrite.value, consumer);
    }
    for (const auto& [value, places] : rewritten) KeepTogether(places.first, places.second);
    // Strings, sequences and optional values have no message.
    for (int value = 0; value < view_.num_values(); ++value)
      if (values_[value].made >= 0 && IsObject(types_[value].dtype))
        KeepTogether(values_[value].made, values_[value].last);
  }

  // Returns the end of each stage that gets nodes.
  std::vector<int> BestEnds() const {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    const int n = static_cast<int>(order_.size());
    // By place: the time of the node, the values that it reads, and those that it reads last.
    std::vector<double> times;
    std::vector<std::vector<int>> read(Index(n)), read_last(Index(n));
    for (int place = 0; place < n; ++place) {
      times.push_back(NodeNs(order_[place]));
      const auto inputs = view_.inputs(order_[place]);
      for (const int input : std::set<int>(inputs.begin(), inputs.end())) {
        if (input < 0 || values_[input].made < 0) continue;
        read[Index(place)].push_back(input);
        if (values_[input].last == place) read_last[Index(place)].push_back(input);
      }
    }
    // By the number of stages and the place where the last of them ends: the slowest stage, and
    // the place where the last one begins.
    const size_t rows = Index(processes_) + 1, width = Index(n) + 1;
    std::vector<IndexedVector<double>> slowest(rows, IndexedVector<double>(width, kNever));
    std::vector<IndexedVector<int>> begins(rows, IndexedVector<int>(width, 0));
    slowest[0][0] = 0;
    IndexedVector<int> counted(values_.size(), -1);  // the last begin for which a value counted
    for (int begin = 0; begin < n; ++begin) {
      if (!allowed_[begin]) continue;
      double ns = 0, received = 0, sent = 0;
      for (int end = begin + 1; end <= n; ++end) {
        const size_t place = Index(end) - 1;
        ns += times[place];
        for (const int value : read[place])
          if (values_[value].made < begin && std::exchange(counted[value], begin) != begin)
            received += values_[value].ns;
        for (const int value : view_.outputs(order_[place]))
          if (value >= 0 && values_[value].made == end - 1 && values_[value].last >= end)
            sent += values_[value].ns;
        for (const int value : read_last[place])
          if (values_[value].made >= begin) sent -= values_[value].ns;
        if (!allowed_[end]) continue;
        for (size_t stages = 1; stages < rows; ++stages) {
          const double longest = (std::max)(slowest[stages - 1][begin], ns + received + sent);
          if (longest >= slowest[stages][end]) continue;
          slowest[stages][end] = longest;
          begins[stages][end] = begin;
        }
      }
    }
    size_t best = 0;
    for (size_t stages = 0; stages < rows; ++stages)
      if (slowest[stages][n] < slowest[best][n]) best = stages;
    std::vector<int> ends(best);
    for (int end = n; best > 0; end = begins[best--][end]) ends[best - 1] = end;
    return ends;
  }

  // Adds the messages of a value to its stages.
  void AddMessages(int value, std::vector<PipelineStage>& stages) const {
    if (values_[value].made < 0) return;
    const int from = stages_[view_.producer(value)];
    std::set<int> readers;
    for (const int consumer : view_.consumers(value))
      if (stages_[consumer] != from) readers.insert(stages_[consumer]);
    for (const int reader : readers) {
      PipelineStage &sender = stages[Index(from)], &receiver = stages[Index(reader)];
      sender.bytes_sent += values_[value].bytes;
      sender.messages_ns += values_[value].ns;
      receiver.bytes_received += values_[value].bytes;
      receiver.messages_ns += values_[value].ns;
    }
  }

  const Graph& graph_;
  const PipelineOptions& options_;
  const int processes_;
  const GraphView view_{graph_};
  const GraphTypes types_ = InferGraph(view_, options_.inputs);
  IndexedVector<int> order_;     // the nodes that get a process, in the order of a run
  IndexedVector<int> places_;    // by node, its place in order_; -1: it gets no process
  IndexedVector<int> stages_;    // by node
  IndexedVector<Value> values_;  // by value
  IndexedVector<char> allowed_;  // by place, whether a stage may begin there
};

}  // namespace detail

OPKIT_INLINE PipelineCut Pipeline(const Graph& graph, int processes,
                                  const PipelineOptions& options) {
  if (processes < 1)
    Throw(ErrorCode::kInvalidArgument, "a pipeline of ", processes,
          " processes, expected 1 or more");
  for (const double rate :
       {options.flops_per_ns, options.bytes_per_ns, options.message_bytes_per_ns})
    if (!(rate > 0))
      Throw(ErrorCode::kInvalidArgument, "a rate of PipelineOptions is ", rate,
            ", expected more than 0");
  for (const double ns : {options.node_ns, options.message_ns})
    if (!(ns >= 0))
      Throw(ErrorCode::kInvalidArgument, "a time of PipelineOptions is ", ns,
            " ns, expected 0 or more");
  for (const OperatorDef& def : graph.nodes())
    if (detail::IsCommunication(def) || def.process() >= 0)
      Throw(ErrorCode::kInvalidArgument, "Pipeline chooses the process of each node, but the node ",
            def, detail::IsCommunication(def) ? " communicates" : " names one");
  return detail::PipelineCutter(graph, processes, options).Cut();
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_PIPELINE_IPP_
