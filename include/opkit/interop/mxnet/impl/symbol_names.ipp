// The definitions of interop/mxnet/symbol_names.hpp.
#ifndef OPKIT_INTEROP_MXNET_IMPL_SYMBOL_NAMES_IPP_
#define OPKIT_INTEROP_MXNET_IMPL_SYMBOL_NAMES_IPP_

#include <algorithm>
#include <array>
#include <optional>

#include "opkit/base/json/json_writer.hpp"
#include "opkit/interop/mxnet/names_table.hpp"
#include "opkit/interop/mxnet/symbol_names.hpp"
#include "opkit/interop/parse_json.hpp"
#include "opkit/op/function/attr_map.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr std::string_view kExtShape = "__ext_shape__", kExtDtype = "__ext_dtype__";

// Types with their number in MXNet (TypeFlag of mshadow/base.h is the index) and in ONNX.
struct MxnetType {
  std::string_view name;
  int onnx;
};
inline constexpr MxnetType kMxnetTypes[] = {
    {"float32", 1}, {"float64", 11}, {"float16", 10}, {"uint8", 2}, {"int32", 6},
    {"int8", 3},    {"int64", 7},    {"bool", 9},     {"int16", 5}, {"uint16", 4},
    {"uint32", 12}, {"uint64", 13},  {"bfloat16", 16}};
inline std::optional<size_t> MxnetTypeNumber(std::string_view name) {
  for (size_t i = 0; i < std::size(kMxnetTypes); ++i)
    if (kMxnetTypes[i].name == name) return i;
  return std::nullopt;
}

// Attributes as texts, in the order of the node.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;
inline const std::string* FindText(const NamedTexts& texts, std::string_view name) {
  for (const auto& [key, text] : texts)
    if (key == name) return &text;
  return nullptr;
}

// The extents of a shape; nullopt if the rank is unknown, -1 for an unknown extent.
using Extents = std::optional<std::vector<int64_t>>;
inline bool IsKnown(const Extents& extents) {
  return extents && std::none_of(extents->begin(), extents->end(), [](int64_t e) { return e < 0; });
}

// The shapes of a node's inputs and outputs.
struct NodeShapes {
  std::vector<Extents> inputs, outputs;
};

inline bool AllEqual(const std::vector<Extents>& shapes) {
  return std::all_of(shapes.begin(), shapes.end(),
                     [&](const Extents& shape) { return IsKnown(shape) && *shape == *shapes[0]; });
}
inline bool HasRank(const Extents& shape, size_t rank) { return shape && shape->size() == rank; }

inline bool Holds(ShapeRule rule, const NodeShapes& shapes) {
  const std::vector<Extents>& in = shapes.inputs;
  switch (rule) {
    case ShapeRule::kNone:
      return true;
    case ShapeRule::kNotBroadcast:
      return !in[0] || !in[1] || *in[0] == *in[1];
    case ShapeRule::kEqual:
      return AllEqual(in);
    case ShapeRule::kMatrices:
      return HasRank(in[0], 2) && HasRank(in[1], 2);
    case ShapeRule::kBatches:
      return IsKnown(in[0]) && IsKnown(in[1]) && in[0]->size() == in[1]->size() &&
             in[0]->size() >= 3 && std::equal(in[0]->begin(), in[0]->end() - 2, in[1]->begin());
    case ShapeRule::kOneSlope:
      return HasRank(in[1], 1) && (*in[1])[0] == 1;
    case ShapeRule::kLinear:
      return HasRank(in[0], 2) && HasRank(in[1], 2) && (*in[1])[0] >= 0 &&
             (in.size() < 3 || (HasRank(in[2], 1) && (*in[2])[0] == (*in[1])[0]));
    case ShapeRule::kLastAxis:
      return in[0] && !in[0]->empty() && in[0]->back() >= 0 &&
             std::all_of(in.begin() + 1, in.end(), [&](const Extents& shape) {
               return HasRank(shape, 1) && (*shape)[0] == in[0]->back();
             });
    case ShapeRule::kEqualParts:
      return !shapes.outputs.empty() && AllEqual(shapes.outputs);
  }
  return false;
}

// Returns a list of numbers and bools with other brackets and other names of the bools; `text`
// itself if it is not such a list.
inline std::string ListInBrackets(std::string_view text, const char* brackets, bool python) {
  std::string out(1, brackets[0]);
  size_t count = 0;
  std::string_view rest = WithoutSpaces(text.substr(1, text.size() - 2));
  for (; !rest.empty(); ++count) {
    const size_t comma = (std::min)(rest.find(','), rest.size());
    const std::string_view item = WithoutSpaces(rest.substr(0, comma));
    const std::string other = python ? MxnetText(item) : OpkitText(item);
    if (other == item && !ParseText<double>(item)) return std::string(text);
    if (item.front() == '(' || item.front() == '[') return std::string(text);
    out += (count == 0 ? "" : ", ") + other;
    rest = WithoutSpaces(rest.substr((std::min)(comma + 1, rest.size())));
  }
  if (python && count == 1) out += ',';
  return out + brackets[1];
}

// Values that mean "left out" in one of the two spellings.
inline bool IsLeftOut(std::string_view text) {
  return text.empty() || text == "None" || text == "()" || text == "[]";
}
// True if `text` is the value `only` in any spelling, or a list of this number.
inline bool IsOnly(std::string_view text, std::string_view only) {
  if (text == only) return true;
  if (only == "None") return IsLeftOut(text);
  if (const auto number = ParseText<double>(only)) {
    const auto numbers = ParseList<double>(text);
    return numbers && !numbers->empty() &&
           std::all_of(numbers->begin(), numbers->end(), [&](double n) { return n == *number; });
  }
  const auto is = ParseText<bool>(text), wanted = ParseText<bool>(only);
  return is && wanted && *is == *wanted;
}

inline std::string IntsText(const std::vector<int64_t>& values) {
  std::string out;
  for (const int64_t value : values) out += StrCat(out.empty() ? "" : ", ", value);
  return StrCat("[", out, "]");
}

// Converts the value of an attribute that is there on both sides. nullopt: it has no equivalent.
inline std::optional<std::string> ValueToMxnet(AttributeRule rule, const std::string& text) {
  switch (rule) {
    case AttributeRule::kBool:
      if (const auto on = ParseText<bool>(text)) return *on ? "True" : "False";
      return std::nullopt;
    case AttributeRule::kPads: {
      auto pads = ParseList<int64_t>(text);
      if (!pads || pads->size() % 2 != 0) return std::nullopt;
      const auto half = pads->begin() + static_cast<std::ptrdiff_t>(pads->size() / 2);
      if (!std::equal(pads->begin(), half, half) || (std::min)(*pads->begin(), *half) < 0)
        return std::nullopt;
      pads->resize(pads->size() / 2);
      return MxnetText(IntsText(*pads));
    }
    case AttributeRule::kDtype: {
      const auto number = ParseText<int>(text);
      for (const MxnetType& type : kMxnetTypes)
        if (number == type.onnx) return std::string(type.name);
      return std::nullopt;
    }
    case AttributeRule::kOdd: {
      const auto number = ParseText<int64_t>(text);
      return number && *number % 2 == 1 ? std::optional(text) : std::nullopt;
    }
    case AttributeRule::kKernel: {
      const auto extents = ParseList<int64_t>(text);
      if (!extents || extents->empty() || extents->size() > 3) return std::nullopt;
      return MxnetText(text);
    }
    default:
      return MxnetText(text);
  }
}
inline std::optional<std::string> ValueToOpkit(AttributeRule rule, const std::string& text) {
  switch (rule) {
    case AttributeRule::kBool:
      if (const auto on = ParseText<bool>(text)) return *on ? "1" : "0";
      return std::nullopt;
    case AttributeRule::kPads: {
      auto pads = ParseList<int64_t>(text);
      if (!pads) return std::nullopt;
      const std::vector<int64_t> begins = *pads;
      pads->insert(pads->end(), begins.begin(), begins.end());
      return IntsText(*pads);
    }
    case AttributeRule::kDtype: {
      const auto number = MxnetTypeNumber(text);
      return number ? std::optional(StrCat(kMxnetTypes[*number].onnx)) : std::nullopt;
    }
    case AttributeRule::kOdd:
      return ValueToMxnet(rule, text);
    default:
      return OpkitText(text);
  }
}

inline bool FitsCounts(const OperatorNames& row, const NodeShapes& shapes) {
  return shapes.inputs.size() >= row.min_inputs && shapes.inputs.size() <= row.max_inputs &&
         (shapes.outputs.size() <= 1 || row.to_mxnet == ShapeRule::kEqualParts);
}

// The attributes of MXNet's operator of `row`; nullopt if it cannot express a node of opkit.
inline std::optional<NamedTexts> AttributesToMxnet(const OperatorNames& row,
                                                   const NamedTexts& attributes,
                                                   const NodeShapes& shapes) {
  if (!FitsCounts(row, shapes) || !Holds(row.to_mxnet, shapes)) return std::nullopt;
  for (const auto& [name, text] : attributes)
    if (std::none_of(row.attributes.begin(), row.attributes.end(),
                     [&name = name](const AttributeNames& a) { return a.opkit == name; }))
      return std::nullopt;
  // Returns an extent of the weights; -1 if it is unknown.
  const auto weights = [&](size_t axis) {
    const Extents& w = shapes.inputs[1];
    return w && axis < w->size() ? (*w)[axis] : int64_t{-1};
  };
  NamedTexts out;
  for (const AttributeNames& names : row.attributes) {
    const std::string* given = names.opkit.empty() ? nullptr : FindText(attributes, names.opkit);
    std::string text = given ? *given : std::string(names.opkit_default);
    const auto write = [&](std::string value) { out.emplace_back(names.mxnet, std::move(value)); };
    if (!names.only.empty()) {
      if (!names.opkit.empty() && !IsOnly(text, names.only)) return std::nullopt;
      if (names.opkit.empty() && names.only != "None") write(std::string(names.only));
      continue;
    }
    switch (names.rule) {
      case AttributeRule::kIgnored:
      case AttributeRule::kChannelsFirst:
        continue;
      case AttributeRule::kNoBias:
        write(shapes.inputs.size() == 2 ? "True" : "False");
        continue;
      case AttributeRule::kNumInputs:
        write(StrCat(shapes.inputs.size()));
        continue;
      case AttributeRule::kRows:
      case AttributeRule::kGroupColumns: {
        int64_t count = weights(0);
        if (names.rule == AttributeRule::kGroupColumns) {
          const std::string* group = FindText(attributes, "group");
          const auto groups = ParseText<int64_t>(group ? *group : "1");
          count = groups && weights(1) >= 0 ? weights(1) * *groups : -1;
        }
        if (count < 0) return std::nullopt;
        write(StrCat(count));
        continue;
      }
      case AttributeRule::kKernel:
        if (IsLeftOut(text) && shapes.inputs.size() > 1 && IsKnown(shapes.inputs[1]) &&
            shapes.inputs[1]->size() > 2)
          text = IntsText({shapes.inputs[1]->begin() + 2, shapes.inputs[1]->end()});
        break;
      default:
        break;
    }
    if (IsLeftOut(text)) {
      if (names.rule != AttributeRule::kText && names.rule != AttributeRule::kPads)
        return std::nullopt;
      if (!names.mxnet_default.empty()) return std::nullopt;
      continue;
    }
    std::optional<std::string> value = ValueToMxnet(names.rule, text);
    if (!value) return std::nullopt;
    write(*std::move(value));
  }
  return out;
}

// MXNet's attributes about a node's variables, devices and the like begin and end with "__".
inline bool IsHidden(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

// The attributes of opkit's operator of `row`; nullopt if it cannot express a node of MXNet.
inline std::optional<NamedTexts> AttributesToOpkit(const OperatorNames& row,
                                                   const NamedTexts& attributes,
                                                   const NodeShapes& shapes) {
  if (!FitsCounts(row, shapes) || !Holds(row.to_opkit, shapes)) return std::nullopt;
  for (const auto& [name, text] : attributes)
    if (!IsHidden(name) &&
        std::none_of(row.attributes.begin(), row.attributes.end(),
                     [&name = name](const AttributeNames& a) { return a.mxnet == name; }))
      return std::nullopt;
  NamedTexts out;
  for (const AttributeNames& names : row.attributes) {
    const std::string* given = names.mxnet.empty() ? nullptr : FindText(attributes, names.mxnet);
    std::string text = given ? *given : std::string();
    if (IsLeftOut(text)) text = names.mxnet_default;
    const auto write = [&](std::string value) { out.emplace_back(names.opkit, std::move(value)); };
    if (!names.only.empty()) {
      if (!names.mxnet.empty() && !IsOnly(text, names.only)) return std::nullopt;
      if (names.mxnet.empty() && names.only != names.opkit_default) write(std::string(names.only));
      continue;
    }
    switch (names.rule) {
      case AttributeRule::kIgnored:
      case AttributeRule::kRows:
      case AttributeRule::kGroupColumns:
        continue;
      case AttributeRule::kChannelsFirst:
        if (!IsLeftOut(text) && text != "NCW" && text != "NCHW" && text != "NCDHW")
          return std::nullopt;
        continue;
      case AttributeRule::kNoBias:
        if (!IsOnly(text, shapes.inputs.size() == 2 ? "True" : "False")) return std::nullopt;
        continue;
      case AttributeRule::kNumInputs:
        if (!text.empty() && text != StrCat(shapes.inputs.size())) return std::nullopt;
        continue;
      default:
        break;
    }
    if (IsLeftOut(text)) {
      if (names.rule != AttributeRule::kText && names.rule != AttributeRule::kPads)
        return std::nullopt;
      if (!names.opkit_default.empty()) return std::nullopt;
      continue;
    }
    std::optional<std::string> value = ValueToOpkit(names.rule, text);
    if (!value) return std::nullopt;
    write(*std::move(value));
  }
  return out;
}

// An operator and its attributes.
struct OperatorTexts {
  std::string op;
  NamedTexts attributes;
};

inline bool IsNameOfBoth(std::string_view op) {
  return std::find(std::begin(kNamesOfBoth), std::end(kNamesOfBoth), op) != std::end(kNamesOfBoth);
}

inline OperatorTexts OperatorToMxnet(const OperatorTexts& from, const NodeShapes& shapes) {
  for (const OperatorNames& row : kOperatorNames)
    if (row.opkit == from.op)
      if (auto attributes = AttributesToMxnet(row, from.attributes, shapes))
        return {std::string(row.mxnet), *std::move(attributes)};
  OperatorTexts to{from.op, {}};
  if (IsNameOfBoth(from.op)) to.op = StrCat(kOpkitPrefix, from.op);
  if (from.op.starts_with(kMxnetPrefix)) to.op = from.op.substr(kMxnetPrefix.size());
  for (const auto& [name, text] : from.attributes)
    to.attributes.emplace_back(name, MxnetText(text));
  return to;
}
inline OperatorTexts OperatorToOpkit(const OperatorTexts& from, const NodeShapes& shapes) {
  std::string_view op = from.op;
  for (const OperatorAlias& other : kOperatorAliases)
    if (other.alias == op) op = other.name;
  for (const OperatorNames& row : kOperatorNames)
    if (row.mxnet == op)
      if (auto attributes = AttributesToOpkit(row, from.attributes, shapes))
        return {std::string(row.opkit), *std::move(attributes)};
  OperatorTexts to{from.op, {}};
  if (IsNameOfBoth(from.op)) to.op = StrCat(kMxnetPrefix, from.op);
  if (from.op.starts_with(kOpkitPrefix)) to.op = from.op.substr(kOpkitPrefix.size());
  for (const auto& [name, text] : from.attributes)
    to.attributes.emplace_back(name, OpkitText(text));
  return to;
}

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
  MxnetAnswer(const SymbolText& sent, std::string_view text)
      : sent_(sent), json_(ParseJson(text)) {}

  std::string InOpkitNames() && {
    if (!json_.is_object() || !json_.contains("nodes") || !json_["nodes"].is_array())
      return json_.dump();
    for (const Json& node : json_["nodes"]) names_.Add(TextOf(node, "name"));
    for (Json& node : json_["nodes"]) Convert(node);
    return json_.dump();
  }

 private:
  // The node of `sent` that a node of the answer is, if its outputs still have the sent shapes.
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
    } else if (const auto numbers = ParseList<int64_t>(dtypes); numbers && !numbers->empty()) {
      Json& names = node["dtypes"] = Json::array();
      for (const int64_t number : *numbers)
        names.push_back(number >= 0 && Index(number) < std::size(kMxnetTypes)
                            ? kMxnetTypes[number].name
                            : std::string_view());
    }
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
  NameIndex names_;              // of the answer's nodes
  std::vector<Origin> origins_;  // by the answer's node
  bool shapes_are_sent_ = false;
};

OPKIT_INLINE std::string MxnetText(std::string_view text) {
  if (text == "true") return "True";
  if (text == "false") return "False";
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::string(text);
  return ListInBrackets(text, "()", true);
}
OPKIT_INLINE std::string OpkitText(std::string_view text) {
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return std::string(text);
  return ListInBrackets(text, "[]", false);
}
OPKIT_INLINE std::string ToMxnetJson(std::string_view opkit_text) {
  return SymbolText(opkit_text).InMxnetNames();
}
OPKIT_INLINE std::string FromMxnetJson(std::string_view opkit_text, std::string_view mxnet_text) {
  return MxnetAnswer(SymbolText(opkit_text), mxnet_text).InOpkitNames();
}

}  // namespace detail

}}  // namespace opkit

#endif  // OPKIT_INTEROP_MXNET_IMPL_SYMBOL_NAMES_IPP_
