// The definitions of interop/json.hpp: a writer and a reader.
#ifndef OPKIT_INTEROP_IMPL_JSON_IPP_
#define OPKIT_INTEROP_IMPL_JSON_IPP_

#include "opkit/graph/subgraph.hpp"
#include "opkit/interop/json.hpp"
#include "opkit/interop/json_values.hpp"
#include "opkit/interop/missing_operators.hpp"
#include "opkit/interop/parse_json.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline constexpr const char* kGraphFormat = "opkit graph";
inline constexpr int64_t kGraphVersion = 1;  // the reader also accepts older versions
inline constexpr int kMaxGraphDepth = 64;    // limit for graphs inside graphs
static_assert(5 * kMaxGraphDepth <= kMaxJsonDepth);

// Writes graphs as JSON.
class GraphJsonWriter {
 public:
  // Writes the members of a graph, with its subgraphs.
  static void Write(const Graph& graph, const std::string& path, int depth, Json& out) {
    if (depth > kMaxGraphDepth)
      ThrowAtPath(path, StrCat("graphs are nested more than ", kMaxGraphDepth, " deep"),
                  ErrorCode::kUnsupported);
    for (const char* list : {"inputs", "constants", "nodes"}) out[list] = Json::array();
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const Graph::Input& input = graph.inputs()[i];
      Json item = {{"name", ToJson(input.name)}, {"dtype", ToString(input.info.dtype)}};
      item["shape"] = ToJson(input.info.shape);
      if (input.info.element != DType::kUndefined) {
        item["element"] = ToString(input.info.element);
        if (input.info.holds_sequence) item["holds_sequence"] = true;
      }
      if (input.info.device != Device{}) item["device"] = ToJson(input.info.device);
      if (input.has_default())
        item["default"] =
            ToJson(input.default_value, Member(Element(Member(path, "inputs"), i), "default"));
      out["inputs"].push_back(std::move(item));
    }
    for (size_t i = 0; i < graph.constants().size(); ++i) {
      const Graph::Constant& constant = graph.constants()[i];
      const std::string at = Element(Member(path, "constants"), i);
      if (!constant.value.initialized())
        ThrowAtPath(at, StrCat("constant '", constant.name, "' has no data to write"),
                    ErrorCode::kUninitialized);
      Json item = {{"name", ToJson(constant.name)}};
      item["tensor"] = ToJson(constant.value, Member(at, "tensor"));
      out["constants"].push_back(std::move(item));
    }
    for (int i = 0; i < graph.num_nodes(); ++i)
      out["nodes"].push_back(
          Node(graph.node(i), Element(Member(path, "nodes"), static_cast<size_t>(i)), depth));
    out["outputs"] = Strings(graph.outputs());
  }

 private:
  static Json Strings(const std::vector<std::string>& strings) {
    Json out = Json::array();
    for (const std::string& text : strings) out.push_back(ToJson(text));
    return out;
  }
  // Checks that a name can be the name of a JSON member: it must be UTF-8.
  static const std::string& Key(const std::string& name, const std::string& path) {
    if (!IsUtf8(name)) ThrowAtPath(path, "a name here must be UTF-8", ErrorCode::kUnsupported);
    return name;
  }
  static Json Node(const OperatorDef& def, const std::string& path, int depth) {
    Json out = {{"type", ToJson(def.type())}};
    if (!def.name().empty()) out["name"] = ToJson(def.name());
    if (const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
        schema && !schema->library_name().empty()) {
      out["library"] = {{"name", ToJson(schema->library_name())}};
      if (!schema->library_version().empty())
        out["library"]["version"] = ToJson(schema->library_version());
    }
    out["inputs"] = Strings(def.inputs());
    out["outputs"] = Strings(def.outputs());
    if (!def.control_inputs().empty()) out["control_inputs"] = Strings(def.control_inputs());
    const std::string attributes = Member(path, "attributes");
    for (const NamedAttribute& item : def.args())
      out["attributes"][Key(item.name, attributes)] =
          ToJson(item.value, Member(attributes, item.name));
    const std::string subgraphs = Member(path, "subgraphs");
    for (const NamedSubgraph& item : def.subgraphs()) {
      const Graph* graph = GraphOf(*item.graph);
      const std::string at = Member(subgraphs, Key(item.name, subgraphs));
      if (!graph)
        ThrowAtPath(at, StrCat("is not a Graph: ", item.graph->Describe()),
                    ErrorCode::kUnsupported);
      Json inner = Json::object();
      Write(*graph, at, depth + 1, inner);
      out["subgraphs"][item.name] = std::move(inner);
    }
    if (def.device() != ::opkit::Device{}) out["device"] = ToJson(def.device());
    if (!def.backends().empty()) out["engine"] = ToJson(def.backends());
    if (def.requires_backends()) out["requires_engine"] = true;
    if (def.process() >= 0) out["process"] = def.process();
    if (def.is_gradient_op()) out["is_gradient_op"] = true;
    return out;
  }
};

// Reads graphs from JSON and collects missing operators of libraries.
class GraphJsonReader {
 public:
  static Graph Read(std::string_view text) {
    const Json json = ParseJson(text);
    const JsonObject object(json, "", Members(true));
    const Json& format = object.Get("format");
    if (format != kGraphFormat) ThrowAtPath("format", StrCat("expected \"", kGraphFormat, "\""));
    const int64_t version = object.Read("version", IntFromJson);
    if (version < 1 || version > kGraphVersion)
      ThrowAtPath(
          "version",
          StrCat(version, " cannot be read; this program reads versions 1 to ", kGraphVersion),
          ErrorCode::kUnsupported);
    GraphJsonReader reader;
    Graph graph = reader.ReadGraph(object, 0);
    reader.missing_.ThrowIfAny();
    return graph;
  }

 private:
  static std::vector<std::string> Members(bool outermost) {
    std::vector<std::string> names{"inputs", "constants", "nodes", "outputs"};
    if (outermost) names.insert(names.begin(), {"format", "version"});
    return names;
  }
  Graph ReadGraph(const JsonObject& object, int depth) {
    Graph graph;
    object.ForEach("inputs", [&](const Json& json, const std::string& path) {
      const JsonObject item(
          json, path, {"name", "dtype", "element", "holds_sequence", "shape", "device", "default"});
      Graph::Input input;
      input.info.device = item.Read("device", DeviceFromJson, Device{});
      input.name = item.Read("name", StringFromJson);
      input.info.dtype = item.Read("dtype", DTypeFromJson);
      input.info.element = item.Read("element", DTypeFromJson, DType::kUndefined);
      input.info.holds_sequence = item.Read("holds_sequence", BoolFromJson, false);
      input.info.shape = item.Read("shape", ShapeFromJson);
      if (item.Find("default")) input.default_value = item.Read("default", TensorFromJson);
      AtPath(path, [&] { graph.AddInput(std::move(input)); });
    });
    object.ForEach("constants", [&](const Json& json, const std::string& path) {
      const JsonObject item(json, path, {"name", "tensor"});
      std::string name = item.Read("name", StringFromJson);
      Tensor tensor = item.Read("tensor", TensorFromJson);
      AtPath(path, [&] { graph.AddConstant(std::move(name), std::move(tensor)); });
    });
    object.ForEach("nodes", [&](const Json& json, const std::string& path) {
      OperatorDef def = Node(json, path, depth);
      AtPath(path, [&] { graph.AddNode(std::move(def)); });
    });
    object.ForEach("outputs", [&](const Json& json, const std::string& path) {
      std::string name = StringFromJson(json, path);
      AtPath(path, [&] { graph.AddOutput(std::move(name)); });
    });
    return graph;
  }
  OperatorDef Node(const Json& json, const std::string& path, int depth) {
    const JsonObject item(
        json, path,
        {"type", "name", "library", "inputs", "outputs", "control_inputs", "attributes",
         "subgraphs", "device", "engine", "requires_engine", "process", "is_gradient_op"});
    OperatorDef def(item.Read("type", StringFromJson));
    def.Name(item.Read("name", StringFromJson, std::string()));
    def.Backends(item.Read("engine", StringFromJson, std::string()),
                 item.Read("requires_engine", BoolFromJson, false) ? kRequired : kPreferred);
    const int64_t process = item.Read("process", IntFromJson, int64_t{-1});
    if (process < -1 || process > INT32_MAX)
      Throw(ErrorCode::kInvalidArgument, item.PathOf("process"), " is ", process,
            ", expected the number of a process");
    def.Process(static_cast<int>(process));
    def.IsGradientOp(item.Read("is_gradient_op", BoolFromJson, false));
    if (const Json* library = item.Find("library"))
      CheckLibrary(def.type(), *library, item.PathOf("library"), path);
    item.ForEach("inputs", [&](auto&& name, auto&& at) { def.Input(StringFromJson(name, at)); });
    item.ForEach("outputs", [&](auto&& name, auto&& at) { def.Output(StringFromJson(name, at)); });
    item.ForEach("control_inputs",
                 [&](auto&& name, auto&& at) { def.ControlInput(StringFromJson(name, at)); });
    item.ForEachMember("attributes", [&](auto&& name, auto&& value, auto&& at) {
      def.Arg(name, AttributeFromJson(value, at));
    });
    item.ForEachMember("subgraphs", [&](const std::string& name, const Json& value,
                                        const std::string& at) {
      if (depth == kMaxGraphDepth)
        ThrowAtPath(at, StrCat("graphs are nested more than ", kMaxGraphDepth, " deep"),
                    ErrorCode::kUnsupported);
      def.Subgraph(name, MakeSubgraph(ReadGraph(JsonObject(value, at, Members(false)), depth + 1)));
    });
    if (const Json* device = item.Find("device"))
      def.Device(DeviceFromJson(*device, item.PathOf("device")));
    return def;
  }
  // Records an operator that the program lacks. An operator of the same name is accepted, whatever
  // its library and version.
  void CheckLibrary(const std::string& op, const Json& json, const std::string& path,
                    const std::string& node) {
    const JsonObject library(json, path, {"name", "version"});
    const std::string name = library.Read("name", StringFromJson);
    const std::string version = library.Read("version", StringFromJson, std::string());
    const OpRegistry& registry = OpRegistry::Global();
    if (!registry.FindSchema(op) && registry.KernelsOf(op).empty())
      missing_.Add(op, name, version, node);
  }

  MissingOperators missing_;
};

}  // namespace detail

OPKIT_INLINE std::string SaveGraphJson(const Graph& graph) {
  detail::Json json = {{"format", detail::kGraphFormat}, {"version", detail::kGraphVersion}};
  detail::GraphJsonWriter::Write(graph, "", 0, json);
  return json.dump(1) + "\n";
}

OPKIT_INLINE Graph LoadGraphJson(std::string_view text) {
  return detail::GraphJsonReader::Read(text);
}

}}  // namespace opkit

#endif  // OPKIT_INTEROP_IMPL_JSON_IPP_
