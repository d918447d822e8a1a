// Executors over operators that complete after they have returned: on CPU streams, and by a thread
// of their own.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "check_outputs.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "opkit/graph/plan/process_link.hpp"
#include "random_graph.hpp"
#include "support/error_of.hpp"

namespace executor_async_test {
using namespace opkit;

namespace {

constexpr DType kFloat = DType::kFloat32;

// Pending runs of Later operators; a test finishes them.
struct Flight {
  Event event;
  float* out;
  const float* in;
};
detail::Mutex g_flights_mutex;
std::vector<Flight> g_flights;

std::vector<Flight> Flights(size_t at_least) {
  for (;;) {
    {
      detail::MutexLock lock(g_flights_mutex);
      if (g_flights.size() >= at_least) return g_flights;
    }
    std::this_thread::yield();
  }
}
void ForgetFlights() {
  detail::MutexLock lock(g_flights_mutex);
  g_flights.clear();
}

// A CPU operator whose work goes on elsewhere.
class LaterOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool HasAsyncPart() const override { return true; }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    detail::MutexLock lock(g_flights_mutex);
    g_flights.push_back({event(), y->mutable_data<float>(), x.data<float>()});
    return true;
  }
};
OPERATOR_SCHEMA(Later).NumInputs(1).NumOutputs(1).Stateful().IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Later, LaterOp);
OPERATOR_SCHEMA(LaterOfAnyShape).NumInputs(1).NumOutputs(1).Stateful();
REGISTER_CPU_OPERATOR(LaterOfAnyShape, LaterOp);

// Makes its output of g_arrived, which must be there when its event finishes.
Tensor g_arrived;
class ReceiveOp final : public Operator<CPUContext>, public detail::ReceivesOutputs {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool HasAsyncPart() const override { return true; }
  bool RunOnDevice() override {
    *Output(0) = Tensor();
    if (g_arrived.initialized()) {
      event().SetFinished();
    } else {
      detail::MutexLock lock(g_flights_mutex);
      g_flights.push_back({event(), nullptr, nullptr});
    }
    return true;
  }
  void TakeOutputs() override { *Output(0) = std::exchange(g_arrived, Tensor()); }
};
OPERATOR_SCHEMA(Receive).NumInputs(1).NumOutputs(1).Stateful().IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Receive, ReceiveOp);

// Finishes its event before it returns, and runs g_inner once before that.
Executor* g_inner = nullptr;
class LaterOrNowOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool HasAsyncPart() const override { return true; }
  bool RunOnDevice() override {
    Tensor x = Input(0);
    if (Executor* inner = std::exchange(g_inner, nullptr)) x = inner->Run({{"X", x}}).Get("Y");
    OutputTensorCopyFrom(0, x);
    event().SetFinished();
    return true;
  }
};
OPERATOR_SCHEMA(LaterOrNow).NumInputs(1).NumOutputs(1).Stateful().IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(LaterOrNow, LaterOrNowOp);

// Hands its input on as its output, while it still works.
class LaterViewOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool HasAsyncPart() const override { return true; }
  bool RunOnDevice() override {
    SetOutputTensor(0, Input(0));
    event().SetFinished();
    return true;
  }
};
OPERATOR_SCHEMA(LaterView).NumInputs(1).NumOutputs(1).Stateful().IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(LaterView, LaterViewOp);

// Fails on its stream, after it was issued.
template <class Context>
class FailLaterOp final : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using Operator<Context>::Operator;
  bool RunOnDevice() override {
    Output(0, Input(0).shape(), DType::kFloat32);
    this->context_.Launch([what = this->template GetSingleArgument<std::string>("what", "")] {
      if (what == "std") throw std::runtime_error("the stream's part failed");
      if (what == "int") throw 3;
      Throw(ErrorCode::kInvalidArgument, "the stream's part failed");
    });
    return true;
  }
};
OPERATOR_SCHEMA(FailLater)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg<std::string>("what", "what it throws", "Error")
    .IdenticalTypeAndShape();
REGISTER_CPU_STREAM_OPERATOR(FailLater, FailLaterOp<CPUStreamContext>);

// X -> Later A, Later B -> Y = A + B
Graph TwoLater() {
  Graph g;
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("Relu").Input("X").Output("R"));
  g.AddNode(OperatorDef("Later").Name("a").Input("R").Output("A"));
  g.AddNode(OperatorDef("Later").Name("b").Input("R").Output("B"));
  g.AddNode(OperatorDef("Add").Input("A").Input("B").Output("Y"));
  g.AddOutput("Y");
  return g;
}

// The same graph with the operators that can on streams.
Graph OnStreams(const Graph& graph, uint64_t seed) {
  detail::CheckRandom random(seed);
  Graph out;
  for (const Graph::Input& input : graph.inputs())
    out.AddInput(input.name, input.info.dtype, input.info.shape);
  for (const Graph::Constant& constant : graph.constants())
    out.AddConstant(constant.name, constant.value);
  for (OperatorDef def : graph.nodes()) {
    const std::string& type = def.type();
    const bool can = type == "Add" || type == "Mul" || type == "Relu" || type == "Scale";
    if (can && random.Next() % 3 != 0) def.Device(DeviceType::kCPUStream);
    out.AddNode(std::move(def));
  }
  for (const std::string& name : graph.outputs()) out.AddOutput(name);
  return out;
}

// A random graph, inputs for it, and what running its nodes in order makes of them.
struct RandomCase {
  explicit RandomCase(uint64_t seed) {
    RandomGraphOptions random;
    random.nodes = 5 + static_cast<int>(seed % 6) * 10;
    random.rewrites = seed % 3 == 0;
    random.controls = seed % 2 == 0;
    graph = RandomGraph(seed, random);
    inputs = RandomInputs(graph, seed);
    expected = RunInOrder(graph, inputs);
  }
  void BindTo(Executor& exec) const {
    for (size_t i = 0; i < inputs.size(); ++i) exec.Bind(graph.inputs()[i].name, inputs[i]);
  }
  Graph graph;
  std::vector<Tensor> inputs, expected;
};

}  // namespace

TEST_CASE("random graphs over streams and the host equal a run in order") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const RandomCase random(seed);
    for (int threads : {1, 2, 8}) {
      INFO("seed ", seed, " threads ", threads);
      const PassList none;
      Executor exec(Compile(OnStreams(random.graph, seed), {.threads = threads, .passes = &none}));
      random.BindTo(exec);
      for (int run = 0; run < 3; ++run) {
        if (run == 1)
          exec.RunAsync().Finish();
        else
          exec.Run();
        CheckOutputs(exec.outputs(), random.expected);
      }
    }
  }
}

TEST_CASE("operators of one device are issued behind each other before they are done") {
  Graph g;  // the first waits for the test, so that nothing behind it can be done
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("Later").Input("X").Output("A"));
  g.AddNode(
      OperatorDef("Scale").Input("A").Output("B").Arg("scale", 2.f).Device(DeviceType::kCPUStream));
  g.AddNode(
      OperatorDef("Scale").Input("B").Output("C").Arg("scale", 3.f).Device(DeviceType::kCPUStream));
  g.AddOutput("C");
  const Plan plan = Compile(g, {.threads = 2});
  CHECK(plan.state()->Latest()->schedule().has_early());
  Executor exec(plan);
  exec.Bind("X", Vector({1, 2}));
  ForgetFlights();
  const Event done = exec.RunAsync();
  const Flight flight = Flights(1)[0];
  CHECK_FALSE(done.IsFinished());
  CHECK(Contains(ErrorOf([&] { exec.Run(); }).what(), "the executor is running"));
  for (int i = 0; i < 2; ++i) flight.out[i] = flight.in[i] + 10;
  Event(flight.event).SetFinished();
  done.Finish();
  CHECK(FloatsOf(exec.output("C")) == Floats{66, 72});
}

TEST_CASE("completions resume the graph in any order") {
  for (int first : {0, 1})
    for (int threads : {1, 2, 8}) {
      Executor exec(Compile(TwoLater(), {.threads = threads}));
      exec.Bind("X", Vector({1, 2}));
      ForgetFlights();
      std::thread completer([&] {
        std::vector<Flight> flights = Flights(2);
        for (int i : {first, 1 - first}) {
          Flight& flight = flights[static_cast<size_t>(i)];
          flight.out[0] = flight.in[0] + 1;
          flight.out[1] = flight.in[1] + 1;
          flight.event.SetFinished();
        }
      });
      exec.Run();
      completer.join();
      CHECK(FloatsOf(exec.output("Y")) == Floats{4, 6});
    }
}

TEST_CASE("a failure of the asynchronous part ends the run with the operator's context") {
  for (int threads : {1, 2}) {
    Graph g;
    g.AddInput("X", kFloat, {2});
    g.AddNode(OperatorDef("Relu").Input("X").Output("A").Device(DeviceType::kCPUStream));
    g.AddNode(
        OperatorDef("FailLater").Name("bad").Input("A").Output("B").Device(DeviceType::kCPUStream));
    g.AddNode(OperatorDef("Relu").Input("B").Output("C").Device(DeviceType::kCPUStream));
    g.AddNode(OperatorDef("Relu").Input("C").Output("Y"));
    g.AddOutput("Y");
    const PassList none;
    Executor exec(Compile(g, {.threads = threads, .passes = &none}));
    exec.Bind("X", Vector({1, 2}));
    for (int run = 0; run < 3; ++run) {
      const Error error = ErrorOf([&] { exec.Run(); });
      CHECK(Contains(error.what(), "the stream's part failed"));
      CHECK(Contains(error.what(), "FailLater 'bad'"));
      const Event event = exec.RunAsync();
      CHECK(Contains(ErrorOf([&] { event.Finish(); }).what(), "the stream's part failed"));
    }
  }
}

TEST_CASE("an exception of a body in a stream ends the run with an Error with node and cause") {
  for (const char* what : {"std", "int"}) {
    Graph g;
    g.AddInput("X", kFloat, {2});
    g.AddNode(OperatorDef("FailLater", {"X"}, {"Y"})
                  .Name("bad")
                  .Arg("what", what)
                  .Device(DeviceType::kCPUStream));
    g.AddOutput("Y");
    Executor exec(Compile(g, {.threads = 2}));
    exec.Bind("X", Vector({1, 2}));
    const auto check = [&](const char* node, auto run) {
      const Error error = ErrorOf(run);
      CHECK(Contains(error.what(), node));
      CHECK(error.code() == ErrorCode::kOperatorFailed);
      if (*what == 's')
        CHECK_THROWS_AS(std::rethrow_exception(error.cause()), std::runtime_error);
      else
        CHECK_THROWS_AS(std::rethrow_exception(error.cause()), int);
    };
    check("in operator FailLater 'bad' (X) -> (Y)", [&] { exec.Run(); });
    check("in operator FailLater 'bad' (X) -> (Y)", [&] { exec.RunAsync().Finish(); });
    check("in operator FailLater (input 0) -> (output 0)", [&] {
      Invoke("FailLater", {Vector({1, 2})}, {{"what", what}},
             {.device = Device{DeviceType::kCPUStream, 0}})
          .at(0)
          .ToVector<float>();
    });
  }
}

TEST_CASE("an operator that never finishes does not hold up a run that fails") {
  for (int threads : {1, 2})
    for (bool in_stream : {false, true}) {
      Graph g;
      g.AddInput("X", kFloat, {2});
      g.AddNode(OperatorDef("Later").Input("X").Output("A"));
      g.AddNode(OperatorDef(in_stream ? "FailLater" : "Fail")
                    .Input("X")
                    .Output("B")
                    .Device(in_stream ? DeviceType::kCPUStream : DeviceType::kCPU));
      g.AddNode(OperatorDef("Add").Input("A").Input("B").Output("Y"));
      g.AddOutput("Y");
      Executor exec(Compile(g, {.threads = threads}));
      exec.Bind("X", Vector({1, 2}));
      for (int run = 0; run < 2; ++run) {
        ForgetFlights();
        CHECK(Contains(ErrorOf([&] { exec.Run(); }).what(),
                       in_stream ? "the stream's part failed" : "it was told to fail"));
        const Event event = exec.RunAsync();
        CHECK(Contains(ErrorOf([&] { event.Finish(); }).what(),
                       in_stream ? "the stream's part failed" : "it was told to fail"));
      }
    }
}

TEST_CASE("an operator whose work continues must not return its input undeclared") {
  Graph g;
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("Relu").Input("X").Output("A"));
  g.AddNode(OperatorDef("LaterView").Name("view").Input("A").Output("B"));
  g.AddNode(OperatorDef("Add").Input("A").Input("B").Output("Y"));
  g.AddOutput("Y");
  Executor exec(Compile(g, {.threads = 2}));
  exec.Bind("X", Vector({1, 2}));
  const Error error = ErrorOf([&] { exec.Run(); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "made 'B' a view of an input while its device still works"));
}

TEST_CASE("an output that comes at the end of an operator's work is taken and checked then") {
  Graph g;
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("Receive").Input("X").Output("A"));
  g.AddNode(OperatorDef("Relu").Input("A").Output("Y"));
  g.AddOutput("A").AddOutput("Y");
  for (bool is_there_before : {false, true}) {
    CAPTURE(is_there_before);
    Executor exec(Compile(g, {.threads = 2}));
    exec.Bind("X", Vector({1, 2}));
    const auto run = [&](const Tensor& arrives) {
      ForgetFlights();
      g_arrived = is_there_before ? arrives : Tensor();
      const Event done = exec.RunAsync();
      if (!is_there_before) {
        Event flight = Flights(1)[0].event;
        g_arrived = arrives;
        flight.SetFinished();
      }
      done.Finish();
    };
    run(Vector({-1, 3}));
    const Tensor first = exec.output("A");
    CHECK(FloatsOf(exec.output("Y")) == Floats{0, 3});
    run(Vector({4, -5}));
    CHECK(FloatsOf(exec.output("Y")) == Floats{4, 0});
    CHECK(FloatsOf(exec.output("A")) == Floats{4, -5});
    CHECK(FloatsOf(first) == Floats{-1, 3});
    const Error error = ErrorOf([&] { run(Vector({1, 2, 3})); });
    CHECK(Contains(error.what(), "Receive"));
    CHECK(Contains(error.what(), "[3]"));
    run(Vector({6, 7}));
    CHECK(FloatsOf(exec.output("Y")) == Floats{6, 7});
  }
}

TEST_CASE("a deadline ends a run with an operator that never finishes; the next run works") {
  for (int threads : {1, 2}) {
    Executor exec(Compile(TwoLater(), {.threads = threads}));
    exec.Bind("X", Vector({1, 2}));
    ForgetFlights();
    const Error error = ErrorOf([&] { exec.Run(std::chrono::milliseconds(20)); });
    CHECK(error.code() == ErrorCode::kDeadlineExceeded);
    // The device goes on writing, to memory that the next run does not have.
    std::vector<Flight> stale = Flights(2);
    ForgetFlights();
    std::thread completer([&] {
      std::vector<Flight> flights = Flights(2);
      for (Flight& flight : flights) flight.out[0] = flight.out[1] = 5;
      for (Flight& flight : stale) flight.out[0] = flight.out[1] = 100;
      for (Flight& flight : stale) ErrorOf([&] { flight.event.SetFinished(); });
      for (Flight& flight : flights) flight.event.SetFinished();
    });
    exec.Run();
    completer.join();
    CHECK(FloatsOf(exec.output("Y")) == Floats{10, 10});
  }
}

TEST_CASE("a run is cancelled from another thread") {
  for (int threads : {1, 2}) {
    Executor exec(Compile(TwoLater(), {.threads = threads}));
    exec.Bind("X", Vector({1, 2}));
    ForgetFlights();
    std::thread canceller([&] {
      Flights(2);
      exec.Cancel();
    });
    CHECK(ErrorOf([&] { exec.Run(); }).code() == ErrorCode::kCancelled);
    canceller.join();
    ForgetFlights();
    const Event event = exec.RunAsync();
    Flights(2);
    exec.Cancel();
    CHECK(ErrorOf([&] { event.Finish(); }).code() == ErrorCode::kCancelled);
    exec.Cancel();  // nothing to do
  }
}

TEST_CASE("cancelling at any moment loses nothing") {
  const Graph graph = OnStreams(RandomGraph(11, {.nodes = 60}), 11);
  const auto inputs = RandomInputs(graph, 11);
  const auto expected = RunInOrder(RandomGraph(11, {.nodes = 60}), inputs);
  const PassList none;
  Executor exec(Compile(graph, {.threads = 2, .passes = &none}));
  for (size_t i = 0; i < inputs.size(); ++i) exec.Bind(graph.inputs()[i].name, inputs[i]);
  std::atomic<bool> over{false};
  std::thread canceller([&] {
    while (!over) {
      exec.Cancel();
      std::this_thread::yield();
    }
  });
  int good = 0, cancelled = 0;
  for (int run = 0; run < 200; ++run) {
    try {
      exec.Run();
      ++good;
      CheckOutputs(exec.outputs(), expected);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kCancelled);
      ++cancelled;
    }
  }
  over = true;
  canceller.join();
  CHECK(good + cancelled == 200);
  exec.Run();
  CheckOutputs(exec.outputs(), expected);
}

TEST_CASE("an executor that is destroyed in the middle of a run cancels it") {
  ForgetFlights();
  Event event;
  {
    Executor exec(Compile(TwoLater(), {.threads = 2}));
    exec.Bind("X", Vector({1, 2}));
    event = exec.RunAsync();
    Flights(2);
  }
  CHECK(ErrorOf([&] { event.Finish(); }).code() == ErrorCode::kCancelled);
  for (Flight& flight : Flights(2)) {  // late, into memory that is kept for them
    flight.out[0] = 1;
    ErrorOf([&] { flight.event.SetFinished(); });
  }
}

TEST_CASE("an executor outlives a run whose event was cancelled by its own handle") {
  for (int round = 0; round < 20; ++round) {
    ForgetFlights();
    auto exec = std::make_unique<Executor>(Compile(TwoLater(), {.threads = 2}));
    exec->Bind("X", Vector({1, 2}));
    Event event = exec->RunAsync();
    CHECK(ErrorOf([&] { exec->outputs(); }).code() == ErrorCode::kFailedPrecondition);
    event.Cancel();
    exec.reset();
    CHECK(ErrorOf([&] { event.Finish(); }).code() == ErrorCode::kCancelled);
  }
}

TEST_CASE("in a fixed order, streams and the host equal a run in order") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const RandomCase random(seed);
    INFO("seed ", seed);
    const PassList none;
    Executor exec(Compile(OnStreams(random.graph, seed),
                          {.threads = 2, .schedule = {.deterministic = true}, .passes = &none}));
    random.BindTo(exec);
    exec.Run();
    CheckOutputs(exec.outputs(), random.expected);
  }
}

TEST_CASE("in a fixed order, nodes in flight keep their memory while later nodes run") {
  ForgetFlights();
  Graph g;
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("Scale").Input("X").Output("S").Arg("scale", 2.f));
  g.AddNode(OperatorDef("Later").Input("S").Output("A"));
  g.AddNode(OperatorDef("Scale").Input("X").Output("P").Arg("scale", 3.f));
  g.AddNode(OperatorDef("Later").Input("P").Output("B"));
  g.AddNode(OperatorDef("Add").Input("A").Input("B").Output("Y"));
  g.AddOutput("Y");
  const PassList none;
  Executor exec(Compile(g, {.threads = 2, .schedule = {.deterministic = true}, .passes = &none}));
  exec.Bind("X", Vector({1, 2}));
  const Event event = exec.RunAsync();
  for (Flight& flight : Flights(2)) {
    for (int i = 0; i < 2; ++i) flight.out[i] = flight.in[i];
    flight.event.SetFinished();
  }
  event.Finish();
  CHECK(FloatsOf(exec.output("Y")) == Floats{5, 10});
}

TEST_CASE("after the Error of a cancelled run the executor is usable at once") {
  for (const bool other_shape : {false, true}) {
    INFO("another shape ", other_shape);
    ForgetFlights();
    Executor exec(Compile(
        [] {
          Graph g;
          g.AddInput("X", kFloat, {Sym("N")});
          g.AddNode(OperatorDef("Later").Input("X").Output("Y"));
          g.AddOutput("Y");
          return g;
        }(),
        {.threads = 2}));
    exec.Bind("X", Vector({1, 2}));
    const Event first = exec.RunAsync();
    Flights(1);
    Event second;
    std::atomic<bool> told{false};
    first.SetCallback([&] {
      exec.Cancel();  // nothing runs
      if (other_shape) exec.Bind("X", Vector({1, 2, 3}));
      second = exec.RunAsync();
      told = true;
    });
    exec.Cancel();
    while (!told) std::this_thread::yield();
    Flight flight = Flights(2)[1];
    flight.out[1] = flight.in[1];
    flight.event.SetFinished();
    second.Finish();
    CHECK(exec.output("Y").data<float>()[1] == 2);
  }
}

TEST_CASE("memory that a cancelled run still writes is not used by the next one, of any shape") {
  ForgetFlights();
  Graph g;
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("LaterOfAnyShape").Input("X").Output("A"));
  g.AddNode(OperatorDef("Relu").Input("A").Output("Y"));
  g.AddOutput("Y");
  Executor exec(Compile(g, {.threads = 2}));
  exec.Bind("X", Vector({1, 2}));
  const Event first = exec.RunAsync();
  const Flight old = Flights(1)[0];
  exec.Cancel();
  CHECK(ErrorOf([&] { first.Finish(); }).code() == ErrorCode::kCancelled);
  const Event second = exec.RunAsync();
  Flight flight = Flights(2)[1];
  CHECK(flight.out != old.out);
  flight.out[0] = flight.out[1] = 5;
  flight.event.SetFinished();
  second.Finish();
  CHECK(FloatsOf(exec.output("Y")) == Floats{5, 5});
}

TEST_CASE("an operator with an asynchronous part may run a graph that has such operators") {
  Graph g;
  g.AddInput("X", kFloat, {2});
  g.AddNode(OperatorDef("LaterOrNow").Input("X").Output("Y"));
  g.AddOutput("Y");
  Executor inner(Compile(g, {.threads = 2}));
  Executor outer(Compile(g, {.threads = 2}));
  outer.Bind("X", Vector({1, 2}));
  g_inner = &inner;
  outer.Run();
  CHECK(FloatsOf(outer.output("Y")) == Floats{1, 2});
}

}  // namespace executor_async_test
