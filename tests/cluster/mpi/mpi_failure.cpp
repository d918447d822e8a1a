// A job in which process 1 fails between two runs of a plan, in the way that the argument names.
// Each of the other processes prints the Error of its run, and the seconds that it took to come.
// That is the second run, or the first one if the process was slower than process 1.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

#include "opkit/backends/mpi/cluster.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/cluster/operators.hpp"
#include "opkit/graph.hpp"

namespace {

using namespace opkit;

void Fail(const std::string& how) {
  if (how == "killed") kill(getpid(), SIGKILL);
  if (how == "exception") throw std::runtime_error("process 1 has had enough");
  if (how == "terminate") std::terminate();
}

// Returns the Error of a run.
std::string RunTwice(const std::string& how, const CommunicatorPtr& communicator,
                     std::optional<Executor>& exec) {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {1'000'000});
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"y"}));
  graph.AddOutput("y");
  PlanOptions options;
  options.cluster.communicator = communicator;
  exec.emplace(Compile(graph, options));
  const Tensor x = Tensor::From<float>({1'000'000}, std::vector<float>(1'000'000, 1.0f));
  int64_t begin = opkit::detail::MonotonicNs();
  try {
    const float sum = exec->Run({{"x", x}})[0].ToVector<float>()[999'999];
    if (sum != static_cast<float>(communicator->processes())) return "the sum is wrong";
    if (communicator->process() == 1) {
      Fail(how);
      return "";
    }
    begin = opkit::detail::MonotonicNs();
    exec->Run({{"x", x}});
  } catch (const Error& error) {
    const double seconds = static_cast<double>(opkit::detail::MonotonicNs() - begin) * 1e-9;
    return StrCat("process ", communicator->process(), " after ", seconds, " s: ", error.message());
  }
  return "no Error";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  std::optional<Executor> exec;  // outlives the cluster
  int result = 0;
  try {
    MpiCluster cluster;
    const std::string text = RunTwice(how, cluster.communicator(), exec);
    if (!text.empty()) std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  } catch (const std::exception& error) {
    std::printf("main caught: %s\n", error.what());
    result = 3;
  }
  try {
    if (exec) exec->Run({{"x", Tensor(Shape{1'000'000}, DType::kFloat32)}});
  } catch (const Error& error) {
    std::printf("after the cluster: %s\n", error.message().c_str());
  }
  return result;
}
