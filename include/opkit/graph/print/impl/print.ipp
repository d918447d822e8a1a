// ToString's definition: the lines of a graph, and the difference of the lines of two graphs.
#ifndef OPKIT_GRAPH_PRINT_IMPL_PRINT_IPP_
#define OPKIT_GRAPH_PRINT_IMPL_PRINT_IPP_

#include <algorithm>

#include "opkit/graph/print/print.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline std::string NodeLine(const OperatorDef& def) {
  std::string out = ToString(def), args;
  for (const NamedAttribute& arg : def.args())
    args += StrCat(args.empty() ? "" : ", ", arg.name, "=", ToString(arg.value));
  if (!args.empty()) out += " {" + args + "}";
  if (!def.backends().empty())
    out += (def.requires_backends() ? " requires backend " : " backend ") + def.backends();
  if (def.process() >= 0) out += StrCat(" process ", def.process());
  if (def.is_gradient_op()) out += " gradient";
  for (size_t i = 0; i < def.control_inputs().size(); ++i)
    out += (i ? ", " : " after ") + def.control_inputs()[i];
  return out;
}

// Returns the lines of a graph. Lines of subgraphs are indented below their node.
inline std::vector<std::string> GraphLines(const Graph& graph, const std::string& indent = "") {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& line) {
    lines.emplace_back(indent);
    for (const char c : line) lines.back() += c == '\n' ? "\\n" : std::string(1, c);
  };
  const auto on = [](Device device) {
    return device == Device{} ? std::string() : " on " + ToString(device);
  };
  for (const Graph::Input& input : graph.inputs())
    add(StrCat("input ", input.name, " ", ToString(input.info), on(input.info.device),
               input.has_default() ? StrCat(" with the default ", input.default_value) : ""));
  for (const Graph::Constant& constant : graph.constants())
    add(StrCat("constant ", constant.name, " ", constant.value.dtype(),
               ToString(constant.value.shape()), on(constant.value.device())));
  for (const OperatorDef& def : graph.nodes()) {
    add(NodeLine(def) + on(def.device()));
    for (const NamedSubgraph& item : def.subgraphs()) {
      const Graph* inner = GraphOf(*item.graph);
      add(StrCat("  ", item.name, ":", inner ? "" : " " + item.graph->Describe()));
      if (!inner) continue;
      for (std::string& line : GraphLines(*inner, indent + "    "))
        lines.push_back(std::move(line));
    }
  }
  for (const std::string& output : graph.outputs()) add("output " + output);
  return lines;
}

inline std::string JoinLines(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

// Finds the longest common subsequence of two lists of lines, with memory linear in their length
// (Hirschberg 1975). Common beginnings and ends take linear time.
class LineDiff {
 public:
  LineDiff(std::vector<std::string> before, std::vector<std::string> after)
      : before_(std::move(before)), after_(std::move(after)) {
    NameIndex numbers;
    for (const std::string& line : before_) a_.push_back(numbers.Add(line));
    for (const std::string& line : after_) b_.push_back(numbers.Add(line));
    Split(0, a_.size(), 0, b_.size());
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  void Removed(size_t i) { lines_.push_back("- " + before_[i]); }
  void Added(size_t i) { lines_.push_back("+ " + after_[i]); }
  void Kept(size_t i) { lines_.push_back("  " + before_[i]); }

  // Compares lines [a0, a1) with lines [b0, b1): halves the first range and finds the best place to
  // divide the second range.
  void Split(size_t a0, size_t a1, size_t b0, size_t b1) {
    while (a0 < a1 && b0 < b1 && a_[a0] == b_[b0]) Kept(a0++), ++b0;
    size_t tail = 0;
    while (a0 < a1 && b0 < b1 && a_[a1 - 1] == b_[b1 - 1]) --a1, --b1, ++tail;
    if (a1 - a0 <= 1 || b0 == b1) {
      Small(a0, a1, b0, b1);
    } else {
      const size_t middle = a0 + (a1 - a0) / 2;
      const std::vector<int> head = Lengths(a0, middle, b0, b1, false);
      const std::vector<int> rest = Lengths(middle, a1, b0, b1, true);
      size_t best = 0;
      const size_t width = b1 - b0;
      for (size_t j = 1; j <= width; ++j)
        if (head[j] + rest[width - j] > head[best] + rest[width - best]) best = j;
      Split(a0, middle, b0, b0 + best);
      Split(middle, a1, b0 + best, b1);
    }
    for (size_t i = 0; i < tail; ++i) Kept(a1 + i);
  }
  // Compares at most one line of `before`, or any lines of `before` with none of `after`.
  void Small(size_t a0, size_t a1, size_t b0, size_t b1) {
    size_t match = b1;
    for (size_t j = b0; j < b1 && a0 < a1; ++j)
      if (a_[a0] == b_[j]) match = j;
    if (match == b1)
      for (size_t i = a0; i < a1; ++i) Removed(i);
    for (size_t j = b0; j < b1; ++j) j == match ? Kept(a0) : Added(j);
  }
  // Returns as element j the length of the longest common subsequence of [a0, a1) with the first j
  // lines of [b0, b1), or with the last j lines if `backwards`.
  std::vector<int> Lengths(size_t a0, size_t a1, size_t b0, size_t b1, bool backwards) const {
    const size_t height = a1 - a0, width = b1 - b0;
    std::vector<int> row(width + 1, 0);
    for (size_t i = 0; i < height; ++i) {
      const int line = a_[backwards ? a1 - 1 - i : a0 + i];
      int diagonal = 0;
      for (size_t j = 1; j <= width; ++j) {
        const int above = row[j];
        const bool same = b_[backwards ? b1 - j : b0 + j - 1] == line;
        row[j] = same ? diagonal + 1 : (std::max)(row[j], row[j - 1]);
        diagonal = above;
      }
    }
    return row;
  }

  const std::vector<std::string> before_, after_;
  std::vector<int> a_, b_;  // the lines as numbers
  std::vector<std::string> lines_;
};

}  // namespace detail

OPKIT_INLINE std::string ToString(const Graph& graph) {
  return detail::JoinLines(detail::GraphLines(graph));
}

OPKIT_INLINE std::string ToString(const Graph& before, const Graph& after) {
  return detail::JoinLines(
      detail::LineDiff(detail::GraphLines(before), detail::GraphLines(after)).lines());
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PRINT_IMPL_PRINT_IPP_
