// Defines an operator for the CPU and for CUDA in one file, and runs it on both.
//   nvcc -std=c++20 -O2 -Iinclude examples/20_cuda.cu -o axpy && ./axpy
#include <cstdio>
#include <opkit/backends/cuda/parallel_for.hpp>
#include <opkit/opkit.hpp>

using namespace opkit;

// The body of the loop. nvcc compiles it for the host and for the device.
struct AxpyElement {
  const float *x, *y;
  float* z;
  float alpha;
  OPKIT_HOST_DEVICE void operator()(int64_t i) const { z[i] = alpha * x[i] + y[i]; }
};

template <class Context>
void Axpy(Context& ctx, In<"x", float> x, In<"y", float> y, Out<"z", float> z,
          Attr<"alpha", float> alpha) {
  ParallelFor(ctx, z.size(), AxpyElement{x.data(), y.data(), z.data(), alpha});
}

OPKIT_OP(Axpy)
    .Doc("z = alpha * x + y")
    .SameShape<"x", "y", "z">()
    .Kernel<CPUContext>()
    .Kernel<CUDAContext>();

// Copies the inputs to the device, runs the operator there, and copies its output to the host.
std::vector<float> RunOn(Device device) {
  Tensor x(device), y(device), z;
  Copy(Tensor::From<float>({3}, {1, 2, 3}), &x);
  Copy(Tensor::From<float>({3}, {10, 20, 30}), &y);
  Copy(Invoke("Axpy", {x, y}, {{"alpha", 2.f}})[0], &z);
  return z.ToVector<float>();
}

int main() {
  int wrong = 0;
  for (const Device device : {Device{DeviceType::kCPU, 0}, Device{DeviceType::kCUDA, 0}}) {
    try {
      const std::vector<float> z = RunOn(device);
      for (float value : z) std::printf("%g ", value);
      std::printf("on %s\n", ToString(device).c_str());
      wrong += z != std::vector<float>{12, 24, 36};
    } catch (const Error& error) {  // the machine has no GPU
      std::printf("%s\n", error.what());
    }
  }
  return wrong;
}
