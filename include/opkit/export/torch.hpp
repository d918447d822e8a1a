// Exports operators to PyTorch 2.10 and later: torch.ops.<domain>.<operator>, over the stable C
// functions of libtorch, which are found by name at run time. Autograd and the inference of shapes
// for torch.compile have no C functions there; they are registered from Python.
#ifndef OPKIT_EXPORT_TORCH_HPP_
#define OPKIT_EXPORT_TORCH_HPP_

#include <list>

#include "opkit/export/core.hpp"
#include "opkit/export/description.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A value between torch and a kernel: an int64, double or bool in the first bytes, or the address
// of an object of torch that the receiver owns. An optional value is an address of a value, or 0.
using TorchValue = uint64_t;
// A kernel takes its arguments from the stack, and writes its results there.
using TorchKernel = void (*)(TorchValue* stack, uint64_t num_args, uint64_t num_rets);

// One parameter of an operator's schema in torch.
struct TorchParameter {
  enum Kind { kTensor, kTensors, kAttribute } kind;
  bool optional;                               // may be None
  const AttributeSchema* attribute = nullptr;  // of kAttribute
};

struct OPKIT_IMAGE_LOCAL TorchApi;
class OPKIT_IMAGE_LOCAL TorchLibrary;

// An operator that OPKIT_EXPORT_TORCH exports.
struct OPKIT_IMAGE_LOCAL TorchOperator {
  ExportedOperator op;
  TorchKernel kernel;
  bool registered = false;
  // Set once the operator is registered, and kept for ever.
  const TorchApi* api = nullptr;
  std::vector<TorchParameter>* parameters = nullptr;
  std::list<TorchLibrary>* libraries = nullptr;
};

// Returns the operator's schema in torch's notation:
//   "Axpy(Tensor x, Tensor y, float alpha=1.) -> Tensor"
// Optional inputs are "Tensor? b=None". An operator with any number of inputs has one
// "Tensor[] inputs". A name that is a keyword of Python gets an underscore. Attributes are
// keyword-only if one without a default follows a parameter with one. Throws kUnsupported for an
// operator that keeps state.
OPKIT_IMAGE_LOCAL std::string TorchSchemaOf(const ExportedOperator& op,
                                            std::vector<TorchParameter>* parameters = nullptr);

// Registers an operator with torch, once. Returns null, or why it cannot: the text is valid until
// this thread's next call.
OPKIT_IMAGE_LOCAL const char* RegisterTorchOperator(TorchOperator& op) noexcept;
// Registers the operator if its schema is registered already and the process has loaded torch.
OPKIT_IMAGE_LOCAL bool TryRegisterTorchOperator(TorchOperator& op) noexcept;
// Runs one call. Throws opkit::Error, which torch turns into a RuntimeError with its text.
OPKIT_IMAGE_LOCAL void RunTorchOperator(const TorchOperator& op, TorchValue* stack,
                                        uint64_t num_args);

// The library in which torch's functions are looked up. Tests replace it by a fake.
OPKIT_IMAGE_LOCAL inline constinit const char* g_torch_library = "libtorch_cpu.so";

}}}  // namespace opkit::detail

// Exports an operator to PyTorch. Write it at namespace scope, below the operator or in a unit that
// is linked behind the operator's unit:
//   OPKIT_EXPORT_DOMAIN("mine");
//   OPKIT_EXPORT_TORCH(Axpy);
//
// In Python:
//   torch.ops.load_library("./libmyops.so")
//   z = torch.ops.mine.Axpy(x, y, alpha=2.0)
//
// A library that the process loaded before torch registers its operators by the C function
// opkit_torch_register_Axpy(), which returns null or the text of an error. The operator
// Axpy_grad, the gradient, is always registered so, by opkit_torch_register_Axpy_grad().
#define OPKIT_EXPORT_TORCH(name)                                                      \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_EXPORT_TORCH);                                       \
  OPKIT_TORCH_FUNCTIONS_(name, nullptr)                                               \
  OPKIT_TORCH_FUNCTIONS_(name##_grad, #name)                                          \
  OPKIT_ADD_EXPORT_(g_torch_operators, opkit_torch_operator_##name.op, torch_##name); \
  [[maybe_unused]] static const bool opkit_torch_registered_##name =                  \
      ::opkit::detail::TryRegisterTorchOperator(opkit_torch_operator_##name)
#define OPKIT_TORCH_FUNCTIONS_(name, gradient_of)                                              \
  static void opkit_torch_kernel_##name(::opkit::detail::TorchValue* stack, uint64_t num_args, \
                                        uint64_t);                                             \
  static constinit ::opkit::detail::TorchOperator opkit_torch_operator_##name{                 \
      ::opkit::detail::ExportedOperator(#name, gradient_of), &opkit_torch_kernel_##name};      \
  static void opkit_torch_kernel_##name(::opkit::detail::TorchValue* stack, uint64_t num_args, \
                                        uint64_t) {                                            \
    ::opkit::detail::RunTorchOperator(opkit_torch_operator_##name, stack, num_args);           \
  }                                                                                            \
  extern "C" OPKIT_VISIBLE const char* opkit_torch_register_##name() {                         \
    return ::opkit::detail::RegisterTorchOperator(opkit_torch_operator_##name);                \
  }

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/torch.ipp"
#endif

#endif  // OPKIT_EXPORT_TORCH_HPP_
