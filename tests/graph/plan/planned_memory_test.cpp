// The memory of values whose shape a run decides: planned by a bound where inference gives one,
// else a buffer that grows.
#include "opkit/graph/plan/planned_memory.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "opkit/graph.hpp"
#include "opkit/graph/draw_plan.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/ops/control_flow.hpp"
#include "opkit/ops/non_zero.hpp"
#include "opkit/ops/support/broadcast.hpp"
#include "opkit/ops/transpose.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"
#include "support/test_allocator.hpp"

namespace planned_memory_test {
using namespace opkit;

namespace {

constexpr DType kFloat = DType::kFloat32;
const PassList kNoPasses;

// The rows of a matrix that begin with a number above zero: as Compress, at most all of them.
class KeepRowsOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    const int64_t columns = x.dim(1);
    const auto begins = [&](int64_t row) { return x.data<float>()[row * columns] > 0; };
    int64_t count = 0;
    for (int64_t row = 0; row < x.dim(0); ++row) count += begins(row);
    float* y = Output(0, Shape{count, columns}, kFloat)->mutable_data<float>();
    for (int64_t row = 0; row < x.dim(0); ++row)
      if (begins(row)) y = std::copy_n(x.data<float>() + row * columns, columns, y);
    return true;
  }
};
OPERATOR_SCHEMA(KeepRows).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& c) {
  SymbolicShape shape = c.input_shape(0);
  const auto most = shape[0].most();
  shape[0] = most ? Dim::AtMost(*most) : Dim();
  c.SetOutput(0, c.input_dtype(0), shape);
});
REGISTER_CPU_OPERATOR(KeepRows, KeepRowsOp);

// As Unique: at most as many as there are elements, unless "bounded" is false.
class DistinctOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    found_.assign(Input(0).data<float>(), Input(0).data<float>() + Input(0).numel());
    std::ranges::sort(found_);
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    const auto count = static_cast<int64_t>(found_.size());
    std::ranges::copy(found_, Output(0, Shape{count}, kFloat)->mutable_data<float>());
    return true;
  }

 private:
  std::vector<float> found_;
};
OPERATOR_SCHEMA(Distinct)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("bounded", "whether inference gives a bound")
    .Infer([](InferenceContext& c) {
      const auto most = c.input_shape(0).Most();
      const bool bounded = most && c.Arg("bounded", true);
      c.SetOutput(0, c.input_dtype(0), {bounded ? Dim::AtMost(most->numel()) : Dim()});
    });
REGISTER_CPU_OPERATOR(Distinct, DistinctOp);

// As NonMaxSuppression: {batch, class, box} of the boxes of each class whose score is above zero,
// in their order, at most "most" of them.
class SelectBoxesOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& scores = Input(0);
    const int64_t boxes = scores.dim(2), most = GetSingleArgument<int64_t>("most", 0);
    chosen_.clear();
    for (int64_t i = 0; i < scores.dim(0) * scores.dim(1); ++i)
      for (int64_t box = 0, taken = 0; box < boxes && taken < most; ++box) {
        if (!(scores.data<float>()[i * boxes + box] > 0)) continue;
        chosen_.insert(chosen_.end(), {i / scores.dim(1), i % scores.dim(1), box});
        ++taken;
      }
    const auto count = static_cast<int64_t>(chosen_.size()) / 3;
    std::ranges::copy(chosen_, Output(0, Shape{count, 3}, DType::kInt64)->mutable_data<int64_t>());
    return true;
  }

 private:
  std::vector<int64_t> chosen_;
};
OPERATOR_SCHEMA(SelectBoxes)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("most", "boxes of a class")
    .Infer([](InferenceContext& c) {
      const SymbolicShape& scores = c.input_shape(0);
      Dim count;
      if (scores.is_known())
        count = Dim::AtMost(scores[0].value() * scores[1].value() *
                            std::min(scores[2].value(), c.Arg<int64_t>("most", 0)));
      c.SetOutput(0, DType::kInt64, {count, 3});
    });
REGISTER_CPU_OPERATOR(SelectBoxes, SelectBoxesOp);

// As many ones as "makes" says, where its inference promises at most "claims".
class OnesBelowOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Shape shape{GetSingleArgument<int64_t>("makes", 0)};
    std::fill_n(Output(0, shape, kFloat)->mutable_data<float>(), shape.numel(), 1.f);
    return true;
  }
};
OPERATOR_SCHEMA(OnesBelow)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("makes", "elements")
    .Arg("claims", "the bound")
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, kFloat, {Dim::AtMost(c.Arg<int64_t>("claims"))});
    });
REGISTER_CPU_OPERATOR(OnesBelow, OnesBelowOp);

// The number of elements, of any dtype.
class CountOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    *Output(0, Shape{1}, kFloat)->mutable_data<float>() = static_cast<float>(Input(0).numel());
    return true;
  }
};
OPERATOR_SCHEMA(CountElements).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& c) {
  c.SetOutput(0, kFloat, Shape{1});
});
REGISTER_CPU_OPERATOR(CountElements, CountOp);

// The sum of two matrices, of which one may have one row for all; written by Resize, as Caffe2
// does.
class AddRowsOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor &a = Input(0), &b = Input(1);
    const int64_t rows = std::max(a.dim(0), b.dim(0)), columns = a.dim(1);
    Tensor* y = Output(0);
    y->Resize(Shape{rows, columns}, kFloat);
    for (int64_t i = 0; i < y->numel(); ++i)
      y->mutable_data<float>()[i] = a.data<float>()[i % a.numel()] + b.data<float>()[i % b.numel()];
    return true;
  }
};
OPERATOR_SCHEMA(AddRows)
    .NumInputs(2)
    .NumOutputs(1)
    .Inplace({{0, 0}, {1, 0}})
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, kFloat, BroadcastShape(c.input_shape(0), c.input_shape(1)));
    });
REGISTER_CPU_OPERATOR(AddRows, AddRowsOp);

// Returns its input as its output, and infers nothing.
class ViewOfOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    OutputTensorAlias(0, Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(ViewOf).NumInputs(1).NumOutputs(1);
REGISTER_CPU_OPERATOR(ViewOf, ViewOfOp);

// Known by their inference alone.
OPERATOR_SCHEMA(KeepAgain).NumInputs(1).NumOutputs(1).Inplace({{0, 0}}).Infer(
    [](InferenceContext& c) {
      c.SetOutput(0, kFloat, {Dim::AtMost(c.input_shape(0)[0]), c.input_shape(0)[1]});
    });
REGISTER_CPU_OPERATOR(KeepAgain, KeepRowsOp);
OPERATOR_SCHEMA(Unsqueeze0)
    .NumInputs(1)
    .NumOutputs(1)
    .Inplace({{0, 0}})
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, kFloat, {1, c.input_shape(0)[0], c.input_shape(0)[1]});
    });
REGISTER_CPU_OPERATOR(Unsqueeze0, ViewOfOp);

// Rows that are kept, computed with, and searched again.
Graph Chain(const SymbolicShape& shape) {
  Graph g;
  g.AddInput("x", kFloat, shape);
  g.AddNode(OperatorDef("KeepRows", {"x"}, {"rows"}));
  g.AddNode(OperatorDef("Relu", {"rows"}, {"relu"}));
  g.AddNode(OperatorDef("Scale", {"rows"}, {"twice"}).Arg("scale", 2.f));
  g.AddNode(OperatorDef("Add", {"relu", "twice"}, {"sum"}));
  g.AddNode(OperatorDef("Transpose", {"sum"}, {"turned"}));
  g.AddNode(OperatorDef("Distinct", {"turned"}, {"values"}));
  g.AddNode(OperatorDef("Scale", {"values"}, {"y"}).Arg("scale", 3.f));
  g.AddNode(OperatorDef("NonZero", {"sum"}, {"places"}));
  g.AddNode(OperatorDef("Transpose", {"places"}, {"z"}));
  g.AddOutput("y");
  g.AddOutput("z");
  return g;
}

// A share of the rows begins with a number above zero.
Tensor Rows(int64_t rows, int64_t columns, double kept, std::mt19937_64& random) {
  Tensor x(Shape{rows, columns}, kFloat);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mutable_data<float>()[i] = static_cast<float>(static_cast<int>(uniform(random) * 9) - 4);
  for (int64_t row = 0; row < rows; ++row)
    x.mutable_data<float>()[row * columns] = uniform(random) < kept ? 1.f : -1.f;
  return x;
}

// Node after node, each with memory of its own.
std::vector<Tensor> OneByOne(const Graph& graph, const Tensor& x) {
  std::map<std::string, Tensor> values{{"x", x}};
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const OperatorDef& def = graph.node(node);
    std::vector<Tensor> inputs;
    for (const std::string& name : def.inputs()) inputs.push_back(values.at(name));
    values[def.outputs()[0]] = Invoke(def.type(), inputs, def.args())[0];
  }
  std::vector<Tensor> outputs;
  for (const std::string& name : graph.outputs()) outputs.push_back(values.at(name));
  return outputs;
}

bool IsSame(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.nbytes() == 0 ||
          std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0);
}

}  // namespace

TEST_CASE("values whose shape a run decides are planned by their bound, and later ones too") {
  const Plan plan = Compile(Chain({8, 4}), {.threads = 1, .passes = &kNoPasses});
  CHECK(plan.memory().planned_values == 7);
  CHECK(plan.memory().bounded_values == 7);
  CHECK(ToString(plan.type("rows")) == "float32[<=8, 4]");
  CHECK(ToString(plan.type("turned")) == "float32[4, <=8]");
  CHECK(ToString(plan.type("values")) == "float32[<=32]");
  CHECK(ToString(plan.type("places")) == "int64[2, <=32]");
  CHECK(Contains(ToString(plan), "7 by a bound of what a run decides"));
  // Four matrices of 128 bytes, 32 numbers and 64 indices, not all of them at once.
  CHECK(plan.memory().naive_bytes == 6 * 128 + 512);
  CHECK(plan.memory().inplace_values == 2);  // `twice` in `rows`, `sum` in `relu`
  CHECK(plan.memory().arena_bytes == plan.memory().lower_bound_bytes);
  Graph boxes;
  boxes.AddInput("x", kFloat, {2, 3, 5});
  boxes.AddNode(OperatorDef("SelectBoxes", {"x"}, {"chosen"}).Arg("most", 4));
  boxes.AddNode(OperatorDef("Transpose", {"chosen"}, {"y"}));
  boxes.AddOutput("y");
  const Plan selecting = Compile(boxes, {.threads = 1, .passes = &kNoPasses});
  CHECK(selecting.memory().bounded_values == 1);
  CHECK(selecting.memory().arena_bytes == 2 * 3 * 4 * 3 * 8);
}

TEST_CASE("runs that keep none, some or all values equal a run of node after node") {
  for (const bool open : {false, true})
    for (const int threads : {1, 2, 4}) {
      const Graph g = Chain(open ? SymbolicShape{Sym("N"), Sym("M")} : SymbolicShape{16, 5});
      Executor exec(
          Compile(g, {.threads = threads, .passes = &kNoPasses, .memory = {.verify = true}}));
      std::mt19937_64 random(7);
      for (int run = 0; run < 60; ++run) {
        INFO("open ", open, " threads ", threads, " run ", run);
        const double shares[] = {0, 1, 0.3, 0.7};
        const int64_t rows = open ? 3 + run % 5 : 16;
        const Tensor x = Rows(rows, 5, shares[run % 4], random);
        const NamedTensors found = exec.Run({{"x", x}});
        const std::vector<Tensor> expected = OneByOne(g, x);
        CHECK(IsSame(found[0], expected[0]));
        CHECK(IsSame(found[1], expected[1]));
        CHECK(exec.plan().memory().bounded_values == 7);
      }
    }
}

TEST_CASE("a value of a bound takes an input's place only where both always have one size") {
  const auto in_place = [](const char* type, bool broadcast) {
    Graph g;
    g.AddInput("x", kFloat, {8, 4}).AddInput("w", kFloat, {8, 4});
    g.AddNode(OperatorDef("KeepRows", {"x"}, {"a"}));
    g.AddNode(OperatorDef("KeepRows", {"w"}, {"b"}));
    g.AddNode(broadcast ? OperatorDef(type, {"a", "b"}, {"c"}) : OperatorDef(type, {"a"}, {"c"}));
    g.AddNode(OperatorDef("CountElements", {"c"}, {"y"}));
    g.AddNode(OperatorDef("CountElements", {"b"}, {"z"}));
    g.AddOutput("y").AddOutput("z");
    return Compile(g, {.threads = 1, .passes = &kNoPasses, .memory = {.verify = true}})
        .memory()
        .inplace_values;
  };
  CHECK(in_place("Relu", false) == 1);
  CHECK(in_place("Add", true) == 1);         // of equal shapes
  CHECK(in_place("AddRows", true) == 0);     // of which one may be broadcast
  CHECK(in_place("KeepAgain", false) == 0);  // that may be fewer
  CHECK(in_place("Unsqueeze0", false) == 1);
}

TEST_CASE("a row that is broadcast is not overwritten while it is read") {
  Graph g;
  g.AddInput("x", kFloat, {8, 4}).AddInput("w", kFloat, {8, 4});
  g.AddNode(OperatorDef("KeepRows", {"x"}, {"a"}));
  g.AddNode(OperatorDef("KeepRows", {"w"}, {"b"}));
  g.AddNode(OperatorDef("AddRows", {"a", "b"}, {"c"}));
  g.AddNode(OperatorDef("Relu", {"c"}, {"y"}));
  g.AddOutput("y");
  Executor exec(Compile(g, {.threads = 1, .passes = &kNoPasses}));
  Tensor one = Filled({8, 4}, -1), all = Filled({8, 4}, 1);
  one.mutable_data<float>()[0] = 5;  // one row is kept: 5, -1, -1, -1
  const std::vector<float> y = FloatsOf(exec.Run({{"x", one}, {"w", all}})[0]);
  REQUIRE(y.size() == 32);
  for (size_t i = 0; i < y.size(); ++i) CHECK(y[i] == (i % 4 == 0 ? 6.f : 0.f));
}

TEST_CASE("a run that keeps more than all before takes no memory beyond the arena") {
  Graph g = Chain({32, 4});
  Graph counted;
  counted.AddInput("x", kFloat, {32, 4});
  for (int node = 0; node < g.num_nodes(); ++node) counted.AddNode(g.node(node));
  counted.AddNode(OperatorDef("CountElements", {"y"}, {"number"}));
  counted.AddNode(OperatorDef("CountElements", {"z"}, {"number_of_places"}));
  counted.AddOutput("number");
  counted.AddOutput("number_of_places");
  std::mt19937_64 random(3);
  const Tensor nothing = Rows(32, 4, 0, random), all = Rows(32, 4, 1, random);
  TestAllocator allocator;
  for (const bool bounded : {true, false}) {
    Executor exec(Compile(counted, {.threads = 1,
                                    .passes = &kNoPasses,
                                    .memory = {.most_bound_bytes = bounded ? 1 << 20 : 0}}));
    CHECK((exec.plan().memory().bounded_values > 0) == bounded);
    const auto allocated_by = [&](const Tensor& x) {
      const int before = allocator.allocations();
      exec.Bind("x", x);
      exec.Run();
      return allocator.allocations() - before;
    };
    allocated_by(nothing);
    CHECK((allocated_by(all) == 0) == bounded);
    CHECK(FloatsOf(exec.output("number_of_places"))[0] > 2 * 32);
    // A buffer that has grown once is there for the next runs.
    CHECK(allocated_by(nothing) == 0);
    CHECK(allocated_by(all) == 0);
  }
}

TEST_CASE("a value without a bound, with one that is too large, or past the capacity is no part") {
  Graph g;
  g.AddInput("x", kFloat, {64});
  g.AddNode(OperatorDef("Relu", {"x"}, {"a"}));
  g.AddNode(OperatorDef("Distinct", {"a"}, {"b"}));
  g.AddNode(OperatorDef("Relu", {"b"}, {"y"}));
  g.AddOutput("y");
  const auto memory = [](const Graph& graph, PlanOptions::MemoryOptions options) {
    return Compile(graph, {.threads = 1, .passes = &kNoPasses, .memory = options}).memory();
  };
  CHECK(memory(g, {}).arena_bytes == 512);
  CHECK(memory(g, {.most_bound_bytes = 256}).bounded_values == 1);
  CHECK(memory(g, {.most_bound_bytes = 255}).bounded_values == 0);
  CHECK(memory(g, {.most_bound_bytes = 255}).planned_values == 1);
  CHECK(memory(g, {.capacity_bytes = 512}).bounded_values == 1);
  const MemorySummary small = memory(g, {.capacity_bytes = 511});
  CHECK(small.bounded_values == 0);
  CHECK(small.planned_values == 1);
  CHECK(small.arena_bytes == 256);
  CHECK(small.naive_bytes == 256);
  const auto refused = ErrorOf([&] { memory(g, {.capacity_bytes = 255}); });
  CHECK(refused.code() == ErrorCode::kOutOfMemory);
  Graph open = g;
  open.AddNode(OperatorDef("Distinct", {"b"}, {"c"}).Arg("bounded", false));
  open.AddNode(OperatorDef("Relu", {"c"}, {"z"}));
  open.AddOutput("z");
  CHECK(memory(open, {}).bounded_values == 1);
  CHECK(memory(open, {}).planned_values == 2);
}

TEST_CASE("an operator that makes more than the bound of its inference is an Error") {
  const auto run = [](int64_t makes, int64_t claims) {
    Graph g;
    g.AddInput("x", kFloat, {4});
    g.AddNode(OperatorDef("Relu", {"x"}, {"before"}));
    g.AddNode(OperatorDef("OnesBelow", {"x"}, {"ones"}).Arg("makes", makes).Arg("claims", claims));
    g.AddNode(OperatorDef("CountElements", {"ones"}, {"number"}));
    g.AddNode(OperatorDef("Relu", {"before"}, {"y"}));
    g.AddOutput("number");
    g.AddOutput("y");
    Executor exec(Compile(g, {.threads = 1, .passes = &kNoPasses}));
    CHECK(exec.plan().memory().bounded_values == 1);
    const NamedTensors found = exec.Run({{"x", Tensor::From<float>({4}, {1, 2, 3, 4})}});
    CHECK(FloatsOf(found[1]) == std::vector<float>{1, 2, 3, 4});
    return FloatsOf(found[0])[0];
  };
  CHECK(run(0, 20) == 0);
  CHECK(run(20, 20) == 20);
  const Error lied = ErrorOf([&] { run(21, 20); });
  CHECK(lied.code() == ErrorCode::kOperatorFailed);
  CHECK(Contains(lied.what(), "made 'ones' float32[21]"));
  CHECK(Contains(lied.what(), "its inference says float32[<=20]"));
}

TEST_CASE("an If's output has the larger bound of its branches") {
  const auto branch = [](const char* type) {
    Graph b;
    b.AddInput("x", kFloat, {});
    b.AddNode(OperatorDef(type, {"x"}, {"kept"}));
    b.AddNode(OperatorDef("Relu", {"kept"}, {"out"}));
    b.AddOutput("out");
    return MakeSubgraph(b);
  };
  Graph g;
  g.AddInput("c", DType::kBool, Shape{}).AddInput("x", kFloat, {6, 2});
  g.AddNode(OperatorDef("If", {"c", "x"}, {"rows"})
                .Arg("captures", std::vector<std::string>{"x"})
                .Subgraph("then_branch", branch("KeepRows"))
                .Subgraph("else_branch", branch("Relu")));
  g.AddNode(OperatorDef("Scale", {"rows"}, {"y"}).Arg("scale", 2.f));
  g.AddOutput("y");
  PlanOptions options{.threads = 1, .passes = &kNoPasses, .memory = {.verify = true}};
  options.memory.capacity_bytes = 64;  // too little for the bounds: bodies leave theirs too
  CHECK(Compile(g, options).memory().bounded_values == 0);
  CHECK(Compile(g, options).memory().planned_values == 1);
  options.memory.capacity_bytes = 0;
  Executor exec(Compile(g, options));
  CHECK(ToString(exec.plan().type("rows")) == "float32[<=6, 2]");
  CHECK(exec.plan().memory().bounded_values == 2);  // `rows`, and what `then_branch` keeps
  CHECK(exec.plan().memory().planned_values == 3);
  std::mt19937_64 random(5);
  for (const bool condition : {true, false, true, false})
    for (const double share : {0., 1., 0.5}) {
      const Tensor x = Rows(6, 2, share, random);
      const Tensor rows = condition ? Invoke("KeepRows", {x})[0] : x;
      const Tensor relu = Invoke("Relu", {rows})[0];
      const Tensor expected = Invoke("Scale", {relu}, {{"scale", 2.f}})[0];
      CHECK(IsSame(exec.Run({{"c", Tensor::Scalar(condition)}, {"x", x}})[0], expected));
    }
}

TEST_CASE("a view of planned memory without a bound is copied to a buffer that stays") {
  Graph g;
  g.AddInput("x", kFloat, {16, 1});
  g.AddNode(OperatorDef("Scale", {"x"}, {"a"}).Arg("scale", 2.f));
  g.AddNode(OperatorDef("ViewOf", {"a"}, {"b"}));
  g.AddNode(OperatorDef("Scale", {"x"}, {"c"}).Arg("scale", 5.f));  // where `a` was
  g.AddNode(OperatorDef("AddRows", {"b", "c"}, {"y"}));
  g.AddOutput("y");
  TestAllocator allocator;
  for (const bool twice : {false, true}) {
    Graph graph = g;
    if (twice) {
      graph.AddNode(OperatorDef("ViewOf", {"b"}, {"d"}));
      graph.AddNode(OperatorDef("Scale", {"d"}, {"z"}).Arg("scale", 3.f));
      graph.AddOutput("z");
    }
    Executor exec(Compile(graph, {.threads = 1, .passes = &kNoPasses}));
    CHECK(exec.plan().memory().planned_values == 2);
    CHECK(exec.plan().memory().arena_bytes == 64);
    for (float run = 1; run < 5; ++run) {
      const int before = allocator.allocations();
      exec.Bind("x", Filled({16, 1}, run));
      exec.Run();
      CHECK(FloatsOf(exec.output("y")) == std::vector<float>(16, 7 * run));
      if (twice) CHECK(FloatsOf(exec.output("z")) == std::vector<float>(16, 6 * run));
      if (run > 1) CHECK(allocator.allocations() == before + 1);  // the new `x`
    }
  }
}

TEST_CASE("the drawing marks the boxes that are bounds") {
  const Plan plan = Compile(Chain({8, 4}), {.threads = 1, .passes = &kNoPasses});
  CHECK(Contains(ToSvg(plan), "places (at most)"));
}

TEST_CASE("an output of a shape that a run decides stays the caller's") {
  Graph g;
  g.AddInput("x", kFloat, {8, 2});
  g.AddNode(OperatorDef("KeepRows", {"x"}, {"rows"}));
  g.AddNode(OperatorDef("Relu", {"rows"}, {"y"}));
  g.AddOutput("y");
  Executor exec(Compile(g, {.threads = 1, .passes = &kNoPasses}));
  std::mt19937_64 random(11);
  const Tensor x = Rows(8, 2, 0.5, random);
  const Tensor first = exec.Run({{"x", x}})[0];
  const std::vector<float> values = FloatsOf(first);
  exec.Run({{"x", Rows(8, 2, 1, random)}});
  CHECK(FloatsOf(first) == values);
}

}  // namespace planned_memory_test
