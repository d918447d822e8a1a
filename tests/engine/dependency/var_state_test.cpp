// The queue of one Var, access by access.
#include "opkit/engine/dependency/var_state.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace var_state_test { namespace {

using opkit::detail::Access;
using opkit::detail::EngineOp;
using opkit::detail::OpList;
using opkit::detail::SpinLockGuard;
using opkit::detail::VarState;
using opkit::detail::VarTable;
using opkit::detail::VarWaiter;

// An operation with one access to the Var.
struct Op {
  explicit Op(bool writes) {
    op.access_count = 1;
    op.only_access.owner = reinterpret_cast<uintptr_t>(&op) | (writes ? Access::kWrite : 0);
  }
  EngineOp op;
};
struct Read : Op {
  Read() : Op(false) {}
};
struct Write : Op {
  Write() : Op(true) {}
};

bool Append(VarState& var, Op& op) {
  const SpinLockGuard guard(var.lock);
  return var.Append(op.op.only_access);
}
// The operations that can run because this one has ended.
std::vector<EngineOp*> Release(VarState& var, Op& op, bool last = false) {
  OpList ready;
  CHECK(var.Release(op.op.only_access, ready) == last);
  std::vector<EngineOp*> ops;
  while (EngineOp* next = ready.TakeFirst()) ops.push_back(next);
  return ops;
}
using Ops = std::vector<EngineOp*>;

TEST_CASE("reads are granted together, a write alone and in its turn") {
  VarState var;
  Read r1, r2, r3, r4;
  Write w1, w2;
  CHECK(Append(var, r1));
  CHECK(Append(var, r2));
  CHECK_FALSE(Append(var, w1));
  CHECK_FALSE(Append(var, r3));  // behind the write, though others read
  CHECK_FALSE(Append(var, r4));
  CHECK_FALSE(Append(var, w2));
  CHECK(Release(var, r2).empty());
  CHECK(Release(var, r1) == Ops{&w1.op});
  CHECK(Release(var, w1) == Ops{&r3.op, &r4.op});
  CHECK(Release(var, r3).empty());
  CHECK(Release(var, r4) == Ops{&w2.op});
  CHECK(Release(var, w2).empty());
  CHECK_FALSE(var.HasPendingWrites());
}

TEST_CASE("writes pass the Var to each other in the order of their arrival") {
  VarState var;
  Write first, second, third;
  CHECK(Append(var, first));
  CHECK(var.HasPendingWrites());
  CHECK_FALSE(Append(var, second));
  CHECK_FALSE(Append(var, third));
  CHECK(Release(var, first) == Ops{&second.op});
  CHECK(Release(var, second) == Ops{&third.op});
  CHECK(Release(var, third).empty());
}

TEST_CASE("a thread that waits is let go when the writes before it have ended, with the failure") {
  VarState var;
  Write write, later;
  VarWaiter waiter;
  CHECK(Append(var, write));
  {
    const SpinLockGuard guard(var.lock);
    var.AppendWaiter(waiter);
  }
  CHECK_FALSE(Append(var, later));
  CHECK_FALSE(waiter.latch.done());
  CHECK(Release(var, write) == Ops{&later.op});
  CHECK(waiter.latch.done());
  CHECK(waiter.granted);
}

TEST_CASE("a waiter that gives up leaves the queue as if it had never been there") {
  VarState var;
  Write write, later;
  Read read;
  VarWaiter gone, stays;
  CHECK(Append(var, write));
  {
    const SpinLockGuard guard(var.lock);
    var.AppendWaiter(gone);
    var.AppendWaiter(stays);
    var.Remove(gone);
  }
  CHECK_FALSE(Append(var, read));
  CHECK_FALSE(Append(var, later));
  CHECK(Release(var, write) == Ops{&read.op});
  CHECK(stays.granted);
  CHECK_FALSE(gone.granted);
  CHECK(Release(var, read) == Ops{&later.op});
  {
    const SpinLockGuard guard(var.lock);
    VarWaiter last;
    var.AppendWaiter(last);
    var.Remove(last);
  }
  CHECK(Release(var, later).empty());
}

TEST_CASE("a deleted Var ends with its last access") {
  VarState var;
  Read read;
  Write write;
  CHECK(Append(var, read));
  CHECK_FALSE(Append(var, write));
  const uint32_t generation = var.generation;
  CHECK_FALSE(var.Delete());
  CHECK(var.generation != generation);
  CHECK(Release(var, read) == Ops{&write.op});
  CHECK(Release(var, write, true).empty());
  VarState idle;
  CHECK(idle.Delete());
}

TEST_CASE("a state that was given back is taken again, as new but for its generation") {
  VarTable table;
  VarState* state = table.Take();
  CHECK(table.Take() != state);
  state->Delete();
  state->version = 7;
  const uint32_t generation = state->generation;
  table.GiveBack(*state);
  CHECK(table.Take() == state);
  CHECK(state->version == 0);
  CHECK(state->generation == generation);
  Write write;
  CHECK(Append(*state, write));
  CHECK(Release(*state, write).empty());
}

}  // namespace
}  // namespace var_state_test
