// NetBenchmark: the time of each node of a SimpleNet and its rates in FLOP/s and bytes/s, as rows
// and as a table of text (like the log of Caffe2's TEST_Benchmark).
#ifndef OPKIT_GRAPH_NET_BENCHMARK_HPP_
#define OPKIT_GRAPH_NET_BENCHMARK_HPP_

#include <string>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The result of SimpleNet::Benchmark.
struct NetBenchmark {
  struct Options {
    int warmup = 1;  // runs before the timed ones
    int runs = 10;
  };

  // The times of one node, or of all nodes of one operator type.
  struct Row {
    std::string op;    // the operator's type
    std::string name;  // the node's name
    int node = -1;     // the node's index in the graph; -1 for all nodes of a type
    int count = 1;     // nodes in this row
    double ms = 0;     // median time of one run; for a type, the sum of its nodes' medians
    double share = 0;  // fraction of the sum over all nodes, from 0 to 1
    double flops = 0, bytes = 0;  // work of one run, from the schema's cost function

    double gflops() const { return ms > 0 ? flops / ms * 1e-6 : 0; }     // per second
    double gigabytes() const { return ms > 0 ? bytes / ms * 1e-6 : 0; }  // per second
  };

  std::vector<Row> nodes;  // in the order of the run
  std::vector<Row> types;  // the longest time first
  double net_ms = 0;       // median time of a run of the whole net
  int runs = 0;

  // Fills in the shares and `types` from the times of `nodes`.
  void SumUp();
};

// Returns a table: a header, a line for each node, the sums by operator type, and the time of the
// whole net. A rate is "-" if the schema has no cost for it.
std::string ToString(const NetBenchmark& benchmark);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/impl/net_benchmark.ipp"
#endif

#endif  // OPKIT_GRAPH_NET_BENCHMARK_HPP_
