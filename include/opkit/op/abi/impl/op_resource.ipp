// OpResource over the host's table, and the failures of either side as status and text.
#ifndef OPKIT_OP_ABI_IMPL_OP_RESOURCE_IPP_
#define OPKIT_OP_ABI_IMPL_OP_RESOURCE_IPP_

#include "opkit/op/abi/abi_attributes.hpp"
#include "opkit/op/abi/op_resource.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

OPKIT_INLINE opkit_status ReportFailure() noexcept {
  opkit_status status = OPKIT_FAILED;
  const auto report = [&](std::string_view text) {
    g_host->set_error(status, text.data(), text.size());
  };
  try {
    throw;
  } catch (const Error& error) {
    status = StatusOf(error.code());
    report(error.what());
  } catch (const std::exception& thrown) {
    report(thrown.what());
  } catch (...) {
    report("it threw something that is not a std::exception");
  }
  if (g_exceptions) g_exceptions->keep();
  return status;
}
OPKIT_INLINE void ThrowHostFailure(const opkit_host* host, opkit_status status) {
  if (g_exceptions) g_exceptions->rethrow();
  throw Error(CodeOfStatus(status), host->failure_text());
}

}  // namespace detail

OPKIT_INLINE OpAdoption::OpAdoption(const Invocation& identity) {
  const opkit_invocation token{identity.id, identity.parent, static_cast<uint64_t>(identity.kind)};
  detail::g_host->adopt(&token, &scope_);
}

OPKIT_INLINE void* OpResource::alloc(int64_t bytes) const {
  void* memory = nullptr;
  Check(host()->alloc(call_, bytes, &memory));
  return memory;
}
OPKIT_INLINE OpTensor OpResource::temporary(std::span<const int64_t> shape, DType dtype) const {
  opkit_tensor tensor{};
  tensor.size = sizeof tensor;
  Check(host()->temporary(call_, static_cast<int32_t>(dtype), static_cast<int32_t>(shape.size()),
                          shape.data(), &tensor));
  return OpTensor(tensor);
}
OPKIT_INLINE RandomGenerator& OpResource::random() const {
  static_assert(sizeof(RandomGenerator) <= 7 * sizeof(uint64_t));
  uint64_t* room = const_cast<opkit_call*>(call_)->author;
  if (!room[7]) {
    room[7] = 1;
    return *new (room) RandomGenerator(random(0));
  }
  return *std::launder(reinterpret_cast<RandomGenerator*>(room));
}
OPKIT_INLINE Invocation OpResource::invocation() const {
  opkit_invocation now{};
  host()->invocation(&now);
  return {now.id, now.parent, static_cast<InvocationKind>(now.kind)};
}
OPKIT_INLINE OpCompletion OpResource::defer() const {
  opkit_completion* completion = nullptr;
  Check(host()->defer(call_, &completion));
  return OpCompletion(host(), completion);
}
OPKIT_INLINE void OpResource::invoke(std::string_view op, std::span<const OpTensor> inputs,
                                     std::span<const OpTensor> outputs,
                                     const Arguments& args) const {
  const std::string name(op);
  const detail::AbiAttributes attributes(args);
  const auto views = [](std::span<const OpTensor> tensors) {
    return tensors.empty() ? nullptr : &tensors.data()->view();
  };
  Check(host()->invoke(call_, name.c_str(), inputs.size(), views(inputs), outputs.size(),
                       views(outputs), attributes.size(), attributes.data()));
}

}  // namespace opkit

#endif  // OPKIT_OP_ABI_IMPL_OP_RESOURCE_IPP_
