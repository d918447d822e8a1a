// Writes the text and the JSON of an explanation.
#ifndef OPKIT_GRAPH_IMPL_EXPLANATION_IPP_
#define OPKIT_GRAPH_IMPL_EXPLANATION_IPP_

#include "opkit/base/index.hpp"
#include "opkit/base/json/json_writer.hpp"
#include "opkit/base/strings.hpp"
#include "opkit/graph/explanation.hpp"
#include "opkit/profile/text_columns.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the backend, the variant, the device, the layouts and the estimated times of a candidate.
inline std::string DescribeCandidate(const Explanation::Candidate& one) {
  std::string text = one.backend;
  if (!one.variant.empty()) text += " " + one.variant;
  if (!one.device.empty()) text += " on " + one.device;
  if (!one.layouts.empty()) text += StrCat(", ", one.layouts);
  if (one.cost_ns >= 0) text += StrCat(", about ", Microseconds(one.cost_ns), " us");
  if (one.conversion_ns > 0)
    text += StrCat(", ", Microseconds(one.conversion_ns), " us of conversions before it");
  return text;
}

// Returns the reason for a chosen way that was not measured fastest.
inline std::string WhyChosen(const Explanation::Node& node) {
  const Explanation::Measured& fastest = node.measured[0];
  if (fastest.is_chosen) return "";
  for (const Explanation::Measured& one : node.measured)
    if (one.is_chosen && one.low_ns <= fastest.high_ns) return ": kept, within noise";
  return ": with its conversions and neighbours";
}

inline void AppendNodes(const std::vector<Explanation::Node>& nodes, const std::string& indent,
                        std::string& text) {
  int step = 0;
  for (const Explanation::Node& node : nodes) {
    text += StrCat(indent, step++, " ", node.text, ": ");
    if (node.is_converter()) {
      text += StrCat(node.from, " -> ", node.to, ", ", node.bytes, " bytes, about ",
                     Microseconds(node.ns), " us\n");
      continue;
    }
    const Explanation::Candidate& chosen = node.candidates[Index(node.chosen)];
    text += DescribeCandidate(chosen) + "\n";
    for (const std::string& part : node.parts) text += StrCat(indent, "    is ", part, "\n");
    for (const Explanation::Candidate& one : node.candidates) {
      if (&one == &chosen) continue;
      const bool next = node.runner_up >= 0 && &one == &node.candidates[Index(node.runner_up)];
      text += StrCat(indent, next ? "    then " : "    not ", DescribeCandidate(one), ": ",
                     one.why_not, "\n");
    }
    for (const Explanation::Measured& one : node.measured)
      text += StrCat(indent, "    measured ", one.way, ": ", Microseconds(one.median_ns), " us (",
                     Microseconds(one.low_ns), " to ", Microseconds(one.high_ns),
                     one.is_chosen ? StrCat("), chosen", WhyChosen(node), "\n") : ")\n");
    for (const Explanation::Body& body : node.bodies) {
      text += StrCat(indent, "  ", body.name, ":\n");
      AppendNodes(body.nodes, indent + "    ", text);
    }
  }
}
inline void WriteNodes(const std::vector<Explanation::Node>& nodes, JsonWriter& json) {
  json.BeginArray();
  for (const Explanation::Node& node : nodes) {
    if (&node != nodes.data()) json.NewLine();
    json.BeginObject().Member("name", node.name).Member("text", node.text);
    if (node.is_converter()) {
      json.Member("from", node.from).Member("to", node.to);
      json.Member("bytes", node.bytes).Member("ns", node.ns).EndObject();
      continue;
    }
    json.Member("parts", node.parts).Member("chosen", node.chosen);
    json.Member("runner_up", node.runner_up).Key("candidates").BeginArray();
    for (const Explanation::Candidate& one : node.candidates) {
      json.BeginObject().Member("backend", one.backend).Member("device", one.device);
      json.Member("place", one.place).Member("config", one.config);
      json.Member("variant", one.variant);
      json.Member("layouts", one.layouts).Member("cost_ns", one.cost_ns);
      json.Member("conversion_ns", one.conversion_ns).Member("why_not", one.why_not).EndObject();
    }
    json.EndArray();
    if (!node.measured.empty()) {
      json.Key("measured").BeginArray();
      for (const Explanation::Measured& one : node.measured) {
        json.BeginObject().Member("way", one.way).Member("median_ns", one.median_ns);
        json.Member("low_ns", one.low_ns).Member("high_ns", one.high_ns);
        json.Member("is_chosen", one.is_chosen).EndObject();
      }
      json.EndArray();
    }
    if (!node.bodies.empty()) {
      json.Key("bodies").BeginArray();
      for (const Explanation::Body& body : node.bodies) {
        json.BeginObject().Member("name", body.name).Key("nodes");
        WriteNodes(body.nodes, json);
        json.EndObject();
      }
      json.EndArray();
    }
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace detail

OPKIT_INLINE std::string ToString(const Explanation& explanation) {
  std::string text;
  detail::AppendNodes(explanation.nodes, "", text);
  text += StrCat(explanation.converters, " conversions between layouts, ",
                 explanation.converted_bytes, " bytes");
  if (explanation.copies > 0)
    text += StrCat("; ", explanation.copies, " copies between devices, ", explanation.copied_bytes,
                   " bytes");
  if (explanation.converted_constants > 0)
    text += StrCat("; ", explanation.converted_constants, " constants converted by Compile");
  if (explanation.recomputed_nodes > 0)
    text += StrCat("; ", explanation.recomputed_nodes, " nodes computed again");
  return text + "\n";
}

OPKIT_INLINE std::string ToJson(const Explanation& explanation) {
  std::string out;
  detail::JsonWriter json(out);
  json.BeginObject().Key("nodes");
  detail::WriteNodes(explanation.nodes, json);
  json.Member("converters", explanation.converters);
  json.Member("converted_bytes", explanation.converted_bytes);
  json.Member("copies", explanation.copies).Member("copied_bytes", explanation.copied_bytes);
  json.Member("converted_constants", explanation.converted_constants);
  json.Member("recomputed_nodes", explanation.recomputed_nodes).EndObject();
  return out;
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_EXPLANATION_IPP_
