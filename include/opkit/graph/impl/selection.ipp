// Writes and parses the text of a selection.
#ifndef OPKIT_GRAPH_IMPL_SELECTION_IPP_
#define OPKIT_GRAPH_IMPL_SELECTION_IPP_

#include <algorithm>
#include <charconv>

#include "opkit/base/error.hpp"
#include "opkit/base/strings.hpp"
#include "opkit/graph/selection.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Appends a field with its escapes, and the character `end`.
inline void AppendField(std::string& text, std::string_view field, char end) {
  for (const char c : field) {
    if (c == '\\' || c == '\t' || c == '\n') text += '\\';
    text += c == '\t' ? 't' : c == '\n' ? 'n' : c;
  }
  text += end;
}
// Returns the field that begins at `at`, without escapes, and moves `at` behind the tab after it.
inline std::string TakeField(std::string_view line, size_t& at) {
  std::string field;
  for (; at < line.size() && line[at] != '\t'; ++at) {
    char c = line[at];
    if (c == '\\' && at + 1 < line.size()) {
      c = line[++at];
      c = c == 't' ? '\t' : c == 'n' ? '\n' : c;
    }
    field += c;
  }
  ++at;
  return field;
}

}  // namespace detail

OPKIT_INLINE const Selection::Node* Selection::Find(std::string_view node) const {
  const auto found = std::ranges::find(nodes, node, &Selection::Node::node);
  return found == nodes.end() ? nullptr : &*found;
}

OPKIT_INLINE std::string ToString(const Selection& selection) {
  std::string text;
  for (const Selection::Node& one : selection.nodes) {
    detail::AppendField(text, one.node, '\t');
    detail::AppendField(text, one.op, '\t');
    detail::AppendField(text, one.backend, '\t');
    detail::AppendField(text, StrCat(one.config), '\t');
    detail::AppendField(text, one.device, '\t');
    detail::AppendField(text, one.layouts, '\t');
    detail::AppendField(text, one.variant, '\t');
    while (text.back() == '\t') text.pop_back();  // a tab inside a field is written \t
    text += '\n';
  }
  return text;
}

OPKIT_INLINE Selection ParseSelection(std::string_view text) {
  Selection selection;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = (std::min)(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix((std::min)(end + 1, text.size()));
    Selection::Node& one = selection.nodes.emplace_back();
    size_t at = 0;
    one.node = detail::TakeField(line, at);
    one.op = detail::TakeField(line, at);
    one.backend = detail::TakeField(line, at);
    const std::string config = detail::TakeField(line, at);
    for (std::string* field : {&one.device, &one.layouts, &one.variant})
      if (at < line.size()) *field = detail::TakeField(line, at);
    const auto [rest, error] =
        std::from_chars(config.data(), config.data() + config.size(), one.config);
    if (error != std::errc() || rest != config.data() + config.size() || one.config < -1 ||
        at < line.size() || one.node.empty() || one.backend.empty())
      Throw(ErrorCode::kInvalidArgument, "line ", number, " of a selection is '", line,
            "'; expected node, operator, backend, the number of a configuration and perhaps a "
            "device, layouts and a variant, with tabs between them");
  }
  return selection;
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_SELECTION_IPP_
