// The cost of messages and collectives against the formulas of the literature.
#include "opkit/cluster/cost.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>

#include "cluster/local_runs.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/graph.hpp"
#include "support/error_of.hpp"
#include "support/watchdog.hpp"

namespace cost_test { namespace {

using namespace opkit;
using Kind = CommunicationKind;

TEST_CASE("costs follow their formulas") {
  const LinkCost cost{.latency = 1e-5, .seconds_per_byte = 1e-9, .reduction_per_byte = 1e-10};
  const double bytes = 1 << 20;
  const auto seconds = [&](Kind kind, int n, AllReduceAlgorithm algorithm = {}) {
    return CommunicationSeconds(kind, n, 1 << 20, cost, algorithm);
  };
  CHECK(seconds(Kind::kSend, 2) == doctest::Approx(1e-5 + bytes * 1e-9));
  for (const int n : {2, 3, 4, 64, 4096}) {
    CAPTURE(n);
    const double levels = std::ceil(std::log2(n));
    CHECK(seconds(Kind::kAllReduce, n) ==
          doctest::Approx(2 * (n - 1) * 1e-5 + 2.0 * (n - 1) / n * bytes * 1e-9 +
                          (n - 1.0) / n * bytes * 1e-10));
    CHECK(seconds(Kind::kAllReduce, n, AllReduceAlgorithm::kTree) ==
          doctest::Approx(levels * (2e-5 + 2 * bytes * 1e-9 + bytes * 1e-10)));
    CHECK(seconds(Kind::kAllReduce, n, AllReduceAlgorithm::kFastest) ==
          std::min(seconds(Kind::kAllReduce, n),
                   seconds(Kind::kAllReduce, n, AllReduceAlgorithm::kTree)));
    // A ReduceScatter and an AllGather of n-ths of the block are the two halves of a ring.
    const int64_t part = (1 << 20) / 4;
    if (n == 4)
      CHECK(seconds(Kind::kAllReduce, 4) ==
            doctest::Approx(CommunicationSeconds(Kind::kReduceScatter, 4, part, cost) +
                            CommunicationSeconds(Kind::kAllGather, 4, part, cost)));
    CHECK(seconds(Kind::kBroadcast, n) == doctest::Approx(levels * (1e-5 + bytes * 1e-9)));
    CHECK(seconds(Kind::kGather, n) == doctest::Approx(levels * 1e-5 + (n - 1) * bytes * 1e-9));
    CHECK(seconds(Kind::kBarrier, n) == doctest::Approx(levels * 1e-5));
  }
  for (const Kind kind : {Kind::kAllReduce, Kind::kBroadcast, Kind::kAllToAll, Kind::kBarrier})
    CHECK(seconds(kind, 1) == 0);
}

TEST_CASE("a cluster with a delay gives the same results, not before their time") {
  const Watchdog watchdog;
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {256});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Neg", {"a"}, {"b"}).Process(1));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"sum"}));
  graph.AddOutput("b").AddOutput("sum");
  const LinkCost delay{.latency = 1e-3, .seconds_per_byte = 1e-6};
  LocalCluster cluster(2, delay);
  const auto begin = std::chrono::steady_clock::now();
  cluster.Run([&](const CommunicatorPtr& communicator) {
    Executor exec(Compile(graph, With(communicator)));
    const auto out = exec.Run({{"x", Tensor::From<float>({256}, std::vector<float>(256, 2.F))}});
    CHECK(out.Get("sum").ToVector<float>() == std::vector<float>(256, 4.F));
    if (communicator->process() == 1)
      CHECK(out.Get("b").ToVector<float>() == std::vector<float>(256, 2.F));
  });
  // The message and the AllReduce share the connection.
  const double least = 1024e-6 + CommunicationSeconds(Kind::kAllReduce, 2, 1024, delay);
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >= least);

  CHECK(Contains(ErrorOf([] { LocalCluster(2, {.latency = -1}); }).what(), "expected 0 or more"));
}

TEST_CASE("a failure does not wait for messages that are under way") {
  const Watchdog watchdog(30);
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}).AddInput("i", DType::kInt64, {1});
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"sum"}));
  graph.AddNode(OperatorDef("Gather", {"x", "i"}, {"a"}).Process(0));
  graph.AddOutput("sum").AddOutput("a");
  LocalCluster cluster(2, {.latency = 1000});
  cluster.Run([&](const CommunicatorPtr& communicator) {
    Executor exec(Compile(graph, With(communicator)));
    const std::string message =
        ErrorOf([&] {
          std::vector<NamedTensor> inputs{{"x", Tensor::From<float>({2}, {1, 2})}};
          if (communicator->process() == 0)
            inputs.push_back({"i", Tensor::From<int64_t>({1}, {7})});
          exec.Run(inputs);
        }).what();
    CHECK(Contains(message, "Gather"));
  });
}

}  // namespace
}  // namespace cost_test
