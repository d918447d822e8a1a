// Benchmarks of kernels with Google Benchmark: BenchmarkOperator registers a benchmark for every
// kernel, configuration, dtype and shape of an operator. Rates come from the cost in its schema.
#ifndef OPKIT_INTEROP_GOOGLE_BENCHMARK_HPP_
#define OPKIT_INTEROP_GOOGLE_BENCHMARK_HPP_

#include <benchmark/benchmark.h>

#include <memory>
#include <set>

#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/benchmark/benchmark_node.hpp"
#include "opkit/op/check/check_cases.hpp"
#include "opkit/profile/machine_rates.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The options of BenchmarkOperator.
struct BenchmarkOptions {
  Arguments args = {};
  int num_inputs = -1;  // as in CheckOptions
  int num_outputs = -1;
  std::vector<Shape> input_shapes = {};
  std::vector<DType> dtypes = {};  // default: the dtypes of the schema's inputs, or float32
  // By input: true for a constant, as a weight of a model, which kernels may prepare.
  std::vector<bool> constants = {};
  std::vector<std::string> backends = {};  // empty: all
  std::vector<int> threads = {0};          // 0: those of the default pool
  ColdData cold = ColdData::kNone;
  // Rates of this machine (MachinePeak), to compare with; those of a benchmark's number of threads
  // are taken. A counter such as of_L2 is the share of that ceiling (PeakShare).
  std::vector<MachineRates> peaks = {};
  uint64_t seed = 1;
};

namespace detail {

// Makes a pool of so many threads this thread's pool, until the end of the scope; 0: does nothing.
class BenchmarkPool {
 public:
  explicit BenchmarkPool(int threads) {
    if (threads != 0) scope_.emplace(pool_.emplace(threads));
  }

 private:
  std::optional<ThreadPool> pool_;
  std::optional<PoolScope> scope_;
};

// The benchmark of one kernel in one configuration.
struct KernelBenchmark {
  void operator()(benchmark::State& state) const {
    if (!candidate.dropped.empty()) return state.SkipWithError(candidate.dropped.c_str());
    try {
      const BenchmarkPool pool(threads);
      Run(state);
    } catch (...) {
      state.SkipWithError(CurrentError().what());
    }
  }
  void Run(benchmark::State& state) const {
    KernelRun run = node->Prepare(candidate, cold);
    for (auto iteration : state) {
      static_cast<void>(iteration);
      run.Run();
      benchmark::ClobberMemory();
    }
    auto rate = [&](double once) {
      return benchmark::Counter(once, benchmark::Counter::kIsIterationInvariantRate);
    };
    const OpCost& cost = run.cost();
    const auto flops = static_cast<double>(cost.flops);
    const double bytes =
        static_cast<double>(cost.bytes_read) + static_cast<double>(cost.bytes_written);
    if (flops > 0) state.counters["FLOP/s"] = rate(flops);
    state.counters["bytes/s"] = rate(bytes);
    for (const MachineRates& peak : *peaks) {
      if (peak.threads != NumThreads()) continue;
      const MachineRates::Limit limit =
          peak.LimitOf(flops, bytes, bytes * static_cast<double>(run.copies()));
      // The rate of runs times the least time of one run is the share.
      if (limit.seconds > 0)
        state.counters["of_" + peak.CeilingName(limit.ceiling)] = rate(limit.seconds);
    }
    state.counters["threads"] = static_cast<double>(NumThreads());
    state.SetLabel(detail::LayoutsText(candidate.config));
  }

  std::shared_ptr<const BenchmarkNode> node;
  std::shared_ptr<const std::vector<MachineRates>> peaks;
  KernelCandidate candidate;
  int threads;
  ColdData cold;
};

// Lets Google Benchmark run the repetitions of all benchmarks in a random order, unless the
// program's command line has --benchmark_enable_random_interleaving=false.
inline void InterleaveRepetitions() {
  static const bool done = [] {
    char program[] = "benchmark", flag[] = "--benchmark_enable_random_interleaving=true";
    char* arguments[] = {program, flag, nullptr};
    int count = 2;
    benchmark::Initialize(&count, arguments);
    return true;
  }();
  static_cast<void>(done);
}

// Returns the shapes for a benchmark's name: "[2, 3]" if all are equal, else "[2, 3]x[3, 4]".
inline std::string ShapesName(const std::vector<Tensor>& inputs) {
  std::string out;
  bool alike = true;
  for (const Tensor& input : inputs) {
    alike &= input.shape() == inputs[0].shape();
    out += StrCat(out.empty() ? "" : "x", ToString(input.shape()));
  }
  return alike && !inputs.empty() ? ToString(inputs[0].shape()) : out;
}

// Registers the kernels of a device type. If a proposal or inference fails, one row, of the kernel
// "none", has the reason.
inline void RegisterKernelBenchmarks(OperatorDef def, DeviceType device, DType dtype,
                                     const std::vector<Tensor>& inputs,
                                     const BenchmarkOptions& options) {
  def.Device(device);
  const std::string what = StrCat(dtype, inputs.empty() ? "" : "/" + ShapesName(inputs),
                                  options.cold == ColdData::kWeights ? "/cold:weights"
                                  : options.cold == ColdData::kAll   ? "/cold:all"
                                                                     : "");
  const auto add = [&](const std::string& kernel, int threads, auto&& run) {
    const std::string name = StrCat(NodeName(def), "/", device, "/", kernel, "/", what,
                                    threads != 0 ? StrCat("/threads:", threads) : "");
    // Other threads may do the work.
    benchmark::RegisterBenchmark(name.c_str(), std::forward<decltype(run)>(run))->UseRealTime();
  };
  const auto peaks = std::make_shared<const std::vector<MachineRates>>(options.peaks);
  for (const int threads : options.threads) {
    try {
      const BenchmarkPool pool(threads);
      const auto node = std::make_shared<const BenchmarkNode>(def, inputs, options.constants);
      for (KernelCandidate& one : node->Candidates(options.backends)) {
        const std::string kernel = BenchmarkNode::NameOf(one);
        add(kernel, threads, KernelBenchmark{node, peaks, std::move(one), threads, options.cold});
      }
    } catch (const Error& error) {
      add("none", threads, [why = std::string(error.what())](benchmark::State& state) {
        state.SkipWithError(why.c_str());
      });
    }
  }
}

inline void RegisterBenchmarks(const OperatorDef& def, DType dtype,
                               const std::vector<Tensor>& inputs, const BenchmarkOptions& options) {
  InterleaveRepetitions();
  std::set<DeviceType> devices;
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(def.type()))
    devices.insert(kernel->device);
  for (const DeviceType device : devices)
    RegisterKernelBenchmarks(def, device, dtype, inputs, options);
}

inline OperatorDef BenchmarkDef(const OpSchema& schema, const BenchmarkOptions& options) {
  CheckOptions node;
  node.args = options.args;
  node.num_inputs = options.num_inputs;
  node.num_outputs = options.num_outputs;
  return MakeCheckDef(schema, node);
}

}  // namespace detail

// Registers benchmarks such as "Axpy(alpha=2)/cpu/reference/float32/[1024]": for every kernel that
// is registered at this time, in every configuration that it proposes ("onednn winograd", "onednn
// #1"), every dtype, shape and number of threads ("/threads:2"). All inputs have the same shape;
// options.input_shapes, with one shape for each input, adds a case. Without shapes, uses the inputs
// of the schema's TestInputs. A kernel of another layout gets tensors in that layout; conversions
// are not timed. Counters: FLOP/s, bytes/s, the threads, and with options.peaks the share of the
// machine's peak; the label has the layouts. A kernel that refuses the node reports the reason.
// With
// --benchmark_repetitions, the repetitions of all benchmarks run in a random order, so that a
// machine that becomes slower slows all kernels alike. Call it from main before
// benchmark::Initialize, or from a static initialiser of the file that registers the operator.
// Throws kNotFound and kInvalidArgument like CheckOperator.
//
//   static const bool registered = BenchmarkOperator("Axpy", {{1024}, {1 << 20}});
//   static const bool also = BenchmarkOperator("Conv1", {}, {.input_shapes = {{64, 1024}, {3}}});
inline bool BenchmarkOperator(const std::string& op, const std::vector<Shape>& shapes,
                              const BenchmarkOptions& options = {}) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  detail::CheckTarget target{schema, detail::BenchmarkDef(schema, options), {}};
  target.options.dtypes = options.dtypes;
  target.options.shapes = shapes;
  target.options.input_shapes = options.input_shapes;
  for (DType dtype : target.DTypes()) {
    const auto add = [&](const std::vector<Tensor>& inputs) {
      detail::RegisterBenchmarks(target.def, dtype, inputs, options);
    };
    for (const Shape& shape : shapes) add(target.Random({shape}, dtype, options.seed).inputs);
    if (!options.input_shapes.empty())
      add(target.Random(options.input_shapes, dtype, options.seed).inputs);
    if (!shapes.empty() || !options.input_shapes.empty()) continue;
    const std::vector<Tensor> inputs = schema.MakeTestInputs(dtype, options.seed);
    if (inputs.size() != target.def.inputs().size())
      Throw(ErrorCode::kInvalidArgument, "BenchmarkOperator of ", ToString(target.def),
            " needs shapes: its schema makes no TestInputs");
    add(inputs);
  }
  return true;
}
// Registers benchmarks on the given inputs, which must be on the host. The benchmarks' names have
// the dtype of the first input.
inline bool BenchmarkOperatorOn(const std::string& op, const std::vector<Tensor>& inputs,
                                BenchmarkOptions options = {}) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  options.num_inputs = static_cast<int>(inputs.size());
  detail::RegisterBenchmarks(detail::BenchmarkDef(schema, options),
                             inputs.empty() ? DType::kFloat32 : inputs[0].dtype(), inputs, options);
  return true;
}

}}  // namespace opkit

#endif  // OPKIT_INTEROP_GOOGLE_BENCHMARK_HPP_
