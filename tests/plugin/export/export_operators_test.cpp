#include "opkit/plugin/export/export_operators.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/gradient/gradients.hpp"
#include "opkit/op/check.hpp"
#include "opkit/opkit.hpp"
#include "opkit/plugin.hpp"
#include "opkit/plugin/author.hpp"
#include "opkit/plugin/testing.hpp"
#include "opkit/profile/profiler.hpp"
#include "support/allocations.hpp"
#include "support/check_fails.hpp"
#include "support/tensors.hpp"
#include "support/test_allocator.hpp"

namespace export_operators_test {
using namespace opkit;  // NOLINT: as a program writes it

namespace {

Library Load(const std::string& name) { return Library::Load(OPKIT_TEST_LIBRARIES "/" + name); }
struct Loaded {
  explicit Loaded(const std::string& name) : library(Load(name)) {}
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  ~Loaded() {
    if (library.is_loaded()) library.Unload();
  }
  Library library;
};
// An operator of the program's with the name of one of a library: y = -1.
void AddToProgram(const char* name) {
  FunctionOpBuilder(name, __FILE__, __LINE__)
      .setForward([](const AttrMap&, std::span<const OpTensor>, std::span<OpTensor> out,
                     OpResource&) { *out[0].data<float>() = -1; })
      .input("x")
      .output("y")
      .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out = in; });
}

int ThreadsNamed(const std::string& prefix) {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    count += name.substr(0, prefix.size()) == prefix;
  }
  return count;
}

// The library of classes.cc has an operator of this name too.
class SharedOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    Output(0, {1}, DType::kFloat32)->mutable_data<float>()[0] = 1;
    return true;
  }
};
OPERATOR_SCHEMA(LibShared)
    .Doc("the program's")
    .Arg("refuse", "")
    .NumInputs(1)
    .NumOutputs(1)
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(LibShared, SharedOp);

}  // namespace

TEST_CASE("a library exports its class operators beside those of REGISTER_OP") {
  Loaded loaded("libclasses.so");
  const std::vector<std::string> expected = {
      "LibTwice",          "LibAttributes",      "LibBias",       "LibCount", "LibElsewhere",
      "LibInvokesHost",    "LibInvokesTooEarly", "LibKeep",       "LibMul",   "LibPositive",
      "LibPositiveFloats", "LibRanked",          "LibRepeat",     "LibScale", "LibScratch",
      "LibShared",         "LibSharedLoop",      "LibStreamOnly", "LibTasks", "LibTraced",
      "LibWhich"};
  CHECK(loaded.library.operators() == expected);
  CHECK(FloatsOf(Invoke("LibTwice", {Vector({1, 2})})[0]) == std::vector<float>{2, 4});
  CHECK(FloatsOf(Invoke("LibScale", {Vector({1, 2})}, {{"scale", 3.f}})[0]) ==
        std::vector<float>{3, 6});
  CHECK(CheckRegistrations().empty());
}

TEST_CASE("a unit of the library that does not include author.hpp registers a class for it") {
  Loaded loaded("libunits.so");
  CHECK(FloatsOf(Invoke("UnitHalve", {Vector({2, 4})})[0]) == std::vector<float>{1, 2});
  CHECK(FloatsOf(Invoke("UnitNegate", {Vector({2, 4})})[0]) == std::vector<float>{-2, -4});
}

TEST_CASE("a gradient that no unit with author.hpp can export is an Error of Load") {
  CheckFails(
      [] { Load("libunits_gradient.so"); },
      "the gradient of operator UnitNegate does not reach the program: include both opkit/op.hpp "
      "and opkit/graph.hpp in the unit that registers it");
}

TEST_CASE("a library's registries are its own, until it is unloaded and mapped out") {
  Library library = Load("libclasses.so");
  CHECK(OpRegistry::Global().GetSchema("LibScale").origin() == "libclasses.so");
  CHECK_FALSE(OpRegistry::Global().FindSchema("LibSquare"));
  const UnloadReport report = library.Unload();
  CHECK_MESSAGE(report.unmapped, ToString(report));
  CHECK_FALSE(OpRegistry::Global().FindSchema("LibScale"));
  CHECK_FALSE(GradientRegistry::Global().Find("LibScale"));
}

TEST_CASE("the schema arrives whole") {
  Loaded loaded("libclasses.so");
  const OpSchema& scale = OpRegistry::Global().GetSchema("LibScale");
  CHECK(scale.doc() == "Multiplies by a number.");
  REQUIRE(scale.attributes().size() == 1);
  CHECK(scale.attributes()[0].name == "scale");
  CHECK(scale.attributes()[0].doc == "the number");
  CHECK(scale.attributes()[0].type == AttributeType::kFloat);
  CHECK(*scale.attributes()[0].default_value == Attribute(1.f));
  CHECK_FALSE(scale.attributes()[0].required);
  REQUIRE(scale.inputs().size() == 1);
  CHECK(scale.inputs()[0].name == "x");
  CHECK(scale.inputs()[0].dtypes == std::vector<DType>{DType::kFloat32});
  CHECK(scale.outputs()[0].doc == "numbers times scale");
  CHECK(scale.outputs()[0].dtypes.empty());
  CHECK(scale.CanInplace(0, 0));
  REQUIRE(Contains(scale.file(), "classes.cc"));
  std::ifstream source{std::string(scale.file())};
  std::string line;
  for (int i = 0; i < scale.line(); ++i) std::getline(source, line);
  CHECK_MESSAGE(Contains(line, "LibScale"), line);
  CHECK_FALSE(scale.is_stateful());
  CHECK(OpRegistry::Global().GetSchema("LibCount").is_stateful());
  CHECK(OpRegistry::Global().GetSchema("LibCount").runs_may_differ());
  CHECK(OpRegistry::Global().GetSchema("LibKeep").is_stateful());
  CHECK_FALSE(OpRegistry::Global().GetSchema("LibKeep").runs_may_differ());
  CHECK_FALSE(OpRegistry::Global().GetSchema("LibMul").CanInplace(0, 0));
  const OpSchema& attributes = OpRegistry::Global().GetSchema("LibAttributes");
  CHECK(attributes.FindAttribute("ints")->required);
  CHECK(attributes.FindAttribute("table")->type == AttributeType::kTensor);
  CHECK(*attributes.FindAttribute("floats")->default_value ==
        Attribute(std::vector<double>{0.5, 0.25}));
}

TEST_CASE("the program checks nodes as if the operator were its own") {
  Loaded loaded("libclasses.so");
  const Tensor x = Vector({1, 2});
  CheckFails(
      [&] {
        Invoke("LibScale", {x}, {{"scael", 1.f}});
      },
      "LibScale has no argument 'scael' (did you mean 'scale'?");
  CheckFails(
      [&] {
        Invoke("LibScale", {x}, {{"scale", "wide"}});
      },
      "is string (\"wide\"), expected float");
  CheckFails([&] { Invoke("LibScale", {x, x}); }, "LibScale has 2 inputs, expected 1");
  CheckFails([&] { Invoke("LibAttributes", {}); }, "LibAttributes needs the argument 'ints'");
  // The library's own check of a number that it leaves open.
  CheckFails([&] { Invoke("LibBias", {x, x, x}); }, "LibBias has 3 inputs, expected 1 to 2");
  // One that takes attributes which it does not declare.
  CHECK(FloatsOf(Invoke("LibBias", {x, x}, {{"anything", 1}})[0]) == std::vector<float>{2, 3});
}

TEST_CASE("attributes that a library's class does not declare are refused by Compile") {
  Loaded loaded("libclasses.so");
  const auto why = [](const char* op, int num_inputs, Arguments args) {
    Graph g;
    g.AddInput("x", DType::kFloat32, {2});
    g.AddNode(
        OperatorDef(op, std::vector<std::string>(detail::Index(num_inputs), "x"), {"y"}, args));
    g.AddOutput("y");
    return ErrorOf([&] { Compile(g); }).message();
  };
  CHECK(Contains(why("LibMul", 2, {{"bogus", 1}}), "LibMul has no argument 'bogus'"));
  CHECK(
      Contains(why("LibTasks", 1, {{"mode", "vlaid"}}),
               "argument 'mode' of LibTasks is 'vlaid', which is none of its values (did you mean "
               "'valid'?"));
}

TEST_CASE("optional inputs are left out") {
  Loaded loaded("libclasses.so");
  const Tensor x = Vector({1, 2});
  CHECK(FloatsOf(Invoke("LibBias", {x})[0]) == std::vector<float>{101, 102});
  CHECK(FloatsOf(Invoke("LibBias", {x, Tensor()})[0]) == std::vector<float>{101, 102});
  CHECK(FloatsOf(Invoke("LibBias", {x, Vector({1})})[0]) == std::vector<float>{2, 3});
}

TEST_CASE("attributes of every kind arrive") {
  Loaded loaded("libclasses.so");
  const Tensor table = Tensor::From<double>({2, 1}, {1000, 2000});
  const auto sum = [&](Arguments args) {
    args.Set("table", table);
    return Invoke("LibAttributes", {}, std::move(args))[0].ToVector<double>()[0];
  };
  CHECK(sum({{"ints", std::vector<int64_t>{1, 2}}}) == 3003);
  CHECK(sum({{"ints", std::vector<int64_t>{}},
             {"floats", std::vector<double>{0.5, 0.25}},
             {"words", std::vector<std::string>{"ab", std::string("c\0d", 3)}},
             {"flag", true}}) == -3005.75);
}

TEST_CASE("exceptions of the constructor and of RunOnDevice keep their text and code") {
  Loaded loaded("libclasses.so");
  const Error made = ErrorOf([&] { Invoke("LibScale", {Vector({1})}, {{"scale", 0.f}}); });
  CHECK(made.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(made.what(), "a scale of 0 leaves nothing"));
  CHECK(Contains(made.what(), "libclasses.so"));
  const Error refused = ErrorOf([&] { Invoke("LibScale", {Vector({1})}, {{"scale", -1.f}}); });
  CHECK(refused.code() == ErrorCode::kUnsupported);
  CHECK(Contains(refused.what(), "negative scales are another kernel's"));
  const Error run = ErrorOf([&] { Invoke("LibScale", {Tensor({13}, DType::kFloat32)}); });
  CHECK(run.code() == ErrorCode::kFailedPrecondition);
  CHECK(Contains(run.what(), "13 elements bring bad luck"));
  const std::string told = run.what();
  CHECK(told.find("in operator LibScale") == told.rfind("in operator LibScale"));
  // In the next run it is forgotten.
  CHECK(FloatsOf(Invoke("LibScale", {Vector({4})})[0]) == std::vector<float>{4});
}

TEST_CASE("inference keeps symbols and reads constants") {
  Loaded loaded("libclasses.so");
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {Sym("Batch"), 3});
  graph.AddNode(OperatorDef("LibScale", {"X"}, {"Y"}));
  graph.AddInput("V", DType::kFloat32, {Sym("Length")});
  graph.AddConstant("times", Tensor::From<int64_t>({1}, {4}));
  graph.AddNode(OperatorDef("LibRepeat", {"V", "times"}, {"R"}));
  graph.AddOutput("Y").AddOutput("R");
  const GraphView view(graph);
  const auto types = InferGraph(view);
  CHECK(ToString(types[view.FindValue("Y")]) == "float32[Batch, 3]");
  CHECK(ToString(types[view.FindValue("R")]) == "float32[4, Length]");
  // The output's extent is a value that is known only when the operator runs.
  const Tensor out = Invoke("LibRepeat", {Vector({1, 2}), Tensor::From<int64_t>({1}, {3})})[0];
  CHECK(out.shape() == Shape{3, 2});
  CHECK(FloatsOf(out) == std::vector<float>{1, 2, 1, 2, 1, 2});
  CheckFails(
      [&] {
        Invoke("LibRepeat", {Tensor::From<float>({1, 2}, {1, 2}), Tensor::From<int64_t>({1}, {3})});
      },
      "inferShape of operator LibRepeat of library libclasses.so failed: x has 2 axes, expected 1");
}

TEST_CASE("a run in place writes over its input, and only where it may") {
  Loaded loaded("libclasses.so");
  Workspace ws;
  *ws.CreateTensor("x") = Vector({1, 2, 3});
  const void* memory = ws.GetTensor("x")->raw_data();
  CreateOperator(OperatorDef("LibScale", {"x"}, {"x"}, {{"scale", 2.f}}), &ws)->Run();
  CHECK(FloatsOf(*ws.GetTensor("x")) == std::vector<float>{2, 4, 6});
  CHECK(ws.GetTensor("x")->raw_data() == memory);
  // One that must be in place: on its input's own memory, or on a copy where that is kept.
  CreateOperator(OperatorDef("LibCount", {"x"}, {"x"}), &ws)->Run();
  CHECK(FloatsOf(*ws.GetTensor("x")) == std::vector<float>{3, 5, 7});
  CHECK(ws.GetTensor("x")->raw_data() == memory);
  CreateOperator(OperatorDef("LibCount", {"x"}, {"y"}), &ws)->Run();
  CHECK(FloatsOf(*ws.GetTensor("y")) == std::vector<float>{4, 6, 8});
  CHECK(FloatsOf(*ws.GetTensor("x")) == std::vector<float>{3, 5, 7});
}

TEST_CASE("an output made elsewhere is copied, and refused where it is not as inferred") {
  Loaded loaded("libclasses.so");
  const Tensor x = Vector({0});
  CHECK(FloatsOf(Invoke("LibElsewhere", {x})[0]) == std::vector<float>{0, 1});
  CheckFails(
      [&] {
        Invoke("LibElsewhere", {x}, {{"length", 3}});
      },
      "is float32[3], but the program has float32[2] for it");
}

TEST_CASE("scratch has the size that the kernel proposes, and the program plans it") {
  Loaded loaded("libclasses.so");
  const Tensor x = Tensor::From<float>({2, 1}, {1, 2});
  const OperatorDef def("LibScratch", {"x"}, {"y"});
  const Kernel* kernel = OpRegistry::Global().KernelsOf("LibScratch")[0];
  const std::vector<TensorInfo> in{TensorInfo::Of(x)}, out{TensorInfo::Of(x)};
  CHECK(kernel->propose({def, in, out})[0].scratch_bytes == 128);
  CHECK(FloatsOf(Invoke("LibScratch", {x})[0]) == std::vector<float>{1, 2});
}

TEST_CASE("a run whose tensors stay allocates nothing") {
  Loaded loaded("libclasses.so");
  Workspace ws;
  *ws.CreateTensor("x") = Vector({1, 2, 3});
  auto op = CreateOperator(OperatorDef("LibScale", {"x"}, {"y"}), &ws);
  op->Run();
  op->Run();
  const int64_t before = Allocations();
  op->Run();
  CHECK(Allocations() == before);
  // New shapes are followed.
  *ws.GetTensor("x") = Vector({7});
  op->Run();
  CHECK(FloatsOf(*ws.GetTensor("y")) == std::vector<float>{7});
}

TEST_CASE("strided inputs arrive dense") {
  Loaded loaded("libclasses.so");
  const Tensor whole = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  const Tensor column(whole.storage(), 0, Shape{2}, DType::kFloat32, Dims{2});
  CHECK(FloatsOf(Invoke("LibScale", {column}, {{"scale", 2.f}})[0]) == std::vector<float>{2, 6});
}

TEST_CASE("typed functions of a library run for each element type, author.hpp first") {
  Loaded loaded("libtyped.so");
  CHECK(loaded.library.operators() ==
        std::vector<std::string>{"LibThrice", "LibAxpy", "LibSquare"});
  const Tensor x = Vector({1, 2}), y = Vector({10, 20});
  CHECK(FloatsOf(Invoke("LibAxpy", {x, y}, {{"alpha", 3.f}})[0]) == std::vector<float>{13, 26});
  CHECK(FloatsOf(Invoke("LibAxpy", {x, y})[0]) == std::vector<float>{11, 22});
  CHECK(Invoke("LibSquare", {Tensor::From<double>({1}, {1.5})})[0].ToVector<double>() ==
        std::vector<double>{2.25});
  CHECK(FloatsOf(Invoke("LibSquare", {x})[0]) == std::vector<float>{1, 4});
  CHECK(FloatsOf(Invoke("LibThrice", {x})[0]) == std::vector<float>{3, 6});
  CheckFails([&] { Invoke("LibSquare", {Tensor::From<int32_t>({1}, {1})}); },
             "input 0 'x' is int32[1], expected one of [float32, float64]");
  CHECK(OpRegistry::Global().GetSchema("LibAxpy").CanInplace(1, 0));
  CheckFails([&] { Invoke("LibAxpy", {x, Vector({1})}); }, "input 1 'y' of LibAxpy");
}

TEST_CASE("the gradient of a class operator is differentiated in the program") {
  Loaded loaded("libclasses.so");
  CHECK(CheckGradient(OperatorDef("LibScale", {"x"}, {"y"}, {{"scale", 3.f}}), {Vector({1, 2})})
            .ok());
  const GradientCheckResult mul =
      CheckGradient(OperatorDef("LibMul", {"x", "y"}, {"z"}), {Vector({1, 2}), Vector({3, -1})});
  CHECK_MESSAGE(mul.ok(), ToString(mul));
  CHECK(mul.elements_checked == 4);
  const GradientCheckResult square =
      CheckGradient(OperatorDef("LibMul", {"x", "x"}, {"z"}), {Vector({1, 2}), Vector({1, 2})});
  CHECK_MESSAGE(square.ok(), ToString(square));

  // z = 2 x * w, in a graph that has values named like gradients.
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}).AddInput("w", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("LibScale", {"x"}, {"x_grad"}, {{"scale", 2.f}}));
  graph.AddNode(OperatorDef("LibMul", {"x_grad", "w"}, {"z"}));
  graph.AddNode(OperatorDef("LibScale", {"x"}, {"w_grad"}));
  graph.AddOutput("z");
  const GradientMap gradients = AddGradients(graph, "z", {"x", "w"});
  const std::string dx = gradients.at("x").dense, dw = gradients.at("w").dense;
  CHECK(dx == "x_grad_1");
  CHECK(dw == "w_grad_1");
  CHECK(graph.node(3).is_gradient_op());
  graph.AddOutput(dx).AddOutput(dw);
  Executor executor(Compile(graph));
  const auto out = executor.Run({{"x", Vector({1, 2})}, {"w", Vector({3, 4})}});
  CHECK(FloatsOf(out.Get("z")) == std::vector<float>{6, 16});
  CHECK(FloatsOf(out.Get(dx)) == std::vector<float>{6, 8});
  CHECK(FloatsOf(out.Get(dw)) == std::vector<float>{2, 4});
}

TEST_CASE("a library's declarations of missing gradients reach the program") {
  Loaded loaded("libclasses.so");
  CHECK(GradientRegistry::Global().Find("LibAttributes")->kind == GradientKind::kNone);
  CHECK(GradientRegistry::Global().Find("LibBias")->kind == GradientKind::kShouldNot);
  CHECK_FALSE(GradientRegistry::Global().Find("LibRepeat"));
  CHECK(Contains(
      ErrorOf([] { GetGradientForOp(OperatorDef("LibBias", {"x"}, {"y"}), {"dy"}); }).what(),
      "must not be differentiated"));
}

TEST_CASE("in a CPU stream a library's class runs in order") {
  Loaded loaded("libclasses.so");
  Workspace ws;
  *ws.CreateTensor("x") = Vector({1, 2});
  const auto def = [](const char* from, const char* to) {
    return OperatorDef("LibScale", {from}, {to}, {{"scale", 2.f}}).Device(DeviceType::kCPUStream);
  };
  auto first = CreateOperator(def("x", "y"), &ws);
  auto second = CreateOperator(def("y", "z"), &ws);
  first->RunAsync();
  second->RunAsync();
  second->Finish();
  CHECK(FloatsOf(*ws.GetTensor("z")) == std::vector<float>{4, 8});
  *ws.GetTensor("x") = Tensor({13}, DType::kFloat32);
  first->RunAsync();
  CHECK(Contains(ErrorOf([&] { first->Finish(); }).what(), "13 elements bring bad luck"));
}

TEST_CASE("a library's own class for CPU streams runs there, also where it has no other") {
  Library library = Load("libclasses.so");
  const auto run = [](const char* op, Device device, float x = 0) {
    InvokeOptions options;
    options.device = device;
    return FloatsOf(Invoke(op, {Vector({x})}, {}, options)[0])[0];
  };
  const Device stream(DeviceType::kCPUStream);
  constexpr auto kOnCPU = static_cast<float>(DeviceType::kCPU);
  constexpr auto kOnStream = static_cast<float>(DeviceType::kCPUStream);
  CHECK(run("LibWhich", Device()) == kOnCPU);
  CHECK(run("LibWhich", stream) == kOnStream);
  CHECK(run("LibStreamOnly", stream) == kOnStream);
  CheckFails([&] { run("LibStreamOnly", Device()); }, "it has kernels for cpu_stream");
  CheckFails([&] { run("LibWhich", stream, -1); }, "work of the library's is told to fail");
  CHECK(run("LibWhich", stream) == kOnStream);
  // The operator runs in order on the host's stream and starts no stream of its own.
  Workspace ws;
  *ws.CreateTensor("x") = Vector({-1});
  const OperatorDef def = OperatorDef("LibWhich", {"x"}, {"y"}).Device(stream);
  auto op = CreateOperator(def, &ws);
  Event gate;
  gate.SetScheduled();
  op->WaitEvent(gate, 0);
  op->RunAsync(0);
  ws.GetTensor("x")->mutable_data<float>()[0] = 1;
  gate.SetFinished();
  op->Finish();
  CHECK(FloatsOf(*ws.GetTensor("y")) == std::vector<float>{kOnStream});
  op.reset();
  CHECK(library.Unload().unmapped);
}

TEST_CASE("a library's typed function for CPU streams runs there") {
  Loaded loaded("libtyped.so");
  InvokeOptions options;
  options.device = Device(DeviceType::kCPUStream);
  CHECK(FloatsOf(Invoke("LibSquare", {Vector({1, 3})}, {}, options)[0]) ==
        std::vector<float>{1, 9});
  CheckFails([&] { Invoke("LibSquare", {Tensor::From<int8_t>({1}, {1})}, {}, options); },
             "input 0 'x' is int8[1], expected one of [float32, float64]");
}

TEST_CASE("a class for a device whose streams the library cannot use is refused by name") {
  CheckFails([] { Load("libno_streams.so"); },
             "operator LibCudaOnly has a kernel for cuda that cannot issue work on its host's "
             "streams: include the header of the backend in the library");
  CHECK_FALSE(OpRegistry::Global().FindSchema("LibCudaOnly"));
}

TEST_CASE("the cost that a class's schema counts arrives, and without one the bytes") {
  Loaded loaded("libclasses.so");
  const TensorInfo x(DType::kFloat32, Shape{10});
  const auto cost = [&](const char* op) {
    const OperatorDef def(op, {"x"}, {"y"});
    return OpRegistry::Global().GetSchema(op).Cost(def, {x}, {x});
  };
  CHECK(OpRegistry::Global().GetSchema("LibScale").has_cost());
  CHECK(cost("LibScale").flops == 30);
  CHECK(cost("LibScale").bytes_read == 40);
  CHECK(cost("LibScale").bytes_written == 40);
  CHECK_FALSE(OpRegistry::Global().GetSchema("LibCount").has_cost());
  CHECK(cost("LibCount").flops == 0);
  CHECK(cost("LibCount").bytes_read == 40);
}

TEST_CASE("a node can request a library's kernel by the name of its backend") {
  const auto run = [](const std::string& engine, Arguments args = {}) {
    InvokeOptions options;
    options.backends = engine;
    return FloatsOf(Invoke("LibWhich", {Vector({1})}, std::move(args), options)[0])[0];
  };
  constexpr auto kPlain = static_cast<float>(DeviceType::kCPU);
  {
    Loaded loaded("libclasses.so");
    CHECK(run("") == kPlain);
    CHECK(run("FAST") == 1000);
    CHECK(run("FAST", {{"slow", true}}) == kPlain);  // it refuses the node
  }
  // Beside an operator of the program's it is called after the library, too.
  AddToProgram("LibWhich");
  {
    Loaded loaded("libclasses.so");
    CHECK(run("") == -1);
    CHECK(run("classes") == kPlain);
    CHECK(run("classes.FAST") == 1000);
  }
  OpRegistry::Global().Remove("LibWhich");
}

TEST_CASE("ranks, availability, fusion and test inputs of a library's classes are the program's") {
  const Tensor x = Vector({0});
  const auto of_chain = [&](const char* engine, int64_t extent) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {1, extent});
    if (extent == 1) graph = Graph().AddInput("x", DType::kFloat32, {1});
    graph.AddNode(OperatorDef("LibRanked", {"x"}, {"t"}).Backends(engine));
    graph.AddNode(OperatorDef("LibRanked", {"t"}, {"y"}).Backends(engine));
    graph.AddOutput("y");
    const Shape shape = extent == 1 ? Shape{1} : Shape{1, extent};
    return FloatsOf(Executor(Compile(graph)).Run({{"x", Filled(shape, 0)}}).Get("y"))[0];
  };
  {
    Loaded loaded("libclasses.so");
    CHECK(FloatsOf(Invoke("LibRanked", {x})[0])[0] == 2);
    CHECK(FloatsOf(Invoke("LibRanked", {x}, {}, {.backends = "lib_absent"})[0])[0] == 2);
    CHECK(of_chain("", 1) == 3);
    CHECK(of_chain("", 2) == 2);  // it takes none of two axes in
    CHECK(of_chain("reference", 1) == 1);
    const OpSchema& schema = OpRegistry::Global().GetSchema("LibRanked");
    CHECK(schema.MakeTestInputs(DType::kFloat64, 4)[0].shape() == Shape{5});
    CHECK(schema.MakeTestInputs(DType::kFloat64, 4)[0].dtype() == DType::kFloat64);
    CHECK_FALSE(OpRegistry::Global().GetSchema("LibScale").has_test_inputs());
    std::string told;
    for (const OpRegistry::Backend& one : OpRegistry::Global().Backends())
      if (one.name.starts_with("lib_"))
        told += StrCat(one.name, " ", one.rank, " '", one.why_unavailable, "'; ");
    CHECK(told == "lib_absent 500 'its card is not here'; lib_first 300 ''; ");
  }
  CHECK(OpRegistry::Global().BackendRank("lib_first", "libclasses.so") == OpRegistry::kUnranked);
  // Beside an operator of the program's, a kernel that cannot run here does not either.
  AddToProgram("LibRanked");
  {
    Loaded loaded("libclasses.so");
    CHECK(FloatsOf(Invoke("LibRanked", {x})[0])[0] == -1);
    CHECK(FloatsOf(Invoke("LibRanked", {x}, {}, {.backends = "classes.lib_first"})[0])[0] == 2);
    CHECK(FloatsOf(Invoke("LibRanked", {x}, {}, {.backends = "classes.lib_absent"})[0])[0] == -1);
  }
  OpRegistry::Global().Remove("LibRanked");
}

TEST_CASE("temporaries of a library's class come from the program's allocator, and go back there") {
  Loaded loaded("libclasses.so");
  const Tensor x = Filled({1000}, 1);
  Workspace ws;
  *ws.CreateTensor("x") = x;
  auto op = CreateOperator(OperatorDef("LibTraced", {"x"}, {"y"}), &ws);
  op->Run();
  {
    TestAllocator allocator;
    op->Run();
    CHECK(allocator.allocations() >= 1);
    CHECK(allocator.live_bytes() == 0);
    allocator.set_limit(100);
    CheckFails([&] { op->Run(); }, "out of memory on");
  }
  op->Run();
  CHECK(FloatsOf(*ws.GetTensor("y"))[999] == 2);
}

TEST_CASE("scopes and invocations of a library's class are in the program's profile, each once") {
  Loaded loaded("libclasses.so");
  Invoke("LibTraced", {Vector({1})});
  Profiler::Start();
  Invoke("LibTraced", {Vector({1})});
  Invoke("LibTwice", {Vector({1})});
  Profiler::Stop();
  Invoke("LibTraced", {Vector({1})});
  const Profile profile = Profiler::Read();
  std::vector<std::string> names;
  std::map<std::string, const ProfileSpan*> spans;
  for (const ProfileSpan& span : profile.spans) {
    if (span.kind != Invocation::Kind::kOperator &&
        span.kind != Invocation::Kind::kCustomOperator && span.kind != Invocation::Kind::kUserCode)
      continue;
    names.push_back(InternedName(span.name));
    spans[names.back()] = &span;
  }
  std::ranges::sort(names);
  // In a program that exports its symbols some of the library's operator runs by the program's own
  // code, with a table of names of its own: the page on libraries warns of it.
  CHECK(names.size() >= 4);
  if (::dlsym(RTLD_DEFAULT, "opkit_library_entry")) return;
  REQUIRE(names == std::vector<std::string>{"LibScale", "LibTraced", "LibTwice", "its own part"});
  const auto parent_of = [&](const char* name) {
    for (const ProfileSpan& span : profile.spans)
      if (span.id == spans[name]->parent) return InternedName(span.name);
    return std::string();
  };
  CHECK(parent_of("its own part") == "LibTraced");
  CHECK(parent_of("LibScale") == "its own part");
}

TEST_CASE("OPKIT_BACKENDS is of the program's names, and leaves a library its plain kernels") {
  Invoke("LibShared", {Vector({1})});  // the program has read it
  ::setenv("OPKIT_BACKENDS", "classes,other.fast", 1);
  {
    Loaded loaded("libclasses.so");
    CHECK(FloatsOf(Invoke("LibTraced", {Vector({1})})[0]) == std::vector<float>{2});
  }
  ::unsetenv("OPKIT_BACKENDS");
}

TEST_CASE("a class whose output's shape the data decides runs, alone and in a graph") {
  Loaded loaded("libclasses.so");
  for (const char* op : {"LibPositive", "LibPositiveFloats"}) {
    CAPTURE(op);
    CHECK(FloatsOf(Invoke(op, {Vector({1, -2, 3})})[0]) == std::vector<float>{1, 3});
    CHECK(Invoke(op, {Vector({-1})})[0].shape() == Shape{0});
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {3});
    graph.AddNode(OperatorDef(op, {"x"}, {"p"}));
    graph.AddNode(OperatorDef("LibScale", {"p"}, {"y"}, {{"scale", 2.f}}));
    graph.AddOutput("y");
    Executor executor(Compile(graph));
    CHECK(FloatsOf(executor.Run({{"x", Vector({1, -2, 3})}}).Get("y")) == std::vector<float>{2, 6});
    CHECK(FloatsOf(executor.Run({{"x", Vector({1, 2, 3})}}).Get("y")) ==
          std::vector<float>{2, 4, 6});
  }
}

TEST_CASE("a library's class invokes the program's operators, in a stream in its turn") {
  FunctionOpBuilder("HostPlus", __FILE__, __LINE__)
      .setForward(
          [](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out, OpResource&) {
            for (int64_t i = 0; i < in[0].size(); ++i)
              out[0].data<float>()[i] = in[0].data<float>()[i] + in[1].data<float>()[i];
          })
      .input("x")
      .input("y")
      .output("z")
      .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; });
  {
    Loaded loaded("libclasses.so");
    for (const DeviceType device : {DeviceType::kCPU, DeviceType::kCPUStream}) {
      InvokeOptions options;
      options.device = Device(device);
      CHECK(FloatsOf(Invoke("LibInvokesHost", {Vector({1, 2})}, {}, options)[0]) ==
            std::vector<float>{3, 6});
    }
    CheckFails([] { Invoke("LibInvokesTooEarly", {}); },
               "InvokeOnHost(\"HostPlus\") is called in a thread that runs no operator");
  }
  OpRegistry::Global().Remove("HostPlus");
}

TEST_CASE("the operators of a library pass CheckOperator") {
  Loaded classes("libclasses.so");
  Loaded typed("libtyped.so");
  for (const char* op : {"LibScale", "LibMul", "LibAxpy", "LibSquare", "LibTwice"}) {
    const CheckReport report = CheckOperator(op);
    CHECK_MESSAGE(report.ok(), ToString(report));
  }
}

TEST_CASE("a program's own class operators are not handed to itself") {
  const Library itself = testing::Load();
  bool handed_over = false;
  for (const std::string& op : itself.operators()) handed_over |= op == "LibShared";
  CHECK_FALSE(handed_over);
  CHECK(OpRegistry::Global().KernelsOf("LibShared").size() == 1);
}

TEST_CASE("for an operator that exists it is one more backend, which may refuse a node") {
  const Tensor x = Vector({1});
  const auto run = [&](bool refuse, const std::string& engine = {}) {
    InvokeOptions options;
    options.backends = engine;
    return FloatsOf(Invoke("LibShared", {x}, {{"refuse", refuse}}, options)[0])[0];
  };
  LoadOptions options;
  options.allow_override = true;
  Library library = Library::Load(OPKIT_TEST_LIBRARIES "/libclasses.so", options);
  CHECK(run(false) == 2);
  CHECK(run(true) == 1);
  CHECK(run(false, "reference") == 1);
  CHECK(run(false, "classes") == 2);
  CHECK(OpRegistry::Global().GetSchema("LibShared").doc() == "the program's");
  library.Unload();
  CHECK(run(false) == 1);
}

TEST_CASE("loops of a library's operators run on the host's threads") {
  Library classes = Load("libclasses.so");
  {
    ThreadPool three(3);  // two for the outer loop, so that one is left for those inside
    const PoolScope scope(three);
    CHECK(FloatsOf(Invoke("LibSharedLoop", {Vector({60000})})[0]) == std::vector<float>{1});
    CheckFails([] { Invoke("LibSharedLoop", {Vector({-1})}); }, "a loop of the library's fails");
  }
  ThreadPool one(1);
  const PoolScope scope(one);
  CHECK(FloatsOf(Invoke("LibSharedLoop", {Vector({50})})[0]) == std::vector<float>{0});
  classes.Unload();
}

TEST_CASE("threads that a library's operators have started end before it is unloaded") {
  Library classes = Load("libclasses.so"), typed = Load("libtyped.so");
  CHECK(FloatsOf(Invoke("LibTasks", {Vector({1})})[0]) == std::vector<float>{101});
  const std::vector<float> twos(10000, 2.f);
  const Tensor x = Tensor::From<float>({10000}, twos);
  CHECK(FloatsOf(Invoke("LibAxpy", {x, x})[0])[9999] == 4);
  CHECK(ThreadsNamed("opkit-library") == 1);
  CHECK(classes.Unload().unmapped);
  CHECK(ThreadsNamed("opkit-library") == 0);
  CHECK(typed.Unload().unmapped);
}

}  // namespace export_operators_test
