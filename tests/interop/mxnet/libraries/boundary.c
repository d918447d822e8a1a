// What a library of MXNet's exports: 31 functions in C, in version 10 without
// _opCallDestroyOpState. They answer 1 for success. A host gives back arrays that these functions
// make with _opCallFree.
#include "boundary.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Counters counters;

// One lock for the counters, the messages and the list of states: a host may use many threads.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void Count(int64_t* counter, int64_t by) {
  pthread_mutex_lock(&mutex);
  *counter += by;
  pthread_mutex_unlock(&mutex);
}

// Memory that the host gives back.
static void* Allocate(size_t bytes) {
  Count(&counters.allocations, 1);
  return malloc(bytes);
}
void _opCallFree(void* memory) {
  if (memory) Count(&counters.allocations, -1);
  free(memory);
}
static char* CopyText(const char* text) {
  char* copy = Allocate(strlen(text) + 1);
  return strcpy(copy, text);
}

// Messages are never removed, as in MXNet's own libraries.
static char messages[2048][256];
static int num_messages;
// Functions of MXNet's libraries call each other by C++ names through the loader's tables, by which
// a host tells what a library uses. This one stands for them: mxnet::ext::MXerrorMsgs::get().
char (*_ZN5mxnet3ext11MXerrorMsgs3getEv(void))[256];
__attribute__((noinline)) char (*_ZN5mxnet3ext11MXerrorMsgs3getEv(void))[256] { return messages; }
int AddMessage(const char* file, int line, const char* format, ...) {
  va_list values;
  va_start(values, format);
  pthread_mutex_lock(&mutex);
  if (num_messages == 2048) abort();
  char* message = _ZN5mxnet3ext11MXerrorMsgs3getEv()[num_messages++];
  const char* name = strrchr(file, '/');
  const int used = snprintf(message, 256, "%s[%d]: ", name ? name + 1 : file, line);
  vsnprintf(message + used, 256 - (size_t)used, format, values);
  pthread_mutex_unlock(&mutex);
  va_end(values);
  return FAIL;
}
int _msgSize(void) {
  pthread_mutex_lock(&mutex);
  const int size = num_messages;
  pthread_mutex_unlock(&mutex);
  return size;
}
void _msgGet(int i, const char** message) { *message = messages[i]; }

const char* Get(const Attributes* attributes, const char* key, const char* otherwise) {
  for (int i = 0; i < attributes->count; ++i)
    if (!strcmp(attributes->keys[i], key)) return attributes->values[i];
  return otherwise;
}
int64_t SizeOf(const Tensor* tensor) {
  int64_t size = 1;
  for (int i = 0; i < tensor->rank; ++i) size *= tensor->shape[i];
  return size;
}

int OneToOne(const Attributes* attributes, int* num_in, int* num_out) {
  (void)attributes;
  *num_in = *num_out = 1;
  return SUCCESS;
}
int TwoToOne(const Attributes* attributes, int* num_in, int* num_out) {
  (void)attributes;
  *num_in = 2;
  *num_out = 1;
  return SUCCESS;
}
int SameType(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes, (void)num_in;
  for (int i = 0; i < num_out; ++i) out[i] = in[0];
  return SUCCESS;
}
int SameShape(const Attributes* attributes, Shape* in, int num_in, Shape* out, int num_out) {
  (void)attributes, (void)num_in;
  for (int i = 0; i < num_out; ++i) out[i] = in[0];
  return SUCCESS;
}

int NoneToOne(const Attributes* attributes, int* num_in, int* num_out) {
  (void)attributes;
  *num_in = 0;
  *num_out = 1;
  return SUCCESS;
}

// The counters of this library.
static int Int64(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes, (void)in, (void)num_in, (void)num_out;
  out[0] = INT64;
  return SUCCESS;
}
static int CountersShape(const Attributes* attributes, Shape* in, int num_in, Shape* out,
                         int num_out) {
  (void)attributes, (void)in, (void)num_in, (void)num_out;
  out[0].rank = 1;
  out[0].dims[0] = NUM_COUNTERS;
  return SUCCESS;
}
static int GiveCounters(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                        int num_out, const Resource* resource) {
  (void)attributes, (void)in, (void)num_in, (void)num_out, (void)resource;
  memcpy(out[0].data, &counters, sizeof counters);
  return SUCCESS;
}
const Operator counters_operator = {.name = "counters",
                                    .parse = NoneToOne,
                                    .type = Int64,
                                    .shape = CountersShape,
                                    .forward = GiveCounters};

int _opVersion(void) { return VERSION; }

int initialize(int version) {
  Count(&counters.initialized, 1);
  counters.version = version;
#ifdef REFUSES
  return ERROR_MESSAGE("MXNet version %d not supported", version);
#endif
  return version >= 10900 ? SUCCESS : ERROR_MESSAGE("MXNet version %d not supported", version);
}

// The functions of the operators by device. Each call of _opRegGet appends, so that the numbers of
// a second call are twice those of the first.
typedef struct {
  const char* devices[16];
  Function functions[16];
  int count;
} Devices;
static struct {
  Devices forward, backward, create;
  int64_t queries;
} devices[64];

static void Append(Devices* list, const char* device, Function function) {
  if (!function) return;
  if (list->count == 16) abort();
  list->devices[list->count] = device;
  list->functions[list->count++] = function;
}
static void Give(Devices* list, const char*** names, Function** functions, int* count) {
  *names = list->devices;
  *functions = list->functions;
  *count = list->count;
}

int _opRegSize(void) {
#ifdef NUM_OPERATORS
  return NUM_OPERATORS;
#endif
  int size = 0;
  while (library_operators[size]) ++size;
  return size;
}
void _opRegGet(int i, const char** name, int* is_subgraph, const char*** forward_devices,
               Function** forward, int* num_forward, const char*** backward_devices,
               Function** backward, int* num_backward, const char*** create_devices,
               Function** create, int* num_create, Function* parse, Function* type,
               Function* storage, Function* shape, Function* mutate) {
  const Operator* op = library_operators[i];
  *name = op->name;
  *is_subgraph = op->is_subgraph;
  Append(&devices[i].forward, "cpu", (Function)op->forward);
  Append(&devices[i].forward, "gpu", (Function)op->gpu_forward);
  Append(&devices[i].backward, "cpu", (Function)op->backward);
  Append(&devices[i].create, "cpu", (Function)op->create);
  if (++devices[i].queries > counters.most_queries) counters.most_queries = devices[i].queries;
  Give(&devices[i].forward, forward_devices, forward, num_forward);
  Give(&devices[i].backward, backward_devices, backward, num_backward);
  Give(&devices[i].create, create_devices, create, num_create);
#ifdef LACKS_LISTS
  *backward_devices = NULL;
#endif
  *parse = (Function)op->parse;
  *type = (Function)op->type;
  *storage = (Function)op->storage;
  *shape = (Function)op->shape;
  *mutate = (Function)op->mutate;
}

int _opCallParseAttrs(Function function, Strings keys, Strings values, int count, int* num_in,
                      int* num_out) {
  const Attributes attributes = {keys, values, count};
  return ((ParseAttributes)function)(&attributes, num_in, num_out);
}

static void GiveShapes(const Shape* shapes, int count, unsigned*** rows, int** ranks) {
  *rows = Allocate((size_t)count * sizeof **rows);
  *ranks = Allocate((size_t)count * sizeof **ranks);
  for (int i = 0; i < count; ++i) {
    const size_t bytes = (size_t)shapes[i].rank * sizeof(unsigned);
    (*ranks)[i] = shapes[i].rank;
    (*rows)[i] = Allocate(bytes);
    memcpy((*rows)[i], shapes[i].dims, bytes);
  }
}
int _opCallInferShape(Function function, Strings keys, Strings values, int count,
                      unsigned** in_shapes, int* in_ranks, int num_in, unsigned*** new_in_shapes,
                      int** new_in_ranks, unsigned*** out_shapes, int** out_ranks, int num_out) {
  const Attributes attributes = {keys, values, count};
  if (num_in > MOST_VALUES || num_out > MOST_VALUES) return ERROR_MESSAGE("too many values");
  Shape in[MOST_VALUES], out[MOST_VALUES];
  for (int i = 0; i < num_in; ++i) {
    in[i].rank = in_ranks[i];
    if (in_ranks[i]) memcpy(in[i].dims, in_shapes[i], (size_t)in_ranks[i] * sizeof(unsigned));
  }
  for (int i = 0; i < num_out; ++i) out[i].rank = 0;
  const int result = ((InferShape)function)(&attributes, in, num_in, out, num_out);
  if (!result) return result;
  if (num_out > 0 && out[0].rank < 0) return result;  // a fault: success without arrays
  GiveShapes(in, num_in, new_in_shapes, new_in_ranks);
  GiveShapes(out, num_out, out_shapes, out_ranks);
  return result;
}

// Calls a function that fills in the codes `out` and may change the codes `in`.
static int Infer(Function function, const Attributes* attributes, int* in, int num_in, int* out,
                 int num_out) {
  int new_in[MOST_VALUES], new_out[MOST_VALUES];
  if (num_in > MOST_VALUES || num_out > MOST_VALUES) return ERROR_MESSAGE("too many values");
  for (int i = 0; i < num_in; ++i) new_in[i] = in[i];
  for (int i = 0; i < num_out; ++i) new_out[i] = -1;
  const int result = ((InferType)function)(attributes, new_in, num_in, new_out, num_out);
  if (!result) return result;
  for (int i = 0; i < num_in; ++i) in[i] = new_in[i];
  for (int i = 0; i < num_out; ++i) out[i] = new_out[i];
  return result;
}
int _opCallInferType(Function function, Strings keys, Strings values, int count, int* in,
                     int num_in, int* out, int num_out) {
  const Attributes attributes = {keys, values, count};
  return Infer(function, &attributes, in, num_in, out, num_out);
}
int _opCallInferSType(Function function, Strings keys, Strings values, int count, int* in,
                      int num_in, int* out, int num_out) {
  const Attributes attributes = {keys, values, count};
  return Infer(function, &attributes, in, num_in, out, num_out);
}

int _opCallMutateInputs(Function function, Strings keys, Strings values, int count, int** list,
                        int* size) {
  const Attributes attributes = {keys, values, count};
  int inputs[MOST_VALUES];
  int n = 0;
  const int result = ((MutateInputs)function)(&attributes, inputs, &n);
  if (!result) return result;
  *size = n;
  *list = Allocate((size_t)n * sizeof(int));
  memcpy(*list, inputs, (size_t)n * sizeof(int));
  return result;
}

// The parameters of a computation after its function and attributes.
#define TENSORS                                                                                    \
  const int64_t **in_shapes, int *in_ranks, void **in_data, int *in_types, size_t *in_ids,         \
      const char **in_devices, int *in_device_ids, int num_in, const int64_t **out_shapes,         \
      int *out_ranks, void **out_data, int *out_types, size_t *out_ids, const char **out_devices,  \
      int *out_device_ids, int num_out, XpuMalloc cpu_malloc, void *cpu_alloc,                     \
      XpuMalloc gpu_malloc, void *gpu_alloc, void *stream, SparseMalloc sparse_malloc,             \
      void *sparse_alloc, int *in_storage, int *out_storage, void **in_indices,                    \
      void **out_indices, void **in_indptr, void **out_indptr, int64_t *in_num_indices,            \
      int64_t *out_num_indices, int64_t *in_num_indptr, int64_t *out_num_indptr, void *cpu_random, \
      void *gpu_random
#define COLLECT_TENSORS                                                                          \
  if (num_in > MOST_VALUES || num_out > MOST_VALUES) return ERROR_MESSAGE("too many values");    \
  Tensor in[MOST_VALUES], out[MOST_VALUES];                                                      \
  if (!Collect(in, num_in, in_shapes, in_ranks, in_data, in_types, in_ids, in_devices,           \
               in_device_ids, in_storage, in_indices, in_indptr, in_num_indices, in_num_indptr)) \
    return FAIL;                                                                                 \
  if (!Collect(out, num_out, out_shapes, out_ranks, out_data, out_types, out_ids, out_devices,   \
               out_device_ids, out_storage, out_indices, out_indptr, out_num_indices,            \
               out_num_indptr))                                                                  \
    return FAIL;                                                                                 \
  if (num_in > 0) {                                                                              \
    pthread_mutex_lock(&mutex);                                                                  \
    counters.last_id = (int64_t)in[num_in - 1].id;                                               \
    pthread_mutex_unlock(&mutex);                                                                \
  }                                                                                              \
  const Resource resource = {cpu_malloc,    gpu_malloc,   cpu_alloc,  gpu_alloc, stream,         \
                             sparse_malloc, sparse_alloc, cpu_random, gpu_random}

// MXNet's own library throws for a dtype that it does not know, and reads what a dense tensor has.
static int Collect(Tensor* tensors, int count, const int64_t** shapes, const int* ranks,
                   void** data, const int* types, const size_t* ids, const char** device_names,
                   const int* device_ids, const int* storage, void** indices, void** indptr,
                   const int64_t* num_indices, const int64_t* num_indptr) {
  for (int i = 0; i < count; ++i) {
    if (types[i] < FLOAT32 || types[i] > INT64) abort();
    const Tensor tensor = {.shape = shapes[i],
                           .rank = ranks[i],
                           .dtype = types[i],
                           .storage = storage[i],
                           .device_id = device_ids[i],
                           .data = data[i],
                           .id = ids[i],
                           .device = device_names[i],
                           .indices = storage[i] ? indices[i] : NULL,
                           .indptr = storage[i] == CSR ? indptr[i] : NULL,
                           .num_indices = storage[i] ? num_indices[i] : 0,
                           .num_indptr = storage[i] == CSR ? num_indptr[i] : 0};
    if (!storage[i] && !tensor.data && SizeOf(&tensor) > 0)
      return ERROR_MESSAGE("tensor %d has no memory", i);
    tensors[i] = tensor;
  }
  return SUCCESS;
}
int _opCallFCompute(Function function, Strings keys, Strings values, int count, TENSORS) {
  const Attributes attributes = {keys, values, count};
  COLLECT_TENSORS;
  return ((Compute)function)(&attributes, in, num_in, out, num_out, &resource);
}

static State* states;
State* NewState(void) {
  State* state = calloc(1, sizeof *state);
  pthread_mutex_lock(&mutex);
  ++counters.states;
  ++counters.states_made;
  state->next = states;
  states = state;
  pthread_mutex_unlock(&mutex);
  return state;
}
static void DestroyState(State* state) {
  pthread_mutex_lock(&mutex);
  State** at = &states;
  while (*at && *at != state) at = &(*at)->next;
  if (!*at) abort();  // it is none, or was destroyed before
  *at = state->next;
  --counters.states;
  pthread_mutex_unlock(&mutex);
  free(state);
}
#if VERSION >= 11
void _opCallDestroyOpState(void* state) { DestroyState(state); }
#endif
// States that no host could or did destroy.
__attribute__((destructor)) static void DestroyStates(void) {
  while (states) DestroyState(states);
}
int _opCallCreateOpState(Function function, Strings keys, Strings values, int count,
                         const char* device, int device_id, unsigned** shapes, int* ranks,
                         int num_in, const int* types, void** state) {
  const Attributes attributes = {keys, values, count};
  const Context context = {device, device_id, num_in, shapes, ranks, types};
  return ((CreateState)function)(&attributes, &context, (State**)state);
}
int _opCallFStatefulCompute(int is_forward, void* op_state, TENSORS) {
  State* state = op_state;
  COLLECT_TENSORS;
  if (is_forward) return state->forward(state, in, num_in, out, num_out, &resource);
  if (!state->backward) return ERROR_MESSAGE("Error! Operator does not support backward");
  return state->backward(state, in, num_in, out, num_out, &resource);
}

#ifndef LACKS_PARTITIONERS
int _partRegSize(void) {
  int size = 0;
  while (library_partitioners[size].name) ++size;
  return size;
}
#endif
int _partRegGetCount(int i, const char** name) {
  *name = library_partitioners[i].name;
  return library_partitioners[i].count;
}
void _partRegGet(int i, int strategy, const char** name, Function* supported, Function* selector,
                 Function* review, const char** op) {
  const Strategy* is = &library_partitioners[i].strategies[strategy];
  *name = is->name;
  *op = is->op;
  *supported = (Function)is->supported;
  *selector = (Function)is->selector;
  *review = (Function)is->review;
}

int _partCallSupportedOps(Function function, const char* json, int count, int* ids, Strings keys,
                          Strings values, int num_options) {
  const Attributes options = {keys, values, num_options};
  int new_ids[256];
  if (count > 256) return ERROR_MESSAGE("too many nodes");
  for (int i = 0; i < count; ++i) new_ids[i] = -2;
  const int result = ((SupportedOps)function)(json, count, new_ids, &options);
  if (!result) return result;
  for (int i = 0; i < count; ++i) ids[i] = new_ids[i];
  return result;
}

// Nothing destroys a selector, in MXNet's libraries either: these stay in the library.
int _partCallCreateSelector(Function function, const char* json, void** selector, Strings keys,
                            Strings values, int num_options) {
  static Selector selectors[64];
  const Attributes options = {keys, values, num_options};
  Selector* made = &selectors[counters.selectors++ % 64];
  memset(made, 0, sizeof *made);
  const int result = ((CreateSelector)function)(json, made, &options);
  if (result) *selector = made;
  return result;
}
void _partCallSelect(void* selector, int node, int* selected) {
  *selected = ((Selector*)selector)->nodes[node];
}
void _partCallSelectInput(void* selector, int node, int input, int* selected) {
  *selected = ((Selector*)selector)->nodes[node] && ((Selector*)selector)->nodes[input];
}
void _partCallSelectOutput(void* selector, int node, int output, int* selected) {
  *selected = ((Selector*)selector)->nodes[node] && ((Selector*)selector)->nodes[output];
}
void _partCallFilter(void* selector, int* candidates, int count, int** keep, int* num_keep) {
  (void)selector;
  *num_keep = count;
  *keep = Allocate((size_t)count * sizeof(int));
  memcpy(*keep, candidates, (size_t)count * sizeof(int));
}
void _partCallReset(void* selector) { ++((Selector*)selector)->resets; }

// The parameters of a graph's arguments, and of its auxiliary parameters.
#define PARAMETERS(name)                                                                     \
  Strings name##_names, int num_##name##s, void *const *name##_data,                         \
      const int64_t *const *name##_shapes, const int *name##_ranks, const int *name##_types, \
      const size_t *name##_ids, Strings name##_devices, const int *name##_device_ids
#define COLLECT_ARGUMENTS                                                             \
  Tensor args[64];                                                                    \
  if (num_args > 64) return ERROR_MESSAGE("too many arguments");                      \
  for (int i = 0; i < num_args; ++i) {                                                \
    const Tensor arg = {.shape = arg_shapes[i],                                       \
                        .rank = arg_ranks[i],                                         \
                        .dtype = arg_types[i],                                        \
                        .device_id = arg_device_ids[i],                               \
                        .data = arg_data[i],                                          \
                        .id = arg_ids[i],                                             \
                        .device = arg_devices[i]};                                    \
    args[i] = arg;                                                                    \
  }                                                                                   \
  (void)aux_names, (void)num_auxs, (void)aux_data, (void)aux_shapes, (void)aux_ranks; \
  (void)aux_types, (void)aux_ids, (void)aux_devices, (void)aux_device_ids

int _partCallReviewSubgraph(Function function, const char* json, int id, int* accept, Strings keys,
                            Strings values, int num_options, char*** new_keys, char*** new_values,
                            int* count, PARAMETERS(arg), PARAMETERS(aux)) {
  const Attributes options = {keys, values, num_options};
  COLLECT_ARGUMENTS;
  int accepted = 0, n = 0;
  char names[8][64], texts[8][64];
  const int result = ((Review)function)(json, id, &accepted, &options, args, arg_names, num_args,
                                        &n, names, texts);
  if (!result) return result;
  *accept = accepted;
  if (n == 0) return result;
  *count = n;
  *new_keys = Allocate((size_t)n * sizeof **new_keys);
  *new_values = Allocate((size_t)n * sizeof **new_values);
  for (int i = 0; i < n; ++i) {
    (*new_keys)[i] = CopyText(names[i]);
    (*new_values)[i] = CopyText(texts[i]);
  }
  return result;
}

int _passRegSize(void) {
  int size = 0;
  while (library_passes[size].name) ++size;
  return size;
}
void _passRegGet(int i, Function* function, const char** name) {
  *function = (Function)library_passes[i].body;
  *name = library_passes[i].name;
}
int _passCallGraphPass(Function function, const char* json, char** new_json, Strings keys,
                       Strings values, int num_options, const char* name, PARAMETERS(arg),
                       PARAMETERS(aux), NdMalloc nd_malloc, const void* nd_alloc) {
  (void)name;
  const Attributes options = {keys, values, num_options};
  const PassResource resource = {nd_malloc, nd_alloc};
  COLLECT_ARGUMENTS;
  char* text = NULL;
  const int result = ((Body)function)(json, &text, &options, args, arg_names, num_args, &resource);
  if (!result) return result;
  *new_json = text;
  if (text) Count(&counters.allocations, 1);
  return result;
}

// The function of MXNet's that a library with random states calls, by its name in C++:
// mxnet::ext::OpResource::get_cpu_rand_states() const.
void* _ZNK5mxnet3ext10OpResource19get_cpu_rand_statesEv(const void* resource) {
  return ((const Resource*)resource)->cpu_random;
}
