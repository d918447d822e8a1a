// Definitions of a run on several processes: gathers the RunProfiles, and finds the critical path
// and the waits.
#ifndef OPKIT_CLUSTER_IMPL_CLUSTER_RUN_IPP_
#define OPKIT_CLUSTER_IMPL_CLUSTER_RUN_IPP_

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/index.hpp"
#include "opkit/cluster/cluster_run.hpp"
#include "opkit/cluster/names.hpp"
#include "opkit/cluster/record_bytes.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "opkit/profile/text_columns.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The first message of a process to all others: the complete runs of its plan.
struct ProcessRuns {
  std::string error;             // the message, if there is no such run
  int64_t plan = 0;              // its number, the same on all processes
  std::vector<int64_t> numbers;  // the last one first

  // Writes or reads the members.
  void Pass(RecordBytes& bytes) {
    bytes.Text(error);
    bytes.Number(plan);
    bytes.Numbers(numbers);
  }
};
// The message of a process to process 0 about its run.
struct ProcessRun {
  int64_t begin = 0;  // of the session
  RunProfile run;
  // For each node of the run: a text that is the same for all nodes of a communication; empty for
  // a node that does not communicate.
  std::vector<std::string> communications;

  // Writes or reads the members.
  void Pass(RecordBytes& bytes) {
    bytes.Number(begin);
    bytes.Number(run.begin);
    bytes.Number(run.end);
    bytes.ForEach(run.nodes, [&](NodeTime& node) {
      bytes.Number(node.node);
      bytes.Text(node.name);
      for (int64_t* time : {&node.ready, &node.begin, &node.end}) bytes.Number(*time);
      bytes.Number(node.thread);
      bytes.Numbers(node.after);
    });
    bytes.Numbers(run.critical_path);
    bytes.ForEach(communications, [&](std::string& each) { bytes.Text(each); });
  }
};

inline std::string CommunicationText(const OperatorDef& def, int process) {
  if (!IsCommunication(def)) return "";
  const int64_t channel = def.args().Get<int64_t>("channel", 0);
  if (!IsCollective(def)) {
    const int64_t other = def.args().Get<int64_t>("process", 0);
    return IsSend(def) ? StrCat(process, " to ", other, ": ", channel)
                       : StrCat(other, " to ", process, ": ", channel);
  }
  std::string text = StrCat("collective ", channel, " of");
  for (const int64_t member : GroupOf(def)) text += StrCat(" ", member);
  return text;
}

// Periods of time {begin, end}.
using Periods = std::vector<std::pair<int64_t, int64_t>>;

// Returns the same times as periods that are sorted and do not overlap.
inline Periods United(Periods periods) {
  std::sort(periods.begin(), periods.end());
  Periods united;
  for (const auto& [begin, end] : periods)
    if (united.empty() || begin > united.back().second)
      united.emplace_back(begin, end);
    else
      united.back().second = (std::max)(united.back().second, end);
  return united;
}
// Returns the time from begin to end that is in none of the periods, which are united.
inline int64_t TimeOutside(const Periods& periods, int64_t begin, int64_t end) {
  int64_t time = 0;
  auto next = std::lower_bound(periods.begin(), periods.end(), begin,
                               [](const auto& period, int64_t at) { return period.second < at; });
  for (; begin < end; ++next) {
    const int64_t busy = next == periods.end() ? end : (std::min)(next->first, end);
    time += (std::max)(busy - begin, int64_t{0});
    if (next == periods.end()) break;
    begin = (std::max)(begin, next->second);
  }
  return time;
}

// Finds the critical path and the waits of a run.
class ClusterRunReader {
 public:
  explicit ClusterRunReader(ClusterRun& run) : run_(run) {
    for (const RunProfile& process : run.processes)
      communication_of_.emplace_back(process.nodes.size(), -1);
    for (size_t i = 0; i < run.communications.size(); ++i)
      for (const ClusterRun::Node& node : run.communications[i])
        communication_of_[Index(node.process)][Index(node.index)] = static_cast<int>(i);
  }

  void FindPath() {
    std::optional<ClusterRun::Node> at;
    int64_t end = 0;
    for (size_t process = 0; process < run_.processes.size(); ++process)
      for (size_t i = 0; i < run_.processes[process].nodes.size(); ++i) {
        const int64_t time = run_.processes[process].nodes[i].end;
        if (at && time <= end) continue;
        at = ClusterRun::Node{static_cast<int>(process), static_cast<int>(i)};
        end = time;
      }
    while (at) {
      ClusterRun::Step step{*at, TimeOf(*at).begin, end};
      const std::optional<ClusterRun::Node> peer = LastPeer(*at, end);
      if (peer && TimeOf(*peer).begin > step.begin) {
        step.begin = TimeOf(*peer).begin;
        run_.critical_path.push_back(step);
        step = {*peer, step.begin, step.begin};
      }
      run_.critical_path.push_back(step);
      const NodeTime& node = TimeOf(step.node);
      if (node.after.empty()) break;
      at = ClusterRun::Node{step.node.process, node.after[0]};
      // The event of a node may complete shortly after the next node has begun.
      end = (std::min)(node.ready, step.begin);
    }
    std::reverse(run_.critical_path.begin(), run_.critical_path.end());
  }

  void FindWaits() {
    for (size_t process = 0; process < run_.processes.size(); ++process) {
      const std::vector<NodeTime>& nodes = run_.processes[process].nodes;
      Periods work, communications;
      for (size_t i = 0; i < nodes.size(); ++i)
        (communication_of_[process][i] < 0 ? work : communications)
            .emplace_back(nodes[i].begin, nodes[i].end);
      work = United(std::move(work));
      int64_t& waited = run_.waited.emplace_back(0);
      for (const auto& [begin, end] : United(std::move(communications)))
        waited += TimeOutside(work, begin, end);
      for (size_t i = 0; i < nodes.size(); ++i) {
        const ClusterRun::Node node{static_cast<int>(process), static_cast<int>(i)};
        const auto peer = LastPeer(node, (std::numeric_limits<int64_t>::max)());
        if (!peer) continue;
        const int64_t begin = nodes[i].begin, end = nodes[i].end;
        run_.waits.push_back({node, peer->process, TimeOutside(work, begin, end),
                              TimeOutside(work, begin, (std::min)(end, TimeOf(*peer).begin))});
      }
    }
  }

 private:
  const NodeTime& TimeOf(const ClusterRun::Node& node) const {
    return run_.processes[Index(node.process)].nodes[Index(node.index)];
  }
  // Returns the node of another process that began the node's communication last, of those that
  // began it before `end`.
  std::optional<ClusterRun::Node> LastPeer(const ClusterRun::Node& node, int64_t end) const {
    std::optional<ClusterRun::Node> last;
    const int communication = communication_of_[Index(node.process)][Index(node.index)];
    if (communication < 0) return last;
    for (const ClusterRun::Node& other : run_.communications[Index(communication)])
      if (other != node && TimeOf(other).begin < end &&
          (!last || TimeOf(other).begin > TimeOf(*last).begin))
        last = other;
    return last;
  }

  ClusterRun& run_;
  std::vector<std::vector<int>> communication_of_;  // by process and node; -1: none
};

OPKIT_INLINE void FindPathAndWaits(ClusterRun& run) {
  ClusterRunReader reader(run);
  reader.FindPath();
  reader.FindWaits();
}

// Puts the runs of all processes together, with times since the begin of the first session.
inline ClusterRun JoinRuns(std::vector<ProcessRun> parts) {
  int64_t first = parts[0].begin;
  for (const ProcessRun& part : parts) first = (std::min)(first, part.begin);
  ClusterRun run;
  std::map<std::string, std::vector<ClusterRun::Node>> communications;
  for (size_t process = 0; process < parts.size(); ++process) {
    const int64_t later = parts[process].begin - first;
    RunProfile& own = run.processes.emplace_back(std::move(parts[process].run));
    for (int64_t* time : {&own.begin, &own.end}) *time += later;
    for (size_t i = 0; i < own.nodes.size(); ++i) {
      NodeTime& node = own.nodes[i];
      for (int64_t* time : {&node.ready, &node.begin, &node.end}) *time += later;
      const std::string& text = parts[process].communications[i];
      if (text.empty()) continue;
      std::vector<ClusterRun::Node>& members = communications[text];
      const bool is_send = node.name.starts_with(StrCat(kClusterDomain, "Send "));
      members.insert(is_send ? members.begin() : members.end(),
                     {static_cast<int>(process), static_cast<int>(i)});
    }
    run.begin = process == 0 ? own.begin : (std::min)(run.begin, own.begin);
    run.end = process == 0 ? own.end : (std::max)(run.end, own.end);
  }
  for (auto& [text, members] : communications)
    if (members.size() > 1) run.communications.push_back(std::move(members));
  FindPathAndWaits(run);
  return run;
}

// Returns the number of the last run that all processes have.
inline int64_t LastCommonRun(const std::vector<ProcessRuns>& all) {
  std::string has;
  for (size_t process = 0; process < all.size(); ++process) {
    const ProcessRuns& one = all[process];
    if (!one.error.empty())
      Throw(ErrorCode::kFailedPrecondition, "there is no run of all processes. Process ", process,
            ": ", one.error);
    if (one.plan != all[0].plan)
      Throw(ErrorCode::kFailedPrecondition,
            "there is no run of all processes. The plan of process ", process,
            " is not the plan of process 0; call ProfileOfRun with the communicator that ",
            "the plan was compiled for");
    has += StrCat(process > 0 ? "; process " : "process ", process, " has runs ",
                  one.numbers.back(), " to ", one.numbers.front());
  }
  for (const int64_t number : all[0].numbers)
    if (std::all_of(all.begin(), all.end(),
                    [&](const ProcessRuns& one) { return Contains(one.numbers, number); }))
      return number;
  Throw(ErrorCode::kFailedPrecondition,
        "there is no run of all processes: each process has recorded other runs of the plan (", has,
        ")");
}

}  // namespace detail

OPKIT_INLINE ClusterRun ProfileOfRun(Communicator& communicator, const Plan& plan,
                                     const Profile& profile) {
  const detail::ProcessLink* link = plan.state()->options().cluster.communicator.get();
  detail::ProcessRuns own_runs;
  detail::ProcessRun own;
  Profile part;
  // An Error goes to all processes, which wait for this one.
  try {
    own.begin = detail::SessionBegin(profile, communicator.process());
    part = detail::OwnPart(profile, communicator);
    if (link) own_runs.plan = static_cast<const Communicator*>(link)->plan();
    detail::FindRun(plan, part, [&](const ProfileSpan& run) {
      if (run.message.plan == own_runs.plan) own_runs.numbers.push_back(run.message.number);
      return false;
    });
    if (own_runs.numbers.empty()) detail::ThrowNoRun(plan, part);
  } catch (const Error& error) {
    own_runs.error = error.message();
  }
  const auto exchange = [&]<class T>(T& mine) {
    detail::RecordBytes written;
    mine.Pass(written);
    std::vector<T> all;
    for (const std::string& text : communicator.Exchange(written.bytes())) {
      detail::RecordBytes bytes(text);
      all.emplace_back().Pass(bytes);
    }
    return all;
  };
  const int64_t number = detail::LastCommonRun(exchange(own_runs));
  own.run = *detail::FindRun(plan, part, [&](const ProfileSpan& run) {
    return run.message.plan == own_runs.plan && run.message.number == number;
  });
  const Graph& graph = plan.state()->GetLatest()->view().graph();
  const int process = link ? link->process() : communicator.process();  // of the plan
  for (const NodeTime& node : own.run.nodes)
    own.communications.push_back(detail::CommunicationText(graph.node(node.node), process));
  std::vector<detail::ProcessRun> parts = exchange(own);
  return communicator.process() == 0 ? detail::JoinRuns(std::move(parts)) : ClusterRun();
}

OPKIT_INLINE RunReport ReportOfRun(const ClusterRun& run) {
  using detail::Index;
  using Node = ClusterRun::Node;
  std::vector<std::vector<int>> place;  // in the report, by process and node
  for (const RunProfile& process : run.processes) place.emplace_back(process.nodes.size());
  const auto time = [&](const Node& node) -> const NodeTime& {
    return run.processes[Index(node.process)].nodes[Index(node.index)];
  };
  std::map<std::pair<int, int>, Node> send_of;  // by process and node of the Recv
  for (const std::vector<Node>& members : run.communications)
    if (time(members[0]).name.starts_with(StrCat(detail::kClusterDomain, "Send ")))
      send_of[{members[1].process, members[1].index}] = members[0];
  // By begin, but each Recv after its Send.
  std::vector<std::tuple<int64_t, bool, int, int>> order;
  for (size_t process = 0; process < run.processes.size(); ++process)
    for (size_t i = 0; i < run.processes[process].nodes.size(); ++i) {
      const Node node{static_cast<int>(process), static_cast<int>(i)};
      const auto send = send_of.find({node.process, node.index});
      const bool receives = send != send_of.end();
      const int64_t begin = time(node).begin;
      order.emplace_back(receives ? (std::max)(begin, time(send->second).begin) : begin, receives,
                         node.process, node.index);
    }
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i)
    place[Index(std::get<2>(order[i]))][Index(std::get<3>(order[i]))] = static_cast<int>(i);

  RunReport report;
  report.begin = run.begin;
  report.end = run.end;
  for (const auto& [key, receives, process, index] : order) {
    const NodeTime& node = time({process, index});
    RunReport::Node& made = report.nodes.emplace_back();
    made = {StrCat(node.name, ", process ", process), node.ready, node.begin, node.end, {}, false};
    for (const int before : node.after) made.after.push_back(place[Index(process)][Index(before)]);
    if (!receives) continue;
    const Node& send = send_of[{process, index}];
    made.after.push_back(place[Index(send.process)][Index(send.index)]);
  }
  for (const ClusterRun::Step& step : run.critical_path)
    report.nodes[Index(place[Index(step.node.process)][Index(step.node.index)])].critical = true;
  for (size_t i = 0; i < run.processes.size(); ++i)
    report.processes.push_back({run.processes[i].end - run.processes[i].begin, run.waited[i]});
  for (const ClusterRun::Wait& wait : run.waits)
    report.waits.push_back(
        {time(wait.node).name, wait.node.process, wait.peer, wait.ns, wait.late});
  return report;
}

OPKIT_INLINE std::string ToString(const ClusterRun& run) {
  using detail::Index;
  constexpr size_t kMostWaits = 20;
  const auto us = [](int64_t ns) { return detail::Microseconds(static_cast<double>(ns)); };
  const auto name = [&](const ClusterRun::Node& node) -> const std::string& {
    return run.processes[Index(node.process)].nodes[Index(node.index)].name;
  };
  int64_t path = 0, at = run.begin;
  int crossings = 0;
  std::vector<std::vector<std::string>> lines{
      {"critical path", "process", "begin us", "wait us", "run us"}};
  for (size_t i = 0; i < run.critical_path.size(); ++i) {
    const ClusterRun::Step& step = run.critical_path[i];
    path += step.end - step.begin;
    crossings += i > 0 && step.node.process != run.critical_path[i - 1].node.process;
    lines.push_back({name(step.node), StrCat(step.node.process), us(step.begin - run.begin),
                     us(step.begin - at), us(step.end - step.begin)});
    at = step.end;
  }
  std::string text = StrCat("run of ", us(run.end - run.begin), " us on ", run.processes.size(),
                            " processes; critical path of ", run.critical_path.size(), " nodes, ",
                            us(path), " us, which crosses between processes ", crossings,
                            crossings == 1 ? " time\n" : " times\n") +
                     detail::AlignColumns(lines, 1);
  lines = {{"process", "run us", "waited us"}};
  for (size_t i = 0; i < run.processes.size(); ++i)
    lines.push_back(
        {StrCat(i), us(run.processes[i].end - run.processes[i].begin), us(run.waited[i])});
  text += "\n" + detail::AlignColumns(lines, 0);
  std::vector<const ClusterRun::Wait*> longest;
  for (const ClusterRun::Wait& wait : run.waits)
    if (wait.ns > 0) longest.push_back(&wait);
  detail::StableSort(longest, [](const auto* a, const auto* b) { return a->ns > b->ns; });
  if (longest.size() > kMostWaits) longest.resize(kMostWaits);
  if (longest.empty()) return text;
  lines = {{"longest waits", "process", "for process", "us", "before it came"}};
  for (const ClusterRun::Wait* wait : longest)
    lines.push_back({name(wait->node), StrCat(wait->node.process), StrCat(wait->peer), us(wait->ns),
                     us(wait->late)});
  return text + "\n" + detail::AlignColumns(lines, 1);
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_CLUSTER_RUN_IPP_
