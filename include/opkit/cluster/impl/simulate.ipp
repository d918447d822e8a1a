// Definitions of the simulator: discrete events over tasks that need resources.
#ifndef OPKIT_CLUSTER_IMPL_SIMULATE_IPP_
#define OPKIT_CLUSTER_IMPL_SIMULATE_IPP_

#include <algorithm>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"
#include "opkit/cluster/names.hpp"
#include "opkit/cluster/simulate.hpp"
#include "opkit/op/operator_base.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Tasks that wait for each other and for resources, each of which serves one task at a time. The
// same tasks give the same times.
class TaskSimulation {
 public:
  // How a resource chooses among the tasks that are ready; of those that became ready together, it
  // takes the one that was added first.
  enum class Choice { kFirstReady, kLastReady };

  int AddResource(Choice choice) {
    choices_.push_back(choice);
    waiting_.emplace_back();
    is_busy_.push_back(0);
    work_.push_back(0);
    return static_cast<int>(waiting_.size()) - 1;
  }
  // Adds a task that keeps its resources for `busy` seconds and ends `latency` seconds later.
  int AddTask(double busy, double latency, std::vector<int> resources) {
    for (const int resource : resources) work_[Index(resource)] += busy;
    tasks_.push_back({busy, latency, std::move(resources), {}, 0, 0});
    return static_cast<int>(tasks_.size()) - 1;
  }
  // Lets a task begin after the end of another one.
  void Follow(int task, int before) {
    tasks_[Index(before)].next.push_back(task);
    ++tasks_[Index(task)].waits;
  }
  // Changes how long a task keeps its resources.
  void SetBusy(int number, double busy) {
    Task& task = tasks_[Index(number)];
    for (const int resource : task.resources) work_[Index(resource)] += busy - task.busy;
    task.busy = busy;
  }
  // Returns how long the tasks of a resource keep it.
  double work(int resource) const { return work_[Index(resource)]; }

  // Returns the time when all tasks have ended.
  double Run() {
    for (size_t task = 0; task < tasks_.size(); ++task)
      if (tasks_[task].waits == 0) MakeReady(static_cast<int>(task));
    double now = 0;
    for (;;) {
      StartWhatCan(now);
      if (events_.empty()) break;
      now = events_.top().time;
      ++moment_;
      // All that happens at one time, before the next tasks start.
      while (!events_.empty() && events_.top().time == now) {
        const Event event = events_.top();
        events_.pop();
        Task& task = tasks_[Index(event.task)];
        if (event.is_release)
          for (const int resource : task.resources) {
            is_busy_[Index(resource)] = 0;
            changed_.insert(resource);
          }
        else
          for (const int next : task.next)
            if (--tasks_[Index(next)].waits == 0) MakeReady(next);
      }
    }
    return now;
  }

 private:
  struct Task {
    double busy, latency;
    std::vector<int> resources, next;
    int waits;
    int64_t ready;  // the moment
  };
  struct Event {
    double time;
    int task;
    bool is_release;
    // The order of a queue whose top is the first event.
    friend bool operator<(const Event& a, const Event& b) {
      return std::pair(a.time, a.task) > std::pair(b.time, b.task);
    }
  };

  // Returns the place of a task among those that wait for the resource.
  std::pair<int64_t, int> PlaceOf(int task, int resource) const {
    const int64_t ready = tasks_[Index(task)].ready;
    return {choices_[Index(resource)] == Choice::kFirstReady ? ready : -ready, task};
  }
  void MakeReady(int task) {
    tasks_[Index(task)].ready = moment_;
    if (tasks_[Index(task)].resources.empty()) free_.push_back(task);
    for (const int resource : tasks_[Index(task)].resources) {
      waiting_[Index(resource)].insert(PlaceOf(task, resource));
      changed_.insert(resource);
    }
  }
  void Start(int number, double now) {
    const Task& task = tasks_[Index(number)];
    for (const int resource : task.resources) {
      is_busy_[Index(resource)] = 1;
      waiting_[Index(resource)].erase(PlaceOf(number, resource));
    }
    if (!task.resources.empty()) events_.push({now + task.busy, number, true});
    events_.push({now + task.busy + task.latency, number, false});
  }
  void StartWhatCan(double now) {
    for (const int task : std::exchange(free_, {})) Start(task, now);
    for (const int resource : std::exchange(changed_, {})) {
      if (is_busy_[Index(resource)]) continue;
      for (const auto& [place, task] : waiting_[Index(resource)]) {
        const auto& needed = tasks_[Index(task)].resources;
        if (std::any_of(needed.begin(), needed.end(), [&](int r) { return is_busy_[Index(r)]; }))
          continue;
        Start(task, now);
        break;
      }
    }
  }

  std::vector<Task> tasks_;
  std::vector<Choice> choices_;  // by resource
  // For each resource, the tasks that are ready, in the order in which it takes them.
  std::vector<std::set<std::pair<int64_t, int>>> waiting_;
  std::vector<char> is_busy_;
  std::vector<double> work_;
  std::set<int> changed_;  // the resources that may start a task now
  std::vector<int> free_;  // ready tasks without resources
  std::priority_queue<Event> events_;
  int64_t moment_ = 0;  // the number of times at which anything has happened
};

// The resources of a process.
struct SimulatedProcess {
  explicit SimulatedProcess(TaskSimulation& simulation)
      : compute(simulation.AddResource(TaskSimulation::Choice::kLastReady)),
        send(simulation.AddResource(TaskSimulation::Choice::kFirstReady)),
        receive(simulation.AddResource(TaskSimulation::Choice::kFirstReady)) {}
  int compute, send, receive;
};
inline SimulatedStep Simulate(TaskSimulation& simulation,
                              const std::vector<SimulatedProcess>& processes) {
  SimulatedStep step;
  step.seconds = simulation.Run();
  for (const SimulatedProcess& process : processes) {
    step.compute = (std::max)(step.compute, simulation.work(process.compute));
    step.communicate = (std::max)(
        {step.communicate, simulation.work(process.send), simulation.work(process.receive)});
  }
  return step;
}
inline int AddMessage(TaskSimulation& simulation, const SimulatedProcess& from,
                      const SimulatedProcess& to, int64_t bytes, const LinkCost& cost) {
  return simulation.AddTask(static_cast<double>(bytes) * cost.seconds_per_byte, cost.latency,
                            {from.send, to.receive});
}

// A run of a graph's parts as tasks.
class PartsSimulation {
 public:
  PartsSimulation(const ProcessParts& parts, FunctionRef<double(const OperatorDef&)> seconds_of,
                  const Topology& topology, AllReduceAlgorithm algorithm)
      : parts_(parts), seconds_of_(seconds_of), topology_(topology), algorithm_(algorithm) {
    FindClasses();
    for (size_t i = 0; i < members_.size(); ++i) processes_.emplace_back(simulation_);
    for (size_t i = 0; i < members_.size(); ++i) AddPart(static_cast<int>(i));
  }
  SimulatedStep Run() { return Simulate(simulation_, processes_); }

 private:
  // Processes are of one class if the same nodes run on them, as root or not, and they send and
  // receive nothing.
  void FindClasses() {
    const auto n = Index(parts_.processes());
    std::vector<std::vector<int>> roles(n);  // for each process: its nodes
    const Graph& graph = parts_.graph();
    for (int node = 0; node < graph.num_nodes(); ++node) {
      const OperatorDef& def = graph.node(node);
      const bool is_everywhere = parts_.processes_of(node).size() == n;
      for (const int process : parts_.processes_of(node)) {
        std::vector<int>& role = roles[Index(process)];
        if (!is_everywhere) role.push_back(node);
        if ((ReadsAtRoot(def) || WritesAtRoot(def)) && RootOf(def) == process)
          role.push_back(-1 - node);
        if (IsSend(def) || IsReceive(def)) role.push_back(-1 - graph.num_nodes() - process);
      }
    }
    for (const CrossingValue& value : parts_.crossing())
      for (const int process : {value.from, value.to})
        roles[Index(process)].push_back(-1 - graph.num_nodes() - process);
    std::map<std::vector<int>, int> classes;
    for (size_t process = 0; process < n; ++process) {
      const auto [found, is_new] =
          classes.try_emplace(roles[process], static_cast<int>(classes.size()));
      if (is_new) members_.emplace_back();
      members_[Index(found->second)].push_back(static_cast<int>(process));
      class_of_.push_back(found->second);
    }
  }

  void AddPart(int number) {
    const int process = members_[Index(number)][0];
    const Graph part = parts_.Part(process);
    const GraphView view(part);
    const GraphTypes types = InferGraph(view);
    std::map<std::string, int, std::less<>> made, named;  // tasks by value, and by node name
    for (int node = 0; node < part.num_nodes(); ++node) {
      const OperatorDef& def = part.node(node);
      const auto bytes = [&](bool of_input) {
        int64_t sum = 0;
        for (const int value : of_input ? view.inputs(node) : view.outputs(node)) {
          if (value < 0) continue;
          const TensorInfo& info = types[value];
          if (info.dtype == DType::kUndefined || !info.shape.is_known())
            Throw(ErrorCode::kUnsupported, "the bytes that the node ", def,
                  " communicates are not known: '", view.name(value), "' is ", ToString(info));
          sum += BytesOf(info.shape.ToShape().numel(), info.dtype);
        }
        return sum;
      };
      int task = -1;
      if (IsSend(def) || IsReceive(def))
        task = MessageOf(def, process, IsSend(def) ? bytes(true) : -1);
      else if (IsCollective(def))
        task = CollectiveOf(def, bytes);
      else
        task = simulation_.AddTask(seconds_of_(def), 0, {processes_[Index(number)].compute});
      // A received value waits for the message alone, which waits for its sender's value.
      for (const std::string& input : def.inputs())
        if (const auto before = made.find(input); before != made.end())
          simulation_.Follow(task, before->second);
      for (const std::string& control : def.control_inputs())
        if (const auto before = named.find(control); before != named.end())
          simulation_.Follow(task, before->second);
      for (const std::string& output : def.outputs())
        if (!output.empty()) made[output] = task;
      if (!def.name().empty()) named[def.name()] = task;
    }
  }
  int MessageOf(const OperatorDef& def, int process, int64_t bytes) {
    const int other = ProcessNumber(def, def.args().Get<int64_t>("process", 0));
    const int from = IsSend(def) ? process : other, to = IsSend(def) ? other : process;
    const auto [found, is_new] =
        messages_.try_emplace({from, to, def.args().Get<int64_t>("channel", 0)}, -1);
    const LinkCost cost = topology_.Between(from, to);
    const auto at = [&](int p) { return processes_[Index(class_of_[Index(p)])]; };
    if (is_new) found->second = AddMessage(simulation_, at(from), at(to), 0, cost);
    if (bytes >= 0)
      simulation_.SetBusy(found->second, static_cast<double>(bytes) * cost.seconds_per_byte);
    return found->second;
  }
  int CollectiveOf(const OperatorDef& def, FunctionRef<int64_t(bool)> bytes_of) {
    std::vector<int> group;
    for (const int64_t process : GroupOf(def)) group.push_back(ProcessNumber(def, process));
    std::sort(group.begin(), group.end());
    if (group.empty())
      for (int i = 0; i < parts_.processes(); ++i) group.push_back(i);
    const auto n = static_cast<int>(group.size());
    Collectives& collectives = collectives_[group];
    const auto channel = def.args().Get<int64_t>("channel", 0);
    const auto [found, is_new] = collectives.tasks.try_emplace(channel, -1);
    if (is_new) {
      CommunicationKind kind = CommunicationKind::kBarrier;
      for (int i = 0; i <= static_cast<int>(CommunicationKind::kBarrier); ++i)
        if (ToString(static_cast<CommunicationKind>(i)) == CommunicationOf(def))
          kind = static_cast<CommunicationKind>(i);
      const bool has_blocks =
          kind == CommunicationKind::kReduceScatter || kind == CommunicationKind::kAllToAll;
      // The root of Scatter has n blocks, and every process gets one.
      const bool by_output =
          kind == CommunicationKind::kBroadcast || kind == CommunicationKind::kScatter;
      const int64_t bytes = bytes_of(!by_output) / (has_blocks ? n : 1);
      if (collectives.tasks.size() == 1) collectives.cost = topology_.OfRing(group);
      const double seconds = CommunicationSeconds(kind, n, bytes, collectives.cost, algorithm_);
      std::set<int> resources;
      for (const int process : group) {
        const SimulatedProcess& member = processes_[Index(class_of_[Index(process)])];
        resources.insert({member.send, member.receive});
      }
      found->second = simulation_.AddTask(seconds, 0, {resources.begin(), resources.end()});
      // The processes begin the collectives of a group in their order.
      if (const auto before = collectives.tasks.find(channel - 1);
          before != collectives.tasks.end())
        simulation_.Follow(found->second, before->second);
    }
    return found->second;
  }

  // The collectives of a group.
  struct Collectives {
    std::map<int64_t, int> tasks;  // by channel
    LinkCost cost;                 // of the group's slowest connection
  };

  const ProcessParts& parts_;
  const FunctionRef<double(const OperatorDef&)> seconds_of_;
  const Topology& topology_;
  const AllReduceAlgorithm algorithm_;
  TaskSimulation simulation_;
  std::vector<std::vector<int>> members_;    // of each class
  std::vector<int> class_of_;                // for each process
  std::vector<SimulatedProcess> processes_;  // for each class
  std::map<std::tuple<int, int, int64_t>, int> messages_;
  std::map<std::vector<int>, Collectives> collectives_;
};

}  // namespace detail

OPKIT_INLINE SimulatedStep SimulateStep(const ProcessParts& parts,
                                        FunctionRef<double(const OperatorDef&)> seconds_of,
                                        const Topology& topology, AllReduceAlgorithm algorithm) {
  return detail::PartsSimulation(parts, seconds_of, topology, algorithm).Run();
}

OPKIT_INLINE SimulatedStep SimulateTraining(const std::vector<StageCost>& stages,
                                            const TrainingLayout& layout,
                                            const Topology& topology) {
  for (const auto& [name, number] :
       {std::pair("replicas", layout.replicas), {"micro_batches", layout.micro_batches}})
    if (number < 1)
      Throw(ErrorCode::kInvalidArgument, "TrainingLayout::", name, " is ", number,
            ", expected 1 or more");
  if (stages.empty())
    Throw(ErrorCode::kInvalidArgument, "a pipeline of no stages, expected 1 or more");
  detail::TaskSimulation simulation;
  const size_t n = stages.size(), batches = detail::Index(layout.micro_batches);
  std::vector<detail::SimulatedProcess> processes;
  for (size_t stage = 0; stage < n; ++stage) processes.emplace_back(simulation);
  const auto link = [&](size_t stage) {
    return topology.Between(static_cast<int>(stage), static_cast<int>(stage) + 1);
  };
  const auto sum = [&](size_t stage, double LayerCost::*time) {
    double seconds = 0;
    for (const LayerCost& layer : stages[stage].layers) seconds += layer.*time;
    return seconds;
  };
  // By stage: the task that ends the stage's last forward pass.
  std::vector<int> forward(n), previous(n, -1);
  const auto after = [&](int task, int before) {
    if (before >= 0) simulation.Follow(task, before);
    return task;
  };
  for (size_t batch = 0; batch < batches; ++batch) {
    int arrived = -1;
    for (size_t stage = 0; stage < n; ++stage) {
      const int task =
          simulation.AddTask(sum(stage, &LayerCost::forward), 0, {processes[stage].compute});
      after(task, arrived);
      previous[stage] = forward[stage] = after(task, previous[stage]);
      if (stage + 1 < n)
        arrived = after(detail::AddMessage(simulation, processes[stage], processes[stage + 1],
                                           stages[stage].output_bytes, link(stage)),
                        task);
    }
  }
  for (size_t batch = 0; batch < batches && !layout.is_inference; ++batch) {
    const bool is_last = batch + 1 == batches;
    int arrived = -1;
    for (size_t stage = n; stage-- > 0;) {
      // The layers of the last micro-batch one by one, since their gradients are then complete.
      std::vector<int> members;
      for (int replica = 0; is_last && replica < layout.replicas; ++replica)
        members.push_back(replica * static_cast<int>(n) + static_cast<int>(stage));
      const LinkCost ring = topology.OfRing(members);
      std::vector<int64_t> late;  // buckets that wait for the whole backward pass
      int64_t bucket = 0;
      int last = previous[stage], reduced = -1;
      const auto reduce = [&](int64_t bytes) {
        const double seconds = CommunicationSeconds(CommunicationKind::kAllReduce, layout.replicas,
                                                    bytes, ring, layout.algorithm);
        const int task =
            simulation.AddTask(seconds, 0, {processes[stage].send, processes[stage].receive});
        after(task, reduced);
        reduced = after(task, last);
      };
      if (!is_last) {
        const int task =
            simulation.AddTask(sum(stage, &LayerCost::backward), 0, {processes[stage].compute});
        after(task, arrived);
        last = after(task, last);
      }
      const std::vector<LayerCost>& layers = stages[stage].layers;
      for (size_t i = layers.size(); is_last && i-- > 0;) {
        const LayerCost& layer = layers[i];
        const int task = simulation.AddTask(layer.backward, 0, {processes[stage].compute});
        after(task, std::exchange(arrived, -1));
        last = after(task, last);
        bucket += layer.gradient_bytes;
        if (layout.replicas == 1 || bucket == 0 || (bucket < layout.bucket_bytes && i > 0))
          continue;
        if (layout.overlaps)
          reduce(bucket);
        else
          late.push_back(bucket);
        bucket = 0;
      }
      for (const int64_t bytes : late) reduce(bytes);
      previous[stage] = last;
      if (stage > 0)
        arrived = after(detail::AddMessage(simulation, processes[stage], processes[stage - 1],
                                           stages[stage - 1].output_bytes, link(stage - 1)),
                        last);
    }
  }
  return detail::Simulate(simulation, processes);
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_SIMULATE_IPP_
