// Runs a graph on two processes: Neg on process 0, Exp on process 1. The processes are threads of
// this program; compiled with -DUSE_MPI, they are those of an MPI job, which mpirun starts.
#ifdef USE_MPI
#include <opkit/backends/mpi/cluster.hpp>
#endif
#include <cstdio>
#include <opkit/cluster/local.hpp>
#include <opkit/cluster/operators.hpp>
#include <opkit/cluster/process_parts.hpp>
#include <opkit/graph.hpp>
#include <opkit/ops/math/unary.hpp>

using namespace opkit;

// Compiles and runs the part of a process. Returns the exit status of the program.
int RunPart(const CommunicatorPtr& communicator) {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Exp", {"a"}, {"y"}).Process(1));
  graph.AddOutput("y");
  PlanOptions options;
  options.cluster.communicator = communicator;
  Executor executor(Compile(graph, options));  // has the nodes of this process, and the messages
  if (communicator->process() == 0) {          // its part reads x, and makes no output
    executor.Run({{"x", Tensor::From<float>({2}, {1, 2})}});
    return 0;
  }
  const std::vector<float> y = executor.Run(std::vector<NamedTensor>{}).Get("y").ToVector<float>();
  std::printf("process %d: y = %.4f %.4f\n", communicator->process(), y[0], y[1]);
  return y[0] < 0.36f || y[0] > 0.37f;
}

int main() {
#ifdef USE_MPI
  MpiCluster cluster;  // calls MPI_Init
  return RunPart(cluster.communicator());
#else
  int status[2];
  LocalCluster(2).Run([&](const CommunicatorPtr& communicator) {  // on a thread for each process
    status[communicator->process()] = RunPart(communicator);
  });
  return status[0] + status[1];
#endif
}
