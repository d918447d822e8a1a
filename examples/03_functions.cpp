// An operator made of plain functions, forward and backward: C = alpha * A * B. The same source, in
// the spelling of MXNet's loadable operators, can also live in a shared library.
//   g++ -std=c++20 -Iinclude examples/03_functions.cpp -o gemm && ./gemm
#include <cstdio>
#include <map>
#include <opkit/functions.hpp>

using namespace opkit;
using Attrs = std::map<std::string, std::string>;

// c[n, m] = alpha * a[n, k] * b[k, m]; the steps give the place of element (i, j) of a and b.
void Gemm(const float* a, const float* b, float* c, int64_t n, int64_t k, int64_t m, int64_t a_i,
          int64_t a_l, int64_t b_l, int64_t b_j, float alpha, const OpResource& res) {
  res.parallel_for(n, [=](int64_t i) {
    for (int64_t j = 0; j < m; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += a[i * a_i + l * a_l] * b[l * b_l + j * b_j];
      c[i * m + j] = alpha * sum;
    }
  });
}
float Alpha(const Attrs& attrs) { return attrs.count("alpha") ? std::stof(attrs.at("alpha")) : 1; }

int Forward(Attrs attrs, std::vector<OpTensor> inputs, std::vector<OpTensor> outputs,
            OpResource res) {
  const OpTensor a = inputs[0], b = inputs[1];
  const int64_t n = a.dim(0), k = a.dim(1), m = b.dim(1);
  Gemm(a.data<float>(), b.data<float>(), outputs[0].data<float>(), n, k, m, k, 1, m, 1,
       Alpha(attrs), res);
  return SUCCESS;
}

// The gradient of C, then A, B and C -> dA = alpha * dC * B^T and dB = alpha * A^T * dC.
int Backward(Attrs attrs, std::vector<OpTensor> inputs, std::vector<OpTensor> outputs,
             OpResource res) {
  const OpTensor dc = inputs[0], a = inputs[1], b = inputs[2];
  const int64_t n = a.dim(0), k = a.dim(1), m = b.dim(1);
  Gemm(dc.data<float>(), b.data<float>(), outputs[0].data<float>(), n, m, k, m, 1, 1, m,
       Alpha(attrs), res);
  Gemm(a.data<float>(), dc.data<float>(), outputs[1].data<float>(), k, n, m, 1, k, m, 1,
       Alpha(attrs), res);
  return SUCCESS;
}

int ParseAttrs(Attrs, int* num_in, int* num_out) {
  *num_in = 2;
  *num_out = 1;
  return SUCCESS;
}

int InferShape(Attrs, ShapeVectors& in, ShapeVectors& out) {  // std::vector<std::vector<int64_t>>
  if (in[0].size() != 2 || in[1].size() != 2 || in[0][1] != in[1][0]) {
    OPKIT_ERROR_MSG << "cannot multiply " << in[0] << " by " << in[1];
    return FAIL;
  }
  out[0] = {in[0][0], in[1][1]};
  return SUCCESS;
}

REGISTER_OP(my_gemm)
    .setForward(Forward, "cpu")
    .setBackward(Backward, "cpu")
    .setParseAttrs(ParseAttrs)
    .setInferShape(InferShape)
    .doc("alpha * A * B");

int main() {
  const Tensor a = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = Tensor::From<float>({3, 1}, {1, 0, 2});
  const Tensor c = Invoke("my_gemm", {a, b}, {{"alpha", 2.f}})[0];

  const Tensor dc = Tensor::From<float>({2, 1}, {1, 10});
  const auto grads = Invoke("my_gemm_backward", {dc, a, b, c}, {{"alpha", 2.f}});

  const bool right = c.ToVector<float>() == std::vector<float>{14, 32} &&
                     grads[0].ToVector<float>() == std::vector<float>{2, 0, 4, 20, 0, 40} &&
                     grads[1].ToVector<float>() == std::vector<float>{82, 104, 126};
  std::puts(right ? "right" : "wrong");
  return right ? 0 : 1;
}
