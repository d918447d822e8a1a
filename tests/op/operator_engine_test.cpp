// Operators that are pushed to an engine: in dependency order with closures, done with their
// events.
#include <doctest/doctest.h>

#include "op/body_op.hpp"
#include "opkit/device/cpu_stream.hpp"
#include "opkit/engine/engine.hpp"
#include "support/error_of.hpp"

namespace operator_engine_test { namespace {

using namespace opkit;

using BodyOpStream = BodyOp<CPUStreamContext>;

TEST_CASE("an operator runs between the closures that it depends on and that depend on it") {
  for (const bool naive : {false, true}) {
    Engine engine({.threads = 2, .naive = naive});
    const Var x = engine.NewVar(), y = engine.NewVar();
    Workspace ws;
    int value = 0;
    BodyOpCPU doubles(OperatorDef("Doubles"), &ws, [&](BodyOpCPU&) {
      value *= 2;
      return true;
    });
    engine.Push([&] { value = 3; }, {}, {x});
    engine.Push(doubles, {x}, {y});
    engine.Push([&] { value += 1; }, {y}, {x});
    engine.WaitForAll();
    CHECK(value == 7);
  }
}

TEST_CASE("an operator on a stream is done when its work is, not when it was issued") {
  Engine engine({.threads = 2});
  const Var x = engine.NewVar();
  Workspace ws;
  Event gate;
  gate.SetScheduled();
  std::atomic<bool> worked{false};
  bool seen = false;
  BodyOpStream on_stream(OperatorDef("OnStream").Device(DeviceType::kCPUStream), &ws,
                         [&](BodyOpStream& op) {
                           op.context().WaitEvent(gate);
                           op.context().Launch([&] { worked = true; });
                           return true;
                         });
  engine.Push(on_stream, {}, {x});
  engine.Push([&] { seen = worked; }, {x}, {});
  engine.Push([&] { gate.SetFinished(); }, {}, {});
  engine.WaitForAll();
  CHECK(seen);
}

TEST_CASE("a failure of an operator is that of its operation") {
  Engine engine({.threads = 2});
  const Var x = engine.NewVar();
  Workspace ws;
  bool ran = false;
  BodyOpCPU fails(OperatorDef("Fails"), &ws,
                  [](BodyOpCPU&) -> bool { throw Error(ErrorCode::kOutOfRange, "too far"); });
  BodyOpStream late(OperatorDef("Late").Device(DeviceType::kCPUStream), &ws, [](BodyOpStream& op) {
    op.context().Launch([] { throw Error(ErrorCode::kOutOfRange, "too late"); });
    return true;
  });
  engine.Push(fails, {}, {x});
  engine.Push([&] { ran = true; }, {x}, {});
  CHECK(ErrorOf([&] { engine.WaitForVar(x); }).code() == ErrorCode::kOutOfRange);
  engine.WaitForAll();
  CHECK_FALSE(ran);
  engine.Push(late, {}, {x});
  CHECK(Contains(ErrorOf([&] { engine.WaitForVar(x); }).message(), "too late"));
}

}  // namespace
}  // namespace operator_engine_test
