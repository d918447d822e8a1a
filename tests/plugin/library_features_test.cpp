// Everything that a library's author can say, through a real library: libraries/features.cc.
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>

#include "library_fixture.hpp"
#include "opkit/graph.hpp"
#include "opkit/op/check.hpp"
#include "opkit/plugin.hpp"
#include "opkit/profile.hpp"
#include "support/allocations.hpp"
#include "support/bench.hpp"
#include "support/temporary_folder.hpp"
#include "support/test_allocator.hpp"

namespace library_features_test {
namespace {

using namespace opkit;
using namespace library_fixture;
constexpr DType kFloat = DType::kFloat32;

// The program's operators that the library's operators call.
REGISTER_OP(LibHostAdd)
    .setForward([](const AttrMap& attrs, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource&) {
      for (int64_t i = 0; i < in[0].size(); ++i)
        out[0].data<float>()[i] =
            attrs.Get("scale", 1.f) * (in[0].data<float>()[i] + in[1].data<float>()[i]);
    })
    .setParseAttrs([](const AttrMap&, int* num_in, int* num_out) {
      *num_in = 2;
      *num_out = 1;
    })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; });

// {counters alive, counters made, host's major, minor}
Floats Report() { return Call("LibReport", std::vector<Tensor>{}).ToVector<float>(); }

}  // namespace

TEST_CASE("every accepted signature works across the ABI") {
  Scoped features("features");
  for (const char* op :
       {"LibByValue", "LibByReference", "LibByPointer", "LibVoid", "LibFast", "LibLambda"}) {
    CAPTURE(op);
    CHECK(Call(op, {1, 2, 4}, {{"scale", 2.5f}}) == Floats{2.5f, 5, 10});
  }
  CHECK(OpRegistry::Global().GetSchema("LibByValue").doc() == "Multiplies by scale.");
}

TEST_CASE("inference of a library fills in unknown shapes, in both directions") {
  Scoped features("features");
  const OperatorDef def("LibByValue", {"x"}, {"y"});
  const OpSchema& schema = OpRegistry::Global().GetSchema("LibByValue");
  const auto infer = [&](const TensorInfo& x, const TensorInfo& y) {
    InferenceContext context(def, {x}, {y});
    schema.Infer(context);
    return StrCat(context.input(0), " ", context.output(0));
  };
  const TensorInfo known(kFloat, Shape{4, 5});
  CHECK(infer(known, {}) == "float32[4, 5] float32[4, 5]");
  CHECK(infer({}, known) == "float32[4, 5] float32[4, 5]");
  CHECK(infer(TensorInfo(DType::kInt8, {Dim(), 5}), {}) == "int8[?, 5] int8[?, 5]");
  CHECK(infer({}, {}) == "?[rank unknown] ?[rank unknown]");
  CHECK(ErrorOf([&] {
          infer(known, TensorInfo(kFloat, Shape{4, 6}));
        }).code() == ErrorCode::kInvalidArgument);
  CHECK(Call("LibFast", {Tensor::Scalar(4.f)}, {{"scale", 2.f}}).shape() == Shape{});
}

TEST_CASE("parseAttrs of a library decides the number of inputs and outputs") {
  Scoped features("features");
  Bench bench;
  bench.Add("x", {1});
  CHECK(Contains(ErrorOf([&] {
                   bench.Create(OperatorDef("LibFast", {"x", "x"}, {"y"}));
                 }).message(),
                 "LibFast has 2 inputs, expected 1 with these attributes"));
}

TEST_CASE("requests: write, in place, add and none reach the functions of a library") {
  Scoped features("features");
  Bench bench;
  bench.Add("x", {5, 5});
  const auto request = [](OpReq req) { return static_cast<float>(req); };
  bench.Create(OperatorDef("LibRequests", {"x"}, {"y"})).Run();
  CHECK(bench.Values("y") == Floats(2, request(OpReq::kWrite)));
  bench.Create(OperatorDef("LibRequests", {"x"}, {"x"})).Run();
  CHECK(bench.Values("x") == Floats(2, request(OpReq::kInplace)));
  auto& none = bench.Create(OperatorDef("LibRequests", {"x"}, {"y", "z"}));
  SetOutputReq(none, 1, OpReq::kNone);
  none.Run();
  CHECK(bench.Values("y")[0] == 100);  // output 1 has no memory
  bench.Create(OperatorDef("LibRequests", {"x"}, {"y", ""})).Run();
  CHECK(bench.Values("y")[0] == 100);

  // A library that does not accept additions has its results added up …
  bench.Add("y", {10, 20});
  auto& plain = bench.Create(OperatorDef("LibRequests", {"x"}, {"y"}));
  SetOutputReq(plain, 0, OpReq::kAdd);
  plain.Run();
  plain.Run();
  CHECK(bench.Values("y") == Floats{12, 22});
  // … and one that does is asked to add.
  auto& adding = bench.Create(OperatorDef("LibRequestsAdding", {"x"}, {"y"}));
  adding.Run();
  CHECK(bench.Values("y") == Floats{0, 0});
  SetOutputReq(adding, 0, OpReq::kAdd);
  adding.Run();
  adding.Run();
  CHECK(bench.Values("y") == Floats{2000, 2000});
  bench.op.reset();
}

TEST_CASE("a run of a library's fast form allocates nothing") {
  Scoped features("features");
  Bench bench;
  bench.Add("x", {1, 2});
  auto& op = bench.Create(OperatorDef("LibFast", {"x"}, {"y"}, {{"scale", 3.f}}));
  op.Run();
  const int64_t before = Allocations();
  for (int i = 0; i < 10; ++i) op.Run();
  CHECK(Allocations() == before);
  bench.Add("x", {5, 6});  // bound anew
  op.Run();
  const int64_t after = Allocations();
  op.Run();
  CHECK(Allocations() == after);
  CHECK(bench.Values("y") == Floats{15, 18});
  // The library's own calls of operator new are counted, too.
  auto& slow = bench.Create(OperatorDef("LibByValue", {"x"}, {"y"}, {{"scale", 3.f}}));
  slow.Run();
  const int64_t slowly = Allocations();
  slow.Run();
  if (Allocations() > 0) CHECK(Allocations() > slowly);  // 0 where they are not counted
  bench.op.reset();
}

TEST_CASE("in place: only where the library allows it") {
  Scoped features("features");
  Bench bench;
  bench.Add("x", {1, 2});
  bench.Create(OperatorDef("LibFast", {"x"}, {"x"}, {{"scale", 3.f}})).Run();
  CHECK(bench.Values("x") == Floats{3, 6});
  CHECK(Contains(ErrorOf([&] { bench.Create(OperatorDef("LibVoid", {"x"}, {"x"})); }).message(),
                 "LibVoid may not run in place"));
  bench.op.reset();
}

TEST_CASE("inputs that a library writes to are known to the schema and get no gradient") {
  Scoped features("features");
  Bench bench;
  bench.Add("x", {4});
  bench.Add("mean", {2});
  bench.Create(OperatorDef("LibMovingMean", {"x", "mean"}, {"y"})).Run();
  CHECK(bench.Values("mean") == Floats{3});
  CHECK(bench.Values("y") == Floats{3});
  bench.op.reset();
  const auto mutated = [](const char* op, int inputs, const Arguments& args = {}) {
    OperatorDef def(op, {}, {"y"}, args);
    for (int i = 0; i < inputs; ++i) def.Input(StrCat("x", i));
    return OpRegistry::Global().GetSchema(op).MutatedInputs(def);
  };
  CHECK(mutated("LibMovingMean", 2) == std::vector<int>{1});
  CHECK(mutated("LibMutatesByAttr", 3, {{"which", 2}}) == std::vector<int>{2});
  CHECK(mutated("LibMutatesByAttr", 100, {{"which", 99}}) == std::vector<int>{99});
  CHECK(mutated("LibFast", 1).empty());
  CHECK(Contains(ErrorOf([&] {
                   bench.Create(OperatorDef("LibMutatesByAttr", {"x"}, {"y"}, {{"which", 2}}));
                 }).message(),
                 "mutateInputs names input 2, but the node has 1"));
}

TEST_CASE("strided inputs arrive dense, or as they are where a library uses strides") {
  Scoped features("features");
  const Tensor matrix = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor turned = matrix.Permute(std::vector<int>{1, 0});
  CHECK(Call("LibDense", {turned}).ToVector<float>() == Floats{1, 4, 2, 5, 3, 6});
  CHECK(Call("LibStrided", {turned}).ToVector<float>() == Floats{101, 104, 102, 105, 103, 106});
}

TEST_CASE("any dtype crosses") {
  Scoped features("features");
  for (int dtype = 1; dtype < kNumPlainDTypes; ++dtype) {
    CAPTURE(dtype);
    Tensor x({3}, static_cast<DType>(dtype));
    auto* bytes = static_cast<unsigned char*>(x.raw_mutable_data());
    for (int64_t i = 0; i < x.nbytes(); ++i)
      bytes[i] = dtype == 1 ? 1 : static_cast<unsigned char>(i + 1);
    const Tensor y = Call("LibCopyBytes", {x});
    CHECK(y.dtype() == x.dtype());
    CHECK(std::memcmp(y.raw_data(), x.raw_data(), static_cast<size_t>(x.nbytes())) == 0);
  }
}

TEST_CASE("scratch has the library's size for the shapes of the run") {
  Scoped features("features");
  Bench bench;
  bench.Add("x", {1, 2, 3});
  auto& op = bench.Create(OperatorDef("LibScratch", {"x"}, {"y"}, {{"unit", 16}, {"bytes", true}}));
  op.Run();
  CHECK(bench.Values("y") == Floats{48, 2, 1});
  bench.Add("x", {1, 2, 3, 4, 5});
  op.Run();
  CHECK(bench.Values("y") == Floats{80, 4, 3, 2, 1});
  bench.op.reset();
}

TEST_CASE("a graph's memory plan holds a library's scratch") {
  Scoped features("features");
  const auto arena = [](int64_t unit) {
    Graph g;
    g.AddInput("x", kFloat, {1000});
    g.AddNode(OperatorDef("LibScratch", {"x"}, {"a"}, {{"unit", unit}}));
    g.AddNode(OperatorDef("LibScratch", {"a"}, {"y"}, {{"unit", unit}}));
    g.AddOutput("y");
    const Plan plan = Compile(g);
    CHECK(plan.choice(0).config.scratch_bytes == 1000 * unit);
    Executor exec(plan);
    Floats x(1000);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    CHECK(exec.Run({{"x", Vector(x)}}).Get("y").ToVector<float>() == x);
    return plan.memory().arena_bytes;
  };
  const int64_t small = arena(4);
  CHECK(arena(8) - small > 3900);  // sizes are rounded up
}

TEST_CASE("a state is made for each operator, and destroyed with it") {
  Scoped features("features");
  const Floats before = Report();
  {
    Bench a, b;
    a.Add("x", {0});
    b.Add("x", {0});
    auto& first = a.Create(OperatorDef("LibCounter", {"x"}, {"y"}));
    auto& second = b.Create(OperatorDef("LibCounter", {"x"}, {"y"}));
    CHECK(Report()[0] == before[0] + 2);
    first.Run();
    first.Run();
    second.Run();
    CHECK(a.Values("y") == Floats{2});
    CHECK(b.Values("y") == Floats{1});
    a.op.reset();
    CHECK(Report()[0] == before[0] + 1);
  }
  CHECK(Report()[0] == before[0]);
  CHECK(Report()[1] == before[1] + 2);

  Bench bench;
  bench.Add("x", {0});
  const auto create = [&](const char* attribute) {
    return ErrorOf([&] {
             bench.Create(OperatorDef("LibCounter", {"x"}, {"y"}, {{attribute, true}}));
           })
        .message();
  };
  CHECK(Contains(create("fail"),
                 "createOpState of operator LibCounter of library "
                 "libfeatures.so failed: after making it"));
  CHECK(Contains(create("nothing"),
                 "createOpState of operator LibCounter of library "
                 "libfeatures.so failed: createOpState succeeded but made no "
                 "StatefulOp"));
  CHECK(Report()[0] == before[0]);  // what was made before it failed is freed
}

TEST_CASE("states live as long as the executors of a plan") {
  Scoped features("features");
  const float alive = Report()[0];
  Graph g;
  g.AddInput("x", kFloat, {1});
  g.AddNode(OperatorDef("LibCounter", {"x"}, {"a"}));
  g.AddNode(OperatorDef("LibCounter", {"a"}, {"y"}));
  g.AddOutput("y");
  {
    const Plan plan = Compile(g);
    Executor exec(plan);
    CHECK(exec.Run({{"x", Vector({0})}}).Get("y").ToVector<float>() == Floats{1});
    CHECK(exec.Run({{"x", Vector({0})}}).Get("y").ToVector<float>() == Floats{2});
    CHECK(Report()[0] >= alive + 2);
    Executor other(plan);
    CHECK(other.Run({{"x", Vector({0})}}).Get("y").ToVector<float>() == Floats{1});
    CHECK(Report()[0] >= alive + 4);
  }
  CHECK(Report()[0] == alive);
}

TEST_CASE("backward of a stateful operator runs on the state of its forward operator") {
  Scoped features("features");
  Bench bench;
  bench.Add("x", {0});
  bench.Add("dy", {5});
  const OperatorDef def("LibCounter", {"x"}, {"y"});
  const GradientOpsMeta gradient = GetGradientForOp(def, {"dy"});
  REQUIRE(gradient.ops.size() == 1);
  const float alive = Report()[0];
  auto& forward = bench.Create(def);
  auto backward = CreateOperator(gradient.ops[0], &bench.ws);
  CHECK(Report()[0] == alive + 1);
  forward.Run();
  forward.Run();
  forward.Run();
  backward->Run();
  CHECK(bench.Values(gradient.g_input[0].dense) == Floats{15});
  bench.op.reset();
  CHECK(Report()[0] == alive);
  CHECK(Contains(ErrorOf([&] { backward->Run(); }).message(),
                 "the operator LibCounter that made the state is destroyed"));
}

TEST_CASE("a state is made for the shapes and types of the inputs of a run") {
  Scoped features("features");
  const float alive = Report()[0];
  {
    Bench bench;
    bench.Add("x", {0});
    bench.Add("dy", {5});
    const OperatorDef def("LibCounterOfInputs", {"x"}, {"y"});
    const GradientOpsMeta gradient = GetGradientForOp(def, {"dy"});
    auto& forward = bench.Create(def);
    auto backward = CreateOperator(gradient.ops[0], &bench.ws);
    CHECK(Report()[0] == alive);
    for (const float y : {11.f, 12.f}) {
      forward.Run();
      CHECK(bench.Values("y")[0] == y);
      CHECK(Report()[0] == alive + 1);
    }
    backward->Run();
    CHECK(bench.Values(gradient.g_input[0].dense) == Floats{60});
    bench.Add("x", {0, 0});
    forward.Run();
    CHECK(bench.Values("y")[0] == 21);
    CHECK(Report()[0] == alive + 1);
    bench.Add("x", {0, 0, 0});
    CHECK(Contains(ErrorOf([&] { forward.Run(); }).message(),
                   "forward of operator LibCounterOfInputs of library libfeatures.so failed: no "
                   "LibCounterOfInputs of 3 (createOpState returned FAIL)"));
    bench.Add("x", {0, 0});
    forward.Run();
    CHECK(bench.Values("y")[0] == 22);
    auto& none = bench.Create(OperatorDef(def.type(), {"x"}, {"z"}, {{"from", "11"}}));
    CHECK(Contains(ErrorOf([&] { none.Run(); }).message(),
                   "createOpState succeeded but made no StatefulOp"));
  }
  CHECK(Report()[0] == alive);
}

TEST_CASE("a state sees the device it is made for") {
  Scoped features("features");
  CHECK(Call("LibTellsDevice", Floats{0}) == Floats{static_cast<float>(DeviceType::kCPU)});
}

TEST_CASE("initialize gets the host's version before anything else") {
  Scoped features("features");
  CHECK(Report()[2] == OPKIT_ABI_MAJOR);
  CHECK(Report()[3] == OPKIT_ABI_MINOR);
}

TEST_CASE("backward of a library is the registered gradient, in AddGradients too") {
  Scoped features("features");
  CHECK(HasGradient("LibSquare"));
  CHECK_FALSE(HasGradient("LibFast"));
  Graph g;
  g.AddInput("x", kFloat, {3});
  g.AddNode(OperatorDef("LibSquare", {"x"}, {"y"}));
  g.AddNode(OperatorDef("LibSquare", {"y"}, {"z"}));
  g.AddInput("seed", kFloat, {3});
  GradientOptions options;
  options.seed = "seed";
  const GradientMap gradients = AddGradients(g, "z", {"x"}, options);
  const std::string dx = gradients.at("x").dense;
  g.AddOutput("z");
  g.AddOutput(dx);
  Executor exec(Compile(g));
  const auto out = exec.Run({{"x", Vector({1, 2, -1})}, {"seed", Vector({1, 1, 10})}});
  CHECK(out.Get("z").ToVector<float>() == Floats{1, 16, 1});
  CHECK(out.Get(dx).ToVector<float>() == Floats{4, 32, -40});  // 4 x^3
}

TEST_CASE("CheckOperator tests a library's operator with its gradient") {
  Scoped features("features");
  for (const char* op : {"LibSquare", "LibScratch", "LibCopyBytes"}) {
    const CheckReport report = CheckOperator(op);
    CHECK_MESSAGE(report.ok(), ToString(report));
  }
}

TEST_CASE("writes of a library past its output are caught by CheckOperator's canaries") {
  Scoped features("features");
  const CheckReport report = CheckOperator("LibWritesPast");
  CHECK_FALSE(report.ok());
  CHECK(Contains(ToString(report), "it writes past the end of output 0"));
}

TEST_CASE("a subgraph operator reads the graph that its node carries") {
  Scoped features("features");
  Graph body;
  body.AddInput("a", kFloat, {Sym("N")});
  body.AddConstant("w", Vector({100, 200}));
  // Added in an order that is not the one they run in.
  body.AddNode(OperatorDef("LibHostAdd", {"t", "w"}, {"r"}));
  body.AddNode(OperatorDef("LibHostAdd", {"a", "a"}, {"t"}, {{"scale", 10.f}}));
  body.AddOutput("r");
  OperatorDef def("LibRunsGraph", {"x"}, {"y"});
  Bench bench;
  bench.Add("x", {1, 2});
  CHECK(Contains(ErrorOf([&] { bench.Create(def); }).message(),
                 "LibRunsGraph runs a graph that its node carries, and this node carries none"));
  OperatorDef misnamed = def;
  misnamed.Subgraph("other", MakeSubgraph(Graph(body)));
  CHECK(Contains(ErrorOf([&] { bench.Create(misnamed); }).message(),
                 "the node carries no graph named body"));
  def.Subgraph("body", MakeSubgraph(std::move(body)));
  auto& op = bench.Create(def);
  op.Run();
  op.Run();
  CHECK(bench.Values("y") == Floats{120, 240});
  bench.op.reset();
}

TEST_CASE("a library's operator draws the same random numbers as the program's own") {
  const auto draw = [] {
    SetSeed(42);
    Bench bench;
    bench.Add("x", Floats(4));
    auto& op = bench.Create(OperatorDef("LibRandom", {"x"}, {"y"}));
    op.Run();
    Floats both = bench.Values("y");
    op.Run();
    const Floats second = bench.Values("y");
    CHECK(both != second);
    both.insert(both.end(), second.begin(), second.end());
    return both;
  };
  FunctionOpBuilder("LibRandom", __FILE__, __LINE__)
      .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                     OpResource& res) {
        for (int64_t i = 0; i < in[0].size(); ++i)
          out[0].data<float>()[i] = static_cast<float>(res.random()() >> 40);
        out[0].data<float>()[0] = static_cast<float>(res.random(7)() >> 40);
      })
      .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out = in; });
  const Floats own = draw();
  OpRegistry::Global().Remove("LibRandom");
  Scoped features("features");
  CHECK(OpRegistry::Global().GetSchema("LibRandom").origin() == features->name());
  CHECK(draw() == own);
  CHECK(draw() == own);
}

TEST_CASE("a library's log lines go to the program's hook") {
  static std::string seen;
  seen.clear();
  Scoped features("features");
  const LogHook before = SetLogHook([](LogLevel level, std::string_view op, std::string_view text) {
    seen += StrCat(ToString(level), " ", op, ": ", text, "; ");
  });
  Call("LibLogs", Floats{1, 2, 3});
  SetLogHook(before);
  CHECK(seen == "info LibLogs: x has 3 elements; error LibLogs: bad; ");
}

TEST_CASE("scopes of a library are parts of its operator, in a thread of its own too") {
  Scoped features("features");
  const auto ids = Call("LibScopes", {Tensor::From<int64_t>({12}, std::vector<int64_t>(12))})
                       .ToVector<int64_t>();
  const int64_t own = ids[0];
  CHECK(own != 0);
  CHECK(ids[1] == 0);
  CHECK(ids[2] == static_cast<int64_t>(Invocation::Kind::kCustomOperator));
  CHECK(ids[3] != own);
  CHECK(ids[4] == own);
  CHECK(ids[5] == static_cast<int64_t>(Invocation::Kind::kUserCode));
  for (size_t i = 0; i < 3; ++i) {
    CHECK(ids[6 + i] == ids[i]);  // adopted by another thread
    CHECK(ids[9 + i] == ids[i]);  // and as before when the scope has ended
  }
}

TEST_CASE("every alloc of a library is memory of its own, and freed when the operator ends") {
  Scoped features("features");
  Bench bench;
  bench.Add("x", {0});
  auto& op = bench.Create(OperatorDef("LibAllocs", {"x"}, {"y"}));
  op.Run();
  CHECK(bench.Values("y") == Floats{1});
  const int64_t live = LiveBytes();
  op.Run();
  CHECK(LiveBytes() == live);
  bench.Create(OperatorDef("LibAllocs", {"x"}, {"y"}, {{"negative", true}}));
  const Error error = ErrorOf([&] { bench.op->Run(); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.what(), "alloc(-1) in operator LibAllocs"));
  CHECK(Contains(error.what(), "of library libfeatures.so"));
  CHECK(LiveBytes() == live);
  bench.op.reset();
}

TEST_CASE("a library calls the program's operators by invoke") {
  Scoped features("features");
  CHECK(Call("LibInvokes", {1, 2}) == Floats{30, 60});
  const Error error = ErrorOf([&] { Call("LibInvokes", Floats{1}, {{"add", "LibHostAd"}}); });
  CHECK(Contains(error.what(), "did you mean 'LibHostAdd'?"));
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.what(), "in forward of operator LibInvokes of library libfeatures.so"));
}

TEST_CASE("a library calls the program's operators beside its own code") {
  Scoped features("features");
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads, "lib-pool");
    const PoolScope scope(pool);
    CHECK(Call("LibInvokesBeside", {1, 2}) == Floats{2, 4});
    CHECK(Contains(ErrorOf([&] {
                     Call("LibInvokesBeside", Floats{1}, {{"fails", true}});
                   }).what(),
                   "LibHostAdd"));
  }
}

TEST_CASE("on a CPU stream a library's work keeps its place") {
  Scoped features("features");
  Bench bench;
  bench.Add("x", {1, 2});
  auto& op = bench.Create(OperatorDef("LibInvokes", {"x"}, {"y"}).Device(DeviceType::kCPUStream));
  Event gate;
  gate.SetScheduled();
  op.WaitEvent(gate, 0);
  op.RunAsync(0);
  bench.ws.GetTensor("x")->mutable_data<float>()[1] = 8;  // nothing has run yet
  gate.SetFinished();
  op.event().Finish();
  CHECK(bench.Values("y") == Floats{3, 17});
  bench.Add("x", {-1, 2});
  op.RunAsync(0);
  const Error error = ErrorOf([&] { op.event().Finish(); });
  CHECK(error.message() == "work that operator LibInvokes launched threw: negative");
  op.SyncDeviceBarrierForObservers();
  bench.op.reset();
}

TEST_CASE("parallel_for of a library runs on the program's threads") {
  Scoped features("features");
  ThreadPool pool(4, "lib-pool");
  const PoolScope scope(pool);
  const auto ids = Call("LibThreads", {Tensor::From<int64_t>({400}, std::vector<int64_t>(400))})
                       .ToVector<int64_t>();
  for (int64_t id : ids) {
    if (id == ::getpid()) continue;  // this thread
    std::ifstream file(StrCat("/proc/self/task/", id, "/comm"));
    std::string name;
    std::getline(file, name);
    CHECK(Contains(name, "lib-pool"));
  }
  const Error error = ErrorOf([&] {
    Call("LibThreads", {Tensor::From<int64_t>({9}, std::vector<int64_t>(9))}, {{"bad", 7}});
  });
  CHECK(Contains(error.what(), "LibThreads of library libfeatures.so failed: index 7"));
}

// --------------------------------------------------------------------------------- asynchronous

namespace {

OperatorDef Async() { return OperatorDef("LibAsync", {"x"}, {"y"}); }
// How many operators were pending.
float EndPending(const char* how = "complete") {
  return Call("LibEnd", Floats{0}, {{"how", how}})[0];
}

}  // namespace

TEST_CASE("an asynchronous operator of a library ends when it is completed") {
  Scoped features("features");
  Bench bench;
  bench.Add("x", {4});
  auto& op = bench.Create(Async());
  CHECK(op.HasAsyncPart());
  op.RunAsync(0);
  CHECK(op.event().Query() == EventStatus::kScheduled);
  CHECK(EndPending() == 1);
  op.event().Finish();
  CHECK(bench.Values("y") == Floats{8});

  op.RunAsync(0);
  EndPending("fail");
  const Error error = ErrorOf([&] { op.event().Finish(); });
  CHECK(Contains(error.what(), "operator LibAsync failed after it had returned: it was told to"));
  op.RunAsync(0);
  EndPending("drop");
  CHECK(Contains(ErrorOf([&] { op.event().Finish(); }).what(),
                 "its completion handle was dropped without Complete() or Fail()"));
  op.RunAsync(0);
  EndPending();
  op.event().Finish();  // an operator that has failed runs again
  bench.op.reset();

  auto& thread = bench.Create(Async().Arg("thread", true));
  thread.Run();
  CHECK(bench.Values("y") == Floats{8});
  CHECK(EndPending() == 1);
  bench.Create(Async().Arg("at_once", true)).Run();
  CHECK(bench.Values("y") == Floats{-1});
  bench.op.reset();
  CHECK(features->Unload().unmapped);
}

TEST_CASE("completion handles are for asynchronous operators, and one a run") {
  Scoped features("features");
  Bench bench;
  bench.Add("x", {4});
  bench.Create(Async().Arg("twice", true));
  CHECK(Contains(ErrorOf([&] { bench.op->RunAsync(0); }).what(),
                 "defer() in operator LibAsync is called twice in a run"));
  bench.Create(Async().Arg("then_fail", true));
  CHECK(Contains(ErrorOf([&] { bench.op->RunAsync(0); }).what(),
                 "forward of operator LibAsync of library libfeatures.so failed: after it took its "
                 "handle"));
  bench.op.reset();
}

TEST_CASE("an operator that is destroyed while pending keeps its run's memory") {
  Scoped features("features");
  {
    Bench bench;
    bench.Add("x", {4});
    bench.Create(Async()).RunAsync(0);
    const auto refusal = [&] { return ErrorOf([&] { features->Unload(); }).message(); };
    CHECK(Contains(refusal(),
                   "1 run of its operators is in flight; wait for the event, event().Finish(), or "
                   "end it by the completion handle that the operator took; then 1 operator of it "
                   "is alive, alone or in a plan; destroy it first"));
    bench.op.reset();
    CHECK(Contains(refusal(), "cannot be unloaded: 1 run of its operators is in flight"));
    CHECK_FALSE(Contains(refusal(), "alive"));
  }
  CHECK(EndPending() == 1);  // writes to the output's memory
  CHECK(features->Unload().unmapped);
}

TEST_CASE("asynchronous operators of a library in a graph: completed, cancelled, too late") {
  Scoped features("features");
  Graph g;
  g.AddInput("x", kFloat, {1});
  g.AddNode(OperatorDef("LibAsync", {"x"}, {"a"}));
  g.AddNode(OperatorDef("LibFast", {"a"}, {"b"}, {{"scale", 10.f}}));
  g.AddNode(OperatorDef("LibAsync", {"b"}, {"y"}));
  g.AddOutput("y");
  {
    PlanOptions options;
    options.threads = 2;
    Executor exec(Compile(g, options));
    exec.Bind("x", Vector({1}));
    Event event = exec.RunAsync();
    float ended = 0;
    while (ended < 2) ended += EndPending();
    event.Finish();
    CHECK(exec.output("y").ToVector<float>() == Floats{40});

    event = exec.RunAsync();
    while (EndPending("fail") == 0) {
    }
    CHECK(Contains(ErrorOf([&] { event.Finish(); }).what(), "it was told to"));

    event = exec.RunAsync();
    exec.Cancel();
    CHECK(ErrorOf([&] { event.Finish(); }).code() == ErrorCode::kCancelled);
    EndPending();

    CHECK(ErrorOf([&] { exec.Run(std::chrono::milliseconds(1)); }).code() ==
          ErrorCode::kDeadlineExceeded);
    EndPending();
    event = exec.RunAsync();  // and runs again, in memory of its own
    ended = 0;
    while (ended < 2) ended += EndPending();
    event.Finish();
    CHECK(exec.output("y").ToVector<float>() == Floats{40});
  }
  CHECK(features->Unload().unmapped);
}

// --------------------------------------------------------------------------------------- errors

namespace {

// The Error of LibFails in a phase.
Error Failure(const char* phase, const char* how) {
  return ErrorOf([&] {
    Bench bench;
    bench.Add("x", {1});
    bench.Add("dy", {1});
    bench.ws.CreateTensor("y");
    OperatorDef def("LibFails", {"x"}, {"y"}, {{"phase", phase}, {"how", how}});
    auto op = CreateOperator(def, &bench.ws);
    op->Run();
    const GradientOpsMeta gradient = GetGradientForOp(def, {"dy"});
    CreateOperator(gradient.ops[0], &bench.ws)->Run();
  });
}

}  // namespace

TEST_CASE("FAIL and exceptions in every phase become an Error with operator, library and text") {
  Scoped features("features");
  for (const char* phase : {"parseAttrs", "inferType", "inferShape", "mutateInputs",
                            "scratch's function", "createOpState", "forward", "backward"}) {
    CAPTURE(phase);
    const auto what = [&](const char* how) { return std::string(Failure(phase, how).what()); };
    const std::string who = StrCat(phase, " of operator LibFails of library libfeatures.so");
    const auto says = [&](const char* how, const char* text) {
      const std::string found = what(how);
      CAPTURE(found);
      CHECK(Contains(found, who));
      CHECK(Contains(found, text));
    };
    const bool scratch = std::string_view(phase) == "scratch's function";
    says("message", scratch ? "" : "x is 3, not 2.5");
    says("status", "as a status");
    says("error", "an Error of the library");
    says("std", "a standard exception");
    says("other", "it threw something that is not a std::exception");
    CHECK(Failure(phase, "error").code() == ErrorCode::kOutOfRange);
    CHECK(Failure(phase, "std").code() == ErrorCode::kOperatorFailed);
    // A message is reported once, and the message of a call that succeeds is dropped.
    CHECK_FALSE(Contains(what("bare"), "x is 3"));
    CHECK(Contains(what("bare"), who));
    CHECK(Failure(phase, "leave").message() == "no Error was thrown");
    CHECK_FALSE(Contains(what("bare"), "said, but it succeeds"));
  }
}

TEST_CASE("the text of a failure stays in its thread") {
  Scoped features("features");
  const auto run = [] {
    int wrong = 0;
    for (int i = 0; i < 50; ++i) {
      wrong += !Contains(Failure("forward", "message").what(), "x is 3, not 2.5");
      wrong += Contains(Failure("forward", "bare").what(), "x is 3");
    }
    return wrong;
  };
  int there = -1;
  std::thread other([&] { there = run(); });
  CHECK(run() == 0);
  other.join();
  CHECK(there == 0);
}

TEST_CASE("wrong answers of a library's inference are errors that show them") {
  Scoped features("features");
  using Ints = std::vector<int>;
  const auto message = [](Arguments args) {
    return std::string(
        ErrorOf([&] { Call("LibWrongAnswers", Floats{1}, std::move(args)); }).what());
  };
  const std::string types = "inferType of operator LibWrongAnswers of library libfeatures.so ";
  const std::string shapes = "inferShape of operator LibWrongAnswers of library libfeatures.so ";
  CHECK(Contains(message({{"type", 99}, {"shape", Ints{1}}}),
                 types + "failed: inferType says 99 for output 0, which is no DType"));
  CHECK(Contains(message({{"type", -2}, {"shape", Ints{1}}}), types));
  CHECK(Contains(message({{"type", -1}, {"shape", Ints{1}}}),
                 "the dtype of output 0 of operator LibWrongAnswers is not known"));
  CHECK(Contains(message({{"count", 2}, {"shape", Ints{1}}}),
                 shapes + "failed: inferShape returned 2 outputs, but the node has 1"));
  CHECK(Contains(message({{"count", 0}, {"shape", Ints{1}}}), "returned 0 outputs"));
  CHECK(Contains(message({{"shape", Ints{-2}}}),
                 shapes + "failed: inferShape says extent -2 for output 0; -1 is unknown"));
  CHECK(Contains(message({{"shape", Ints{-1, 3}}}), "leaves output 0 unknown: [?, 3]"));
  CHECK(Contains(message({{"shape", Ints(33, 1)}}), "says 33 axes for outputs 0; 32 are the most"));
  CHECK(message({{"shape", Ints(32, 1)}}) == "no Error was thrown");
  CHECK_FALSE(message({{"shape", std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40}}}) ==
              "no Error was thrown");
  CHECK(
      Contains(message({{"shape", Ints{1}}, {"scratch", -8}}),
               "operator LibWrongAnswers of library libfeatures.so asks for -8 bytes of scratch"));
  CHECK(Contains(message({{"shape", Ints{1}}, {"mutated", 1}}),
                 "mutateInputs names input 1, but the node has 1"));
  CHECK(Contains(message({{"shape", Ints{1}}, {"mutated", -1}}), "mutateInputs names input -1"));
}

TEST_CASE("a trace that is written after a library is unloaded has the names of its operators") {
  Profiler::Start();
  {
    Library library = Library::Load(PathOf("features"));
    Invoke("LibInvokesBeside", {Vector({1, 2})});
    Profiler::Stop();
    CHECK(library.Unload().unmapped);
  }
  const TemporaryFolder folder;
  SaveChromeTrace(Profiler::Read(), folder / "trace.json");
  const std::string trace = ReadFile(folder / "trace.json");
  for (const char* name :
       {"LibInvokesBeside", "LibInvokesBeside::LibHostAdd", "LibInvokesBeside::mine"})
    CHECK(Contains(trace, StrCat("\"", name, "\"")));
}

}  // namespace library_features_test
