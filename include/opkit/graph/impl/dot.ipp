// ToDot's definition: writes a graph's boxes and edges, and those of the graphs inside its nodes.
#ifndef OPKIT_GRAPH_IMPL_DOT_IPP_
#define OPKIT_GRAPH_IMPL_DOT_IPP_

#include "opkit/base/index.hpp"
#include "opkit/base/name_map.hpp"
#include "opkit/graph/dot.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Writes the text of one picture.
class DotWriter {
 public:
  // Draws a box around each group, if `groups` is not null.
  DotWriter(const DotOptions& options, const std::vector<std::string>* backends,
            const std::vector<DotGroup>* groups)
      : options_(options), backends_(backends), groups_(groups) {}
  OPKIT_COLD std::string Write(const Graph& graph, const GraphTypes* types) && {
    out_ =
        "digraph opkit {\n"
        "  compound=true;\n"
        "  fontname=\"Helvetica\";\n"
        "  node [fontname=\"Helvetica\", fontsize=10, style=filled];\n"
        "  edge [fontname=\"Helvetica\", fontsize=8];\n";
    DrawGraph({graph, types, "", "  "});
    return out_ + "}\n";
  }

 private:
  // Quotes a label: line ends stay line ends, and `&` does not begin an entity.
  OPKIT_COLD static std::string Quote(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      if (c == '\n')
        out += "\\n";
      else if (c == '&')
        out += "&amp;";
      else if (c != '\r' && c != '\0')
        out += c;
    }
    return out + "\"";
  }
  void DrawNode(const std::string& indent, const std::string& id, const std::string& label,
                const char* look) {
    out_ += StrCat(indent, id, " [label=", Quote(label), ", ", look) + "];\n";
  }
  void DrawEdge(const std::string& indent, const std::string& from, const std::string& to,
                const std::string& attributes) {
    out_ +=
        StrCat(indent, from, " -> ", to, attributes.empty() ? "" : " [" + attributes + "]") + ";\n";
  }
  OPKIT_COLD static std::string Label(const OperatorDef& def) {
    std::string out = def.type();
    if (!def.name().empty()) out += " '" + def.name() + "'";
    for (const NamedAttribute& arg : def.args()) out += "\n" + arg.name + "=" + ToString(arg.value);
    if (def.device() != Device{}) out += "\non " + ToString(def.device());
    if (!def.backends().empty()) out += "\nbackend " + def.backends();
    return out;
  }

  // A graph that is being drawn. `prefix` makes the names of a subgraph's boxes unique; "" for the
  // whole graph.
  struct Drawn {
    const Graph& graph;
    const GraphTypes* types;
    const std::string prefix, indent;
    NameMap<std::string> makers = {};  // by value: the box that made or wrote it last
  };

  OPKIT_COLD void DrawGraph(Drawn drawn) {
    const Graph& graph = drawn.graph;
    DrawSources(drawn);
    for (int n = 0; n < graph.num_nodes(); ++n)
      for (const std::string& output : graph.node(n).outputs())
        if (graph.Producer(output) == n) drawn.makers[output] = StrCat(drawn.prefix, "n", n);
    for (int n = 0; n < graph.num_nodes(); ++n) DrawOperator(drawn, n);
    if (groups_ && drawn.prefix.empty()) DrawGroups(drawn.indent);
    for (size_t o = 0; o < graph.outputs().size(); ++o) {
      const std::string& output = graph.outputs()[o];
      const std::string box = StrCat(drawn.prefix, "o", o);
      const std::string maker = MakerOf(drawn, output);
      DrawNode(drawn.indent, box, output, "shape=ellipse, peripheries=2, fillcolor=\"#f6d9c9\"");
      DrawEdge(drawn.indent, maker, box,
               drawn.types ? "label=" + Quote(ToString(drawn.types->Get(output))) : "");
    }
  }
  // Returns the box of a value. Draws a red box if nothing makes the value: the graph has an error.
  std::string MakerOf(Drawn& drawn, const std::string& value) {
    std::string& box = drawn.makers[value];
    if (box.empty()) {
      box = StrCat(drawn.prefix, "m", missing_++);
      DrawNode(drawn.indent, box, value + "\nmissing", "shape=ellipse, color=red, fillcolor=white");
    }
    return box;
  }
  // Draws the inputs and the constants.
  OPKIT_COLD void DrawSources(Drawn& drawn) {
    const auto draw = [&](const std::string& box, const std::string& name, const TensorInfo& info,
                          const char* look) {
      DrawNode(drawn.indent, box, name + "\n" + ToString(info), look);
      drawn.makers[name] = box;
    };
    const Graph& graph = drawn.graph;
    for (size_t i = 0; i < graph.inputs().size(); ++i)
      draw(StrCat(drawn.prefix, "i", i),
           graph.inputs()[i].name + (graph.inputs()[i].has_default() ? " (default)" : ""),
           graph.inputs()[i].info, "shape=ellipse, fillcolor=\"#cfe8cf\"");
    for (size_t i = 0; i < graph.constants().size(); ++i)
      if (const Graph::Constant& constant = graph.constants()[i];
          options_.constants || graph.IsOutput(constant.name))
        draw(StrCat(drawn.prefix, "c", i), constant.name, TensorInfo::Of(constant.value),
             "shape=note, fillcolor=\"#eeeeee\"");
  }
  // Draws a node with its edges and subgraphs.
  OPKIT_COLD void DrawOperator(Drawn& drawn, int n) {
    const Graph& graph = drawn.graph;
    const OperatorDef& def = graph.node(n);
    const std::string box = StrCat(drawn.prefix, "n", n);
    const auto is_line = [&](const std::string& input) {  // drawn as a line of the box, no edge
      return !options_.constants && graph.IsConstant(input) && !drawn.makers.Has(input);
    };
    std::string label = Label(def);
    for (const std::string& input : def.inputs())
      if (is_line(input))
        label += StrCat("\n", input, " ", TensorInfo::Of(*graph.FindConstant(input)));
    const std::string* const backend =
        backends_ && drawn.prefix.empty() ? &(*backends_)[Index(n)] : nullptr;
    if (backend && !backend->empty()) label += "\n" + *backend;
    const bool converts = backend && backend->empty();
    DrawNode(drawn.indent, box, label,
             converts ? "shape=box, fillcolor=\"#f8d48a\"" : "shape=box, fillcolor=\"#cfdff3\"");
    for (const std::string& input : def.inputs())
      if (!input.empty() && !is_line(input))
        DrawEdge(drawn.indent, MakerOf(drawn, input), box,
                 "label=" + Quote(Describe(input, drawn.types)));
    ForEachRewritten(def, [&](const std::string& name) { drawn.makers[name] = box; });
    for (const std::string& name : def.control_inputs()) {
      int from = 0;
      while (from < graph.num_nodes() && graph.node(from).name() != name) ++from;
      if (from < graph.num_nodes())
        DrawEdge(drawn.indent, StrCat(drawn.prefix, "n", from), box, "style=dashed");
    }
    for (const NamedSubgraph& item : def.subgraphs()) DrawSubgraph(item, box, drawn.indent);
  }
  OPKIT_COLD void DrawGroups(const std::string& indent) {
    constexpr const char* kColours[] = {"#fde3b0", "#d9ead3", "#ead1dc", "#d0e0e3",
                                        "#fff2cc", "#d9d2e9", "#f4cccc", "#c9daf8"};
    for (size_t g = 0; g < groups_->size(); ++g) {
      const DotGroup& group = (*groups_)[g];
      out_ += StrCat(indent, "subgraph cluster_g", g, " {\n");
      out_ += StrCat(indent, "  label=", Quote(group.label), "; style=\"filled,rounded\"; color=\"",
                     kColours[g % std::size(kColours)], "\";\n");
      out_ += indent + " ";
      for (const int node : group.nodes) out_ += StrCat(" n", node, ";");
      out_ += "\n" + indent + "}\n";
    }
  }
  static std::string Describe(const std::string& value, const GraphTypes* types) {
    return types ? value + "\n" + ToString(types->Get(value)) : value;
  }
  OPKIT_COLD void DrawSubgraph(const NamedSubgraph& item, const std::string& box,
                               const std::string& indent) {
    const std::string prefix = StrCat("s", subgraphs_++, "_");
    out_ += StrCat(indent, "subgraph cluster_", prefix, " {\n");
    out_ += StrCat(indent, "  label=", Quote(item.name)) + ";\n";
    DrawNode(indent + "  ", prefix + "head", "", "shape=point, style=invis");
    if (const Graph* inner = GraphOf(*item.graph))
      DrawGraph({*inner, nullptr, prefix, indent + "  "});
    else
      DrawNode(indent + "  ", prefix + "text", item.graph->Describe(),
               "shape=plaintext, style=\"\"");
    out_ += indent + "}\n";
    DrawEdge(indent, box, prefix + "head", "style=dotted, arrowhead=none, lhead=cluster_" + prefix);
  }

  const DotOptions& options_;
  const std::vector<std::string>* const backends_;
  const std::vector<DotGroup>* const groups_;
  std::string out_;
  int subgraphs_ = 0, missing_ = 0;
};

}  // namespace detail

OPKIT_INLINE std::string detail::DrawDot(const Graph& graph, const GraphTypes* types,
                                         const DotOptions& options,
                                         const std::vector<std::string>* backends,
                                         const std::vector<DotGroup>* groups) {
  return DotWriter(options, backends, groups).Write(graph, types);
}
OPKIT_INLINE std::string ToDot(const Graph& graph, const DotOptions& options) {
  return detail::DrawDot(graph, nullptr, options, nullptr);
}
OPKIT_INLINE std::string ToDot(const Graph& graph, const GraphTypes& types,
                               const DotOptions& options) {
  return detail::DrawDot(graph, &types, options, nullptr);
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_DOT_IPP_
