// The definitions of the functions that the registration macros call.
#ifndef OPKIT_OP_IMPL_REGISTRATION_IPP_
#define OPKIT_OP_IMPL_REGISTRATION_IPP_

#include "opkit/op/kernel_candidates.hpp"
#include "opkit/op/registration.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Makes a kernel without a proposer.
inline Kernel PlainKernel(const KernelRegistration& from, OperatorCreator create) {
  Kernel kernel;
  kernel.op = from.op;
  kernel.device = from.device;
  if (*from.backend && std::string_view(from.backend) != "DEFAULT") kernel.backend = from.backend;
  kernel.priority = from.priority;
  kernel.file = from.file;
  kernel.line = from.line;
  kernel.create = std::move(create);
  return kernel;
}
OPKIT_INLINE bool RegisterKernel(const KernelRegistration& kernel,
                                 OperatorCreator create) noexcept {
  return Registered([&] {
    UseOperatorCalls();
    OpRegistry::Global().AddKernel(PlainKernel(kernel, std::move(create)));
  });
}
OPKIT_INLINE bool RegisterProposingKernel(const KernelRegistration& kernel, OperatorCreator create,
                                          KernelProposer propose, KernelFuser fuse) noexcept {
  return Registered([&] {
    UseOperatorCalls();
    UseSelection();
    Kernel proposing = PlainKernel(kernel, std::move(create));
    proposing.proposes_layouts = true;
    proposing.propose = std::move(propose);
    proposing.fuse = std::move(fuse);
    OpRegistry::Global().AddKernel(std::move(proposing));
  });
}
OPKIT_INLINE bool RegisterFunction(const KernelRegistration& kernel,
                                   CreateFunction create) noexcept {
  return RegisterKernel(kernel, create);
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
OPKIT_INLINE bool RegisterBackendVersion(const char* backend, std::string (*version)()) noexcept {
  return Registered([&] { OpRegistry::Global().SetBackendVersion(backend, version); });
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_IMPL_REGISTRATION_IPP_
