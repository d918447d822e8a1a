// Graphs survive JSON to the bit, and whatever else a document holds is an Error that says where.
#include "opkit/interop/json.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include "made_library.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/op/check/check_data.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace json_test {
using namespace opkit;

namespace {

using Doubles = std::vector<double>;

double FromBits(uint64_t bits) { return std::bit_cast<double>(bits); }

// One tensor of every dtype, of bytes that are no numbers in any order that a decoder would like.
std::vector<Tensor> TensorsOfEveryDType() {
  std::vector<Tensor> out;
  for (int i = 1; i < static_cast<int>(DType::kString); ++i) {
    Tensor tensor({2, 3}, static_cast<DType>(i));
    auto* bytes = static_cast<unsigned char*>(tensor.raw_mutable_data());
    for (int64_t k = 0; k < tensor.nbytes(); ++k)
      bytes[k] = static_cast<unsigned char>(i == 1 ? k % 2 : 255 - 7 * k - i);
    out.push_back(tensor);
  }
  return out;
}

Graph Inner(int depth) {
  Graph g;
  g.AddInput("x", DType::kFloat32, {Dim()});
  g.AddConstant("w", Tensor::Scalar(0.1f));
  OperatorDef def = OperatorDef("Loop").Input("x").Output("y");
  if (depth > 0) def.Subgraph("body", MakeSubgraph(Inner(depth - 1)));
  g.AddNode(def);
  g.AddOutput("y");
  return g;
}

// Everything that a graph can hold.
Graph Whole() {
  Graph g;
  g.AddInput("X", DType::kFloat32, {Sym("N"), 3, Dim(), 0});
  g.AddInput("rank unknown", DType::kUndefined, {}, Device{DeviceType::kCUDA, 1});
  g.AddInput("scalar", DType::kBool, Shape{}, Device{static_cast<DeviceType>(93), 2});
  g.AddInput(
      {"with a default", {DType::kFloat32, {2, Dim()}}, Tensor::From<float>({2, 1}, {1, 2})});
  const auto tensors = TensorsOfEveryDType();
  for (const Tensor& tensor : tensors) g.AddConstant(ToString(tensor.dtype()), tensor);
  g.AddConstant("empty", Tensor({0, 2}, DType::kInt8));
  g.AddConstant("permuted", tensors[5].Permute({1, 0}));
  g.AddConstant("stream", [&] {
    Tensor tensor = tensors[3];
    tensor.SetDevice({DeviceType::kCPUStream, 1});
    return tensor;
  }());
  OperatorDef def("Every");
  def.Name("a \"name\" \\ with \n \t \x01 \xc3\xa9 and \xff bytes");
  def.Input("X").Input("").Input("scalar").Output("Y").Output("").Output("Z\xfe");
  def.ControlInput("other")
      .ControlInput("second")
      .Backends("eigen,DEFAULT", kRequired)
      .IsGradientOp(true);
  def.Device(DeviceType::kCPUStream, 3);
  def.Arg("int", INT64_MIN).Arg("ints", std::vector<int64_t>{INT64_MAX, INT64_MIN, 0, -1});
  def.Arg("float", FromBits(0x7ff8000000000000)).Arg("two", 2.0).Arg("minus zero", -0.0);
  def.Arg("floats", Doubles{0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e22, 123456789012345680.0,
                            FromBits(0x7ff0000000000000), FromBits(0xfff0000000000000),
                            FromBits(0x7ff8000000000000), FromBits(0xfff8000000000001),
                            FromBits(0x7ff4000000000000)});
  def.Arg("bool", true).Arg("bools", std::vector<bool>{true, false});
  def.Arg("string", std::string("nul \0 inside", 12)).Arg("bytes", "\xff\xfe");
  def.Arg("strings", Strings{"", "{\"int\": 3}", "\xed\xa0\x80"});
  def.Arg("tensor", tensors[7]).Arg("tensors", tensors);
  def.Arg("uninitialized", Tensor());
  def.Arg("no ints", std::vector<int64_t>()).Arg("no floats", Doubles());
  def.Arg("no bools", std::vector<bool>()).Arg("no strings", Strings());
  def.Arg("no tensors", std::vector<Tensor>()).Arg("", "a name of nothing");
  def.Subgraph("then_branch", MakeSubgraph(Inner(2)));
  def.Subgraph("else_branch", MakeSubgraph(Graph()));
  g.AddNode(def);
  g.AddNode(OperatorDef("Relu").Name("other").Input("late").Output("early"));
  g.AddNode(OperatorDef("Accumulate").Input("early").Input("X").Output("early"));
  g.AddNode(OperatorDef("NotRegistered").Output("late"));
  for (const char* output : {"Z\xfe", "Y", "float32", "never made"}) g.AddOutput(output);
  return g;
}

Graph Small() {
  Graph g;
  g.AddInput("X", DType::kFloat32, {Sym("N"), 3});
  g.AddConstant("W", Tensor::From<float>({2}, {1, 2}));
  g.AddNode(OperatorDef("Scale")
                .Input("X")
                .Output("Y")
                .Arg("alpha", 0.5)
                .Subgraph("body", MakeSubgraph(Inner(0))));
  g.AddOutput("Y");
  return g;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  return text.replace(at, from.size(), to);
}

// The error of the small graph with one thing changed.
std::string Wrong(const std::string& from, const std::string& to) {
  const Error error = ErrorOf([&] { LoadGraphJson(Replaced(SaveGraphJson(Small()), from, to)); });
  return error.what();
}

}  // namespace

TEST_CASE("everything survives, to the bit") {
  const Graph graph = Whole();
  const std::string text = SaveGraphJson(graph);
  const Graph loaded = LoadGraphJson(text);
  CHECK(SameGraph(loaded, graph));
  CHECK(SaveGraphJson(loaded) == text);
  const Arguments& args = loaded.node(0).args();
  CHECK(args.Names() == graph.node(0).args().Names());
  CHECK(args.Get<int64_t>("int") == INT64_MIN);
  CHECK(std::bit_cast<uint64_t>(args.Get<Doubles>("floats")[9]) == 0xfff8000000000001);
  CHECK(args.Find("two")->type() == AttributeType::kFloat);
  CHECK(args.Find("no bools")->type() == AttributeType::kBools);
  CHECK(loaded.inputs()[0].info.shape == SymbolicShape{Sym("N"), 3, Dim(), 0});
  CHECK_FALSE(loaded.inputs()[1].info.shape.has_rank());
  CHECK(loaded.FindConstant("permuted")->shape() == Shape{3, 2});
  CHECK(loaded.FindInput("with a default")->default_value.ToVector<float>() ==
        std::vector<float>{1, 2});
  CHECK(!loaded.FindInput("X")->has_default());
  Graph without = graph;
  without.SetDefault("with a default", Tensor::From<float>({2, 1}, {1, 3}));
  CHECK_FALSE(SameGraph(without, graph));
  CHECK(SameGraph(LoadGraphJson(SaveGraphJson(Graph())), Graph()));
}

TEST_CASE("strings and the types of sequences survive") {
  Graph graph;
  Graph::Input input{"s", TensorInfo(DType::kOptional, {Dim()})};
  input.info.element = DType::kString;
  input.info.holds_sequence = true;
  graph.AddInput(input);
  const Strings words{"", "\xc3\xa9", "\xff", "line\n"};
  graph.AddConstant("words", Tensor::From<std::string>({2, 2}, words));
  graph.AddOutput("words");
  const Graph back = LoadGraphJson(SaveGraphJson(graph));
  CHECK(back.inputs()[0].info.element == DType::kString);
  CHECK(back.inputs()[0].info.holds_sequence);
  CHECK(back.FindConstant("words")->shape() == Shape{2, 2});
  CHECK(back.FindConstant("words")->ToVector<std::string>() == words);
  const auto wrong = [](const char* data) -> std::string {
    return ErrorOf([&] {
             LoadGraphJson(StrCat(
                 R"({"format": "opkit graph", "version": 1, "inputs": [], "nodes": [], "constants": [)"
                 R"({"name": "w", "tensor": )",
                 R"({"dtype": "string", "shape": [2], "data": )", data,
                 R"(}}], "outputs": ["w"]})"));
           })
        .what();
  };
  CHECK(Contains(wrong(R"(["a"])"), "data: has 1 strings, but string[2] has 2"));
  CHECK(Contains(wrong(R"(["a", 3])"), "data[1]: expected a string"));
  CHECK(Contains(wrong(R"("YQ==")"), "data: expected an array of strings"));
}

TEST_CASE("the text reads well, and short forms may be left out") {
  CHECK(Contains(SaveGraphJson(Small()), R"( "format": "opkit graph",
 "version": 1,
 "inputs": [
  {
   "name": "X",
   "dtype": "float32",
   "shape": [
    "N",
    3
   ]
  }
 ],)"));
  CHECK(Contains(SaveGraphJson(Small()), R"("alpha": {
     "float": 0.5
    })"));
  const Graph written = LoadGraphJson(
      R"({"format": "opkit graph", "version": 1,
          "nodes": [{"type": "Ones", "outputs": ["Y"], "attributes": {"x": {"floats": [2, -0.5]}}}],
          "outputs": ["Y"]})");
  CHECK(written.node(0).args().Get<Doubles>("x") == Doubles{2, -0.5});
  CHECK(written.node(0).inputs().empty());
}

TEST_CASE("mistakes in a document are reported with their place") {
  CHECK(Contains(Wrong("0.5", "[]"),
                 "nodes[0].attributes.alpha.float: expected a number, found array"));
  CHECK(Contains(Wrong("0.5", "\"infinity\""),
                 "nodes[0].attributes.alpha.float: \"infinity\" is no number"));
  CHECK(Contains(Wrong("\"float\": 0.5", "\"flaot\": 0.5"),
                 "nodes[0].attributes.alpha: no attribute type is called 'flaot' (did you mean "
                 "'float'?"));
  CHECK(Contains(Wrong("\"float\": 0.5", "\"int\": 0.5"),
                 "nodes[0].attributes.alpha.int: expected an integer, found number"));
  CHECK(Contains(Wrong("\"float\": 0.5", "\"int\": 9223372036854775808"),
                 "alpha.int: 9223372036854775808 does not fit in int64"));
  CHECK(Contains(Wrong("\"float\": 0.5", "\"ints\": [1, 2.5]"), "alpha.ints[1]: expected an int"));
  CHECK(Contains(Wrong("\"float\": 0.5", "\"bool\": 1"), "alpha.bool: expected true or false"));
  CHECK(Contains(Wrong("\"float\": 0.5", ""), "alpha: expected an object with one member"));
  CHECK(Contains(Wrong("\"float32\"", "\"float31\""),
                 "inputs[0].dtype: no dtype is called 'float31' (did you mean 'float32'?"));
  CHECK(Contains(Wrong("3\n", "-3\n"), "inputs[0].shape[1]: extent -3 is negative"));
  CHECK(Contains(Wrong("\"N\"", "\"\""), "inputs[0].shape[0]: a symbol needs a name"));
  CHECK(Contains(Wrong("\"type\": \"Scale\",", ""), "nodes[0]: needs the member 'type'"));
  CHECK(Contains(Wrong("\"type\": \"Scale\",", "\"type\": \"\","),
                 "nodes[0]: a node needs the name of an operator"));
  CHECK(Contains(Wrong("\"attributes\"", "\"atributes\""),
                 "nodes[0]: has no member 'atributes' (did you mean 'attributes'?"));
  CHECK(Contains(Wrong("\"AACAPwAAAEA=\"", "\"AACAPwAA\""),
                 "constants[0].tensor.data: holds 6 bytes, but float32[2] has 8"));
  CHECK(Contains(Wrong("\"AACAPwAAAEA=\"", "\"AACAPw!AAEA=\""), "tensor.data: is not base64"));
  CHECK(Contains(Wrong("2\n", "2, 4611686018427387904, 4611686018427387904\n"),
                 "constants[0].tensor.shape: "));
  CHECK(Contains(Wrong("\"name\": \"W\"", "\"name\": \"X\""),
                 "constants[0]: value 'X' is made by an input of the graph already"));
  CHECK(Contains(Wrong("\"outputs\": [\n  \"Y\"", "\"outputs\": [\n  7"),
                 "outputs[0]: expected a string, found number"));
  CHECK(Contains(Wrong("\"Loop\"", "5"),
                 "nodes[0].subgraphs.body.nodes[0].type: expected a string, found number"));
  CHECK(Contains(Wrong("\"type\": \"Scale\",", "\"type\": \"Scale\", \"device\": \"gpu:0\","),
                 "nodes[0].device: no device type is called 'gpu' (did you mean 'cpu'?"));
  CHECK(Contains(Wrong("\"type\": \"Scale\",", "\"type\": \"Scale\", \"device\": \"cpu:x\","),
                 "nodes[0].device: device \"cpu:x\" has no number"));
  CHECK(Contains(Wrong("\"version\": 1", "\"version\": 2"),
                 "version: 2 cannot be read; this program reads versions 1 to 1"));
  CHECK(Contains(Wrong("opkit graph", "onnx"), "format: expected \"opkit graph\""));
  CHECK(Contains(Wrong("\"alpha\": {", "\"alpha\": {\"int\": 1}, \"alpha\": {"),
                 "the document has the member 'alpha' twice in one object"));
  CHECK(Contains(Wrong("\"nodes\": [", "\"nodes\": [}"),
                 "the document is not JSON: parse error at line"));
  CHECK(Contains(ErrorOf([&] { LoadGraphJson(""); }).what(), "the document is not JSON"));
  CHECK(Contains(ErrorOf([&] { LoadGraphJson("[]"); }).what(),
                 "the document: expected an object, found array"));
  CHECK(Contains(ErrorOf([&] { LoadGraphJson("{}"); }).what(), "needs the member 'format'"));
}

TEST_CASE("a bool tensor holds nothing but bools") {
  Graph g;
  g.AddConstant("b", Tensor::From<bool>({3}, {true, false, true}));
  CHECK(Contains(
      ErrorOf([&] { LoadGraphJson(Replaced(SaveGraphJson(g), "\"AQAB\"", "\"AQIB\"")); }).what(),
      "constants[0].tensor.data: holds a byte that is no bool"));
}

TEST_CASE("a graph that cannot be saved is an error with the place") {
  class Foreign final : public detail::SubgraphBase {
   public:
    bool Equals(const detail::SubgraphBase&) const override { return false; }
    std::string Describe() const override { return "foreign"; }
  };
  const auto error_of = [](OperatorDef def) {
    Graph g;
    g.AddNode(std::move(def));
    return ErrorOf([&] { SaveGraphJson(g); });
  };
  const Error foreign =
      error_of(OperatorDef("If").Subgraph("then", detail::MakeIntrusive<Foreign>()));
  CHECK(foreign.code() == ErrorCode::kUnsupported);
  CHECK(Contains(foreign.what(), "nodes[0].subgraphs.then: is not a Graph: foreign"));
  CHECK(Contains(error_of(OperatorDef("A").Arg("\xff", 1)).what(), "nodes[0].attributes: a name"));
  Tensor blocked = Tensor::From<float>({2}, {1, 2});
  blocked = Tensor::FromLayout(blocked.storage(), {2}, DType::kFloat32, Layout{7, {}});
  CHECK(Contains(error_of(OperatorDef("A").Arg("t", std::vector<Tensor>{Tensor(), blocked})).what(),
                 "nodes[0].attributes.t[1]: tensor float32[2] on cpu in layout 7"));
}

TEST_CASE("nesting is limited where the stack would end") {
  constexpr int kMostDepth = 64;
  Graph deep = Inner(kMostDepth);
  CHECK(SameGraph(LoadGraphJson(SaveGraphJson(deep)), deep));
  deep = Inner(kMostDepth + 1);
  CHECK(ErrorOf([&] { SaveGraphJson(deep); }).code() == ErrorCode::kUnsupported);
  CHECK(Contains(ErrorOf([&] { LoadGraphJson(std::string(1'000'000, '[')); }).what(),
                 "the document is nested more than"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  CHECK(ErrorOf([&] { LoadGraphJson(objects); }).code() == ErrorCode::kUnsupported);
}

// A library's operators, in the graph and in the bodies of an operator that no library brought.
Graph OfLibraries() {
  Graph inner;
  inner.AddInput("x", DType::kFloat32, {Dim()});
  inner.AddNode(OperatorDef("JsonMadeChain", {"x"}, {"t"}));
  inner.AddNode(OperatorDef("JsonMadeOther", {"t"}, {"y"}));
  inner.AddOutput("y");
  Graph g;
  g.AddInput("X", DType::kFloat32, {2});
  g.AddNode(OperatorDef("JsonMadeChain", {"X"}, {"A"}).Name("first"));
  g.AddNode(OperatorDef("Loop", {"A"}, {"B"}).Subgraph("body", MakeSubgraph(std::move(inner))));
  g.AddOutput("B");
  return g;
}
const char* const kJsonMade[] = {"JsonMadeChain", "JsonMadeOther"};
using made_library::MadeLibrary;

TEST_CASE("nodes name the library of their operator, without a folder") {
  const std::string before = SaveGraphJson(OfLibraries());
  CHECK_FALSE(Contains(before, "library"));
  {
    const MadeLibrary library("folder/libmade.so", nullptr, "1.2 beta", {kJsonMade[0]});
    const MadeLibrary other("libother.so", "folder/others", nullptr, {kJsonMade[1]});
    const std::string text = SaveGraphJson(OfLibraries());
    CHECK(Contains(text, R"(   "type": "JsonMadeChain",
   "name": "first",
   "library": {
    "name": "libmade.so",
    "version": "1.2 beta"
   },
)"));
    CHECK(Contains(text, R"("library": {
        "name": "others"
       },
)"));
    CHECK_FALSE(Contains(text, "folder"));
    const Graph loaded = LoadGraphJson(text);
    CHECK(SameGraph(loaded, OfLibraries()));
    CHECK(SaveGraphJson(loaded) == text);
  }
  CHECK(SaveGraphJson(OfLibraries()) == before);
}

TEST_CASE("one that is loaded twice has the same name in files") {
  const MadeLibrary first("libmade.so", nullptr, "1", {"JsonMadeOther"});
  const MadeLibrary second("libmade.so", nullptr, "1", {"JsonMadeChain"});
  CHECK(second.loaded().name() == "libmade.so (2)");
  const std::string text = SaveGraphJson(OfLibraries());
  CHECK(Contains(text, "\"libmade.so\""));
  CHECK_FALSE(Contains(text, "(2)"));
}

TEST_CASE("a graph whose libraries are missing is one error that names them all") {
  std::string text;
  {
    const MadeLibrary library("libmade.so", nullptr, "1.2", {kJsonMade[0]});
    const MadeLibrary other("libother.so", nullptr, nullptr, {kJsonMade[1]});
    text = SaveGraphJson(OfLibraries());
  }
  const Error error = ErrorOf([&] { LoadGraphJson(text); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(error.message() ==
        "the graph needs operators that this program lacks: operator JsonMadeChain of library "
        "libmade.so, version 1.2 (nodes[0] and 1 more node); operator JsonMadeOther of library "
        "libother.so (nodes[1].subgraphs.body.nodes[1]); load the library before the graph, by "
        "Library::Load or opkit's option --library");
  // Another version of it will do, and so will an operator of another library.
  const MadeLibrary newer("libmade.so", nullptr, "2.0", {kJsonMade[0]});
  CHECK(Contains(ErrorOf([&] { LoadGraphJson(text); }).message(),
                 "lacks: operator JsonMadeOther of library libother.so (nodes[1]"));
  const MadeLibrary another("libanother.so", nullptr, nullptr, {kJsonMade[1]});
  CHECK(SameGraph(LoadGraphJson(text), OfLibraries()));
}

TEST_CASE("mistakes about a node's library are reported with their place") {
  const auto wrong = [](const char* library) {
    return Wrong(R"("type": "Scale",)", StrCat(R"("type": "Scale", "library": )", library, ","));
  };
  CHECK(Contains(wrong("\"libmade.so\""), "nodes[0].library: expected an object, found string"));
  CHECK(Contains(wrong("null"), "nodes[0].library: expected an object, found null"));
  CHECK(Contains(wrong("{}"), "nodes[0].library: needs the member 'name'"));
  CHECK(Contains(wrong(R"({"name": 3})"), "nodes[0].library.name: expected a string"));
  CHECK(Contains(wrong(R"({"name": "a", "version": [1]})"),
                 "nodes[0].library.version: expected a string"));
  CHECK(Contains(wrong(R"({"name": "a", "versoin": "1"})"), "did you mean 'version'?"));
  CHECK(Contains(wrong(R"({"name": {"base64": "/w=="}})"),
                 "operator Scale of library \xff (nodes[0])"));
}

TEST_CASE("a document that was cut or changed is loaded whole or refused") {
  const std::string whole = SaveGraphJson(Whole()), small = SaveGraphJson(Small());
  for (size_t length = 0; length + 2 < small.size(); ++length) {  // without the last brace
    CAPTURE(length);
    CHECK(ErrorOf([&] { LoadGraphJson(small.substr(0, length)); }).code() ==
          ErrorCode::kInvalidArgument);
  }
  int loaded = 0, refused = 0;
  const Strings pieces{"\"",
                       "{",
                       "}",
                       "[",
                       "]",
                       ",",
                       ":",
                       "null",
                       "-1",
                       "1e999",
                       "true",
                       "\\u0000",
                       "\"device\": \"cuda\",",
                       "9223372036854775807",
                       "\xff",
                       "",
                       "0"};
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    CAPTURE(seed);
    detail::CheckRandom random(seed);
    std::string text = seed % 4 == 0 ? whole : small;
    for (uint64_t changes = 1 + random.Next() % 3; changes > 0; --changes) {
      const size_t at = random.Next() % text.size(), length = random.Next() % 8;
      const bool is_letter = (text[at] | 32) >= 'a' && (text[at] | 32) <= 'z';
      if (seed % 2 && (is_letter || (text[at] >= '0' && text[at] <= '9'))) {
        text[at] =
            static_cast<char>(is_letter ? 'A' + random.Next() % 26 : '0' + random.Next() % 10);
        continue;
      }
      const std::string piece = random.Next() % 2
                                    ? pieces[random.Next() % pieces.size()]
                                    : std::string(1, static_cast<char>(random.Next() % 256));
      text = text.substr(0, at) + piece + text.substr((std::min)(text.size(), at + length));
    }
    try {
      const Graph graph = LoadGraphJson(text);
      ++loaded;
      CHECK(SameGraph(LoadGraphJson(SaveGraphJson(graph)), graph));
    } catch (const Error& error) {
      ++refused;
      CHECK(error.what()[0] != '\0');
    }
  }
  CHECK(loaded > 50);
  CHECK(refused > 1000);
}

// The seeds of tests/fuzz/graph_json_corpus; OPKIT_FUZZ_CORPUS names the folder to write them to.
TEST_CASE("the seeds of the fuzz target are graphs that load") {
  Graph attributes;
  OperatorDef def("A");
  def.Arg("i", INT64_MIN).Arg("f", FromBits(0x7ff8000000000000)).Arg("s", "\xff").Arg("b", true);
  def.Arg("t", Tensor::From<float>({2}, {1, 2})).Arg("l", Doubles{0.5, -0.0});
  attributes.AddNode(def.Device(DeviceType::kCPUStream, 1).ControlInput("B").IsGradientOp(true));
  attributes.AddNode(OperatorDef("B").Name("B").Output("y"));
  const std::pair<const char*, Graph> seeds[] = {
      {"empty", Graph()}, {"small", Small()}, {"attributes", attributes}, {"nested", Inner(2)}};
  const char* folder = std::getenv("OPKIT_FUZZ_CORPUS");
  for (const auto& [name, graph] : seeds) {
    const std::string text = SaveGraphJson(graph);
    CHECK(SameGraph(LoadGraphJson(text), graph));
    if (!folder) continue;
    std::FILE* file = std::fopen(StrCat(folder, "/", name, ".json").c_str(), "wb");
    REQUIRE(file != nullptr);
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }
}

TEST_CASE("a constant whose elements were released is an Error that names it") {
  Graph graph;
  graph.AddConstant("w", Tensor::Scalar(1.f)).ReleaseConstant("w");
  const Error error = ErrorOf([&] { SaveGraphJson(graph); });
  CHECK(error.code() == ErrorCode::kUninitialized);
  CHECK(Contains(error.what(), "constants[0]: constant 'w' has no data to write"));
}

}  // namespace json_test
