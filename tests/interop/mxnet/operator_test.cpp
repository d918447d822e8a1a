// Operators of a library with MXNet's boundary: values, gradients, states, resources, errors.
#include <algorithm>
#include <random>
#include <thread>

#include "mxnet_fixture.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/passes.hpp"
#include "opkit/op/check.hpp"
#include "opkit/op/gradient/gradient_check.hpp"
#include "opkit/profile.hpp"
#include "support/bench.hpp"
#include "support/sanitizers.hpp"

namespace mxnet_operator_test {
using namespace mxnet_fixture;

namespace {

std::string FailureOf(const std::string& op, const std::vector<Tensor>& inputs,
                      Arguments args = {}) {
  return ErrorOf([&] { Invoke(op, inputs, std::move(args)); }).what();
}
Floats Product(const Tensor& a, const Tensor& b) {
  const int64_t n = a.shape()[0], k = a.shape()[1], m = b.shape()[1];
  Floats c;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) {
      double sum = 0;
      for (int64_t x = 0; x < k; ++x)
        sum += double{a.data<float>()[i * k + x]} * b.data<float>()[x * m + j];
      c.push_back(static_cast<float>(sum));
    }
  return c;
}

}  // namespace

TEST_CASE("a product of matrices has its values and shape") {
  Whole library;
  const std::vector<Tensor> in = GemmInputs();
  const Tensor c = Invoke("my_gemm", in).at(0);
  CHECK(c.shape() == Shape{2, 1});
  CHECK(c.ToVector<float>() == Floats{50, 122});
  std::mt19937 engine(38);
  std::uniform_int_distribution<int64_t> extent(1, 4);
  for (int i = 0; i < 20; ++i) {
    const int64_t n = extent(engine), k = extent(engine), m = extent(engine);
    const Tensor a = Random({n, k}, engine()), b = Random({k, m}, engine());
    const Floats found = Invoke("my_gemm", {a, b}).at(0).ToVector<float>(), right = Product(a, b);
    REQUIRE(found.size() == right.size());
    for (size_t e = 0; e < right.size(); ++e)
      CHECK(found[e] == doctest::Approx(right[e]).epsilon(1e-3));
  }
}

TEST_CASE("backward of an operator is its gradient") {
  Whole library;
  CHECK(HasGradient("my_gemm"));
  Graph graph;
  graph.AddInput("A", DType::kFloat32, {2, 3});
  graph.AddInput("B", DType::kFloat32, {3, 1});
  graph.AddNode(OperatorDef("my_gemm", {"A", "B"}, {"C"}));
  const GradientMap gradients = AddGradients(graph, "C", {"A", "B"});
  graph.AddOutput("C");
  graph.AddOutput(gradients.at("A").dense);
  graph.AddOutput(gradients.at("B").dense);
  const std::vector<Tensor> in = GemmInputs();
  Executor executor(Compile(graph));
  const auto out = executor.Run({{"A", in[0]}, {"B", in[1]}});
  CHECK(out[0].ToVector<float>() == Floats{50, 122});
  CHECK(out[1].ToVector<float>() == Floats{7, 8, 9, 7, 8, 9});
  CHECK(out[2].ToVector<float>() == Floats{5, 7, 9});
  const GradientCheckResult check =
      CheckGradient(OperatorDef("my_gemm", {"a", "b"}, {"c"}), GemmInputs());
  CHECK_MESSAGE(check.ok(), ToString(check));
  CHECK(check.elements_checked == 9);
}

TEST_CASE("a gradient that is wanted of one input alone needs no memory of the other's") {
  Whole library;
  Graph graph;
  graph.AddInput("A", DType::kFloat32, {2, 3});
  graph.AddInput("B", DType::kFloat32, {3, 1});
  graph.AddNode(OperatorDef("my_gemm", {"A", "B"}, {"C"}));
  const GradientMap gradients = AddGradients(graph, "C", {"B"});
  graph.AddOutput(gradients.at("B").dense);
  const std::vector<Tensor> in = GemmInputs();
  CHECK(Executor(Compile(graph)).Run({{"A", in[0]}, {"B", in[1]}})[0].ToVector<float>() ==
        Floats{5, 7, 9});
}

TEST_CASE("an output without a gradient has a gradient of zeros") {
  Whole library;
  Graph graph;
  graph.AddInput("a", DType::kFloat32, {2});
  graph.AddInput("b", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("sum_and_difference", {"a", "b"}, {"sum", "difference"}));
  const GradientMap gradients = AddGradients(graph, "difference", {"a", "b"});
  for (const char* input : {"a", "b"}) graph.AddOutput(gradients.at(input).dense);
  const auto out = Executor(Compile(graph)).Run({{"a", Vector({1, 2})}, {"b", Vector({3, 4})}});
  CHECK(out[0].ToVector<float>() == Floats{1, 1});
  CHECK(out[1].ToVector<float>() == Floats{-1, -1});
}

TEST_CASE("an output that a node leaves out is written all the same") {
  Whole library;
  Graph graph;
  graph.AddInput("a", DType::kFloat32, {2});
  graph.AddInput("b", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("sum_and_difference", {"a", "b"}, {"", "difference"}));
  graph.AddOutput("difference");
  CHECK(Executor(Compile(graph))
            .Run({{"a", Vector({5, 2})}, {"b", Vector({3, 4})}})[0]
            .ToVector<float>() == Floats{2, -2});
}

TEST_CASE("inference of unknown shapes does not ask the library") {
  Whole library;
  Graph graph;
  graph.AddInput("A", DType::kUndefined, {});
  graph.AddInput("B", DType::kFloat32, {3, 1});
  graph.AddNode(OperatorDef("my_gemm", {"A", "B"}, {"C"}));
  graph.AddOutput("C");
  const GraphView view(graph);
  CHECK_FALSE(InferGraph(view).Get("C").shape.is_known());
  const std::vector<Tensor> in = GemmInputs();
  CHECK(Executor(Compile(graph)).Run({{"A", in[0]}, {"B", in[1]}})[0].ToVector<float>() ==
        Floats{50, 122});
}

TEST_CASE("what a library refuses is an Error with its own words, and no older ones") {
  Whole library;
  const Tensor a = GemmInputs()[0];
  const std::string types = FailureOf("my_gemm", {Vector<double>({1}), Vector<double>({1})});
  CHECK(Contains(types, "input 0 is of another type than float32"));
  CHECK(Contains(types, "gemm.c["));
  CHECK(Contains(types, "my_gemm"));
  CHECK(Contains(types, "libwhole.so"));
  const std::string ranks = FailureOf("my_gemm", {a, Vector({1, 2, 3})});
  CHECK(Contains(ranks, "both inputs should be matrices, and have 2 and 1 axes"));
  CHECK_FALSE(Contains(ranks, "of another type"));
  const std::string extents = FailureOf("my_gemm", {a, a});
  CHECK(Contains(extents, "axis 1 of the first input has 3 elements, axis 0 of the second has 2"));
  CHECK_FALSE(Contains(extents, "both inputs"));
  CHECK(Contains(FailureOf("my_gemm", {a}), "my_gemm"));  // one input is missing
  CHECK(Invoke("my_gemm", GemmInputs()).at(0).ToVector<float>() == Floats{50, 122});
}

TEST_CASE("each dtype of MXNet's goes through, others are refused by name") {
  Whole library;
  const auto twice = [](DType dtype) {
    Tensor x({3}, dtype);
    for (int i = 0; i < 3; ++i) opkit::detail::SetNumber(x, i, i + 1);
    const Tensor y = Invoke("twice", {x}).at(0);
    CHECK(y.dtype() == dtype);
    Floats values;
    for (int i = 0; i < 3; ++i)
      values.push_back(static_cast<float>(opkit::detail::GetNumber(y, i)));
    return values;
  };
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kUInt8,
                            DType::kInt32, DType::kInt8, DType::kInt64}) {
    CAPTURE(dtype);
    CHECK(twice(dtype) == Floats{2, 4, 6});
  }
  for (const DType dtype : {DType::kInt16, DType::kBFloat16, DType::kBool}) {
    const std::string failure = FailureOf("twice", {Tensor({3}, dtype)});
    CHECK_MESSAGE(Contains(failure, StrCat(dtype)), failure);
    CHECK_MESSAGE(Contains(failure, "twice"), failure);
  }
}

TEST_CASE("tensors without elements and without axes go through") {
  Whole library;
  CHECK(Invoke("twice", {Tensor::Scalar(4.f)}).at(0).ToVector<float>() == Floats{8});
  CHECK(Invoke("twice", {Tensor::Scalar(4.f)}).at(0).shape() == Shape{});
  const Tensor none = Invoke("twice", {Tensor({0, 3}, DType::kFloat32)}).at(0);
  CHECK(none.shape() == Shape{0, 3});
}

TEST_CASE("a state is made once for an operator, and goes with it") {
  Whole library;
  const auto count = [](const std::vector<Tensor>& out) {
    return out.at(1).ToVector<int64_t>().at(0);
  };
  CHECK(count(Invoke("state_gemm", GemmInputs(), {{"test_kw", 100}})) == 101);
  CHECK(ReadCounters().states == 0);
  {
    ResolvedOperator kept("state_gemm", 2, {{"test_kw", 200}});
    CHECK(count(kept(GemmInputs())) == 201);
    const std::vector<Tensor> again = kept(GemmInputs());
    CHECK(count(again) == 202);
    CHECK(again.at(0).ToVector<float>() == Floats{50, 122});
    // A state belongs to dtypes and shapes: other shapes get a new one.
    CHECK(count(kept({Matrix(1, 1, {2}), Matrix(1, 1, {3})})) == 201);
    CHECK(ReadCounters().states == 1);
    ResolvedOperator other("state_gemm", 2);
    CHECK(count(other(GemmInputs())) == 1);
    CHECK(ReadCounters().states == 2);
    CHECK(Contains(ErrorOf([&] { library->Unload(); }).message(), "cannot be unloaded"));
  }
  CHECK(ReadCounters().states == 0);
  CHECK(ReadCounters().states_made == 4);
}

TEST_CASE("equal nodes that draw numbers are two nodes") {
  Whole library;
  Graph graph;
  graph.AddInput("A", DType::kFloat32, {2, 3});
  for (const char* noise : {"N", "M"})
    graph.AddOutput(noise).AddNode(OperatorDef("my_noisy_relu", {"A"}, {noise}));
  const auto out = Executor(Compile(DefaultPasses().Run(graph))).Run({{"A", GemmInputs()[0]}});
  CHECK(out[0].ToVector<float>() != out[1].ToVector<float>());
}

TEST_CASE("equal nodes that keep a state are two nodes") {
  Scoped library("gemm");  // which has no random states
  Graph graph;
  graph.AddInput("A", DType::kFloat32, {2, 3});
  graph.AddInput("B", DType::kFloat32, {3, 1});
  for (const char* c : {"C", "D"})
    graph.AddNode(OperatorDef("state_gemm", {"A", "B"}, {c, StrCat("runs_", c)}));
  for (const char* output : {"runs_C", "runs_D"}) graph.AddOutput(output);
  Executor executor(Compile(DefaultPasses().Run(graph)));
  const std::vector<Tensor> in = GemmInputs();
  executor.Run({{"A", in[0]}, {"B", in[1]}});
  const auto out = executor.Run({{"A", in[0]}, {"B", in[1]}});
  CHECK(out[0].ToVector<int64_t>()[0] == 2);
  CHECK(out[1].ToVector<int64_t>()[0] == 2);
  CHECK(ReadCounters().states == 2);
}

TEST_CASE("a state of constants alone is not computed before the runs") {
  Scoped library("gemm");
  Graph graph;
  graph.AddConstant("A", GemmInputs()[0]);
  graph.AddConstant("B", GemmInputs()[1]);
  graph.AddNode(OperatorDef("state_gemm", {"A", "B"}, {"C", "runs"}));
  graph.AddOutput("runs");
  Executor executor(Compile(DefaultPasses().Run(graph)));
  executor.Run({});
  CHECK(executor.Run({})[0].ToVector<int64_t>()[0] == 2);
}

TEST_CASE("a state learns the dtypes and shapes of the inputs, and the device") {
  Whole library;
  const std::vector<int32_t> said =
      Invoke("describe_state", {Tensor({2, 3}, DType::kInt8), Tensor({5}, DType::kFloat64)})
          .at(0)
          .ToVector<int32_t>();
  //                                inputs, int8 of {2, 3}, float64 of {5}, "cpu" 0
  CHECK(said == std::vector<int32_t>{2, 5, 2, 2, 3, 1, 1, 5, 1, 0, -1, -1, -1, -1, -1, -1});
}

TEST_CASE("backward of a stateful operator runs on the state, or says that there is none") {
  Whole library;
  CHECK(Invoke("my_state_relu", {Matrix(2, 2, {-2, -1, 1, 2})}).at(0).ToVector<float>() ==
        Floats{0, 0, 1, 2});
  const GradientCheckResult relu =
      CheckGradient(OperatorDef("my_state_relu", {"x"}, {"y"}), {Vector({-2, -1, 1, 2})});
  CHECK_MESSAGE(relu.ok(), ToString(relu));
  CHECK(relu.elements_checked == 4);
  const std::string failure = ErrorOf([&] {
                                Graph graph;
                                graph.AddInput("A", DType::kFloat32, {2, 3});
                                graph.AddInput("B", DType::kFloat32, {3, 1});
                                graph.AddNode(OperatorDef("state_gemm", {"A", "B"}, {"C", "n"}));
                                const GradientMap gradients = AddGradients(graph, "C", {"A"});
                                graph.AddOutput(gradients.at("A").dense);
                                const std::vector<Tensor> in = GemmInputs();
                                Executor(Compile(graph)).Run({{"A", in[0]}, {"B", in[1]}});
                              }).what();
  CHECK_MESSAGE(Contains(failure, "Error! Operator does not support backward"), failure);
  CHECK_MESSAGE(Contains(failure, "state_gemm"), failure);
}

TEST_CASE("an input that an operator changes is changed") {
  Whole library;
  Tensor a = Vector({1, 2, 3});
  const Tensor b = Vector({10, 20, 30});
  CHECK(Invoke("add_into", {a, b}).at(0).ToVector<float>() == Floats{11, 22, 33});
  CHECK(a.ToVector<float>() == Floats{11, 22, 33});
  CHECK(b.ToVector<float>() == Floats{10, 20, 30});
}

TEST_CASE("memory of the host is apart for each request") {
  Whole library;
  CHECK(Invoke("scratch", {Vector({1, 2})}).at(0).ToVector<float>() == Floats{4, 5});
  CHECK(Invoke("scratch", {Tensor({0}, DType::kFloat32)}).at(0).shape() == Shape{0});
  const std::string negative = FailureOf("scratch", {Vector({1})}, {{"bytes", -8}});
  CHECK_MESSAGE(Contains(negative, "-8"), negative);
  CHECK_MESSAGE(Contains(negative, "scratch"), negative);
}

TEST_CASE("the library sees that a tensor may have been written since the last run") {
  Whole library;
  ResolvedOperator twice("twice", 1);
  twice({Vector({1})});
  const int64_t before = ReadCounters().last_id;
  twice({Vector({1})});
  CHECK(ReadCounters().last_id != before);
}

TEST_CASE("attributes have MXNet's spelling") {
  Whole library;
  const auto text = [](const Arguments& args) {
    const std::vector<uint8_t> bytes =
        Invoke("attribute_text", std::vector<Tensor>{}, args).at(0).ToVector<uint8_t>();
    return std::string(bytes.begin(), bytes.end());
  };
  CHECK(text({{"text", "as it is"}}) == "as it is");
  CHECK(text({{"text", 3}}) == "3");
  CHECK(text({{"text", 0.5f}}) == "0.5");
  CHECK(text({{"text", true}}) == "True");
  CHECK(text({{"text", std::vector<int64_t>{3, 4}}}) == "(3, 4)");
  CHECK(text({}) == "");
}

TEST_CASE("random states follow the program's seed") {
  for (const char* name : {"whole", "symbolic"}) {
    CAPTURE(name);
    Scoped library(name);
    const Tensor ones = Filled({13, 5}, 1);
    const auto run = [&](uint64_t seed) {
      SetSeed(seed);
      return Invoke("my_noisy_relu", {ones}).at(0).ToVector<float>();
    };
    const Floats first = run(128);
    CHECK(run(128) == first);
    CHECK(run(129) != first);
    CHECK(Invoke("my_noisy_relu", {ones}).at(0).ToVector<float>() != first);  // the next numbers
    CHECK(std::ranges::all_of(first, [](float value) { return value >= 0; }));
    CHECK(std::ranges::count(first, first[0]) < 20);  // each element has its own number
  }
}

TEST_CASE("a kept operator draws other numbers in each run, the same again after SetSeed") {
  Whole library;
  const Tensor ones = Filled({13, 5}, 1);
  ResolvedOperator kept("my_noisy_relu", 1);
  const auto run = [&] { return kept({ones}).at(0).ToVector<float>(); };
  SetSeed(7);
  const Floats first = run(), second = run();
  CHECK(first != second);
  SetSeed(7);
  CHECK(run() == first);
  CHECK(run() == second);
}

TEST_CASE("an operator of another device is registered for it") {
  Whole library;
  CHECK(Invoke("my_relu", {Matrix(2, 2, {-2, -1, 1, 2})}).at(0).ToVector<float>() ==
        Floats{0, 0, 1, 2});
  const GradientCheckResult check =
      CheckGradient(OperatorDef("my_relu", {"x"}, {"y"}), {Vector({-2, -1, 1, 2})});
  CHECK_MESSAGE(check.ok(), ToString(check));
  Strings devices;
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf("my_relu"))
    devices.push_back(StrCat(kernel->device));
  std::ranges::sort(devices);
  CHECK(devices == Strings{"cpu", "cuda"});
}

TEST_CASE(
    "operators run in a graph whose extents are open, and stand in the domain of custom "
    "operators") {
  Whole library;
  Graph graph;
  graph.AddInput("A", DType::kFloat32, {Sym("N"), 3});
  graph.AddInput("B", DType::kFloat32, {3, 1});
  graph.AddNode(OperatorDef("my_gemm", {"A", "B"}, {"C"}).Name("gemm"));
  graph.AddNode(OperatorDef("my_relu", {"C"}, {"D"}).Name("relu"));
  graph.AddOutput("D");
  Executor executor(Compile(graph));
  const std::vector<Tensor> in = GemmInputs();
  CHECK(executor.Run({{"A", in[0]}, {"B", in[1]}})[0].ToVector<float>() == Floats{50, 122});
  Profiler::Start();
  CHECK(executor.Run({{"A", Matrix(1, 3, {-1, 0, 0})}, {"B", in[1]}})[0].ToVector<float>() ==
        Floats{0});
  Profiler::Stop();
  int found = 0;
  for (const ProfileSpan& span : Profiler::Read().spans)
    found += std::string(DomainOf(span)) == "Custom Operators";
  CHECK(found == 2);
}

TEST_CASE("CheckOperator finds nothing wrong with operators that are right") {
  Whole library;
  for (const char* op : {"my_relu", "my_state_relu", "twice", "scratch"}) {
    const auto report = CheckOperator(OperatorDef(op, {"x"}, {"y"}), {Vector({-2, -1, 1, 2})});
    CHECK_MESSAGE(report.ok(), StrCat(op, ": ", report));
  }
  const auto gemm = CheckOperator(OperatorDef("my_gemm", {"a", "b"}, {"c"}), GemmInputs());
  CHECK_MESSAGE(gemm.ok(), StrCat(gemm));
}

TEST_CASE("threads run, and fail, at once") {
  Whole library;
  std::atomic<int> right{0}, failed{0};
  const auto work = [&](int number) {
    ResolvedOperator kept("state_gemm", 2, {{"test_kw", 1000 * number}});
    for (int i = 1; i <= 50; ++i) {
      const std::vector<Tensor> out = kept(GemmInputs());
      right += out[0].ToVector<float>() == Floats{50, 122} &&
               out[1].ToVector<int64_t>()[0] == 1000 * number + i;
      right += Invoke("scratch", {Vector({1})}).at(0).ToVector<float>() == Floats{4};
      if (i % 10 == 0)
        failed += Contains(FailureOf("my_gemm", {Vector({1}), Vector({1})}), "my_gemm");
    }
  };
  std::thread one(work, 1), two(work, 2);
  one.join();
  two.join();
  CHECK(right == 200);
  CHECK(failed == 10);
}

TEST_CASE("a library is asked once, and told MXNet's version once") {
  Whole library;
  const Counters counters = ReadCounters();
  CHECK(counters.most_queries == 1);
  CHECK(counters.initialized == 1);
  CHECK(counters.version == 10901);
}

}  // namespace mxnet_operator_test
