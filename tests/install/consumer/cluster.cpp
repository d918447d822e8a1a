// The communicators of the installed package: those that are there make a sum of one process.
#include <opkit/cluster/local.hpp>
#include <opkit/graph.hpp>

#include <exception>
#ifdef CONSUMER_HAS_MPI
#include <opkit/backends/mpi/cluster.hpp>
#endif
#ifdef CONSUMER_HAS_NCCL
#include <opkit/backends/nccl/communicator.hpp>
#endif

namespace {

bool MakesSum(const opkit::CommunicatorPtr& communicator) {
  opkit::Graph graph;
  graph.AddInput("x", opkit::DType::kFloat32, {1});
  graph.AddNode(opkit::OperatorDef("opkit.cluster.AllReduce", {"x"}, {"y"}));
  graph.AddOutput("y");
  opkit::PlanOptions options;
  options.cluster.communicator = communicator;
  opkit::Executor executor(opkit::Compile(graph, options));
  const auto outputs = executor.Run({{"x", opkit::Tensor::From<float>({1}, {3})}});
  return outputs.Get("y").data<float>()[0] == 3;
}

}  // namespace

int main() {
  bool is_right = MakesSum(opkit::LocalCluster(1).communicator(0));
#ifdef CONSUMER_HAS_MPI
  opkit::MpiCluster cluster;
  is_right = is_right && MakesSum(cluster.communicator());
#endif
#ifdef CONSUMER_HAS_NCCL
  try {
    opkit::MakeNcclCommunicator(opkit::LocalCluster(1).communicator(0));
  } catch (const std::exception&) {  // a machine without a GPU
  }
#endif
  return is_right ? 0 : 1;
}
