// The definitions of the functions that the registration macros call.
#ifndef OPKIT_OP_IMPL_REGISTRATION_IPP_
#define OPKIT_OP_IMPL_REGISTRATION_IPP_

#include "opkit/op/call/operator_call.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "opkit/op/registration.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Makes a kernel without a proposer.
inline Kernel PlainKernel(const char* op, DeviceType device, const char* backend,
                          RegistrationPriority priority, const char* file, int line,
                          OperatorCreator create) {
  Kernel kernel;
  kernel.op = op;
  kernel.device = device;
  if (*backend && std::string_view(backend) != "DEFAULT") kernel.backend = backend;
  kernel.priority = priority;
  kernel.file = file;
  kernel.line = line;
  kernel.create = std::move(create);
  return kernel;
}
OPKIT_INLINE bool RegisterKernel(const char* op, DeviceType device, const char* backend,
                                 RegistrationPriority priority, const char* file, int line,
                                 OperatorCreator create) noexcept {
  return Registered([&] {
    UseOperatorCalls();
    OpRegistry::Global().AddKernel(
        PlainKernel(op, device, backend, priority, file, line, std::move(create)));
  });
}
OPKIT_INLINE bool RegisterProposingKernel(const char* op, DeviceType device, const char* backend,
                                          RegistrationPriority priority, const char* file, int line,
                                          OperatorCreator create, KernelProposer propose,
                                          KernelFuser fuse) noexcept {
  return Registered([&] {
    UseOperatorCalls();
    UseSelection();
    Kernel kernel = PlainKernel(op, device, backend, priority, file, line, std::move(create));
    kernel.proposes_layouts = true;
    kernel.propose = std::move(propose);
    kernel.fuse = std::move(fuse);
    OpRegistry::Global().AddKernel(std::move(kernel));
  });
}
OPKIT_INLINE bool RegisterFunction(const char* op, DeviceType device, const char* backend,
                                   RegistrationPriority priority, const char* file, int line,
                                   CreateFunction create) noexcept {
  return RegisterKernel(op, device, backend, priority, file, line, create);
}
OPKIT_INLINE bool RegisterBackendAvailability(const char* backend,
                                              std::string (*why_not)()) noexcept {
  return Registered([&] { OpRegistry::Global().SetBackendAvailability(backend, why_not); });
}
OPKIT_INLINE bool RegisterBackendRank(const char* backend, int rank) noexcept {
  return Registered([&] {
    UseSelection();
    OpRegistry::Global().SetBackendRank(backend, rank);
  });
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_REGISTRATION_IPP_
