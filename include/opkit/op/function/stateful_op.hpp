// StatefulOp: the base class of the objects that setCreateOpState makes, with the OpContext that
// they are made for.
#ifndef OPKIT_OP_FUNCTION_STATEFUL_OP_HPP_
#define OPKIT_OP_FUNCTION_STATEFUL_OP_HPP_

#include "opkit/op/function/function_parameters.hpp"
#include "opkit/op/function/op_resource.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class OperatorDef;
struct KernelConfig;

// The device and the node that a state is made for. The state may keep the pointers: they are valid
// as long as its operator lives.
struct OpContext {
  Device device;
  const OperatorDef* def = nullptr;      // the node; null in a library
  const opkit_node* node = nullptr;      // the node as a C struct, with its graphs
  const KernelConfig* config = nullptr;  // the selected configuration; null in a library
};

// Selects the forward or the backward functions of a record.
enum class FunctionPass : uint8_t { kForward, kBackward };

// The base class of an operator that keeps data between its runs. The function of setCreateOpState
// makes one object for each operator instance. The object is destroyed with the instance, or, if a
// deferred run is in flight, in the thread that completes that run. A class overrides either form
// of Forward and Backward; the form with spans does not allocate. Run is for a class with one
// function for both passes.
class StatefulOp : public detail::RefCounted {
 public:
  virtual OpStatus Run(FunctionPass pass, std::span<const OpTensor> inputs,
                       std::span<OpTensor> outputs, OpResource& resource) {
    return pass == FunctionPass::kForward ? Forward(inputs, outputs, resource)
                                          : Backward(inputs, outputs, resource);
  }
  virtual OpStatus Forward(std::span<const OpTensor> inputs, std::span<OpTensor> outputs,
                           OpResource& resource) {
    return detail::ToStatus(Forward(List(inputs), List(outputs), resource));
  }
  // Inputs: gradients of the outputs, the inputs, the outputs. Outputs: gradients of the inputs.
  virtual OpStatus Backward(std::span<const OpTensor> inputs, std::span<OpTensor> outputs,
                            OpResource& resource) {
    return detail::ToStatus(Backward(List(inputs), List(outputs), resource));
  }
  // The same functions in MXNet's form: lists are allocated at every call, and the result is
  // SUCCESS or FAIL.
  virtual int Forward(std::vector<OpTensor>, std::vector<OpTensor>, const OpResource&) {
    OPKIT_ERROR_MSG << "its StatefulOp overrides neither Forward nor Run";
    return FAIL;
  }
  virtual int Backward(std::vector<OpTensor>, std::vector<OpTensor>, const OpResource&) {
    OPKIT_ERROR_MSG << "its StatefulOp does not override Backward";
    return FAIL;
  }

 private:
  static std::vector<OpTensor> List(std::span<const OpTensor> tensors) {
    return {tensors.begin(), tensors.end()};
  }
};

}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_STATEFUL_OP_HPP_
