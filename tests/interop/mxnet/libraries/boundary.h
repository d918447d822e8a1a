// The C boundary of MXNet's extension libraries (versions 10 and 11 of its lib_api), declared here
// from its facts alone, and the types of which the libraries of these tests are made. boundary.c
// exports the functions that a host calls; each library lists its parts in four arrays.
#ifndef OPKIT_TESTS_INTEROP_MXNET_LIBRARIES_BOUNDARY_H_
#define OPKIT_TESTS_INTEROP_MXNET_LIBRARIES_BOUNDARY_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef VERSION
#define VERSION 11  // what _opVersion answers
#endif

enum { FAIL = 0, SUCCESS = 1 };
enum { FLOAT32, FLOAT64, FLOAT16, UINT8, INT32, INT8, INT64 };  // MXNet's codes of dtypes
enum { DENSE, ROW_SPARSE, CSR };
enum { MOST_VALUES = 8, MOST_RANK = 64 };

typedef void (*Function)(void);
typedef const char* const* Strings;
typedef void* (*XpuMalloc)(void* self, int bytes);
typedef void (*SparseMalloc)(void* self, int output, int num_indices, int num_indptr, void** data,
                             int64_t** indices, int64_t** indptr);
typedef void (*NdMalloc)(const void* self, const int64_t* shape, int rank, const char* device,
                         int device_id, int dtype, const char* name, int is_arg, void** data);

typedef struct {
  Strings keys, values;
  int count;
} Attributes;
// Returns the attribute's value, or `otherwise`.
const char* Get(const Attributes* attributes, const char* key, const char* otherwise);

typedef struct {
  int rank;
  unsigned dims[MOST_RANK];
} Shape;

typedef struct {
  const int64_t* shape;
  int rank, dtype, storage, device_id;
  void* data;
  size_t id;
  const char* device;
  int64_t *indices, *indptr;
  int64_t num_indices, num_indptr;
} Tensor;
int64_t SizeOf(const Tensor* tensor);

typedef struct {
  XpuMalloc cpu_malloc, gpu_malloc;
  void *cpu_alloc, *gpu_alloc, *stream;
  SparseMalloc sparse_malloc;
  void* sparse_alloc;
  void *cpu_random, *gpu_random;
} Resource;

typedef struct State State;
typedef int (*ParseAttributes)(const Attributes*, int* num_in, int* num_out);
typedef int (*InferType)(const Attributes*, int* in, int num_in, int* out, int num_out);
typedef int (*InferShape)(const Attributes*, Shape* in, int num_in, Shape* out, int num_out);
typedef int (*MutateInputs)(const Attributes*, int* list, int* count);
typedef int (*Compute)(const Attributes*, const Tensor* in, int num_in, Tensor* out, int num_out,
                       const Resource*);
typedef struct {
  const char* device;
  int device_id, num_in;
  unsigned** shapes;
  const int *ranks, *types;
} Context;
typedef int (*CreateState)(const Attributes*, const Context*, State** state);

// An operator's state: what it does, and the numbers and the text that it keeps.
struct State {
  int (*forward)(State*, const Tensor* in, int num_in, Tensor* out, int num_out, const Resource*);
  int (*backward)(State*, const Tensor* in, int num_in, Tensor* out, int num_out, const Resource*);
  State* next;
  int64_t numbers[32];
  char text[8192];
};
State* NewState(void);

typedef struct {
  const char* name;
  int is_subgraph;
  ParseAttributes parse;
  InferType type, storage;
  InferShape shape;
  MutateInputs mutate;
  Compute forward, backward;  // on the CPU
  Compute gpu_forward;
  CreateState create;  // on the CPU
} Operator;

typedef struct {
  int resets;
  char nodes[256];  // nodes[i] is 1 if the library takes node i
} Selector;
typedef int (*SupportedOps)(const char* json, int count, int* ids, const Attributes* options);
typedef int (*CreateSelector)(const char* json, Selector*, const Attributes* options);
// Fills in `accept` and attributes of the new node: `count` keys and values of at most 63 bytes.
typedef int (*Review)(const char* json, int id, int* accept, const Attributes* options,
                      const Tensor* args, Strings arg_names, int num_args, int* count,
                      char keys[][64], char values[][64]);
typedef struct {
  const char *name, *op;
  SupportedOps supported;
  CreateSelector selector;
  Review review;
} Strategy;
typedef struct {
  const char* name;
  int count;
  Strategy strategies[4];
} Partitioner;

typedef struct {
  NdMalloc malloc;
  const void* alloc;
} PassResource;
// Gives out the new graph, made by malloc.
typedef int (*Body)(const char* json, char** new_json, const Attributes* options,
                    const Tensor* args, Strings arg_names, int num_args, const PassResource*);
typedef struct {
  const char* name;
  Body body;
} Pass;

// The parts of a library. The operators end with null, the others with one without a name.
extern const Operator* const library_operators[];
extern const Partitioner library_partitioners[];
extern const Pass library_passes[];

// Counts of the calls and arrays of the host, which operator `counters` gives out in this order.
typedef struct {
  int64_t allocations;  // that the host has yet to give to _opCallFree
  int64_t states;       // alive
  int64_t states_made;
  int64_t most_queries;  // the most calls of _opRegGet for one operator
  int64_t initialized;   // calls of initialize
  int64_t version;       // what it was called with
  int64_t selectors;     // made
  int64_t last_id;       // Tensor.id of the last input of all
} Counters;
enum { NUM_COUNTERS = sizeof(Counters) / sizeof(int64_t) };
extern Counters counters;

// Adds a message for the host, "file[line]: text", and is FAIL.
int AddMessage(const char* file, int line, const char* format, ...);
#define ERROR_MESSAGE(...) AddMessage(__FILE__, __LINE__, __VA_ARGS__)

// The operators of the files beside this one, and functions that several of them have.
extern const Operator my_gemm, state_gemm, counters_operator;
extern const Operator my_transposecsr, my_transposerowsp, my_state_transposecsr, scale_stored;
extern const Operator custom_subgraph_op;
int NoneToOne(const Attributes*, int* num_in, int* num_out);
int OneToOne(const Attributes*, int* num_in, int* num_out);
int TwoToOne(const Attributes*, int* num_in, int* num_out);
int SameType(const Attributes*, int* in, int num_in, int* out, int num_out);
int SameShape(const Attributes*, Shape* in, int num_in, Shape* out, int num_out);
int NoisyRelu(const Attributes*, const Tensor* in, int num_in, Tensor* out, int num_out,
              const Resource*);
int ThrowsInForward(const Attributes*, const Tensor* in, int num_in, Tensor* out, int num_out,
                    const Resource*);
int ThrowsInShape(const Attributes*, Shape* in, int num_in, Shape* out, int num_out);

#ifdef __cplusplus
}
#endif

#endif  // OPKIT_TESTS_INTEROP_MXNET_LIBRARIES_BOUNDARY_H_
