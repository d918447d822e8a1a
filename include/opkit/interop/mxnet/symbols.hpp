// MxnetSymbols: the C functions that every library for MXNet exports, as function pointers. The
// boundary is that of lib_api.h in MXNet 1.8 to 1.9.1, versions 10 and 11. Only the definitions of
// interop/mxnet.hpp include the headers of this folder.
#ifndef OPKIT_INTEROP_MXNET_SYMBOLS_HPP_
#define OPKIT_INTEROP_MXNET_SYMBOLS_HPP_

#include <cstdint>

#include "opkit/plugin/load/shared_object.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A function of the library's author. The host passes it back to one of the _opCall… functions,
// which knows its signature.
using MxnetFunction = void (*)();
// An array of texts.
using MxnetTexts = const char* const*;
// Allocates `bytes` bytes; the first argument is the host's.
using MxnetMalloc = void* (*)(void* host, int bytes);
// Allocates the parts of sparse output `output`.
using MxnetSparseMalloc = void (*)(void* host, int output, int num_indices, int num_indptr,
                                   void** data, int64_t** indices, int64_t** indptr);
// Makes a tensor of a graph that a pass changes; `data` gets its memory.
using MxnetTensorMalloc = void (*)(const void* host, const int64_t* shape, int rank,
                                   const char* device, int device_id, int dtype, const char* name,
                                   int is_arg, void** data);

// Parameters of the C functions that always stand together, as macros, since C passes them one by
// one. The tensors of a run: inputs, outputs, memory, storage types, parts of sparse tensors, and
// random states.
#define OPKIT_MXNET_RUN                                                                         \
  const int64_t**, int*, void**, int*, size_t*, const char**, int*, int, const int64_t**, int*, \
      void**, int*, size_t*, const char**, int*, int, MxnetMalloc, void*, MxnetMalloc, void*,   \
      void*, MxnetSparseMalloc, void*, int*, int*, void**, void**, void**, void**, int64_t*,    \
      int64_t*, int64_t*, int64_t*, void*, void*
// The named tensors of a graph: its arguments, or its auxiliary states.
#define OPKIT_MXNET_NAMED                                                                      \
  MxnetTexts, int, void* const*, const int64_t* const*, const int*, const int*, const size_t*, \
      MxnetTexts, const int*

// A function that returns int returns 0 for a failure, unless it is a getter. Pointers marked
// "freed" are the host's to free by op_call_free.
struct MxnetSymbols {
  int (*initialize)(int mxnet_version);
  int (*msg_size)();
  void (*msg_get)(int index, const char** text);

  int (*op_reg_size)();
  // Appends to the library's own lists, so that it may be called once for each operator.
  void (*op_reg_get)(int index, const char** name, int* is_subgraph_op,
                     const char*** forward_devices, MxnetFunction** forward, int* num_forward,
                     const char*** backward_devices, MxnetFunction** backward, int* num_backward,
                     const char*** create_devices, MxnetFunction** create, int* num_create,
                     MxnetFunction* parse_attrs, MxnetFunction* infer_type,
                     MxnetFunction* infer_stype, MxnetFunction* infer_shape,
                     MxnetFunction* mutate_inputs);
  void (*op_call_free)(void* memory);
  int (*op_call_parse_attrs)(MxnetFunction, MxnetTexts keys, MxnetTexts values, int num,
                             int* num_in, int* num_out);
  // All four results are arrays, and the rows of shapes too: freed.
  int (*op_call_infer_shape)(MxnetFunction, MxnetTexts keys, MxnetTexts values, int num,
                             unsigned** in_shapes, int* in_ranks, int num_in,
                             unsigned*** new_in_shapes, int** new_in_ranks, unsigned*** out_shapes,
                             int** out_ranks, int num_out);
  int (*op_call_infer_type)(MxnetFunction, MxnetTexts keys, MxnetTexts values, int num, int* in,
                            int num_in, int* out, int num_out);
  int (*op_call_infer_stype)(MxnetFunction, MxnetTexts keys, MxnetTexts values, int num, int* in,
                             int num_in, int* out, int num_out);
  // *inputs: freed.
  int (*op_call_mutate_inputs)(MxnetFunction, MxnetTexts keys, MxnetTexts values, int num,
                               int** inputs, int* num_inputs);
  int (*op_call_fcompute)(MxnetFunction, MxnetTexts keys, MxnetTexts values, int num,
                          OPKIT_MXNET_RUN);
  int (*op_call_create_op_state)(MxnetFunction, MxnetTexts keys, MxnetTexts values, int num,
                                 const char* device, int device_id, unsigned** in_shapes,
                                 int* in_ranks, int num_in, const int* in_types, void** state);
  void (*op_call_destroy_op_state)(void* state);  // null in version 10: states are never freed
  int (*op_call_fstateful_compute)(int is_forward, void* state, OPKIT_MXNET_RUN);

  int (*part_reg_size)();
  int (*part_reg_get_count)(int index, const char** name);
  void (*part_reg_get)(int index, int strategy, const char** strategy_name,
                       MxnetFunction* supported_ops, MxnetFunction* create_selector,
                       MxnetFunction* review_subgraph, const char** subgraph_op);
  int (*part_call_supported_ops)(MxnetFunction, const char* json, int num_ids, int* ids,
                                 MxnetTexts keys, MxnetTexts values, int num);
  int (*part_call_create_selector)(MxnetFunction, const char* json, void** selector,
                                   MxnetTexts keys, MxnetTexts values, int num);
  void (*part_call_select)(void* selector, int node, int* selected);
  void (*part_call_select_input)(void* selector, int node, int input, int* selected);
  void (*part_call_select_output)(void* selector, int node, int output, int* selected);
  // *keep: freed.
  void (*part_call_filter)(void* selector, int* candidates, int num_candidates, int** keep,
                           int* num_keep);
  void (*part_call_reset)(void* selector);
  // *new_keys, *new_values and their texts: freed. They are written if *num_new > 0.
  int (*part_call_review_subgraph)(MxnetFunction, const char* json, int subgraph_id, int* accept,
                                   MxnetTexts keys, MxnetTexts values, int num, char*** new_keys,
                                   char*** new_values, int* num_new, OPKIT_MXNET_NAMED,
                                   OPKIT_MXNET_NAMED);

  int (*pass_reg_size)();
  void (*pass_reg_get)(int index, MxnetFunction* pass, const char** name);
  // *out_json: freed.
  int (*pass_call_graph_pass)(MxnetFunction, const char* json, char** out_json, MxnetTexts keys,
                              MxnetTexts values, int num, const char* pass_name, OPKIT_MXNET_NAMED,
                              OPKIT_MXNET_NAMED, MxnetTensorMalloc, const void* host);

  int version;  // what _opVersion returns
};

// Reads the functions of a library. Throws kUnsupported for another version than 10 or 11,
// kInvalidArgument if a function is missing.
inline MxnetSymbols ReadMxnetSymbols(const SharedObject& file, const std::string& name) {
  MxnetSymbols to{};
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(file.Find(symbol));
    if (!function)
      Throw(ErrorCode::kInvalidArgument, "library ", name, " is one for MXNet, but exports no ",
            symbol, "; compile it together with MXNet's lib_api.cc");
  };
  int (*version)() = nullptr;
  find(version, "_opVersion");
  to.version = version();
  if (to.version == 7)
    Throw(ErrorCode::kUnsupported, "library ", name,
          " has version 7 of MXNet's extension interface (MXNet 1.7), whose functions have other "
          "parameters; versions 10 and 11 load here: compile it with lib_api.h and lib_api.cc of "
          "MXNet 1.9.1");
  if (to.version != 10 && to.version != 11)
    Throw(ErrorCode::kUnsupported, "library ", name, " has version ", to.version,
          " of MXNet's extension interface; versions 10 and 11 load here (MXNet 1.8 and 1.9)");
  find(to.initialize, "initialize");
  find(to.msg_size, "_msgSize");
  find(to.msg_get, "_msgGet");
  find(to.op_reg_size, "_opRegSize");
  find(to.op_reg_get, "_opRegGet");
  find(to.op_call_free, "_opCallFree");
  find(to.op_call_parse_attrs, "_opCallParseAttrs");
  find(to.op_call_infer_shape, "_opCallInferShape");
  find(to.op_call_infer_type, "_opCallInferType");
  find(to.op_call_infer_stype, "_opCallInferSType");
  find(to.op_call_mutate_inputs, "_opCallMutateInputs");
  find(to.op_call_fcompute, "_opCallFCompute");
  find(to.op_call_create_op_state, "_opCallCreateOpState");
  if (to.version >= 11) find(to.op_call_destroy_op_state, "_opCallDestroyOpState");
  find(to.op_call_fstateful_compute, "_opCallFStatefulCompute");
  find(to.part_reg_size, "_partRegSize");
  find(to.part_reg_get_count, "_partRegGetCount");
  find(to.part_reg_get, "_partRegGet");
  find(to.part_call_supported_ops, "_partCallSupportedOps");
  find(to.part_call_create_selector, "_partCallCreateSelector");
  find(to.part_call_select, "_partCallSelect");
  find(to.part_call_select_input, "_partCallSelectInput");
  find(to.part_call_select_output, "_partCallSelectOutput");
  find(to.part_call_filter, "_partCallFilter");
  find(to.part_call_reset, "_partCallReset");
  find(to.part_call_review_subgraph, "_partCallReviewSubgraph");
  find(to.pass_reg_size, "_passRegSize");
  find(to.pass_reg_get, "_passRegGet");
  find(to.pass_call_graph_pass, "_passCallGraphPass");
  return to;
}

#undef OPKIT_MXNET_RUN
#undef OPKIT_MXNET_NAMED

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_MXNET_SYMBOLS_HPP_
