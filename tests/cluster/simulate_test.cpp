// The simulator against closed forms.
#include "opkit/cluster/simulate.hpp"

#include <doctest/doctest.h>

#include "opkit/graph.hpp"
#include "support/error_of.hpp"

namespace simulate_test { namespace {

using namespace opkit;

constexpr LinkCost kLink{.latency = 1e-4, .seconds_per_byte = 1e-8, .reduction_per_byte = 1e-9};
Topology Uniform(const LinkCost& link) {
  return {.processes_per_host = 1, .within_host = link, .between_hosts = link, .links = {}};
}
double Ring(int n, double bytes) {
  return 2 * (n - 1) * kLink.latency +
         (n - 1.0) / n * bytes * (2 * kLink.seconds_per_byte + kLink.reduction_per_byte);
}

// Nodes that each take a second, and AllReduces of 4,000 bytes after the first and the last.
Graph DataParallelGraph() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {1000});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"a"}, {"A"}));
  graph.AddNode(OperatorDef("Neg", {"a"}, {"b"}));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"b"}, {"B"}));
  graph.AddNode(OperatorDef("Add", {"A", "B"}, {"y"}));
  return graph.AddOutput("y");
}

TEST_CASE("data-parallel parts: collectives overlap with what does not need them") {
  for (const int n : {1, 2, 4, 64, 4096}) {
    CAPTURE(n);
    const ProcessParts parts(DataParallelGraph(), n);
    const auto simulate = [&](double seconds) {
      return SimulateStep(
          parts, [&](const OperatorDef&) { return seconds; }, Uniform(kLink),
          AllReduceAlgorithm::kRing);
    };
    const double ring = Ring(n, 4000);
    // The first AllReduce is hidden behind the second node if that takes longer.
    SimulatedStep step = simulate(10);
    CHECK(step.seconds == doctest::Approx(30 + ring));
    CHECK(step.compute == doctest::Approx(30));
    CHECK(step.communicate == doctest::Approx(2 * ring));
    CHECK(step.exposed() == doctest::Approx(ring));
    // Else the second one follows the first.
    step = simulate(1e-7);
    CHECK(step.seconds == doctest::Approx(2e-7 + std::max(2 * ring, 1e-7 + ring)).epsilon(1e-9));
    CHECK(SimulateStep(
              parts, [](const OperatorDef&) { return 1.0; }, Uniform(kLink))
              .seconds <= simulate(1).seconds);
  }
}

TEST_CASE("parts with messages: a chain, and processes that wait for one sender") {
  Graph chain;
  chain.AddInput("v0", DType::kFloat32, {250});
  constexpr int kProcesses = 300;
  for (int p = 0; p < kProcesses; ++p)
    chain.AddNode(OperatorDef("Neg", {StrCat("v", p)}, {StrCat("v", p + 1)}).Process(p));
  chain.AddOutput(StrCat("v", kProcesses));
  const auto second = [](const OperatorDef&) { return 1.0; };
  const double message = kLink.latency + 1000 * kLink.seconds_per_byte;
  CHECK(SimulateStep(ProcessParts(chain, kProcesses), second, Uniform(kLink)).seconds ==
        doctest::Approx(kProcesses + (kProcesses - 1) * message));

  // Process 0 sends one value to three others, one after the other; the latencies overlap.
  Graph fan;
  fan.AddInput("x", DType::kFloat32, {250});
  fan.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  for (int p = 1; p < 4; ++p) {
    fan.AddNode(OperatorDef("Neg", {"a"}, {StrCat("b", p)}).Process(p));
    fan.AddOutput(StrCat("b", p));
  }
  CHECK(SimulateStep(ProcessParts(fan, 4), second, Uniform(kLink)).seconds ==
        doctest::Approx(2 + kLink.latency + 3000 * kLink.seconds_per_byte));

  Graph unknown;
  unknown.AddInput("x", DType::kFloat32, {Dim()});
  unknown.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"y"}));
  unknown.AddOutput("y");
  CHECK(Contains(
      ErrorOf([&] { SimulateStep(ProcessParts(unknown, 2), second, Uniform(kLink)); }).message(),
      "are not known"));
}

// Stages of two equal layers each.
std::vector<StageCost> Stages(int stages, const LayerCost& layer, int64_t output_bytes = 0) {
  return std::vector<StageCost>(static_cast<size_t>(stages), {{layer, layer}, output_bytes});
}

TEST_CASE("the bubble of a pipeline is (s-1) / (m+s-1)") {
  for (const int stages : {1, 2, 4, 16, 256})
    for (const int batches : {1, 3, 32}) {
      CAPTURE(stages);
      CAPTURE(batches);
      const SimulatedStep step = SimulateTraining(Stages(stages, {.forward = 1, .backward = 2}),
                                                  {.micro_batches = batches}, Uniform({}));
      CHECK(step.seconds == doctest::Approx((batches + stages - 1) * 6));
      CHECK(step.exposed() / step.seconds ==
            doctest::Approx((stages - 1.0) / (batches + stages - 1)));
    }
  // Each of the 2 (s-1) messages on the longest way adds its time.
  const std::vector<StageCost> stages = Stages(4, {.forward = 1, .backward = 2}, 1000);
  CHECK(SimulateTraining(stages, {}, Uniform(kLink)).seconds ==
        doctest::Approx(24 + 6 * (kLink.latency + 1000 * kLink.seconds_per_byte)));
  // Inference has no gradients to send back.
  CHECK(SimulateTraining(stages, {.is_inference = true}, Uniform(kLink)).seconds ==
        doctest::Approx(8 + 3 * (kLink.latency + 1000 * kLink.seconds_per_byte)));
}

TEST_CASE("replicas sum their gradients in buckets, behind the backward pass or after it") {
  const LayerCost layer{.forward = 1, .backward = 2, .gradient_bytes = 1000};
  const std::vector<StageCost> one_stage = {{.layers = std::vector<LayerCost>(4, layer)}};
  for (const int replicas : {1, 2, 4096}) {
    CAPTURE(replicas);
    const auto seconds = [&](int64_t bucket, bool overlaps) {
      return SimulateTraining(one_stage,
                              {.replicas = replicas,
                               .bucket_bytes = bucket,
                               .overlaps = overlaps,
                               .algorithm = AllReduceAlgorithm::kRing},
                              Uniform(kLink))
          .seconds;
    };
    const bool is_alone = replicas == 1;
    const double one = is_alone ? 0 : Ring(replicas, 1000);
    CHECK(seconds(1, false) == doctest::Approx(12 + 4 * one));
    CHECK(seconds(1, true) == doctest::Approx(12 + one));
    CHECK(seconds(2000, true) == doctest::Approx(12 + (is_alone ? 0 : Ring(replicas, 2000))));
    CHECK(seconds(1 << 30, true) == doctest::Approx(12 + (is_alone ? 0 : Ring(replicas, 4000))));
  }
  // Both: two stages of two layers, each with its own replicas.
  CHECK(SimulateTraining(Stages(2, layer),
                         {.replicas = 3,
                          .micro_batches = 2,
                          .bucket_bytes = 1,
                          .algorithm = AllReduceAlgorithm::kRing},
                         Uniform(kLink))
            .seconds == doctest::Approx(3 * 6 + Ring(3, 1000) + 2 * kLink.latency));
}

TEST_CASE("a layout of no process is refused") {
  const std::vector<StageCost> stages = Stages(2, {});
  for (const auto& [layout, name] :
       {std::pair(TrainingLayout{.replicas = 0}, "replicas"),
        std::pair(TrainingLayout{.micro_batches = 0}, "micro_batches")}) {
    const Error error = ErrorOf([&] { SimulateTraining(stages, layout, {}); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.message(), StrCat(name, " is 0")));
  }
  CHECK(Contains(ErrorOf([&] { SimulateTraining({}, {}, {}); }).message(), "no stages"));
}

}  // namespace
}  // namespace simulate_test
