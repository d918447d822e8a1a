// Writes a report of a profile that is made here: report_program FILE [SPANS].
#include <cstdlib>

#include "opkit/graph/partition/report.hpp"
#include "opkit/report/report.hpp"

namespace {

using namespace opkit;

ProfileSpan Span(uint64_t id, uint64_t parent, Invocation::Kind kind, const char* name,
                 int64_t begin, int64_t end) {
  ProfileSpan span;
  span.id = id;
  span.parent = parent;
  span.kind = kind;
  span.name = InternName(name);
  span.begin = begin;
  span.end = end;
  return span;
}

// Two threads, an operator with a node and shapes, a custom one with another inside, odd names.
Profile Small() {
  Profile profile;
  profile.threads = {{1, "main"}, {2, "worker"}};
  profile.duration = 1'000'000;
  profile.spans = {Span(1, 0, Invocation::Kind::kRun, "Run", 0, 1'000'000),
                   Span(2, 1, Invocation::Kind::kOperator, "Conv", 100'000, 400'000),
                   Span(3, 1, Invocation::Kind::kCustomOperator, "Mine", 500'000, 700'000),
                   Span(4, 3, Invocation::Kind::kOperator, "Add", 600'000, 610'000),
                   Span(5, 0, Invocation::Kind::kUserCode, "</script><b>", 100'000, 300'000),
                   Span(6, 0, Invocation::Kind::kUserCode, "\xff\xfe \x01", 400'000, 500'000)};
  profile.spans[1].node = InternName("conv_1");
  profile.spans[1].work = {InternName("float32[1, 3]"), 1000, 2000, InternName("eigen")};
  profile.spans[2].custom = profile.spans[3].custom = InternName("Mine");
  profile.spans[4].thread = profile.spans[5].thread = 1;
  profile.counters = {{0, InternName("memory of cpu"), 0},
                      {500'000, InternName("memory of cpu"), 64}};
  profile.markers = {{250'000, InternName("here"), 0, false}};
  return profile;
}

// A report of five nodes: two are taken, one is rejected, and two stay for one reason.
PartitionReport Partitioned() {
  PartitionReport report;
  for (const char* name : {"first", "second", "third", "", "</script><b>"})
    report.graph.AddNode(OperatorDef("Op").Name(name));
  report.nodes.resize(5);
  PartitionReport::Subgraph taken;
  taken.partitioner = "chains";
  taken.op = "Chain";
  taken.name = "Chain0";
  taken.nodes = {0, 1};
  taken.inputs = {"x"};
  taken.outputs = {"y", "z"};
  taken.input_bytes = 2048;
  taken.output_bytes = 64;
  taken.open_values = 1;
  taken.flops = 1234567;
  PartitionReport::Subgraph rejected = taken;
  rejected.name.clear();
  rejected.nodes = {2};
  rejected.open_values = 0;
  rejected.flops = 10;
  rejected.rejected = "it is no chain";
  report.subgraphs = {rejected, taken};
  report.nodes[0].subgraph = report.nodes[1].subgraph = 1;
  report.nodes[2].refused = {{"chains", "it is no chain"}};
  report.nodes[3].refused = {{"chains", "unsupported"}, {"other", "too large"}};
  report.nodes[4].refused = {{"chains", "unsupported"}};
  return report;
}

// Three nodes, of which the last waits for the others, and their memory: 192 bytes at 400 to 450
// us.
RunReport Run() {
  RunReport run;
  run.begin = 0;
  run.end = 1'000'000;
  run.arena_bytes = 256;
  run.nodes = {{"Conv (conv_1)", 0, 100'000, 400'000, {}, true},
               {"</script><b> (odd)", 0, 350'000, 450'000, {}, false},
               {"Mine (mine)", 450'000, 500'000, 700'000, {0, 1}, true}};
  run.buffers = {{"a", "Conv (conv_1)", 64, 100'000, 700'000},
                 {"b = c", "</script><b> (odd)", 96, 350'000, 450'000},
                 {"scratch", "</script><b> (odd)", 32, 400'000, 450'000},
                 {"d", "Mine (mine)", 100, 500'000, 1'000'000}};
  run.processes = {{1'000'000, 250'000}, {800'000, 600'000}};
  run.waits = {{"Recv (</script><b>)", 1, 0, 500'000, 450'000},
               {"AllReduce (s)", 0, 1, 250'000, 0}};
  run.partition = ToJson(Partitioned());
  return run;
}

// Runs of 100 operators, on four threads.
Profile Large(int spans) {
  constexpr int kThreads = 4, kNodes = 100, kNames = 20;
  Profile profile;
  uint64_t id = 0;
  for (int thread = 0; thread < kThreads; ++thread) {
    profile.threads.push_back({thread + 1, StrCat("thread ", thread)});
    int64_t time = 0;
    for (int made = 0; made < spans / kThreads; made += kNodes + 1) {
      const uint64_t run = ++id;
      const size_t at = profile.spans.size();
      profile.spans.push_back(Span(run, 0, Invocation::Kind::kRun, "Run", time, 0));
      for (int node = 0; node < kNodes; ++node) {
        const std::string name = StrCat("Op", node % kNames);
        const int64_t length = 200 + 37 * (node % 11);
        profile.spans.push_back(
            Span(++id, run, Invocation::Kind::kOperator, name.c_str(), time, time + length));
        time += length + 30;
      }
      profile.spans[at].end = time;
      for (size_t i = at; i < profile.spans.size(); ++i) profile.spans[i].thread = thread;
      time += 500;
    }
    profile.duration = (std::max)(profile.duration, time);
  }
  return profile;
}

}  // namespace

int main(int argc, char** argv) {
  ProfileTableOptions table;
  table.peak = {100e9, 10e9, {{"L1", 32768, 80e9}, {"L2", 1 << 20, 30e9}}};
  if (argc > 2)
    SaveReport(Large(std::atoi(argv[2])), argv[1], table);
  else
    SaveReport(Small(), argv[1], table, Run());
}
