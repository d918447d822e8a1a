// MicroBatches: the results are those of the micro-batches one after the other, on one process and
// on the stages of a pipeline.
#include "opkit/cluster/micro_batches.hpp"

#include <doctest/doctest.h>

#include "cluster/local_runs.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/cluster/pipeline.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/graph.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/ops/all.hpp"
#include "support/check_fails.hpp"

namespace micro_batches_test { namespace {

using namespace opkit;

constexpr int64_t kRows = 4, kWidth = 6;

// Three layers, the sum of the squares of the last, and the gradients of the weights.
Graph Training() {
  Graph g;
  g.AddInput("X", DType::kFloat32, {kRows, kWidth});
  for (const char* weight : {"W0", "W1", "W2"})
    g.AddInput(weight, DType::kFloat32, {kWidth, kWidth});
  std::string value = "X";
  for (int i = 0; i < 3; ++i) {
    g.AddNode(OperatorDef("MatMul", {value, StrCat("W", i)}, {StrCat("A", i)}));
    g.AddNode(OperatorDef("Tanh", {StrCat("A", i)}, {StrCat("H", i)}));
    value = StrCat("H", i);
  }
  g.AddNode(OperatorDef("Mul", {value, value}, {"S"}));
  g.AddNode(OperatorDef("ReduceSum", {"S"}, {"loss"}, {{"keepdims", 0}}));
  const GradientMap gradients = AddGradients(g, "loss", {"W0", "W1", "W2"});
  for (int i = 0; i < 3; ++i) {
    const std::string name = StrCat("W", i);
    g.AddNode(OperatorDef("Neg", {gradients.at(name).dense}, {StrCat("D", i)}).IsGradientOp(true));
  }
  return g.AddOutput("loss").AddOutput("H2").AddOutput("D0").AddOutput("D1").AddOutput("D2");
}
const MicroBatchOptions kOptions{
    .batched = {"X"}, .summed = {"D0", "D1", "D2"}, .averaged = {"loss"}};

std::vector<NamedTensor> Weights() {
  std::vector<NamedTensor> weights;
  for (int i = 0; i < 3; ++i)
    weights.push_back(
        {StrCat("W", i), RandomTensor({kWidth, kWidth}, DType::kFloat32, detail::Index(i) + 1)});
  return weights;
}

// The outputs of all micro-batches, by hand.
std::map<std::string, std::vector<float>> Expected(const Tensor& x, int count) {
  Executor exec(Compile(Training()));
  std::map<std::string, std::vector<float>> all;
  for (int k = 0; k < count; ++k) {
    std::vector<NamedTensor> inputs = Weights();
    inputs.push_back({"X", x.Slice(0, k * kRows, (k + 1) * kRows).Contiguous()});
    for (const auto& [name, tensor] : exec.Run(inputs)) {
      const std::vector<float> one = tensor.ToVector<float>();
      std::vector<float>& sum = all[name];
      if (name == "H2") sum.insert(sum.end(), one.begin(), one.end());
      if (name != "H2" && k == 0) sum = one;
      for (size_t i = 0; name != "H2" && k > 0 && i < one.size(); ++i) sum[i] += one[i];
    }
  }
  for (float& loss : all["loss"]) loss /= static_cast<float>(count);
  return all;
}

TEST_CASE("the outputs are summed, averaged or concatenated in the order of the micro-batches") {
  for (const int count : {1, 2, 5}) {
    CAPTURE(count);
    const Tensor x = RandomTensor({count * kRows, kWidth}, DType::kFloat32, 9);
    const auto expected = Expected(x, count);
    const Graph training = Training();
    const Graph alone = MicroBatches(training, count, kOptions);
    CHECK(alone.outputs() == training.outputs());
    std::vector<NamedTensor> inputs = Weights();
    inputs.push_back({"X", x});
    for (const auto& [name, tensor] : Executor(Compile(alone)).Run(inputs))
      CHECK(tensor.ToVector<float>() == expected.at(name));

    for (const int processes : {2, 3}) {
      const PipelineCut cut = Pipeline(training, processes, {.node_ns = 1e5, .message_ns = 1});
      CHECK(cut.stages.back().nodes > 0);
      const Graph graph = MicroBatches(cut.graph, count, kOptions);
      LocalCluster cluster(processes);
      std::atomic<size_t> compared = 0;
      cluster.Run([&](const CommunicatorPtr& communicator) {
        Executor exec(Compile(graph, With(communicator)));
        const std::vector<NamedTensor> own = InputsOf(exec, inputs);
        for (int run = 0; run < 2; ++run)
          for (const auto& [name, tensor] : exec.Run(own)) {
            CHECK(tensor.ToVector<float>() == expected.at(name));
            ++compared;
          }
      });
      CHECK(compared == 2 * expected.size());
    }
  }
}

TEST_CASE("forward nodes of all micro-batches come before gradient nodes") {
  const Graph graph = MicroBatches(Training(), 3, kOptions);
  bool was_gradient = false;
  int products = 0;
  for (const OperatorDef& def : graph.nodes()) {
    if (def.type() == "MatMul") products += !def.is_gradient_op();
    if (def.is_gradient_op()) was_gradient = true;
    if (def.type() == "Tanh") CHECK(!was_gradient);
  }
  CHECK(products == 9);
  CHECK(graph.inputs()[0].info.shape == SymbolicShape({3 * kRows, kWidth}));
}

TEST_CASE("open extents, and nodes that all micro-batches share") {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("N"), 2}).AddInput("W", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Neg", {"W"}, {"V"}).Name("negate"));
  graph.AddNode(OperatorDef("Mul", {"X", "V"}, {"Y"}).ControlInput("negate"));
  graph.AddOutput("Y").AddOutput("V");
  const Graph unrolled = MicroBatches(graph, 2, {.batched = {"X"}});
  int negations = 0;
  for (const OperatorDef& def : unrolled.nodes()) negations += def.type() == "Neg";
  CHECK(negations == 1);
  const auto out = Executor(Compile(unrolled))
                       .Run({{"X", Tensor::From<float>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})},
                             {"W", Tensor::From<float>({2}, {1, 10})}});
  CHECK(out.Get("Y").ToVector<float>() == std::vector<float>{-1, -20, -3, -40, -5, -60, -7, -80});
  CHECK(out.Get("V").ToVector<float>() == std::vector<float>{-1, -10});
}

TEST_CASE("the average of three equal micro-batches is that of one, bit by bit") {
  const std::vector<float> once = ValuesToAverage<float>(20);
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {1, 20});
  graph.AddNode(OperatorDef("Identity", {"x"}, {"y"}));
  graph.AddOutput("y");
  const Graph unrolled = MicroBatches(graph, 3, {.batched = {"x"}, .averaged = {"y"}});
  std::vector<float> thrice;
  for (int i = 0; i < 3; ++i) thrice.insert(thrice.end(), once.begin(), once.end());
  const auto out = Executor(Compile(unrolled)).Run({{"x", Tensor::From<float>({3, 20}, thrice)}});
  CHECK(out.Get("y").ToVector<float>() == once);
}

TEST_CASE("rows that the number of micro-batches does not divide are an Error of the run") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {Dim(), 1});
  graph.AddNode(OperatorDef("ReduceMean", {"x"}, {"mean"}, {{"keepdims", 0}}));
  graph.AddOutput("mean");
  const Graph unrolled = MicroBatches(graph, 4, {.batched = {"x"}, .averaged = {"mean"}});
  Executor exec(Compile(unrolled));
  const auto run = [&](int64_t rows) {
    std::vector<float> values(detail::Index(rows));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i);
    return exec.Run({{"x", Tensor::From<float>({rows, 1}, values)}}).Get("mean").ToVector<float>();
  };
  CHECK(run(8) == std::vector<float>{17.5F});
  for (const int64_t rows : {10, 9, 7, 3, 1}) {
    CAPTURE(rows);
    const Error error = ErrorOf([&] { run(rows); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK_MESSAGE(Contains(error.message(), StrCat("the axis of 'x' has the extent ", rows,
                                                   ", no multiple of the 4 equal")),
                  error.message());
    CHECK_MESSAGE(Contains(error.what(), "'micro-batches of x'"), error.what());
  }
  CHECK(run(4) == std::vector<float>{3.5F});
}

TEST_CASE("arguments that MicroBatches refuses") {
  const Graph graph = Training();
  CheckFails([&] { MicroBatches(graph, 0, kOptions); },
             "there are 0 micro-batches, expected 1 or more");
  CheckFails([&] { MicroBatches(graph, 2, {.batched = {"H0"}}); },
             "MicroBatchOptions::batched names 'H0', which is no input of the graph");
  CheckFails([&] { MicroBatches(graph, 2, {.batched = {"X"}, .summed = {"H0"}}); },
             "MicroBatchOptions names 'H0', which is no output of the graph");
  CheckFails(
      [&] { MicroBatches(graph, 2, {.batched = {"X"}, .summed = {"D0"}, .averaged = {"D0"}}); },
      "the output 'D0' is in both lists");
  CheckFails(
      [&] {
        MicroBatches(graph, 2, {.batched = {"X"}, .summed = {"D0", "D1", "D2"}});
      },
      "the output 'loss' is a scalar; name it in MicroBatchOptions::summed or averaged");
  CheckFails([&] { MicroBatches(graph, 2, {.summed = {"D0"}}); },
             "the output 'D0' depends on no batched input");
  Graph scalar;
  scalar.AddInput("x", DType::kFloat32, SymbolicShape(Shape()));
  CheckFails([&] { MicroBatches(scalar, 2, {.batched = {"x"}}); }, "expected rank 1 or more");
  Graph communicates = Training();
  communicates.AddNode(OperatorDef("opkit.cluster.Barrier"));
  CheckFails([&] { MicroBatches(communicates, 2, kOptions); }, "communicates; add it to the graph");
}

}  // namespace
}  // namespace micro_batches_test
