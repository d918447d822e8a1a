/* opkit_host.h: the toolkit for programs that are not in C++. C99.
 *
 * A program links libopkit.so (CMake's opkit::host) and includes this header, or opens the file
 * with dlopen, ctypes or another language's means. It loads libraries of operators, runs operators
 * by name, and runs graphs from files, all on DLPack's tensors. The standard operators, the kernels
 * of Eigen and the reader of ONNX are in libopkit.so. examples/c_host.c is a whole program.
 *
 * These rules keep programs and libopkit.so of different versions working together. They are those
 * of opkit_abi.h, which is for the other side, the libraries:
 * 1. Functions never change their arguments or their meaning and are never removed. New functions
 *    make OPKIT_HOST_MINOR grow by one. Any other change needs a new major version, which is in the
 *    name of the file: libopkit.so.1. Options are JSON, so that new ones need no new function.
 * 2. Structs of opkit_abi.h begin with `size`: set it to their sizeof before the call. DLPack's
 *    structs have DLPack's own layout.
 * 3. Memory does not change its owner, but for what says so: a text that was made is freed by
 *    opkit_host_free_text, a tensor that was made by its deleter, a handle by its own function.
 *    Strings are UTF-8 and end with a zero.
 * 4. No exception passes through a call.
 *
 * Errors. A function returns OPKIT_OK or the kind of the failure. A status that the program does
 * not know is a failure. opkit_host_error() then returns the whole text. The text belongs to the
 * thread that made the call, as errno does: a failure in one thread does not change the text of
 * another, also if both use one handle. After a failure, every result of the call is null, and the
 * handles are as they were. Every pointer that a function takes must be valid, but a null pointer
 * is an OPKIT_INVALID_ARGUMENT where the function does not allow it.
 *
 * Threads. Every function may be called by any thread at any time, also with a handle that other
 * threads use. Runs of one operator or one plan at the same time take turns only where the operator
 * keeps state; else each run has memory of its own. The exception are the functions that free a
 * handle: no other thread may use the handle during such a call or later.
 *
 * Handles. A handle of another kind, such as a graph where a plan is expected, is an
 * OPKIT_INVALID_ARGUMENT. A function that frees a handle does nothing but set the error text if the
 * handle is freed already; this is found unless a new handle has the same address. Any other use of
 * a freed handle is not found: the program may crash.
 *
 * libopkit.so stays in the process once it is loaded, because its threads do: dlclose does nothing.
 */
#ifndef OPKIT_ABI_OPKIT_HOST_H_
#define OPKIT_ABI_OPKIT_HOST_H_

#include "opkit/abi/opkit_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPKIT_HOST_MAJOR 1
#define OPKIT_HOST_MINOR 0
#define OPKIT_HOST_INTERFACE (OPKIT_HOST_MAJOR * 65536u + OPKIT_HOST_MINOR)

/* DLPack's structs (github.com/dmlc/dlpack, version 1.1). If dlpack/dlpack.h is included before
 * this header, they are the same types; else cast pointers of a DLTensor to opkit_dl_tensor. */
#ifdef DLPACK_DLPACK_H_
typedef DLTensor opkit_dl_tensor;
typedef DLManagedTensorVersioned opkit_dl_managed_tensor;
#else
typedef struct opkit_dl_device {
  int32_t device_type; /* DLPack's numbers, those of opkit_abi.h too: OPKIT_CPU, OPKIT_CUDA */
  int32_t device_id;
} opkit_dl_device;
typedef struct opkit_dl_type {
  uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} opkit_dl_type;
typedef struct opkit_dl_tensor {
  void* data; /* may be null without elements */
  opkit_dl_device device;
  int32_t ndim;
  opkit_dl_type dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; null for row-major dense */
  uint64_t byte_offset;
} opkit_dl_tensor;
typedef struct opkit_dl_version {
  uint32_t major;
  uint32_t minor;
} opkit_dl_version;
typedef struct opkit_dl_managed_tensor { /* DLManagedTensorVersioned */
  opkit_dl_version version;
  void* manager_ctx;
  void (*deleter)(struct opkit_dl_managed_tensor* self);
  uint64_t flags;
  opkit_dl_tensor dl_tensor;
} opkit_dl_managed_tensor;
#endif

typedef struct opkit_host_library opkit_host_library;
typedef struct opkit_host_operator opkit_host_operator;
typedef struct opkit_host_graph opkit_host_graph;
typedef struct opkit_host_plan opkit_host_plan;

/* Returns the version of this interface in libopkit.so: major * 65536 + minor. */
uint32_t opkit_host_interface(void);
/* Compares the interface with that of the header with which the program was compiled. The argument
 * is OPKIT_HOST_INTERFACE. OPKIT_UNSUPPORTED: the major versions differ, or the program's minor
 * version is larger; the text names both. The program must then call no other function but
 * opkit_host_error. */
opkit_status opkit_host_require(uint32_t compiled);
/* Returns the version of the toolkit, such as "0.1.0". */
const char* opkit_host_version(void);

/* Returns the text of the last failure in this thread, which says what was expected, what was found
 * and how to mend it, and in further lines where it happened. Empty before the first failure. It
 * lasts until this thread's next failure. */
const char* opkit_host_error(void);
/* Frees a text that a function has made. Null is allowed. */
void opkit_host_free_text(char* text);

/* Loads a library of operators and registers all of them, or none. A file that is loaded already is
 * not loaded again, and gets one more handle. `options` is a JSON object, or null:
 *   {"backend": "mine", "allow_override": true, "own_copy": true,
 *    "flags": ["-O3"], "compiler": "g++", "include_dir": "…", "cache_dir": "…"}
 * `backend` names the library's kernels for operators that exist already; `allow_override` puts
 * these kernels first; `own_copy` loads a loaded file a second time. The options of the second line
 * are for a source (.cc, .cpp, .cxx, .c, .cu): it is compiled, unless the result of an earlier call
 * or process is still valid. They are those of BuildOptions, in opkit/plugin/build.hpp. If the
 * source has changed, the new library takes the place of the one before, whose handles can then
 * only be given to opkit_host_unload. OPKIT_IO: a missing file. OPKIT_UNSUPPORTED: a file for
 * another machine or of another version of opkit_abi.h. OPKIT_NOT_FOUND: no compiler.
 * OPKIT_INVALID_ARGUMENT: a file that is no such library, a source that does not compile (the text
 * has the command and the compiler's text), or wrong options. OPKIT_FAILED_PRECONDITION: an
 * operator or a plan uses the library that a changed source would replace. */
opkit_status opkit_host_load(const char* path, const char* options, opkit_host_library** library);
/* Frees the handle, and unloads the library with its last handle. OPKIT_FAILED_PRECONDITION, and
 * the handle stays: an operator or a plan that uses the library exists. Null is allowed. */
opkit_status opkit_host_unload(opkit_host_library* library);

/* Makes a JSON array of the operators of a library, or with null of all operators of the process.
 * Each is an object such as
 *   {"name": "Elu", "doc": "…", "library": "", "num_inputs": [1, 1], "num_outputs": [1, 1],
 *    "inputs": [{"name": "X", "doc": "…", "dtypes": ["float32", "float64"]}],
 *    "outputs": [{"name": "Y", "doc": "…", "dtypes": ["float32", "float64"]}],
 *    "attributes": [{"name": "alpha", "doc": "…", "type": "float", "required": false,
 *                    "default": 1.0}],
 *    "any_attributes": false, "stateful": false}
 * num_inputs has the least and the largest number; the largest is null if there is no limit. The
 * library is empty for an operator of libopkit.so itself. Empty dtypes allow every dtype. An
 * attribute without a type may have any; `values` has the strings that it may be, if they are
 * limited. `any_attributes` says that the operator takes attributes that are not listed. */
opkit_status opkit_host_operators(const opkit_host_library* library, char** json);

/* Makes an operator that is ready for many runs. `attributes` is a JSON object, or null for the
 * defaults: {"alpha": 2.0, "axes": [0, 1], "mode": "same"}. An integer is a float too where the
 * operator wants one. A tensor, or a number that JSON lacks, is written with its type, as graphs in
 * JSON have it: {"alpha": {"float": "inf"}}. `options` is a JSON object, or null:
 *   {"num_outputs": 2, "present": [true, false, true], "backends": ["eigen"]}
 * `num_outputs` is needed only where the attributes do not decide it; `present` leaves optional
 * inputs out; `backends` are tried in this order, before the others. OPKIT_NOT_FOUND: no such
 * operator, or no kernel of a backend in the process.
 * OPKIT_INVALID_ARGUMENT, OPKIT_TYPE_MISMATCH: a wrong attribute, or wrong JSON. */
opkit_status opkit_host_make(const char* op, uint64_t num_inputs, const char* attributes,
                             const char* options, opkit_host_operator** made);
/* Frees the operator. Null is allowed. */
void opkit_host_free_operator(opkit_host_operator* op);
/* Returns the number of outputs of every run; 0 for null. */
uint64_t opkit_host_num_outputs(const opkit_host_operator* op);

/* Infers the dtypes and shapes of the outputs. `inputs` has a pointer for each input, null for one
 * that is left out. An input may have no data; then outputs whose shape depends on its elements may
 * stay unknown. `outputs` is an array of num_outputs structs with their `size`; the function fills
 * in present, dtype, rank and dims, with -1 for what is not known, and numbers below -1 for
 * symbols. OPKIT_INVALID_ARGUMENT, OPKIT_TYPE_MISMATCH: inputs that the operator does not take. */
opkit_status opkit_host_infer(opkit_host_operator* op, uint64_t num_inputs,
                              const opkit_dl_tensor* const* inputs, uint64_t num_outputs,
                              opkit_value* outputs);
/* Runs the operator, and returns when the outputs are computed. The inputs need to last until then;
 * an operator that mutates an input writes to it. `outputs` has a pointer for each output: a tensor
 * into which the output is written, or null. It may itself be null. A given tensor is compared with
 * the inferred output before the run: it must have the same dtype and shape, neither smaller nor
 * larger, and may have strides. Its memory must not overlap that of an input or of another output.
 * Output i without a tensor is made, and `made[i]` owns it: call made[i]->deleter(made[i]) in the
 * end. made[i] is null for given outputs, and `made` may be null if all are given. After a failure
 * no output has been made; a given one may have been written to only if the operator itself failed.
 */
opkit_status opkit_host_run(opkit_host_operator* op, uint64_t num_inputs,
                            const opkit_dl_tensor* const* inputs, uint64_t num_outputs,
                            const opkit_dl_tensor* const* outputs, opkit_dl_managed_tensor** made);

/* Loads a graph: an ONNX model, or a graph in the toolkit's JSON. The content says which it is.
 * OPKIT_IO: a file that cannot be read. OPKIT_NOT_FOUND: an operator that is not registered, so
 * load its library first. OPKIT_INVALID_ARGUMENT: the file is neither. */
opkit_status opkit_host_load_graph(const char* path, opkit_host_graph** graph);
/* Does the same with the bytes of a file, which are copied. External data of an ONNX model is read
 * from `folder`; with null it is a failure. */
opkit_status opkit_host_parse_graph(const void* bytes, uint64_t num_bytes, const char* folder,
                                    opkit_host_graph** graph);
/* Frees the graph. Its plans stay. Null is allowed. */
void opkit_host_free_graph(opkit_host_graph* graph);
/* Makes a JSON object that describes the graph. A symbol is a string, an unknown extent or shape
 * null:
 *   {"inputs": [{"name": "x", "dtype": "float32", "shape": ["N", 3]}],
 *    "outputs": [{"name": "y", "dtype": "float32", "shape": ["N", 10]}], "num_nodes": 7} */
opkit_status opkit_host_describe_graph(const opkit_host_graph* graph, char** json);
/* Return the number of inputs and outputs; 0 for null. */
uint64_t opkit_host_graph_num_inputs(const opkit_host_graph* graph);
uint64_t opkit_host_graph_num_outputs(const opkit_host_graph* graph);
/* Return the name of an input or output, and fill in its dtype, rank and dims as opkit_host_infer
 * does; `value` may be null. The name lasts as long as the graph. OPKIT_OUT_OF_RANGE: no such one.
 */
opkit_status opkit_host_graph_input(const opkit_host_graph* graph, uint64_t i, const char** name,
                                    opkit_value* value);
opkit_status opkit_host_graph_output(const opkit_host_graph* graph, uint64_t i, const char** name,
                                     opkit_value* value);

/* Makes a plan of the graph: selects kernels and plans memory, for each set of input shapes at its
 * first run, or now if the shapes are known. `options` is a JSON object, or null:
 *   {"threads": 2, "backends": ["eigen"], "shapes": {"x": [1, 3]}, "deterministic": true,
 *    "capacity_bytes": 1000000, "tuning": "cached", "tuning_cache": "tuning.json",
 *    "tuning_seconds": 20}
 * `threads` 0 are those of the process (OPKIT_NUM_THREADS, else its CPUs); `shapes` fixes shapes of
 * inputs; `capacity_bytes` limits the memory of a run; `tuning` is "none" (the default), "cached"
 * for the kernels that `opkit tune` has chosen, or "measure", which measures where the cache has
 * nothing. The failures are those of the first node that cannot be made. */
opkit_status opkit_host_compile(const opkit_host_graph* graph, const char* options,
                                opkit_host_plan** plan);
/* Frees the plan. Null is allowed. */
void opkit_host_free_plan(opkit_host_plan* plan);
/* Runs the plan, with the arguments of opkit_host_run. Inputs and outputs have the order of the
 * graph, and no input may be left out. A given output is compared before the run, as that of an
 * operator is. An output whose shape depends on the elements of the inputs is compared when it is
 * computed; other outputs may then have been written to. */
opkit_status opkit_host_run_plan(opkit_host_plan* plan, uint64_t num_inputs,
                                 const opkit_dl_tensor* const* inputs, uint64_t num_outputs,
                                 const opkit_dl_tensor* const* outputs,
                                 opkit_dl_managed_tensor** made);

/* Starts and ends the profile of all runs in the process. The text is a table of the operators and
 * their times; null if no text is wanted. OPKIT_FAILED_PRECONDITION: a profile runs already, or
 * none does. */
opkit_status opkit_host_start_profile(void);
opkit_status opkit_host_stop_profile(char** text);

#ifdef __cplusplus
}
#endif

#endif /* OPKIT_ABI_OPKIT_HOST_H_ */
