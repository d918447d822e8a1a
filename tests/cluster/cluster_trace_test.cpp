// One trace of all processes: clocks with made-up offsets, gathered profiles, and messages.
#include <algorithm>

#include "opkit/cluster/cluster_trace.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "cluster/local_runs.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/graph.hpp"
#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/watchdog.hpp"

namespace cluster_trace_test { namespace {

using namespace opkit;

TEST_CASE("offsets of made-up clocks are found within the error") {
  const Watchdog watchdog;
  // Each reading takes 1,000 ns of the common time; the clocks of the processes differ from it.
  std::atomic<int64_t> common = 0;
  const int64_t offsets[] = {5'000'000, -7'000'000'000, 123'456'789};
  LocalCluster cluster(3);
  cluster.Run([&](const CommunicatorPtr& communicator) {
    const int64_t own = offsets[communicator->process()];
    const auto found = MeasureClocks(*communicator, [&] { return (common += 1000) + own; });
    REQUIRE(found.size() == 3);
    CHECK(found[0].offset == 0);
    CHECK(found[0].error == 0);
    for (size_t p = 1; p < 3; ++p) {
      CHECK(found[p].error == 1001);  // begin, there and end are 1,000 ns apart
      CHECK(found[p].offset == offsets[p] - offsets[0]);
    }
  });
}

TEST_CASE("the profiles of all processes come to process 0, with an arrow for each message") {
  const Watchdog watchdog;
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Exp", {"a"}, {"b"}).Process(1));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"s"}));
  graph.AddOutput("b").AddOutput("s");
  const TemporaryFolder folder;
  constexpr int kRuns = 3;
  Profiler::Start();
  LocalCluster cluster(2);
  std::vector<Profile> profiles;
  cluster.Run([&](const CommunicatorPtr& communicator) {
    PlanOptions options;
    options.cluster.communicator = communicator;
    Executor exec(Compile(graph, options));
    CHECK(ErrorOf([&] { GatherProfiles(*communicator, Profiler::Read()); }).code() ==
          ErrorCode::kFailedPrecondition);
    for (const ClockOffset& offset : AlignClocks(*communicator)) {
      CHECK(offset.offset == 0);  // threads have one clock
      CHECK(offset.error == 0);
    }
    for (int run = 0; run < kRuns; ++run) exec.Run({{"x", Tensor::From<float>({2}, {1, 2})}});
  });
  Profiler::Stop();
  const Profile recorded = Profiler::Read();
  cluster.Run([&](const CommunicatorPtr& communicator) {
    auto gathered = GatherProfiles(*communicator, recorded);
    CHECK(gathered.size() == (communicator->process() == 0 ? 2u : 0u));
    if (communicator->process() == 0) profiles = std::move(gathered);
  });
  REQUIRE(profiles.size() == 2);
  const auto count = [](const Profile& profile, const char* name) {
    return std::count_if(profile.spans.begin(), profile.spans.end(), [&](const ProfileSpan& span) {
      return !span.adopted && InternedName(span.name) == name;
    });
  };
  CHECK(count(profiles[0], "Neg") == kRuns);
  CHECK(count(profiles[1], "Neg") == 0);
  CHECK(count(profiles[0], "Exp") == 0);
  CHECK(count(profiles[1], "Exp") == kRuns);
  for (const Profile& profile : profiles) CHECK(count(profile, "opkit.cluster.AllReduce") == kRuns);
  const auto messages = MessagesOf(profiles);
  REQUIRE(messages.size() == kRuns);
  for (const MessageTime& message : messages) {
    CHECK(message.value == "a");
    CHECK(message.from == 0);
    CHECK(message.to == 1);
    CHECK(message.send->id != message.receive->id);
    // Both count from the same moment: a message does not arrive before it is sent.
    CHECK(std::max(message.receive->end, message.receive->completed) >= message.send->begin);
    CHECK(message.wait() == std::max<int64_t>(0, message.send->begin - message.receive->begin));
  }
  SaveClusterTrace(profiles, folder / "trace.json");
  const std::string trace = ReadFile(folder / "trace.json");
  CHECK(Contains(trace, R"("name":"process 0")"));
  CHECK(Contains(trace, R"("name":"process 1")"));
  for (const MessageTime& message : messages)
    for (const char* end : {"flow_out", "flow_in"})
      CHECK(Count(trace, StrCat(R"("cat":"communication","bind_id":)", message.send->id, ",\"", end,
                                "\":true")) == 1);
  CHECK(Count(trace, "communication") == 2 * kRuns);
  // Each process has only the threads on which it ran.
  for (const Profile& profile : profiles)
    for (size_t thread = 0; thread < profile.threads.size(); ++thread)
      CHECK(std::any_of(profile.spans.begin(), profile.spans.end(), [&](const ProfileSpan& span) {
        return span.thread == static_cast<int>(thread) || span.pusher == static_cast<int>(thread);
      }));
  for (const Profile& one : profiles) CHECK(one.markers.empty());  // those of AlignClocks
  // A process may have another number in its plan than among the profiles.
  const std::vector<Profile> shifted = {Profile(), profiles[0], profiles[1]};
  REQUIRE(MessagesOf(shifted).size() == kRuns);
  CHECK(MessagesOf(shifted)[0].value == "a");
  CHECK(MessagesOf(shifted)[0].from == 1);
  CHECK(MessagesOf(shifted)[0].to == 2);
  const Profile merged = MergedProfile(profiles);
  CHECK(merged.spans.size() == profiles[0].spans.size() + profiles[1].spans.size());
  for (const ProfileSpan& span : merged.spans) {
    const std::string& thread = merged.threads[static_cast<size_t>(span.thread)].name;
    if (InternedName(span.name) == "Neg") CHECK(thread.starts_with("process 0: "));
    if (InternedName(span.name) == "Exp") CHECK(thread.starts_with("process 1: "));
  }
}

// Returns the gathered profiles of two processes that run `body`.
std::vector<Profile> ProfilesOf(LocalCluster& cluster,
                                const std::function<void(const CommunicatorPtr&)>& body) {
  std::vector<Profile> profiles;
  Profiler::Start();
  cluster.Run([&](const CommunicatorPtr& communicator) {
    AlignClocks(*communicator);
    body(communicator);
  });
  Profiler::Stop();
  const Profile recorded = Profiler::Read();
  cluster.Run([&](const CommunicatorPtr& communicator) {
    auto gathered = GatherProfiles(*communicator, recorded);
    if (communicator->process() == 0) profiles = std::move(gathered);
  });
  return profiles;
}

TEST_CASE("failed runs have arrows only for the messages that arrived") {
  const Watchdog watchdog;
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}).AddInput("i", DType::kInt64, {1});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Gather", {"a", "i"}, {"b"}).Process(1));
  graph.AddNode(OperatorDef("Neg", {"b"}, {"y"}).Process(0));
  graph.AddOutput("y");
  constexpr int kPlans = 4;
  LocalCluster cluster(2);
  const std::vector<Profile> profiles =
      ProfilesOf(cluster, [&](const CommunicatorPtr& communicator) {
        for (int plan = 0; plan < kPlans; ++plan) {
          Executor exec(Compile(graph, With(communicator)));
          const bool fails = plan % 2 == 0;
          const auto inputs = InputsOf(exec, {{"x", Tensor::From<float>({2}, {1, 2})},
                                              {"i", Tensor::From<int64_t>({1}, {fails ? 99 : 0})}});
          // A run of a broken plan sends nothing.
          for (int run = 0; run < 2; ++run)
            if (fails)
              ErrorOf([&] { exec.Run(inputs); });
            else
              exec.Run(inputs);
        }
      });
  REQUIRE(profiles.size() == 2);
  int of_a = 0, of_b = 0;
  for (const MessageTime& message : MessagesOf(profiles)) {
    CHECK(message.from == (message.value == "a" ? 0 : 1));
    CHECK(message.to == 1 - message.from);
    ++(message.value == "a" ? of_a : of_b);
    CHECK(std::max(message.receive->end, message.receive->completed) >= message.send->begin);
    CHECK(message.receive->message.plan == message.send->message.plan);
    CHECK(message.receive->message.number == message.send->message.number);
  }
  CHECK(of_a == kPlans / 2 * 3);  // one of each plan that fails, whose Gather fails with it
  CHECK(of_b == kPlans / 2 * 2);
}

TEST_CASE("messages of the graph's author have arrows, and those with one end have none") {
  const Watchdog watchdog;
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  const auto message = [](int64_t process, int64_t other, int64_t channel) {
    return OperatorDef(StrCat("opkit.cluster.", process == 0 ? "Send" : "Recv"))
        .Process(static_cast<int>(process))
        .Arg("process", other)
        .Arg("channel", channel);
  };
  for (const int64_t channel : {3, 5}) {
    OperatorDef send = message(0, 1, channel).Input("x");
    if (channel == 5) send.Name("mine");
    graph.AddNode(std::move(send));
    graph.AddNode(message(1, 0, channel)
                      .Output(StrCat("y", channel))
                      .Arg("dtype", static_cast<int64_t>(DType::kFloat32))
                      .Arg("shape", std::vector<int64_t>{2}));
    graph.AddOutput(StrCat("y", channel));
  }
  LocalCluster cluster(2);
  std::vector<Profile> profiles = ProfilesOf(cluster, [&](const CommunicatorPtr& communicator) {
    Executor exec(Compile(graph, With(communicator)));
    for (int run = 0; run < 2; ++run)
      exec.Run(InputsOf(exec, {{"x", Tensor::From<float>({2}, {1, 2})}}));
  });
  REQUIRE(profiles.size() == 2);
  const auto count = [&](const char* value) {
    const auto messages = MessagesOf(profiles);
    return std::count_if(messages.begin(), messages.end(),
                         [&](const MessageTime& one) { return one.value == value; });
  };
  CHECK(MessagesOf(profiles).size() == 4);
  CHECK(count("channel 3") == 2);
  CHECK(count("mine") == 2);
  // The receiver's profile has lost its first message of each channel.
  for (ProfileSpan& span : profiles[1].spans)
    if (span.message.number == 0) span.message = {};
  const auto rest = MessagesOf(profiles);
  REQUIRE(rest.size() == 2);
  for (const MessageTime& one : rest) {
    CHECK(one.send->message.number == 1);
    CHECK(one.receive->message.number == 1);
  }
}

}  // namespace
}  // namespace cluster_trace_test
