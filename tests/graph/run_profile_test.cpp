#include "opkit/graph/run_profile.hpp"

#include <doctest/doctest.h>

#include "check_outputs.hpp"
#include "opkit/graph.hpp"
#include "opkit/profile.hpp"
#include "support/error_of.hpp"

namespace run_profile_test {
namespace {

using namespace opkit;

// X -> a -> (b, c) -> d; only c has a name.
Graph Diamond() {
  Graph g;
  g.AddInput("X", DType::kFloat32, {3});
  g.AddNode(OperatorDef("Relu").Input("X").Output("a"));
  g.AddNode(OperatorDef("Scale").Input("a").Output("b").Arg("scale", 2.f));
  g.AddNode(OperatorDef("Scale").Input("a").Output("c").Arg("scale", 3.f).Name("triple"));
  g.AddNode(OperatorDef("Add").Input("b").Input("c").Output("d"));
  g.AddOutput("d");
  return g;
}

constexpr uint64_t kRunId = 1;

ProfileSpan Span(Invocation::Kind kind, const char* name, const char* node, int64_t begin,
                 int64_t end) {
  static uint64_t id = 100;
  ProfileSpan span;
  span.id = kind == Invocation::Kind::kRun ? kRunId : ++id;
  span.parent = kind == Invocation::Kind::kRun ? 0 : kRunId;
  span.kind = kind;
  span.name = InternName(name);
  span.node = InternName(node);
  span.begin = begin;
  span.end = end;
  return span;
}

// A run of Diamond from 100 to 1000 on two threads.
Profile Recorded() {
  constexpr auto kOperator = Invocation::Kind::kOperator;
  Profile profile;
  profile.spans = {Span(Invocation::Kind::kRun, "Executor::Run", "", 100, 1000),
                   Span(kOperator, "Relu", "a", 110, 200), Span(kOperator, "Scale", "b", 210, 300),
                   Span(kOperator, "Add", "d", 850, 990)};
  ProfileSpan late = Span(kOperator, "Scale", "triple", 250, 400);
  late.completed = 800;  // on a stream
  late.thread = 1;
  profile.spans.push_back(late);
  return profile;
}

}  // namespace

TEST_CASE("the critical path goes back from the last node by each node's last wait") {
  const RunProfile run = ProfileOfRun(Compile(Diamond()), Recorded());
  CHECK(run.begin == 100);
  CHECK(run.end == 1000);
  REQUIRE(run.nodes.size() == 4);
  CHECK(run.nodes[0].name == "Relu (a)");
  CHECK(run.nodes[0].ready == 100);
  CHECK(run.nodes[1].name == "Scale (b)");
  CHECK(run.nodes[1].ready == 200);
  CHECK(run.nodes[2].name == "Scale (triple)");
  CHECK(run.nodes[2].ready == 200);
  CHECK(run.nodes[2].end == 800);
  CHECK(run.nodes[2].thread == 1);
  CHECK(run.nodes[3].ready == 800);
  CHECK(run.nodes[0].after.empty());
  CHECK(run.nodes[3].after == std::vector<int>{2, 1});  // first the one that ended last
  CHECK(run.critical_path == std::vector<int>{0, 2, 3});
  CHECK(ToString(run) ==
        "run of 0.900 us: 4 nodes, 0.870 us; critical path of 3 nodes, 0.780 us, and 0.110 us of "
        "waits\n"
        "critical path   ready us  wait us  run us\n"
        "Relu (a)           0.000    0.010   0.090\n"
        "Scale (triple)     0.100    0.050   0.550\n"
        "Add (d)            0.700    0.050   0.140\n");
}

TEST_CASE("a recorded run is found among other spans, and a part of one is not taken for it") {
  const Plan plan = Compile(Diamond());
  Executor exec(plan), other(Compile(Diamond()));
  exec.Bind("X", Vector({1, -2, 3}));
  Profiler::Start();
  exec.Run();
  exec.Run();
  {
    const ProfileScope scope("besides");
    Invoke("Relu", {Vector({1})});
  }
  Profiler::Stop();
  const RunProfile run = ProfileOfRun(plan, Profiler::Read());
  REQUIRE(run.nodes.size() == 4);
  CHECK(run.nodes[0].name == "Relu (a)");
  CHECK(run.nodes[3].name == "Add (d)");
  REQUIRE(run.critical_path.size() == 3);
  for (const NodeTime& node : run.nodes) {
    CHECK(run.begin <= node.ready);
    CHECK(node.ready <= node.begin);
    CHECK(node.begin <= node.end);
    CHECK(node.end <= run.end);
  }

  Profile profile = Recorded();
  profile.spans.pop_back();
  CHECK(ErrorOf([&] { ProfileOfRun(plan, profile); }).code() == ErrorCode::kNotFound);
  profile.spans.push_back(Span(Invocation::Kind::kOperator, "Scale", "another", 250, 400));
  CHECK(Contains(ErrorOf([&] { ProfileOfRun(plan, profile); }).message(),
                 "the profile has 1 runs, but none that has all of the 4 nodes of this plan"));
}

TEST_CASE("a plan of open shapes that nothing has run has no run profile") {
  Graph g;
  g.AddInput("X", DType::kFloat32, {Sym("n")});
  g.AddNode(OperatorDef("Relu").Input("X").Output("Y"));
  g.AddOutput("Y");
  CHECK(ErrorOf([&] { ProfileOfRun(Compile(g), Recorded()); }).code() ==
        ErrorCode::kFailedPrecondition);
}

TEST_CASE("a run for the report has each node's predecessors, and the memory over time") {
  const Plan plan = Compile(Diamond());
  const RunReport run = ReportOfRun(plan, Recorded());
  CHECK(run.begin == 100);
  CHECK(run.end == 1000);
  REQUIRE(run.nodes.size() == 4);
  CHECK(run.nodes[0].after.empty());
  CHECK(run.nodes[1].after == std::vector<int>{0});
  CHECK(run.nodes[2].name == "Scale (triple)");
  CHECK(run.nodes[2].after == std::vector<int>{0});
  CHECK(run.nodes[3].after.size() == 2);
  CHECK(run.nodes[2].critical);
  CHECK_FALSE(run.nodes[1].critical);
  CHECK(run.nodes[3].ready == 800);
  CHECK(run.arena_bytes == plan.memory().arena_bytes);
  // a lives from its node's begin to the end of the later reader, b and c until the Add.
  const auto buffer = [&](const std::string& value) -> const RunReport::Buffer& {
    for (const RunReport::Buffer& one : run.buffers)
      if ((" = " + one.name + " = ").find(" = " + value + " = ") != std::string::npos) return one;
    FAIL("no buffer of " << value);
    return run.buffers[0];
  };
  CHECK(buffer("a").owner == "Relu (a)");
  CHECK(buffer("a").begin == 110);
  CHECK(buffer("a").bytes >= 12);
  CHECK(buffer("b").end == 990);
  CHECK(buffer("c").end == 990);
  CHECK(ErrorOf([&] { ReportOfRun(plan, Profile()); }).code() == ErrorCode::kNotFound);
}

}  // namespace run_profile_test
