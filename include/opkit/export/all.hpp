// Exports operators to every host: OPKIT_EXPORT(Axpy) is the macros of all hosts' headers for one
// operator.
#ifndef OPKIT_EXPORT_ALL_HPP_
#define OPKIT_EXPORT_ALL_HPP_

#include "opkit/export/onnxruntime.hpp"
#include "opkit/export/torch.hpp"
#include "opkit/export/tvm_ffi.hpp"
#include "opkit/export/xla.hpp"

// Exports an operator to every host of this header. Write it at namespace scope in one unit of the
// shared object; the operator is registered in this or another unit:
//   OPKIT_EXPORT_DOMAIN("mine");
//   OPKIT_EXPORT(Axpy);
#define OPKIT_EXPORT(op)        \
  OPKIT_EXPORT_ONNXRUNTIME(op); \
  OPKIT_EXPORT_TVM_FFI(op);     \
  OPKIT_EXPORT_XLA(op);         \
  OPKIT_EXPORT_TORCH(op)

#endif  // OPKIT_EXPORT_ALL_HPP_
