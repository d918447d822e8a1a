// The invocations that runs of operators begin and end.
#include <doctest/doctest.h>

#include <thread>

#include "body_op.hpp"
#include "opkit/device/cpu_stream.hpp"

namespace operator_invocation_test {
using namespace opkit;

namespace {

using BodyOpStream = BodyOp<CPUStreamContext>;

template <class Context>
OperatorDef Def() {
  return OperatorDef("Body").Device(Context::kDeviceType);
}

TEST_CASE("an operator runs in an invocation of its own, and one inside it is its child") {
  Workspace ws;
  Invocation outer, inner, after;
  BodyOpCPU nested(Def<CPUContext>(), &ws, [&](BodyOpCPU&) {
    inner = CurrentInvocation();
    return true;
  });
  BodyOpCPU op(Def<CPUContext>(), &ws, [&](BodyOpCPU&) {
    outer = CurrentInvocation();
    nested.Run();
    after = CurrentInvocation();
    return true;
  });
  op.Run();
  CHECK(outer.id != 0);
  CHECK(outer.parent == 0);
  CHECK(outer.kind == Invocation::Kind::kOperator);
  CHECK(inner.id != outer.id);
  CHECK(inner.parent == outer.id);
  CHECK(inner.kind == Invocation::Kind::kOperator);
  CHECK(after == outer);
  CHECK(CurrentInvocation() == Invocation{});
  const uint64_t first = outer.id;
  op.RunAsync();
  CHECK(outer.id != first);  // one for each run
}

TEST_CASE("an invocation ends with its run, also when that throws") {
  Workspace ws;
  BodyOpCPU nested(Def<CPUContext>(), &ws,
                   [](BodyOpCPU&) -> bool { throw Error(ErrorCode::kOutOfRange, "mine"); });
  Invocation before, after;
  BodyOpCPU op(Def<CPUContext>(), &ws, [&](BodyOpCPU&) {
    before = CurrentInvocation();
    CHECK_THROWS_AS(nested.Run(), Error);
    after = CurrentInvocation();
    return false;
  });
  CHECK_THROWS_AS(op.Run(), Error);
  CHECK(before == after);
  CHECK(CurrentInvocation() == Invocation{});
}

TEST_CASE("work on a stream, or on a thread that adopts the token, belongs to its operator") {
  Workspace ws;
  Invocation issued, ran, adopted;
  BodyOpStream op(Def<CPUStreamContext>(), &ws, [&](BodyOpStream& self) {
    issued = CurrentInvocation();
    self.context().Launch([&] { ran = CurrentInvocation(); });
    std::thread([&, token = CurrentInvocation()] {
      auto scope = InvocationScope::Adopt(token);
      adopted = CurrentInvocation();
    }).join();
    return true;
  });
  op.Run(32);
  CHECK(issued.kind == Invocation::Kind::kOperator);
  CHECK(ran == issued);
  CHECK(adopted == issued);
}

}  // namespace
}  // namespace operator_invocation_test
