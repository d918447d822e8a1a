#include "opkit/op/operator_base.hpp"

#include <doctest/doctest.h>

#include "support/tensors.hpp"

namespace operator_memory_test {
using namespace opkit;
using detail::PendingTensors;
using detail::ScratchMemory;

namespace {

TEST_CASE("a tensor that replaces an output reaches its blob when it is published") {
  Blob first, second;
  *first.GetMutable<Tensor>() = Vector({1});
  *second.GetMutable<Tensor>() = Vector({2});
  PendingTensors pending;
  CHECK(pending.empty());
  Tensor* added = pending.Add(3, &first, Vector({10}));
  pending.Add(5, &second, Vector({20}));
  CHECK_FALSE(pending.empty());
  CHECK(pending.Find(3) == added);  // it stays where it is
  CHECK(FloatsOf(*pending.Find(5)) == Floats{20});
  CHECK(pending.Find(4) == nullptr);
  CHECK(FloatsOf(first.Get<Tensor>()) == Floats{1});
  added->mutable_data<float>()[0] = 11;
  pending.Publish();
  CHECK(FloatsOf(first.Get<Tensor>()) == Floats{11});
  CHECK(FloatsOf(second.Get<Tensor>()) == Floats{20});
  CHECK(pending.empty());
}

TEST_CASE("tensors that were cleared reach no blob") {
  Blob blob;
  *blob.GetMutable<Tensor>() = Vector({1});
  PendingTensors pending;
  pending.Add(0, &blob, Vector({10}));
  pending.Clear();
  pending.Publish();
  CHECK(FloatsOf(blob.Get<Tensor>()) == Floats{1});
}

TEST_CASE("scratch is the planned memory while that is large enough, else the operator's own") {
  ScratchMemory scratch;
  CHECK(scratch.Take(0, {}) == nullptr);
  void* const own = scratch.Take(100, {});
  REQUIRE(own);
  CHECK(scratch.Take(40, {}) == own);
  alignas(64) char planned[64];
  scratch.Plan(planned, 64, {});
  CHECK(scratch.Take(64, {}) == planned);
  CHECK(scratch.Take(65, {}) == own);
  CHECK(scratch.Take(0, {}) == nullptr);
  scratch.Plan(nullptr, 0, {});
  CHECK(scratch.Take(64, {}) == own);
}

TEST_CASE("the storages in use are named, so that work in flight can keep them") {
  detail::RefCountedList storages;
  ScratchMemory scratch;
  scratch.AppendStorages(storages);
  CHECK(storages.size() == 0);
  scratch.Take(8, {});
  const Storage owner = AllocateStorage({}, 64);
  scratch.Plan(owner->data(), 64, owner);
  scratch.AppendStorages(storages);
  CHECK(storages.size() == 2);
  CHECK(owner.use_count() == 3);  // here, with the scratch, in the list
}

}  // namespace
}  // namespace operator_memory_test
