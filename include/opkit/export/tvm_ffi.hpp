// Exports an operator to tvm-ffi, the C boundary of functions that Python, TVM and others call on
// arrays: OPKIT_EXPORT_TVM_FFI(Axpy). docs/hosts.md shows how Python calls it.
//
//   m = tvm_ffi.load_module("./libmyops.so")
//   m.Axpy(x, y, 2.0, z)              # inputs, attributes in the schema's order, outputs
//   z = m.Axpy(x, y)                  # default attributes, a new output
//   total = m.RunningSum_create()     # an operator of its own, for operators that keep state
//   y = total(x)
//
// The inputs are the tensors at the front, at most the operator's number of them; None leaves an
// optional input out. Inputs of any number may also be one list. None is an attribute's default.
// The outputs are the tensors at the end. Without them the call returns a new tensor, or a list of
// several.
#ifndef OPKIT_EXPORT_TVM_FFI_HPP_
#define OPKIT_EXPORT_TVM_FFI_HPP_

#include "opkit/export/core.hpp"
#include "opkit/export/description.hpp"
#include "opkit/export/tvm_ffi_abi.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Calls the operator: the function behind __tvm_ffi_Axpy. Returns 0, or -1 after it has raised the
// Error in the host, by the name of its Python class.
OPKIT_IMAGE_LOCAL int CallFromTvmFfi(const ExportedOperator& op, const tvm_ffi::Any* args,
                                     int32_t num_args, tvm_ffi::Any* result) noexcept;
// Returns a function with an operator, and so a state, of its own: __tvm_ffi_Axpy_create. Its
// arguments are the attributes; those of the function are inputs and outputs. Threads that call the
// function wait for each other.
OPKIT_IMAGE_LOCAL int CreateForTvmFfi(const ExportedOperator& op, const tvm_ffi::Any* args,
                                      int32_t num_args, tvm_ffi::Any* result) noexcept;
// Returns the operator's documentation as a string: __tvm_ffi__doc_Axpy.
OPKIT_IMAGE_LOCAL int DocForTvmFfi(const ExportedOperator& op, tvm_ffi::Any* result) noexcept;
// Returns JSON with the types of the arguments, and their names and defaults:
// __tvm_ffi__metadata_Axpy.
OPKIT_IMAGE_LOCAL int MetadataForTvmFfi(const ExportedOperator& op, tvm_ffi::Any* result) noexcept;

}}}  // namespace opkit::detail

// Exports one operator to tvm-ffi, and its gradient, if it has one, as Axpy_grad; at namespace
// scope, once in a shared object. The operator is registered in this or another unit.
#define OPKIT_EXPORT_TVM_FFI(op)                  \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_EXPORT_TVM_FFI); \
  OPKIT_TVM_FFI_FUNCTIONS_(op, nullptr)           \
  OPKIT_TVM_FFI_FUNCTIONS_(op##_grad, #op)        \
  OPKIT_ADD_EXPORT_(g_tvm_ffi_operators, opkit_tvm_ffi_##op, tvm_ffi_##op)
#define OPKIT_TVM_FFI_FUNCTIONS_(op, gradient_of)                                            \
  static constinit ::opkit::detail::ExportedOperator opkit_tvm_ffi_##op{#op, gradient_of};   \
  OPKIT_TVM_FFI_FUNCTION_(_##op, CallFromTvmFfi(opkit_tvm_ffi_##op, args, num_args, result)) \
  OPKIT_TVM_FFI_FUNCTION_(_##op##_create,                                                    \
                          CreateForTvmFfi(opkit_tvm_ffi_##op, args, num_args, result))       \
  OPKIT_TVM_FFI_FUNCTION_(__doc_##op, DocForTvmFfi(opkit_tvm_ffi_##op, result))              \
  OPKIT_TVM_FFI_FUNCTION_(__metadata_##op, MetadataForTvmFfi(opkit_tvm_ffi_##op, result))
#define OPKIT_TVM_FFI_FUNCTION_(name, call)                               \
  extern "C" OPKIT_VISIBLE int __tvm_ffi##name(                           \
      void*, [[maybe_unused]] const ::opkit::tvm_ffi::Any* args,          \
      [[maybe_unused]] int32_t num_args, ::opkit::tvm_ffi::Any* result) { \
    return ::opkit::detail::call;                                         \
  }

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/tvm_ffi.ipp"
#endif

#endif  // OPKIT_EXPORT_TVM_FFI_HPP_
