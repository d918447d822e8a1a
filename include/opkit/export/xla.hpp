// Exports operators to XLA, and so to JAX: a handler of XLA's foreign function interface for each
// operator, over our own declarations of that interface (xla_abi.hpp). XLA infers nothing and
// allocates the results, so the caller gives their types; the export compares them before the run.
#ifndef OPKIT_EXPORT_XLA_HPP_
#define OPKIT_EXPORT_XLA_HPP_

#include "opkit/export/core.hpp"
#include "opkit/export/description.hpp"
#include "opkit/export/xla_abi.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An operator that OPKIT_EXPORT_XLA exports, and the number that XLA gives to the type of its
// state.
struct OPKIT_IMAGE_LOCAL XlaOperator {
  ExportedOperator op;
  xla::TypeId* state_type_id;
};

// How a handler runs: when it returns, and on which device.
enum class XlaRun { kOnCpu, kOnCpuLater, kOnCuda };

// Answers one call of a handler. Returns null, or an error for XLA with the whole text of the
// opkit::Error. Thread-safe.
OPKIT_IMAGE_LOCAL xla::Error* HandleXla(const XlaOperator& op, xla::CallFrame& frame,
                                        XlaRun run) noexcept;
// Deletes the state that XLA keeps for a call in its program.
OPKIT_IMAGE_LOCAL void DeleteXlaState(void* state);

}}}  // namespace opkit::detail

// Exports an operator to XLA. Write it at namespace scope in one unit of a shared object; the
// operator is registered in this or another unit. The shared object then has these C symbols:
//   opkit_xla_Axpy            the handler for platform "cpu"
//   opkit_xla_later_Axpy      the same, but it returns at once; the work runs in XLA's thread pool
//   opkit_xla_cuda_Axpy       the handler for platform "CUDA", on the stream of XLA's call
//   opkit_xla_type_id_Axpy    XLA's number for the type of the operator's state, and
//   opkit_xla_type_info_Axpy  that type's deleter, for jax.ffi.register_ffi_type
//   opkit_xla_Axpy_grad       and so on: the gradient, if the operator has one
//
//   OPKIT_EXPORT_XLA(Axpy)
//
// In Python:
//   lib = ctypes.CDLL("./libmyops.so")
//   jax.ffi.register_ffi_target("axpy", jax.ffi.pycapsule(lib.opkit_xla_Axpy), platform="cpu")
//   z = jax.ffi.ffi_call("axpy", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y, alpha=np.float32(2))
//
// Attributes are numbers, strings, one-dimensional NumPy arrays for lists (of bools: integers 0 and
// 1, because XLA passes no arrays of bools), and for lists of strings
// dicts {"0": "first", "1": "second"}. Optional inputs at the end are left out; the attribute
// opkit_inputs=np.array([1, 0, 1]) says that input 1 is left out. A stateful operator needs a
// registered type and the stage "instantiate"; each call in a compiled program then has its own
// state.
#define OPKIT_EXPORT_XLA(name)                \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_EXPORT_XLA); \
  OPKIT_XLA_HANDLERS_(name, nullptr)          \
  OPKIT_XLA_HANDLERS_(name##_grad, #name)     \
  OPKIT_ADD_EXPORT_(g_xla_operators, opkit_xla_operator_##name.op, xla_##name)
#define OPKIT_XLA_HANDLERS_(name, gradient_of)                                              \
  extern "C" {                                                                              \
  OPKIT_VISIBLE constinit ::opkit::detail::xla::TypeId opkit_xla_type_id_##name{0};         \
  OPKIT_VISIBLE constinit ::opkit::detail::xla::TypeInfo opkit_xla_type_info_##name{        \
      {sizeof(::opkit::detail::xla::TypeInfo), nullptr}, &::opkit::detail::DeleteXlaState}; \
  }                                                                                         \
  static constinit ::opkit::detail::XlaOperator opkit_xla_operator_##name{                  \
      ::opkit::detail::ExportedOperator(#name, gradient_of), &opkit_xla_type_id_##name};    \
  extern "C" {                                                                              \
  OPKIT_VISIBLE ::opkit::detail::xla::Error* opkit_xla_##name(                              \
      ::opkit::detail::xla::CallFrame* frame) {                                             \
    return ::opkit::detail::HandleXla(opkit_xla_operator_##name, *frame,                    \
                                      ::opkit::detail::XlaRun::kOnCpu);                     \
  }                                                                                         \
  OPKIT_VISIBLE ::opkit::detail::xla::Error* opkit_xla_later_##name(                        \
      ::opkit::detail::xla::CallFrame* frame) {                                             \
    return ::opkit::detail::HandleXla(opkit_xla_operator_##name, *frame,                    \
                                      ::opkit::detail::XlaRun::kOnCpuLater);                \
  }                                                                                         \
  OPKIT_VISIBLE ::opkit::detail::xla::Error* opkit_xla_cuda_##name(                         \
      ::opkit::detail::xla::CallFrame* frame) {                                             \
    return ::opkit::detail::HandleXla(opkit_xla_operator_##name, *frame,                    \
                                      ::opkit::detail::XlaRun::kOnCuda);                    \
  }                                                                                         \
  }

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/xla.ipp"
#endif

#endif  // OPKIT_EXPORT_XLA_HPP_
