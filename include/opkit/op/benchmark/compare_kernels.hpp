// CompareKernels: times the kernels of an operator in turns, on the same inputs, and says which
// differences are real.
#ifndef OPKIT_OP_BENCHMARK_COMPARE_KERNELS_HPP_
#define OPKIT_OP_BENCHMARK_COMPARE_KERNELS_HPP_

#include <string>
#include <vector>

#include "opkit/op/benchmark/kernel_run.hpp"
#include "opkit/profile/counters.hpp"
#include "opkit/profile/machine_rates.hpp"
#include "opkit/profile/timing/interleaved_times.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The options of CompareKernels.
struct CompareKernelsOptions {
  // Either the inputs, on the host, or their shapes. With shapes the inputs are random tensors of
  // the dtypes of the schema, or of `dtype` where the schema leaves them open. If both are empty,
  // the inputs are those of the schema's TestInputs.
  std::vector<Tensor> inputs = {};
  std::vector<Shape> shapes = {};
  DType dtype = DType::kFloat32;
  Arguments args = {};
  int num_outputs = -1;  // -1: the least that the schema allows
  // By input: true for a constant, such as a model's weights. Kernels may prepare constants when
  // they are made.
  std::vector<bool> constants = {};
  std::vector<std::string> backends = {};  // empty: all
  Device device = {};
  std::vector<int> threads = {1};
  ColdData cold = ColdData::kNone;
  TimingOptions timing = {.seconds = 1};
  // Rates of this machine, to compare with (MachinePeak), one for each entry of `threads`; empty:
  // none.
  std::vector<MachineRates> peaks = {};
  double significance = 0.01;
  // Counters of the processor, such as "cycles", "instructions", "cache_misses" (PerfCounters lists
  // them), on all threads of a run.
  std::vector<std::string> counters = {};
  CounterSource* counter_source = nullptr;  // null: PerfCounters()
  uint64_t seed = 1;
  TimingClock* clock = nullptr;  // null: that of the machine
};

// The times of one kernel in one configuration, on a number of threads.
struct KernelTimes {
  enum class Verdict : uint8_t { kFirst, kSame, kFaster, kSlower };

  // "eigen"; "onednn winograd" for a variant with a name, "onednn #1" for the second configuration
  // if it has none.
  std::string backend;
  // "nChw16c, oihw -> nChw16c"; empty if all are standard. Conversions are not timed.
  std::string layouts;
  int threads = 1;
  std::string refused;  // why the kernel does not run the node; nothing else is set then
  CallTimes times;
  double flops = 0, bytes = 0;  // of a run, by the operator's schema; 0: unknown
  // Bytes of the data of a run. Cold runs take copies of the data in turns: the bytes of all
  // copies.
  double data_bytes = 0;
  PeakShare of_peak;  // by the smallest level of memory that holds `data_bytes`
  // Against the first row of the same number of threads: how often faster its median is, and the
  // probability of such a difference by chance (Mann-Whitney, corrected for the number of rows).
  double speedup = 1, p = 1;
  Verdict verdict = Verdict::kFirst;
  // The counts of one run, for each of CompareKernelsOptions::counters: the mean of runs after the
  // timed ones, so that counting takes no time from those.
  std::vector<double> counts = {};
};

struct KernelComparison {
  std::string name;  // "MatMul(trans_b=1) float32 [64, 64], float32 [64, 64]"
  std::vector<KernelTimes> rows;
  std::vector<std::string> counters = {};  // the names of the rows' counts
};

// Times every kernel of the operator, in every configuration that it proposes. Throws kNotFound for
// an unknown operator or backend; kInvalidArgument for inputs that the operator does not take, and
// for the name of no counter; kUnsupported, with the reason, for a counter that the system does not
// give.
//
//   std::puts(ToString(CompareKernels("MatMul", {.shapes = {{64, 64}, {64, 64}}})).c_str());
KernelComparison CompareKernels(const std::string& op, const CompareKernelsOptions& options = {});

// The same for a node with its own attributes, backends and device. The names of the node, its
// inputs and its outputs have no effect.
KernelComparison CompareKernels(const OperatorDef& def, const CompareKernelsOptions& options);

// A table with a line for each row.
std::string ToString(const KernelComparison& comparison);
// The name of a row in JSON: the comparison, the kernel, its layouts and the threads.
std::string BenchmarkName(const KernelComparison& comparison, const KernelTimes& row);
// The JSON format of Google Benchmark, whose tools read it: a repetition for each sample.
std::string ToJson(std::span<const KernelComparison> comparisons);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/benchmark/impl/compare_kernels.ipp"
#endif

#endif  // OPKIT_OP_BENCHMARK_COMPARE_KERNELS_HPP_
