// The definitions of interop/mxnet/symbol_names.hpp.
#ifndef OPKIT_INTEROP_MXNET_IMPL_SYMBOL_NAMES_IPP_
#define OPKIT_INTEROP_MXNET_IMPL_SYMBOL_NAMES_IPP_

#include <array>
#include <map>

#include "opkit/base/json/json_writer.hpp"
#include "opkit/interop/mxnet/symbol_names.hpp"
#include "opkit/interop/parse_json.hpp"
#include "opkit/op/function/attr_map.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr std::string_view kExtShape = "__ext_shape__", kExtDtype = "__ext_dtype__";

// A graph that WriteSymbolJson has written.
class SymbolText {
 public:
  struct Node {
    std::string name;
    OperatorTexts opkit, mxnet;  // the operator on both sides
    std::vector<std::pair<size_t, size_t>> inputs;
    std::vector<std::string> control_inputs, dtypes;
    std::vector<Extents> shapes;
  };

  explicit SymbolText(std::string_view text) : json_(ParseJson(text)) {
    const JsonObject whole(json_, "", {"nodes", "arg_nodes", "heads"});
    static_cast<void>(whole.Get("nodes"));
    whole.ForEach("nodes",
                  [&](const Json& node, const std::string& path) { ReadNode(node, path); });
  }

  const std::vector<Node>& nodes() const { return nodes_; }
  const Node* Find(const std::string& name) const {
    const int found = names_.Find(name);
    return found < 0 ? nullptr : &nodes_[Index(found)];
  }
  std::string InMxnetNames() const;

 private:
  void ReadNode(const Json& json, const std::string& path) {
    const JsonObject item(json, path,
                          {"op", "name", "attrs", "inputs", "control_inputs", "dtypes", "shapes"});
    Node node;
    node.name = item.Read("name", StringFromJson);
    node.opkit.op = item.Read("op", StringFromJson);
    item.ForEachMember("attrs",
                       [&](const std::string& name, const Json& text, const std::string& at) {
                         node.opkit.attributes.emplace_back(name, StringFromJson(text, at));
                       });
    NodeShapes shapes;
    item.ForEach("inputs", [&](const Json& entry, const std::string& at) {
      node.inputs.push_back(ReadEntry(entry, at));
      const auto& [from, output] = node.inputs.back();
      shapes.inputs.push_back(nodes_[from].shapes[output]);
    });
    item.ForEach("control_inputs", [&](const Json& text, const std::string& at) {
      node.control_inputs.push_back(StringFromJson(text, at));
    });
    item.ForEach("dtypes", [&](const Json& text, const std::string& at) {
      node.dtypes.push_back(StringFromJson(text, at));
    });
    item.ForEach("shapes", [&](const Json& shape, const std::string& at) {
      node.shapes.push_back(ReadExtents(shape, at));
    });
    node.shapes.resize(node.dtypes.size());
    // Outputs at the end that no node reads are not there for MXNet.
    while (!node.dtypes.empty() && node.dtypes.back().empty()) node.dtypes.pop_back();
    shapes.outputs.assign(node.shapes.begin(),
                          node.shapes.begin() + static_cast<std::ptrdiff_t>(node.dtypes.size()));
    if (node.opkit.op == "null")
      node.mxnet = VariableOf(node);
    else
      node.mxnet = OperatorToMxnet(node.opkit, shapes);
    names_.Add(node.name);
    nodes_.push_back(std::move(node));
  }
  std::pair<size_t, size_t> ReadEntry(const Json& json, const std::string& path) const {
    if (!json.is_array() || json.size() < 2) ThrowAtPath(path, "expected [node, output, version]");
    const int64_t node = IntFromJson(json[0], path), output = IntFromJson(json[1], path);
    if (node < 0 || Index(node) >= nodes_.size() || output < 0 ||
        Index(output) >= nodes_[Index(node)].shapes.size())
      ThrowAtPath(path, "names an output that no earlier node has");
    return {Index(node), Index(output)};
  }
  static Extents ReadExtents(const Json& json, const std::string& path) {
    if (json.is_null()) return std::nullopt;
    if (!json.is_array()) ThrowAtPath(path, "expected an array or null");
    std::vector<int64_t> extents;
    for (const Json& extent : json) extents.push_back(IntFromJson(extent, path));
    return extents;
  }
  static OperatorTexts VariableOf(const Node& node) {
    OperatorTexts out{node.opkit.op, {}};
    for (const auto& [name, text] : node.opkit.attributes) {
      if (name == "constant") continue;
      out.attributes.emplace_back(name, text);
      if (name == "isArg" && text == "True" && !FindText(node.opkit.attributes, "argName"))
        out.attributes.emplace_back("argName", node.name);
    }
    return out;
  }

  const Json json_;
  std::vector<Node> nodes_;
  NameIndex names_;
};

// MXNet's reader ends a string at a quote that does not follow a backslash, so that a backslash at
// the end is written by its number.
inline std::string QuotedForMxnet(std::string_view text) {
  std::string out;
  AppendJsonString(out, text);
  if (text.ends_with('\\')) out.replace(out.size() - 3, 3, "\\u005c\"");
  return out;
}

inline std::string SymbolText::InMxnetNames() const {
  std::string text;
  JsonWriter json(text);
  const auto attribute = [&](std::string_view name, std::string_view value) {
    json.Key(name).Item() += QuotedForMxnet(value);
  };
  json.BeginObject().NewLine("  ").Key("nodes").BeginArray();
  for (const Node& node : nodes_) {
    json.NewLine("    ").BeginObject();
    attribute("op", node.mxnet.op);
    attribute("name", node.name);
    json.Key("attrs").BeginObject();
    for (const auto& [name, value] : node.mxnet.attributes) attribute(name, value);
    std::string dtypes, shapes;
    bool has_dtypes = !node.dtypes.empty(), has_shapes = has_dtypes;
    for (size_t i = 0; i < node.dtypes.size(); ++i) {
      const auto number = MxnetTypeNumber(node.dtypes[i]);
      has_dtypes &= number.has_value();
      has_shapes &= IsKnown(node.shapes[i]);
      if (has_dtypes) dtypes += StrCat(i == 0 ? "" : ",", *number);
      if (!has_shapes) continue;
      std::string shape;
      for (const int64_t extent : *node.shapes[i])
        shape += StrCat(shape.empty() ? "" : ",", extent);
      shapes += StrCat(i == 0 ? "[" : ",[", shape, "]");
    }
    if (has_dtypes) attribute(kExtDtype, StrCat("[", dtypes, "]"));
    if (has_shapes) attribute(kExtShape, StrCat("[", shapes, "]"));
    if (has_shapes && node.opkit.op == "null")
      attribute("__shape__", MxnetText(IntsText(*node.shapes[0])));
    json.EndObject().Key("inputs").BeginArray();
    for (const auto& [from, output] : node.inputs) json.Value(std::array<size_t, 3>{from, output});
    json.EndArray().EndObject();
  }
  json.NewLine("  ").EndArray();
  json.NewLine("  ").Key("arg_nodes").Item() += json_.value("arg_nodes", Json::array()).dump();
  json.NewLine("  ").Key("node_row_ptr").BeginArray();
  size_t row = 0;
  json.Value(row);
  for (const Node& node : nodes_) json.Value(row += node.dtypes.size());
  json.EndArray();
  json.NewLine("  ").Key("heads").Item() += json_.value("heads", Json::array()).dump();
  json.NewLine().EndObject();
  return text + "\n";
}

// Converts the answer of a library.
class MxnetAnswer {
 public:
  MxnetAnswer(const SymbolText& sent, std::string_view text,
              const std::vector<std::pair<std::string, Tensor>>& constants)
      : sent_(sent), json_(ParseJson(text)) {
    for (const auto& [name, value] : constants)
      constants_[name].shapes = {
          Extents(std::in_place, value.shape().begin(), value.shape().end())};
  }

  std::string InOpkitNames() && {
    if (!json_.is_object() || !json_.contains("nodes") || !json_["nodes"].is_array())
      return json_.dump();
    for (const Json& node : json_["nodes"]) names_.Add(TextOf(node, "name"));
    for (Json& node : json_["nodes"]) Convert(node);
    return json_.dump();
  }

 private:
  // The node of `sent` that a node of the answer is, if its outputs still have the sent shapes; or
  // the library's constant that it is.
  using Origin = const SymbolText::Node*;

  static std::string TextOf(const Json& node, const char* name) {
    return node.is_object() && node.contains(name) && node[name].is_string()
               ? node[name].get<std::string>()
               : std::string();
  }
  void Convert(Json& node) {
    origins_.push_back(nullptr);
    const std::string op = TextOf(node, "op");
    if (op.empty()) return;
    const Origin sent = sent_.Find(TextOf(node, "name"));
    if (op == "null") {
      node.erase("attrs");
      if (sent && sent->opkit.op == "null") origins_.back() = sent;
      const auto made = constants_.find(TextOf(node, "name"));
      if (made != constants_.end() && (!origins_.back() || sent->shapes != made->second.shapes))
        origins_.back() = &made->second;
      return;
    }
    const bool is_known = sent && sent->opkit.op != "null";
    const std::optional<NodeShapes> shapes = ShapesOf(node, is_known ? sent : nullptr);
    if (!shapes || (node.contains("attrs") && !node["attrs"].is_object())) return;
    OperatorTexts answer{op, {}};
    std::string dtypes;
    if (node.contains("attrs"))
      for (const auto& item : node["attrs"].items()) {
        const Json& value = item.value();
        std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        if (item.key() == kExtDtype)
          dtypes = std::move(text);
        else if (item.key() != kExtShape)
          answer.attributes.emplace_back(item.key(), std::move(text));
      }
    Write(node, ToOpkit(answer, is_known ? sent : nullptr, *shapes));
    if (is_known) {
      RestoreControlInputs(node, *sent);
      if (shapes_are_sent_ && answer.op == sent->mxnet.op &&
          IsSame(answer.attributes, sent->mxnet.attributes))
        origins_.back() = sent;
    } else {
      AddDtypes(node, dtypes, answer.attributes);
    }
  }
  // Gives a new node "dtypes", of which ReadSymbolJson takes the number of outputs: from MXNet's
  // numbers of types, or from the attribute with the number of outputs that some operators have.
  static void AddDtypes(Json& node, const std::string& dtypes, const NamedTexts& attributes) {
    std::vector<int64_t> numbers = ParseList<int64_t>(dtypes).value_or(std::vector<int64_t>());
    const std::string* count = FindText(attributes, "num_outputs");
    const int64_t outputs = count ? ParseText<int64_t>(*count).value_or(0) : 0;
    if (numbers.empty() && outputs > 0 && outputs <= 65536) numbers.assign(Index(outputs), -1);
    for (const int64_t number : numbers)
      node["dtypes"].push_back(number >= 0 && Index(number) < std::size(kMxnetTypes)
                                   ? ToString(kMxnetTypes[number].dtype)
                                   : std::string_view());
  }
  // Returns the shapes of a node's values, unknown where the library's changes may have changed
  // them; nullopt if its inputs are not what MXNet's JSON has.
  std::optional<NodeShapes> ShapesOf(const Json& node, Origin sent) {
    NodeShapes shapes;
    shapes_are_sent_ = static_cast<bool>(sent);
    size_t i = 0;
    if (node.contains("inputs")) {
      if (!node["inputs"].is_array()) return std::nullopt;
      for (const Json& entry : node["inputs"]) {
        if (!entry.is_array() || entry.size() < 2 || !entry[0].is_number_unsigned() ||
            !entry[1].is_number_unsigned())
          return std::nullopt;
        const auto from = entry[0].get<size_t>(), output = entry[1].get<size_t>();
        const Origin origin = from < origins_.size() ? origins_[from] : nullptr;
        shapes.inputs.push_back(origin && output < origin->shapes.size() ? origin->shapes[output]
                                                                         : std::nullopt);
        shapes_are_sent_ = shapes_are_sent_ && origin && i < sent->inputs.size() &&
                           &sent_.nodes()[sent->inputs[i].first] == origin &&
                           sent->inputs[i].second == output;
        ++i;
      }
    }
    shapes_are_sent_ = shapes_are_sent_ && i == sent->inputs.size();
    if (sent) shapes.outputs.resize(sent->dtypes.size());
    return shapes;
  }
  static bool IsSame(NamedTexts a, NamedTexts b) {
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    return a == b;
  }
  static OperatorTexts ToOpkit(const OperatorTexts& answer, Origin sent, const NodeShapes& shapes) {
    if (!sent || answer.op != sent->mxnet.op) return OperatorToOpkit(answer, shapes);
    if (IsSame(answer.attributes, sent->mxnet.attributes)) return sent->opkit;
    OperatorTexts now = OperatorToOpkit(answer, shapes);
    // An attribute has changed if it differs from that of the node as it was sent.
    const OperatorTexts before = OperatorToOpkit(sent->mxnet, shapes);
    if (now.op != sent->opkit.op || before.op != now.op) return now;
    NamedTexts kept;
    for (auto& [name, text] : now.attributes) {
      const std::string* unchanged = FindText(before.attributes, name);
      if (!unchanged || *unchanged != text)
        kept.emplace_back(name, std::move(text));
      else if (const std::string* own = FindText(sent->opkit.attributes, name))
        kept.emplace_back(name, *own);
    }
    // Attributes that MXNet's operator does not have.
    for (const auto& [name, text] : sent->opkit.attributes)
      if (!FindText(kept, name) && !FindText(before.attributes, name))
        kept.emplace_back(name, text);
    return {now.op, std::move(kept)};
  }
  static void Write(Json& node, const OperatorTexts& texts) {
    node["op"] = texts.op;
    Json& attrs = node["attrs"] = Json::object();
    for (const auto& [name, text] : texts.attributes) attrs[name] = text;
  }
  void RestoreControlInputs(Json& node, const SymbolText::Node& sent) {
    if (node.contains("control_inputs")) return;
    Json list = Json::array();
    for (const std::string& name : sent.control_inputs)
      if (names_.Find(name) >= 0) list.push_back(name);
    if (!list.empty()) node["control_inputs"] = std::move(list);
  }

  const SymbolText& sent_;
  Json json_;
  std::map<std::string, SymbolText::Node> constants_;  // the library's, with their shapes
  NameIndex names_;                                    // of the answer's nodes
  std::vector<Origin> origins_;                        // by the answer's node
  bool shapes_are_sent_ = false;
};

OPKIT_INLINE std::string ToMxnetJson(std::string_view opkit_text) {
  return SymbolText(opkit_text).InMxnetNames();
}
OPKIT_INLINE std::string FromMxnetJson(
    std::string_view opkit_text, std::string_view mxnet_text,
    const std::vector<std::pair<std::string, Tensor>>& constants) {
  return MxnetAnswer(SymbolText(opkit_text), mxnet_text, constants).InOpkitNames();
}

}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_INTEROP_MXNET_IMPL_SYMBOL_NAMES_IPP_
