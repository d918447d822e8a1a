// MpiCluster: the collectives, messages and plans of the processes of an MPI job. CMakeLists.txt
// runs this program on several processes, which all run the same cases.
#include "opkit/backends/mpi/cluster.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <thread>

#include "cluster/local_runs.hpp"
#include "mpi_job.hpp"
#include "opkit/cluster/cluster_run.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/cluster/operators.hpp"
#include "opkit/graph.hpp"
#include "opkit/ops/all.hpp"
#include "support/error_of.hpp"

namespace mpi_test { namespace {

using namespace opkit;

// Calls `body` with the communicator of this process, and on a LocalCluster of as many processes;
// returns the results of this process, first those on MPI.
template <class Body>
auto OnBoth(const Body& body) {
  const CommunicatorPtr& mpi = Job();
  auto on_mpi = body(mpi);
  auto on_threads = on_mpi;
  LocalCluster cluster(mpi->processes());
  cluster.Run([&](const CommunicatorPtr& communicator) {
    auto result = body(communicator);
    if (communicator->process() == mpi->process()) on_threads = std::move(result);
  });
  return std::pair(std::move(on_mpi), std::move(on_threads));
}

bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0;
}

// Small numbers, of which sums and products are exact in every dtype.
Tensor Numbers(DType dtype, int process, int64_t count) {
  Tensor x(Shape{count}, dtype);
  const bool visited = PlainTypes::Visit(dtype, [&]<class T>() {
    T* data = x.mutable_data<T>();
    for (int64_t i = 0; i < count; ++i)
      data[i] = static_cast<T>(static_cast<float>((i + process) % 3 + (i == 0 ? process : 0)));
  });
  REQUIRE(visited);
  return x;
}

constexpr DType kDTypes[] = {DType::kInt8,    DType::kInt16,    DType::kInt32,   DType::kInt64,
                             DType::kUInt8,   DType::kUInt16,   DType::kUInt32,  DType::kUInt64,
                             DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};

TEST_CASE("reductions of every dtype give the results of threads") {
  for (const char* op : {"AllReduce", "Reduce", "ReduceScatter"})
    for (const char* reduction : {"sum", "product", "max", "min"})
      for (const DType dtype : kDTypes) {
        CAPTURE(op);
        CAPTURE(reduction);
        INFO("dtype ", std::string(ToString(dtype)));
        const auto [mpi, threads] = OnBoth([&](const CommunicatorPtr& communicator) {
          Graph graph;
          graph.AddInput("x", dtype, {12});
          graph.AddNode(
              OperatorDef(StrCat("opkit.cluster.", op), {"x"}, {"y"}, {{"reduction", reduction}}));
          graph.AddOutput("y");
          Executor exec(Compile(graph, With(communicator)));
          const auto out = exec.Run({{"x", Numbers(dtype, communicator->process(), 12)}});
          return out.size() == 0 ? Tensor() : out[0];
        });
        const bool has_result = std::string_view(op) != "Reduce" || Job()->process() == 0;
        REQUIRE((mpi.dtype() != DType::kUndefined) == has_result);
        if (has_result) CHECK(SameBytes(mpi, threads));
      }
}

TEST_CASE("the maximum and the minimum keep NaN, as on threads") {
  for (const char* reduction : {"max", "min"}) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {2});
    graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"y"}, {{"reduction", reduction}}));
    graph.AddOutput("y");
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (int from = 0; from < Job()->processes(); ++from) {
      Executor exec(Compile(graph, With(Job())));
      const float mine = Job()->process() == from ? nan : 1;
      const auto y = exec.Run({{"x", Tensor::From<float>({2}, {mine, 1})}})[0].ToVector<float>();
      CHECK(std::isnan(y[0]));
      CHECK(y[1] == 1);
    }
  }
}

TEST_CASE("collectives that move elements give the results of threads") {
  for (const char* op : {"Broadcast", "AllGather", "Gather", "Scatter", "AllToAll"})
    for (const DType dtype : {DType::kBool, DType::kInt16, DType::kFloat32, DType::kFloat64})
      for (const int64_t root : {0, 1}) {
        CAPTURE(op);
        INFO("dtype ", std::string(ToString(dtype)));
        CAPTURE(root);
        const auto [mpi, threads] = OnBoth([&](const CommunicatorPtr& communicator) {
          Graph graph;
          graph.AddInput("x", dtype, {12});
          OperatorDef node(StrCat("opkit.cluster.", op), {"x"}, {"y"});
          if (OpRegistry::Global().GetSchema(node.type()).TakesArgument("root"))
            node.Arg("root", root);
          graph.AddNode(node);
          graph.AddOutput("y");
          Executor exec(Compile(graph, With(communicator)));
          std::vector<NamedTensor> inputs;
          if (exec.plan().graph().inputs().size() > 0)
            inputs.push_back({"x", Numbers(dtype, communicator->process(), 12)});
          const auto out = exec.Run(inputs);
          return out.size() == 0 ? Tensor() : out[0];
        });
        const bool has_result = std::string_view(op) != "Gather" || Job()->process() == root;
        REQUIRE((mpi.dtype() != DType::kUndefined) == has_result);
        if (has_result) CHECK(SameBytes(mpi, threads));
      }
}

TEST_CASE("a graph on all processes gives the results of one, also in later runs") {
  const int n = Job()->processes();
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {1000});
  std::string last = "x";
  for (int i = 0; i < 4 * n; ++i) {
    const std::string next = StrCat("v", i);
    graph.AddNode(OperatorDef(i % 2 ? "Neg" : "Sigmoid", {last}, {next}).Process(i % n));
    last = next;
  }
  graph.AddOutput(last);
  const auto input = [](int run) {
    std::vector<float> values(1000);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) * 0.1f * run;
    return Tensor::From<float>({1000}, values);
  };
  Executor alone(Compile(graph));
  Executor exec(Compile(graph, With(Job())));
  for (int run = 0; run < 5; ++run) {
    std::vector<NamedTensor> inputs;
    if (Job()->process() == 0) inputs.push_back({"x", input(run)});
    const auto out = exec.Run(inputs);
    REQUIRE(out.size() == (Job()->process() == n - 1 ? 1 : 0));
    if (out.size() > 0)
      CHECK(out[0].ToVector<float>() == alone.Run({{"x", input(run)}})[0].ToVector<float>());
  }
}

TEST_CASE("a value whose shape is known only in a run crosses with its shape") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {6});
  graph.AddNode(OperatorDef("NonZero", {"x"}, {"i"}).Process(0));
  graph.AddNode(OperatorDef("Neg", {"i"}, {"y"}).Process(1));
  graph.AddOutput("y");
  Executor exec(Compile(graph, With(Job())));
  for (const size_t zeros : {0, 4, 1, 6}) {
    std::vector<float> values(6, 1.0f);
    for (size_t i = 0; i < zeros; ++i) values[i] = 0;
    std::vector<NamedTensor> inputs;
    if (Job()->process() == 0) inputs.push_back({"x", Tensor::From<float>({6}, values)});
    const auto out = exec.Run(inputs);
    if (Job()->process() != 1) continue;
    std::vector<int64_t> expected;
    for (size_t i = zeros; i < 6; ++i) expected.push_back(-static_cast<int64_t>(i));
    CHECK(out[0].shape() == Shape{1, static_cast<int64_t>(6 - zeros)});
    CHECK(out[0].ToVector<int64_t>() == expected);
  }
}

// Numbers whose sums are rounded in float16, and exact in float32 and int8.
Tensor Fractions(DType dtype, int process, int64_t count) {
  Tensor x(Shape{count}, dtype);
  NumericTypes::Visit(dtype, [&]<class T>() {
    T* data = x.mutable_data<T>();
    for (int64_t i = 0; i < count; ++i)
      data[i] = static_cast<T>(static_cast<float>((i * 7 + process * 131) % 509) /
                               (sizeof(T) == 2 ? 15 : 16));
  });
  return x;
}

TEST_CASE("blocks move as a whole or in pieces, in segments, several at a time, in two groups") {
  const int last = Job()->processes() - 1;
  std::vector<int64_t> everyone;
  for (int64_t i = 0; i <= last; ++i) everyone.push_back(i);
  for (const std::vector<int64_t>& group : {std::vector<int64_t>{0, last}, everyone})
    for (const DType dtype : {DType::kInt8, DType::kFloat16, DType::kFloat32})
      for (const int64_t count : {1'501, 40'001, 700'003}) {
        // MPI combines halves in pairs of processes.
        if (dtype == DType::kFloat16 &&
            !opkit::detail::MpiAllReduce::Suits(group.size(), count * ItemSize(dtype)))
          continue;
        CAPTURE(group.size());
        INFO("dtype ", std::string(ToString(dtype)));
        CAPTURE(count);
        Graph graph;  // two inputs are reduced in place
        graph.AddInput("x", dtype, {count}).AddInput("z", dtype, {count});
        for (const char* i : {"0", "1", "2"}) {
          graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x", "z"},
                                    {StrCat("a", i), StrCat("b", i)}, {{"group", group}}));
          graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"z"}, {StrCat("c", i)},
                                    {{"group", group}, {"reduction", "max"}}));
          graph.AddNode(
              OperatorDef("opkit.cluster.AllReduce", {"x"}, {StrCat("d", i)}, {{"group", group}}));
        }
        graph.AddOutput("a0").AddOutput("b2").AddOutput("c1").AddOutput("d2");
        Executor exec(Compile(graph, With(Job())));
        if (std::find(group.begin(), group.end(), Job()->process()) == group.end()) continue;
        NamedTensors mpi;
        for (int run = 0; run < 2; ++run)
          mpi = exec.Run({{"x", Fractions(dtype, Job()->process(), count)},
                          {"z", Fractions(dtype, Job()->process() + 1, count)}});
        const auto reduced = [&](Reduction reduction, int shift) {
          Tensor result = Fractions(dtype, static_cast<int>(group[0]) + shift, count);
          for (size_t i = 1; i < group.size(); ++i)
            opkit::detail::ReduceInto(
                reduction, dtype, count,
                Fractions(dtype, static_cast<int>(group[i]) + shift, count).raw_data(),
                result.raw_mutable_data());
          return result;
        };
        CHECK(SameBytes(mpi.Get("a0"), reduced(Reduction::kSum, 0)));
        CHECK(SameBytes(mpi.Get("b2"), reduced(Reduction::kSum, 1)));
        CHECK(SameBytes(mpi.Get("c1"), reduced(Reduction::kMax, 1)));
        CHECK(SameBytes(mpi.Get("d2"), reduced(Reduction::kSum, 0)));
      }
}

TEST_CASE("two processes that reduce the same block get the same bits") {
  const std::vector<int64_t> group = {0, 1};
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}).AddInput("z", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"y"},
                            {{"group", group}, {"reduction", "max"}}));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x", "z"}, {"a", "b"},
                            {{"group", group}, {"reduction", "min"}}));
  graph.AddOutput("y").AddOutput("b");
  Executor exec(Compile(graph, With(Job())));
  if (Job()->process() > 1) return;
  const Tensor zeros = Tensor::From<float>(
      {2}, Job()->process() == 0 ? std::vector<float>{-0.f, 0.f} : std::vector<float>{0.f, -0.f});
  const NamedTensors out = exec.Run({{"x", zeros}, {"z", zeros}});
  // The zero of the first process stays.
  for (const char* name : {"y", "b"}) {
    const std::vector<float> found = out.Get(name).ToVector<float>();
    CHECK(std::signbit(found[0]));
    CHECK_FALSE(std::signbit(found[1]));
  }
}

TEST_CASE("large tensors cross and are reduced") {
  constexpr int64_t kCount = 3'000'000;
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {kCount});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Neg", {"a"}, {"b"}).Process(1));
  graph.AddNode(OperatorDef("opkit.cluster.Broadcast", {"b"}, {"c"}, {{"root", int64_t{1}}}));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"c"}, {"d"}));
  graph.AddOutput("d");
  Executor exec(Compile(graph, With(Job())));
  std::vector<float> values(kCount);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  std::vector<NamedTensor> inputs;
  if (Job()->process() == 0) inputs.push_back({"x", Tensor::From<float>({kCount}, values)});
  for (float& value : values) value *= static_cast<float>(Job()->processes());
  for (int run = 0; run < 2; ++run) CHECK(exec.Run(inputs)[0].ToVector<float>() == values);
}

TEST_CASE("groups that overlap reduce their own members") {
  const int n = Job()->processes();
  Graph graph;
  graph.AddInput("x", DType::kInt32, {1});
  std::vector<std::vector<int64_t>> groups;
  for (int i = 0; i < n; ++i) {  // each with its right neighbour, so that the groups are a circle
    std::vector<int64_t> group = {i, (i + 1) % n};
    std::sort(group.begin(), group.end());
    graph.AddNode(
        OperatorDef("opkit.cluster.AllReduce", {"x"}, {StrCat("y", i)}, {{"group", group}}));
    graph.AddOutput(StrCat("y", i));
    groups.push_back(group);
  }
  Executor exec(Compile(graph, With(Job())));
  for (int run = 0; run < 3; ++run) {
    const auto out = exec.Run({{"x", Tensor::From<int32_t>({1}, {Job()->process() + run})}});
    for (int i = 0; i < n; ++i) {
      const auto& group = groups[static_cast<size_t>(i)];
      if (std::find(group.begin(), group.end(), Job()->process()) == group.end()) continue;
      CHECK(out.Get(StrCat("y", i)).ToVector<int32_t>()[0] ==
            static_cast<int32_t>(group[0] + group[1]) + 2 * run);
    }
  }
}

TEST_CASE("plans on several threads do not take each other's messages") {
  constexpr int kPlans = 4;
  std::deque<Executor> plans;
  for (int plan = 0; plan < kPlans; ++plan) {
    Graph graph;
    graph.AddInput("x", DType::kInt64, {1000});
    graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
    graph.AddNode(OperatorDef("Neg", {"a"}, {"b"}).Process(1));
    graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"sum"}));
    graph.AddOutput("b").AddOutput("sum");
    plans.emplace_back(Compile(graph, With(Job())));
  }
  std::vector<std::string> wrong(kPlans);
  std::vector<std::thread> threads;
  for (int plan = 0; plan < kPlans; ++plan)
    threads.emplace_back([&, plan] {
      for (int run = 0; run < 20; ++run) {
        const int64_t value = 100 * plan + run;
        const auto out = plans[static_cast<size_t>(plan)].Run(
            {{"x", Tensor::From<int64_t>({1000}, std::vector<int64_t>(1000, value))}});
        if (out.Get("sum").ToVector<int64_t>()[999] != value * Job()->processes() ||
            (Job()->process() == 1 && out.Get("b").ToVector<int64_t>()[999] != value))
          wrong[static_cast<size_t>(plan)] = StrCat("run ", run);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::string>(kPlans));
}

TEST_CASE("a failure on one process ends the run on all, and the plan is broken then") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}).AddInput("i", DType::kInt64, {1});
  graph.AddNode(OperatorDef("Gather", {"x", "i"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("opkit.cluster.Broadcast", {"a"}, {"b"}));
  graph.AddNode(OperatorDef("Exp", {"b"}, {"c"}));
  graph.AddOutput("c");
  for (int round = 0; round < 2; ++round) {
    Executor exec(Compile(graph, With(Job())));
    const auto message = [&](int64_t index) -> std::string {
      std::vector<NamedTensor> inputs;
      if (Job()->process() == 0)
        inputs = {{"x", Tensor::From<float>({2}, {0, 0})},
                  {"i", Tensor::From<int64_t>({1}, {index})}};
      try {
        const Tensor c = exec.Run(inputs)[0];
        CHECK(c.ToVector<float>() == std::vector<float>{1});
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    CHECK(message(1) == "");
    Job()->Exchange("");  // this run has ended on all
    const std::string failure = message(7);
    CHECK(failure.find("Gather") != std::string::npos);
    if (Job()->process() != 0) CHECK(failure.find("process 0 ended the run") != std::string::npos);
    CHECK(message(1).find("process 0 ended the run") != std::string::npos);
  }
}

TEST_CASE("different graphs are refused with their first difference") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef(Job()->process() == 1 ? "Exp" : "Neg", {"x"}, {"a"}).Process(0));
  graph.AddOutput("a");
  std::string message;
  try {
    Compile(graph, With(Job()));
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.find("process 0 has '") != std::string::npos);
  CHECK(message.find("Neg") != std::string::npos);
  CHECK(message.find("process 1 has '") != std::string::npos);
  CHECK(message.find("Exp") != std::string::npos);
}

TEST_CASE("a message of another size is an Error on the receiver") {
  const CommunicatorPtr own = Job()->Duplicate();
  std::vector<char> buffer(64);
  const bool sends = Job()->process() == 0;
  if (Job()->process() < 2) {
    CommunicationPlan plan;
    plan.kind = sends ? CommunicationKind::kSend : CommunicationKind::kReceive;
    plan.process = sends ? 1 : 0;
    plan.channel = 3;
    const auto communication =
        opkit::detail::MakeIntrusive<Communication>(std::move(plan), "the message");
    communication->dtype = DType::kInt8;
    communication->count = sends ? 16 : 64;
    communication->input = communication->output = buffer.data();
    Event event;
    event.SetScheduled();
    communication->Begin(event.state());
    own->Start(communication);
    std::string message;
    try {
      event.Finish();
    } catch (const Error& error) {
      message = error.what();
    }
    if (sends)
      CHECK(message == "");
    else
      CHECK(message.find("the message expects 64 bytes, but the process 0 has sent 16") !=
            std::string::npos);
  }
}

TEST_CASE("the profiles and the last run of all processes come to process 0") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Exp", {"a"}, {"b"}).Process(1));
  graph.AddNode(OperatorDef("opkit.cluster.Broadcast", {"b"}, {"c"}, {{"root", int64_t{1}}}));
  graph.AddOutput("c");
  Executor exec(Compile(graph, With(Job())));
  constexpr size_t kRuns = 3;
  Profiler::Start();
  AlignClocks(*Job());
  for (size_t i = 0; i < kRuns; ++i)
    exec.Run(InputsOf(exec, {{"x", Tensor::From<float>({2}, {1, 2})}}));
  Profiler::Stop();
  const Profile own = Profiler::Read();
  const auto profiles = GatherProfiles(*Job(), own);
  const ClusterRun run = ProfileOfRun(*Job(), exec.plan(), own);
  const size_t processes = Job()->process() == 0 ? static_cast<size_t>(Job()->processes()) : 0;
  REQUIRE(profiles.size() == processes);
  REQUIRE(run.processes.size() == processes);
  if (processes == 0) return;
  const auto messages = MessagesOf(profiles);
  REQUIRE(messages.size() == kRuns);
  for (const MessageTime& message : messages) {
    CHECK(message.from == 0);
    CHECK(message.to == 1);
    CHECK(std::max(message.receive->end, message.receive->completed) >= message.send->begin);
  }
  // The message, and the broadcast of all.
  REQUIRE(run.communications.size() == 2);
  REQUIRE(run.communications[0].size() == 2);
  const ClusterRun::Node send = run.communications[0][0], receive = run.communications[0][1];
  CHECK(send.process == 0);
  CHECK(receive.process == 1);
  CHECK(run.communications[1].size() == processes);
  // The run, on the clock of process 0, has the times of the last message.
  const auto time = [&](const ClusterRun::Node& node) {
    return run.processes[static_cast<size_t>(node.process)].nodes[static_cast<size_t>(node.index)];
  };
  CHECK(time(send).name.starts_with("opkit.cluster.Send"));
  CHECK(time(send).begin == messages.back().send->begin);
  CHECK(time(receive).begin == messages.back().receive->begin);
}

TEST_CASE("the profiles of plans on parts of the job are one trace") {
  // Each pair of processes has a cluster, in which it has the opposite order.
  const int process = Job()->process();
  MPI_Comm pair;
  MPI_Comm_split(MPI_COMM_WORLD, process / 2, -process, &pair);
  {
    MpiOptions options;
    options.processes = pair;
    MpiCluster part(options);
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {2});
    graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
    graph.AddNode(OperatorDef("Exp", {"a"}, {"b"}).Process(1));
    graph.AddOutput("b");
    Executor exec(Compile(graph, With(part.communicator())));
    Profiler::Start();
    AlignClocks(*Job());
    exec.Run(InputsOf(exec, {{"x", Tensor::From<float>({2}, {1, 2})}}));
    Profiler::Stop();
    const auto profiles = GatherProfiles(*Job(), Profiler::Read());
    std::vector<std::pair<int, int>> ways, expected;
    for (const MessageTime& message : MessagesOf(profiles))
      ways.emplace_back(message.from, message.to);
    for (int to = 0; process == 0 && to < Job()->processes(); to += 2)
      expected.emplace_back(to + 1, to);
    CHECK(ways == expected);
    if (Job()->processes() > 2) {
      const Error error = ErrorOf([&] { ProfileOfRun(*Job(), exec.plan(), Profiler::Read()); });
      CHECK(Contains(error.message(), "The plan of process 2 is not the plan of process 0"));
    } else {
      const ClusterRun run = ProfileOfRun(*Job(), exec.plan(), Profiler::Read());
      using Nodes = std::vector<ClusterRun::Node>;
      std::vector<Nodes> meetings;
      if (process == 0) meetings.push_back(Nodes{{1, 1}, {0, 0}});
      CHECK(run.communications == meetings);
    }
  }
  MPI_Comm_free(&pair);
}

TEST_CASE("Exchange gives each process all texts") {
  const std::string mine(static_cast<size_t>(Job()->process()) * 70'000, 'x');
  const std::vector<std::string> texts = Job()->Exchange(mine);
  REQUIRE(static_cast<int>(texts.size()) == Job()->processes());
  for (size_t i = 0; i < texts.size(); ++i) CHECK(texts[i] == std::string(i * 70'000, 'x'));
}

}  // namespace
}  // namespace mpi_test
