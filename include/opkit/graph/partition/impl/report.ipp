// PartitionReport's definitions: writes the text, the JSON and the picture.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_REPORT_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_REPORT_IPP_

#include <algorithm>

#include "opkit/graph/partition/report.hpp"
#include "opkit/profile/json_text.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline std::string CountText(size_t count, const char* one) {
  return StrCat(count, " ", one, count == 1 ? "" : "s");
}
template <class T, class F>
void AppendJsonList(std::string& out, const std::vector<T>& items, F&& append) {
  out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append(items[i]);
  }
  out += ']';
}
inline void AppendJsonStrings(std::string& out, const std::vector<std::string>& items) {
  AppendJsonList(out, items, [&](const std::string& item) { AppendJsonString(out, item); });
}

}  // namespace detail

OPKIT_INLINE int PartitionReport::num_taken() const {
  int taken = 0;
  for (const Node& node : nodes) taken += node.subgraph >= 0;
  return taken;
}

OPKIT_INLINE std::string PartitionReport::ToText() const {
  size_t accepted = 0;
  for (const Subgraph& subgraph : subgraphs) accepted += subgraph.rejected.empty();
  std::string out = StrCat(num_taken(), " of ", detail::CountText(nodes.size(), "node"),
                           " taken, in ", detail::CountText(accepted, "subgraph"), "\n");
  for (size_t s = 0; s < subgraphs.size(); ++s) {
    const Subgraph& subgraph = subgraphs[s];
    out += StrCat("subgraph ", s, ": ", subgraph.partitioner, ", ", subgraph.op, " '",
                  subgraph.name, "', ", detail::CountText(subgraph.nodes.size(), "node"));
    if (!subgraph.rejected.empty()) out += ", " + subgraph.rejected;
    out += StrCat("\n  reads ", subgraph.inputs, ", ", subgraph.input_bytes, " bytes; makes ",
                  subgraph.outputs, ", ", subgraph.output_bytes, " bytes");
    if (subgraph.open_values > 0)
      out += StrCat(", and ", detail::CountText(detail::Index(subgraph.open_values), "value"),
                    " of open shape");
    out += StrCat("\n  ", subgraph.flops, " flops");
    if (subgraph.unknown_costs > 0)
      out += StrCat(", and ", detail::CountText(detail::Index(subgraph.unknown_costs), "node"),
                    " of unknown cost");
    if (subgraph.own_ns > 0)
      out += StrCat("\n  measured: ", subgraph.own_ns, " ns, ", subgraph.flat_ns,
                    " ns as the nodes that it replaces");
    out += '\n';
  }
  for (size_t n = 0; n < nodes.size(); ++n) {
    out += StrCat("node ", n, " ", graph.node(static_cast<int>(n)), ": ");
    if (const int s = nodes[n].subgraph; s >= 0) {
      out += StrCat("in subgraph ", s, "\n");
      continue;
    }
    std::string why;
    for (const auto& [partitioner, reason] : nodes[n].refused)
      why += StrCat(why.empty() ? "" : "; ", partitioner, ": ", reason);
    out += (why.empty() ? "stays" : "stays; " + why) + "\n";
  }
  return out;
}

OPKIT_INLINE std::string PartitionReport::ToJson() const {
  using detail::AppendJsonString;
  std::string out =
      StrCat("{\"taken\": ", num_taken(), ", \"of\": ", nodes.size(), ",\n \"subgraphs\": ");
  detail::AppendJsonList(out, subgraphs, [&](const Subgraph& subgraph) {
    const auto text = [&](const char* name, const std::string& value) {
      out += StrCat("\"", name, "\": ");
      AppendJsonString(out, value);
      out += ", ";
    };
    const auto number = [&](const char* name, uint64_t value) {
      out += StrCat("\"", name, "\": ", value, ", ");
    };
    out += "\n  {";
    text("partitioner", subgraph.partitioner);
    text("op", subgraph.op);
    text("name", subgraph.name);
    out += StrCat("\"kind\": ", subgraph.kind, ", \"nodes\": ", subgraph.nodes, ", \"inputs\": ");
    detail::AppendJsonStrings(out, subgraph.inputs);
    out += ", \"outputs\": ";
    detail::AppendJsonStrings(out, subgraph.outputs);
    out += ", ";
    number("input_bytes", subgraph.input_bytes);
    number("output_bytes", subgraph.output_bytes);
    number("open_values", static_cast<uint64_t>(subgraph.open_values));
    number("flops", subgraph.flops);
    number("unknown_costs", static_cast<uint64_t>(subgraph.unknown_costs));
    out += StrCat("\"flat_ns\": ", subgraph.flat_ns, ", \"own_ns\": ", subgraph.own_ns,
                  ", \"rejected\": ");
    AppendJsonString(out, subgraph.rejected);
    out += '}';
  });
  out += ",\n \"nodes\": ";
  int index = 0;
  detail::AppendJsonList(out, nodes, [&](const Node& node) {
    const OperatorDef& def = graph.node(index);
    out += StrCat("\n  {\"node\": ", index++, ", \"op\": ");
    AppendJsonString(out, def.type());
    out += ", \"name\": ";
    AppendJsonString(out, def.name());
    if (node.subgraph >= 0) {
      const Subgraph& subgraph = subgraphs[detail::Index(node.subgraph)];
      out += StrCat(", \"subgraph\": ", node.subgraph, ", \"taken_by\": ");
      AppendJsonString(out, subgraph.partitioner);
    } else {
      // One entry for each partitioner, with all its reasons.
      std::vector<std::pair<std::string, std::string>> refused;
      for (const auto& [partitioner, why] : node.refused) {
        const auto known =
            std::ranges::find(refused, partitioner, [](auto& one) { return one.first; });
        if (known == refused.end())
          refused.emplace_back(partitioner, why);
        else if (known->second != why)
          known->second += "; " + why;
      }
      out += ", \"refused\": {";
      bool first = true;
      for (const auto& [partitioner, why] : refused) {
        if (!std::exchange(first, false)) out += ", ";
        AppendJsonString(out, partitioner);
        out += ": ";
        AppendJsonString(out, why);
      }
      out += '}';
    }
    out += '}';
  });
  return out + "}\n";
}

OPKIT_INLINE std::string PartitionReport::ToDot(const DotOptions& options) const {
  std::vector<detail::DotGroup> groups;
  for (const Subgraph& subgraph : subgraphs)
    if (subgraph.rejected.empty())
      groups.push_back({StrCat(subgraph.partitioner, "\n", subgraph.name), subgraph.nodes});
  const GraphView view(graph);
  const GraphTypes types = InferGraph(view, {}, UnknownOperators::kAllowed);
  return detail::DrawDot(graph, &types, options, nullptr, &groups);
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_IMPL_REPORT_IPP_
