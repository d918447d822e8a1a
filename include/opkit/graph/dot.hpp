// ToDot: a graph as Graphviz draws it: `dot -Tsvg graph.dot -o graph.svg`.
#ifndef OPKIT_GRAPH_DOT_HPP_
#define OPKIT_GRAPH_DOT_HPP_

#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/passes/pass_rules.hpp"

namespace opkit::inline OPKIT_ABI {

struct DotOptions {
  // A box for each constant. Without, they are lines in the boxes of the nodes that read them: real
  // models have more constants than nodes, and Graphviz takes minutes to place them all.
  bool constants = true;
};

namespace detail {

// A template, so that programs that draw no graph do not compile it.
template <class G>
class DotWriter {
 public:
  static std::string Write(const G& graph, const GraphTypes* types, const DotOptions& options) {
    DotWriter writer;
    writer.options_ = options;
    writer.out_ =
        "digraph opkit {\n"
        "  compound=true;\n"
        "  fontname=\"Helvetica\";\n"
        "  node [fontname=\"Helvetica\", fontsize=10, style=filled];\n"
        "  edge [fontname=\"Helvetica\", fontsize=8];\n";
    writer.Graph(graph, types, "", "  ");
    return writer.out_ + "}\n";
  }

 private:
  // Quoted; a newline is one in the label too, and an entity is not one.
  static std::string Quote(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      if (c == '\n') {
        out += "\\n";
      } else if (c == '&') {
        out += "&amp;";
      } else if (c != '\r' && c != '\0') {
        out += c;
      }
    }
    return out + "\"";
  }
  void Node(const std::string& indent, const std::string& id, const std::string& label,
            const char* look) {
    out_ += StrCat(indent, id, " [label=", Quote(label), ", ", look) + "];\n";
  }
  void Edge(const std::string& indent, const std::string& from, const std::string& to,
            const std::string& attributes) {
    out_ +=
        StrCat(indent, from, " -> ", to, attributes.empty() ? "" : " [" + attributes + "]") + ";\n";
  }
  template <class Def>
  static std::string Label(const Def& def) {
    std::string out = def.type();
    if (!def.name().empty()) out += " '" + def.name() + "'";
    for (const auto& arg : def.args()) out += "\n" + arg.name + "=" + ToString(arg.value);
    if (def.device() != Device{}) out += "\non " + ToString(def.device());
    if (!def.engine().empty()) out += "\nengine " + def.engine();
    return out;
  }

  // `prefix` keeps the names of subgraphs' boxes apart.
  void Graph(const G& graph, const GraphTypes* types, const std::string& prefix,
             const std::string& indent) {
    NameIndex values;
    std::vector<std::string> makers;  // by value: the box that made or wrote it last
    const auto made = [&](const std::string& name, std::string box) {
      const auto number = static_cast<size_t>(values.Add(name));
      if (number == makers.size()) makers.emplace_back();
      makers[number] = std::move(box);
    };
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const auto& input = graph.inputs()[i];
      Node(indent, StrCat(prefix, "i", i), input.name + "\n" + ToString(input.info),
           "shape=ellipse, fillcolor=\"#cfe8cf\"");
      made(input.name, StrCat(prefix, "i", i));
    }
    for (size_t i = 0; i < graph.constants().size(); ++i) {
      const auto& constant = graph.constants()[i];
      if (!options_.constants && !graph.IsOutput(constant.name)) continue;
      Node(indent, StrCat(prefix, "c", i),
           constant.name + "\n" + ToString(TensorInfo::Of(constant.value)),
           "shape=note, fillcolor=\"#eeeeee\"");
      made(constant.name, StrCat(prefix, "c", i));
    }
    for (int n = 0; n < graph.num_nodes(); ++n)
      for (const std::string& output : graph.node(n).outputs())
        if (graph.Producer(output) == n) made(output, StrCat(prefix, "n", n));
    for (int n = 0; n < graph.num_nodes(); ++n) {
      const auto& def = graph.node(n);
      const std::string box = StrCat(prefix, "n", n);
      const auto is_line = [&](const std::string& input) {  // and no edge
        return !options_.constants && graph.IsConstant(input) && values.Find(input) < 0;
      };
      std::string label = Label(def);
      for (const std::string& input : def.inputs())
        if (is_line(input))
          label += StrCat("\n", input, " ", TensorInfo::Of(*graph.FindConstant(input)));
      Node(indent, box, label, "shape=box, fillcolor=\"#cfdff3\"");
      for (const std::string& input : def.inputs()) {
        if (input.empty() || is_line(input)) continue;
        if (values.Find(input) < 0) MadeByNobody(input, prefix, indent, made);
        Edge(indent, makers[static_cast<size_t>(values.Find(input))], box,
             "label=" + Quote(Describe(input, types)));
      }
      ForEachRewritten(def, [&](const std::string& name) { made(name, box); });
      for (const std::string& name : def.control_inputs())
        for (int from = 0; from < graph.num_nodes(); ++from)
          if (graph.node(from).name() == name) {
            Edge(indent, StrCat(prefix, "n", from), box, "style=dashed");
            break;
          }
      for (const auto& item : def.subgraphs()) Subgraph(item, box, indent);
    }
    for (size_t o = 0; o < graph.outputs().size(); ++o) {
      const std::string& output = graph.outputs()[o];
      const std::string box = StrCat(prefix, "o", o);
      if (values.Find(output) < 0) MadeByNobody(output, prefix, indent, made);
      Node(indent, box, output, "shape=ellipse, peripheries=2, fillcolor=\"#f6d9c9\"");
      Edge(indent, makers[static_cast<size_t>(values.Find(output))], box,
           types ? "label=" + Quote(ToString(types->at(output))) : "");
    }
  }
  // A graph that is not right yet can be drawn too.
  template <class Made>
  void MadeByNobody(const std::string& name, const std::string& prefix, const std::string& indent,
                    Made&& made) {
    const std::string box = StrCat(prefix, "m", missing_++);
    Node(indent, box, name + "\nmissing", "shape=ellipse, color=red, fillcolor=white");
    made(name, box);
  }
  static std::string Describe(const std::string& value, const GraphTypes* types) {
    return types ? value + "\n" + ToString(types->at(value)) : value;
  }
  template <class Item>
  void Subgraph(const Item& item, const std::string& box, const std::string& indent) {
    const std::string prefix = StrCat("s", subgraphs_++, "_");
    out_ += StrCat(indent, "subgraph cluster_", prefix, " {\n");
    out_ += StrCat(indent, "  label=", Quote(item.name)) + ";\n";
    Node(indent + "  ", prefix + "head", "", "shape=point, style=invis");
    if (const G* inner = GraphOf(*item.graph)) {
      Graph(*inner, nullptr, prefix, indent + "  ");
    } else {
      Node(indent + "  ", prefix + "text", item.graph->Describe(), "shape=plaintext, style=\"\"");
    }
    out_ += indent + "}\n";
    Edge(indent, box, prefix + "head", "style=dotted, arrowhead=none, lhead=cluster_" + prefix);
  }

  DotOptions options_;
  std::string out_;
  int subgraphs_ = 0, missing_ = 0;
};

}  // namespace detail

// Inputs are green, constants grey, nodes blue, outputs double. Edges go from who made a value, or
// rewrote it last, to who reads it, and carry its name, with dtype and shape where types are given;
// control inputs are dashed, subgraphs framed. A graph need not be right to be drawn without types.
//
//   const GraphView view(graph);
//   std::string picture = ToDot(graph, InferGraph(view));
template <class G = Graph>
std::string ToDot(const G& graph, const DotOptions& options = {}) {
  return detail::DotWriter<G>::Write(graph, nullptr, options);
}
template <class G = Graph>
std::string ToDot(const G& graph, const GraphTypes& types, const DotOptions& options = {}) {
  return detail::DotWriter<G>::Write(graph, &types, options);
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_DOT_HPP_
