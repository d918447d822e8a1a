#include "timing.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>

#include "opkit/op/observers.hpp"
#include "program.hpp"

namespace cli {
namespace {

using namespace opkit;

// Records the time of each run of an operator.
class NodeTimes final : public ObserverBase<OperatorBase> {
 public:
  using ObserverBase::ObserverBase;
  void Start() override { watch_ = Stopwatch(); }
  void Stop(bool) override { times_.Add(watch_.ms()); }
  double median() const { return times_.size() ? times_.Percentile(50) : 0; }

 private:
  Stopwatch watch_;
  Times times_;
};

std::vector<TensorInfo> InfosOf(const Plan& plan, const std::vector<std::string>& names) {
  std::vector<TensorInfo> infos;
  for (const std::string& name : names)
    infos.push_back(name.empty() ? TensorInfo() : plan.type(name));
  return infos;
}

// Reads /proc, because getrusage keeps its figure across exec and may report the shell's.
int64_t StatusBytes(const char* format) {
  std::FILE* status = std::fopen("/proc/self/status", "r");
  long long kibibytes = 0;
  for (char line[256]; status && std::fgets(line, sizeof line, status);)
    if (std::sscanf(line, format, &kibibytes) == 1) break;
  if (status) std::fclose(status);
  return kibibytes * 1024;
}

}  // namespace

double Times::mean() const {
  return std::accumulate(ms_.begin(), ms_.end(), 0.0) / static_cast<double>(size());
}
double Times::Percentile(double percent) const {
  std::vector<double> sorted = ms_;
  std::sort(sorted.begin(), sorted.end());
  const double at = percent / 100 * static_cast<double>(size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, size() - 1);
  const double weight = at - static_cast<double>(below);
  return sorted[below] * (1 - weight) + sorted[above] * weight;
}

NetBenchmark TimeNodes(Executor& executor, int runs) {
  const Plan& plan = executor.plan();
  std::vector<NodeTimes*> observers;
  for (int node = 0; node < plan.graph().num_nodes(); ++node)
    observers.push_back(plan.choice(node).computed_by < 0 ? Observe<NodeTimes>(executor.op(node))
                                                          : nullptr);
  Times whole;
  for (int i = 0; i < runs; ++i) {
    const Stopwatch watch;
    executor.Run();
    whole.Add(watch.ms());
  }
  NetBenchmark out;
  out.runs = runs;
  out.net_ms = whole.Percentile(50);
  for (int node = 0; node < plan.graph().num_nodes(); ++node) {
    const OperatorDef& def = plan.graph().node(node);
    const OpCost cost = CostOf(plan, node);
    NetBenchmark::Row& row = out.nodes.emplace_back();
    row.op = def.type();
    row.name = Printable(def.name());
    row.node = node;
    NodeTimes* const observer = observers[static_cast<size_t>(node)];
    row.ms =
        observer ? observer->median() : 0;  // a fused node's time is in the node that computes it
    row.flops = static_cast<double>(cost.flops);
    row.bytes = static_cast<double>(cost.bytes_read) + static_cast<double>(cost.bytes_written);
    if (observer) executor.op(node).DetachObserver(observer);
  }
  out.SumUp();
  return out;
}

OpCost CostOf(const Plan& plan, int node) {
  const OperatorDef& def = plan.graph().node(node);
  return OpRegistry::Global()
      .GetSchema(def.type())
      .Cost(def, InfosOf(plan, def.inputs()), InfosOf(plan, def.outputs()));
}

int64_t ResidentBytes() { return StatusBytes("VmRSS: %lld"); }
int64_t PeakResidentBytes() { return StatusBytes("VmHWM: %lld"); }

}  // namespace cli
