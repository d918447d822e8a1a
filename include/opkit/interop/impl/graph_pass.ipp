// The definitions of interop/graph_pass.hpp.
#ifndef OPKIT_INTEROP_IMPL_GRAPH_PASS_IPP_
#define OPKIT_INTEROP_IMPL_GRAPH_PASS_IPP_

#include <algorithm>
#include <optional>

#include "opkit/graph/partition/symbol_json.hpp"
#include "opkit/interop/graph_pass.hpp"
#include "opkit/interop/parse_json.hpp"
#include "opkit/op/function/attr_map.hpp"
#include "opkit/op/function/mx_failure.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Parses a text as an attribute of a type; nullopt if the text does not fit the type.
inline std::optional<Attribute> AttributeOfText(AttributeType type, const std::string& text) {
  const auto made = [](auto value) {
    return value ? std::optional<Attribute>(*value) : std::nullopt;
  };
  switch (type) {
    case AttributeType::kInt:
      return made(ParseText<int64_t>(text));
    case AttributeType::kFloat:
      return made(ParseText<double>(text));
    case AttributeType::kBool:
      return made(ParseText<bool>(text));
    case AttributeType::kString:
      return Attribute(text);
    case AttributeType::kInts:
      return made(ParseList<int64_t>(text));
    case AttributeType::kFloats:
      return made(ParseList<double>(text));
    case AttributeType::kBools:
      return made(ParseList<bool>(text));
    case AttributeType::kStrings:
      return made(ParseList<std::string>(text));
    default:
      return std::nullopt;  // the text does not contain the elements of a tensor
  }
}

// Builds the graph that a text in the shape of MXNet's symbols describes, from the text, the graph
// before the pass and the tensors that the pass made.
class SymbolJsonReader {
 public:
  using Constants = std::vector<std::pair<std::string, Tensor>>;

  SymbolJsonReader(const Graph& before, const Constants& constants)
      : before_(before), view_(before), constants_(constants) {
    if (!view_.rewrites().empty())
      Throw(ErrorCode::kUnsupported, "node ", before.node(view_.rewrites()[0].node),
            " rewrites a value, and JSON in the shape of MXNet's symbols cannot say which version "
            "of it a node reads");
    const size_t variables = before.inputs().size() + before.constants().size();
    for (size_t k = 0; k < view_.order().size(); ++k) {
      const OperatorDef& def = before.node(view_.order()[k]);
      const std::string name =
          def.name().empty() ? StrCat(def.type(), "_", variables + k) : def.name();
      if (Index(originals_.Add(name)) < k)
        Throw(ErrorCode::kUnsupported, "two nodes are called '", name,
              "', and JSON in the shape of MXNet's symbols distinguishes nodes by their names");
    }
    for (const std::string& name : view_.names()) values_.Add(name);
    for (const auto& [name, value] : constants) {
      if (before.IsInput(name))
        Throw(ErrorCode::kInvalidArgument, "the pass made a tensor for '", name,
              "', an input of the graph; only a constant or a new name can get one");
      if (!value.initialized())
        Throw(ErrorCode::kInvalidArgument, "the tensor that the pass made for '", name,
              "' has no data");
    }
  }

  Graph Read(std::string_view text) {
    const Json json = ParseJson(text);
    const JsonObject whole(json, "", {"nodes", "arg_nodes", "heads", "node_row_ptr", "attrs"});
    reads_.assign(whole.Get("nodes").size(), 0);
    for (const Json& node : whole.Get("nodes"))
      if (node.is_object()) CountReads(node.value("inputs", Json()));
    CountReads(whole.Get("heads"));
    whole.ForEach("nodes", [&](const Json& node, const std::string& path) { Node(node, path); });
    Heads(whole.Get("heads"));
    return Build();
  }

 private:
  // An output of a node of the text.
  struct Entry {
    size_t node = 0, output = 0;
  };
  // A node of the text.
  struct TextNode {
    bool is_variable = false;
    OperatorDef def;
    std::vector<Entry> reads;          // one for each input that is not left out
    std::vector<std::string> outputs;  // names of its output values
  };

  // Notes how many outputs of each node the text reads. ReadEntry reports mistakes in the entries.
  void CountReads(const Json& entries) {
    constexpr size_t kMostOutputs = 65536;
    const auto is_below = [](const Json& json, size_t end) {
      return json.is_number_unsigned() && json.get<size_t>() < end;
    };
    if (!entries.is_array()) return;
    for (const Json& entry : entries)
      if (entry.is_array() && entry.size() > 1 && is_below(entry[0], reads_.size()) &&
          is_below(entry[1], kMostOutputs)) {
        size_t& count = reads_[entry[0].get<size_t>()];
        count = (std::max)(count, entry[1].get<size_t>() + 1);
      }
  }
  // Reads [node, output, version], a reference to an output of an earlier node.
  Entry ReadEntry(const Json& json, const std::string& path) {
    if (!json.is_array() || json.size() < 2 || json.size() > 3)
      ThrowAtPath(path, "expected [node, output, version]");
    const auto number = [&](size_t i, size_t end, const char* what) {
      const std::string at = Element(path, i);
      const int64_t value = IntFromJson(json[i], at);
      if (value < 0 || Index(value) >= end)
        ThrowAtPath(at, StrCat("there is no ", what, " ", value, " yet; there are ", end),
                    ErrorCode::kInvalidArgument);
      return Index(value);
    };
    const size_t node = number(0, nodes_.size(), "node");
    const Entry entry{node, number(1, nodes_[node].outputs.size(), "output")};
    if (NameOf(entry).empty()) NameOf(entry) = FreshName(names_[static_cast<int>(node)]);
    return entry;
  }
  std::string FreshName(const std::string& hint) {
    std::string name = hint;
    for (int n = 1; values_.Find(name) >= 0; ++n) name = StrCat(hint, "_", n);
    values_.Add(name);
    return name;
  }

  void Node(const Json& json, const std::string& path) {
    const JsonObject item(json, path,
                          {"op", "name", "attrs", "inputs", "control_inputs", "dtypes", "shapes"});
    const std::string op = item.Read("op", StringFromJson);
    const std::string name = item.Read("name", StringFromJson);
    if (Index(names_.Add(name)) < nodes_.size())
      ThrowAtPath(item.PathOf("name"), StrCat("two nodes are called '", name, "'"));
    TextNode node;
    node.is_variable = op == "null";
    if (node.is_variable) {
      const bool is_old = before_.IsInput(name) || before_.IsConstant(name);
      const Tensor* made = is_old ? nullptr : FindMade(name);
      if (!is_old && !made)
        ThrowAtPath(item.PathOf("name"),
                    StrCat("the graph has no input or constant '", name,
                           "', and a pass cannot add inputs, because programs would not give them; "
                           "for a new constant make a tensor of this name"));
      // A value of the graph may have the name of the new constant already.
      node.outputs = {is_old ? name : FreshName(name)};
      if (made) added_.emplace_back(node.outputs[0], *made);
    } else {
      const int original = originals_.Find(name);
      node.def =
          original < 0 ? OperatorDef().Name(name) : before_.node(view_.order()[Index(original)]);
      node.def.Type(op);
      item.ForEach("inputs", [&](const Json& entry, const std::string& at) {
        node.reads.push_back(ReadEntry(entry, at));
      });
      PlaceInputs(node, item);
      ReadAttributes(item, node.def);
      node.def.mutable_control_inputs().clear();
      item.ForEach("control_inputs", [&](const Json& text, const std::string& at) {
        node.def.ControlInput(StringFromJson(text, at));
      });
      NameOutputs(item, node);
    }
    nodes_.push_back(std::move(node));
  }
  // Returns the tensor that the pass made for a name; null if it made none.
  const Tensor* FindMade(const std::string& name) const {
    for (size_t i = constants_.size(); i-- > 0;)
      if (constants_[i].first == name) return &constants_[i].second;
    return nullptr;
  }
  // Sets the number of the node's inputs. A node of the graph `before` leaves out the same inputs
  // as there. MXNet's attribute "__ext_extra_inputs__" is the number of inputs at the end that a
  // pass has added to those of the node's subgraph.
  static void PlaceInputs(TextNode& node, const JsonObject& item) {
    static constexpr const char* kExtraInputs = "__ext_extra_inputs__";
    std::vector<std::string>& inputs = node.def.mutable_inputs();
    const auto left_out = Index(std::count(inputs.begin(), inputs.end(), std::string()));
    const size_t present = inputs.size() - left_out;
    if (present == node.reads.size()) return;
    const auto number = [](const std::string& text) { return ParseText<int>(text).value_or(0); };
    int added = 0;
    item.ForEachMember("attrs", [&](const std::string& name, const Json& text, const std::string&) {
      if (name == kExtraInputs && text.is_string()) added = number(text.get<std::string>());
    });
    if (const Attribute* had = node.def.args().Find(kExtraInputs))
      added -= number(AttributeText(*had));
    if (added > 0 && node.reads.size() == present + Index(added)) {
      inputs.resize(inputs.size() + Index(added), "?");
      return;
    }
    if (left_out > 0)
      ThrowAtPath(item.PathOf("inputs"),
                  StrCat("the node read ", present, " values and left out ", left_out,
                         " of its inputs; now it reads ", node.reads.size(),
                         ", and the text cannot say which it leaves out"));
    inputs.assign(node.reads.size(), "?");
  }
  // Reads attributes. An attribute whose text is unchanged keeps its old value and type.
  static void ReadAttributes(const JsonObject& item, OperatorDef& def) {
    const OpSchema* schema = OpRegistry::Global().FindSchema(def.type());
    Arguments args;
    item.ForEachMember(
        "attrs", [&](const std::string& name, const Json& json, const std::string& at) {
          const std::string text = StringFromJson(json, at);
          const Attribute* had = def.args().Find(name);
          if (had && AttributeText(*had) == text) return args.Set(name, *had);
          const AttributeSchema* declared = schema ? schema->FindAttribute(name) : nullptr;
          const AttributeType type = declared && declared->type ? *declared->type
                                     : had                      ? had->type()
                                                                : AttributeType::kString;
          const std::optional<Attribute> value = AttributeOfText(type, text);
          if (!value) ThrowAtPath(at, StrCat("\"", text, "\" does not read as ", ToString(type)));
          args.Set(name, *value);
        });
    def.mutable_args() = std::move(args);
  }
  // Names the outputs: keeps the names of a node of `before`, makes names for a new node.
  void NameOutputs(const JsonObject& item, TextNode& node) {
    node.outputs = node.def.outputs();
    if (!node.outputs.empty()) return;
    const OpSchema* schema = OpRegistry::Global().FindSchema(node.def.type());
    const int said = schema ? schema->CalculateOutput(static_cast<int>(node.def.inputs().size()),
                                                      node.def.args())
                            : -1;
    const Json* dtypes = item.Find("dtypes");
    const size_t read = (std::max)(reads_[nodes_.size()], size_t{1});
    const size_t count = dtypes && dtypes->is_array() ? dtypes->size()
                         : said < 0                   ? read
                                                      : Index(said);
    for (size_t o = 0; o < count; ++o)
      node.outputs.push_back(FreshName(o == 0 ? node.def.name() : StrCat(node.def.name(), "_", o)));
  }

  std::string& NameOf(const Entry& entry) { return nodes_[entry.node].outputs[entry.output]; }
  // Reads the graph's outputs and gives their values the names of the outputs of `before`.
  void Heads(const Json& json) {
    const std::vector<std::string>& outputs = before_.outputs();
    if (!json.is_array() || json.size() != outputs.size())
      ThrowAtPath("heads", StrCat("expected an array of ", outputs.size(),
                                  " elements, as many as the graph has outputs"));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::string at = Element("heads", i);
      const Entry head = ReadEntry(json[i], at);
      const std::string& wanted = outputs[i];
      if (NameOf(head) == wanted) continue;
      if (before_.IsInput(wanted) || before_.IsConstant(wanted))
        ThrowAtPath(at, StrCat("output '", wanted,
                               "' is an input or a constant of the graph, and a pass keeps it"));
      for (TextNode& node : nodes_)
        for (std::string& name : node.outputs)
          if (name == wanted) name = FreshName(wanted);
      if (nodes_[head.node].is_variable || before_.IsOutput(NameOf(head)))
        copies_.emplace_back(head, wanted);
      else
        NameOf(head) = wanted;
    }
  }
  Graph Build() {
    Graph out;
    for (const Graph::Input& input : before_.inputs()) out.AddInput(input);
    for (const Graph::Constant& constant : before_.constants()) {
      const Tensor* made = FindMade(constant.name);
      out.AddConstant(constant.name, made ? *made : constant.value);
    }
    for (const auto& [name, value] : added_) out.AddConstant(name, value);
    for (TextNode& node : nodes_) {
      if (node.is_variable) continue;
      size_t read = 0;
      for (std::string& name : node.def.mutable_inputs())
        if (!name.empty()) name = NameOf(node.reads[read++]);
      node.def.mutable_outputs() = node.outputs;
      out.AddNode(std::move(node.def));
    }
    for (const auto& [from, to] : copies_)
      out.AddNode(OperatorDef("Identity", {NameOf(from)}, {to}));
    for (const std::string& name : before_.outputs()) out.AddOutput(name);
    return out;
  }

  const Graph& before_;
  const GraphView view_;
  const Constants& constants_;  // tensors that the pass made
  NameIndex originals_;         // names of the nodes of `before`, in the view's order
  NameIndex values_;            // names of values, including values that no longer exist
  NameIndex names_;             // names of the text's nodes
  std::vector<size_t> reads_;   // by the text's node: how many of its outputs the text reads
  std::vector<TextNode> nodes_;
  Constants added_;  // new constants of the graph
  std::vector<std::pair<Entry, std::string>> copies_;
};

OPKIT_INLINE Graph RunJsonPass(const Graph& graph, const PassArguments& options,
                               GraphPassCall call) {
  const GraphView view(graph);
  const std::string text =
      WriteSymbolJson(view, InferGraph(view, {}, UnknownOperators::kAllowed)).text;
  const std::string* answer = nullptr;
  StringMapArgument map(options);
  // Deletes the function's text when this function returns or throws.
  struct Delete {
    const std::string*& answer;
    const std::string& text;
    ~Delete() {
      if (answer != &text) delete answer;
    }
  } at_the_end{answer, text};
  CheckMxReturn("the pass over JSON", [&] { return call(text, &answer, map); });
  return answer && *answer != text ? ReadSymbolJson(graph, *answer) : graph;
}

}  // namespace detail

OPKIT_INLINE Graph ReadSymbolJson(const Graph& before, std::string_view text,
                                  const std::vector<std::pair<std::string, Tensor>>& constants) {
  return detail::SymbolJsonReader(before, constants).Read(text);
}

}}  // namespace opkit

#endif  // OPKIT_INTEROP_IMPL_GRAPH_PASS_IPP_
