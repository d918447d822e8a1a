// The product of matrices with its gradient, without a state and with one that counts. With ALONE,
// they and the counters are all that a library has.
#include <stdlib.h>
#include <string.h>

#include "boundary.h"

#ifndef FACTOR
#define FACTOR 1  // by which another library's results differ
#endif
#ifdef LACKS_TYPE
#define GEMM_TYPE NULL  // MXNet requires the function
#else
#define GEMM_TYPE GemmType
#endif

static int GemmType(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes, (void)num_in, (void)num_out;
  for (int i = 0; i < 2; ++i)
    if (in[i] != FLOAT32) return ERROR_MESSAGE("input %d is of another type than float32", i);
  out[0] = FLOAT32;
  return SUCCESS;
}
static int GemmShape(const Attributes* attributes, Shape* in, int num_in, Shape* out, int num_out) {
  (void)attributes, (void)num_in, (void)num_out;
  if (in[0].rank != 2 || in[1].rank != 2)
    return ERROR_MESSAGE("both inputs should be matrices, and have %d and %d axes", in[0].rank,
                         in[1].rank);
  if (in[0].dims[1] != in[1].dims[0])
    return ERROR_MESSAGE("axis 1 of the first input has %u elements, axis 0 of the second has %u",
                         in[0].dims[1], in[1].dims[0]);
  out[0].rank = 2;
  out[0].dims[0] = in[0].dims[0];
  out[0].dims[1] = in[1].dims[1];
  return SUCCESS;
}

// c[n][m] = the product of a[n][k] and b[k][m], either of which may lie transposed in memory.
static void Multiply(const float* a, int transpose_a, const float* b, int transpose_b, float* c,
                     int64_t n, int64_t k, int64_t m) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) {
      float sum = 0;
      for (int64_t x = 0; x < k; ++x)
        sum += a[transpose_a ? x * n + i : i * k + x] * b[transpose_b ? j * k + x : x * m + j];
      c[i * m + j] = sum * FACTOR;
    }
}
static int Gemm(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                int num_out, const Resource* resource) {
  (void)attributes, (void)num_in, (void)num_out, (void)resource;
  Multiply(in[0].data, 0, in[1].data, 0, out[0].data, in[0].shape[0], in[0].shape[1],
           in[1].shape[1]);
  return SUCCESS;
}
// Gets the gradient of the output, both inputs and the output.
static int GemmBackward(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                        int num_out, const Resource* resource) {
  (void)attributes, (void)resource;
  if (num_in != 4 || num_out != 2) return ERROR_MESSAGE("%d inputs of backward", num_in);
  const int64_t n = in[1].shape[0], k = in[1].shape[1], m = in[2].shape[1];
  Multiply(in[0].data, 0, in[2].data, 1, out[0].data, n, m, k);
  Multiply(in[1].data, 1, in[0].data, 0, out[1].data, k, n, m);
  return SUCCESS;
}
const Operator my_gemm = {.name = "my_gemm",
                          .parse = TwoToOne,
                          .type = GEMM_TYPE,
                          .shape = GemmShape,
                          .forward = Gemm,
                          .backward = GemmBackward};

// Its second output is the number of runs of this state so far, after attribute `test_kw`.
static int CountedGemmParse(const Attributes* attributes, int* num_in, int* num_out) {
  (void)attributes;
  *num_in = *num_out = 2;
  return SUCCESS;
}
static int CountedGemmType(const Attributes* attributes, int* in, int num_in, int* out,
                           int num_out) {
  out[1] = INT64;
  return GemmType(attributes, in, num_in, out, num_out);
}
static int CountedGemmShape(const Attributes* attributes, Shape* in, int num_in, Shape* out,
                            int num_out) {
  out[1].rank = 1;
  out[1].dims[0] = 1;
  return GemmShape(attributes, in, num_in, out, num_out);
}
static int CountedGemm(State* state, const Tensor* in, int num_in, Tensor* out, int num_out,
                       const Resource* resource) {
  *(int64_t*)out[1].data = ++state->numbers[0];
  return Gemm(NULL, in, num_in, out, num_out, resource);
}
static int CreateCountedGemm(const Attributes* attributes, const Context* context, State** state) {
  (void)context;
  *state = NewState();
  (*state)->forward = CountedGemm;
  (*state)->numbers[0] = atoll(Get(attributes, "test_kw", "0"));
  return SUCCESS;
}
const Operator state_gemm = {.name = "state_gemm",
                             .parse = CountedGemmParse,
                             .type = CountedGemmType,
                             .shape = CountedGemmShape,
                             .create = CreateCountedGemm};

#ifdef ALONE
const Operator* const library_operators[] = {&my_gemm, &state_gemm, &counters_operator, NULL};
const Partitioner library_partitioners[] = {{.name = NULL}};
const Pass library_passes[] = {{.name = NULL}};
#endif
