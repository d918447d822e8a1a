// AllReduce as a node of a graph, beside MPI_Allreduce that the program calls by hand, on all
// processes of a job of mpirun. Process 0 prints the medians as the JSON of Google Benchmark.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "opkit/backends/mpi/cluster.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/cluster/operators.hpp"
#include "opkit/graph.hpp"
#include "statistics.hpp"

namespace {

using namespace opkit;

constexpr int kRounds = 11;

struct Row {
  std::string name;
  std::vector<double> times = {};  // of the rounds, in ns for a call
};

// Calls `body` `calls` times on all processes, and returns the time of a call.
template <class Body>
double TimeOf(int calls, const Body& body) {
  MPI_Barrier(MPI_COMM_WORLD);
  const int64_t begin = opkit::detail::MonotonicNs();
  for (int i = 0; i < calls; ++i) body();
  return static_cast<double>(opkit::detail::MonotonicNs() - begin) / calls;
}

using cluster_bench::Median, cluster_bench::Variation;

// The contenders take turns, so that other load on the machine meets all of them.
void Measure(const CommunicatorPtr& communicator, int64_t bytes, std::vector<Row>& rows) {
  const int64_t count = bytes / 4;
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {count});
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"y"}));
  graph.AddOutput("y");
  PlanOptions options;
  options.cluster.communicator = communicator;
  Executor exec(Compile(graph, options));
  const Tensor x = Tensor::From<float>({count}, std::vector<float>(static_cast<size_t>(count), 1));
  Tensor y(Shape{count}, DType::kFloat32);
  const std::vector<NamedTensor> inputs = {{"x", x}};
  void* const into = y.raw_mutable_data();
  const auto run = [&] { exec.Run(inputs); };
  const auto by_hand = [&] {
    MPI_Allreduce(x.raw_data(), into, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  const auto nonblocking = [&] {
    MPI_Request request;
    MPI_Iallreduce(x.raw_data(), into, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                   &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  const int calls = static_cast<int>(std::clamp<int64_t>((int64_t{8} << 20) / bytes, 2, 1000));
  const std::string size = StrCat("/", communicator->processes(), "/", bytes);
  Row ours{"AllReduce" + size}, hand{"MpiAllreduce" + size},
      hand_nonblocking{"MpiIallreduce" + size};
  for (int round = -1; round < kRounds; ++round) {
    const double times[] = {TimeOf(calls, run), TimeOf(calls, by_hand), TimeOf(calls, nonblocking)};
    if (round < 0) continue;  // a round to warm up
    ours.times.push_back(times[0]);
    hand.times.push_back(times[1]);
    hand_nonblocking.times.push_back(times[2]);
  }
  for (Row* row : {&ours, &hand, &hand_nonblocking}) rows.push_back(std::move(*row));
}

void Print(const std::vector<Row>& rows) {
  std::printf("{\"benchmarks\": [");
  const char* separator = "\n";
  for (const Row& row : rows)
    for (const char* aggregate : {"median", "cv"}) {
      const bool is_median = std::string(aggregate) == "median";
      std::printf(
          "%s{\"name\": \"%s_%s\", \"run_name\": \"%s\", \"run_type\": \"aggregate\", "
          "\"aggregate_name\": \"%s\", \"real_time\": %.6g, \"cpu_time\": 0, "
          "\"time_unit\": \"ns\"}",
          separator, row.name.c_str(), aggregate, row.name.c_str(), aggregate,
          is_median ? Median(row.times) : Variation(row.times));
      separator = ",\n";
    }
  std::printf("\n]}\n");
}

}  // namespace

int main() {
  MpiCluster cluster;
  std::vector<Row> rows;
  for (int64_t bytes = 1024; bytes <= int64_t{64} << 20; bytes *= 4)
    Measure(cluster.communicator(), bytes, rows);
  if (cluster.communicator()->process() == 0) Print(rows);
}
