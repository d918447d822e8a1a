// Operators of sparse matrices. The host makes the memory of a sparse output when the operator says
// how many elements it has.
#include <stdlib.h>
#include <string.h>

#include "boundary.h"

// Accepts inputs of one storage, and gives out the same.
static int OnlyCsr(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes, (void)num_in, (void)num_out;
  if (in[0] != CSR) return ERROR_MESSAGE("input 0 should be CSR");
  out[0] = CSR;
  return SUCCESS;
}
static int OnlyRowSparse(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes, (void)num_in, (void)num_out;
  if (in[0] != ROW_SPARSE) return ERROR_MESSAGE("input 0 should be row-sparse");
  out[0] = ROW_SPARSE;
  return SUCCESS;
}
static int AnyStorage(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes, (void)num_in;
  for (int i = 0; i < num_out; ++i) out[i] = in[0];
  return SUCCESS;
}
static int Float32(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes, (void)num_in, (void)num_out;
  if (in[0] != FLOAT32) return ERROR_MESSAGE("input 0 is of another type than float32");
  out[0] = FLOAT32;
  return SUCCESS;
}
static int Transposed(const Attributes* attributes, Shape* in, int num_in, Shape* out,
                      int num_out) {
  (void)attributes, (void)num_in, (void)num_out;
  if (in[0].rank != 2) return ERROR_MESSAGE("the input should be a matrix");
  out[0].rank = 2;
  out[0].dims[0] = in[0].dims[1];
  out[0].dims[1] = in[0].dims[0];
  return SUCCESS;
}

static int TransposeCsr(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                        int num_out, const Resource* resource) {
  (void)attributes, (void)num_in, (void)num_out;
  const Tensor* x = &in[0];
  const int64_t rows = x->shape[0], columns = x->shape[1];
  float* data = NULL;
  int64_t *indices = NULL, *indptr = NULL;
  if (x->storage != CSR || out[0].storage != CSR) return ERROR_MESSAGE("this is not CSR");
  if (x->num_indptr != rows + 1) return ERROR_MESSAGE("indptr has another size");
  resource->sparse_malloc(resource->sparse_alloc, 0, (int)x->num_indices, (int)columns + 1,
                          (void**)&data, &indices, &indptr);
  int64_t n = 0;
  indptr[0] = 0;
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = x->indptr[row]; i < x->indptr[row + 1]; ++i)
        if (x->indices[i] == column) {
          data[n] = ((const float*)x->data)[i];
          indices[n++] = row;
        }
    indptr[column + 1] = n;
  }
  return SUCCESS;
}
static int StateTransposeCsr(State* state, const Tensor* in, int num_in, Tensor* out, int num_out,
                             const Resource* resource) {
  (void)state;
  return TransposeCsr(NULL, in, num_in, out, num_out, resource);
}
static int CreateTranspose(const Attributes* attributes, const Context* context, State** state) {
  (void)attributes, (void)context;
  *state = NewState();
  (*state)->forward = StateTransposeCsr;
  return SUCCESS;
}
const Operator my_transposecsr = {.name = "my_transposecsr",
                                  .parse = OneToOne,
                                  .type = Float32,
                                  .storage = OnlyCsr,
                                  .shape = Transposed,
                                  .forward = TransposeCsr};
const Operator my_state_transposecsr = {.name = "my_state_transposecsr",
                                        .parse = OneToOne,
                                        .type = Float32,
                                        .storage = OnlyCsr,
                                        .shape = Transposed,
                                        .create = CreateTranspose};

// A row-sparse tensor has the rows that `indices` names; the others are zero.
static int TransposeRowSparse(const Attributes* attributes, const Tensor* in, int num_in,
                              Tensor* out, int num_out, const Resource* resource) {
  (void)attributes, (void)num_in, (void)num_out;
  const Tensor* x = &in[0];
  const int64_t rows = x->shape[0], columns = x->shape[1];
  if (x->storage != ROW_SPARSE || out[0].storage != ROW_SPARSE)
    return ERROR_MESSAGE("this is not row-sparse");
  char* used = calloc((size_t)columns, 1);
  int count = 0;
  for (int64_t k = 0; k < x->num_indices; ++k)
    for (int64_t c = 0; c < columns; ++c)
      if (((const float*)x->data)[k * columns + c] != 0 && !used[c]) used[c] = 1, ++count;
  float* data = NULL;
  int64_t *indices = NULL, *indptr = NULL;
  resource->sparse_malloc(resource->sparse_alloc, 0, count, 0, (void**)&data, &indices, &indptr);
  memset(data, 0, (size_t)(count * rows) * sizeof(float));
  for (int64_t c = 0, n = 0; c < columns; ++c) {
    if (!used[c]) continue;
    for (int64_t k = 0; k < x->num_indices; ++k)
      data[n * rows + x->indices[k]] = ((const float*)x->data)[k * columns + c];
    indices[n++] = c;
  }
  free(used);
  return SUCCESS;
}
const Operator my_transposerowsp = {.name = "my_transposerowsp",
                                    .parse = OneToOne,
                                    .type = Float32,
                                    .storage = OnlyRowSparse,
                                    .shape = Transposed,
                                    .forward = TransposeRowSparse};

// y = 10 x in the storage of x.
static int ScaleStored(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                       int num_out, const Resource* resource) {
  (void)attributes, (void)num_in, (void)num_out;
  const Tensor* x = &in[0];
  int64_t size = SizeOf(x);
  float* data = out[0].data;
  if (x->storage) {
    int64_t *indices = NULL, *indptr = NULL;
    resource->sparse_malloc(resource->sparse_alloc, 0, (int)x->num_indices, (int)x->num_indptr,
                            (void**)&data, &indices, &indptr);
    memcpy(indices, x->indices, (size_t)x->num_indices * sizeof(int64_t));
    if (x->storage == CSR) memcpy(indptr, x->indptr, (size_t)x->num_indptr * sizeof(int64_t));
    size = x->num_indices;
    if (x->storage == ROW_SPARSE) size *= SizeOf(x) / x->shape[0];
  }
  for (int64_t i = 0; i < size; ++i) data[i] = ((const float*)x->data)[i] * 10;
  return SUCCESS;
}
const Operator scale_stored = {.name = "scale_stored",
                               .parse = OneToOne,
                               .type = Float32,
                               .storage = AnyStorage,
                               .shape = SameShape,
                               .forward = ScaleStored};
