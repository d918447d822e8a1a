// Writes the text and the JSON of an explanation.
#ifndef OPKIT_GRAPH_IMPL_EXPLANATION_IPP_
#define OPKIT_GRAPH_IMPL_EXPLANATION_IPP_

#include "opkit/base/index.hpp"
#include "opkit/base/strings.hpp"
#include "opkit/graph/explanation.hpp"
#include "opkit/profile/json_text.hpp"
#include "opkit/profile/text_columns.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the device, the layouts and the estimated times of a candidate.
inline std::string EstimateOf(const Explanation::Candidate& one) {
  std::string text;
  if (!one.device.empty()) text += " on " + one.device;
  if (!one.layouts.empty()) text += StrCat(", ", one.layouts);
  if (one.cost_ns >= 0) text += StrCat(", about ", Microseconds(one.cost_ns), " us");
  if (one.conversion_ns > 0)
    text += StrCat(", ", Microseconds(one.conversion_ns), " us of conversions before it");
  return text;
}

// Writes the members of a JSON object; the destructor closes the object.
class JsonMembers {
 public:
  explicit JsonMembers(std::string& out) : out_(out) { out_ += '{'; }
  JsonMembers(const JsonMembers&) = delete;
  JsonMembers& operator=(const JsonMembers&) = delete;
  ~JsonMembers() { out_ += '}'; }
  std::string& Member(std::string_view name) {
    if (out_.back() != '{') out_ += ", ";
    AppendJsonString(out_, name);
    return out_ += ": ";
  }
  void Text(std::string_view name, std::string_view value) {
    AppendJsonString(Member(name), value);
  }
  template <class Number>
  void Value(std::string_view name, Number value) {
    Member(name) += StrCat(value);
  }

 private:
  std::string& out_;
};

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
    text += StrCat(chosen.backend, EstimateOf(chosen), "\n");
    for (const std::string& part : node.parts) text += StrCat(indent, "    is ", part, "\n");
    for (const Explanation::Candidate& one : node.candidates) {
      if (&one == &chosen) continue;
      const bool next = node.runner_up >= 0 && &one == &node.candidates[Index(node.runner_up)];
      text += StrCat(indent, next ? "    then " : "    not ", one.backend, EstimateOf(one), ": ",
                     StrCat(one.why_not, "\n"));
    }
    for (const Explanation::Body& body : node.bodies) {
      text += StrCat(indent, "  ", body.name, ":\n");
      AppendNodes(body.nodes, indent + "    ", text);
    }
  }
}
inline void AppendNodesJson(const std::vector<Explanation::Node>& nodes, std::string& out) {
  out += '[';
  for (const Explanation::Node& node : nodes) {
    if (&node != nodes.data()) out += ",\n";
    JsonMembers object(out);
    object.Text("name", node.name);
    object.Text("text", node.text);
    if (node.is_converter()) {
      object.Text("from", node.from);
      object.Text("to", node.to);
      object.Value("bytes", node.bytes);
      object.Value("ns", node.ns);
      continue;
    }
    object.Member("parts") += '[';
    for (const std::string& part : node.parts) {
      if (&part != node.parts.data()) out += ", ";
      AppendJsonString(out, part);
    }
    out += ']';
    object.Value("chosen", node.chosen);
    object.Value("runner_up", node.runner_up);
    object.Member("candidates") += '[';
    for (const Explanation::Candidate& one : node.candidates) {
      if (&one != node.candidates.data()) out += ", ";
      JsonMembers candidate(out);
      candidate.Text("backend", one.backend);
      candidate.Text("device", one.device);
      candidate.Text("place", one.place);
      candidate.Value("config", one.config);
      candidate.Text("layouts", one.layouts);
      candidate.Value("cost_ns", one.cost_ns);
      candidate.Value("conversion_ns", one.conversion_ns);
      candidate.Text("why_not", one.why_not);
    }
    out += ']';
    if (node.bodies.empty()) continue;
    object.Member("bodies") += '[';
    for (const Explanation::Body& body : node.bodies) {
      if (&body != node.bodies.data()) out += ", ";
      JsonMembers inner(out);
      inner.Text("name", body.name);
      AppendNodesJson(body.nodes, inner.Member("nodes"));
    }
    out += ']';
  }
  out += ']';
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
  {
    detail::JsonMembers all(out);
    detail::AppendNodesJson(explanation.nodes, all.Member("nodes"));
    all.Value("converters", explanation.converters);
    all.Value("converted_bytes", explanation.converted_bytes);
    all.Value("copies", explanation.copies);
    all.Value("copied_bytes", explanation.copied_bytes);
    all.Value("converted_constants", explanation.converted_constants);
    all.Value("recomputed_nodes", explanation.recomputed_nodes);
  }
  return out;
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_EXPLANATION_IPP_
