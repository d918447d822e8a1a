// PartitionReport's definitions: writes the text, the JSON and the picture.
#ifndef OPKIT_GRAPH_PARTITION_IMPL_REPORT_IPP_
#define OPKIT_GRAPH_PARTITION_IMPL_REPORT_IPP_

#include <algorithm>

#include "opkit/base/json/json_writer.hpp"
#include "opkit/graph/partition/report.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline std::string CountText(size_t count, const char* one) {
  return StrCat(count, " ", one, count == 1 ? "" : "s");
}

// Returns "Relu 2 'c', 3; Add 5": the nodes' numbers by operator, with the names of up to eight
// nodes.
inline std::string ListNodes(const Graph& graph, const std::vector<int>& nodes) {
  std::vector<std::pair<std::string, std::string>> lists;
  for (const int node : nodes) {
    const OperatorDef& def = graph.node(node);
    auto list = std::ranges::find(lists, def.type(), &decltype(lists)::value_type::first);
    if (list == lists.end()) list = lists.insert(list, {def.type(), ""});
    list->second += StrCat(list->second.empty() ? " " : ", ", node);
    if (nodes.size() <= 8 && !def.name().empty()) list->second += StrCat(" '", def.name(), "'");
  }
  std::string out;
  for (const auto& [type, numbers] : lists) out += (out.empty() ? "" : "; ") + type + numbers;
  return out;
}

}  // namespace detail

OPKIT_INLINE int PartitionReport::num_taken() const {
  int taken = 0;
  for (const Node& node : nodes) taken += node.subgraph >= 0;
  return taken;
}

OPKIT_INLINE std::string ToString(const PartitionReport& report) {
  size_t accepted = 0;
  for (const PartitionReport::Subgraph& subgraph : report.subgraphs)
    accepted += subgraph.rejected.empty();
  std::string out =
      StrCat(report.num_taken(), " of ", detail::CountText(report.nodes.size(), "node"),
             " taken, in ", detail::CountText(accepted, "subgraph"), "\n");
  for (size_t s = 0; s < report.subgraphs.size(); ++s) {
    const PartitionReport::Subgraph& subgraph = report.subgraphs[s];
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
  std::vector<std::pair<std::string, std::vector<int>>> groups;  // nodes of the same answer
  for (size_t n = 0; n < report.nodes.size(); ++n) {
    const PartitionReport::Node& node = report.nodes[n];
    std::string answer = "stay";
    if (const int s = node.subgraph; s >= 0) answer = StrCat("in subgraph ", s);
    for (const auto& [partitioner, reason] : node.refused)
      if (node.subgraph < 0) answer += StrCat("; ", partitioner, ": ", reason);
    auto group = std::ranges::find(groups, answer, &decltype(groups)::value_type::first);
    if (group == groups.end()) group = groups.insert(group, {answer, {}});
    group->second.push_back(static_cast<int>(n));
  }
  for (const auto& [answer, members] : groups)
    out += StrCat(answer, "\n  ", detail::ListNodes(report.graph, members), "\n");
  return out;
}

OPKIT_INLINE std::string ToJson(const PartitionReport& report) {
  std::string out;
  detail::JsonWriter json(out);
  json.BeginObject().Member("taken", report.num_taken()).Member("of", report.nodes.size());
  json.NewLine(" ").Key("subgraphs").BeginArray();
  for (const PartitionReport::Subgraph& subgraph : report.subgraphs) {
    json.NewLine("  ").BeginObject().Member("partitioner", subgraph.partitioner);
    json.Member("op", subgraph.op).Member("name", subgraph.name).Member("kind", subgraph.kind);
    json.Member("nodes", subgraph.nodes).Member("inputs", subgraph.inputs);
    json.Member("outputs", subgraph.outputs).Member("input_bytes", subgraph.input_bytes);
    json.Member("output_bytes", subgraph.output_bytes);
    json.Member("open_values", subgraph.open_values).Member("flops", subgraph.flops);
    json.Member("unknown_costs", subgraph.unknown_costs).Member("flat_ns", subgraph.flat_ns);
    json.Member("own_ns", subgraph.own_ns).Member("rejected", subgraph.rejected).EndObject();
  }
  json.EndArray().NewLine(" ").Key("nodes").BeginArray();
  for (size_t n = 0; n < report.nodes.size(); ++n) {
    const OperatorDef& def = report.graph.node(static_cast<int>(n));
    json.NewLine("  ").BeginObject().Member("node", n);
    json.Member("op", def.type()).Member("name", def.name());
    if (const int s = report.nodes[n].subgraph; s >= 0) {
      json.Member("subgraph", s).Member("taken_by", report.subgraphs[detail::Index(s)].partitioner);
    } else {
      // One entry for each partitioner, with all its reasons.
      std::vector<std::pair<std::string, std::string>> refused;
      for (const auto& [partitioner, why] : report.nodes[n].refused) {
        const auto known =
            std::ranges::find(refused, partitioner, [](auto& one) { return one.first; });
        if (known == refused.end())
          refused.emplace_back(partitioner, why);
        else if (known->second != why)
          known->second += "; " + why;
      }
      json.Key("refused").BeginObject();
      for (const auto& [partitioner, why] : refused) json.Member(partitioner, why);
      json.EndObject();
    }
    json.EndObject();
  }
  json.EndArray().EndObject();
  return out + "\n";
}

OPKIT_INLINE std::string ToDot(const PartitionReport& report, const DotOptions& options) {
  std::vector<detail::DotGroup> groups;
  for (const PartitionReport::Subgraph& subgraph : report.subgraphs)
    if (subgraph.rejected.empty())
      groups.push_back({StrCat(subgraph.partitioner, "\n", subgraph.name), subgraph.nodes});
  const GraphView view(report.graph);
  const GraphTypes types = InferGraph(view, {}, UnknownOperators::kAllowed);
  return detail::DrawDot(report.graph, &types, options, nullptr, &groups);
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PARTITION_IMPL_REPORT_IPP_
