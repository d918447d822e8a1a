// A run on several processes: the critical path and the waits of runs with fixed times, and the
// structure of real runs.
#include "opkit/cluster/cluster_run.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "local_runs.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/graph.hpp"
#include "support/check_fails.hpp"
#include "support/error_of.hpp"
#include "support/text.hpp"
#include "support/watchdog.hpp"

namespace cluster_run_test { namespace {

using namespace opkit;
using Node = ClusterRun::Node;

// A node that was ready when its first predecessor ended.
void Add(RunProfile& run, const char* name, int64_t begin, int64_t end,
         std::vector<int> after = {}) {
  const int64_t ready = after.empty() ? run.begin : run.nodes[static_cast<size_t>(after[0])].end;
  const int node = static_cast<int>(run.nodes.size());
  run.nodes.push_back({node, name, ready, begin, end, 0, std::move(after)});
}
ClusterRun Empty(size_t processes) {
  ClusterRun run;
  run.end = 1000;
  run.processes.resize(processes);
  for (RunProfile& process : run.processes) process.end = 1000;
  return run;
}
std::vector<Node> PathOf(const ClusterRun& run) {
  std::vector<Node> path;
  for (const ClusterRun::Step& step : run.critical_path) path.push_back(step.node);
  return path;
}

// Process 0 sends "a" late, and process 1 comes late to the AllReduce.
ClusterRun Example() {
  ClusterRun run = Empty(2);
  RunProfile& first = run.processes[0];
  Add(first, "Neg (a)", 100, 400);
  Add(first, "opkit.cluster.Send (a to process 1)", 410, 500, {0});
  Add(first, "Exp (e)", 420, 450, {0});
  Add(first, "opkit.cluster.AllReduce (s)", 460, 1000, {2});
  RunProfile& second = run.processes[1];
  Add(second, "opkit.cluster.Recv (a from process 0)", 120, 520);
  Add(second, "Relu (r)", 530, 900, {0});
  Add(second, "opkit.cluster.AllReduce (s)", 910, 990, {1});
  run.communications = {{{0, 1}, {1, 0}}, {{0, 3}, {1, 2}}};
  opkit::detail::FindPathAndWaits(run);
  return run;
}

TEST_CASE(
    "the critical path goes from a Recv to its Send and from a collective to the last process") {
  const ClusterRun run = Example();
  CHECK(PathOf(run) == std::vector<Node>{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}, {0, 3}});
  REQUIRE(run.critical_path.size() == 6);
  const std::pair<int64_t, int64_t> times[] = {{100, 400}, {410, 410}, {410, 520},
                                               {530, 900}, {910, 910}, {910, 1000}};
  for (size_t i = 0; i < 6; ++i) {
    CHECK(run.critical_path[i].begin == times[i].first);
    CHECK(run.critical_path[i].end == times[i].second);
  }
}

TEST_CASE("a process waits while it communicates and no other node of it runs") {
  const ClusterRun run = Example();
  CHECK(run.waited == std::vector<int64_t>{560, 480});
  REQUIRE(run.waits.size() == 4);
  const auto check_wait = [&](size_t i, Node node, int peer, int64_t ns, int64_t late) {
    CHECK(run.waits[i].node == node);
    CHECK(run.waits[i].peer == peer);
    CHECK(run.waits[i].ns == ns);
    CHECK(run.waits[i].late == late);
  };
  check_wait(0, {0, 1}, 1, 60, 0);     // Send: Exp ran meanwhile, and the Recv had begun
  check_wait(1, {0, 3}, 1, 540, 450);  // AllReduce
  check_wait(2, {1, 0}, 0, 400, 290);  // Recv
  check_wait(3, {1, 2}, 0, 80, 0);
}

TEST_CASE("the text has the path and the longest waits") {
  CHECK(ToString(Example()) ==
        "run of 1.000 us on 2 processes; critical path of 6 nodes, 0.870 us, which crosses between "
        "processes 2 times\n"
        "critical path                          process  begin us  wait us  run us\n"
        "Neg (a)                                      0     0.100    0.100   0.300\n"
        "opkit.cluster.Send (a to process 1)          0     0.410    0.010   0.000\n"
        "opkit.cluster.Recv (a from process 0)        1     0.410    0.000   0.110\n"
        "Relu (r)                                     1     0.530    0.010   0.370\n"
        "opkit.cluster.AllReduce (s)                  1     0.910    0.010   0.000\n"
        "opkit.cluster.AllReduce (s)                  0     0.910    0.000   0.090\n"
        "\n"
        "process  run us  waited us\n"
        "      0   1.000      0.560\n"
        "      1   1.000      0.480\n"
        "\n"
        "longest waits                          process  for process     us  before it came\n"
        "opkit.cluster.AllReduce (s)                  0            1  0.540           0.450\n"
        "opkit.cluster.Recv (a from process 0)        1            0  0.400           0.290\n"
        "opkit.cluster.AllReduce (s)                  1            0  0.080           0.000\n"
        "opkit.cluster.Send (a to process 1)          0            1  0.060           0.000\n");
}

TEST_CASE("the report has the nodes of all processes, each Recv after its Send") {
  const RunReport report = ReportOfRun(Example());
  std::vector<std::string> names;
  for (const RunReport::Node& node : report.nodes) names.push_back(node.name);
  CHECK(names == std::vector<std::string>{
                     "Neg (a), process 0", "opkit.cluster.Send (a to process 1), process 0",
                     "opkit.cluster.Recv (a from process 0), process 1", "Exp (e), process 0",
                     "opkit.cluster.AllReduce (s), process 0", "Relu (r), process 1",
                     "opkit.cluster.AllReduce (s), process 1"});
  CHECK(report.nodes[2].after == std::vector<int>{1});
  CHECK(report.nodes[5].after == std::vector<int>{2});
  CHECK(report.nodes[6].after == std::vector<int>{5});
  for (size_t i = 0; i < 7; ++i) CHECK(report.nodes[i].critical == (i != 3));
  CHECK(report.end == 1000);
  REQUIRE(report.processes.size() == 2);
  CHECK(report.processes[1].ns == 1000);
  CHECK(report.processes[1].waited == 480);
  REQUIRE(report.waits.size() == 4);
  CHECK(report.waits[2].node == "opkit.cluster.Recv (a from process 0)");
  CHECK(report.waits[2].process == 1);
  CHECK(report.waits[2].peer == 0);
  CHECK(report.waits[2].ns == 400);
  CHECK(report.waits[2].late == 290);
}

// Returns a run in which the Recv begins long after the Send, which ends at `send_end`.
ClusterRun WithLateRecv(int64_t send_end) {
  ClusterRun run = Empty(2);
  Add(run.processes[0], "opkit.cluster.Send (a to process 1)", 10, send_end);
  Add(run.processes[1], "Neg (b)", 0, 500);
  Add(run.processes[1], "opkit.cluster.Recv (a from process 0)", 510, 600, {0});
  run.communications = {{{0, 0}, {1, 1}}};
  opkit::detail::FindPathAndWaits(run);
  return run;
}

TEST_CASE("the path stays on a process that was the last one to come") {
  const ClusterRun run = WithLateRecv(20);  // the message is there before the Recv begins
  CHECK(PathOf(run) == std::vector<Node>{{1, 0}, {1, 1}});
  CHECK(run.waits[1].late == 0);
}

TEST_CASE("the path goes from a Send that waits to its Recv") {
  const ClusterRun run = WithLateRecv(620);
  CHECK(PathOf(run) == std::vector<Node>{{1, 0}, {1, 1}, {0, 0}});
  CHECK(run.waits[0].late == 500);
}

TEST_CASE("a root that did not wait for the others of its collective stays on its path") {
  ClusterRun run = Empty(3);
  Add(run.processes[0], "opkit.cluster.Broadcast (b)", 10, 50);
  Add(run.processes[0], "Neg (c)", 60, 900, {0});
  Add(run.processes[1], "opkit.cluster.Broadcast (b)", 20, 60);
  Add(run.processes[2], "opkit.cluster.Broadcast (b)", 800, 810);
  run.communications = {{{0, 0}, {1, 0}, {2, 0}}};
  opkit::detail::FindPathAndWaits(run);
  // Process 1 came before the root had ended, process 2 came afterwards.
  CHECK(PathOf(run) == std::vector<Node>{{1, 0}, {0, 0}, {0, 1}});
}

TEST_CASE("the last run on all processes is gathered with the nodes that meet") {
  const Watchdog watchdog;
  constexpr int kProcesses = 3;
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Exp", {"a"}, {"b"}).Process(2));
  graph.AddNode(OperatorDef("opkit.cluster.Broadcast", {"b"}, {"c"}, {{"root", int64_t{2}}}));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"s"},
                            {{"group", std::vector<int64_t>{0, 1}}}));
  // A message of the author's own, whose nodes have no names.
  graph.AddNode(OperatorDef("opkit.cluster.Send", {"c"}, {},
                            {{"process", int64_t{0}}, {"is_dynamic", int64_t{1}}})
                    .Process(1));
  graph.AddNode(OperatorDef("opkit.cluster.Recv", {}, {"d"},
                            {{"process", int64_t{1}}, {"is_dynamic", int64_t{1}}})
                    .Process(0));
  graph.AddOutput("c").AddOutput("s").AddOutput("d");
  ClusterRun run;
  std::mutex mutex;
  Profiler::Start();
  LocalCluster cluster(kProcesses);
  cluster.Run([&](const CommunicatorPtr& communicator) {
    Executor exec(Compile(graph, With(communicator)));
    const auto profile = [&] { return ProfileOfRun(*communicator, exec.plan(), Profiler::Read()); };
    const auto execute = [&] {
      exec.Run(InputsOf(exec, {{"x", Tensor::From<float>({2}, {1, 2})}}));
    };
    const auto refuse = [&](const char* message) {
      const Error error = ErrorOf(profile);
      const std::lock_guard lock(mutex);
      CHECK(error.code() == ErrorCode::kFailedPrecondition);
      CHECK(Contains(error.message(), message));
    };
    execute();
    refuse("Process 0: the profile of process 0 cannot be aligned");
    AlignClocks(*communicator);
    for (int i = 0; i < 2; ++i) execute();
    ClusterRun gathered = profile();
    if (communicator->process() == 0)
      run = std::move(gathered);
    else
      CHECK(gathered.processes.empty());
    // One process has another plan than the one that has run.
    Executor other(Compile(graph, With(communicator)));
    if (communicator->process() == 1) {
      Graph alone;
      alone.AddInput("x", DType::kFloat32, {2});
      alone.AddNode(OperatorDef("Tanh", {"x"}, {"y"}));
      alone.AddOutput("y");
      const Plan plan = Compile(alone);
      CHECK(
          Contains(ErrorOf([&] { ProfileOfRun(*communicator, plan, Profiler::Read()); }).message(),
                   "Process 1: the profile has "));
    } else {
      refuse("Process 1: the profile has ");
    }
  });
  Profiler::Stop();
  REQUIRE(run.processes.size() == kProcesses);
  const auto name = [&](const Node& node) {
    return StrCat(node.process, " ",
                  run.processes[static_cast<size_t>(node.process)]
                      .nodes[static_cast<size_t>(node.index)]
                      .name);
  };
  std::vector<std::string> meetings;
  for (const auto& nodes : run.communications) {
    std::string& text = meetings.emplace_back();
    for (const Node& node : nodes) text += name(node) + "; ";
  }
  std::sort(meetings.begin(), meetings.end());
  CHECK(meetings ==
        std::vector<std::string>{
            "0 opkit.cluster.AllReduce (s); 1 opkit.cluster.AllReduce (s); ",
            "0 opkit.cluster.Broadcast (c); 1 opkit.cluster.Broadcast (c); 2 "
            "opkit.cluster.Broadcast (c); ",
            "0 opkit.cluster.Send (a to process 2); 2 opkit.cluster.Recv (a from process 0); ",
            "1 opkit.cluster.Send (); 0 opkit.cluster.Recv (d); "});
  // Each step goes on where the step before ended: in its process, or in its communication.
  REQUIRE(run.critical_path.size() > 0);
  for (size_t i = 0; i < run.critical_path.size(); ++i) {
    const ClusterRun::Step& step = run.critical_path[i];
    CHECK(step.begin <= step.end);
    if (i == 0) continue;
    const ClusterRun::Step& before = run.critical_path[i - 1];
    CHECK(before.end <= step.begin);
    const NodeTime& node = run.processes[static_cast<size_t>(step.node.process)]
                               .nodes[static_cast<size_t>(step.node.index)];
    if (before.node.process == step.node.process) {
      CHECK(before.node.index == node.after[0]);
      continue;
    }
    const auto meet = [&](const std::vector<Node>& nodes) {
      const auto has = [&](const Node& one) {
        return std::find(nodes.begin(), nodes.end(), one) != nodes.end();
      };
      return has(before.node) && has(step.node);
    };
    CHECK(std::any_of(run.communications.begin(), run.communications.end(), meet));
  }
  CHECK(run.waits.size() == 9);
  for (const ClusterRun::Wait& wait : run.waits) {
    CHECK(wait.peer != wait.node.process);
    CHECK(wait.late >= 0);
    CHECK(wait.late <= wait.ns);
  }
}

// A node on each process. No process waits for the other one.
Graph TwoNodes() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {1});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Neg", {"x"}, {"b"}).Process(1));
  return graph.AddOutput("a").AddOutput("b");
}
// Returns when the run of a process began that its profile has as number `number`, from 0.
int64_t BeginOfRun(const Profile& profile, int64_t number) {
  for (const ProfileSpan& span : profile.spans)
    if (span.kind == Invocation::Kind::kRun && !span.adopted && span.message.number == number)
      return span.begin;
  return -1;
}

TEST_CASE("a run that one process refused is not joined with an earlier run of another process") {
  const Watchdog watchdog;
  LocalCluster cluster(2);
  Profiler::Start();
  std::vector<std::optional<Plan>> plans(2);
  std::optional<Plan> alone;  // of process 1
  cluster.Run([&](const CommunicatorPtr& communicator) {
    AlignClocks(*communicator);
    Executor exec(Compile(TwoNodes(), With(communicator)));
    const auto process = static_cast<size_t>(communicator->process());
    plans[process] = exec.plan();
    const auto run = [&] { exec.Run(InputsOf(exec, {{"x", Tensor::From<float>({1}, {1})}})); };
    for (int i = 0; i < 3; ++i) run();
    if (process == 0) run();
    communicator->Exchange("");
    if (process == 0) return;
    CheckFails([&] { exec.Run({{"none", Tensor::Scalar(1.F)}}); }, "'none'");
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {1});
    graph.AddNode(OperatorDef("Exp", {"x"}, {"y"}));
    graph.AddOutput("y");
    Executor other(alone.emplace(Compile(graph)));
    other.Run({{"x", Tensor::From<float>({1}, {1})}});
  });
  Profiler::Stop();
  const Profile recorded = Profiler::Read();
  ClusterRun run;
  std::vector<Profile> profiles;
  cluster.Run([&](const CommunicatorPtr& communicator) {
    const int process = communicator->process();
    const Plan& plan = *plans[static_cast<size_t>(process)];
    auto joined = ProfileOfRun(*communicator, plan, recorded);
    auto gathered = GatherProfiles(*communicator, recorded);
    if (process == 0) {
      run = std::move(joined);
      profiles = std::move(gathered);
    }
    // Process 1 recorded no run that process 0 has recorded; then it has another plan.
    Profile other = recorded;
    for (ProfileSpan& span : other.spans)
      if (process == 1) span.message.number += 10;
    CheckFails([&] { ProfileOfRun(*communicator, plan, other); },
               "there is no run of all processes: each process has recorded other runs of the plan "
               "(process 0 has runs 0 to 3; process 1 has runs 10 to 12)");
    CheckFails([&] { ProfileOfRun(*communicator, process == 0 ? plan : *alone, recorded); },
               "The plan of process 1 is not the plan of process 0");
  });
  REQUIRE(profiles.size() == 2);
  REQUIRE(run.processes.size() == 2);
  for (size_t process = 0; process < 2; ++process)
    CHECK(run.processes[process].begin == BeginOfRun(profiles[process], 2));
}

}  // namespace
}  // namespace cluster_run_test
