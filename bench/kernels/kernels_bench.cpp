// Kernels through the toolkit beside direct calls of the kernel's library: matrix products, the
// convolutions of ResNet-50 and MobileNet, an LSTM, on 1 and 2 threads. Both sides take turns: call
// by call on one thread, with a pause between on two. They share their memory, because its place
// costs a kernel up to a tenth. `ratio` is the median of the pairs' ratios, with the 95 % interval
// `low` to `high`. `extra_ns` is the median of the pairs' differences. `of_peak` is the toolkit's
// share of the machine's peak rate (MachinePeak). `met` is 1 if the interval reaches 1.02 or, below
// 10 us, if the difference is at most 100 ns. On 2 threads the direct oneDNN call uses OpenMP's
// threads, and the direct Eigen call runs in two halves. Rows "Least" compare two kernels of the
// toolkit, oneDNN's with Eigen's: kOnednnLeastFlops is the work at which the ratio falls below 1
// (backends/onednn/backend.hpp). In rows "InBlocks" the oneDNN kernel works in blocks of channels.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "opkit/core/layout_registry.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "opkit/profile/machine_peak.hpp"
#ifdef OPKIT_BENCH_EIGEN
#include <Eigen/Core>
#endif
#ifdef OPKIT_BENCH_ONEDNN
#include "opkit/backends/onednn/layout.hpp"
#endif

namespace {

using namespace opkit;
using Ints = std::vector<int64_t>;
using Call = std::function<void()>;

Tensor Random(const Shape& shape) {
  Tensor out(shape, DType::kFloat32);
  uint32_t state = 1;
  for (int64_t i = 0; i < out.numel(); ++i) {
    state = state * 1664525 + 1013904223;
    out.mutable_data<float>()[i] = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
  }
  return out;
}

// A node with its operator, bound to these inputs in its kernel's layouts. The inputs from the
// second on are constants.
struct Node {
  Workspace workspace;
  std::unique_ptr<OperatorBase> op;
  std::vector<Tensor> inputs;

  Node(OperatorDef def, const std::string& backend, std::vector<Tensor> given,
       std::vector<Layout> layouts = {})
      : inputs(std::move(given)) {
    def.Backends(backend, kRequired);
    std::vector<TensorInfo> infos;
    for (size_t i = 0; i < inputs.size(); ++i) {
      def.Input("i" + std::to_string(i));
      if (i < layouts.size()) inputs[i] = ConvertLayout(inputs[i], layouts[i]);
      infos.push_back(i > 0 ? TensorInfo::OfConstant(inputs[i]) : TensorInfo::Of(inputs[i]));
      *workspace.CreateTensor(def.inputs().back()) = inputs[i];
    }
    def.Output("y");
    const auto outputs = OpRegistry::Global().GetSchema(def.type()).InferOutputs(def, infos);
    KernelCandidate chosen;
    op = CreateSelected(def, &workspace, infos, outputs, {.converts = true}, &chosen);
    for (size_t i = 0; i < chosen.config.input_layouts.size(); ++i)
      *workspace.GetTensor(def.inputs()[i]) =
          ConvertLayout(inputs[i], chosen.config.input_layouts[i]);
    op->Run();
  }
  // Returns the output. Every run writes to its memory.
  Tensor& output() const { return *workspace.GetTensor("y"); }
  const Tensor& tensor(const std::string& name) const { return *workspace.GetTensor(name); }
};

// The two sides of a comparison for a number of threads, and the work of a call.
struct Pair {
  Call ours, direct;
  double flops = 0, bytes = 0;
};
using MakePair = std::function<Pair(int threads)>;

double Seconds(const Call& call, int64_t times) {
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < times; ++i) call();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / static_cast<double>(times);
}
double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void Measure(benchmark::State& state, const MakePair& make, int threads) {
  ThreadPool pool(threads);
  const PoolScope scope(pool);
  Pair pair;
  try {
    pair = make(threads);
  } catch (const Error& error) {
    state.SkipWithError(error.message().c_str());
    return;
  }
  // Short calls are repeated, so that the cost of the clock and of the pauses between samples
  // vanishes.
  const double least = threads > 1 ? 2e-3 : 50e-6;
  Seconds(pair.ours, 3);
  Seconds(pair.direct, 3);
  const auto times = static_cast<int64_t>(least / Seconds(pair.ours, 3)) + 1;
  constexpr double kSeconds = 0.2;
  constexpr size_t kPairs = 31;  // at least: fewer pairs leave the interval wide
  // After a call OpenMP's threads spin for some 10 ms, on the cores that the toolkit's threads
  // need.
  const auto sample = [&](const Call& call) {
    if (threads > 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      Seconds(call, times);
    }
    return Seconds(call, times);
  };
  std::vector<double> ratios, differences, ours, direct;
  for (double spent = 0; spent < kSeconds || ratios.size() < kPairs;) {
    double mine = 0, theirs = 0;
    const bool first = ratios.size() % 2 == 0;
    if (first) mine = sample(pair.ours);
    theirs = sample(pair.direct);
    if (!first) mine = sample(pair.ours);
    ratios.push_back(mine / theirs);
    differences.push_back(mine - theirs);
    ours.push_back(mine);
    direct.push_back(theirs);
    spent += (mine + theirs) * static_cast<double>(times);
  }
  for (auto _ : state) state.SetIterationTime(Median(ours));
  // The order statistics that enclose the median with 95 % confidence, by the sign test.
  std::ranges::sort(ratios);
  const auto count = static_cast<double>(ratios.size());
  const auto at = [&](double place) {
    return ratios[static_cast<size_t>(std::clamp(place, 0.0, count - 1))];
  };
  const double half = 0.98 * std::sqrt(count);
  static std::map<int, MachineRates> peaks;
  if (!peaks.contains(threads)) peaks[threads] = MachinePeak(threads);
  const double mine = Median(ours), extra = Median(differences);
  const auto share = [&](double seconds) {
    return peaks[threads]
        .ShareOf(pair.flops, pair.bytes, pair.bytes, static_cast<int64_t>(seconds * 1e9))
        .share;
  };
  const double low = at(count / 2 - half);
  state.counters["ratio"] = at(count / 2);
  state.counters["low"] = low;
  state.counters["high"] = at(count / 2 + half);
  state.counters["direct_ns"] = Median(direct) * 1e9;
  state.counters["extra_ns"] = extra * 1e9;
  state.counters["of_peak"] = share(mine);
  state.counters["direct_of_peak"] = share(Median(direct));
  state.counters["met"] = low <= 1.02 || (mine < 10e-6 && extra <= 100e-9);
}
void Register(const std::string& name, const MakePair& make) {
  for (const int threads : {1, 2})
    benchmark::RegisterBenchmark((name + "/" + std::to_string(threads)).c_str(),
                                 [=](benchmark::State& state) { Measure(state, make, threads); })
        ->UseManualTime()
        ->Iterations(1);
}

double Bytes(std::initializer_list<int64_t> elements) {
  double sum = 0;
  for (const int64_t count : elements) sum += 4 * static_cast<double>(count);
  return sum;
}

#ifdef OPKIT_BENCH_EIGEN
Pair EigenProduct(int64_t n, int threads) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Tensor a = Random({n, n}), b = Random({n, n});
  auto node = std::make_shared<Node>(OperatorDef("MatMul"), "eigen", std::vector<Tensor>{a, b});
  return {[node] { node->op->Run(); },
          [=] {
            const Eigen::Map<const Matrix> left(a.data<float>(), n, n),
                right(b.data<float>(), n, n);
            Eigen::Map<Matrix> y(node->output().mutable_data<float>(), n, n);
            if (threads == 1) {
              y.noalias() = left * right;
              return;
            }
            ParallelForRange(threads, 1, [&](int64_t begin, int64_t end) {
              const int64_t first = n * begin / threads, rows = n * end / threads - first;
              y.middleRows(first, rows).noalias() = left.middleRows(first, rows) * right;
            });
          },
          2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n),
          Bytes({3 * n * n})};
}
#endif

#ifdef OPKIT_BENCH_ONEDNN
using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

Desc Any(const Dims& extents) {
  return {extents, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
}
// A primitive with its memories, run as by a program without the toolkit, on OpenMP's threads.
struct Direct {
  dnnl::primitive primitive;
  std::vector<dnnl::memory> memories;
  std::vector<dnnl_exec_arg_t> arguments;
  int threads;

  Direct(const dnnl::primitive& made, int omp_threads) : primitive(made), threads(omp_threads) {}
  // Uses the node's memory if it has the size of `desc`, else other memory.
  void Add(int kind, const Desc& desc, const Tensor& of_node) {
    if (LayoutBytes(of_node.layout(), of_node.shape(), of_node.dtype()) ==
        static_cast<int64_t>(desc.get_size())) {
      memories.emplace_back(desc, detail::OnednnEngine(), of_node.raw_mutable_data());
    } else {
      memories.emplace_back(desc, detail::OnednnEngine());
      std::fill_n(static_cast<float*>(memories.back().get_data_handle()), desc.get_size() / 4,
                  0.5f);
    }
    arguments.push_back({kind, memories.back().get()});
  }
  void Run() const {
    if (const auto& openmp = detail::OpenMp::Global(); openmp.set_num_threads)
      openmp.set_num_threads(threads);
    dnnl_primitive_execute(primitive.get(), detail::OnednnStream().get(),
                           static_cast<int>(arguments.size()), arguments.data());
  }
};
// A primitive is made for the number of threads at its creation.
void SetOpenMpThreads(int threads) {
  if (const auto& openmp = detail::OpenMp::Global(); openmp.set_num_threads)
    openmp.set_num_threads(threads);
}

Pair OnednnProductPair(int64_t m, int64_t k, int64_t n, int threads) {
  auto node = std::make_shared<Node>(OperatorDef("MatMul"), "onednn",
                                     std::vector<Tensor>{Random({m, k}), Random({k, n})});
  SetOpenMpThreads(threads);
  const dnnl::matmul::primitive_desc kernel(detail::OnednnEngine(), detail::RowMajorDesc({m, k}),
                                            Any({k, n}), detail::RowMajorDesc({m, n}));
  auto direct = std::make_shared<Direct>(dnnl::matmul(kernel), threads);
  direct->Add(DNNL_ARG_SRC, kernel.src_desc(), node->tensor("i0"));
  direct->Add(DNNL_ARG_WEIGHTS, kernel.weights_desc(), node->tensor("i1"));
  direct->Add(DNNL_ARG_DST, kernel.dst_desc(), node->output());
  return {[node] { node->op->Run(); }, [direct] { direct->Run(); },
          2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n),
          Bytes({m * k, k * n, m * n})};
}
// Runs the same node by both backends. The peer is Eigen's kernel, which has only the standard
// layout.
Pair Least(const OperatorDef& def, const std::vector<Tensor>& inputs, double flops,
           const std::vector<Layout>& layouts = {}) {
  auto onednn = std::make_shared<Node>(def, "onednn", inputs, layouts);
  auto eigen = std::make_shared<Node>(def, "eigen", inputs);
  return {[onednn] { onednn->op->Run(); }, [eigen] { eigen->op->Run(); }, flops, 0};
}
// Square images of `size` pixels a side, in blocks as long as vectors. The pads keep their size.
Pair Convolution(int64_t channels, int64_t outputs, int64_t size, int64_t kernel, int64_t stride,
                 bool depthwise, int threads) {
  const int64_t block = detail::OnednnLanes();
  const int64_t groups = depthwise ? channels : 1, pad = kernel / 2;
  const Shape x{1, channels, size, size};
  const int64_t side = (size + 2 * pad - kernel) / stride + 1;
  auto node = std::make_shared<Node>(
      OperatorDef("Conv", {}, {},
                  {{"group", groups}, {"pads", Ints(4, pad)}, {"strides", Ints(2, stride)}}),
      "onednn",
      std::vector<Tensor>{Random(x), Random({outputs, channels / groups, kernel, kernel})},
      std::vector<Layout>{detail::OnednnBlocked(x, block)});
  const Dims weights =
      depthwise ? Dims{groups, 1, 1, kernel, kernel} : Dims{outputs, channels, kernel, kernel};
  SetOpenMpThreads(threads);
  const dnnl::convolution_forward::primitive_desc made(
      detail::OnednnEngine(), dnnl::prop_kind::forward_inference,
      dnnl::algorithm::convolution_direct, detail::BlockedDesc(detail::OnednnDims(x), block),
      Any(weights), detail::BlockedDesc({1, outputs, side, side}, block), {stride, stride},
      {pad, pad}, {pad, pad});
  auto direct = std::make_shared<Direct>(dnnl::convolution_forward(made), threads);
  direct->Add(DNNL_ARG_SRC, made.src_desc(), node->tensor("i0"));
  direct->Add(DNNL_ARG_WEIGHTS, made.weights_desc(), node->tensor("i1"));
  direct->Add(DNNL_ARG_DST, made.dst_desc(), node->output());
  const int64_t count = outputs * channels / groups * kernel * kernel;
  return {[node] { node->op->Run(); }, [direct] { direct->Run(); },
          2.0 * static_cast<double>(count) * static_cast<double>(side * side),
          Bytes({x.numel(), count, outputs * side * side})};
}
Pair Lstm(int64_t steps, int64_t batch, int64_t input, int64_t hidden, int threads) {
  auto node = std::make_shared<Node>(
      OperatorDef("LSTM", {}, {}, {{"hidden_size", hidden}}), "onednn",
      std::vector<Tensor>{Random({steps, batch, input}), Random({1, 4 * hidden, input}),
                          Random({1, 4 * hidden, hidden}), Random({1, 8 * hidden})});
  SetOpenMpThreads(threads);
  using Tag = dnnl::memory::format_tag;
  const auto f32 = dnnl::memory::data_type::f32;
  const Desc none;
  const dnnl::lstm_forward::primitive_desc made(
      detail::OnednnEngine(), dnnl::prop_kind::forward_inference,
      dnnl::rnn_direction::unidirectional_left2right, Desc({steps, batch, input}, f32, Tag::tnc),
      none, none, Any({1, 1, input, 4, hidden}), Any({1, 1, hidden, 4, hidden}),
      Desc({1, 1, 4, hidden}, f32, Tag::ldgo), Desc({steps, batch, hidden}, f32, Tag::tnc), none,
      none);
  auto direct = std::make_shared<Direct>(dnnl::lstm_forward(made), threads);
  direct->Add(DNNL_ARG_SRC_LAYER, made.src_layer_desc(), node->tensor("i0"));
  direct->Add(DNNL_ARG_WEIGHTS_LAYER, made.weights_layer_desc(), node->tensor("i1"));
  direct->Add(DNNL_ARG_WEIGHTS_ITER, made.weights_iter_desc(), node->tensor("i2"));
  direct->Add(DNNL_ARG_BIAS, made.bias_desc(), node->tensor("i3"));
  direct->Add(DNNL_ARG_DST_LAYER, made.dst_layer_desc(), node->output());
  const int64_t weights = 4 * hidden * (input + hidden);
  return {[node] { node->op->Run(); }, [direct] { direct->Run(); },
          2.0 * static_cast<double>(weights * steps * batch),
          Bytes({steps * batch * (input + hidden), weights})};
}
#endif

const bool registered = [] {
#ifdef OPKIT_BENCH_EIGEN
  for (const int64_t n : {64, 128, 256, 512, 1024, 2048})
    Register("EigenGemm/" + std::to_string(n),
             [=](int threads) { return EigenProduct(n, threads); });
#endif
#ifdef OPKIT_BENCH_ONEDNN
  for (const int64_t n : {64, 128, 256, 512, 1024, 2048})
    Register("OnednnGemm/" + std::to_string(n),
             [=](int threads) { return OnednnProductPair(n, n, n, threads); });
  const auto convolution = [](const char* net, int64_t channels, int64_t outputs, int64_t size,
                              int64_t kernel, int64_t stride, bool depthwise) {
    Register(std::string(net) + "/" + std::to_string(channels) + "x" + std::to_string(outputs) +
                 "@" + std::to_string(size),
             [=](int threads) {
               return Convolution(channels, outputs, size, kernel, stride, depthwise, threads);
             });
  };
  for (const auto& [channels, size] :
       {std::pair<int64_t, int64_t>{64, 56}, {128, 28}, {256, 14}, {512, 7}})
    convolution("ResNet3x3", channels, channels, size, 3, 1, false);
  convolution("ResNet1x1", 64, 256, 56, 1, 1, false);
  convolution("ResNet1x1", 256, 64, 56, 1, 1, false);
  convolution("ResNet1x1", 512, 128, 28, 1, 1, false);
  convolution("ResNet1x1", 1024, 256, 14, 1, 1, false);
  convolution("ResNet1x1", 2048, 512, 7, 1, 1, false);
  for (const auto& [channels, size] :
       {std::pair<int64_t, int64_t>{32, 112}, {144, 56}, {192, 28}, {384, 14}, {960, 7}})
    convolution("MobileNetDepthwise", channels, channels, size, 3, 1, true);
  for (const int64_t n : {24, 32, 40, 48, 64}) {
    const auto flops = 2.0 * static_cast<double>(n * n * n);
    Register("LeastMatMul/" + std::to_string(n), [=](int) {
      return Least(OperatorDef("MatMul"), {Random({n, n}), Random({n, n})}, flops);
    });
    Register("LeastPointwise/" + std::to_string(n), [=](int) {
      return Least(OperatorDef("Conv"), {Random({1, n, n, 1}), Random({n, n, 1, 1})}, flops);
    });
  }
  for (const int64_t rows : {10, 40, 160, 640}) {
    const double elements = static_cast<double>(rows) * 256;
    Register("LeastSoftmax/" + std::to_string(rows), [=](int) {
      return Least(OperatorDef("Softmax"), {Random({rows, 256})}, 16 * elements);
    });
    Register("LeastLayerNormalization/" + std::to_string(rows), [=](int) {
      return Least(OperatorDef("LayerNormalization"),
                   {Random({rows, 256}), Random(Shape{256}), Random(Shape{256})}, 8 * elements);
    });
  }
  for (const char* op : {"ReduceSum", "ReduceMean"})
    for (const int64_t rows : {10, 160, 2560})
      Register("Least" + std::string(op) + "/" + std::to_string(rows), [=](int) {
        return Least(OperatorDef(op), {Random({rows, 256}), Tensor::From<int64_t>({1}, {1})},
                     static_cast<double>(rows) * 256);
      });
  for (const char* op : {"ReduceMean", "ReduceMax", "ReduceL1", "ReduceL2"})
    for (const auto& [channels, size] : {std::pair<int64_t, int64_t>{512, 7}, {64, 56}}) {
      const Shape x{1, channels, size, size};
      Register("InBlocks" + std::string(op) + "/" + std::to_string(channels) + "@" +
                   std::to_string(size),
               [=](int) {
                 return Least(OperatorDef(op), {Random(x), Tensor::From<int64_t>({2}, {2, 3})},
                              static_cast<double>(x.numel()),
                              {detail::OnednnBlocked(x, detail::OnednnLanes())});
               });
    }
  for (const int64_t batch : {1, 16})
    Register("LeastLstm/" + std::to_string(batch), [=](int) {
      constexpr int64_t kSteps = 32, kHidden = 128;
      return Least(OperatorDef("LSTM", {}, {}, {{"hidden_size", kHidden}}),
                   {Random({kSteps, batch, kHidden}), Random({1, 4 * kHidden, kHidden}),
                    Random({1, 4 * kHidden, kHidden}), Random({1, 8 * kHidden})},
                   16.0 * static_cast<double>(kHidden * kHidden * kSteps * batch));
    });
  Register("Lstm/1x128", [](int threads) { return Lstm(32, 1, 128, 128, threads); });
  Register("Lstm/16x256", [](int threads) { return Lstm(32, 16, 256, 256, threads); });
#endif
  return true;
}();

}  // namespace
