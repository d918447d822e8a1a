// The code that gemm.cc and gemm_stateful.cc share: matrices that are views, and a plain product.
#ifndef OPKIT_EXAMPLES_LIBRARY_GEMM_HPP_
#define OPKIT_EXAMPLES_LIBRARY_GEMM_HPP_

#include <opkit/op.hpp>

struct Matrix {  // element (i, j) is data[i * down + j * across]
  Matrix(const float* dense, int64_t rows, int64_t columns)
      : data(dense), rows(rows), columns(columns), down(columns) {}
  Matrix(const opkit::OpTensor& t) : Matrix(t.data<float>(), t.dim(0), t.dim(1)) {}
  Matrix Transposed() const {
    Matrix t = *this;
    std::swap(t.rows, t.columns);
    std::swap(t.down, t.across);
    return t;
  }
  const float* data;
  int64_t rows, columns, down, across = 1;
};

// to = alpha * a * b, rows in parallel.
inline void Multiply(float alpha, Matrix a, Matrix b, const opkit::OpTensor& to,
                     const opkit::OpResource& res) {
  if (to.req() == opkit::OpReq::kNone) return;  // no consumer
  float* c = to.data<float>();
  res.parallel_for(a.rows, [=](int64_t i) {
    for (int64_t j = 0; j < b.columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < a.columns; ++k)
        sum += a.data[i * a.down + k * a.across] * b.data[k * b.down + j * b.across];
      c[i * b.columns + j] = alpha * sum;
    }
  });
}

#endif  // OPKIT_EXAMPLES_LIBRARY_GEMM_HPP_
