// Calls of the functions of a FunctionOpRecord: failures become Errors that name the function, and
// results are checked against the node. Only definitions of other headers include this file.
#ifndef OPKIT_OP_FUNCTION_FUNCTION_CALLS_HPP_
#define OPKIT_OP_FUNCTION_FUNCTION_CALLS_HPP_

#include "opkit/op/boundary/host/host_table.hpp"
#include "opkit/op/function_op.hpp"
#include "opkit/op/inference.hpp"
#include "opkit/op/schema/op_cost.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Replaces a record's parse_attrs, infer_type, infer_shape, mutate_inputs and scratch for a
// library's operator, whose description is more than these functions.
class FunctionHooks : public RefCounted {
 public:
  virtual std::pair<int, int> Arity(const Arguments& args,
                                    std::span<const NamedSubgraph> graphs) = 0;
  virtual void Infer(InferenceContext& context) = 0;
  // True if Infer calls functions of the author.
  virtual bool has_inference() const = 0;
  virtual std::vector<int> MutatedInputs(const OperatorDef& def) = 0;
  virtual int64_t Scratch(const OperatorDef& def, std::span<const TensorInfo> inputs) = 0;
  virtual void Cost(const OperatorDef& def, std::span<const TensorInfo> inputs,
                    std::span<const TensorInfo> outputs, OpCost& cost) = 0;
  virtual std::vector<Tensor> TestInputs(DType dtype, uint64_t seed) = 0;
};
// A state whose runs call a library's kernel: the `abi` of its FunctionDevice.
class DirectState : public StatefulOp {
 public:
  void* instance = nullptr;
};

// Returns the name of the blob in which a forward operator leaves its state.
std::string FunctionStateBlob(const OperatorDef& def);
inline FunctionHooks* HooksOf(const FunctionOpRecord& record) {
  return static_cast<FunctionHooks*>(record.hooks.get());
}
// Returns the operator's name for messages: "my_gemm", "my_gemm of library libmy_ops.so".
std::string NameOf(const FunctionOpRecord& record);
// Throws the failure that a function of the record has returned. Adds the text that the function
// gave to the host.
[[noreturn]] OPKIT_COLD void ThrowFunctionFailed(const FunctionOpRecord& record, const char* what,
                                                 const OpStatus& status);
// Returns the reason why a function of the C ABI has failed with `status`. A function without a
// reason has often returned the status of a failed host function; the text of that failure is then
// added.
std::string ReasonOf(opkit_status status);
// Calls a library's function, which must not throw. If it throws nevertheless, keeps only the
// exception's text, because the exception's code is unloaded with the library.
template <class Call>
opkit_status CallGuarded(Call call) {
  try {
    return call();
  } catch (const std::exception& thrown) {
    CurrentHostError().text = StrCat("it threw across the ABI: ", thrown.what());
  } catch (...) {
    CurrentHostError().text = "it threw across the ABI something that is not a std::exception";
  }
  return OPKIT_FAILED;
}
// Throws the failure that a function of the C ABI has returned.
[[noreturn]] OPKIT_COLD void ThrowStatus(const FunctionOpRecord& record, const char* what,
                                         opkit_status status);
// Rethrows the exception of a function of the record as an Error that names the function; for use
// in a catch block.
[[noreturn]] OPKIT_COLD void RethrowFromFunction(const FunctionOpRecord& record, const char* what);
// Calls a function of the record; turns a failure or an exception into an Error that names the
// function.
template <class Call>
void CallFunction(const FunctionOpRecord& record, const char* what, Call&& call) {
  HostErrorScope message;
  const OpStatus status = [&] {
    try {
      return call();
    } catch (...) {
      RethrowFromFunction(record, what);
    }
  }();
  if (!status.ok()) [[unlikely]]
    ThrowFunctionFailed(record, what, status);
}
// Returns the numbers of inputs and outputs of a node with these attributes and graphs; -1 for a
// number that parseAttrs does not decide. Only a library's parseAttrs gets the graphs.
std::pair<int, int> FunctionArity(FunctionOpRecord& record, const Arguments& args,
                                  std::span<const NamedSubgraph> graphs = {});
// Returns the indices of the inputs that the operator writes to.
std::vector<int> FunctionMutatedInputs(FunctionOpRecord& record, const OperatorDef& def);
// Infers the outputs of a forward node by the record's functions, by those of a library, or by the
// one graph that the node carries. A backward node's gradients have the types of the values.
void InferFunction(FunctionOpRecord& record, const AttrMap& attrs, FunctionPass pass,
                   InferenceContext& context);
// Adds the operator's own figures to `cost`, which already has the bytes of its values.
void FunctionCost(FunctionOpRecord& record, const OperatorDef& def,
                  std::span<const TensorInfo> inputs, std::span<const TensorInfo> outputs,
                  OpCost& cost);
// Returns the number of scratch bytes of a node; 0 while a needed shape is unknown. A backward node
// needs as many bytes as its forward node.
int64_t FunctionScratch(FunctionOpRecord& record, FunctionPass pass, const OperatorDef& def,
                        std::span<const TensorInfo> inputs);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/function/impl/function_calls.ipp"
#endif

#endif  // OPKIT_OP_FUNCTION_FUNCTION_CALLS_HPP_
