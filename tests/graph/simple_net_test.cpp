#include "opkit/graph/simple_net.hpp"

#include <doctest/doctest.h>

#include "nodes.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/op/observers.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "random_graph.hpp"
#include "support/error_of.hpp"

namespace simple_net_test {
using namespace opkit;
using namespace graph_nodes;

namespace {

Tensor Pair(float a, float b) { return Tensor::From<float>({2}, {a, b}); }
std::vector<float> Values(const Workspace& ws, const std::string& name) {
  return ws.GetTensor(name)->ToVector<float>();
}
OperatorDef Fail(const char* in, const char* out, const char* how) {
  return OperatorDef("Fail").Input(in).Output(out).Arg("how", how);
}
Graph WithInput(const char* name = "X") {
  Graph g;
  g.AddInput(name, DType::kFloat32, {2});
  return g;
}

// Caffe2's counting: a net's start 1000 and stop 10, an operator's start 100 and stop 1.
template <class T>
class Counter final : public ObserverBase<T> {
 public:
  Counter(T* subject, int* count, int start, int stop)
      : ObserverBase<T>(subject), count_(count), start_(start), stop_(stop) {}
  void Start() override { *count_ += start_; }
  void Stop(bool succeeded) override { *count_ += succeeded ? stop_ : -stop_; }

 private:
  int *count_, start_, stop_;
};

}  // namespace

TEST_CASE("a net reads its inputs from the workspace and leaves every value there") {
  Graph g = WithInput();
  g.AddConstant("W", Pair(10, 20));
  g.AddNode(OperatorDef("Add").Input("A").Input("W").Output("Y"));  // added before what it reads
  g.AddNode(Relu("X", "A"));
  g.AddOutput("Y");
  Workspace ws;
  *ws.CreateTensor("X") = Pair(-1, 2);
  SimpleNet net(g, &ws);
  CHECK(net.num_ops() == 2);
  CHECK(net.op(0).type() == "Relu");
  CHECK(net.op(0).net_position() == 1);
  CHECK(ErrorOf([&] { net.op(2); }).code() == ErrorCode::kOutOfRange);
  CHECK(net.Run());
  CHECK(Values(ws, "A") == std::vector<float>{0, 2});
  CHECK(Values(ws, "Y") == std::vector<float>{10, 22});
  *ws.CreateTensor("X") = Pair(5, 5);
  net.Run();
  CHECK(Values(ws, "Y") == std::vector<float>{15, 25});
  g.RemoveNode(0);  // the net has a copy
  CHECK(net.graph().num_nodes() == 2);
  SimpleNet second(net.graph(), &ws);  // the same constants, in the same workspace
  second.Run();
  CHECK(Values(ws, "Y") == std::vector<float>{15, 25});
}

// Two kernels, of which the one with a rank comes first where types are known.
template <int kValue>
class NumberOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    Tensor* y = Output(0, Input(0).shape(), DType::kFloat32);
    *y->mutable_data<float>() = kValue;
    return true;
  }
};
OPERATOR_SCHEMA(WhichKernel).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(WhichKernel, NumberOp<1>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(WhichKernel, WHICH_RANKED, NumberOp<2>);
OPKIT_REGISTER_BACKEND_RANK("WHICH_RANKED", 10);

TEST_CASE("a net runs the kernels that an executor runs, for other shapes too") {
  Graph g;
  g.AddInput("X", DType::kFloat32, {Sym("N")});
  g.AddNode(OperatorDef("WhichKernel", {"X"}, {"Y"}));
  g.AddOutput("Y");
  const Tensor x = Tensor::From<float>({1}, {5});
  CHECK(Executor(Compile(g)).Run({{"X", x}}).Get("Y").ToVector<float>()[0] == 2);
  Workspace ws;
  *ws.CreateTensor("X") = x;
  SimpleNet net(g, &ws);
  net.Run();
  CHECK(Values(ws, "Y")[0] == 2);
  *ws.CreateTensor("X") = Pair(6, 7);
  net.Run();
  CHECK(Values(ws, "Y").size() == 2);
  CHECK(Values(ws, "Y")[0] == 2);
}

TEST_CASE("an empty net runs; inputs may be outputs") {
  Workspace ws;
  SimpleNet empty(Graph(), &ws);
  CHECK(empty.Run());
  CHECK(ws.Blobs().empty());
  Graph through = WithInput();
  through.AddOutput("X");
  *ws.CreateTensor("X") = Pair(1, 2);
  CHECK(SimpleNet(through, &ws).Run());
}

TEST_CASE("declared inputs and outputs that are not met are errors") {
  Graph g = WithInput("input");
  g.AddNode(Relu("input", "A"));
  Workspace ws;
  ws.CreateTensor("imput");
  const Error missing = ErrorOf([&] { SimpleNet(g, &ws); });
  CHECK(missing.code() == ErrorCode::kNotFound);
  CHECK(Contains(missing.what(), "input 'input' of the graph is not in the workspace"));
  CHECK(Contains(missing.what(), "did you mean 'imput'?"));
  g.AddOutput("Z");
  const Error output = ErrorOf([&] { SimpleNet(g, &ws); });
  CHECK(output.code() == ErrorCode::kNotFound);
  CHECK(Contains(output.what(), "constant or node makes output 'Z' of the graph"));
  CHECK(ErrorOf([&] { SimpleNet(Graph(), nullptr); }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("inputs must fit the graph's declarations, before anything runs") {
  Graph g;
  g.AddInput("X", DType::kFloat32, {Sym("N"), 2});
  g.AddInput("Z", DType::kFloat32, {Sym("N"), Dim()});
  g.AddNode(OperatorDef("MatMul").Input("X").Input("Z").Output("Y"));
  g.AddOutput("Y");
  Workspace ws;
  Tensor *x = ws.CreateTensor("X"), *z = ws.CreateTensor("Z");
  SimpleNet net(g, &ws);
  CHECK(ErrorOf([&] { net.Run(); }).code() == ErrorCode::kUninitialized);
  const auto ones = [](Shape shape) {
    return Tensor::From(shape, std::vector<float>(static_cast<size_t>(shape.numel()), 1.f));
  };
  *x = ones({2, 2}), *z = ones({2, 5});
  CHECK(net.Run());
  *z = ones({3, 5});
  CHECK(Contains(ErrorOf([&] { net.Run(); }).what(),
                 "input 'Z' of the graph is float32[3, 5] on cpu, expected float32[N, ?]; an "
                 "earlier input has N = 2"));
  *z = ones({2});
  CHECK(
      Contains(ErrorOf([&] { net.Run(); }).what(), "is float32[2] on cpu, expected float32[N, ?"));
  *x = ones({2, 3});
  CHECK(Contains(ErrorOf([&] { net.Run(); }).what(), "'X' of the graph is float32[2, 3] on cpu"));
  *x = Tensor::From<int64_t>({1, 2}, {1, 2});
  CHECK(ErrorOf([&] { net.Run(); }).code() == ErrorCode::kTypeMismatch);
  CHECK(ws.last_failed_op_net_position == -1);
}

TEST_CASE("a net that cannot be made leaves the workspace as it was") {
  Graph g = WithInput();
  g.AddConstant("W", Pair(1, 2));
  g.AddNode(Relu("X", "A"));
  g.AddNode(Relu("A", "B").Device(DeviceType::kMetal));
  Workspace ws;
  *ws.CreateTensor("X") = Pair(1, 2);
  CHECK(ErrorOf([&] { SimpleNet(g, &ws); }).code() == ErrorCode::kNotFound);
  CHECK(ws.Blobs() == std::vector<std::string>{"X"});
  CHECK(ws.last_failed_op_net_position == 1);
  *ws.CreateTensor("W") = Pair(3, 4);  // not the graph's
  g.RemoveNode(1);
  const Error taken = ErrorOf([&] { SimpleNet(g, &ws); });
  CHECK(taken.code() == ErrorCode::kAlreadyExists);
  CHECK(Contains(taken.what(), "blob 'W' of the workspace differs from the graph's constant"));
  CHECK(Values(ws, "W") == std::vector<float>{3, 4});
}

TEST_CASE("the first node that fails stops the net, by throwing or by false") {
  for (const char* how : {"throw", "false"}) {
    CAPTURE(how);
    Graph g = WithInput();
    g.AddNode(Relu("X", "A"));
    g.AddNode(Fail("A", "B", how).Name("first"));
    g.AddNode(Fail("X", "C", how).Name("second"));
    g.AddNode(Relu("X", "D"));
    g.AddOutput("C");
    Workspace ws;
    *ws.CreateTensor("X") = Pair(1, 2);
    SimpleNet net(g, &ws);
    auto* runs = Observe<RunCountObserver>(net);
    const Error error = ErrorOf([&] { net.Run(); });
    CHECK(Contains(error.what(), "in operator Fail 'first' (A) -> (B)"));
    CHECK_FALSE(Contains(error.what(), "second"));
    CHECK(ws.last_failed_op_net_position == 1);
    CHECK(ws.GetTensor("A")->initialized());
    CHECK(ws.GetBlob("D")->empty());
    CHECK(runs->runs() == 1);
    CHECK(runs->failed_runs() == 1);  // the stopped run is reported as failed
  }
}

TEST_CASE("observers of the net and of its operators are started and stopped once each") {
  Graph g = WithInput();
  g.AddNode(Relu("X", "A"));
  g.AddNode(Fail("A", "B", "work"));
  Workspace ws;
  *ws.CreateTensor("X") = Pair(1, 2);
  SimpleNet net(g, &ws);
  int count = 0;
  auto* on_net = net.AttachObserver(std::make_unique<Counter<SimpleNet>>(&net, &count, 1000, 10));
  for (int i = 0; i < net.num_ops(); ++i)
    net.op(i).AttachObserver(std::make_unique<Counter<OperatorBase>>(&net.op(i), &count, 100, 1));
  net.Run();
  CHECK(count == 1212);
  CHECK(net.NumObservers() == 1);
  CHECK(net.DetachObserver(on_net) != nullptr);
  CHECK(net.DetachObserver(on_net) == nullptr);
  net.Run();
  CHECK(count == 1212 + 202);
}

TEST_CASE("the order of dependent nodes is kept, however they were added") {
  Workspace ws;
  *ws.CreateTensor("X") = Pair(1, -2);
  Graph g = WithInput();
  std::vector<float> expected;
  SUBCASE("independent") {
    g.AddNode(Scale("X", "Y", 2));
    g.AddNode(Scale("X", "Z", 3));
    expected = {2, -4};
  }
  SUBCASE("read after write") {
    g.AddNode(Scale("A", "Y", 2));
    g.AddNode(Relu("X", "A"));
    expected = {2, 0};
  }
  SUBCASE("read after read") {
    g.AddNode(Relu("X", "A"));
    g.AddNode(OperatorDef("Add").Input("A").Input("X").Output("Y"));
    expected = {2, -2};
  }
  SUBCASE("write after write") {
    g.AddNode(Scale("X", "Y", 1));
    g.AddNode(Accumulate("Y", "X"));
    g.AddNode(OperatorDef("Mul").Input("Y").Input("X").Output("Y2"));
    g.AddNode(Accumulate("Y", "Y2"));  // 2x + 2x * x
    expected = {4, 4};
  }
  SUBCASE("write after read") {
    g.AddNode(Scale("X", "T", 1));
    g.AddNode(Scale("T", "Y", 5));  // before T changes
    g.AddNode(Accumulate("T", "X"));
    expected = {5, -10};
  }
  SUBCASE("control input") {
    g.AddNode(Scale("X", "Y", 7).ControlInput("late"));
    g.AddNode(Relu("X", "A").Name("late"));
    expected = {7, -14};
  }
  g.AddOutput("Y");
  SimpleNet net(g, &ws);
  net.Run();
  CHECK(Values(ws, "Y") == expected);
  if (net.graph().HasValue("A") && net.graph().node(0).control_inputs().size() == 1)
    CHECK(net.op(0).type() == "Relu");
}

TEST_CASE("linear, forked and joined nets compute their nodes' results, again and again") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    const Graph graph = RandomGraph(seed, {.window = seed % 2 ? 1 : 0, .controls = true});
    const auto inputs = RandomInputs(graph, seed);
    const auto expected = RunInOrder(graph, inputs);
    Workspace ws;
    for (size_t i = 0; i < inputs.size(); ++i) *ws.CreateTensor(graph.inputs()[i].name) = inputs[i];
    SimpleNet net(graph, &ws);
    for (int run = 0; run < 3; ++run) {
      net.Run();
      for (size_t o = 0; o < expected.size(); ++o)
        CHECK(detail::SameBytes(*ws.GetTensor(graph.outputs()[o]), expected[o]));
    }
  }
}

TEST_CASE("nodes of an asynchronous device are run to completion, one after the other") {
  Graph g = WithInput();
  g.AddNode(Relu("X", "A").Device(DeviceType::kCPUStream, 1));
  g.AddNode(Scale("A", "B", 2).Device(DeviceType::kCPUStream, 2));
  g.AddNode(Scale("B", "Y", 3));
  g.AddOutput("Y");
  Workspace ws;
  *ws.CreateTensor("X") = Pair(1, -2);
  SimpleNet net(g, &ws);
  for (int run = 0; run < 20; ++run) net.Run();
  CHECK(Values(ws, "Y") == std::vector<float>{6, 0});
  CHECK(net.Benchmark({.runs = 2}).nodes.size() == 3);
}

TEST_CASE("a benchmark has a row for each node, shares, rates from the cost, and sums by type") {
  Graph g = WithInput();
  g.AddNode(Relu("X", "A").Name("first"));
  g.AddNode(Scale("A", "B", 2));
  g.AddNode(Relu("B", "C"));
  g.AddOutput("C");
  Workspace ws;
  *ws.CreateTensor("X") = Pair(1, 2);
  SimpleNet net(g, &ws);
  auto* runs = Observe<RunCountObserver>(net.op(0));
  const NetBenchmark benchmark = net.Benchmark({.warmup = 2, .runs = 5});
  CHECK(runs->runs() == 2 + 5 + 5);
  CHECK(benchmark.runs == 5);
  CHECK(benchmark.net_ms > 0);
  REQUIRE(benchmark.nodes.size() == 3);
  CHECK(benchmark.nodes[0].op == "Relu");
  CHECK(benchmark.nodes[0].name == "first");
  CHECK(benchmark.nodes[2].node == 2);
  CHECK(benchmark.nodes[1].bytes == 16);  // two floats in, two out
  CHECK(benchmark.nodes[1].flops == 0);   // its schema does not say
  REQUIRE(benchmark.types.size() == 2);
  double share = 0;
  for (const NetBenchmark::Row& row : benchmark.types) {
    share += row.share;
    CHECK(row.count == (row.op == "Relu" ? 2 : 1));
    CHECK(row.bytes == (row.op == "Relu" ? 32 : 16));
  }
  CHECK(share == doctest::Approx(1));
  CHECK(benchmark.types[0].ms >= benchmark.types[1].ms);
  for (const int wrong : {0, -1})
    CHECK(ErrorOf([&] { net.Benchmark({.runs = wrong}); }).code() == ErrorCode::kInvalidArgument);
  CHECK(SimpleNet(Graph(), &ws).Benchmark().nodes.empty());
}

TEST_CASE("the benchmark's table lines up") {
  NetBenchmark benchmark;
  NetBenchmark::Row row;
  row.op = "MatMul", row.name = "mm", row.node = 10, row.ms = 2, row.share = 0.8;
  row.flops = 4e9, row.bytes = 1e6;
  benchmark.nodes.push_back(row);
  row = NetBenchmark::Row();
  row.op = "Relu", row.node = 3, row.ms = 0.5, row.share = 0.2;
  benchmark.nodes.push_back(row);
  row.node = -1;
  benchmark.types.push_back(row);
  benchmark.net_ms = 2.25;
  benchmark.runs = 10;
  CHECK(benchmark.nodes[0].gflops() == doctest::Approx(2000));
  CHECK(ToString(benchmark) == R"(node  op               ms  share  GFLOP/s  GB/s
  10  MatMul 'mm'  2.0000  80.0%  2000.00  0.50
   3  Relu         0.5000  20.0%        -     -

      Relu x1      0.5000  20.0%        -     -

net: 2.2500 ms, the median of 10 runs
)");
}

// ------------------------------------------------------------------------------------- subgraphs

namespace {

// Runs one of two subgraphs on its second input, as its first, a bool, says.
class IfOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  IfOp(const OperatorDef& def, Workspace* ws) : Operator<CPUContext>(def, ws) {
    for (const char* name : {"else_branch", "then_branch"}) {
      const Graph* graph = SubgraphOf(def, name);
      if (!graph || graph->inputs().size() != 1 || graph->outputs().size() != 1)
        Throw(ErrorCode::kInvalidArgument, "needs a graph '", name,
              "' with one input and one output");
      Workspace& inside = inside_[name == std::string("then_branch")];
      inside.CreateTensor(graph->inputs()[0].name);
      nets_.push_back(std::make_unique<SimpleNet>(*graph, &inside));
    }
  }
  bool RunOnDevice() override {
    const bool taken = Input(0).data<bool>()[0];
    SimpleNet& net = *nets_[taken];
    *inside_[taken].GetTensor(net.graph().inputs()[0].name) = Input(1);
    net.Run();
    OutputTensorCopyFrom(0, *inside_[taken].GetTensor(net.graph().outputs()[0]));
    return true;
  }

 private:
  Workspace inside_[2];
  std::vector<std::unique_ptr<SimpleNet>> nets_;
};
OPERATOR_SCHEMA(SubgraphIf).NumInputs(2).NumOutputs(1);
REGISTER_CPU_OPERATOR(SubgraphIf, IfOp);

Graph Branch(OperatorDef def) {
  Graph g;
  g.AddInput("x", DType::kFloat32, {2});
  g.AddNode(std::move(def));
  g.AddOutput("y");
  return g;
}

}  // namespace

TEST_CASE("an operator runs the subgraph that it chooses") {
  Graph g = WithInput();
  g.AddInput("c", DType::kBool, Shape{});
  g.AddNode(OperatorDef("SubgraphIf")
                .Input("c")
                .Input("X")
                .Output("Y")
                .Subgraph("then_branch", MakeSubgraph(Branch(Scale("x", "y", 2))))
                .Subgraph("else_branch", MakeSubgraph(Branch(Fail("x", "y", "throw")))));
  g.AddOutput("Y");
  Workspace ws;
  *ws.CreateTensor("X") = Pair(1, 2);
  Tensor* condition = ws.CreateTensor("c");
  *condition = Tensor::Scalar(true);
  SimpleNet net(g, &ws);
  net.Run();
  CHECK(Values(ws, "Y") == std::vector<float>{2, 4});
  *condition = Tensor::Scalar(false);
  const Error inside = ErrorOf([&] { net.Run(); });
  CHECK(Contains(inside.what(), "it was told to fail"));
  CHECK(Contains(inside.what(), "in operator Fail (x) -> (y)"));
  CHECK(Contains(inside.what(), "in operator SubgraphIf (c, X) -> (Y)"));
  CHECK(ws.last_failed_op_net_position == 0);
}

}  // namespace simple_net_test
