// Loop.
#include "opkit/ops/loops/loop.hpp"

#include <chrono>

#include "../data_movement.hpp"
#include "opkit/core/packed.hpp"
#include "opkit/graph.hpp"
#include "opkit/ops/concat.hpp"
#include "opkit/ops/identity.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/math/logic.hpp"
#include "opkit/ops/math/unary.hpp"
#include "opkit/ops/sequence/sequence_operators.hpp"
#include "opkit/ops/text/string_concat.hpp"
#include "opkit/profile/profiler.hpp"

namespace loop_test {
using namespace opkit_tests;

namespace {

// A body with the inputs i, go and x, and further `inputs`; the outputs are `next` for the
// condition, then y, then `outputs`.
Graph Body(std::vector<OperatorDef> nodes, const std::string& next = "go",
           const std::vector<std::string>& outputs = {},
           const std::vector<std::string>& inputs = {}) {
  Graph g;
  g.AddInput("i", DType::kInt64, Shape{});
  g.AddInput("go", DType::kBool, Shape{});
  g.AddInput("x", DType::kFloat32, {});
  for (const std::string& input : inputs) g.AddInput(input, DType::kUndefined, {});
  for (OperatorDef& node : nodes) g.AddNode(std::move(node));
  g.AddOutput(next);
  g.AddOutput("y");
  for (const std::string& output : outputs) g.AddOutput(output);
  return g;
}
// A graph with the inputs M, cond, x and c, and one Loop whose body captures `captures`.
Graph Around(Graph body, int stacked = 0, const std::vector<std::string>& captures = {},
             const char* count = "M", const char* condition = "cond") {
  OperatorDef loop("Loop", {count, condition, "x"}, {"out"});
  loop.Name("repeat").Inputs(captures).Arg("captures", captures);
  for (int k = 0; k < stacked; ++k) loop.Output(StrCat("stack", k));
  loop.Subgraph("body", MakeSubgraph(std::move(body)));
  Graph g;
  if (*count) g.AddInput("M", DType::kInt64, Shape{});
  if (*condition) g.AddInput("cond", DType::kBool, Shape{});
  g.AddInput("x", DType::kFloat32, {Dim()});
  for (const std::string& name : captures) g.AddInput(name, DType::kFloat32, {1});
  for (const std::string& name : loop.outputs()) g.AddOutput(name);
  g.AddNode(std::move(loop));
  return g;
}
Tensor Count(int64_t n) { return Tensor::Scalar(n); }
const Tensor kYes = Tensor::Scalar(true), kNo = Tensor::Scalar(false);
const Tensor kX = Tensor::From<float>({2}, {1, 2});

// y = x + x; stacks y.
Graph Doubling() {
  return Body({OperatorDef("Add", {"x", "x"}, {"y"}), OperatorDef("Neg", {"y"}, {"s"})}, "go",
              {"s"});
}

TEST_CASE("the trip count and the condition end the loop, run after run") {
  Executor exec(Compile(Around(Doubling(), 1)));
  for (int run = 0; run < 3; ++run) {
    for (const int64_t n : {3, 1, 6, 0, -2}) {
      CAPTURE(n);
      const NamedTensors out = exec.Run({{"M", Count(n)}, {"cond", kYes}, {"x", kX}});
      Floats stack;
      float power = 1;
      for (int64_t i = 0; i < n; ++i) {
        power *= 2;
        stack.push_back(-power);
        stack.push_back(-2 * power);
      }
      CHECK(FloatsOf(out.Get("out")) == Floats{power, 2 * power});
      CHECK(out.Get("stack0").shape() == Shape{std::max<int64_t>(n, 0), 2});
      CHECK(FloatsOf(out.Get("stack0")) == stack);
    }
    const NamedTensors none = exec.Run({{"M", Count(5)}, {"cond", kNo}, {"x", kX}});
    CHECK(FloatsOf(none.Get("out")) == Floats{1, 2});
    CHECK(none.Get("stack0").shape() == Shape{0, 2});
  }
  CHECK(FloatsOf(kX) == Floats{1, 2});
}

TEST_CASE("a result that the caller keeps is not written to by later runs") {
  Executor exec(Compile(Around(Doubling(), 1)));
  const NamedTensors first = exec.Run({{"M", Count(5)}, {"cond", kYes}, {"x", kX}});
  const Tensor x = Tensor::From<float>({2}, {10, 20});
  exec.Run({{"M", Count(5)}, {"cond", kYes}, {"x", x}});
  CHECK(FloatsOf(first.Get("out")) == Floats{32, 64});
  CHECK(FloatsOf(first.Get("stack0").Slice(0, 0, 2)) == Floats{-2, -4, -4, -8});
}

TEST_CASE("without a trip count, the body's condition ends the loop") {
  // y = x + x, as long as y < c
  for (const char* count : {"", "M"})
    for (const char* condition : {"", "cond"}) {
      Graph inner =
          Body({OperatorDef("Add", {"x", "x"}, {"y"}), OperatorDef("Identity", {"y"}, {"s"}),
                OperatorDef("Less", {"y", "c"}, {"next"})},
               "next", {"s"}, {"c"});
      Executor exec(Compile(Around(inner, 1, {"c"}, count, condition)));
      std::vector<NamedTensor> inputs = {{"x", Tensor::From<float>({1}, {1})},
                                         {"c", Tensor::From<float>({1}, {20})}};
      if (*count) inputs.push_back({"M", Count(std::numeric_limits<int64_t>::max())});
      if (*condition) inputs.push_back({"cond", kYes});
      const NamedTensors out = exec.Run(inputs);
      CHECK(FloatsOf(out.Get("out")) == Floats{32});
      CHECK(FloatsOf(out.Get("stack0")) == Floats{2, 4, 8, 16, 32});
    }
}

TEST_CASE("a carried value may change its shape, and inference then knows its rank alone") {
  const Graph graph = Around(Body({OperatorDef("Concat", {"x", "x"}, {"y"}, {{"axis", 0}})}), 0);
  const GraphView view(graph);
  const GraphTypes types = InferGraph(view, {});
  CHECK(types.Get("out").dtype == DType::kFloat32);
  CHECK(types.Get("out").shape.rank() == 1);
  CHECK_FALSE(types.Get("out").shape.is_known());
  Executor exec(Compile(graph));
  CHECK(FloatsOf(exec.Run({{"M", Count(2)}, {"cond", kYes}, {"x", kX}}).Get("out")) ==
        Floats{1, 2, 1, 2, 1, 2, 1, 2});
  CHECK(FloatsOf(exec.Run({{"M", Count(0)}, {"cond", kYes}, {"x", kX}}).Get("out")) ==
        Floats{1, 2});
}

TEST_CASE("a carried value that keeps its shape, and a constant trip count, are inferred") {
  Graph g;
  g.AddInput("x", DType::kFloat32, {Sym("n"), 3});
  g.AddConstant("M", Count(4));
  OperatorDef loop("Loop", {"M", "", "x"}, {"out", "stack"});
  loop.Subgraph("body", MakeSubgraph(Doubling()));
  g.AddNode(loop);
  g.AddOutput("stack");
  const GraphView view(g);
  const GraphTypes types = InferGraph(view, {});
  CHECK(types.Get("out").shape == SymbolicShape{Sym("n"), 3});
  CHECK(types.Get("stack").shape == SymbolicShape{4, Sym("n"), 3});
  CHECK(types.Get("stack").dtype == DType::kFloat32);
}

TEST_CASE("two carried values that change places are not mixed up") {
  Graph body;
  body.AddInput("i", DType::kInt64, Shape{});
  body.AddInput("go", DType::kBool, Shape{});
  body.AddInput("a", DType::kFloat32, {});
  body.AddInput("b", DType::kFloat32, {});
  body.AddNode(OperatorDef("Add", {"a", "b"}, {"sum"}));
  for (const char* output : {"go", "b", "sum"}) body.AddOutput(output);
  OperatorDef loop("Loop", {"M", "", "a", "b"}, {"x", "y"});
  loop.Subgraph("body", MakeSubgraph(body));
  Graph g;
  g.AddInput("M", DType::kInt64, Shape{});
  g.AddInput("a", DType::kFloat32, {1});
  g.AddInput("b", DType::kFloat32, {1});
  g.AddNode(loop);
  g.AddOutput("x");
  g.AddOutput("y");
  Executor exec(Compile(g));
  float a = 0, b = 1;
  for (int64_t n = 0; n < 9; ++n) {
    const NamedTensors out = exec.Run({{"M", Count(n)},
                                       {"a", Tensor::From<float>({1}, {0})},
                                       {"b", Tensor::From<float>({1}, {1})}});
    CHECK(FloatsOf(out.Get("x")) == Floats{a});
    CHECK(FloatsOf(out.Get("y")) == Floats{b});
    a = std::exchange(b, a + b);
  }
}

TEST_CASE("a carried sequence keeps the dtype of its elements") {
  Graph body;
  body.AddInput("i", DType::kInt64, Shape{}).AddInput("go", DType::kBool, Shape{});
  body.AddInput(Graph::Input{"s", detail::SequenceInfo(DType::kFloat32)});
  body.AddNode(OperatorDef("SequenceEmpty", {}, {"t"}, {{"dtype", 7}}));
  body.AddOutput("go").AddOutput("t");
  Graph g;
  g.AddInput(Graph::Input{"s", detail::SequenceInfo(DType::kFloat32)});
  g.AddConstant("count", Tensor::Scalar<int64_t>(1));
  g.AddNode(OperatorDef("Loop", {"count", "", "s"}, {"out"}).Subgraph("body", MakeSubgraph(body)));
  g.AddOutput("out");
  CHECK(Contains(ErrorOf([&] { Compile(g); }).what(),
                 "'s' has elements of float32 before an iteration and of int64 after it"));
}

TEST_CASE("a wrong node is an Error") {
  const auto message = [](auto call) { return std::string(ErrorOf(call).what()); };
  CHECK(Contains(message([] { Compile(Around(Doubling(), 0)); }), "3 outputs"));
  CHECK(Contains(message([] {
                   Compile(Around(Body({OperatorDef("Add", {"x", "c"}, {"y"})}, "go", {}, {"c"})));
                 }),
                 "the body's input 'c' is not among the captures"));
  CHECK(Contains(message([] {
                   Compile(Around(Body({OperatorDef("Less", {"x", "x"}, {"y"})})));
                 }),
                 "the carried value 'x' is float32 before an iteration and bool after it"));
  Executor exec(
      Compile(Around(Body({OperatorDef("Add", {"x", "c"}, {"y"})}, "go", {}, {"c"}), 0, {"c"})));
  CHECK(Contains(message([&] {
                   exec.Run({{"M", Tensor::From<int64_t>({2}, {1, 2})},
                             {"cond", kYes},
                             {"x", kX},
                             {"c", Tensor::From<float>({1}, {1})}});
                 }),
                 "M"));
}

// A loop whose body carries y = `op`(x), or `op`(x, x), and stacks y.
Graph Stacking(DType dtype, const SymbolicShape& shape, const char* op, bool twice = false) {
  Graph body;
  body.AddInput("i", DType::kInt64, Shape{});
  body.AddInput("go", DType::kBool, Shape{});
  body.AddInput("x", dtype, {});
  body.AddNode(OperatorDef(
      op, twice ? std::vector<std::string>{"x", "x"} : std::vector<std::string>{"x"}, {"y"}));
  body.AddNode(OperatorDef("Identity", {"y"}, {"s"}));
  for (const char* name : {"go", "y", "s"}) body.AddOutput(name);
  Graph g;
  g.AddInput("M", DType::kInt64, Shape{});
  g.AddInput("x", dtype, shape);
  OperatorDef loop("Loop", {"M", "", "x"}, {"out", "stack"});
  g.AddNode(loop.Subgraph("body", MakeSubgraph(std::move(body))));
  for (const char* name : {"out", "stack"}) g.AddOutput(name);
  return g;
}

TEST_CASE("slices of strings are stacked, run after run") {
  using Strings = std::vector<std::string>;
  const Tensor x = Tensor::From<std::string>({2}, {"a", "a word"});
  for (const SymbolicShape& shape : {SymbolicShape{2}, SymbolicShape{Dim()}}) {
    Executor exec(Compile(Stacking(DType::kString, shape, "StringConcat", true)));
    for (int run = 0; run < 2; ++run) {
      const NamedTensors two = exec.Run({{"M", Count(2)}, {"x", x}});
      CHECK(two.Get("stack").shape() == Shape{2, 2});
      CHECK(two.Get("stack").ToVector<std::string>() ==
            Strings{"aa", "a worda word", "aaaa", "a worda worda worda word"});
      CHECK(two.Get("out").ToVector<std::string>() == Strings{"aaaa", "a worda worda worda word"});
      CHECK(exec.Run({{"M", Count(0)}, {"x", x}}).Get("stack").shape() == Shape{0, 2});
    }
  }
}

TEST_CASE("packed slices of whole bytes are stacked, others and sequences are an Error") {
  for (const int64_t width : {2, 3}) {
    Executor exec(Compile(Stacking(DType::kUInt4, {width}, "Identity")));
    Tensor x(Shape{width}, DType::kUInt4);
    for (int64_t i = 0; i < width; ++i)
      SetPackedCode(x.raw_mutable_data(), 4, i, static_cast<uint8_t>(i + 1));
    const auto run = [&] { return exec.Run({{"M", Count(2)}, {"x", x}}).Get("stack"); };
    if (width == 3) {
      CHECK(Contains(ErrorOf(run).message(), "no run of whole bytes"));
      continue;
    }
    const Tensor stack = run();
    CHECK(stack.shape() == Shape{2, 2});
    for (int64_t i = 0; i < 4; ++i) CHECK(PackedCode(stack.raw_data(), 4, i) == i % 2 + 1);
  }
  const Error error = ErrorOf([] {
    Executor exec(Compile(Stacking(DType::kSequence, {Dim()}, "Identity")));
    exec.Run({{"M", Count(2)}, {"x", MakeSequence({kX})}});
  });
  CHECK(Contains(error.message(), "only tensors are stacked"));
}

TEST_CASE("slices that differ in shape are an Error with the iteration") {
  const Graph graph = Around(Body({OperatorDef("Concat", {"x", "x"}, {"y"}, {{"axis", 0}}),
                                   OperatorDef("Neg", {"y"}, {"s"})},
                                  "go", {"s"}),
                             1);
  Executor exec(Compile(graph));
  const Error error = ErrorOf([&] { exec.Run({{"M", Count(2)}, {"cond", kYes}, {"x", kX}}); });
  CHECK(Contains(std::string(error.what()), "output 2 of the body is"));
  CHECK(Contains(std::string(error.what()), "but the iterations before made a value of"));
  CHECK(FloatsOf(exec.Run({{"M", Count(1)}, {"cond", kYes}, {"x", kX}}).Get("stack0")) ==
        Floats{-1, -2, -1, -2});
}

TEST_CASE("an error in an operator of the body names the iteration") {
  // The shapes fit in iteration 0 alone: x doubles, c does not.
  Graph body = Body({OperatorDef("Add", {"x", "c"}, {"sum"}),
                     OperatorDef("Concat", {"sum", "sum"}, {"y"}, {{"axis", 0}})},
                    "go", {}, {"c"});
  OperatorDef loop("Loop", {"M", "", "x", "c"}, {"out"});
  loop.Arg("captures", std::vector<std::string>{"c"}).Subgraph("body", MakeSubgraph(body));
  Graph g;
  g.AddInput("M", DType::kInt64, Shape{});
  g.AddInput("x", DType::kFloat32, {2});
  g.AddInput("c", DType::kFloat32, {2});
  g.AddNode(loop);
  g.AddOutput("out");
  Executor exec(Compile(g));
  CHECK(FloatsOf(exec.Run({{"M", Count(1)}, {"x", kX}, {"c", kX}}).Get("out")) ==
        Floats{2, 4, 2, 4});
  const Error error = ErrorOf([&] { exec.Run({{"M", Count(2)}, {"x", kX}, {"c", kX}}); });
  CHECK(Contains(std::string(error.what()), "in iteration 1 of the body"));
  CHECK(FloatsOf(exec.Run({{"M", Count(1)}, {"x", kX}, {"c", kX}}).Get("out")) ==
        Floats{2, 4, 2, 4});
}

// y = -x; records where it reads and writes.
std::vector<const void*> g_read, g_written;
class RecordPlacesOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    g_read.push_back(x.raw_data());
    g_written.push_back(y->raw_mutable_data());
    for (int64_t i = 0; i < x.numel(); ++i) y->mutable_data<float>()[i] = -x.data<float>()[i];
    return true;
  }
};
OPERATOR_SCHEMA(RecordPlaces).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(RecordPlaces, RecordPlacesOp);

TEST_CASE("a carried value lies in two buffers in turn, and slices are written to their place") {
  const Graph graph = Around(
      Body({OperatorDef("RecordPlaces", {"x"}, {"y"}), OperatorDef("RecordPlaces", {"x"}, {"s"})},
           "go", {"s"}),
      1);
  Executor exec(Compile(graph, {.threads = 1}));
  for (int run = 0; run < 2; ++run) {
    g_read.clear();
    g_written.clear();
    const NamedTensors out = exec.Run({{"M", Count(6)}, {"cond", kYes}, {"x", kX}});
    CHECK(FloatsOf(out.Get("out")) == Floats{1, 2});
    REQUIRE(g_written.size() == 12);
    // The body runs its two nodes in any order: those at `slices`, or the others, write the slices.
    const auto write_slices = [](size_t slices) {
      for (size_t i = 0; i < 6; ++i)
        if (g_written[2 * i + slices] != static_cast<const char*>(g_written[slices]) + i * 8)
          return false;
      return true;
    };
    const size_t slices = write_slices(0) ? 0 : 1;
    CHECK(write_slices(slices));
    std::vector<const void*> carried;
    for (size_t i = 0; i < 6; ++i) {
      CHECK(g_read[2 * i] == (i == 0 ? kX.raw_data() : carried[i - 1]));
      carried.push_back(g_written[2 * i + 1 - slices]);
    }
    for (size_t i = 2; i < carried.size(); ++i) CHECK(carried[i] == carried[i - 2]);
    CHECK(carried[0] != carried[1]);
  }
}

TEST_CASE("a profile shows the operators of the body inside the Loop") {
  Executor exec(Compile(Around(Doubling(), 1), {.threads = 1}));
  Profiler::Start();
  exec.Run({{"M", Count(3)}, {"cond", kYes}, {"x", kX}});
  Profiler::Stop();
  const Profile profile = Profiler::Read();
  int added = 0;
  uint64_t loop = 0;
  for (const ProfileSpan& span : profile.spans)
    if (DisplayName(span) == "Loop") loop = span.id;
  for (const ProfileSpan& span : profile.spans) {
    if (DisplayName(span) != "Add") continue;
    ++added;
    uint64_t around = span.parent;
    for (int up = 0; up < 4 && around != loop; ++up)
      for (const ProfileSpan& outer : profile.spans)
        if (outer.id == around) {
          around = outer.parent;
          break;
        }
    CHECK(around == loop);
  }
  CHECK(added == 3);
  int iterations = 0;
  for (const ProfileSpan& span : profile.spans)
    if (DisplayName(span) == "iteration" && span.parent == loop) ++iterations;
  CHECK(iterations == 3);
}

TEST_CASE("a body is planned with its graph: kernels, memory, and no plan for each shape") {
  const Graph graph = Around(Doubling(), 1);
  PlanOptions options;
  options.threads = 1;
  options.memory.verify = true;
  Executor exec(Compile(graph, options));
  exec.Run({{"M", Count(3)}, {"cond", kYes}, {"x", kX}});
  const std::string text = ToString(exec.plan());
  for (const char* part : {"body:", "Add (x, x) -> (y)", "Neg (y) -> (s)"})
    CHECK(text.find(part) != std::string::npos);
  const Selection selection = exec.plan().selection();
  CHECK(selection.nodes.size() == 3);  // the Loop and the two nodes of its body
  // An intermediate value of the body lies in the graph's arena.
  Executor inner(Compile(
      Around(Body({OperatorDef("Neg", {"x"}, {"h"}), OperatorDef("Neg", {"h"}, {"y"})})), options));
  CHECK(FloatsOf(inner.Run({{"M", Count(3)}, {"cond", kYes}, {"x", kX}})[0]) == Floats{1, 2});
  CHECK(inner.plan().memory().arena_bytes >= 8);
}

TEST_CASE("a loop without an end is cancelled, and ends at a deadline") {
  for (const bool has_node : {true, false}) {
    CAPTURE(has_node);
    Graph body;
    body.AddInput("i", DType::kInt64, Shape{});
    body.AddInput("go", DType::kBool, Shape{});
    body.AddInput("x", DType::kFloat32, {2});
    if (has_node) body.AddNode(OperatorDef("Neg", {"x"}, {"y"}));
    body.AddOutput("go").AddOutput(has_node ? "y" : "x");
    Graph g;
    g.AddInput("x", DType::kFloat32, {2});
    g.AddNode(OperatorDef("Loop", {"", "", "x"}, {"out"}).Subgraph("body", MakeSubgraph(body)));
    g.AddOutput("out");
    for (const int threads : {1, 2}) {
      Executor exec(Compile(g, {.threads = threads}));
      const Error late = ErrorOf([&] { exec.Run({{"x", kX}}, std::chrono::milliseconds(5)); });
      CHECK(late.code() == ErrorCode::kDeadlineExceeded);
      exec.Bind("x", kX);
      Event event = exec.RunAsync();
      exec.Cancel();
      CHECK(ErrorOf([&] { event.Finish(); }).code() == ErrorCode::kCancelled);
    }
  }
}

TEST_CASE("captured values that other nodes make are not overwritten between iterations") {
  Graph body = Body({OperatorDef("Add", {"x", "a"}, {"t"}), OperatorDef("Neg", {"t"}, {"n"}),
                     OperatorDef("Add", {"n", "b"}, {"y"}), OperatorDef("Mul", {"t", "b"}, {"s"})},
                    "go", {"s"}, {"a", "b"});
  OperatorDef loop("Loop", {"M", "cond", "x", "a", "b"}, {"out", "stack"});
  loop.Arg("captures", std::vector<std::string>{"a", "b"});
  loop.Subgraph("body", MakeSubgraph(std::move(body)));
  Graph g;
  g.AddInput("M", DType::kInt64, Shape{});
  g.AddInput("cond", DType::kBool, Shape{});
  g.AddInput("x", DType::kFloat32, {2});
  g.AddNode(OperatorDef("Neg", {"x"}, {"a"}));
  g.AddNode(OperatorDef("Neg", {"a"}, {"b"}));
  g.AddNode(std::move(loop));
  g.AddNode(OperatorDef("Neg", {"out"}, {"z"}));
  g.AddOutput("z").AddOutput("stack");
  PlanOptions options;
  options.threads = 1;
  options.memory.verify = true;
  Executor exec(Compile(g, options));
  for (int run = 0; run < 3; ++run) {
    const NamedTensors out = exec.Run({{"M", Count(4)}, {"cond", kYes}, {"x", kX}});
    // In each iteration t = v - x, v' = x - t, s = t * x; v begins with x.
    Floats z, s;
    for (const float x : {1.f, 2.f}) {
      float v = x;
      for (int i = 0; i < 4; ++i) v = x - (v - x);
      z.push_back(-v);
    }
    for (int i = 0; i < 4; ++i)
      for (const float x : {1.f, 2.f}) {
        float v = x;
        for (int k = 0; k < i; ++k) v = x - (v - x);
        s.push_back((v - x) * x);
      }
    CHECK(FloatsOf(out[0]) == z);
    CHECK(FloatsOf(out[1]) == s);
  }
}

// A body of nodes on random values that were made before, with the outputs y and s.
Graph RandomBody(detail::CheckRandom& random) {
  std::vector<std::string> values{"x", "a", "b"};
  std::vector<OperatorDef> nodes;
  const auto pick = [&] { return values[random.Next() % values.size()]; };
  for (int i = 0; i < 7; ++i) {
    const char* const types[] = {"Add", "Sub", "Neg", "Identity"};
    const char* const type = types[random.Next() % 4];
    const std::string made = i == 5 ? "y" : i == 6 ? "s" : StrCat("t", i);
    OperatorDef def(type, {pick()}, {made});
    if (type[0] == 'A' || type[0] == 'S') def.Input(pick());
    nodes.push_back(std::move(def));
    values.push_back(made);
  }
  return Body(std::move(nodes), "go", {"s"}, {"a", "b"});
}

// Runs a node outside of a plan, on its inputs in their order. Returns its outputs.
std::vector<Tensor> Alone(const OperatorDef& def, const std::vector<Tensor>& inputs) {
  Workspace ws;
  for (size_t i = 0; i < inputs.size(); ++i)
    *ws.CreateBlob(def.inputs()[i])->GetMutable<Tensor>() = inputs[i];
  CreateOperator(def, &ws)->Run();
  std::vector<Tensor> outputs;
  for (const std::string& name : def.outputs()) outputs.push_back(*ws.GetTensor(name));
  return outputs;
}

TEST_CASE("a planned body and a body outside of a plan give the same bits") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    detail::CheckRandom random(seed);
    OperatorDef loop("Loop", {"M", "cond", "x", "a", "b"}, {"out", "stack"});
    loop.Arg("captures", std::vector<std::string>{"a", "b"});
    loop.Subgraph("body", MakeSubgraph(RandomBody(random)));
    Graph g;
    g.AddInput("M", DType::kInt64, Shape{});
    g.AddInput("cond", DType::kBool, Shape{});
    for (const char* name : {"x", "p", "q"}) g.AddInput(name, DType::kFloat32, {2});
    g.AddNode(OperatorDef("Neg", {"p"}, {"a"}));
    g.AddNode(OperatorDef("Neg", {"q"}, {"b"}));
    g.AddNode(loop);
    g.AddNode(OperatorDef("Neg", {"out"}, {"z"}));
    g.AddNode(OperatorDef("Neg", {"stack"}, {"negative"}));
    g.AddOutput("z").AddOutput("stack").AddOutput("negative");
    const Tensor p = Tensor::From<float>({2}, {3, -4}), q = Tensor::From<float>({2}, {0.5, 8});
    const Tensor a = Tensor::From<float>({2}, {-3, 4}), b = Tensor::From<float>({2}, {-0.5, -8});
    PlanOptions options;
    options.threads = 1;
    options.memory.verify = true;
    Executor exec(Compile(g, options));
    const std::vector<Tensor> alone = Alone(loop, {Count(5), kYes, kX, a, b});
    for (int run = 0; run < 2; ++run) {
      const NamedTensors out =
          exec.Run({{"M", Count(5)}, {"cond", kYes}, {"x", kX}, {"p", p}, {"q", q}});
      Floats negated = FloatsOf(alone[0]), negatives = FloatsOf(alone[1]);
      for (float& value : negated) value = -value;
      for (float& value : negatives) value = -value;
      CHECK(FloatsOf(out[0]) == negated);
      CHECK(FloatsOf(out[1]) == FloatsOf(alone[1]));
      CHECK(FloatsOf(out[2]) == negatives);
    }
  }
}

TEST_CASE("the gradient of carried and captured values runs as many iterations backwards") {
  // y = x * w + i, as long as i is below 2; stacks x * y.
  Graph body;
  body.AddInput("i", DType::kInt64, Shape{});
  body.AddInput("go", DType::kBool, Shape{});
  body.AddInput("x", DType::kFloat64, {2});
  body.AddInput("w", DType::kFloat64, {2});
  body.AddConstant("limit", Count(2));
  body.AddNode(OperatorDef("Less", {"i", "limit"}, {"below"}));
  body.AddNode(OperatorDef("And", {"below", "go"}, {"next"}));
  body.AddNode(OperatorDef("CastLike", {"i", "x"}, {"number"}));
  body.AddNode(OperatorDef("Mul", {"x", "w"}, {"product"}));
  body.AddNode(OperatorDef("Add", {"product", "number"}, {"y"}));
  body.AddNode(OperatorDef("Mul", {"x", "y"}, {"s"}));
  body.AddOutput("next").AddOutput("y").AddOutput("s");
  OperatorDef loop("Loop", {"m", "cond", "x", "w"}, {"final", "stack"});
  loop.Arg("captures", std::vector<std::string>{"w"});
  loop.Subgraph("body", MakeSubgraph(std::move(body)));
  const Tensor x = Tensor::From<double>({2}, {0.5, -0.25});
  const Tensor w = Tensor::From<double>({2}, {0.8, -1.5});
  for (const int64_t count : {0, 1, 2, 9}) {
    CAPTURE(count);
    const auto found = CheckGradient(loop, {Count(count), kYes, x, w}, {.inputs = {2, 3}});
    CHECK_MESSAGE(found.ok(), ToString(found));
  }
}

}  // namespace
}  // namespace loop_test
