// The communicator on NCCL over an NCCL and a CUDA runtime made of threads: each process is a
// thread of the program, with a device of its own.
#include <doctest/doctest.h>

#include "fake_nccl.hpp"
#include "fake_runtime.hpp"
#include "opkit/backends/cuda/context.hpp"
#include "opkit/backends/nccl/communicator.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/graph.hpp"
#include "support/check_fails.hpp"
#include "support/error_of.hpp"
#include "support/watchdog.hpp"

namespace nccl_test { namespace {

using namespace opkit;

using Body = FunctionRef<void(const CommunicatorPtr& host, const CommunicatorPtr& nccl)>;

// Calls `body` for each process of a cluster, with its communicators.
void Run(int processes, Body body, Timeout deadline = std::chrono::seconds(60)) {
  const Watchdog watchdog(100);
  LocalCluster cluster(processes);
  cluster.Run([&](const CommunicatorPtr& host) {
    body(host, MakeNcclCommunicator(host, {.deadline = deadline}));
  });
  CHECK(fake::nccl_communicators() == 0);
  CHECK(fake::bad_accesses() == 0);
}
PlanOptions On(const CommunicatorPtr& communicator, int threads = 1) {
  PlanOptions options;
  options.threads = threads;
  if (communicator->backend() == "nccl")
    options.devices = {communicator->device(), {DeviceType::kCPU, 0}};
  options.cluster.communicator = communicator;
  return options;
}

// Returns a tensor that differs between processes and runs.
Tensor Input(const Graph::Input& input, int process, int run) {
  Tensor values(input.info.shape.ToShape(), input.info.dtype);
  DispatchDType<float, double, float16, bfloat16, int8_t, uint8_t, int32_t, int64_t>(
      input.info.dtype, [&]<class T>() {
        for (int64_t i = 0; i < values.numel(); ++i)
          values.mutable_data<T>()[i] =
              static_cast<T>(static_cast<float>(1 + (i * 3 + process + run) % 4));
      });
  return values;
}
// Runs the graph's part and returns the outputs.
std::vector<std::string> RunPart(Executor& executor, int process, int run) {
  std::vector<NamedTensor> inputs;
  for (const Graph::Input& input : executor.plan().graph().inputs())
    inputs.push_back({input.name, Input(input, process, run)});
  const NamedTensors outputs = executor.Run(inputs);
  std::vector<std::string> texts;
  for (const std::string& name : executor.plan().graph().outputs()) {
    Tensor host;
    Copy(outputs.Get(name), &host);
    texts.push_back(StrCat(name, ": ", ToString(host)));
  }
  return texts;
}
// Checks that each process gets the outputs that it gets without NCCL.
void CheckAsOnHost(const Graph& graph, int processes) {
  Run(processes, [&](const CommunicatorPtr& host, const CommunicatorPtr& nccl) {
    for (const int threads : {1, 3}) {
      Executor expected(Compile(graph, On(host)));
      Executor executor(Compile(graph, On(nccl, threads)));
      for (const OperatorDef& node : executor.plan().graph().nodes())
        if (Contains(node.type(), "opkit.cluster")) CHECK(node.device() == nccl->device());
      for (int run = 0; run < 3; ++run)
        CHECK(RunPart(executor, host->process(), run) == RunPart(expected, host->process(), run));
    }
  });
}

Graph WithInput(DType dtype = DType::kFloat32) {
  Graph graph;
  graph.AddInput("x", dtype, {8, 2}).AddInput("z", dtype, {3});
  return graph;
}
OperatorDef Of(const std::string& name, const std::string& input, const std::string& output) {
  return OperatorDef("opkit.cluster." + name, {input}, {output});
}

TEST_CASE("each collective gives the processes what it gives without NCCL") {
  Graph graph = WithInput();
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x", "z"}, {"sum", "sum_z"}));
  for (const char* reduction : {"mean", "max", "min", "product"})
    graph.AddNode(Of("AllReduce", "x", reduction).Arg("reduction", reduction));
  graph.AddNode(Of("Reduce", "sum", "reduce").Arg("root", int64_t{1}));
  graph.AddNode(Of("Broadcast", "x", "broadcast").Arg("root", int64_t{1}));
  graph.AddNode(Of("AllGather", "broadcast", "all_gather"));
  graph.AddNode(Of("Gather", "x", "gather").Arg("root", int64_t{1}));
  graph.AddNode(Of("ReduceScatter", "x", "reduce_scatter").Arg("reduction", "mean"));
  graph.AddNode(Of("Scatter", "x", "scatter").Arg("root", int64_t{1}));
  graph.AddNode(Of("AllToAll", "x", "all_to_all"));
  graph.AddNode(OperatorDef("opkit.cluster.Barrier", {}, {}));
  for (const char* output : {"sum", "sum_z", "mean", "max", "min", "product", "reduce", "broadcast",
                             "all_gather", "gather", "reduce_scatter", "scatter", "all_to_all"})
    graph.AddOutput(output);
  for (const int processes : {2, 4}) CheckAsOnHost(graph, processes);
}

TEST_CASE("elements of the types that NCCL reduces, and of those that it moves") {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt8,
                            DType::kUInt8, DType::kInt32, DType::kInt64}) {
    CAPTURE(ToString(dtype));
    Graph graph = WithInput(dtype);
    graph.AddNode(Of("AllReduce", "x", "y").Arg("reduction", "max"));
    graph.AddNode(Of("AllGather", "z", "w"));
    CheckAsOnHost(graph.AddOutput("y").AddOutput("w"), 2);
  }
  Graph graph = WithInput();
  graph.AddNode(OperatorDef("Greater", {"x", "x"}, {"b"}).Process(0));
  graph.AddNode(OperatorDef("Not", {"b"}, {"y"}).Process(1));
  CheckAsOnHost(graph.AddOutput("y"), 2);
}

TEST_CASE("groups of processes, and values that cross in a circle of four") {
  Graph graph = WithInput();
  const std::vector<int64_t> even{0, 2}, odd{1, 3};
  graph.AddNode(Of("AllReduce", "x", "even").Arg("group", even));
  graph.AddNode(Of("AllReduce", "x", "odd").Arg("group", odd));
  std::string last = "x";
  for (int process = 0; process < 8; ++process) {
    const std::string made = StrCat("v", process);
    graph.AddNode(OperatorDef("Neg", {last}, {made}).Process(process % 4));
    last = made;
  }
  graph.AddNode(Of("AllReduce", last, "y"));
  CheckAsOnHost(graph.AddOutput("even").AddOutput("odd").AddOutput("y"), 4);
}

TEST_CASE("a message of the author that is sent long before it is received") {
  // NCCL would wait in the Send on process 0, and in the AllReduce on process 1.
  Graph graph = WithInput();
  graph.AddNode(OperatorDef("opkit.cluster.Send", {"x"}, {}).Arg("process", int64_t{1}).Process(0));
  graph.AddNode(Of("AllReduce", "z", "s").Name("reduce"));
  graph.AddNode(OperatorDef("opkit.cluster.Recv", {}, {"y"})
                    .Arg("process", int64_t{0})
                    .Arg("dtype", static_cast<int64_t>(DType::kFloat32))
                    .Arg("shape", std::vector<int64_t>{8, 2})
                    .ControlInput("reduce")
                    .Process(1));
  CheckAsOnHost(graph.AddOutput("s").AddOutput("y"), 2);
}

TEST_CASE("without NCCL, values of a device cross through the memory of the host") {
  const Watchdog watchdog(100);
  const Device device{DeviceType::kCUDA, 0};
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}, device).AddInput("z", DType::kFloat32, {2}, device);
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x", "z"}, {"y", "w"}));
  graph.AddOutput("y").AddOutput("w");
  LocalCluster cluster(2);
  cluster.Run([&](const CommunicatorPtr& host) {
    PlanOptions options = On(host);
    options.devices = {device, {DeviceType::kCPU, 0}};
    Executor executor(Compile(graph, options));
    const float p = static_cast<float>(host->process());
    Tensor x(device), z(device);
    Copy(Tensor::From<float>({2}, {p, 1}), &x);
    Copy(Tensor::From<float>({2}, {2, p}), &z);
    for (int run = 0; run < 2; ++run) {
      const NamedTensors outputs = executor.Run({{"x", x}, {"z", z}});
      CHECK(outputs.Get("y").ToVector<float>() == std::vector<float>{1, 2});
      CHECK(outputs.Get("w").ToVector<float>() == std::vector<float>{4, 1});
    }
  });
  CHECK(fake::bad_accesses() == 0);
}

// A graph in which each process gathers at an index, on the CPU, between two collectives.
Graph Gathering() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}).AddInput("i", DType::kInt64, {1});
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"s"}));
  graph.AddNode(OperatorDef("Gather", {"s", "i"}, {"g"}));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"g"}, {"y"}));
  return graph.AddOutput("y");
}
std::vector<NamedTensor> At(int64_t i) {
  return {{"x", Tensor::From<float>({2}, {1, 2})}, {"i", Tensor::From<int64_t>({1}, {i})}};
}

TEST_CASE("a failure on one process ends the work of the others on their streams") {
  for (const int threads : {1, 3})
    Run(2, [&](const CommunicatorPtr&, const CommunicatorPtr& nccl) {
      Executor executor(Compile(Gathering(), On(nccl, threads)));
      CHECK(executor.Run(At(1)).Get("y").numel() == 1);
      const bool fails = nccl->process() == 1;
      const Error error = ErrorOf([&] { executor.Run(At(fails ? 7 : 1)); });
      CHECK(Contains(error.what(), "Gather"));
      if (!fails) CHECK(Contains(error.what(), "process 1 ended the run"));
      CHECK(Contains(ErrorOf([&] { executor.Run(At(1)); }).what(), "Gather"));
      Executor again(Compile(Gathering(), On(nccl, threads)));
      CHECK(again.Run(At(0)).Get("y").numel() == 1);
    });
}

TEST_CASE("an error of NCCL ends the runs of all processes") {
  Run(2, [&](const CommunicatorPtr& host, const CommunicatorPtr& nccl) {
    Executor executor(Compile(Gathering(), On(nccl)));
    executor.Run(At(1));
    host->Exchange("");
    fake::SetNcclState(ncclSystemError);
    const Error error = ErrorOf([&] { executor.Run(At(1)); });
    CHECK(Contains(error.what(), "unhandled system error: the cable is out"));
    host->Exchange("");
    fake::SetNcclState(ncclSuccess);
  });
}

TEST_CASE("an error of NCCL ends a run that waits on its stream") {
  Run(2, [&](const CommunicatorPtr& host, const CommunicatorPtr& nccl) {
    Executor executor(Compile(Gathering(), On(nccl)));
    const int calls = fake::nccl_calls();
    host->Exchange("");
    if (host->process() == 1) {
      fake::Await([&] { return fake::nccl_calls() > calls; });
      fake::SetNcclState(ncclSystemError);
    } else {
      const Error error = ErrorOf([&] { executor.Run(At(1)); });
      CHECK(Contains(error.what(), "unhandled system error: the cable is out"));
    }
    host->Exchange("");
    fake::SetNcclState(ncclSuccess);
  });
}

TEST_CASE("a process that destroys its plan does not leave the others waiting") {
  Run(
      2,
      [&](const CommunicatorPtr&, const CommunicatorPtr& nccl) {
        Executor executor(Compile(Gathering(), On(nccl)));
        executor.Run(At(1));
        if (nccl->process() == 1) return;
        const Error error = ErrorOf([&] { executor.Run(At(1)); });
        CHECK(Contains(error.what(), "process 1 has left"));
      },
      std::chrono::milliseconds(20));
}

TEST_CASE("what NCCL does not do is an Error of Compile") {
  const auto check = [](const Graph& graph, const char* why) {
    Run(2, [&](const CommunicatorPtr&, const CommunicatorPtr& nccl) {
      CheckFails([&] { Compile(graph, On(nccl)); }, why);
    });
  };
  Graph graph = WithInput();
  graph.AddNode(Of("AllReduce", "x", "y").Arg("deterministic", int64_t{1}));
  check(graph.AddOutput("y"), "in the order of the processes (deterministic = 1)");
  Graph integers = WithInput(DType::kInt32);
  integers.AddNode(Of("AllReduce", "x", "y").Arg("reduction", "mean"));
  check(integers.AddOutput("y"), "NCCL does not compute the mean of elements of int32");
  Graph dynamic = WithInput();
  dynamic.AddNode(OperatorDef("NonZero", {"x"}, {"a"}).Process(0));
  dynamic.AddNode(OperatorDef("Neg", {"a"}, {"y"}).Process(1));
  check(dynamic.AddOutput("y"), "dtype and shape are known before a run");
}

TEST_CASE("communications that do not fit the communicator are refused") {
  Run(2, [&](const CommunicatorPtr&, const CommunicatorPtr& nccl) {
    const CommunicatorPtr own = nccl->Duplicate();
    own->MakeGroup({0, 1});
    const auto made = [](CommunicationKind kind, int64_t channel, std::vector<int> group) {
      return detail::MakeIntrusive<Communication>(CommunicationPlan{.kind = kind,
                                                                    .process = 0,
                                                                    .group = std::move(group),
                                                                    .channel = channel,
                                                                    .collectives = 2},
                                                  "the node");
    };
    CheckFails([&] { own->Start(made(CommunicationKind::kSend, 0, {})); },
               "the node has buffers of the CPU");
    const auto later = made(CommunicationKind::kBarrier, 1, {0, 1});
    const auto other = made(CommunicationKind::kBarrier, 0, {0});
    later->stream = other->stream = CUDAStream::Get(nccl->device(), 0).handle();
    CheckFails([&] { own->Start(later); }, "starts before a collective that precedes it");
    CheckFails([&] { own->Start(other); }, "a group of 1 processes for which NCCL has no");
  });
}

}}  // namespace nccl_test
