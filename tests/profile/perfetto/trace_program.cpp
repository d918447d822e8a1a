// trace_program FOLDER: runs operators, tasks and scopes whose number is known, and writes their
// profile in every format, as FOLDER/trace.*, for perfetto_test.py.
#include <pthread.h>

#include <cmath>
#include <map>
#include <thread>

#include "op/body_op.hpp"
#include "opkit/base/output_file.hpp"
#include "opkit/engine/engine.hpp"
#include "opkit/functions.hpp"
#include "opkit/graph.hpp"
#include "opkit/profile.hpp"
#include "opkit/profile/json_text.hpp"
#include "support/awkward.hpp"

namespace {

using namespace opkit;

constexpr int kRuns = 3;
constexpr char kQuoted[] = "\"quoted\" \\ back\nline";
constexpr char kNoUtf8[] = "no \xff\xfe UTF-8";

class IncrementOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Output(0, x.shape(), x.dtype())->mutable_data<float>()[0] = x.data<float>()[0] + 1;
    return true;
  }
};
OPERATOR_SCHEMA(Increment).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Increment, IncrementOp);

using Attrs = std::map<std::string, std::string>;
using Tensors = std::vector<OpTensor>;
int ForwardInner(Attrs, Tensors in, Tensors out, OpResource res) {
  res.invoke("Increment", {in[0]}, {out[0]});
  return SUCCESS;
}
int ForwardOuter(Attrs, Tensors in, Tensors out, OpResource res) {
  const OpTensor loaded = res.temporary({1}, DType::kFloat32);
  {
    const OpScope scope = res.scope("load");
    res.invoke("Increment", {in[0]}, {loaded});
  }
  res.invoke("Inner", {loaded}, {out[0]});
  return SUCCESS;
}
int ParseAttrs(Attrs, int* num_in, int* num_out) {
  *num_in = *num_out = 1;
  return SUCCESS;
}
int InferShape(Attrs, ShapeVectors& in, ShapeVectors& out) {
  out = in;
  return SUCCESS;
}
REGISTER_OP(Inner)
    .setForward(ForwardInner, "cpu")
    .setParseAttrs(ParseAttrs)
    .setInferShape(InferShape);
REGISTER_OP(MyOp)
    .setForward(ForwardOuter, "cpu")
    .setParseAttrs(ParseAttrs)
    .setInferShape(InferShape);

// A graph with a custom operator that calls another one.
void RunGraph() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {1});
  graph.AddNode(OperatorDef("Increment", {"x"}, {"a"}).Name("first"));
  graph.AddNode(OperatorDef("MyOp", {"a"}, {"b"}).Name(kQuoted));
  graph.AddNode(OperatorDef("Increment", {"b"}, {"y"}).Name("last"));
  graph.AddOutput("y");
  Executor executor(Compile(graph, {.threads = 1}));
  for (int i = 0; i < kRuns; ++i) executor.Run({{"x", Tensor::From<float>({1}, {1})}});
}

// Operators whose names look like what the trace makes of others, one that throws, and one whose
// work goes on in a thread of its own.
void RunOddNames() {
  Workspace ws;
  BodyOpCPU leaf(OperatorDef("A::B"), &ws, [](BodyOpCPU&) { return true; });
  BodyOpCPU throwing(OperatorDef("Throws"), &ws, [](BodyOpCPU&) -> bool {
    throw Error(ErrorCode::kOutOfRange, "in the middle");
  });
  BodyOpCPU custom(OperatorDef("Custom"), &ws, [&](BodyOpCPU&) {
    try {
      throwing.Run();
    } catch (const Error&) {
    }
    std::thread([&, token = CurrentInvocation()] {
      pthread_setname_np(pthread_self(), "\"\xff\" thread");
      const auto scope = InvocationScope::Adopt(token);
      leaf.Run();
    }).join();
    return leaf.Run();
  });
  custom.SetCustom();
  for (int i = 0; i < kRuns; ++i) custom.Run();
  leaf.Run();
  for (const char* name : {kQuoted, kNoUtf8}) {
    const ProfileScope scope(name);
    ProfileMark(name);
  }
}

// Tasks that are pushed inside a scope, inside a task and where nothing runs.
void PushTasks() {
  Engine engine({.threads = 2});
  const Var x = engine.NewVar();
  {
    const ProfileScope scope("pusher");
    for (int i = 0; i < kRuns; ++i) engine.Push([] {}, {}, {x}, {.name = "in scope"});
  }
  engine.Push([&] { engine.Push([] {}, {}, {}, {.name = "in task"}); }, {}, {},
              {.name = "in nothing"});
  engine.WaitForAll();
}

// Work on two streams that lasts longer than its operators' runs, so that it overlaps.
void RunStreams() {
  Workspace ws;
  const auto on_stream = [](BodyOp<CPUStreamContext>& self) {
    self.context().Launch([] { const ProfileScope scope("on stream"); });
    return true;
  };
  const OperatorDef def = OperatorDef("Streamed").Device(DeviceType::kCPUStream);
  std::vector<std::unique_ptr<BodyOp<CPUStreamContext>>> ops;
  for (int i = 0; i < kRuns; ++i)
    ops.push_back(std::make_unique<BodyOp<CPUStreamContext>>(def, &ws, on_stream));
  std::atomic<bool> issued{false};
  for (int stream : {0, 1})
    detail::CPUStream::Get(Device{DeviceType::kCPUStream, 0}, stream).Launch([&] {
      issued.wait(false);
    });
  for (int i = 0; i < kRuns; ++i) ops[static_cast<size_t>(i)]->RunAsync(i % 2);
  issued = true;
  issued.notify_all();
  for (const auto& op : ops) op->Finish();
}

// Spans that may begin and end in the same nanosecond, and counters.
void RunScopes() {
  for (int i = 0; i < 1000; ++i) {
    const ProfileScope outer("outer");
    const ProfileScope middle("middle");
    { const ProfileScope inner("inner"); }
    { const ProfileScope inner("inner"); }
  }
  for (double value : {3.0, 1.5, -2.0, 3e9}) ProfileCount("queue", value);
  ProfileCount(kQuoted, 7);
  for (int i = 0; i < kRuns; ++i) ProfileFrame();
  std::thread([] {
    const ProfileScope scope("other thread");
    ProfileMark("marked elsewhere");
  }).join();
}

// Records a scope for every awkward name, and a counter of all awkward numbers. Writes each as one
// line of JSON to `list`.
void RunAwkward(std::string* list) {
  for (const auto& [name, utf8] : AwkwardNames()) {
    if (utf8.empty() || utf8.find('\0') != std::string::npos) continue;  // SQL's texts end there
    const ProfileScope scope(name);
    detail::AppendJsonString(*list, utf8);
    *list += '\n';
  }
  for (const double value : AwkwardNumbers()) {
    ProfileCount("numbers", value);
    if (!std::isfinite(value)) continue;
    detail::AppendNumber(*list, value);
    *list += '\n';
  }
}

void Write(const std::string& trace) {
  SaveChromeTrace(Profiler::Read(), trace + ".json");
  SavePerfettoTrace(Profiler::Read(), trace + ".pftrace");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  Profiler::Start();
  RunGraph();
  RunOddNames();
  PushTasks();
  RunStreams();
  RunScopes();
  Profiler::Stop();
  Write(folder + "/trace");
  Profiler::Start();
  std::string list;
  RunAwkward(&list);
  Profiler::Stop();
  Write(folder + "/awkward");
  SaveFile(folder + "/awkward.txt", list);
}
