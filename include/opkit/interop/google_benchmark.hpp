// Benchmarks of kernels with Google Benchmark: BenchmarkOperator registers a benchmark for every
// kernel, dtype and shape of an operator. Rates are computed from the cost in its schema.
#ifndef OPKIT_INTEROP_GOOGLE_BENCHMARK_HPP_
#define OPKIT_INTEROP_GOOGLE_BENCHMARK_HPP_

#include <benchmark/benchmark.h>

#include "opkit/core/layout_registry.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/check/check_cases.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The options of BenchmarkOperator.
struct BenchmarkOptions {
  Arguments args = {};
  int num_inputs = -1;  // as in CheckOptions
  int num_outputs = -1;
  std::vector<Shape> input_shapes = {};
  std::vector<DType> dtypes = {};  // default: the dtypes of the schema's inputs, or float32
  uint64_t seed = 1;
};

namespace detail {

// The benchmark of one kernel: an operator with its inputs on the kernel's device, in the layouts
// of the first configuration that the kernel proposes.
class KernelBenchmark {
 public:
  KernelBenchmark(const Kernel* kernel, OperatorDef def, std::vector<Tensor> inputs)
      : kernel_(kernel), def_(std::move(def)), inputs_(std::move(inputs)) {
    def_.Device(kernel->device).Backends(kernel->backend);
  }

  void operator()(benchmark::State& state) {
    try {
      Run(state);
    } catch (...) {
      state.SkipWithError(CurrentError().what());
    }
  }

 private:
  void Run(benchmark::State& state) {
    const OpSchema& schema = OpRegistry::Global().GetSchema(def_.type());
    Workspace ws;
    std::vector<TensorInfo> infos;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Tensor* input = ws.CreateTensor(def_.inputs()[i]);
      *input = Tensor(MemoryDevice(def_.device()));
      Copy(inputs_[i], input);
      infos.push_back(TensorInfo::Of(*input));
    }
    const std::optional<KernelConfig> config = FirstProposal(*kernel_, schema, def_, inputs_);
    for (size_t i = 0; config && i < config->input_layouts.size(); ++i) {
      Tensor* input = ws.GetTensor(def_.inputs()[i]);
      *input = ConvertLayout(*input, config->input_layouts[i]);
    }
    // If the kernel refuses the node, this throws: with `.kernel` no other kernel takes its place.
    const auto op =
        CreateOperator(def_, &ws, {.kernel = kernel_, .config = config ? &*config : nullptr});
    op->Run();  // allocates the outputs
    for (auto iteration : state) {
      static_cast<void>(iteration);
      op->Run();
      benchmark::ClobberMemory();
    }
    std::vector<TensorInfo> outputs;
    for (const std::string& name : def_.outputs())
      outputs.push_back(TensorInfo::Of(*ws.GetTensor(name)));
    const OpCost cost = schema.Cost(def_, infos, outputs);
    auto rate = [&](double once) {
      return benchmark::Counter(once, benchmark::Counter::kIsIterationInvariantRate);
    };
    if (cost.flops > 0) state.counters["FLOP/s"] = rate(static_cast<double>(cost.flops));
    state.counters["bytes/s"] =
        rate(static_cast<double>(cost.bytes_read) + static_cast<double>(cost.bytes_written));
    state.counters["threads"] = static_cast<double>(NumThreads());
  }

  const Kernel* kernel_;
  OperatorDef def_;
  std::vector<Tensor> inputs_;
};

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

inline void RegisterKernelBenchmarks(const OpSchema& schema, const OperatorDef& def, DType dtype,
                                     const std::vector<Tensor>& inputs) {
  std::string attributes;
  for (const NamedAttribute& arg : def.args())
    attributes += StrCat(attributes.empty() ? "" : ",", arg.name, "=", arg.value);
  if (!attributes.empty()) attributes = "(" + attributes + ")";
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(schema.name())) {
    const std::string name =
        StrCat(schema.name(), attributes, "/", kernel->device, "/", kernel->backend, "/", dtype,
               inputs.empty() ? "" : "/" + ShapesName(inputs));
    benchmark::RegisterBenchmark(name.c_str(), [runner = KernelBenchmark(kernel, def, inputs)](
                                                   benchmark::State& state) mutable {
      runner(state);
    })->UseRealTime();  // other threads may do the work
  }
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
// is registered at this time, every dtype and every shape. All inputs have the same shape;
// options.input_shapes, with one shape for each input, adds a case. Without shapes, uses the inputs
// of the schema's TestInputs. A kernel of another layout gets tensors in that layout; conversions
// are not timed. Counters: FLOP/s, bytes/s, and the threads of the default pool. A kernel that
// refuses the node reports the reason. Call it from main before benchmark::RunSpecifiedBenchmarks,
// or from a static initialiser of the file that registers the operator. Throws kNotFound and
// kInvalidArgument like CheckOperator.
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
      detail::RegisterKernelBenchmarks(schema, target.def, dtype, inputs);
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
  detail::RegisterKernelBenchmarks(schema, detail::BenchmarkDef(schema, options),
                                   inputs.empty() ? DType::kFloat32 : inputs[0].dtype(), inputs);
  return true;
}

}}  // namespace opkit

#endif  // OPKIT_INTEROP_GOOGLE_BENCHMARK_HPP_
