/* opkit_abi.h: everything that crosses between a host program and a library of operators. C99.
 *
 * A library exports one function, opkit_library_entry. Its argument is the host's table of
 * functions. It returns a description of the library: its operators, and for each of them the
 * functions that infer and compute. Authors in C++ include opkit/op.hpp, which fills all of this
 * in; examples/library/plain_c.c is a library in C.
 *
 * These rules keep libraries and hosts of different versions working together:
 * 1. Every struct begins with `size`, its sizeof when its maker was compiled, and `extension`, null
 *    except by private agreement. A reader checks OPKIT_ABI_HAS(p, member) before it reads a member
 *    that version 1.0 did not have.
 * 2. Members never change their place, type or meaning and are never removed. New members go at the
 *    end of their struct, and OPKIT_ABI_MINOR grows by one. Any other change needs a new major
 *    version, whose hosts refuse older libraries. A host ignores flags that it does not know.
 *    opkit_scope and opkit_invocation have no size and never change.
 * 3. An array of structs is read with its first element's `size` as the stride (opkit_tensor_at,
 *    opkit_value_at), or is an array of pointers.
 * 4. A null function pointer is a function that its side does not offer. A status that the reader
 *    does not know is a failure.
 * 5. Memory does not change its owner: the side that allocates also frees. Strings are UTF-8 and
 *    end with a zero. Everything that is passed to a call lasts until the call returns; the
 *    description of a library lasts until the library is unloaded.
 * 6. No exception and no longjmp passes through a call in either direction.
 * 7. Several threads may call a function at once, but only one at a time may run an instance.
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

/* True if the struct at p is long enough to have the member. */
#define OPKIT_ABI_HAS(p, member) \
  ((p)->size >= (uint64_t)((const char*)(&(p)->member + 1) - (const char*)(p)))

/* The result of a function. The text given to host->set_error explains a failure. */
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
  OPKIT_FAILED = 12,
  OPKIT_IO = 13 /* a file that cannot be opened, read or written; since 1.4 */
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

/* The way in which an output is stored. */
enum {
  OPKIT_REQ_NONE = 0,    /* the output is not needed and has no memory */
  OPKIT_REQ_WRITE = 1,   /* the result replaces the old elements */
  OPKIT_REQ_INPLACE = 2, /* the memory of an input; the operator allows it */
  OPKIT_REQ_ADD = 3      /* add to the old elements; only with OPKIT_OP_ACCEPTS_ADD */
};

enum { OPKIT_LOG_INFO = 0, OPKIT_LOG_WARNING = 1, OPKIT_LOG_ERROR = 2 };

/* A view of a tensor. A left-out input or output has the dtype OPKIT_UNDEFINED and no data. */
typedef struct opkit_tensor {
  uint64_t size;
  const void* extension;
  void* data; /* the first element, in the memory of the device */
  const int64_t* shape;
  const int64_t* strides; /* in elements, one for each extent */
  int32_t rank;
  int32_t dtype;
  int32_t device_type;
  int32_t device_index;
  int32_t req;      /* for outputs: OPKIT_REQ_... */
  int32_t reserved; /* 0 */
  const void* host; /* for the host: copy it to views that you pass to invoke */
} opkit_tensor;

/* The type of an attribute. The number of a list type is that of its element type plus five. */
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

/* A named attribute. The array for the attribute's type has `count` elements (1 for a single
 * value); the other three arrays are null. */
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

/* A graph that a node carries as an attribute. A node comes after the producers of its inputs. */
typedef struct opkit_graph {
  uint64_t size;
  const void* extension;
  const char* name; /* the attribute's name */
  uint64_t num_inputs;
  const char* const* inputs;
  uint64_t num_outputs;
  const char* const* outputs;
  uint64_t num_constants;
  const char* const* constant_names;
  const opkit_tensor* const* constants;
  uint64_t num_nodes;
  const opkit_node* const* nodes;
  /* Since 1.3. The known facts about named values, read with opkit_value_at; num_values is 0 if the
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
  const char* name; /* empty without a name */
  int32_t device_type;
  int32_t device_index;
  uint64_t num_inputs;
  const char* const* inputs; /* names of values; empty for an input that is left out */
  uint64_t num_outputs;
  const char* const* outputs;
  uint64_t num_attrs;
  const opkit_attr* const* attrs;
  uint64_t num_graphs;
  const opkit_graph* const* graphs;
  /* Since 1.3. Names of nodes that must run before this node, although it reads none of their
   * outputs; the requested backend, or an empty text; nonzero if the node computes a gradient. */
  uint64_t num_control_inputs;
  const char* const* control_inputs;
  const char* backend;
  int32_t is_gradient;
  int32_t reserved;
};

/* The known facts about an input or output before it is computed. Inference adds more facts. */
#define OPKIT_MAX_RANK 32
typedef struct opkit_value {
  uint64_t size;
  const void* extension;
  int32_t present; /* 0: the node leaves the value out */
  int32_t dtype;   /* -1: unknown */
  int32_t rank;    /* -1: unknown */
  int32_t reserved;
  /* -1: unknown; below -1: a symbol, and equal numbers are the same symbol */
  int64_t dims[OPKIT_MAX_RANK];
  const opkit_tensor* constant; /* the elements of an input if they are known, else null */
  const char* layout;           /* since 1.3: an input's layout, in propose; null: standard */
} opkit_value;

typedef struct opkit_host opkit_host;

/* The address of scratch of 0 bytes. */
#define OPKIT_NO_BYTES ((void*)64)

/* One run of an operator. Tensors are read with opkit_input and opkit_output. */
typedef struct opkit_call {
  uint64_t size;
  const void* extension;
  const opkit_host* host;
  void* context;  /* for the host alone */
  const char* op; /* the operator's name */
  uint64_t num_inputs;
  const opkit_tensor* inputs;
  uint64_t num_outputs;
  const opkit_tensor* outputs;
  /* Scratch of the size that scratch_bytes, or the chosen opkit_config, requests; undefined at the
   * start. OPKIT_NO_BYTES for 0 bytes; null without scratch_bytes and without propose. */
  void* scratch;
  int64_t scratch_bytes;
  void* stream; /* a cudaStream_t if the device is CUDA: issue the work there */
  int32_t device_type;
  int32_t device_index;
  int32_t asynchronous; /* nonzero: work issued now runs later, at its place in the stream */
  int32_t reserved;
  uint64_t random_seed; /* the run's seed, drawn from the program's seed and the node */
  uint64_t author[8];   /* for the author's side, all 0 at the start */
  /* Since 1.3. Names of the layouts of inputs and outputs. A tensor with a layout has no valid
   * strides; with a null name or array it has. Only for kernels whose configuration has layouts. */
  const char* const* input_layouts;
  const char* const* output_layouts;
} opkit_call;

/* A handle of a run that ends after its function has returned: see opkit_host.defer. */
typedef struct opkit_completion opkit_completion;

/* Since 1.2. A handle of an operator that runs in parallel to its caller: see invoke_async. */
typedef struct opkit_pending opkit_pending;

/* Storage that a function of the host uses, on the caller's stack. */
typedef struct opkit_scope {
  uint64_t storage[8];
} opkit_scope;

/* The identity of an operator's run. The work that the run starts has this identity. */
typedef struct opkit_invocation {
  uint64_t id;
  uint64_t parent;
  uint64_t kind; /* in the low 8 bits; the other bits are the host's: keep them unchanged */
} opkit_invocation;

/* The functions of the host. `call` is the argument of forward or backward. */
struct opkit_host {
  uint64_t size;
  const void* extension;
  uint32_t abi_major;
  uint32_t abi_minor;
  const char* version; /* the version of the host's toolkit */

  /* Explains the failure that this thread is about to return; add_error appends to the text. The
   * text is copied. */
  void (*set_error)(opkit_status status, const char* text, uint64_t text_size);
  void (*add_error)(const char* text, uint64_t text_size);
  /* Returns the reason of the last failure, in this thread, of a function of this table. */
  const char* (*failure_text)(void);

  /* Allocates `bytes` bytes of the device's memory, aligned to 64 bytes; null for 0 bytes. The host
   * frees the memory when the run has ended. May be called in any thread of the call. */
  opkit_status (*alloc)(const opkit_call* call, int64_t bytes, void** memory);
  /* Allocates a dense tensor in the same way, written to *tensor. */
  opkit_status (*temporary)(const opkit_call* call, int32_t dtype, int32_t rank,
                            const int64_t* shape, opkit_tensor* tensor);
  /* Calls body(context, begin, end) for ranges that make up [0, n), on the host's threads and this
   * one. A range has `grain` indices; with 0 the host measures. Returns when all ranges have run.
   * After a failure of `body`, skips the ranges that have not begun and returns its status. Runs at
   * once, also on a CPU stream: call it inside launch to run the loop in the stream. */
  opkit_status (*parallel_for)(const opkit_call* call, int64_t n, int64_t grain,
                               opkit_status (*body)(void* context, int64_t begin, int64_t end),
                               void* context);
  /* Calls work(context) in the order of the stream, and then drop(context); without a stream, calls
   * both at once. Calls drop also if work is never called, and if launch fails. */
  opkit_status (*launch)(const opkit_call* call, opkit_status (*work)(void* context),
                         void (*drop)(void* context), void* context);
  /* Runs another operator of the host on these tensors and writes into the given outputs. If the
   * device has a stream, the operator runs in the order of the stream. The host keeps the operator
   * prepared between runs. Only one thread of a call at a time may call it. */
  opkit_status (*invoke)(const opkit_call* call, const char* op, uint64_t num_inputs,
                         const opkit_tensor* inputs, uint64_t num_outputs,
                         const opkit_tensor* outputs, uint64_t num_attrs,
                         const opkit_attr* const* attrs);
  void (*log)(const opkit_call* call, int32_t level, const char* text);

  /* Begins a named part of the operator's own code in this thread; scope_end ends it. */
  void (*scope_begin)(const opkit_call* call, const char* name, opkit_scope* scope);
  void (*scope_end)(opkit_scope* scope);
  /* Writes the identity of this thread's work; adopt uses it in another thread, until scope_end. */
  void (*invocation)(opkit_invocation* identity);
  void (*adopt)(const opkit_invocation* identity, opkit_scope* scope);

  /* For operators with OPKIT_OP_ASYNC: lets forward return OPKIT_OK before its outputs are
   * computed. When the work ends, complete must be called once, from any thread. Tensors and memory
   * of the call stay valid until then. */
  opkit_status (*defer)(const opkit_call* call, opkit_completion** completion);
  void (*complete)(opkit_completion* completion, opkit_status status, const char* text);

  /* Since 1.1. For operators with OPKIT_OP_ALLOCATES_OUTPUTS, before forward returns: allocates an
   * output that has the dtype OPKIT_UNDEFINED and OPKIT_REQ_WRITE, in a shape that depends on the
   * data. Writes the tensor to *tensor and to the output of the call. */
  opkit_status (*allocate_output)(const opkit_call* call, uint64_t output, int32_t dtype,
                                  int32_t rank, const int64_t* shape, opkit_tensor* tensor);

  /* Since 1.2. Runs another operator as invoke does, but on the host's threads, while the caller
   * continues. Only issues the work if invoke would. *pending lasts as long as the call. */
  opkit_status (*invoke_async)(const opkit_call* call, const char* op, uint64_t num_inputs,
                               const opkit_tensor* inputs, uint64_t num_outputs,
                               const opkit_tensor* outputs, uint64_t num_attrs,
                               const opkit_attr* const* attrs, opkit_pending** pending);
  /* Waits until the started operator has ended, and returns its status. After the caller's function
   * has returned, the host waits for the others; their failure is that of the function. */
  opkit_status (*wait)(const opkit_call* call, opkit_pending* pending);

  /* Since 1.3. Runs a graph of the call's node, or a part of it, in the host: for nodes that an
   * operator has taken but cannot run itself. Inputs and outputs are matched by position; results
   * are written to the given tensors, which are dense. Only on the CPU; on a CPU stream in the
   * stream's order. The host prepares the graph once, so the graph must last as long as the
   * operator. Only one thread of a call at a time may call it. */
  opkit_status (*run_graph)(const opkit_call* call, const opkit_graph* graph, uint64_t num_inputs,
                            const opkit_tensor* inputs, uint64_t num_outputs,
                            const opkit_tensor* outputs);

  /* Since 1.4. These functions may be called in any thread, also outside of a call. */
  /* Returns 1 if the program has an operator of this name, else 0. */
  int32_t (*has_operator)(const char* op);
  /* Adds the facts that the program's operator infers about the node's values, as infer_type and
   * infer_shape of an opkit_op do. Returns OPKIT_NOT_FOUND if the program has no such operator. */
  opkit_status (*infer)(const opkit_node* node, opkit_value* inputs, opkit_value* outputs);
  /* Allocates `bytes` bytes, not 0, of a device's memory, aligned to 64 bytes, by the program's
   * current allocator. *owner is the argument for deallocate. */
  opkit_status (*allocate)(int32_t device_type, int32_t device_index, int64_t bytes, void** memory,
                           void** owner);
  void (*deallocate)(void* owner, void* memory, int64_t bytes);
  /* is_profiling returns 1 if the program records a profile, else 0. span_begin begins a span in
   * this thread; scope_end ends it. `kind` is that of opkit_invocation. `node` may be null. */
  int32_t (*is_profiling)(void);
  void (*span_begin)(int32_t kind, const char* name, const char* node, opkit_scope* scope);
};

/* Since 1.3. One way in which a kernel can run a node. */
typedef struct opkit_config {
  uint64_t size;
  const void* extension;
  /* Layouts of inputs and outputs. Null name: the standard layout. Null array: all standard. */
  const char* const* input_layouts;
  const char* const* output_layouts;
  uint64_t num_inplace;
  const int32_t* inplace; /* num_inplace pairs: input, output that may share memory */
  int64_t scratch_bytes;  /* scratch of one run */
  double cost_ns;         /* estimated time of one run; negative: unknown */
  const char* variant;    /* since 1.4: names one of several ways with equal layouts; null: usual */
} opkit_config;
/* Receives the configurations that a kernel proposes, the best first. `add` copies. */
typedef struct opkit_proposals opkit_proposals;
struct opkit_proposals {
  uint64_t size;
  const void* extension;
  void* context; /* for the host alone */
  opkit_status (*add)(const opkit_proposals* proposals, const opkit_config* config);
};

/* Since 1.4. Offers a kernel to compute two nodes as one: `node`, and `next`, the only reader of
 * its output 0. Each node has its chosen configuration. */
typedef struct opkit_fusion opkit_fusion;
struct opkit_fusion {
  uint64_t size;
  const void* extension;
  void* context; /* for the host alone */
  const opkit_node* node;
  const opkit_value* inputs;
  const opkit_value* outputs;
  const opkit_config* config;
  const opkit_node* next;
  const opkit_value* next_inputs;
  const opkit_value* next_outputs;
  const opkit_config* next_config;
  uint64_t read; /* the input of `next` that is output 0 of the node */
  /* Replaces both nodes by one node, for a kernel of the same backend, with its configuration. The
   * new node has the outputs of `next` and reads inputs of both. Without a call both nodes stay. */
  opkit_status (*fuse)(const opkit_fusion* fusion, const opkit_node* node,
                       const opkit_config* config);
};

/* The implementation of an operator for a type of device. */
typedef struct opkit_kernel opkit_kernel;
struct opkit_kernel {
  uint64_t size;
  const void* extension;
  const char* device; /* "cpu", "gpu", "cpu_stream", or the name of another device type */
  /* Makes the `instance` of forward and backward for each operator that the host creates; destroy
   * frees it with the operator. Without create the instance is `author`. */
  opkit_status (*create)(const opkit_kernel* kernel, const opkit_node* node, void** instance);
  void (*destroy)(void* instance);
  opkit_status (*forward)(void* instance, const opkit_call* call);
  /* Inputs: gradients of the outputs, the inputs, the outputs. Outputs: gradients of the inputs. */
  opkit_status (*backward)(void* instance, const opkit_call* call);
  uint64_t flags;
  const void* author; /* for the author's side alone */
  /* Since 1.1. The name by which a node requests the kernel; null: the device's plain kernel. */
  const char* backend;
  /* Since 1.3. Proposes the ways in which the kernel can run the node. If it cannot, it proposes no
   * way, or returns OPKIT_UNSUPPORTED with the reason. Without propose there is one way: standard
   * layouts, and the operator's own in-place pairs and scratch. */
  opkit_status (*propose)(const opkit_kernel* kernel, const opkit_node* node,
                          const opkit_value* inputs, const opkit_value* outputs,
                          const opkit_proposals* proposals);
  /* Replaces create for a configuration that was proposed and chosen. */
  opkit_status (*create_for)(const opkit_kernel* kernel, const opkit_node* node,
                             const opkit_config* config, void** instance);
  /* Since 1.4. Calls fusion->fuse to compute the next node too, or does nothing. */
  opkit_status (*fuse)(const opkit_kernel* kernel, const opkit_fusion* fusion);
};
/* backward needs data that forward keeps in its instance: both run the same instance. */
#define OPKIT_KERNEL_STATEFUL ((uint64_t)1)

/* The documentation of one attribute, input or output. */
typedef struct opkit_parameter {
  uint64_t size;
  const void* extension;
  const char* name;
  const char* doc;
  const opkit_attr* default_value; /* an attribute's default; null: none */
  int32_t type;                    /* an attribute's type; -1: any */
  int32_t required;
  uint64_t dtypes; /* bit 1 << dtype for each dtype that an input or output may have; 0: any */
} opkit_parameter;

/* The argument of opkit_op.gradient, which adds nodes. They compute the gradients of the inputs of
 * `node` from the gradients of its outputs. The values of `node` keep their names; new_name gives
 * names to all new values. A null or empty name means no gradient. A sparse gradient consists of
 * indices and values: slices along the first axis. */
typedef struct opkit_gradient opkit_gradient;
struct opkit_gradient {
  uint64_t size;
  const void* extension;
  const opkit_node* node;
  const char* const* dense;   /* for each output: the name of its gradient, */
  const char* const* indices; /* or the names of its sparse gradient */
  const char* const* values;
  void* context; /* for the host alone */
  /* Returns a new name for a gradient of `value`, or, with a suffix, for a part of the computation:
   * "x" and "_grad_mask". The first name without a suffix is the usual name for the gradient of
   * `value`. The name lasts until the gradient function returns; null after a failure. */
  const char* (*new_name)(const opkit_gradient* gradient, const char* value, const char* suffix);
  /* Adds one node. Add the nodes in the order in which they run. */
  opkit_status (*add_node)(const opkit_gradient* gradient, const opkit_node* node);
  /* Names the gradient of an input: dense, or indices and values. */
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

/* Since 1.4. Receives the inputs for a test of an operator, one by one. `add` copies. */
typedef struct opkit_test_inputs opkit_test_inputs;
struct opkit_test_inputs {
  uint64_t size;
  const void* extension;
  void* context; /* for the host alone */
  opkit_status (*add)(const opkit_test_inputs* inputs, const opkit_tensor* tensor);
};

/* An operator. `name` and one kernel are required. Since version 1.1, an operator that the program
 * does not have yet also needs parse_attrs; infer_shape if it has outputs; and infer_type if these
 * cannot have the dtype of input 0. OPKIT_OP_ALLOCATES_OUTPUTS makes infer_shape and infer_type
 * optional. With OPKIT_OP_SUBGRAPH all three are optional: without infer_shape and infer_type, the
 * types and shapes are those of the graph that the node carries. */
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

  /* Returns the numbers of inputs and outputs of a node with these attributes and graphs (-1: any;
   * with OPKIT_OP_SUBGRAPH that of the one graph), or a failure for wrong attributes. */
  opkit_status (*parse_attrs)(const opkit_op* op, const opkit_node* node, int32_t* num_inputs,
                              int32_t* num_outputs);
  /* Infer unknown dtypes and shapes: of outputs from inputs, or the reverse. While some inputs are
   * unknown, a failure only means that nothing can be inferred yet. Without infer_type, outputs
   * have the dtype of input 0. */
  opkit_status (*infer_type)(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                             opkit_value* outputs);
  opkit_status (*infer_shape)(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                              opkit_value* outputs);
  /* Sets mutated[i] to 1 for each input to which the operator writes. All are 0 before the call. */
  opkit_status (*mutated_inputs)(const opkit_op* op, const opkit_node* node, uint8_t* mutated);
  /* Returns the scratch of a run in *bytes, for inputs whose shapes are known. */
  opkit_status (*scratch_bytes)(const opkit_op* op, const opkit_node* node,
                                const opkit_value* inputs, int64_t* bytes);

  uint64_t num_attrs;
  const opkit_parameter* const* attrs;
  uint64_t num_inputs;
  const opkit_parameter* const* inputs;
  uint64_t num_outputs;
  const opkit_parameter* const* outputs;
  const void* author; /* for the author's side alone */
  /* Replaces a backward function: adds the nodes that compute the gradient. */
  opkit_status (*gradient)(const opkit_op* op, const opkit_gradient* gradient);
  /* Since 1.1. Returns the work of a run in *cost, which the host has set to the bytes of all
   * inputs and outputs and 0 flops. Without this function the cost is that value. */
  opkit_status (*cost)(const opkit_op* op, const opkit_node* node, const opkit_value* inputs,
                       const opkit_value* outputs, opkit_cost* cost);
  /* Since 1.4. Adds inputs with which a test may run the operator, the same for the same seed.
   * Their floating-point type is `dtype`. Adds no inputs if the operator has none for that type. */
  opkit_status (*test_inputs)(const opkit_op* op, int32_t dtype, uint64_t seed,
                              const opkit_test_inputs* inputs);
};
#define OPKIT_OP_SUBGRAPH ((uint64_t)1)        /* reads a graph that its node carries */
#define OPKIT_OP_ACCEPTS_STRIDES ((uint64_t)2) /* otherwise inputs arrive dense */
#define OPKIT_OP_ACCEPTS_ADD ((uint64_t)4)     /* otherwise the host adds */
#define OPKIT_OP_ASYNC ((uint64_t)8)           /* forward may call host->defer */
/* two runs may differ, or have other effects: its nodes are never merged, folded or dropped */
#define OPKIT_OP_EFFECTS ((uint64_t)16)
/* no gradient flows; a request for one is a mistake; the gradient is not written yet */
#define OPKIT_OP_NO_GRADIENT ((uint64_t)32)
#define OPKIT_OP_SHOULD_NOT_GRADIENT ((uint64_t)64)
#define OPKIT_OP_GRADIENT_NOT_IMPLEMENTED ((uint64_t)128)
#define OPKIT_OP_OPEN_ATTRS ((uint64_t)256) /* accepts attributes that are not in attrs */
/* with OPKIT_OP_EFFECTS, if the only effect is data that a node keeps between its runs: equal
   inputs give equal results */
#define OPKIT_OP_KEEPS_STATE ((uint64_t)512)
/* since 1.1: forward allocates outputs whose shapes inference does not know (allocate_output) */
#define OPKIT_OP_ALLOCATES_OUTPUTS ((uint64_t)1024)
/* since 1.4: accepts only attrs; otherwise parse_attrs without attrs accepts any attribute */
#define OPKIT_OP_CLOSED_ATTRS ((uint64_t)2048)

/* Since 1.3. An order of elements in memory other than row by row. Names of layouts are unique: a
 * library's layout is ignored if its name is taken. */
typedef struct opkit_layout opkit_layout;
struct opkit_layout {
  uint64_t size;
  const void* extension;
  const char* name;
  /* Returns the bytes of a tensor in *bytes; null: the sum of its elements' bytes. */
  opkit_status (*bytes)(const opkit_layout* layout, int32_t dtype, int32_t rank,
                        const int64_t* shape, int64_t* bytes);
  /* Both functions are required. They write all of `to`, which has enough memory. All data is in
   * host memory. */
  opkit_status (*to_standard)(const opkit_layout* layout, const opkit_tensor* from,
                              const opkit_tensor* to);
  opkit_status (*from_standard)(const opkit_layout* layout, const opkit_tensor* from,
                                const opkit_tensor* to);
  double ns_per_byte; /* an estimate, for each byte read or written */
  const void* author; /* for the author's side alone */
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

/* Since 1.3. A type of device with memory of its own. A kernel for it has its name in
 * opkit_kernel.device. The work is done when forward returns, or ends as in opkit_host.defer, so
 * that a device can have its own queues. Several threads may call the functions at once. */
typedef struct opkit_device opkit_device;
enum { OPKIT_HOST_TO_DEVICE = 1, OPKIT_DEVICE_TO_HOST = 2, OPKIT_DEVICE_TO_DEVICE = 3 };
struct opkit_device {
  uint64_t size;
  const void* extension;
  const char* name;
  int32_t type; /* a number from 80 to 127 that no other device of the program has */
  int32_t reserved;
  /* Returns a failure with the reason if no device has that index. Null: every index exists. */
  opkit_status (*available)(const opkit_device* device, int32_t index);
  /* Allocates memory aligned to 64 bytes, or returns OPKIT_OUT_OF_MEMORY; `bytes` is not 0. */
  opkit_status (*alloc)(const opkit_device* device, int32_t index, int64_t bytes, void** memory);
  void (*free)(const opkit_device* device, void* memory, int64_t bytes);
  /* Copies `bytes` bytes, not 0, in one direction, and returns when the copy is done. The ranges do
   * not overlap. Between two devices, `index` is that of the target. */
  opkit_status (*copy)(const opkit_device* device, int32_t index, int32_t direction, void* to,
                       const void* from, int64_t bytes);
  const void* author; /* for the author's side alone */
};

/* Since 1.3. The graph that a partitioner partitions, and the functions for it.
 * Everything that `begin` gets lasts until `end` is called. */
typedef struct opkit_partition opkit_partition;
struct opkit_partition {
  uint64_t size;
  const void* extension;
  void* context; /* for the host alone */
  /* The whole graph with its types. Nodes are in an order in which they can run; a node's number is
   * its index in the list. */
  const opkit_graph* graph;
  const uint8_t* taken; /* for each node: nonzero if an earlier partitioner has made it */
  uint64_t num_options;
  const char* const* option_names;
  const char* const* option_values;
  /* Writes the graph, or in `review` the subgraph, as text in the form of MXNet's symbols. *nodes
   * has, for each node of the text, its number in that graph; -1 for inputs and constants. The text
   * and *nodes last until the partitioner's function returns. */
  opkit_status (*json)(const opkit_partition* partition, const char** text, uint64_t* num_nodes,
                       const int64_t** nodes);

  /* In `mark`. Takes a node. Nodes of different kinds (numbers from 0 on) are never in one
   * subgraph; kind -1 may be with any kind. Nodes of different sets (numbers from 0 on) are never
   * in one subgraph; pass 0 if there is only one set. */
  opkit_status (*take)(const opkit_partition* partition, uint64_t node, int32_t kind, int32_t set);
  /* In `mark`. Leaves a node in the graph, for this reason. */
  opkit_status (*refuse)(const opkit_partition* partition, uint64_t node, const char* why);

  /* In `review`. A legal subgraph, the numbers of its nodes in the whole graph, and the operator
   * that replaces the subgraph; `op` does not carry the subgraph yet. Inputs and outputs of the
   * subgraph have the names of the graph's values. */
  const opkit_graph* subgraph;
  const opkit_node* op;
  int64_t id;
  int32_t kind;
  int32_t reserved;
  uint64_t num_nodes;
  const uint64_t* nodes;
  opkit_status (*reject)(const opkit_partition* partition, const char* why);
  /* set_attr sets an attribute of the operator. add_constant adds a constant to the subgraph, under
   * a name that the subgraph does not use. */
  opkit_status (*set_attr)(const opkit_partition* partition, const opkit_attr* attr);
  opkit_status (*add_constant)(const opkit_partition* partition, const char* name,
                               const opkit_tensor* value);
};

/* Since 1.3. Decides which nodes of a graph go to an operator of the library. The host calls begin,
 * mark, review for each subgraph, and end, in this order; for several graphs possibly at once. */
typedef struct opkit_partitioner opkit_partitioner;
struct opkit_partitioner {
  uint64_t size;
  const void* extension;
  const char* name;
  const char* file; /* where it is defined */
  int32_t line;
  int32_t reserved;
  /* Returns the operator that replaces a subgraph of this kind. */
  const char* (*subgraph_op)(const opkit_partitioner* partitioner, int32_t kind);
  /* Makes the `work` of the next three functions. Null: `work` is `author`. */
  opkit_status (*begin)(const opkit_partitioner* partitioner, const opkit_partition* partition,
                        void** work);
  opkit_status (*mark)(void* work, const opkit_partition* partition);
  opkit_status (*review)(void* work, const opkit_partition* partition); /* null: accepts all */
  void (*end)(void* work);
  const void* author; /* for the author's side alone */
};

/* Since 1.3. A graph that a pass changes. Node numbers are those of `graph`. The host makes all
 * changes together after the pass has returned, and only if the result is valid. */
typedef struct opkit_rewrite opkit_rewrite;
struct opkit_rewrite {
  uint64_t size;
  const void* extension;
  void* context;            /* for the host alone */
  const opkit_graph* graph; /* has its types; nodes are in an order in which they can run */
  uint64_t num_options;
  const char* const* option_names;
  const char* const* option_values;
  /* Adds a node before the node of this number, or at the end for num_nodes. */
  opkit_status (*add_node)(const opkit_rewrite* rewrite, uint64_t before, const opkit_node* node);
  opkit_status (*replace_node)(const opkit_rewrite* rewrite, uint64_t node,
                               const opkit_node* replacement);
  opkit_status (*remove_node)(const opkit_rewrite* rewrite, uint64_t node);
  /* Makes every node that reads `from` read `to`. */
  opkit_status (*replace_uses)(const opkit_rewrite* rewrite, const char* from, const char* to);
  opkit_status (*add_constant)(const opkit_rewrite* rewrite, const char* name,
                               const opkit_tensor* value);
  opkit_status (*remove_constant)(const opkit_rewrite* rewrite, const char* name);
  /* Sets the whole result instead; the new graph has the inputs and outputs of `graph`. */
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
  const void* author; /* for the author's side alone */
};

/* Since 1.4. The description of a backend of the library's kernels (opkit_kernel.backend). */
typedef struct opkit_backend opkit_backend;
struct opkit_backend {
  uint64_t size;
  const void* extension;
  const char* name;
  /* For the library's own operators: kernels of a higher rank come first; plain kernels have rank
   * 0. Negative: no rank. */
  int32_t rank;
  int32_t reserved;
  /* Returns a failure with the reason if the backend cannot run on this machine. Called once,
   * before the first node that its kernels might run. Null: the backend can run. */
  opkit_status (*available)(const opkit_backend* backend);
  const void* author; /* for the author's side alone */
};

/* The description of a library. */
typedef struct opkit_library {
  uint64_t size;
  const void* extension;
  uint32_t abi_major;
  uint32_t abi_minor;
  const char* name;    /* null: the file's name */
  const char* version; /* of the toolkit with which it was compiled; null: none */
  /* Called once, before anything else, with the host's version. A failure stops the loading. */
  opkit_status (*initialize)(uint32_t host_abi_major, uint32_t host_abi_minor);
  void (*finalize)(void); /* called once: before unloading, or when the process ends */
  uint64_t num_ops;
  const opkit_op* const* ops;
  /* Since 1.3. A host of an older version refuses a library with partitioners or passes. */
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

/* The name of the one function that a library exports. The function calls host->set_error and
 * returns null if the library cannot serve this host. */
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
/* Returns the number of elements of a tensor. */
static inline int64_t opkit_numel(const opkit_tensor* tensor) {
  int64_t count = 1;
  int32_t i;
  for (i = 0; i < tensor->rank; ++i) count *= tensor->shape[i];
  return count;
}
/* Returns the attribute of that name; null if there is none. */
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
