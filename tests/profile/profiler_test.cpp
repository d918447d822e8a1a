#include "opkit/profile/profiler.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include "op/body_op.hpp"
#include "opkit/device/cpu_stream.hpp"
#include "opkit/engine/engine.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/function_op.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/op/typed_operator.hpp"
#include "support/emulator.hpp"
#include "support/temporary_folder.hpp"
#include "support/text.hpp"

namespace profiler_test { namespace {

using namespace opkit;

// The spans that are called `name`.
std::vector<ProfileSpan> Named(const Profile& profile, std::string_view name) {
  std::vector<ProfileSpan> found;
  for (const ProfileSpan& span : profile.spans)
    if (DisplayName(span) == name) found.push_back(span);
  return found;
}

struct Session {
  explicit Session(const ProfileOptions& options = {}) { Profiler::Start(options); }
  Session(Session&&) = delete;
  ~Session() { Profiler::Stop(); }
};

TEST_CASE("an operator's span has its name, its node and its parent") {
  Workspace ws;
  BodyOpCPU inner(OperatorDef("Body").Name("leaf"), &ws, [](BodyOpCPU&) { return true; });
  BodyOpCPU outer(OperatorDef("Body").Name("root"), &ws, [&](BodyOpCPU&) { return inner.Run(); });
  {
    const Session session;
    outer.Run();
  }
  outer.Run();  // after the session
  const Profile profile = Profiler::Read();
  REQUIRE(profile.spans.size() == 2);
  const ProfileSpan &root = profile.spans[0], &leaf = profile.spans[1];
  CHECK(InternedName(root.node) == "root");
  CHECK(InternedName(leaf.node) == "leaf");
  CHECK(DisplayName(leaf) == "Body");
  CHECK(std::string(DomainOf(leaf)) == "operator");
  CHECK(leaf.parent == root.id);
  CHECK(root.parent == 0);
  CHECK(root.begin <= leaf.begin);
  CHECK(leaf.begin <= leaf.end);
  CHECK(leaf.end <= root.end);
  CHECK(root.end <= profile.duration);
}

// y = x1 + x2 in memory of its own.
class ProfiledAddOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    float* y = Output(0, Input(0).shape(), DType::kFloat32)->mutable_data<float>();
    for (int64_t i = 0; i < Input(0).numel(); ++i)
      y[i] = Input(0).data<float>()[i] + Input(1).data<float>()[i];
    return true;
  }
};
OPERATOR_SCHEMA(ProfiledAdd)
    .NumInputs(2)
    .NumOutputs(1)
    .IdenticalTypeAndShapeOfInput(0)
    .PointwiseCost(1);
REGISTER_CPU_OPERATOR(ProfiledAdd, ProfiledAddOp);

TEST_CASE("shapes and a schema's costs are recorded on request") {
  const Tensor x = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const bool shapes : {false, true}) {
    {
      const Session session({.shapes = shapes});
      Invoke("ProfiledAdd", {x, x});
    }
    const auto adds = Named(Profiler::Read(), "ProfiledAdd");
    REQUIRE(adds.size() == 1);
    const detail::SpanWork& work = adds[0].work;
    CHECK(InternedName(work.shapes) == (shapes ? "float32[2, 3], float32[2, 3]" : ""));
    CHECK(InternedName(work.backend) == (shapes ? "reference" : ""));
    CHECK(work.flops == (shapes ? 6 : 0));
    CHECK(work.bytes == (shapes ? 3 * 6 * sizeof(float) : 0));
  }
}

TEST_CASE("the work of an operator is its own, not that of one inside it") {
  Workspace ws;
  const Tensor x = Tensor::From<float>({1}, {1});
  BodyOpCPU outer(OperatorDef("Body").Name("root"), &ws, [&](BodyOpCPU&) {
    Invoke("ProfiledAdd", {x, x});
    return true;
  });
  {
    const Session session({.shapes = true});
    outer.Run();
  }
  const Profile profile = Profiler::Read();
  CHECK(Named(profile, "Body")[0].work.shapes == 0);  // no registry has made it
  CHECK(Named(profile, "ProfiledAdd")[0].work.flops == 1);
  CHECK(Named(profile, "ProfiledAdd")[0].end <= Named(profile, "Body")[0].end);
}

TEST_CASE("allocations are known with the operator that they happened in") {
  const Tensor x = Tensor::From<float>({4}, {1, 2, 3, 4});
  uint64_t outside = 0;
  {
    const Session session({.memory = true});
    const std::vector<Tensor> y = Invoke("ProfiledAdd", {x, x});
    const ProfileScope scope("mine");
    outside = CurrentInvocation().id;
    Tensor mine({3}, DType::kInt8);
    static_cast<void>(mine.raw_mutable_data());
  }
  const Tensor after({3}, DType::kInt8);
  const Profile profile = Profiler::Read();
  const uint64_t add = Named(profile, "ProfiledAdd")[0].id;
  const auto of = [&](uint64_t invocation) {
    std::vector<int64_t> bytes;
    for (const ProfileAllocation& one : profile.allocations)
      if (one.invocation == invocation && InternedName(one.allocator) == "cpu")
        bytes.push_back(one.bytes);
    return bytes;
  };
  CHECK(of(add) == std::vector<int64_t>{16});
  CHECK(of(outside) == std::vector<int64_t>{3, -3});
  int64_t sum = 0;
  for (const ProfileAllocation& one : profile.allocations) sum += one.bytes;
  CHECK(profile.allocations.back().live - profile.allocations.front().live +
            profile.allocations.front().bytes ==
        sum);
  const auto is_memory = [](const ProfileCounter& counter) {
    return InternedName(counter.name) == "memory of cpu";
  };
  CHECK(std::ranges::count_if(profile.counters, is_memory) ==
        static_cast<int64_t>(profile.allocations.size()));
  {
    const Session session;
    Invoke("ProfiledAdd", {x, x});
  }
  CHECK(Profiler::Read().allocations.empty());
}

TEST_CASE("an operator that throws ends its span") {
  Workspace ws;
  BodyOpCPU inner(OperatorDef("Body"), &ws,
                  [](BodyOpCPU&) -> bool { throw Error(ErrorCode::kOutOfRange, "mine"); });
  BodyOpCPU outer(OperatorDef("Body"), &ws, [&](BodyOpCPU&) {
    CHECK_THROWS(inner.Run());
    ProfileScope scope("after");
    return true;
  });
  const Session session;
  outer.Run();
  const Profile profile = Profiler::Read();
  REQUIRE(profile.spans.size() == 3);
  const auto after = Named(profile, "after");
  REQUIRE(after.size() == 1);
  CHECK(after[0].parent == profile.spans[0].id);
  CHECK(after[0].begin >= profile.spans[1].end);
}

TEST_CASE("a scope that ends on another thread disturbs nothing of that thread's") {
  Profile profile;
  {
    const Session session;
    std::unique_ptr<ProfileScope> scope;
    std::thread([&] { scope = std::make_unique<ProfileScope>("moved"); }).join();
    std::thread([&] {
      scope.reset();
      for (int i = 0; i < 3; ++i) {
        const ProfileScope own("own");
        const ProfileScope inner("inner");
      }
    }).join();
    profile = Profiler::Read();
  }
  REQUIRE(Named(profile, "own").size() == 3);
  REQUIRE(Named(profile, "inner").size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK_FALSE(Named(profile, "own")[i].open);
    CHECK(Named(profile, "inner")[i].parent == Named(profile, "own")[i].id);
  }
}

TEST_CASE("a session begins empty, and spans of the one before end without a trace") {
  Profiler::Start();
  {
    const ProfileScope early("early");
    Profiler::Stop();
    Profiler::Start();
    const ProfileScope late("late");
  }
  Profiler::Stop();
  const Profile profile = Profiler::Read();
  CHECK(Named(profile, "early").empty());
  CHECK(Named(profile, "late").size() == 1);
}

TEST_CASE("a span that is open at Stop is recorded when it ends") {
  Profiler::Start();
  {
    const ProfileScope scope("open");
    Profiler::Stop();
    const ProfileScope not_recorded("closed");
  }
  const Profile profile = Profiler::Read();
  CHECK(Named(profile, "open").size() == 1);
  CHECK(Named(profile, "closed").empty());
}

TEST_CASE("a profile has the cost of its recording") {
  const auto cost_of = [](int spans) {
    Profiler::Start();
    for (int i = 0; i < spans; ++i) const ProfileScope scope("costs");
    Profiler::Stop();
    const Profile profile = Profiler::Read();
    CHECK(MakeProfileTable(profile).cost == profile.cost);
    return profile.cost;
  };
  CHECK(cost_of(0) == 0);
  CHECK(cost_of(1000) > 0);
}

TEST_CASE("open spans of any thread are read with the time until now") {
  Profiler::Start();
  std::atomic<int> step{0};
  std::thread other([&] {
    const ProfileScope outer("hangs");
    const ProfileScope inner("in here");
    step = 1;
    step.notify_all();
    step.wait(1);
  });
  step.wait(0);
  const auto check = [](const Profile& profile, bool open) {
    const auto outer = Named(profile, "hangs"), inner = Named(profile, "in here");
    REQUIRE(outer.size() == 1);
    REQUIRE(inner.size() == 1);
    CHECK(outer[0].open == open);
    CHECK(inner[0].open == open);
    CHECK(inner[0].parent == outer[0].id);
    CHECK(inner[0].begin >= outer[0].begin);
    CHECK(inner[0].end <= outer[0].end);
    CHECK(inner[0].thread == outer[0].thread);
  };
  check(Profiler::Read(), true);
  Profiler::Stop();
  const Profile stopped = Profiler::Read();
  check(stopped, true);
  CHECK(Named(stopped, "hangs")[0].end == stopped.duration);
  step = 2;
  step.notify_all();
  other.join();
  check(Profiler::Read(), false);
}

TEST_CASE("spans are read whole while their threads begin and end them") {
  Profiler::Start();
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::thread busy([&] {
    while (!stop) {
      const ProfileScope a("even");
      const ProfileScope b("odd");
      ++rounds;
    }
  });
  while (rounds == 0) std::this_thread::yield();
  for (int i = 0; i < 200; ++i) {
    const Profile profile = Profiler::Read();
    for (const ProfileSpan& span : profile.spans) {
      if (!span.open) continue;
      const std::string name = DisplayName(span);
      CHECK((name == "even" || name == "odd"));
      CHECK(span.begin <= span.end);
      CHECK((span.parent != 0) == (name == "odd"));
    }
    if (profile.spans.size() > 20'000) Profiler::Stop(), Profiler::Start();
  }
  stop = true;
  busy.join();
  Profiler::Stop();
}

TEST_CASE("nothing is recorded between Pause and Resume") {
  const Session session;
  { const ProfileScope scope("one"); }
  Profiler::Pause();
  CHECK_FALSE(Profiler::IsRunning());
  { const ProfileScope scope("two"); }
  Profiler::Resume();
  { const ProfileScope scope("three"); }
  const Profile profile = Profiler::Read();
  CHECK(Named(profile, "one").size() == 1);
  CHECK(Named(profile, "two").empty());
  CHECK(Named(profile, "three").size() == 1);
}

TEST_CASE("wrong uses of a session are errors that leave it as it is") {
  Profiler::Stop();
  CHECK_THROWS_WITH_AS(Profiler::Resume(), doctest::Contains("call Profiler::Start"), Error);
  CHECK_THROWS_WITH_AS(Profiler::Start({.max_bytes = 10}), doctest::Contains("max_bytes is 10"),
                       Error);
  const Session session;
  CHECK_THROWS_WITH_AS(Profiler::Start(), doctest::Contains("a session runs already"), Error);
  CHECK(Profiler::IsRunning());
}

TEST_CASE("threads born while a profile is recorded are in it, also when they have ended") {
  const Session session;
  for (int i = 0; i < 3; ++i) std::thread([] { const ProfileScope scope("born"); }).join();
  const Profile profile = Profiler::Read();
  const auto born = Named(profile, "born");
  REQUIRE(born.size() == 3);
  CHECK(born[0].thread != born[1].thread);
  CHECK(profile.threads.size() >= 3);
}

TEST_CASE("a ring keeps the newest records and counts the others") {
  constexpr int64_t kChunk = 100'000;  // bytes: a chunk has room for 2048 records of 48 bytes
  for (bool ring : {true, false}) {
    CAPTURE(ring);
    const Session session({.max_bytes = 2 * kChunk, .ring = ring});
    for (int i = 0; i < 10'000; ++i) const ProfileScope scope(i < 9'999 ? "early" : "last");
    const Profile profile = Profiler::Read();
    CHECK(profile.spans.size() <= 2 * 2048);
    CHECK(profile.spans.size() + static_cast<size_t>(profile.dropped) == 10'000);
    CHECK(Named(profile, "last").size() == (ring ? 1 : 0));
  }
}

TEST_CASE("a ring keeps the newest threads, however many there were") {
  constexpr int kThreads = 40;
  for (const bool ring : {true, false}) {
    CAPTURE(ring);
    const Session session({.max_bytes = 200'000, .ring = ring});  // room for two chunks
    for (int i = 0; i < kThreads; ++i)
      std::thread([&] {
        const ProfileScope scope(i < kThreads - 1 ? "early thread" : "last thread");
      }).join();
    const Profile profile = Profiler::Read();
    CHECK(profile.spans.size() == 2);
    CHECK(profile.dropped == kThreads - 2);
    CHECK(Named(profile, "last thread").size() == (ring ? 1 : 0));
  }
}

TEST_CASE("names without end stay within the bound on memory, and the newest are kept") {
  const auto name = [](int i) {
    return "request " + std::to_string(i) + std::string(static_cast<size_t>(i % 400), '.');
  };
  const Session session({.max_bytes = 300'000, .ring = true});  // room for three chunks
  const uint32_t before = InternName("before all requests");
  for (int i = 0; i < 1'000; ++i) const ProfileScope scope(name(i) + " early");
  {
    const ProfileScope open("the oldest: " + name(350));
    for (int i = 0; i < 20'000; ++i) {
      const ProfileScope scope(name(i));
      ProfileCount(name(i) + " count", i);
      ProfileMark(name(i) + " mark");
      ProfileScope("known");
    }
  }
  CHECK(InternName("behind all requests") - before < 2'000);
  const Profile profile = Profiler::Read();
  const auto kept = [&](const std::string& whole) { return whole.substr(0, 6 * 44); };
  for (int i = 19'990; i < 20'000; ++i) {
    CAPTURE(i);
    CHECK(Named(profile, kept(name(i))).size() == 1);
    const auto is_of = [&](const char* what) {
      return [&, what](const auto& one) { return InternedName(one.name) == kept(name(i) + what); };
    };
    CHECK(std::ranges::count_if(profile.counters, is_of(" count")) == 1);
    CHECK(std::ranges::count_if(profile.markers, is_of(" mark")) == 1);
  }
  CHECK(Named(profile, kept("the oldest: " + name(350))).size() == 1);  // which was open
  CHECK(Named(profile, "(unnamed)").empty());
  CHECK(Named(profile, "known").size() > 10);
}

TEST_CASE("a ring keeps the spans that are open, however old they are") {
  const Session session({.max_bytes = 200'000, .ring = true});  // room for two chunks of 2048
  int64_t begun = 2;
  {
    const ProfileScope outer("outer");
    for (int i = 0; i < 3'000; ++i, ++begun) const ProfileScope scope("early");
    const ProfileScope inner("inner");
    for (int i = 0; i < 30'000; ++i, ++begun) const ProfileScope scope("late");
    const Profile meanwhile = Profiler::Read();
    REQUIRE(Named(meanwhile, "outer").size() == 1);
    REQUIRE(Named(meanwhile, "inner").size() == 1);
    CHECK(Named(meanwhile, "outer")[0].open);
    CHECK(Named(meanwhile, "inner")[0].open);
  }
  const Profile profile = Profiler::Read();
  CHECK(static_cast<int64_t>(profile.spans.size()) + profile.dropped == begun);
  REQUIRE(Named(profile, "outer").size() == 1);
  REQUIRE(Named(profile, "inner").size() == 1);
  const ProfileSpan outer = Named(profile, "outer")[0], inner = Named(profile, "inner")[0];
  CHECK(!outer.open);
  CHECK(outer.begin <= inner.begin);
  CHECK(inner.end <= outer.end);
  CHECK(inner.parent == outer.id);
  CHECK(Named(profile, "early").empty());
}

TEST_CASE("spans deeper than the recorder keeps are counted, and the others stay right") {
  const Session session;
  const auto nest = [](auto& self, int depth) -> void {
    const ProfileScope scope(depth == 300 ? "bottom" : "level");
    if (depth < 300) self(self, depth + 1);
  };
  nest(nest, 1);
  { const ProfileScope scope("after"); }
  const Profile profile = Profiler::Read();
  CHECK(profile.spans.size() == 257);
  CHECK(profile.dropped == 44);
  CHECK(Named(profile, "after").size() == 1);
}

TEST_CASE("the operators that a custom operator invokes carry its name") {
  Workspace ws;
  BodyOpCPU leaf(OperatorDef("A::B"), &ws, [](BodyOpCPU&) { return true; });
  BodyOpCPU inner(OperatorDef("Inner"), &ws, [&](BodyOpCPU&) { return leaf.Run(); });
  inner.SetCustom();
  BodyOpCPU outer(OperatorDef("Custom"), &ws, [&](BodyOpCPU&) {
    const ProfileScope scope("own part");
    leaf.Run();
    return inner.Run();
  });
  outer.SetCustom();
  const Session session;
  outer.Run();
  leaf.Run();
  const Profile profile = Profiler::Read();
  const char* names[] = {"Custom", "Custom::own part", "Custom::A::B", "Custom::Inner",
                         "Custom::Inner::A::B"};
  for (const char* name : names) {
    CAPTURE(name);
    const auto found = Named(profile, name);
    REQUIRE(found.size() == 1);
    CHECK(std::string(DomainOf(found[0])) == "Custom Operators");
  }
  const auto outside = Named(profile, "A::B");
  REQUIRE(outside.size() == 1);
  CHECK(std::string(DomainOf(outside[0])) == "operator");
}

// y = x + x, by another operator.
template <class Context>
void ProfiledTyped(Context&, In<"x", float> x, Out<"y", float> y) {
  const Tensor in = Tensor::From<float>({1}, {x[0]});
  y[0] = Invoke("ProfiledAdd", {in, in})[0].data<float>()[0];
}
OPKIT_OP(ProfiledTyped).SameShape<"x", "y">().Kernel<CPUContext>();

TEST_CASE("a typed function is a custom operator, called and run as an operator") {
  Workspace ws;
  *ws.CreateTensor("x") = Tensor::From<float>({1}, {2});
  const auto op = CreateOperator(OperatorDef("ProfiledTyped", {"x"}, {"y"}), &ws);
  {
    const Session session;
    CHECK(Invoke("ProfiledTyped", {*ws.GetTensor("x")})[0].data<float>()[0] == 4);
    op->Run();
  }
  const Profile profile = Profiler::Read();
  for (const char* name : {"ProfiledTyped", "ProfiledTyped::ProfiledAdd"}) {
    CAPTURE(name);
    const auto found = Named(profile, name);
    REQUIRE(found.size() == 2);
    for (const ProfileSpan& span : found) CHECK(std::string(DomainOf(span)) == "Custom Operators");
  }
}

TEST_CASE("operators of one name are distinguished, also one that several threads run at once") {
  constexpr int kThreads = 4, kRuns = 20;
  const auto run = [&](int thread) {
    Workspace ws;
    BodyOpCPU leaf(OperatorDef("Dummy_Wait").Name(std::to_string(thread)), &ws,
                   [](BodyOpCPU&) { return true; });
    BodyOpCPU twin(OperatorDef("Dummy_Wait"), &ws, [&](BodyOpCPU&) { return leaf.Run(); });
    twin.SetCustom();
    for (int i = 0; i < kRuns; ++i) twin.Run();
  };
  {
    const Session session;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(run, thread);
    for (std::thread& thread : threads) thread.join();
  }
  const Profile profile = Profiler::Read();
  const auto outer = Named(profile, "Dummy_Wait"), inner = Named(profile, "Dummy_Wait::Dummy_Wait");
  CHECK(outer.size() == kThreads * kRuns);
  CHECK(inner.size() == kThreads * kRuns);
  for (const ProfileSpan& span : inner) {
    const auto around = std::ranges::find(outer, span.parent, &ProfileSpan::id);
    REQUIRE(around != outer.end());
    CHECK(around->thread == span.thread);
    CHECK(around->kind == Invocation::Kind::kCustomOperator);
    CHECK(span.kind == Invocation::Kind::kOperator);
    CHECK(around->begin <= span.begin);
    CHECK(span.end <= around->end);
  }
}

TEST_CASE("asynchronous invocations of a custom operator carry its name, beside its own code") {
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  Workspace ws;
  BodyOpCPU custom(OperatorDef("Body").Name("root"), &ws, [&](BodyOpCPU&) {
    PendingOutputs sum = InvokeAsync("ProfiledAdd", {x, x});
    { const ProfileScope scope("mine"); }
    return sum.Get()[0].ToVector<float>() == std::vector<float>{2, 4};
  });
  custom.SetCustom();
  ThreadPool pool(2);
  const PoolScope in_pool(pool);
  {
    const Session session;
    custom.Run();
  }
  const Profile profile = Profiler::Read();
  const auto adds = Named(profile, "Body::ProfiledAdd"), bodies = Named(profile, "Body");
  REQUIRE(adds.size() == 1);
  REQUIRE(bodies.size() == 1);
  CHECK(adds[0].parent == bodies[0].id);
  CHECK(adds[0].begin >= bodies[0].begin);
  CHECK(adds[0].end <= bodies[0].end);
  CHECK(Named(profile, "Body::mine").size() == 1);
}

TEST_CASE("a profile has the other work of a pool's threads, on request") {
  for (const bool asked : {true, false}) {
    CAPTURE(asked);
    ThreadPool pool(2);
    const PoolScope in_pool(pool);
    const Session session({.engine = asked});
    std::atomic<bool> started{false}, stolen{false};
    // The worker runs the first task; it queues the second, which this thread can only steal.
    detail::Latch both(2);
    pool.Submit([&] {
      pool.Submit([&] {
        stolen = true;
        both.CountDown();
      });
      started = true;
      while (!stolen) std::this_thread::yield();
      both.CountDown();
    });
    while (!started) std::this_thread::yield();
    pool.Wait(both);
    if (!asked) {
      CHECK(Profiler::Read().spans.empty());
      CHECK(Profiler::Read().markers.empty());
      continue;
    }
    const Profile profile = Profiler::Read();
    REQUIRE(profile.markers.size() == 1);
    CHECK(InternedName(profile.markers[0].name) == "steal");
    // Nothing is left to do: the worker sleeps sooner or later, and this thread in a wait that
    // another one ends when it has seen that.
    detail::Latch seen(1);
    std::thread watcher([&] {
      while (Named(Profiler::Read(), "wait").empty() || Named(Profiler::Read(), "park").empty())
        std::this_thread::yield();
      seen.CountDown();
    });
    pool.Wait(seen);
    watcher.join();
    const auto waits = Named(Profiler::Read(), "wait");
    REQUIRE(!waits.empty());
    CHECK(std::string(DomainOf(waits[0])) == "engine");
    Engine engine;
    engine.WaitForAll();
    CHECK(Named(Profiler::Read(), "drain").size() == 1);
  }
}

TEST_CASE("a thread that goes on with a custom operator's work runs its user code") {
  Workspace ws;
  BodyOpCPU leaf(OperatorDef("Leaf"), &ws, [](BodyOpCPU&) { return true; });
  BodyOpCPU op(OperatorDef("Mine"), &ws, [&](BodyOpCPU&) {
    std::thread([&, token = CurrentInvocation()] {
      const auto scope = InvocationScope::Adopt(token);
      leaf.Run();
    }).join();
    return true;
  });
  op.SetCustom();
  const Session session;
  op.Run();
  const Profile profile = Profiler::Read();
  const auto own = Named(profile, "Mine"), part = Named(profile, "Mine::user_code"),
             sub = Named(profile, "Mine::Leaf");
  REQUIRE(own.size() == 1);
  REQUIRE(part.size() == 1);
  REQUIRE(sub.size() == 1);
  CHECK(part[0].id == own[0].id);
  CHECK(part[0].adopted);
  CHECK(part[0].thread != own[0].thread);
  CHECK(sub[0].thread == part[0].thread);
  CHECK(sub[0].parent == own[0].id);
}

TEST_CASE("the span of work on a stream ends with its event") {
  Workspace ws;
  BodyOp<CPUStreamContext> op(
      OperatorDef("Body").Device(DeviceType::kCPUStream), &ws, [](BodyOp<CPUStreamContext>& self) {
        self.context().Launch([] { const ProfileScope scope("on stream"); });
        return true;
      });
  const Session session;
  op.RunAsync();
  op.Finish();
  const Profile profile = Profiler::Read();
  const auto own = Named(profile, "Body");
  REQUIRE(own.size() == 2);  // issuing it, and its part on the stream's thread
  const ProfileSpan& issued = own[own[0].adopted ? 1 : 0];
  const ProfileSpan& part = own[own[0].adopted ? 0 : 1];
  CHECK(part.adopted);
  CHECK(part.thread != issued.thread);
  const int64_t end = std::max(issued.end, issued.completed);
  CHECK(part.end <= end);
  CHECK(Named(profile, "on stream").at(0).parent == issued.id);
}

TEST_CASE("an operation pushed to an engine has a span with its name and its push") {
  const Session session;
  {
    Engine engine;
    const ProfileScope scope("pusher");
    engine.Push([] { const ProfileScope inside("inside"); }, {}, {}, {.name = "fill"});
    engine.WaitForAll();
  }
  const Profile profile = Profiler::Read();
  const auto task = Named(profile, "fill");
  REQUIRE(task.size() == 1);
  CHECK(task[0].kind == Invocation::Kind::kTask);
  CHECK(task[0].parent == Named(profile, "pusher").at(0).id);
  CHECK(task[0].pushed >= 0);
  CHECK(task[0].pushed <= task[0].begin);
  CHECK(Named(profile, "inside").at(0).parent == task[0].id);
}

TEST_CASE("a worker that an engine has woken runs only its tasks, not its waker's invocation") {
  const Session session;
  {
    Engine engine({.threads = 1});
    std::atomic<bool> begun{false}, ended{false};
    {
      const ProfileScope scope("pusher");
      engine.Push(
          [&] {
            begun = true;
            begun.notify_all();
            ended.wait(false);
          },
          {}, {});
      begun.wait(false);  // so that the worker has it
    }
    ended = true;
    ended.notify_all();
    engine.WaitForAll();
  }
  CHECK(Named(Profiler::Read(), "pusher").size() == 1);
}

TEST_CASE("a scope has no device but the CPU") {
  const Session session;
  { const ProfileScope scope("scope"); }
  CHECK(Named(Profiler::Read(), "scope").at(0).device == Device{});
}

TEST_CASE("counters, markers and frames are kept by time") {
  const Session session;
  ProfileCount("queue", 3);
  ProfileMark("here");
  ProfileFrame();
  ProfileCount("queue", 1.5);
  const Profile profile = Profiler::Read();
  REQUIRE(profile.counters.size() == 2);
  CHECK(InternedName(profile.counters[0].name) == "queue");
  CHECK(profile.counters[0].value == 3);
  CHECK(profile.counters[1].value == 1.5);
  REQUIRE(profile.markers.size() == 2);
  CHECK(InternedName(profile.markers[0].name) == "here");
  CHECK_FALSE(profile.markers[0].frame);
  CHECK(profile.markers[1].frame);
}

TEST_CASE("a forked child begins without a session, and can have its own") {
  const Session session;
  { const ProfileScope scope("parent"); }
  const pid_t child = fork();
  if (child == 0) {
    bool right = !Profiler::IsRunning();
    Profiler::Start();
    { const ProfileScope scope("child"); }
    const Profile profile = Profiler::Read();
    right = right && profile.spans.size() == 1 && DisplayName(profile.spans[0]) == "child";
    _exit(right ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(Profiler::IsRunning());
  CHECK(Named(Profiler::Read(), "parent").size() == 1);
}

TEST_CASE("a profile runs from the start of the program only if OPKIT_PROFILE requests it") {
  const char* const path = std::getenv("OPKIT_PROFILE");
  const ProfileScope scope("by environment");
  CHECK(Profiler::IsRunning() == static_cast<bool>(path));
  if (!path) return;
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  waitpid(child, nullptr, 0);
  CHECK_FALSE(std::filesystem::exists(path));  // it is this process that writes it
}
TEST_CASE("a session of the program's own takes the place of that of OPKIT_PROFILE") {
  { const ProfileScope scope("by environment"); }
  {
    const Session session;
    const ProfileScope scope("by program");
  }
  CHECK(Profiler::Read().spans.size() == 1);
}

// Runs a case of this program with OPKIT_PROFILE=`file` and returns its stderr. That case forks and
// ends the child by exit(). There LeakSanitizer could wait for ever: for the allocator's lock,
// which another thread of the parent held at the fork.
std::string ErrorsWithProfile(const TemporaryFolder& folder, const std::string& file,
                              const std::string& test) {
  const std::string command = "ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" OPKIT_PROFILE='" +
                              folder.path() + "/" + file + "' " + CommandOfThisProgram() +
                              " -tc='" + test + "' > /dev/null 2> '" + (folder / "errors") + "'";
  CHECK(std::system(command.c_str()) == 0);
  std::istringstream lines(ReadFile(folder / "errors"));
  std::string errors;
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("==")) errors += line + "\n";  // of a sanitizer, on its own account
  return errors;
}

TEST_CASE("OPKIT_PROFILE names the trace of a program without code for profiles") {
  const TemporaryFolder folder;
  const std::string test = "a profile runs from the start *";
  CHECK(ErrorsWithProfile(folder, "trace.json", test).empty());
  CHECK(Contains(ReadFile(folder / "trace.json"), "\"by environment\""));
  CHECK(Contains(ErrorsWithProfile(folder, "no folder/trace.json", test), "no folder/trace.json"));
  // The file's name asks for the format; without a writer of reports a trace it is.
  CHECK(ErrorsWithProfile(folder, "trace.pftrace", test).empty());
  CHECK(ReadFile(folder / "trace.pftrace").starts_with("\x0a"));
  CHECK(Contains(ErrorsWithProfile(folder, "trace.html", test), "opkit/report/report.hpp"));
  CHECK(Contains(ReadFile(folder / "trace.html.json"), "\"by environment\""));
  CHECK(ErrorsWithProfile(folder, "trace_%p_%p", test).empty());
  int numbered = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("trace_")) continue;
    const size_t second = name.find('_', 6);
    CHECK(name.substr(6, second - 6) == name.substr(second + 1));
    numbered += name.find_first_not_of("trace_0123456789") == std::string::npos;
  }
  CHECK(numbered == 1);
}

TEST_CASE("OPKIT_PROFILE ends where the program begins a session of its own") {
  const TemporaryFolder folder;
  CHECK(Contains(
      ErrorsWithProfile(folder, "trace.json", "a session of the program?s own *"),
      "the program begins a profile of its own: " + (folder / "trace.json") + " ends there"));
  const std::string trace = ReadFile(folder / "trace.json");
  CHECK(Contains(trace, "\"by environment\""));
  CHECK_FALSE(Contains(trace, "\"by program\""));
}

TEST_CASE("start, stop and reading from one thread while others run") {
  std::atomic<bool> go_on{true};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (go_on) {
        const ProfileScope outer("outer");
        const ProfileScope inner("inner");
      }
    });
  for (int i = 0; i < 50; ++i) {
    Profiler::Start({.max_bytes = 200'000, .ring = i % 2 == 0});
    Profiler::Read();
    Profiler::Stop();
    for (const ProfileSpan& span : Profiler::Read().spans) REQUIRE(span.begin <= span.end);
  }
  go_on = false;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace profiler_test
