// Indices outside their axes in runs of an executor, which call the operators or launch a recording
// (DefersFailures). A run reports such an index at its end.
#include "on_cuda.hpp"
#include "opkit/backends/cuda/ops/moving/index_fault.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/op/registration.hpp"

namespace indices_test {
using namespace opkit;
using Floats = std::vector<float>;

namespace {

std::atomic<bool> g_held{false};  // streams that come to an IndicesHold wait while it is set
std::atomic<int> g_reached{0};    // IndicesHolds to which a stream has come

// Makes IndicesHold wait until Release or the end of the scope.
struct Hold {
  Hold() { g_held = true; }
  ~Hold() { Release(); }
  void Release() { g_held = false; }
};
// y = x. The stream waits before the copy.
class IndicesHoldOp final : public Operator<CUDAContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    const auto wait = [](void*) {
      ++g_reached;
      while (g_held) std::this_thread::yield();
    };
    OPKIT_CUDA_CHECK(cudaLaunchHostFunc(context_.cuda_stream(), wait, nullptr));
    OPKIT_CUDA_CHECK(cudaMemcpyAsync(y->raw_mutable_data(), x.raw_data(),
                                     static_cast<size_t>(x.nbytes()), cudaMemcpyDeviceToDevice,
                                     context_.cuda_stream()));
    return true;
  }
};
OPERATOR_SCHEMA(IndicesHold).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR(IndicesHold, IndicesHoldOp);

Tensor Indices(const std::vector<int64_t>& values) {
  return OnCuda(Tensor::From<int64_t>({static_cast<int64_t>(values.size())}, values));
}
Tensor Table() { return OnCuda(Tensor::From<float>({3, 2}, {1, 2, 3, 4, 5, 6})); }
Floats Elements(const Tensor& tensor) { return OnHost(tensor).ToVector<float>(); }
// y = x[i], where w = x[j] is another output.
Graph TwoGathers() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {3, 2}, kCuda0);
  for (const char* indices : {"i", "j"}) graph.AddInput(indices, DType::kInt64, {2}, kCuda0);
  graph.AddNode(OperatorDef("Gather", {"x", "i"}, {"y"}));
  graph.AddNode(OperatorDef("Gather", {"x", "j"}, {"w"}));
  graph.AddOutput("y").AddOutput("w");
  return graph;
}
// An executor whose tensors keep their addresses, with indices that the test changes.
struct Bound {
  explicit Bound(bool records, int threads = 1)
      : executor(
            Compile(TwoGathers(),
                    {.threads = threads, .schedule = {.capture = records}, .devices = {kCuda0}})) {
    executor.Bind("x", Table());
    executor.Bind("i", i);
    executor.Bind("j", j);
    executor.Bind("y", OnCuda(Tensor({2, 2}, DType::kFloat32)));
    executor.Bind("w", OnCuda(Tensor({2, 2}, DType::kFloat32)));
  }
  void Set(const Tensor& tensor, const std::vector<int64_t>& values) {
    Tensor target = tensor;
    Copy(Tensor::From<int64_t>({2}, values), &target);
  }
  bool IsRecorded() const {
    return executor.ExplainMode().find("are recorded and repeated by one launch") !=
           std::string::npos;
  }
  Tensor i = Indices({0, 2}), j = Indices({1, 1});
  Executor executor;
};
std::string MessageOf(FunctionRef<void()> run) {
  try {
    run();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kOutOfRange);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a run with a wrong index fails with its operator, and the next run is right") {
  for (const bool records : {false, true})
    for (const int threads : {1, 2})
      for (const bool asynchronous : {false, true}) {
        CAPTURE(records);
        CAPTURE(threads);
        CAPTURE(asynchronous);
        Bound bound(records, threads);
        Executor& executor = bound.executor;
        const auto run = [&] { asynchronous ? executor.RunAsync().Finish() : executor.Run(); };
        // The first run calls the operators, the second one is recorded, later ones are launched.
        for (int64_t round = 0; round < 5; ++round) {
          CAPTURE(round);
          bound.Set(bound.i, {0, 3 + round});
          const std::string message = MessageOf(run);
          CHECK(message.find(StrCat("Gather: the index ", 3 + round, " is outside its axis")) !=
                std::string::npos);
          CHECK(message.find("in operator Gather (x, i) -> (y)") != std::string::npos);
          CHECK_THROWS_WITH(executor.output("y"), doctest::Contains("has no value"));
          bound.Set(bound.i, {0, round % 3});
          run();
          const Floats row = {1 + 2 * static_cast<float>(round % 3),
                              2 + 2 * static_cast<float>(round % 3)};
          CHECK(Elements(executor.output("y")) == Floats{1, 2, row[0], row[1]});
          CHECK(Elements(executor.output("w")) == Floats{3, 4, 3, 4});
        }
        CHECK(bound.IsRecorded() == records);
      }
}

TEST_CASE("a run with several wrong indices reports the first operator, and each index once") {
  for (const bool records : {false, true}) {
    Bound bound(records);
    for (int round = 0; round < 3; ++round) {
      bound.Set(bound.i, {-4, 0});
      bound.Set(bound.j, {0, 9});
      CHECK(MessageOf([&] { bound.executor.Run(); }).find("the index -4") != std::string::npos);
      bound.Set(bound.i, {-3, 0});
      CHECK(MessageOf([&] { bound.executor.Run(); }).find("the index 9") != std::string::npos);
      bound.Set(bound.j, {0, 1});
      bound.executor.Run();
      CHECK(Elements(bound.executor.output("w")) == Floats{1, 2, 3, 4});
    }
  }
}

TEST_CASE("a wrong index of an operator's own run does not end the recording, and is reported") {
  Bound bound(/*records=*/true);
  bound.executor.Run();
  OperatorBase& gather = bound.executor.op(0);
  bound.Set(bound.i, {5, 0});
  gather.Run();  // as a debugger would
  bound.Set(bound.i, {1, 0});
  CHECK(MessageOf([&] { bound.executor.Run(); }).find("the index 5") != std::string::npos);
  bound.executor.Run();
  CHECK(Elements(bound.executor.output("y")) == Floats{3, 4, 1, 2});
  CHECK(bound.IsRecorded());
}

TEST_CASE("no later run reports a wrong index of a run that was cancelled or has failed") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {3, 2}, kCuda0).AddInput("i", DType::kInt64, {2}, kCuda0);
  graph.AddNode(OperatorDef("IndicesHold", {"i"}, {"j"}).Device(kCuda0));
  graph.AddNode(OperatorDef("Gather", {"x", "j"}, {"y"}));
  graph.AddOutput("y");
  const Tensor right = Indices({2, 1}), wrong = Indices({0, 7});
  for (const bool records : {false, true})
    for (const int threads : {1, 2}) {
      CAPTURE(records);
      CAPTURE(threads);
      Executor executor(Compile(
          graph, {.threads = threads, .schedule = {.capture = records}, .devices = {kCuda0}}));
      executor.Bind("x", Table());
      executor.Bind("i", wrong);
      for (int run = 0; run < 3; ++run)
        CHECK(MessageOf([&] { executor.Run(); }).find("the index 7") != std::string::npos);
      // The device finds the wrong index before the next run begins, or while it is under way. A
      // run after a launch that was cancelled waits for the launch.
      for (const bool before : {true, false}) {
        CAPTURE(before);
        if (records && !before) continue;
        for (const bool fails : {true, false}) {
          executor.Bind("i", wrong);
          Hold hold;
          const int reached = g_reached;
          if (fails) {
            CHECK_THROWS_AS(executor.Run(std::chrono::milliseconds(1)), Error);
          } else {
            const Event cancelled = executor.RunAsync();
            while (g_reached == reached) std::this_thread::yield();
            executor.Cancel();
            CHECK_THROWS_WITH(cancelled.Finish(), doctest::Contains("cancelled"));
          }
          if (before) {
            hold.Release();
            REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
          }
          executor.Bind("i", right);
          const Event done = executor.RunAsync();
          hold.Release();
          done.Finish();
          for (int run = 0; run < 3; ++run) {
            CHECK(Elements(executor.output("y")) == Floats{5, 6, 3, 4});
            executor.Run();
          }
          executor.Bind("i", wrong);
          CHECK(MessageOf([&] { executor.Run(); }).find("the index 7") != std::string::npos);
        }
      }
    }
}

TEST_CASE("an operator in the body of another one reports a wrong index at the end of the run") {
  Graph body;
  body.AddInput("x", DType::kFloat32, {3, 2}).AddInput("i", DType::kInt64, {2});
  body.AddNode(OperatorDef("Gather", {"x", "i"}, {"y"}).Device(kCuda0));
  body.AddOutput("y");
  Graph graph;
  graph.AddInput("c", DType::kBool, {}).AddInput("x", DType::kFloat32, {3, 2}, kCuda0);
  graph.AddInput("i", DType::kInt64, {2}, kCuda0);
  graph.AddNode(OperatorDef("If", {"c", "x", "i"}, {"z"})
                    .Arg("captures", std::vector<std::string>{"x", "i"})
                    .Subgraph("then_branch", MakeSubgraph(body))
                    .Subgraph("else_branch", MakeSubgraph(body)));
  graph.AddOutput("z");
  Executor executor(Compile(graph, {.threads = 1, .devices = {kCuda0, Device{}}}));
  const auto run = [&](const std::vector<int64_t>& indices) {
    return Elements(
        executor.Run({{"c", Tensor::Scalar(true)}, {"x", Table()}, {"i", Indices(indices)}})
            .Get("z"));
  };
  CHECK(run({2, 0}) == Floats{5, 6, 1, 2});
  CHECK(MessageOf([&] {
          run({2, 3});
        }).find("the index 3 is outside its axis") != std::string::npos);
  CHECK(run({2, 1}) == Floats{5, 6, 3, 4});
}

}  // namespace indices_test
