// How long runs take, node by node too, and how much memory the process has had.
#ifndef OPKIT_TOOLS_OPKIT_TIMING_HPP_
#define OPKIT_TOOLS_OPKIT_TIMING_HPP_

#include <vector>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/net_benchmark.hpp"

namespace cli {

// Milliseconds between two calls.
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
  // Between the two nearest times, weighted; 50 is the median. There must be a time.
  double Percentile(double percent) const;

 private:
  std::vector<double> ms_;
};

// Of a node of the plan, by its schema.
opkit::OpCost CostOf(const opkit::Plan& plan, int node);

// Runs with what is bound, and times every node: medians, sums by operator, rates by the schemas'
// costs. With several threads nodes may overlap, and their sum is then more than a run takes.
opkit::NetBenchmark TimeNodes(opkit::Executor& executor, int runs);

// The resident size of the process now, and the largest that it has had, in bytes; 0 where the
// system does not say.
int64_t ResidentBytes();
int64_t PeakResidentBytes();

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_TIMING_HPP_
