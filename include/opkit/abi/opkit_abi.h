/* opkit_abi.h: all that crosses between a host program and a library of operators. C99.
 *
 * A library exports one function, opkit_library_entry. It is given the host's table of functions
 * and returns a description of the library: its operators, and for each the functions that infer
 * and compute. Authors in C++ include opkit/op.hpp, which fills all of this in;
 * examples/library/plain_c.c is a library in C.
 *
 * The rules that keep libraries and hosts of different versions working together:
 * 1. Every struct begins with `size`, the sizeof that its maker compiled with, and `extension`,
 *    null but for private agreements. A reader asks OPKIT_ABI_HAS(p, member) before it reads a
 *    member that was not there in version 1.0.
 * 2. Members never change their place, type or meaning and are never removed. New ones go at the
 *    end of their struct, and OPKIT_ABI_MINOR grows by one. What cannot be done so is a new major
 *    version, which older libraries are refused by. A host does not look at flags it does not know.
 *    opkit_scope and opkit_invocation have no size and never change.
 * 3. Arrays of structs are read with the stride that their first element's `size` says
 *    (opkit_tensor_at, opkit_value_at), or are arrays of pointers.
 * 4. A null function pointer is something its side does not offer. A status that one does not know
 *    is a failure.
 * 5. No memory changes hands: who allocates frees. Strings are UTF-8, end with a zero and, like all
 *    that is passed to a call, last until the call returns; what describes a library lasts until it
 *    is unloaded.
 * 6. Nothing is thrown and no longjmp passes through a call in either direction.
 * 7. Any function may be called from several threads at once, for different instances; one
 *    instance is run by one thread at a time.
 */
#ifndef OPKIT_ABI_OPKIT_ABI_H_
#define OPKIT_ABI_OPKIT_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPKIT_ABI_MAJOR 1
#define OPKIT_ABI_MINOR 4

/* Whether the struct that p points to is long enough to have the member. */
#define OPKIT_ABI_HAS(p, member) \
  ((p)->size >= (uint64_t)((const char*)(&(p)->member + 1) - (const char*)(p)))

/* What a function answers. After a failure the text given to host->set_error explains it. */
typedef int32_t opkit_status;
enum {
  OPKIT_OK = 0,
  OPKIT_INVALID_ARGUMENT = 1,
  OPKIT_TYPE_MISMATCH = 2,
  OPKIT_NOT_FOUND = 3,
  OPKIT_ALREADY_EXISTS = 4,
  OPKIT_OUT_OF_RANGE = 5,
  OPKIT_UNINITIALIZED = 6,
  OPKIT_OUT_OF_MEMORY = 7,
  OPKIT_UNSUPPORTED = 8,
  OPKIT_FAILED_PRECONDITION = 9,
  OPKIT_CANCELLED = 10,
  OPKIT_DEADLINE_EXCEEDED = 11,
  OPKIT_FAILED = 12
};

/* Element types. complex64 is two float32, complex128 two float64. */
enum {
  OPKIT_UNDEFINED = 0,
  OPKIT_BOOL = 1,
  OPKIT_INT8 = 2,
  OPKIT_INT16 = 3,
  OPKIT_INT32 = 4,
  OPKIT_INT64 = 5,
  OPKIT_UINT8 = 6,
  OPKIT_UINT16 = 7,
  OPKIT_UINT32 = 8,
  OPKIT_UINT64 = 9,
  OPKIT_FLOAT16 = 10,
  OPKIT_BFLOAT16 = 11,
  OPKIT_FLOAT32 = 12,
  OPKIT_FLOAT64 = 13,
  OPKIT_COMPLEX64 = 14,
  OPKIT_COMPLEX128 = 15
};

/* Devices have DLPack's numbers (1 is the CPU, 2 CUDA); 64 is the CPU with streams. */
enum { OPKIT_CPU = 1, OPKIT_CUDA = 2, OPKIT_CPU_STREAM = 64 };

/* How a result is to be stored. */
enum {
  OPKIT_REQ_NONE = 0,    /* nobody wants it: there is no memory */
  OPKIT_REQ_WRITE = 1,   /* */
  OPKIT_REQ_INPLACE = 2, /* the memory is that of an input, which the operator allows */
  OPKIT_REQ_ADD = 3      /* onto what is there; only for operators with OPKIT_OP_ACCEPTS_ADD */
};

enum { OPKIT_LOG_INFO = 0, OPKIT_LOG_WARNING = 1, OPKIT_LOG_ERROR = 2 };

/* A tensor: a view. One that the node leaves out has the dtype OPKIT_UNDEFINED and no data. */
typedef struct opkit_tensor {
  uint64_t size;
  const void* extension;
  void* data; /* the first element; in the memory of the device */
  const int64_t* shape;
  const int64_t* strides; /* in elements, one for each extent */
  int32_t rank;
  int32_t dtype;
  int32_t device_type;
  int32_t device_index;
  int32_t req;      /* of an output */
  int32_t reserved; /* 0 */
  const void* host; /* the host's own: handed on when the tensor, or a part of it, goes to invoke */
} opkit_tensor;

/* The type of an attribute. A list's number is its element's plus five. */
enum {
  OPKIT_ATTR_INT = 0,
  OPKIT_ATTR_FLOAT = 1,
  OPKIT_ATTR_BOOL = 2,
  OPKIT_ATTR_STRING = 3,
  OPKIT_ATTR_TENSOR = 4,
  OPKIT_ATTR_INTS = 5,
  OPKIT_ATTR_FLOATS = 6,
  OPKIT_ATTR_BOOLS = 7,
  OPKIT_ATTR_STRINGS = 8,
  OPKIT_ATTR_TENSORS = 9
};

/* A named attribute. Of the four arrays the one of its type has `count` elements (one for a single
 * value) and the others are null. */
typedef struct opkit_attr {
  uint64_t size;
  const void* extension;
  const char* name;
  int32_t type;
  int32_t reserved; /* 0 */
  uint64_t count;
  const int64_t* ints; /* bools too */
  const double* floats;
  const char* const* strings;
  const uint64_t* string_sizes; /* bytes, without the zero at the end */
  const opkit_tensor* const* tensors;
  const char* text; /* the value as text: 3, 0.5, true, word, [1, 2] */
} opkit_attr;

typedef struct opkit_node opkit_node;

/* A graph that a node carries as an attribute: nodes in an order that respects their values. */
typedef struct opkit_graph {
  uint64_t size;
  const void* extension;
  const char* name; /* of the attribute */
  uint64_t num_inputs;
  const char* const* inputs;
  uint64_t num_outputs;
  const char* const* outputs;
  uint64_t num_constants;
  const char* const* constant_names;
  const opkit_tensor* const* constants;
  uint64_t num_nodes;
  const opkit_node* const* nodes;
  /* Since 1.3. What is known of the values that are named, read with opkit_value_at; none where the
   * graph was not inferred. */
  uint64_t num_values;
  const char* const* value_names;
  const struct opkit_value* values;
} opkit_graph;

/* A call site of an operator. */
struct opkit_node {
  uint64_t size;
  const void* extension;
  const char* op;
  const char* name; /* empty where it has none */
  int32_t device_type;
  int32_t device_index;
  uint64_t num_inputs;
  const char* const* inputs; /* names of values; empty for one that is left out */
  uint64_t num_outputs;
  const char* const* outputs;
  uint64_t num_attrs;
  const opkit_attr* const* attrs;
  uint64_t num_graphs;
  const opkit_graph* const* graphs;
  /* Since 1.3. Names of nodes that must run before it though it reads none of their outputs; the
   * backend that it asks for, empty for none; whether it computes a gradient. */
  uint64_t num_control_inputs;
  const char* const* control_inputs;
  const char* backend;
  int32_t is_gradient;
  int32_t reserved;
};

/* What is known of an input or output before it is computed; inference fills in what it can say. */
#define OPKIT_MAX_RANK 32
typedef struct opkit_value {
  uint64_t size;
  const void* extension;
  int32_t present; /* 0: the node leaves it out */
  int32_t dtype;   /* -1: unknown */
  int32_t rank;    /* -1: unknown */
  int32_t reserved;
  /* -1: unknown; less: a symbol, the same number for the same one */
  int64_t dims[OPKIT_MAX_RANK];
  const opkit_tensor* constant; /* the elements of an input, where they are known; else null */
  const char* layout; /* since 1.3: of an input, where a kernel proposes; null: the standard one */
} opkit_value;

typedef struct opkit_host opkit_host;

/* Memory of 0 bytes. */
#define OPKIT_NO_BYTES ((void*)64)

/* One run of an operator. Tensors are read with opkit_input and opkit_output. */
typedef struct opkit_call {
  uint64_t size;
  const void* extension;
  const opkit_host* host;
  void* context;  /* the host's own */
  const char* op; /* the operator's name */
  uint64_t num_inputs;
  const opkit_tensor* inputs;
  uint64_t num_outputs;
  const opkit_tensor* outputs;
  /* What scratch_bytes asked for, undefined at the start: OPKIT_NO_BYTES for 0 bytes; null where
   * the operator has no scratch_bytes. */
  void* scratch;
  int64_t scratch_bytes;
  void* stream; /* a cudaStream_t where the device is CUDA; the work belongs on it */
  int32_t device_type;
  int32_t device_index;
  int32_t asynchronous; /* not 0: what is issued now runs later, at its place in the stream */
  int32_t reserved;
  uint64_t random_seed; /* of this run: drawn from the program's seed and the node */
  uint64_t author[8];   /* for the author's side, all 0 at the start */
  /* Since 1.3. The names of the layouts that inputs and outputs are in, whose strides then say
   * nothing; null for one that lies as its strides say, and an array that is null where all do.
   * Only for kernels whose configuration asks for it. */
  const char* const* input_layouts;
  const char* const* output_layouts;
} opkit_call;

/* What remembers that an operator is not finished: see opkit_host.defer. */
typedef struct opkit_completion opkit_completion;

/* Since 1.2. An operator that runs beside its caller: see opkit_host.invoke_async. */
typedef struct opkit_pending opkit_pending;

/* Room for the host, on the caller's stack. */
typedef struct opkit_scope {
  uint64_t storage[8];
} opkit_scope;

/* The identity of an operator's run, to which the work that it starts is attributed. */
typedef struct opkit_invocation {
  uint64_t id;
  uint64_t parent;
  uint64_t kind; /* in its low 8 bits; the others are the host's: hand them on as they are */
} opkit_invocation;

/* What the host offers. `call` is the one that forward or backward was given. */
struct opkit_host {
  uint64_t size;
  const void* extension;
  uint32_t abi_major;
  uint32_t abi_minor;
  const char* version; /* of the host's toolkit */

  /* Explains the failure that this thread is about to return; add_error adds to what is there. The
   * text is copied. */
  void (*set_error)(opkit_status status, const char* text, uint64_t text_size);
  void (*add_error)(const char* text, uint64_t text_size);
  /* Why a function of this table has failed last in this thread. */
  const char* (*failure_text)(void);

  /* `bytes` bytes of the device's memory, aligned to 64; each call its own. Freed when the run has
   * ended. Null for 0 bytes. From any thread of the call. */
  opkit_status (*alloc)(const opkit_call* call, int64_t bytes, void** memory);
  /* A dense tensor in such memory, written to *tensor. */
  opkit_status (*temporary)(const opkit_call* call, int32_t dtype, int32_t rank,
                            const int64_t* shape, opkit_tensor* tensor);
  /* body(context, begin, end) for ranges that make up [0, n), on the host's threads and this one;
   * `grain` indices make a range, 0 lets the host measure. Returns when all have run; where one
   * fails, the others are skipped as far as they have not begun, and its status is the answer. Now,
   * also on a CPU stream: issue it by launch. */
  opkit_status (*parallel_for)(const opkit_call* call, int64_t n, int64_t grain,
                               opkit_status (*body)(void* context, int64_t begin, int64_t end),
                               void* context);
  /* work(context) at its place in the stream, and then drop(context); without a stream both now.
   * drop is called also where work is not, and where launch fails. */
  opkit_status (*launch)(const opkit_call* call, opkit_status (*work)(void* context),
                         void (*drop)(void* context), void* context);
  /* Another operator of the host on these tensors, writing into the outputs given; at its place in
   * the stream where there is one. Kept ready from run to run. One thread of a call at a time. */
  opkit_status (*invoke)(const opkit_call* call, const char* op, uint64_t num_inputs,
                         const opkit_tensor* inputs, uint64_t num_outputs,
                         const opkit_tensor* outputs, uint64_t num_attrs,
                         const opkit_attr* const* attrs);
  void (*log)(const opkit_call* call, int32_t level, const char* text);

  /* A named part of the operator's own code, in this thread: begin and end nest. */
  void (*scope_begin)(const opkit_call* call, const char* name, opkit_scope* scope);
  void (*scope_end)(opkit_scope* scope);
  /* The identity that work in this thread has now, and going on with it in a thread of one's own.
   */
  void (*invocation)(opkit_invocation* identity);
  void (*adopt)(const opkit_invocation* identity, opkit_scope* scope); /* until scope_end */

  /* For operators with OPKIT_OP_ASYNC: forward may return OPKIT_OK before its outputs are there.
   * Whoever ends the work then calls complete, once, from any thread; tensors and memory of the
   * call last until then. */
  opkit_status (*defer)(const opkit_call* call, opkit_completion** completion);
  void (*complete)(opkit_completion* completion, opkit_status status, const char* text);

  /* Since 1.1. For operators with OPKIT_OP_ALLOCATES_OUTPUTS: the memory of an output that has the
   * dtype OPKIT_UNDEFINED and is wanted (OPKIT_REQ_WRITE), of the shape that the data has decided,
   * before forward returns. Written to *tensor, and where the call has its output. */
  opkit_status (*allocate_output)(const opkit_call* call, uint64_t output, int32_t dtype,
                                  int32_t rank, const int64_t* shape, opkit_tensor* tensor);

  /* Since 1.2. As invoke, but on the host's threads: the caller goes on beside it. Where invoke
   * only issues work on a stream, so does this. What is written to *pending lasts as long as the
   * call. */
  opkit_status (*invoke_async)(const opkit_call* call, const char* op, uint64_t num_inputs,
                               const opkit_tensor* inputs, uint64_t num_outputs,
                               const opkit_tensor* outputs, uint64_t num_attrs,
                               const opkit_attr* const* attrs, opkit_pending** pending);
  /* Returns when it has ended, and how. What nobody has waited for when the function returns, the
   * host waits for, and its failure is the function's. */
  opkit_status (*wait)(const opkit_call* call, opkit_pending* pending);

  /* Since 1.3. Runs a graph of the call's node, or a part of one, in the host: for what an operator
   * has taken and cannot do itself. Inputs and outputs by position, results into the tensors given,
   * which are dense; on the CPU, and at its place in a stream of the CPU's. The graph, which lasts
   * as long as the operator, is made ready once. One thread of a call at a time. */
  opkit_status (*run_graph)(const opkit_call* call, const opkit_graph* graph, uint64_t num_inputs,
                            const opkit_tensor* inputs, uint64_t num_outputs,
                            const opkit_tensor* outputs);

  /* Since 1.4. From any thread, also outside of a call. */
  /* Whether the program has an operator of this name, 1 or 0. */
  int32_t (*has_operator)(const char* op);
  /* Fills in what the program's operator says of the node's values, as infer_type and infer_shape
   * of an opkit_op do; OPKIT_NOT_FOUND where it has none. */
  opkit_status (*infer)(const opkit_node* node, opkit_value* inputs, opkit_value* outputs);
  /* `bytes`, which are not 0, of a device's memory, aligned to 64, by the allocator that the
   * program has at the moment: *owner, which deallocate gets back. */
  opkit_status (*allocate)(int32_t device_type, int32_t device_index, int64_t bytes, void** memory,
                           void** owner);
  void (*deallocate)(void* owner, void* memory, int64_t bytes);
  /* Whether the program records a profile, 1 or 0; and a span of it in this thread, until
   * scope_end, of a kind as in the low 8 bits of opkit_invocation.kind. `node` may be null. */
  int32_t (*is_profiling)(void);
  void (*span_begin)(int32_t kind, const char* name, const char* node, opkit_scope* scope);
};

/* Since 1.3. One way in which a kernel can run a node. */
typedef struct opkit_config {
  uint64_t size;
  const void* extension;
  /* The name of the layout of each input and output of the node, null for the standard one; the
   * array is null where all are. */
  const char* const* input_layouts;
  const char* const* output_layouts;
  uint64_t num_inplace;
  const int32_t* inplace; /* num_inplace pairs: input, output that may share memory */
  int64_t scratch_bytes;  /* of a run */
  double cost_ns;         /* an estimate of its time; negative: none */
} opkit_config;
/* What a kernel proposes is told to it: by `add`, which copies, the best first. */
typedef struct opkit_proposals opkit_proposals;
struct opkit_proposals {
  uint64_t size;
  const void* extension;
  void* context; /* the host's own */
  opkit_status (*add)(const opkit_proposals* proposals, const opkit_config* config);
};

/* Since 1.4. A node with the configuration that was chosen for it, and the node that alone reads
 * its output 0, with its own: may the kernel compute both? */
typedef struct opkit_fusion opkit_fusion;
struct opkit_fusion {
  uint64_t size;
  const void* extension;
  void* context; /* the host's own */
  const opkit_node* node;
  const opkit_value* inputs;
  const opkit_value* outputs;
  const opkit_config* config;
  const opkit_node* next;
  const opkit_value* next_inputs;
  const opkit_value* next_outputs;
  const opkit_config* next_config;
  uint64_t read; /* the input of `next` that the node makes */
  /* The two as one, for a kernel of the same backend: a node of the outputs of `next` that reads
   * inputs of both, and the configuration it runs in. Without a call they stay two. */
  opkit_status (*fuse)(const opkit_fusion* fusion, const opkit_node* node,
                       const opkit_config* config);
};

/* The implementation of an operator for a type of device. */
typedef struct opkit_kernel opkit_kernel;
struct opkit_kernel {
  uint64_t size;
  const void* extension;
  const char* device; /* "cpu", "gpu", "cpu_stream", or the name of another device type */
  /* Makes what forward and backward get as `instance`: once for each operator that the host
   * creates, and destroyed with it. Without it they get `author`. */
  opkit_status (*create)(const opkit_kernel* kernel, const opkit_node* node, void** instance);
  void (*destroy)(void* instance);
  opkit_status (*forward)(void* instance, const opkit_call* call);
  /* Inputs: gradients of the outputs, the inputs, the outputs. Outputs: gradients of the inputs. */
  opkit_status (*backward)(void* instance, const opkit_call* call);
  uint64_t flags;
  const void* author; /* the author's own */
  /* Since 1.1. The name that a node asks for it by; null: the plain one of its device. */
  const char* backend;
  /* Since 1.3. The ways in which it can run the node; none, or OPKIT_UNSUPPORTED with the reason,
   * where it cannot. Without it there is one: standard layouts, in place and scratch as the
   * operator says. */
  opkit_status (*propose)(const opkit_kernel* kernel, const opkit_node* node,
                          const opkit_value* inputs, const opkit_value* outputs,
                          const opkit_proposals* proposals);
  /* In place of create, for the one of them that was chosen. */
  opkit_status (*create_for)(const opkit_kernel* kernel, const opkit_node* node,
                             const opkit_config* config, void** instance);
  /* Since 1.4. Takes the next node in, by fusion->fuse, or leaves it. */
  opkit_status (*fuse)(const opkit_kernel* kernel, const opkit_fusion* fusion);
};
/* forward keeps something in its instance that backward needs: both run the same one. */
#define OPKIT_KERNEL_STATEFUL ((uint64_t)1)

/* One attribute, input or output, as documented. */
typedef struct opkit_parameter {
  uint64_t size;
  const void* extension;
  const char* name;
  const char* doc;
  const opkit_attr* default_value; /* of an attribute; null: none */
  int32_t type;                    /* of an attribute; -1: any */
  int32_t required;
  uint64_t dtypes; /* of an input or output: bit 1 << dtype for each it may have; 0: any */
} opkit_parameter;

/* What an operator's gradient function is asked: which nodes compute the gradients of the inputs of
 * `node` from those of its outputs. The values of `node` keep their names; all that is new is given
 * one by new_name. Names that are null or empty: no gradient. A sparse gradient is one of indices
 * and values of slices along the first axis. */
typedef struct opkit_gradient opkit_gradient;
struct opkit_gradient {
  uint64_t size;
  const void* extension;
  const opkit_node* node;
  const char* const* dense;   /* of each output: the name of its gradient, */
  const char* const* indices; /* or those of a sparse one */
  const char* const* values;
  void* context; /* the host's own */
  /* A name that nothing has yet, for a gradient of `value`, or where suffix is given for a part of
   * the computation: "x" and "_grad_mask". The first without a suffix is where the gradient of
   * `value` is expected. Lasts until the gradient function returns; null after a failure. */
  const char* (*new_name)(const opkit_gradient* gradient, const char* value, const char* suffix);
  /* In the order they run. */
  opkit_status (*add_node)(const opkit_gradient* gradient, const opkit_node* node);
  opkit_status (*set_input)(const opkit_gradient* gradient, uint64_t input, const char* dense,
                            const char* indices, const char* values);
};

/* Since 1.1. The work of one run. */
typedef struct opkit_cost {
  uint64_t size;
  const void* extension;
  uint64_t flops;
  uint64_t bytes_read;
  uint64_t bytes_written;
  uint64_t params_bytes;
} opkit_cost;

/* Since 1.4. Takes the inputs of a test of an operator, one by one, and copies them. */
typedef struct opkit_test_inputs opkit_test_inputs;
struct opkit_test_inputs {
  uint64_t size;
  const void* extension;
  void* context; /* the host's own */
  opkit_status (*add)(const opkit_test_inputs* inputs, const opkit_tensor* tensor);
};

/* An operator. `name` and one kernel are required. A library of version 1.1 or later must also give
 * what nothing else decides, for an operator that the program has not already: parse_attrs,
 * infer_shape where there are outputs, and infer_type where these cannot have the dtype of input
 * 0; the last two not with OPKIT_OP_ALLOCATES_OUTPUTS. Where an operator with OPKIT_OP_SUBGRAPH
 * has neither of them, types and shapes are those of the graph that its node carries. */
typedef struct opkit_op opkit_op;
struct opkit_op {
  uint64_t size;
  const void* extension;
  const char* name;
  const char* doc;
  const char* file; /* where it is defined */
  int32_t line;
  int32_t reserved;
  uint64_t flags;
  uint64_t num_kernels;
  const opkit_kernel* const* kernels;
  uint64_t num_inplace;
  const int32_t* inplace; /* num_inplace pairs: input, output that may share memory */

  /* How many inputs and outputs a node with these attributes has (-1: any number), or a failure
   * for wrong attributes. */
  opkit_status (*parse_attrs)(const opkit_op* op, const opkit_node* node, int32_t* num_inputs,
                              int32_t* num_outputs);
  /* Fill in what is unknown, of the outputs from the inputs or the reverse. While some inputs are
   * unknown a failure only means: not yet. Without infer_type outputs have the dtype of input 0. */
  opkit_status (*infer_type)(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                             opkit_value* outputs);
  opkit_status (*infer_shape)(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                              opkit_value* outputs);
  /* The inputs that are written to: mutated[i] is set to 1; all are 0 before. */
  opkit_status (*mutated_inputs)(const opkit_op* op, const opkit_node* node, uint8_t* mutated);
  /* Memory of a run, known before it, for inputs whose shapes are known. */
  opkit_status (*scratch_bytes)(const opkit_op* op, const opkit_node* node,
                                const opkit_value* inputs, int64_t* bytes);

  uint64_t num_attrs;
  const opkit_parameter* const* attrs;
  uint64_t num_inputs;
  const opkit_parameter* const* inputs;
  uint64_t num_outputs;
  const opkit_parameter* const* outputs;
  const void* author; /* the author's own */
  /* In place of a backward function: the nodes that compute the gradient. */
  opkit_status (*gradient)(const opkit_op* op, const opkit_gradient* gradient);
  /* Since 1.1. The work of a run; *cost has the bytes of all inputs and outputs before, and no
   * flops, which is what an operator without it is taken to cost. */
  opkit_status (*cost)(const opkit_op* op, const opkit_node* node, const opkit_value* inputs,
                       const opkit_value* outputs, opkit_cost* cost);
  /* Since 1.4. Inputs that a test may run it with, of floating-point type `dtype` where it has any,
   * the same ones for the same seed; none where it has none for that type. */
  opkit_status (*test_inputs)(const opkit_op* op, int32_t dtype, uint64_t seed,
                              const opkit_test_inputs* inputs);
};
#define OPKIT_OP_SUBGRAPH ((uint64_t)1)        /* reads a graph that its node carries */
#define OPKIT_OP_ACCEPTS_STRIDES ((uint64_t)2) /* otherwise inputs arrive dense */
#define OPKIT_OP_ACCEPTS_ADD ((uint64_t)4)     /* otherwise the host adds up */
#define OPKIT_OP_ASYNC ((uint64_t)8)           /* forward may call host->defer */
/* two runs may differ, or do more than write the outputs: never merged, folded or dropped */
#define OPKIT_OP_EFFECTS ((uint64_t)16)
/* no gradient flows through it; asking for one is a mistake; it has one that is not written yet */
#define OPKIT_OP_NO_GRADIENT ((uint64_t)32)
#define OPKIT_OP_SHOULD_NOT_GRADIENT ((uint64_t)64)
#define OPKIT_OP_GRADIENT_NOT_IMPLEMENTED ((uint64_t)128)
#define OPKIT_OP_OPEN_ATTRS ((uint64_t)256) /* takes attributes that are not among attrs */
/* beside OPKIT_OP_EFFECTS, where all that there is to it is what a node keeps between its runs:
   they give the same for the same inputs */
#define OPKIT_OP_KEEPS_STATE ((uint64_t)512)
/* since 1.1: outputs whose shape inference leaves open are made in forward by allocate_output */
#define OPKIT_OP_ALLOCATES_OUTPUTS ((uint64_t)1024)
/* since 1.4: takes no attributes but attrs, also where there are none; without this flag an
   operator that has parse_attrs and no attrs takes any */
#define OPKIT_OP_CLOSED_ATTRS ((uint64_t)2048)

/* Since 1.3. An order of elements in memory other than row by row. A program has one layout of a
 * name: that of a library is passed over where it has one already. */
typedef struct opkit_layout opkit_layout;
struct opkit_layout {
  uint64_t size;
  const void* extension;
  const char* name;
  /* Bytes that a tensor takes; null: as many as its elements. */
  opkit_status (*bytes)(const opkit_layout* layout, int32_t dtype, int32_t rank,
                        const int64_t* shape, int64_t* bytes);
  /* Both are required, and write all of `to`, which has memory for it. In the host's memory. */
  opkit_status (*to_standard)(const opkit_layout* layout, const opkit_tensor* from,
                              const opkit_tensor* to);
  opkit_status (*from_standard)(const opkit_layout* layout, const opkit_tensor* from,
                                const opkit_tensor* to);
  double ns_per_byte; /* an estimate, for each byte read or written */
  const void* author; /* the author's own */
};
/* Since 1.3. A direct conversion between two layouts other than the standard one. */
typedef struct opkit_layout_converter opkit_layout_converter;
struct opkit_layout_converter {
  uint64_t size;
  const void* extension;
  const char* from;
  const char* to;
  opkit_status (*convert)(const opkit_layout_converter* converter, const opkit_tensor* from,
                          const opkit_tensor* to);
  double ns_per_byte;
  const void* author;
};

/* Since 1.3. A type of device with memory of its own; kernels for it name it, and have done their
 * work when forward returns, or tell when they have: see opkit_host.defer, with which a device has
 * queues of its own. Functions may be called by several threads at once. */
typedef struct opkit_device opkit_device;
enum { OPKIT_HOST_TO_DEVICE = 1, OPKIT_DEVICE_TO_HOST = 2, OPKIT_DEVICE_TO_DEVICE = 3 };
struct opkit_device {
  uint64_t size;
  const void* extension;
  const char* name;
  int32_t type; /* its number: from 80 to 127, one that no other device of the program has */
  int32_t reserved;
  /* A failure with the reason where the device of that index is not there. Null: any is. */
  opkit_status (*available)(const opkit_device* device, int32_t index);
  /* Memory aligned to 64 bytes, or OPKIT_OUT_OF_MEMORY; `bytes` is not 0. */
  opkit_status (*alloc)(const opkit_device* device, int32_t index, int64_t bytes, void** memory);
  void (*free)(const opkit_device* device, void* memory, int64_t bytes);
  /* `bytes`, not 0, in one of the directions, done at the return; the two ranges do not overlap,
   * and of two devices `index` is the target's. */
  opkit_status (*copy)(const opkit_device* device, int32_t index, int32_t direction, void* to,
                       const void* from, int64_t bytes);
  const void* author; /* the author's own */
};

/* Since 1.3. A graph that a partitioner is asked about, and its answers. What it has before `end`
 * is called lasts until then. */
typedef struct opkit_partition opkit_partition;
struct opkit_partition {
  uint64_t size;
  const void* extension;
  void* context; /* the host's own */
  /* The whole graph with its types, nodes in an order in which they can run: their numbers. */
  const opkit_graph* graph;
  const uint8_t* taken; /* of each node: not 0 where a partitioner before has put it there */
  uint64_t num_options;
  const char* const* option_names;
  const char* const* option_values;
  /* The graph, in `review` the subgraph, as text in the shape of MXNet's symbols; the second array
   * has for each of its nodes the number in the graph it shows, -1 for inputs and constants. Both
   * last until the partitioner's function returns. */
  opkit_status (*json)(const opkit_partition* partition, const char** text, uint64_t* num_nodes,
                       const int64_t** nodes);

  /* In `mark`. Takes a node: kind -1, or a number from 0 on, of which different ones are never in
   * one subgraph; nor are different sets, numbers from 0 on: 0 where there is but one. Or says why
   * it stays. */
  opkit_status (*take)(const opkit_partition* partition, uint64_t node, int32_t kind, int32_t set);
  opkit_status (*refuse)(const opkit_partition* partition, uint64_t node, const char* why);

  /* In `review`. A legal subgraph, its nodes' numbers in the whole graph, and the operator that
   * takes its place, which does not carry it yet. Its inputs and outputs have the names that they
   * have in the graph. */
  const opkit_graph* subgraph;
  const opkit_node* op;
  int64_t id;
  int32_t kind;
  int32_t reserved;
  uint64_t num_nodes;
  const uint64_t* nodes;
  opkit_status (*reject)(const opkit_partition* partition, const char* why);
  /* An attribute of the operator; a constant of the subgraph, under a name that it does not have.
   */
  opkit_status (*set_attr)(const opkit_partition* partition, const opkit_attr* attr);
  opkit_status (*add_constant)(const opkit_partition* partition, const char* name,
                               const opkit_tensor* value);
};

/* Since 1.3. Says which nodes of a graph go to an operator of the library. The functions are called
 * in the order begin, mark, review for each subgraph, end; of several graphs side by side. */
typedef struct opkit_partitioner opkit_partitioner;
struct opkit_partitioner {
  uint64_t size;
  const void* extension;
  const char* name;
  const char* file; /* where it is defined */
  int32_t line;
  int32_t reserved;
  /* The operator that takes the place of a subgraph of this kind. */
  const char* (*subgraph_op)(const opkit_partitioner* partitioner, int32_t kind);
  /* Makes what the next three get as `work`; null: they get `author`. */
  opkit_status (*begin)(const opkit_partitioner* partitioner, const opkit_partition* partition,
                        void** work);
  opkit_status (*mark)(void* work, const opkit_partition* partition);
  opkit_status (*review)(void* work, const opkit_partition* partition); /* null: takes all */
  void (*end)(void* work);
  const void* author; /* the author's own */
};

/* Since 1.3. A graph that a pass changes. Numbers of nodes are those of `graph` throughout; what
 * the functions say happens when the pass has returned, in one, and only if the result is right. */
typedef struct opkit_rewrite opkit_rewrite;
struct opkit_rewrite {
  uint64_t size;
  const void* extension;
  void* context;            /* the host's own */
  const opkit_graph* graph; /* with its types, nodes in an order in which they can run */
  uint64_t num_options;
  const char* const* option_names;
  const char* const* option_values;
  /* Adds a node before that of this number, or at the end for num_nodes. */
  opkit_status (*add_node)(const opkit_rewrite* rewrite, uint64_t before, const opkit_node* node);
  opkit_status (*replace_node)(const opkit_rewrite* rewrite, uint64_t node,
                               const opkit_node* replacement);
  opkit_status (*remove_node)(const opkit_rewrite* rewrite, uint64_t node);
  /* Every node that reads `from` reads `to`. */
  opkit_status (*replace_uses)(const opkit_rewrite* rewrite, const char* from, const char* to);
  opkit_status (*add_constant)(const opkit_rewrite* rewrite, const char* name,
                               const opkit_tensor* value);
  opkit_status (*remove_constant)(const opkit_rewrite* rewrite, const char* name);
  /* Instead of all that: the whole result. Its inputs and outputs are those of `graph`. */
  opkit_status (*set_graph)(const opkit_rewrite* rewrite, const opkit_graph* graph);
};
typedef struct opkit_pass opkit_pass;
struct opkit_pass {
  uint64_t size;
  const void* extension;
  const char* name;
  const char* file; /* where it is defined */
  int32_t line;
  int32_t reserved;
  opkit_status (*run)(const opkit_pass* pass, const opkit_rewrite* rewrite);
  const void* author; /* the author's own */
};

/* Since 1.4. What is said of a backend of the library's kernels (opkit_kernel.backend). */
typedef struct opkit_backend opkit_backend;
struct opkit_backend {
  uint64_t size;
  const void* extension;
  const char* name;
  /* Of the library's own operators: kernels of a higher rank come first, plain ones have 0;
   * negative for none. */
  int32_t rank;
  int32_t reserved;
  /* A failure with the reason where it cannot run on this machine. Asked once, when a kernel of it
   * might first run. Null: it can. */
  opkit_status (*available)(const opkit_backend* backend);
  const void* author; /* the author's own */
};

/* A library. */
typedef struct opkit_library {
  uint64_t size;
  const void* extension;
  uint32_t abi_major;
  uint32_t abi_minor;
  const char* name;    /* null: the file's */
  const char* version; /* of the toolkit it was compiled with; null: none */
  /* Called once before anything else, with the host's version; a failure refuses the loading. */
  opkit_status (*initialize)(uint32_t host_abi_major, uint32_t host_abi_minor);
  void (*finalize)(void); /* before it is unmapped */
  uint64_t num_ops;
  const opkit_op* const* ops;
  /* Since 1.3; a host of an older version refuses a library that has any. */
  uint64_t num_partitioners;
  const opkit_partitioner* const* partitioners;
  uint64_t num_passes;
  const opkit_pass* const* passes;
  /* Since 1.3. Registered before the operators. */
  uint64_t num_layouts;
  const opkit_layout* const* layouts;
  uint64_t num_layout_converters;
  const opkit_layout_converter* const* layout_converters;
  uint64_t num_devices;
  const opkit_device* const* devices;
  /* Since 1.4. */
  uint64_t num_backends;
  const opkit_backend* const* backends;
  const char* own_version; /* the library's own; null: none */
} opkit_library;

/* The one symbol of a library. Null, after host->set_error, when it cannot serve this host. */
#define OPKIT_LIBRARY_ENTRY "opkit_library_entry"
typedef const opkit_library* (*opkit_library_entry_function)(const opkit_host* host);

static inline const opkit_tensor* opkit_tensor_at(const opkit_tensor* tensors, uint64_t i) {
  return (const opkit_tensor*)(const void*)((const char*)tensors + i * tensors->size);
}
static inline opkit_value* opkit_value_at(opkit_value* values, uint64_t i) {
  return (opkit_value*)(void*)((char*)values + i * values->size);
}
static inline const opkit_tensor* opkit_input(const opkit_call* call, uint64_t i) {
  return opkit_tensor_at(call->inputs, i);
}
static inline const opkit_tensor* opkit_output(const opkit_call* call, uint64_t i) {
  return opkit_tensor_at(call->outputs, i);
}
/* Elements of a tensor. */
static inline int64_t opkit_numel(const opkit_tensor* tensor) {
  int64_t count = 1;
  int32_t i;
  for (i = 0; i < tensor->rank; ++i) count *= tensor->shape[i];
  return count;
}
/* The attribute of that name; null when there is none. */
static inline const opkit_attr* opkit_find_attr(const opkit_node* node, const char* name) {
  uint64_t i;
  for (i = 0; i < node->num_attrs; ++i) {
    const char *a = node->attrs[i]->name, *b = name;
    while (*a && *a == *b) ++a, ++b;
    if (*a == *b) return node->attrs[i];
  }
  return NULL;
}

#ifdef __cplusplus
}
#endif

#endif /* OPKIT_ABI_OPKIT_ABI_H_ */
