// max(x, 0) and its gradient, one source for two devices: g++ compiles it for the CPU, nvcc for the
// CPU and for CUDA.
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -Iinclude examples/library/relu.cc -o librelu.so
//   nvcc -x cu -std=c++20 -O2 -shared -Xcompiler -fPIC,-fno-gnu-unique -Iinclude examples/library/relu.cc -o librelu.so
#include <opkit/op.hpp>

using namespace opkit;

#ifdef __CUDACC__
template <class F>
__global__ void Kernel(int64_t n, F f) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) f(i);
}
#endif

// Calls f(i) for every i in [0, n) on the operator's device.
template <class F>
Status ForEach(int64_t n, OpResource& res, F f) {
#ifdef __CUDACC__
  if (res.device().type == DeviceType::kCUDA) {
    if (n == 0) return SUCCESS;
    constexpr int kThreads = 256;
    const auto blocks = static_cast<unsigned>((n + kThreads - 1) / kThreads);
    Kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(res.stream())>>>(n, f);
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? Status() : Status::Failure(cudaGetErrorString(error));
  }
#endif
  res.parallel_for(n, f);
  return SUCCESS;
}

struct Rectify {  // to[i] = from[i] where x[i] > 0, else 0
  const float *x, *from;
  float* to;
  OPKIT_HOST_DEVICE void operator()(int64_t i) const { to[i] = x[i] > 0 ? from[i] : 0; }
};

Status Forward(const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
               OpResource& res) {
  const float* x = in[0].data<float>();
  return ForEach(in[0].size(), res, Rectify{x, x, out[0].data<float>()});
}
// in: the gradient of y, x, y. out: the gradient of x.
Status Backward(const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                OpResource& res) {
  if (out[0].req() == OpReq::kNone) return SUCCESS;
  return ForEach(in[1].size(), res,
                 Rectify{in[1].data<float>(), in[0].data<float>(), out[0].data<float>()});
}

REGISTER_OP(my_relu)
    .setForward(Forward, "cpu")
    .setBackward(Backward, "cpu")
#ifdef __CUDACC__
    .setForward(Forward, "gpu")
    .setBackward(Backward, "gpu")
#endif
    .setParseAttrs([](const AttrMap&, int* num_in, int* num_out) { *num_in = *num_out = 1; })
    .setInferType([](const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
      in[0] = out[0] = DType::kFloat32;
    })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; })
    .inplace({{0, 0}})
    .doc("max(x, 0).");
