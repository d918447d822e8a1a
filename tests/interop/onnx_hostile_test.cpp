// Files that are cut, damaged or made to do harm: always an Error, never more memory than the file
// stands for.
#include <doctest/doctest.h>

#include <random>

#include "any_operator.hpp"
#include "opkit/interop/onnx.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/onnx_bytes.hpp"

namespace onnx_hostile_test {
using namespace opkit;
using onnx_bytes::AttributeProto;
using onnx_bytes::FloatTensor;
using OnnxGraph = onnx_bytes::Graph;

namespace {

// A model with a bit of everything.
std::string Everything() {
  const std::string branch = OnnxGraph("branch")
                                 .Node("Mul", {"x", "w"}, {"m"})
                                 .Node("local_f", {"m"}, {"r"}, {}, "", "local")
                                 .Output("r", {"N"})
                                 .bytes;
  return OnnxGraph("main")
      .Input("x", {"N", 2})
      .Input("c", {}, onnx_bytes::kBool)
      .Initializer(FloatTensor("w", {2}, {1, 2}))
      .Node("Constant", {}, {"k"}, {AttributeProto::Ints("value_ints", {1, 2, 3})})
      .Node("Squeeze", {"x"}, {"s"}, {AttributeProto::Ints("axes", {0})}, "squeeze")
      .Node("Softmax", {"s"}, {"t"}, {AttributeProto::Int("axis", 0)})
      .Node("If", {"c"}, {"y"},
            {AttributeProto::Graph("then_branch", branch),
             AttributeProto::Graph("else_branch", branch)},
            "choose")
      .ValueInfo("s", {2})
      .Output("y")
      .Output("t")
      .Model(11, {onnx_bytes::Function("local", "local_f", {"a"}, {"b"},
                                       {onnx_bytes::Node("Relu", {"a"}, {"b"})}, {}, {}, 11)});
}
// True when the bytes are a model; anything but an Error or a model fails the test.
bool Reads(const std::string& bytes) {
  try {
    ParseOnnxModel(bytes, AnyOperator());
    return true;
  } catch (const Error& error) {
    CHECK(error.message().size() > 10);
    return false;
  }
}

}  // namespace

TEST_CASE("A model cut anywhere is an Error, or a smaller model") {
  const std::string whole = Everything();
  CHECK(Reads(whole));
  size_t models = 0;
  for (size_t size = 0; size < whole.size(); ++size) models += Reads(whole.substr(0, size));
  CHECK(models < 8);  // where a field of the model itself ends behind its graph
}

TEST_CASE("A model with any bytes changed is an Error or a model") {
  const std::string whole = Everything();
  std::random_device entropy;
  const uint32_t seed = entropy();
  CAPTURE(seed);
  std::mt19937 random(seed);
  int models = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(random());
    models += Reads(changed);
  }
  for (int i = 0; i < 2000; ++i) {
    std::string changed = whole;
    for (int k = 0; k < 3; ++k) changed[random() % changed.size()] = static_cast<char>(random());
    models += Reads(changed);
  }
  CHECK(models > 0);  // names may be anything
}

TEST_CASE("A count of nodes beyond the limit is an Error") {
  OnnxGraph graph;
  for (int i = 0; i < 11; ++i) graph.Node("Op", {}, {});
  OnnxOptions options = AnyOperator();
  options.max_nodes = 10;
  CHECK(ErrorOf([&] { ParseOnnxModel(graph.Model(), options); }).message() ==
        "the model has more than 10 nodes, its functions written out; raise "
        "OnnxOptions::max_nodes if that is right");
  options.max_nodes = 11;
  CHECK(ParseOnnxModel(graph.Model(), options).graph.num_nodes() == 11);
}

TEST_CASE("Lists of names without an end are an Error") {
  const Strings many(20000, "x");
  const auto what = [](const OnnxGraph& graph) {
    return ErrorOf([&] { ParseOnnxModel(graph.Model(), AnyOperator()); }).message();
  };
  CHECK(Contains(what(OnnxGraph().Node("Op", many, {}, {}, "n")), "it has more than 16384 inputs"));
  CHECK(Contains(what(OnnxGraph().Node("Op", {}, many)), "it has more than 16384 outputs"));
  OnnxGraph outputs;
  for (const std::string& name : many) outputs.Output(name);
  CHECK(Contains(what(outputs), "it has more than 16384 outputs"));
  const std::vector<onnx_bytes::Extent> extents(65, 1);
  CHECK(
      Contains(what(OnnxGraph().Input("x", extents)), "input 'x': it has more than 64 dimensions"));
}

TEST_CASE("The error for a file that is no ONNX file says so") {
  const auto what = [](const std::string& bytes) {
    return ErrorOf([&] { ParseOnnxModel(bytes); }).message();
  };
  CHECK(what("") == "the model has no graph; is it an ONNX file?");
  CHECK(Contains(what("{\"format\": \"opkit graph\"}"), "damaged"));
  CHECK(Contains(what(std::string(100, '\0')), "damaged"));
  std::string graph_as_number;
  protozero::pbf_writer(graph_as_number).add_int64(7, 1);
  CHECK(what(graph_as_number) ==
        "field 7 should hold bytes, but its wire type is 0; the file is damaged, or not an ONNX "
        "file");
}

TEST_CASE("A damaged node is named as far as its name was read") {
  std::string node = onnx_bytes::Node("Conv", {"x"}, {"y"}, {}, "conv1");
  protozero::pbf_writer(node).add_message(5, std::string("\x0a\x04name\xff\xff"));
  const std::string text =
      ErrorOf([&] { ParseOnnxModel(OnnxGraph().Add(node).Model()); }).message();
  CHECK(Contains(text, "node 'conv1' (Conv): "));
  CHECK(Contains(text, "damaged"));
}

TEST_CASE("An attribute that refers to a function's, outside functions, is an Error") {
  const auto what = [](const std::string& type, const char* name, int attribute_type) {
    return ErrorOf([&] {
             ParseOnnxModel(
                 OnnxGraph()
                     .Node(type, {}, {"y"}, {AttributeProto::Ref(name, attribute_type, "v")}, "n")
                     .Model(),
                 AnyOperator());
           })
        .message();
  };
  const std::string text = ": it refers to the attribute 'v' of a function, but is in none";
  CHECK(what("Constant", "value", 4) == "node 'n' (Constant): attribute 'value'" + text);
  CHECK(what("Constant", "value_int", 2) == "node 'n' (Constant): attribute 'value_int'" + text);
  CHECK(what("If", "then_branch", 5) == "node 'n' (If): attribute 'then_branch'" + text);
  CHECK(what("Op", "k", 2) == "node 'n' (Op): attribute 'k'" + text);
}

TEST_CASE("A function defined twice is an Error") {
  const auto function = [](const char* name, const char* type) {
    return onnx_bytes::Function("local", name, {"a"}, {"r"},
                                {onnx_bytes::Node(type, {"a"}, {"r"})});
  };
  const OnnxGraph graph = OnnxGraph().Input("x").Node("g", {"x"}, {"y"}, {}, "", "local");
  const Error error = ErrorOf([&] {
    ParseOnnxModel(
        graph.Model(21, {function("f", "Neg"), function("f", "Neg"), function("g", "Abs")}),
        AnyOperator());
  });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() == "function 'f' of domain 'local' is defined twice");
}

TEST_CASE("A default without a name is an Error that names the function") {
  const std::string function =
      onnx_bytes::Function("local", "f", {}, {}, {}, {}, {AttributeProto::Int("", 1)});
  CHECK(ErrorOf([&] { ParseOnnxModel(OnnxGraph().Model(21, {function})); }).message() ==
        "function 'f': an attribute of it has no name");
}

TEST_CASE("Attributes that functions pass to many nodes are counted") {
  // f has `count` nodes that read its attributes s and k, and the call or the defaults give them.
  const auto what = [](int count, const std::vector<AttributeProto>& given,
                       const std::vector<AttributeProto>& defaults) {
    const std::string node = onnx_bytes::Node(
        "Op", {}, {}, {AttributeProto::Ref("s", 3, "s"), AttributeProto::Ref("k", 7, "k")});
    const std::string function = onnx_bytes::Function(
        "local", "f", {}, {}, Strings(static_cast<size_t>(count), node), {"s", "k"}, defaults);
    return ErrorOf([&] {
             ParseOnnxModel(
                 OnnxGraph().Node("f", {}, {}, given, "call", "local").Model(21, {function}),
                 AnyOperator());
           })
        .message();
  };
  const AttributeProto text = AttributeProto::String("s", std::string(1 << 20, 's'));
  const AttributeProto numbers = AttributeProto::Ints("k", Ints(8000, 1));
  const std::string many =
      "node 'call' (local.f): function 'f': with its functions written out the model has more than "
      "1073741824 bytes of nodes";
  CHECK(what(1100, {text}, {}) == many);
  CHECK(what(1100, {}, {text}) == many);
  // 950 MiB of text, which is not copied before the limit is reached, and 115 MiB of numbers
  CHECK(what(950, {text, numbers}, {}) == many);
  CHECK(what(950, {text}, {numbers}) == many);
}

TEST_CASE("Graphs that functions pass as attributes are counted") {
  // f<i> calls f<i-1> with a graph that holds its own one `copies` times, in `levels` graphs.
  const auto what = [](int depth, int copies, int levels = 1) {
    const AttributeProto own = AttributeProto::Ref("g", 5, "g");
    Strings functions{onnx_bytes::Function("local", "f0", {}, {},
                                           {onnx_bytes::Node("Op", {}, {}, {own})}, {"g"})};
    OnnxGraph graph;
    for (int i = 0; i < copies; ++i) graph.Node("Op", {}, {}, {own});
    for (int i = 1; i < levels; ++i)
      graph = OnnxGraph().Node("Op", {}, {}, {AttributeProto::Graph("g", graph.bytes)});
    for (int i = 1; i <= depth; ++i)
      functions.push_back(onnx_bytes::Function(
          "local", "f" + std::to_string(i), {}, {},
          {onnx_bytes::Node("f" + std::to_string(i - 1), {}, {},
                            {AttributeProto::Graph("g", graph.bytes)}, "", "local")},
          {"g"}));
    OnnxOptions options = AnyOperator();
    options.max_nodes = 10000;
    const AttributeProto first = AttributeProto::Graph("g", OnnxGraph().Node("Op", {}, {}).bytes);
    return ErrorOf([&] {
             ParseOnnxModel(OnnxGraph()
                                .Node("f" + std::to_string(depth), {}, {}, {first}, "call", "local")
                                .Model(21, functions),
                            options);
           })
        .message();
  };
  CHECK(what(4, 2) == "no Error was thrown");
  CHECK(what(63, 1) == "no Error was thrown");
  CHECK(Contains(what(30, 2), "the model has more than 10000 nodes, its functions written out"));
  CHECK(Contains(what(63, 1, 60), "graphs are nested more than 64 deep"));
}

}  // namespace onnx_hostile_test
