#include "opkit/device/invocation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

namespace invocation_test { namespace {

using opkit::CurrentInvocation;
using opkit::Invocation;
using opkit::InvocationScope;

TEST_CASE("outside every scope there is no invocation") {
  CHECK(CurrentInvocation() == Invocation{});
  CHECK(CurrentInvocation().id == 0);
  CHECK(CurrentInvocation().kind == Invocation::Kind::kNone);
}

TEST_CASE("scopes nest: a child names its parent, and the end of one restores the other") {
  InvocationScope outer(Invocation::Kind::kOperator);
  const Invocation parent = CurrentInvocation();
  CHECK(parent.id != 0);
  CHECK(parent.parent == 0);
  CHECK(parent.kind == Invocation::Kind::kOperator);
  {
    InvocationScope inner(Invocation::Kind::kOperator);
    const Invocation child = CurrentInvocation();
    CHECK(child.id != parent.id);
    CHECK(child.parent == parent.id);
    CHECK(child.kind == Invocation::Kind::kOperator);
    {
      InvocationScope user(Invocation::Kind::kUserCode);
      CHECK(CurrentInvocation().parent == child.id);
    }
    CHECK(CurrentInvocation() == child);
  }
  CHECK(CurrentInvocation() == parent);
}

TEST_CASE("an exception ends its scopes") {
  const Invocation before = CurrentInvocation();
  try {
    InvocationScope outer(Invocation::Kind::kOperator);
    InvocationScope inner(Invocation::Kind::kCopy);
    throw std::runtime_error("fails");
  } catch (const std::runtime_error&) {
    CHECK(CurrentInvocation() == before);
  }
  CHECK(CurrentInvocation() == before);
}

TEST_CASE("a thread starts without an invocation, and adopts one as it is") {
  InvocationScope outer(Invocation::Kind::kCustomOperator);
  const Invocation token = CurrentInvocation();
  Invocation at_start, adopted, child, after;
  std::thread([&, token] {
    at_start = CurrentInvocation();
    {
      auto scope = InvocationScope::Adopt(token);
      adopted = CurrentInvocation();
      InvocationScope inner(Invocation::Kind::kUserCode);
      child = CurrentInvocation();
    }
    after = CurrentInvocation();
  }).join();
  CHECK(at_start == Invocation{});
  CHECK(adopted == token);
  CHECK(child.parent == token.id);
  CHECK(after == Invocation{});
  CHECK(CurrentInvocation() == token);
}

TEST_CASE("adopting restores the earlier invocation, also on an exception") {
  InvocationScope own(Invocation::Kind::kOperator);
  const Invocation before = CurrentInvocation();
  try {
    auto scope = InvocationScope::Adopt({77, 7, Invocation::Kind::kConverter});
    CHECK(CurrentInvocation() == Invocation{77, 7, Invocation::Kind::kConverter});
    throw 1;
  } catch (int) {
  }
  CHECK(CurrentInvocation() == before);
}

TEST_CASE("ids are unique over all threads") {
  for (int threads : {1, 2, 8, 40}) {
    constexpr size_t kScopes = 2000;
    std::vector<std::vector<uint64_t>> ids(static_cast<size_t>(threads));
    std::vector<std::thread> workers;
    for (auto& mine : ids)
      workers.emplace_back([&mine] {
        for (size_t i = 0; i < kScopes; ++i) {
          InvocationScope scope(Invocation::Kind::kOperator);
          mine.push_back(CurrentInvocation().id);
        }
      });
    for (auto& worker : workers) worker.join();
    std::vector<uint64_t> all;
    for (const auto& mine : ids) all.insert(all.end(), mine.begin(), mine.end());
    std::sort(all.begin(), all.end());
    CHECK(all.size() == kScopes * static_cast<size_t>(threads));
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
    CHECK(all.front() != 0);
  }
}

TEST_CASE("a thread that uses up its block of ids goes on with another") {
  opkit::detail::InvocationState& state = opkit::detail::t_invocation;
  const uint64_t last = opkit::detail::NextInvocationIds(1);
  state.next_id = state.last_id;  // as after a million scopes
  const uint64_t next = opkit::detail::NextInvocationIds(1);
  CHECK(next > last);
  CHECK(opkit::detail::NextInvocationIds(1) == next + 1);
}

}  // namespace
}  // namespace invocation_test
