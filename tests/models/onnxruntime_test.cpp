// The library of examples/partition/onnxruntime_ep.cc: parts of graphs run in ONNX Runtime, where
// its shared object is found.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "expected.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/graph_subgraph.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/interop/onnx.hpp"
#include "opkit/plugin/library.hpp"
#include "support/error_of.hpp"

namespace onnxruntime_test {
using namespace opkit;

namespace {

// The option, none where the shared object is not found.
PartitionArguments RuntimeOption() {
  std::string path = OPKIT_TEST_ONNXRUNTIME;
  if (const char* variable = std::getenv("OPKIT_ONNXRUNTIME")) path = variable;
  if (path.empty()) return {};
  return {{"runtime", path}};
}
PartitionArguments Taking(const std::string& ops) {
  PartitionArguments options = RuntimeOption();
  options.emplace_back("ops", ops);
  return options;
}
// y = -QuickGelu(-x), of ONNX Runtime's own domain.
Graph QuickGeluGraph() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {Sym("N")});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}));
  graph.AddNode(OperatorDef("com.microsoft.QuickGelu", {"a"}, {"b"}).Arg("alpha", 2.f));
  graph.AddNode(OperatorDef("Neg", {"b"}, {"y"}));
  graph.AddOutput("y");
  return graph;
}

}  // namespace

TEST_CASE("without ONNX Runtime the library that needs it gives an error") {
  const Library library = Library::Load(OPKIT_TEST_ONNXRUNTIME_EP);
  const Graph graph = QuickGeluGraph();
  const Error missing = ErrorOf([&] {
    Partition(graph, "onnxruntime", {{"runtime", "/no/such/file.so"}});
  });
  CHECK(Contains(missing.what(), "ONNX Runtime cannot be loaded: "));
  CHECK(Contains(missing.what(), "/no/such/file.so"));
  const Error wrong = ErrorOf([&] {
    Partition(graph, "onnxruntime", {{"runtime", OPKIT_TEST_ONNXRUNTIME_EP}});
  });
  CHECK(Contains(wrong.what(), "is not ONNX Runtime"));
  const Error option = ErrorOf([&] { Partition(graph, "onnxruntime", {{"opps", "Neg"}}); });
  CHECK(Contains(option.what(), "there is no option 'opps'"));
}

TEST_CASE("ONNX Runtime runs an operator that the program lacks") {
  if (RuntimeOption().empty()) {
    MESSAGE("skipped: no ONNX Runtime");
    return;
  }
  const Library library = Library::Load(OPKIT_TEST_ONNXRUNTIME_EP);
  const Graph graph = QuickGeluGraph();
  CHECK(ErrorOf([&] { Compile(graph); }).code() == ErrorCode::kNotFound);
  const Plan plan =
      Compile(graph, {.partitioners = {{"onnxruntime", Taking("com.microsoft.QuickGelu")}}});
  CHECK(plan.partition_report().num_taken() == 1);
  Executor executor(plan);
  for (const std::vector<float>& x : {std::vector<float>{-1, 0, 2}, std::vector<float>{0.5f}}) {
    const Tensor input = Tensor::From<float>({static_cast<int64_t>(x.size())}, x);
    const std::vector<float> y = executor.Run({{"x", input}}).Get("y").ToVector<float>();
    REQUIRE(y.size() == x.size());
    for (size_t i = 0; i < x.size(); ++i)  // QuickGelu(v) = v * sigmoid(alpha * v)
      CHECK(y[i] == doctest::Approx(x[i] / (1 + std::exp(2 * x[i]))));
  }
}

TEST_CASE("nodes that ONNX Runtime refuses stay, and the report has the reason") {
  if (RuntimeOption().empty()) {
    MESSAGE("skipped: no ONNX Runtime");
    return;
  }
  const Library library = Library::Load(OPKIT_TEST_ONNXRUNTIME_EP);
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("NobodyHasIt", {"x"}, {"y"}));
  graph.AddOutput("y");
  PartitionReport report;
  CHECK(SameGraph(Partition(graph, "onnxruntime", Taking("NobodyHasIt"), &report), graph));
  CHECK(Contains(ToString(report), "NobodyHasIt"));
  CHECK(Contains(ToString(report), "ONNX Runtime: "));
}

TEST_CASE("the model of rapidocr reads lines with its convolutions in ONNX Runtime") {
  if (RuntimeOption().empty()) {
    MESSAGE("skipped: no ONNX Runtime");
    return;
  }
  const Library library = Library::Load(OPKIT_TEST_ONNXRUNTIME_EP);
  const Graph graph = LoadOnnx(DataFolder() +
                               "/rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models/"
                               "ch_PP-OCRv4_rec_infer.onnx");
  Executor executor(Compile(graph, {.partitioners = {{"onnxruntime", Taking("Conv")}}}));
  for (const OperatorDef& node : executor.plan().graph().nodes()) CHECK(node.type() != "Conv");
  CHECK(executor.plan().partition_report().num_taken() > 20);
  Executor whole(Compile(graph));
  for (const auto& inputs : {Picture(1, 48, 100), Picture(2, 48, 100)}) {
    const NamedTensors expected = whole.Run(inputs), found = executor.Run(inputs);
    REQUIRE(found.size() == expected.size());
    for (const auto& [name, tensor] : expected)
      CHECK(Difference(found.Get(name), tensor, kModelTolerance) == "");
  }
}

TEST_CASE("ONNX Runtime runs a whole model") {
  if (RuntimeOption().empty()) {
    MESSAGE("skipped: no ONNX Runtime");
    return;
  }
  const Library library = Library::Load(OPKIT_TEST_ONNXRUNTIME_EP);
  const Graph graph =
      LoadOnnx(DataFolder() + "/magika-1.0.3/magika/models/standard_v3_3/model.onnx");
  Executor executor(Compile(graph, {.partitioners = {{"onnxruntime", RuntimeOption()}}}));
  CHECK(executor.plan().graph().num_nodes() == 1);
  const auto inputs = FileBytes(1, ReadAll(OPKIT_LICENSE));
  for (const auto& [name, tensor] : Executor(Compile(graph)).Run(inputs))
    CHECK(Difference(executor.Run(inputs).Get(name), tensor, kModelTolerance) == "");
}

}  // namespace onnxruntime_test
