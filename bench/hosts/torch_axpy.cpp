// The peer of the export to PyTorch: the same operator written with PyTorch's own headers.
#include <torch/library.h>

#include <ATen/ATen.h>

namespace {

at::Tensor Axpy(const at::Tensor& x, const at::Tensor& y, double alpha) {
  TORCH_CHECK(
      x.sizes() == y.sizes() && x.scalar_type() == at::kFloat && y.scalar_type() == at::kFloat,
      "wrong inputs");
  const at::Tensor dense_x = x.contiguous(), dense_y = y.contiguous();
  at::Tensor z = at::empty_like(dense_x);
  const float *from_x = dense_x.const_data_ptr<float>(), *from_y = dense_y.const_data_ptr<float>();
  float* to = z.mutable_data_ptr<float>();
  const auto a = static_cast<float>(alpha);
  for (int64_t i = 0; i < z.numel(); ++i) to[i] = a * from_x[i] + from_y[i];
  return z;
}

}  // namespace

TORCH_LIBRARY(bench_peer, library) {
  library.def("Axpy(Tensor x, Tensor y, float alpha=1.) -> Tensor");
}
TORCH_LIBRARY_IMPL(bench_peer, CPU, library) { library.impl("Axpy", &Axpy); }
