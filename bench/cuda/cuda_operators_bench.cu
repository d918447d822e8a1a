// Standard operators on a CUDA device beside the same work of cuBLASLt, cuDNN and CUB called
// directly, or beside a copy of as many bytes within the device's memory.
#include <benchmark/benchmark.h>
#include <cublasLt.h>

#include <cub/cub.cuh>
#include <functional>
#ifdef OPKIT_BENCH_CUDNN
#include <cudnn.h>
#endif

#include "opkit/backends/cuda/context.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/op/operator.hpp"

namespace {

using namespace opkit;
using benchmark::State;

constexpr Device kCuda0{DeviceType::kCUDA, 0};
constexpr int kBurst = 20;  // runs between two waits for the device
constexpr size_t kWorkspace = size_t{32} << 20;

cudaStream_t Stream() { return CUDAStream::Get(kCuda0, 0).handle(); }
void Wait() { OPKIT_CUDA_CHECK(cudaStreamSynchronize(Stream())); }
void Check(int status, const char* what) {
  if (status != 0) Throw(ErrorCode::kOperatorFailed, what, " returned ", status);
}

// Returns numbers in [-1, 1), on the device.
Tensor Random(const Shape& shape, DType dtype = DType::kFloat32) {
  Tensor host(shape, dtype), out(kCuda0);
  uint32_t state = 1;
  DispatchDType<float, float16, bfloat16, int64_t>(dtype, [&]<class T>() {
    T* data = host.mutable_data<T>();
    for (int64_t i = 0; i < host.numel(); ++i) {
      state = state * 1664525u + 1013904223u;
      const float value = static_cast<float>(state >> 8) / 8388608.f - 1.f;
      data[i] = static_cast<T>(value);
    }
  });
  Copy(host, &out);
  return out;
}
Tensor Empty(const Shape& shape, DType dtype = DType::kFloat32) {
  Tensor out(shape, dtype, kCuda0);
  out.raw_mutable_data();
  return out;
}

// The least work of a run, for the rates in the table.
struct Work {
  double flops = 0;
  double bytes = 0;
};

void Measure(State& state, const Work& work, const std::function<void()>& issue) {
  issue();
  Wait();
  for (auto _ : state) {
    for (int i = 0; i < kBurst; ++i) issue();
    Wait();
  }
  state.SetItemsProcessed(state.iterations() * kBurst);
  if (work.bytes > 0)
    state.SetBytesProcessed(static_cast<int64_t>(work.bytes * kBurst) * state.iterations());
  if (work.flops > 0)
    state.counters["flops"] =
        benchmark::Counter(work.flops * kBurst, benchmark::Counter::kIsIterationInvariantRate);
}

using Function = std::function<void(State&)>;
void Add(const std::string& name, Function run) {
  benchmark::RegisterBenchmark(name.c_str(), [run](State& state) {
    try {
      run(state);
    } catch (const std::exception& error) {
      state.SkipWithError(error.what());
    }
  })->UseRealTime();
}

// An operator of opkit on tensors that `make` makes at the start of the measurement.
struct Case {
  std::string type, label;
  std::function<std::vector<Tensor>()> make;
  std::function<void(OperatorDef&)> attributes = [](OperatorDef&) {};
  Work work;
  int outputs = 1;
};

void RunCase(State& state, const Case& of) {
  Workspace ws;
  std::vector<std::string> inputs, outputs;
  for (const Tensor& tensor : of.make()) {
    inputs.push_back(StrCat("i", inputs.size()));
    *ws.CreateTensor(inputs.back()) = tensor;
  }
  for (int i = 0; i < of.outputs; ++i) outputs.push_back(StrCat("o", i));
  OperatorDef def(of.type, inputs, outputs);
  of.attributes(def);
  const auto op = CreateOperator(def.Device(kCuda0), &ws);
  op->DisableEvent();
  Measure(state, of.work, [&] { op->RunAsync(); });
}

void Add(const Case& of, const char* peer, Function run) {
  Add(StrCat(of.type, "/", of.label), [of](State& state) { RunCase(state, of); });
  if (run) Add(StrCat(peer, of.type, "/", of.label), std::move(run));
}
// The peer copies as many bytes as the operator reads and writes.
void AddBesideMemcpy(const Case& of) {
  Add(of, "Memcpy", [of](State& state) {
    const auto half = static_cast<int64_t>(of.work.bytes / 2);
    const Tensor from = Random(Shape({half / 4}));
    Tensor to = Empty(from.shape());
    Measure(state, of.work, [&] {
      OPKIT_CUDA_CHECK(cudaMemcpyAsync(to.raw_mutable_data(), from.raw_data(),
                                       static_cast<size_t>(half), cudaMemcpyDeviceToDevice,
                                       Stream()));
    });
  });
}

// --- cuBLASLt

cudaDataType_t CudaType(DType dtype) {
  return dtype == DType::kFloat16    ? CUDA_R_16F
         : dtype == DType::kBFloat16 ? CUDA_R_16BF
                                     : CUDA_R_32F;
}

// C = A B for row-major matrices, which cuBLAS sees as C' = B' A'.
void MatMulByCublasLt(State& state, int64_t m, int64_t n, int64_t k, DType dtype,
                      const Work& work) {
  const Tensor a = Random(Shape({m, k}), dtype), b = Random(Shape({k, n}), dtype);
  Tensor c = Empty(Shape({m, n}), dtype);
  Tensor workspace = Empty(Shape({static_cast<int64_t>(kWorkspace)}), DType::kUInt8);
  cublasLtHandle_t handle;
  Check(cublasLtCreate(&handle), "cublasLtCreate");
  cublasLtMatmulDesc_t product;
  Check(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "MatmulDescCreate");
  cublasLtMatrixLayout_t layout_b, layout_a, layout_c;
  const cudaDataType_t type = CudaType(dtype);
  const auto extent = [](int64_t value) { return static_cast<uint64_t>(value); };
  Check(cublasLtMatrixLayoutCreate(&layout_b, type, extent(n), extent(k), n), "LayoutCreate");
  Check(cublasLtMatrixLayoutCreate(&layout_a, type, extent(k), extent(m), k), "LayoutCreate");
  Check(cublasLtMatrixLayoutCreate(&layout_c, type, extent(n), extent(m), n), "LayoutCreate");
  cublasLtMatmulPreference_t preference;
  Check(cublasLtMatmulPreferenceCreate(&preference), "PreferenceCreate");
  Check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspace, sizeof kWorkspace),
        "PreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t best;
  int found = 0;
  Check(cublasLtMatmulAlgoGetHeuristic(handle, product, layout_b, layout_a, layout_c, layout_c,
                                       preference, 1, &best, &found),
        "AlgoGetHeuristic");
  const float one = 1, zero = 0;
  Measure(state, work, [&] {
    Check(cublasLtMatmul(handle, product, &one, b.raw_data(), layout_b, a.raw_data(), layout_a,
                         &zero, c.raw_data(), layout_c, c.raw_mutable_data(), layout_c, &best.algo,
                         workspace.raw_mutable_data(), kWorkspace, Stream()),
          "cublasLtMatmul");
  });
  cublasLtMatmulPreferenceDestroy(preference);
  for (cublasLtMatrixLayout_t layout : {layout_a, layout_b, layout_c})
    cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(product);
  cublasLtDestroy(handle);
}

void AddMatMul(int64_t m, int64_t n, int64_t k, DType dtype) {
  const Work work{2. * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k), 0};
  const auto make = [=] {
    return std::vector<Tensor>{Random(Shape({m, k}), dtype), Random(Shape({k, n}), dtype)};
  };
  Add({"MatMul", StrCat(dtype, "_", m, "x", k, "x", n), make, [](OperatorDef&) {}, work},
      "CublasLt", [=](State& state) { MatMulByCublasLt(state, m, n, k, dtype, work); });
}

// --- cuDNN

#ifdef OPKIT_BENCH_CUDNN
struct Cudnn {
  Cudnn() {
    Check(cudnnCreate(&handle), "cudnnCreate");
    Check(cudnnSetStream(handle, Stream()), "cudnnSetStream");
  }
  ~Cudnn() { cudnnDestroy(handle); }
  cudnnHandle_t handle;
};
struct CudnnTensor {
  explicit CudnnTensor(const Shape& shape) {
    Check(cudnnCreateTensorDescriptor(&descriptor), "cudnnCreateTensorDescriptor");
    const auto extent = [&](int axis) {
      return axis < shape.rank() ? static_cast<int>(shape[axis]) : 1;
    };
    Check(cudnnSetTensor4dDescriptor(descriptor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, extent(0),
                                     extent(1), extent(2), extent(3)),
          "cudnnSetTensor4dDescriptor");
  }
  ~CudnnTensor() { cudnnDestroyTensorDescriptor(descriptor); }
  cudnnTensorDescriptor_t descriptor;
};
constexpr float kOne = 1, kZero = 0;

// Float32 multiplications, as the operator's kernel has them.
void ConvByCudnn(State& state, const Shape& of_x, const Shape& of_w, int pad, const Work& work) {
  const Cudnn cudnn;
  const Shape of_y(
      {of_x[0], of_w[0], of_x[2] + 2 * pad - of_w[2] + 1, of_x[3] + 2 * pad - of_w[3] + 1});
  const Tensor x = Random(of_x), w = Random(of_w);
  Tensor y = Empty(of_y);
  const CudnnTensor x_descriptor(of_x), y_descriptor(of_y);
  cudnnFilterDescriptor_t filter;
  cudnnConvolutionDescriptor_t conv;
  Check(cudnnCreateFilterDescriptor(&filter), "cudnnCreateFilterDescriptor");
  Check(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW,
                                   static_cast<int>(of_w[0]), static_cast<int>(of_w[1]),
                                   static_cast<int>(of_w[2]), static_cast<int>(of_w[3])),
        "cudnnSetFilter4dDescriptor");
  Check(cudnnCreateConvolutionDescriptor(&conv), "cudnnCreateConvolutionDescriptor");
  Check(cudnnSetConvolution2dDescriptor(conv, pad, pad, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                        CUDNN_DATA_FLOAT),
        "cudnnSetConvolution2dDescriptor");
  Check(cudnnSetConvolutionMathType(conv, CUDNN_FMA_MATH), "cudnnSetConvolutionMathType");
  cudnnConvolutionFwdAlgoPerf_t best;
  int found = 0;
  Check(cudnnGetConvolutionForwardAlgorithm_v7(cudnn.handle, x_descriptor.descriptor, filter, conv,
                                               y_descriptor.descriptor, 1, &found, &best),
        "cudnnGetConvolutionForwardAlgorithm_v7");
  size_t bytes = 0;
  Check(cudnnGetConvolutionForwardWorkspaceSize(cudnn.handle, x_descriptor.descriptor, filter, conv,
                                                y_descriptor.descriptor, best.algo, &bytes),
        "cudnnGetConvolutionForwardWorkspaceSize");
  Tensor workspace = Empty(Shape({static_cast<int64_t>(bytes) + 1}), DType::kUInt8);
  Measure(state, work, [&] {
    Check(
        cudnnConvolutionForward(cudnn.handle, &kOne, x_descriptor.descriptor, x.raw_data(), filter,
                                w.raw_data(), conv, best.algo, workspace.raw_mutable_data(), bytes,
                                &kZero, y_descriptor.descriptor, y.raw_mutable_data()),
        "cudnnConvolutionForward");
  });
  cudnnDestroyConvolutionDescriptor(conv);
  cudnnDestroyFilterDescriptor(filter);
}
void SoftmaxByCudnn(State& state, const Shape& shape, const Work& work) {
  const Cudnn cudnn;
  const CudnnTensor descriptor(shape);
  const Tensor x = Random(shape);
  Tensor y = Empty(shape);
  Measure(state, work, [&] {
    Check(cudnnSoftmaxForward(cudnn.handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL,
                              &kOne, descriptor.descriptor, x.raw_data(), &kZero,
                              descriptor.descriptor, y.raw_mutable_data()),
          "cudnnSoftmaxForward");
  });
}
// Windows of 2 by 2, side by side.
void MaxPoolByCudnn(State& state, const Shape& shape, const Work& work) {
  const Cudnn cudnn;
  const Shape of_y({shape[0], shape[1], shape[2] / 2, shape[3] / 2});
  const CudnnTensor x_descriptor(shape), y_descriptor(of_y);
  const Tensor x = Random(shape);
  Tensor y = Empty(of_y);
  cudnnPoolingDescriptor_t pooling;
  Check(cudnnCreatePoolingDescriptor(&pooling), "cudnnCreatePoolingDescriptor");
  Check(cudnnSetPooling2dDescriptor(pooling, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0,
                                    2, 2),
        "cudnnSetPooling2dDescriptor");
  Measure(state, work, [&] {
    Check(cudnnPoolingForward(cudnn.handle, pooling, &kOne, x_descriptor.descriptor, x.raw_data(),
                              &kZero, y_descriptor.descriptor, y.raw_mutable_data()),
          "cudnnPoolingForward");
  });
  cudnnDestroyPoolingDescriptor(pooling);
}
#else
void ConvByCudnn(State& state, const Shape&, const Shape&, int, const Work&) {
  state.SkipWithError("there is no cuDNN in the toolkit");
}
void SoftmaxByCudnn(State& state, const Shape&, const Work&) {
  state.SkipWithError("there is no cuDNN in the toolkit");
}
void MaxPoolByCudnn(State& state, const Shape&, const Work&) {
  state.SkipWithError("there is no cuDNN in the toolkit");
}
#endif

void AddConv(const Shape& x, const Shape& w, int pad) {
  const double positions = static_cast<double>(x[0]) *
                           static_cast<double>(x[2] + 2 * pad - w[2] + 1) *
                           static_cast<double>(x[3] + 2 * pad - w[3] + 1);
  const Work work{2. * positions * static_cast<double>(w.numel()), 0};
  const auto attributes = [pad](OperatorDef& def) {
    def.Arg("pads", std::vector<int64_t>(4, pad));
  };
  Add({"Conv", StrCat("f32_", x[0], "x", x[1], "x", x[2], "_to_", w[0], "_", w[2], "x", w[3]),
       [=] {
         return std::vector<Tensor>{Random(x), Random(w)};
       },
       attributes, work},
      "Cudnn", [=](State& state) { ConvByCudnn(state, x, w, pad, work); });
}

// --- CUB

// Calls a function of CUB twice: for the size of its workspace, and to prepare the measurement.
template <class Call>
void MeasureCub(State& state, const Work& work, Call call) {
  size_t bytes = 0;
  OPKIT_CUDA_CHECK(call(nullptr, bytes));
  Tensor workspace = Empty(Shape({static_cast<int64_t>(bytes) + 1}), DType::kUInt8);
  Measure(state, work, [&] { OPKIT_CUDA_CHECK(call(workspace.raw_mutable_data(), bytes)); });
}

void AddReductions(int64_t rows, int64_t columns) {
  const int64_t n = rows * columns;
  const Work work{0, 4. * static_cast<double>(n)};
  const Tensor axes = Tensor::From<int64_t>({1}, {1});
  Add({"ReduceSum", StrCat("f32_", rows, "x", columns),
       [=] {
         return std::vector<Tensor>{Random(Shape({rows, columns})), axes};
       },
       [](OperatorDef&) {}, work},
      "Cub", [=](State& state) {
        const Tensor x = Random(Shape({rows, columns}));
        Tensor y = Empty(Shape({rows}));
        std::vector<int64_t> ends(static_cast<size_t>(rows) + 1);
        for (size_t row = 0; row < ends.size(); ++row)
          ends[row] = static_cast<int64_t>(row) * columns;
        Tensor offsets(kCuda0);
        Copy(Tensor::From<int64_t>({rows + 1}, ends), &offsets);
        const int64_t* begin = offsets.data<int64_t>();
        MeasureCub(state, work, [&](void* workspace, size_t& bytes) {
          return cub::DeviceSegmentedReduce::Sum(workspace, bytes, x.data<float>(),
                                                 y.mutable_data<float>(), static_cast<int>(rows),
                                                 begin, begin + 1, Stream());
        });
      });
}
void AddCumSum(int64_t n) {
  const Work work{0, 8. * static_cast<double>(n)};
  const Tensor axis = Tensor::Scalar<int64_t>(0);
  Add({"CumSum", StrCat("f32_", n),
       [=] {
         return std::vector<Tensor>{Random(Shape({n})), axis};
       },
       [](OperatorDef&) {}, work},
      "Cub", [=](State& state) {
        const Tensor x = Random(Shape({n}));
        Tensor y = Empty(Shape({n}));
        MeasureCub(state, work, [&](void* workspace, size_t& bytes) {
          return cub::DeviceScan::InclusiveSum(workspace, bytes, x.data<float>(),
                                               y.mutable_data<float>(), static_cast<int>(n),
                                               Stream());
        });
      });
}

// --- operators that move bytes

void AddElementwise() {
  constexpr int64_t kSide = 4096, kCount = kSide * kSide;
  constexpr double kBytes = 4. * kCount;
  const Shape flat({kCount}), square({kSide, kSide});
  const auto none = [](OperatorDef&) {};
  const auto one = [=] { return std::vector<Tensor>{Random(square)}; };
  const auto two = [=] { return std::vector<Tensor>{Random(square), Random(square)}; };
  for (const char* type : {"Relu", "Sigmoid", "Tanh", "Erf", "Gelu", "Exp"})
    AddBesideMemcpy({type, "f32_16M", one, none, {0, 2 * kBytes}});
  for (const char* type : {"Add", "Mul"})
    AddBesideMemcpy({type, "f32_16M", two, none, {0, 3 * kBytes}});
  AddBesideMemcpy({"Add",
                   "f32_16M_and_a_row",
                   [=] {
                     return std::vector<Tensor>{Random(square), Random(Shape({kSide}))};
                   },
                   none,
                   {0, 2 * kBytes}});
  AddBesideMemcpy({"Cast",
                   "f32_to_f16_16M",
                   one,
                   [](OperatorDef& def) { def.Arg("to", 10); },  // ONNX's number of float16
                   {0, 1.5 * kBytes}});
  AddBesideMemcpy({"Transpose",
                   "f32_4096x4096",
                   one,
                   [](OperatorDef& def) {
                     def.Arg("perm", std::vector<int64_t>{1, 0});
                   },
                   {0, 2 * kBytes}});
  AddBesideMemcpy({"Concat",
                   "f32_two_of_16M",
                   two,
                   [](OperatorDef& def) { def.Arg("axis", 1); },
                   {0, 4 * kBytes}});
  AddBesideMemcpy(
      {"LayerNormalization",
       "f32_4096x4096",
       [=] {
         return std::vector<Tensor>{Random(square), Random(Shape({kSide})), Random(Shape({kSide}))};
       },
       none,
       {0, 2 * kBytes}});
  AddBesideMemcpy({"Gather",
                   "f32_4096_rows_of_4096",
                   [=] {
                     std::vector<int64_t> rows(kSide);
                     for (int64_t i = 0; i < kSide; ++i)
                       rows[static_cast<size_t>(i)] = i * 1237 % kSide;
                     Tensor indices(kCuda0);
                     Copy(Tensor::From<int64_t>({kSide}, rows), &indices);
                     return std::vector<Tensor>{Random(square), indices};
                   },
                   none,
                   {0, 2 * kBytes}});
}

void AddAll() {
  for (const int64_t n : {64, 1024, 4096}) AddMatMul(n, n, n, DType::kFloat32);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16})
    for (const int64_t n : {1024, 8192}) AddMatMul(n, n, n, dtype);
  AddMatMul(1, 4096, 4096, DType::kFloat16);
  for (const int64_t batch : {1, 16}) {
    AddConv(Shape({batch, 64, 56, 56}), Shape({64, 64, 3, 3}), 1);
    AddConv(Shape({batch, 256, 28, 28}), Shape({256, 256, 1, 1}), 0);
  }
  for (const Shape& shape : {Shape({4096, 1024}), Shape({64, 50000})}) {
    const Work work{0, 8. * static_cast<double>(shape.numel())};
    Add({"Softmax", StrCat("f32_", shape[0], "x", shape[1]),
         [=] { return std::vector<Tensor>{Random(shape)}; }, [](OperatorDef&) {}, work},
        "Cudnn", [=](State& state) { SoftmaxByCudnn(state, shape, work); });
  }
  const Shape picture({16, 64, 112, 112});
  const Work pooled{0, 5. * static_cast<double>(picture.numel())};
  Add({"MaxPool", "f32_16x64x112x112", [=] { return std::vector<Tensor>{Random(picture)}; },
       [](OperatorDef& def) {
         def.Arg("kernel_shape", std::vector<int64_t>{2, 2})
             .Arg("strides", std::vector<int64_t>{2, 2});
       },
       pooled},
      "Cudnn", [=](State& state) { MaxPoolByCudnn(state, picture, pooled); });
  AddReductions(4096, 4096);
  AddReductions(64, int64_t{1} << 18);
  AddReductions(int64_t{1} << 18, 64);
  AddCumSum(int64_t{1} << 24);
  AddElementwise();
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (CUDADeviceCount() == 0) {
    std::puts("not measured: no CUDA device");
    return 0;
  }
  AddAll();
  benchmark::RunSpecifiedBenchmarks();
}
