// LocalCluster: the collectives of threads, and a plan cut into the parts of two processes.
#include "opkit/cluster/local.hpp"

#include <doctest/doctest.h>

#include "cluster/local_runs.hpp"
#include "opkit/cluster/operators.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/graph.hpp"
#include "opkit/ops/all.hpp"

namespace local_test { namespace {

using namespace opkit;

TEST_CASE("AllReduce gives each process the sum of all") {
  for (const char* reduction : {"sum", "mean", "max", "min", "product"}) {
    for (const int64_t deterministic : {0, 1}) {
      CAPTURE(reduction);
      CAPTURE(deterministic);
      Graph graph;
      graph.AddInput("x", DType::kFloat32, {3}).AddInput("z", DType::kFloat32, {2});
      graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x", "z"}, {"y", "w"},
                                {{"reduction", reduction}, {"deterministic", deterministic}}));
      graph.AddOutput("y").AddOutput("w");
      LocalCluster cluster(3);
      cluster.Run([&](const CommunicatorPtr& communicator) {
        Executor exec(Compile(graph, With(communicator)));
        for (int run = 0; run < 3; ++run) {
          const float p = static_cast<float>(communicator->process() + run);
          const auto out = exec.Run({{"x", Tensor::From<float>({3}, {p, 2 * p, 1})},
                                     {"z", Tensor::From<float>({2}, {-p, 4})}});
          const float r = static_cast<float>(run);
          const std::string how = reduction;
          const auto of = [&](float a, float b, float c) {
            return how == "sum"    ? a + b + c
                   : how == "mean" ? (a + b + c) / 3
                   : how == "max"  ? std::max({a, b, c})
                   : how == "min"  ? std::min({a, b, c})
                                   : a * b * c;
          };
          CHECK(out.Get("y").ToVector<float>() ==
                std::vector<float>{of(r, r + 1, r + 2), of(2 * r, 2 * r + 2, 2 * r + 4),
                                   of(1, 1, 1)});
          CHECK(out.Get("w").ToVector<float>() ==
                std::vector<float>{of(-r, -r - 1, -r - 2), of(4, 4, 4)});
        }
      });
    }
  }
}

template <class T>
void CheckMeansOfEqual(DType dtype) {
  CAPTURE(ToString(dtype));
  const std::vector<T> values = ValuesToAverage<T>(21);
  const int64_t count = static_cast<int64_t>(values.size());
  Graph graph;
  graph.AddInput("x", dtype, {count}).AddInput("z", dtype, {count});
  const Arguments mean = {{"reduction", "mean"}};
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"one"}, mean));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x", "z"}, {"first", "second"}, mean));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"ordered"}, mean)
                    .Arg("deterministic", int64_t{1}));
  graph.AddNode(OperatorDef("opkit.cluster.Reduce", {"x"}, {"root"}, mean));
  graph.AddNode(OperatorDef("opkit.cluster.ReduceScatter", {"x"}, {"block"}, mean));
  for (const char* output : {"one", "first", "second", "ordered", "root", "block"})
    graph.AddOutput(output);
  LocalCluster(3).Run([&](const CommunicatorPtr& communicator) {
    Executor exec(Compile(graph, With(communicator)));
    const Tensor x = Tensor::From<T>({count}, values);
    const auto begin = values.begin() + communicator->process() * count / 3;
    for (const auto& [name, tensor] : exec.Run({{"x", x}, {"z", x}})) {
      CAPTURE(name);
      const bool is_block = name == "block";
      CHECK(tensor.template ToVector<T>() ==
            (is_block ? std::vector<T>(begin, begin + count / 3) : values));
    }
  });
}

TEST_CASE("the mean of equal elements of three processes is that element, bit by bit") {
  CheckMeansOfEqual<float>(DType::kFloat32);
  CheckMeansOfEqual<double>(DType::kFloat64);
  CheckMeansOfEqual<float16>(DType::kFloat16);
  CheckMeansOfEqual<bfloat16>(DType::kBFloat16);
}

TEST_CASE("a graph on two processes gives the results of one") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Exp", {"a"}, {"b"}).Process(1));
  graph.AddNode(OperatorDef("Add", {"a", "b"}, {"c"}).Process(0));
  graph.AddNode(OperatorDef("Mul", {"b", "c"}, {"d"}).Process(1));
  graph.AddOutput("d");
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  const std::vector<float> expected = Executor(Compile(graph)).Run({{"x", x}})[0].ToVector<float>();
  LocalCluster cluster(2);
  cluster.Run([&](const CommunicatorPtr& communicator) {
    Executor exec(Compile(graph, With(communicator)));
    for (int run = 0; run < 3; ++run)
      if (communicator->process() == 0)
        CHECK(exec.Run({{"x", x}}).size() == 0);
      else
        CHECK(exec.Run(std::vector<NamedTensor>{}).Get("d").ToVector<float>() == expected);
  });
}

TEST_CASE("a failure on one process ends the run on all") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}).AddInput("i", DType::kInt64, {1});
  graph.AddNode(OperatorDef("Gather", {"x", "i"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Exp", {"a"}, {"b"}).Process(1));
  graph.AddOutput("b");
  LocalCluster cluster(2);
  cluster.Run([&](const CommunicatorPtr& communicator) {
    Executor exec(Compile(graph, With(communicator)));
    std::string message;
    try {
      if (communicator->process() == 0)
        exec.Run({{"x", Tensor::From<float>({2}, {1, 2})}, {"i", Tensor::From<int64_t>({1}, {7})}});
      else
        exec.Run(std::vector<NamedTensor>{});
    } catch (const Error& error) {
      message = error.what();
    }
    CHECK(message.find("Gather") != std::string::npos);
    if (communicator->process() == 1)
      CHECK(message.find("process 0 ended the run") != std::string::npos);
  });
}

}  // namespace
}  // namespace local_test
