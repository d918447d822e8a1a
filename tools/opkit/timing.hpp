// Times of runs and of their nodes, and the memory of the process.
#ifndef OPKIT_TOOLS_OPKIT_TIMING_HPP_
#define OPKIT_TOOLS_OPKIT_TIMING_HPP_

#include <vector>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/net_benchmark.hpp"

namespace cli {

// Measures milliseconds between two calls.
class Stopwatch {
 public:
  Stopwatch() : begin_ns_(opkit::detail::MonotonicNs()) {}
  double ms() const { return static_cast<double>(opkit::detail::MonotonicNs() - begin_ns_) * 1e-6; }

 private:
  int64_t begin_ns_;
};

class Times {
 public:
  void Add(double ms) { ms_.push_back(ms); }
  size_t size() const { return ms_.size(); }
  double mean() const;
  // Interpolates between the two nearest times; 50 is the median. Needs at least one time.
  double Percentile(double percent) const;

 private:
  std::vector<double> ms_;
};

// Returns the cost of a node of the plan, by its schema.
opkit::OpCost CostOf(const opkit::Plan& plan, int node);

// Runs with the bound inputs and times every node: medians, sums by operator, rates by the schemas'
// costs. With several threads nodes may overlap; their sum is then longer than a run.
opkit::NetBenchmark TimeNodes(opkit::Executor& executor, int runs);

// Return the resident size of the process in bytes, now and at its largest; 0 if the system does
// not report it.
int64_t ResidentBytes();
int64_t PeakResidentBytes();

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_TIMING_HPP_
