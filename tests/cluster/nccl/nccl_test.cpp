// The communicator on NCCL, with as many processes as this machine has CUDA devices.
#include <doctest/doctest.h>
#include <nccl.h>

#include "opkit/backends/cuda/device.hpp"
#include "opkit/backends/nccl/communicator.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/graph.hpp"
#include "support/check_fails.hpp"

namespace nccl_test { namespace {

using namespace opkit;

TEST_CASE("AllReduce on the devices of the machine") {
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version / 10'000 == NCCL_MAJOR);
  if (CUDADeviceCount() == 0) {
    LocalCluster cluster(1);
    return CheckFails([&] { MakeNcclCommunicator(cluster.communicator(0)); },
                      "there is no cuda: no CUDA device on this machine");
  }
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"y"}));
  graph.AddOutput("y");
  LocalCluster cluster(CUDADeviceCount());
  cluster.Run([&](const CommunicatorPtr& host) {
    PlanOptions options;
    options.cluster.communicator = MakeNcclCommunicator(host);
    Executor executor(Compile(graph, options));
    const float n = static_cast<float>(host->processes());
    for (float run = 0; run < 3; ++run) {
      Tensor y;
      Copy(executor.Run({{"x", Tensor::From<float>({2}, {1, run})}}).Get("y"), &y);
      CHECK(y.ToVector<float>() == std::vector<float>{n, run * n});
    }
  });
}

}}  // namespace nccl_test
