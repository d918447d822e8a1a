// The compiled runtime: what operators of functions and libraries of them need, without the runtime
// that runs them. A library's author may link this alone.
#include "opkit/op/abi/impl/abi_attributes.ipp"
#include "opkit/op/abi/impl/attr_map.ipp"
#include "opkit/op/abi/impl/op_resource.ipp"
#include "opkit/op/abi/impl/op_tensor.ipp"
#include "opkit/op/function/impl/function_signature.ipp"
