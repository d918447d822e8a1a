// A library whose every part is wrong in one way.
#include <stdlib.h>
#include <string.h>

#include "boundary.h"

static int Copy(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                int num_out, const Resource* resource) {
  (void)attributes, (void)num_in, (void)num_out, (void)resource;
  memcpy(out[0].data, in[0].data, (size_t)SizeOf(&in[0]) * sizeof(float));
  return SUCCESS;
}
static int DoNothing(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                     int num_out, const Resource* resource) {
  (void)attributes, (void)in, (void)num_in, (void)out, (void)num_out, (void)resource;
  return SUCCESS;
}
#define OPERATOR(op, parses, infers_type, infers_shape, runs) \
  .name = #op, .parse = parses, .type = infers_type, .shape = infers_shape, .forward = runs

// A dtype that MXNet does not have.
static int Type9(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes, (void)in, (void)num_in, (void)num_out;
  out[0] = 9;
  return SUCCESS;
}
static const Operator fault_dtype = {OPERATOR(fault_dtype, OneToOne, Type9, SameShape, Copy)};

// Success without arrays.
static int NoShapes(const Attributes* attributes, Shape* in, int num_in, Shape* out, int num_out) {
  (void)attributes, (void)in, (void)num_in, (void)num_out;
  out[0].rank = -1;
  return SUCCESS;
}
static const Operator fault_null_shapes = {
    OPERATOR(fault_null_shapes, OneToOne, SameType, NoShapes, Copy)};

static int Rank40(const Attributes* attributes, Shape* in, int num_in, Shape* out, int num_out) {
  (void)attributes, (void)in, (void)num_in, (void)num_out;
  out[0].rank = 40;
  for (int i = 0; i < 40; ++i) out[0].dims[i] = 1;
  return SUCCESS;
}
static const Operator fault_rank = {OPERATOR(fault_rank, OneToOne, SameType, Rank40, Copy)};

// -2 as an unsigned number.
static int NegativeExtent(const Attributes* attributes, Shape* in, int num_in, Shape* out,
                          int num_out) {
  (void)attributes, (void)in, (void)num_in, (void)num_out;
  out[0].rank = 1;
  out[0].dims[0] = (unsigned)-2;
  return SUCCESS;
}
static const Operator fault_extent = {
    OPERATOR(fault_extent, OneToOne, SameType, NegativeExtent, Copy)};

static int NegativeCount(const Attributes* attributes, int* num_in, int* num_out) {
  (void)attributes;
  *num_in = -5;
  *num_out = 1;
  return SUCCESS;
}
static const Operator fault_count = {
    OPERATOR(fault_count, NegativeCount, SameType, SameShape, Copy)};

static const Operator fault_throw = {
    OPERATOR(fault_throw, OneToOne, SameType, SameShape, ThrowsInForward)};
static const Operator fault_throw_shape = {
    OPERATOR(fault_throw_shape, OneToOne, SameType, ThrowsInShape, Copy)};

static int Wordless(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                    int num_out, const Resource* resource) {
  (void)attributes, (void)in, (void)num_in, (void)out, (void)num_out, (void)resource;
  return FAIL;
}
static const Operator fault_wordless = {
    OPERATOR(fault_wordless, OneToOne, SameType, SameShape, Wordless)};

static int Wordy(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                 int num_out, const Resource* resource) {
  (void)attributes, (void)in, (void)num_in, (void)out, (void)num_out, (void)resource;
  for (int i = 0; i < 110; ++i) ERROR_MESSAGE("word %d", i);
  return FAIL;
}
static const Operator fault_wordy = {OPERATOR(fault_wordy, OneToOne, SameType, SameShape, Wordy)};

// Asks for GPU memory in a run on the CPU, and writes to what it gets.
static int AsksForGpu(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                      int num_out, const Resource* resource) {
  (void)attributes, (void)in, (void)num_in, (void)out, (void)num_out;
  float* memory = resource->gpu_malloc(resource->gpu_alloc, 4);
  if (memory) memory[0] = 1;
  return SUCCESS;
}
static const Operator fault_gpu = {OPERATOR(fault_gpu, OneToOne, SameType, SameShape, AsksForGpu)};

static int AllCsr(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes;
  for (int i = 0; i < num_in; ++i)
    if (in[i] != CSR) return ERROR_MESSAGE("input %d should be CSR", i);
  for (int i = 0; i < num_out; ++i) out[i] = CSR;
  return SUCCESS;
}
static const Operator fault_sparse = {
    OPERATOR(fault_sparse, OneToOne, SameType, SameShape, DoNothing), .storage = AllCsr};

// Asks for the memory of an output that does not exist, or of fewer than no elements.
static int Output5(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                   int num_out, const Resource* resource) {
  (void)attributes, (void)in, (void)num_in, (void)out, (void)num_out;
  void* data = NULL;
  int64_t *indices = NULL, *indptr = NULL;
  resource->sparse_malloc(resource->sparse_alloc, 5, 1, 2, &data, &indices, &indptr);
  return data ? SUCCESS : ERROR_MESSAGE("no memory for a sparse output");
}
static int FewerThanNone(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                         int num_out, const Resource* resource) {
  (void)attributes, (void)in, (void)num_in, (void)out, (void)num_out;
  void* data = NULL;
  int64_t *indices = NULL, *indptr = NULL;
  resource->sparse_malloc(resource->sparse_alloc, 0, -3, 2, &data, &indices, &indptr);
  return data ? SUCCESS : ERROR_MESSAGE("no memory for a sparse output");
}
static const Operator fault_sparse_output = {
    OPERATOR(fault_sparse_output, OneToOne, SameType, SameShape, Output5), .storage = AllCsr};
static const Operator fault_sparse_size = {
    OPERATOR(fault_sparse_size, OneToOne, SameType, SameShape, FewerThanNone), .storage = AllCsr};

static int Storage5(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes, (void)in, (void)num_in, (void)num_out;
  out[0] = 5;
  return SUCCESS;
}
static const Operator fault_storage = {OPERATOR(fault_storage, OneToOne, SameType, SameShape, Copy),
                                       .storage = Storage5};

static int NoState(const Attributes* attributes, const Context* context, State** state) {
  (void)attributes, (void)context;
  *state = NULL;
  return SUCCESS;
}
static const Operator fault_state = {OPERATOR(fault_state, OneToOne, SameType, SameShape, NULL),
                                     .create = NoState};

static int RefuseState(const Attributes* attributes, const Context* context, State** state) {
  (void)attributes, (void)state;
  return ERROR_MESSAGE("no state for %d input", context->num_in);
}
static const Operator fault_create = {OPERATOR(fault_create, OneToOne, SameType, SameShape, NULL),
                                      .create = RefuseState};

static const Operator fault_body = {.name = "fault_body", .is_subgraph = 1, .create = RefuseState};

static int Input7(const Attributes* attributes, int* list, int* count) {
  (void)attributes;
  list[0] = 7;
  *count = 1;
  return SUCCESS;
}
static const Operator fault_mutate = {OPERATOR(fault_mutate, OneToOne, SameType, SameShape, Copy),
                                      .mutate = Input7};

const Operator* const library_operators[] = {
    &fault_dtype,         &fault_null_shapes, &fault_rank,     &fault_extent, &fault_count,
    &fault_throw,         &fault_throw_shape, &fault_wordless, &fault_wordy,  &fault_sparse,
    &fault_storage,       &fault_state,       &fault_create,   &fault_mutate, &fault_body,
    &fault_sparse_output, &fault_sparse_size, &fault_gpu,      NULL};

static int RefuseGraph(const char* json, int count, int* ids, const Attributes* options) {
  (void)json, (void)ids, (void)options;
  return ERROR_MESSAGE("none of %d nodes", count);
}
static int TakeAll(const char* json, int count, int* ids, const Attributes* options) {
  (void)json, (void)options;
  for (int i = 0; i < count; ++i) ids[i] = -1;
  return SUCCESS;
}
static int RefuseBody(const char* json, int id, int* accept, const Attributes* options,
                      const Tensor* args, Strings arg_names, int num_args, int* count,
                      char keys[][64], char values[][64]) {
  (void)json, (void)accept, (void)options, (void)args, (void)arg_names, (void)num_args;
  (void)count, (void)keys, (void)values;
  return ERROR_MESSAGE("no opinion of subgraph %d", id);
}
static int RefuseSelector(const char* json, Selector* selector, const Attributes* options) {
  (void)json, (void)selector, (void)options;
  return ERROR_MESSAGE("no selector");
}
const Partitioner library_partitioners[] = {
    {.name = "faults",
     .count = 3,
     .strategies =
         {{.name = "supported", .op = "fault_body", .supported = RefuseGraph},
          {.name = "review", .op = "fault_body", .supported = TakeAll, .review = RefuseBody},
          {.name = "selector", .op = "fault_body", .selector = RefuseSelector}}},
    {.name = NULL}};

static int NoText(const char* json, char** new_json, const Attributes* options, const Tensor* args,
                  Strings arg_names, int num_args, const PassResource* resource) {
  (void)json, (void)new_json, (void)options, (void)args, (void)arg_names, (void)num_args;
  (void)resource;
  return SUCCESS;
}
static int HalfText(const char* json, char** new_json, const Attributes* options,
                    const Tensor* args, Strings arg_names, int num_args,
                    const PassResource* resource) {
  (void)options, (void)args, (void)arg_names, (void)num_args, (void)resource;
  const size_t half = strlen(json) / 2;
  *new_json = calloc(half + 1, 1);
  memcpy(*new_json, json, half);
  return SUCCESS;
}
static int RefusePass(const char* json, char** new_json, const Attributes* options,
                      const Tensor* args, Strings arg_names, int num_args,
                      const PassResource* resource) {
  (void)json, (void)new_json, (void)options, (void)args, (void)arg_names, (void)num_args;
  (void)resource;
  return ERROR_MESSAGE("not this graph");
}
// Makes every abs an exp, so that the graph has other results.
static int OtherOperators(const char* json, char** new_json, const Attributes* options,
                          const Tensor* args, Strings arg_names, int num_args,
                          const PassResource* resource) {
  (void)options, (void)args, (void)arg_names, (void)num_args, (void)resource;
  *new_json = calloc(strlen(json) + 1, 1);
  memcpy(*new_json, json, strlen(json));
  for (char* abs; (abs = strstr(*new_json, "\"abs\""));) memcpy(abs + 1, "exp", 3);
  return SUCCESS;
}
// Asks for a tensor that cannot be, and says only that it got no memory.
static int MakeTensor(const int64_t* shape, int rank, int dtype, const PassResource* resource) {
  void* data = NULL;
  resource->malloc(resource->alloc, shape, rank, "cpu", 0, dtype, "w", 1, &data);
  return data ? SUCCESS : ERROR_MESSAGE("no memory");
}
static int HugeTensor(const char* json, char** new_json, const Attributes* options,
                      const Tensor* args, Strings arg_names, int num_args,
                      const PassResource* resource) {
  (void)json, (void)new_json, (void)options, (void)args, (void)arg_names, (void)num_args;
  const int64_t shape[] = {INT64_MAX / 8, 64};
  return MakeTensor(shape, 2, FLOAT32, resource);
}
static int TensorOfManyAxes(const char* json, char** new_json, const Attributes* options,
                            const Tensor* args, Strings arg_names, int num_args,
                            const PassResource* resource) {
  (void)json, (void)new_json, (void)options, (void)args, (void)arg_names, (void)num_args;
  const int64_t shape[] = {1};  // the axes behind it are not the library's memory
  return MakeTensor(shape, 0x7fffffff, FLOAT32, resource);
}
static int TensorOfDtype99(const char* json, char** new_json, const Attributes* options,
                           const Tensor* args, Strings arg_names, int num_args,
                           const PassResource* resource) {
  (void)json, (void)new_json, (void)options, (void)args, (void)arg_names, (void)num_args;
  const int64_t shape[] = {1};
  return MakeTensor(shape, 1, 99, resource);
}
static int TensorWithoutPointer(const char* json, char** new_json, const Attributes* options,
                                const Tensor* args, Strings arg_names, int num_args,
                                const PassResource* resource) {
  (void)json, (void)new_json, (void)options, (void)args, (void)arg_names, (void)num_args;
  const int64_t shape[] = {1};
  resource->malloc(resource->alloc, shape, 1, "cpu", 0, FLOAT32, "w", 1, NULL);
  return ERROR_MESSAGE("no pointer");
}
// A tensor without elements is no fault.
static int EmptyTensor(const char* json, char** new_json, const Attributes* options,
                       const Tensor* args, Strings arg_names, int num_args,
                       const PassResource* resource) {
  (void)json, (void)new_json, (void)options, (void)args, (void)arg_names, (void)num_args;
  const int64_t shape[] = {0, 4};
  (void)MakeTensor(shape, 2, FLOAT32, resource);
  return ERROR_MESSAGE("made an empty one");
}
const Pass library_passes[] = {{.name = "nullPass", .body = NoText},
                               {.name = "brokenPass", .body = HalfText},
                               {.name = "failingPass", .body = RefusePass},
                               {.name = "otherPass", .body = OtherOperators},
                               {.name = "hugePass", .body = HugeTensor},
                               {.name = "axesPass", .body = TensorOfManyAxes},
                               {.name = "dtypePass", .body = TensorOfDtype99},
                               {.name = "pointerPass", .body = TensorWithoutPointer},
                               {.name = "emptyPass", .body = EmptyTensor},
                               {.name = NULL}};
