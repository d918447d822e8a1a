// Collects the addresses and types of the toolkit that one translation unit sees. Two units of one
// program include it, and an operator is registered from this header, that is, by both.
#ifndef OPKIT_TESTS_HYGIENE_UNITS_HPP_
#define OPKIT_TESTS_HYGIENE_UNITS_HPP_

#include "all_headers.hpp"

template <class Context>
class SeenTwiceOp final : public opkit::Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using opkit::Operator<Context>::Operator;
  bool RunOnDevice() override { return true; }
};

OPERATOR_SCHEMA(SeenTwice).NumInputs(0).NumOutputs(0);
REGISTER_CPU_OPERATOR(SeenTwice, SeenTwiceOp<opkit::CPUContext>);

struct Seen {
  const opkit::Allocator* allocator;
  const opkit::OpRegistry* registry;
  const void* invocation;  // of the calling thread
  void (*fail)();          // throws opkit::Error
};
// Returns the facts of the calling unit.
static Seen SeenHere() {
  return {&opkit::GetAllocator(opkit::DeviceType::kCPU), &opkit::OpRegistry::Global(),
          &opkit::detail::t_invocation,
          [] { opkit::Throw(opkit::ErrorCode::kNotFound, "from its unit"); }};
}

Seen SeenAmongHostileMacros();

#endif  // OPKIT_TESTS_HYGIENE_UNITS_HPP_
