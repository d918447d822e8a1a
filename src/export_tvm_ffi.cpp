// The compiled runtime: the exports to tvm-ffi.
#include "opkit/export/impl/tvm_ffi.ipp"
