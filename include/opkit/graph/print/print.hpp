// PrintGraph: a graph as text, one line for each input, constant, node and output, and two graphs
// as the difference between these lines: what did a pass do?
#ifndef OPKIT_GRAPH_PRINT_PRINT_HPP_
#define OPKIT_GRAPH_PRINT_PRINT_HPP_

#include "opkit/graph/subgraph.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A template, so that programs that print no graph do not compile it.
template <class G>
class GraphPrinter {
 public:
  // Subgraphs are indented below their node.
  static void Print(const G& graph, const std::string& indent, std::vector<std::string>& lines) {
    const auto add = [&](const std::string& line) {
      lines.emplace_back(indent);
      for (const char c : line) lines.back() += c == '\n' ? "\\n" : std::string(1, c);
    };
    const auto on = [](Device device) {
      return device == Device{} ? std::string() : " on " + ToString(device);
    };
    for (const auto& input : graph.inputs())
      add(StrCat("input ", input.name, " ", ToString(input.info), on(input.info.device)));
    for (const auto& constant : graph.constants())
      add(StrCat("constant ", constant.name, " ", constant.value.dtype(),
                 ToString(constant.value.shape()), on(constant.value.device())));
    for (const auto& def : graph.nodes()) {
      add(Node(def) + on(def.device()));
      for (const auto& item : def.subgraphs()) {
        const G* inner = GraphOf(*item.graph);
        add(StrCat("  ", item.name, ":", inner ? "" : " " + item.graph->Describe()));
        if (inner) Print(*inner, indent + "    ", lines);
      }
    }
    for (const std::string& output : graph.outputs()) add("output " + output);
  }

  static std::string Join(const std::vector<std::string>& lines) {
    std::string out;
    for (const std::string& line : lines) out += line + "\n";
    return out;
  }

 private:
  template <class Def>
  static std::string Node(const Def& def) {
    std::string out = ToString(def), args;
    for (const auto& arg : def.args())
      args += StrCat(args.empty() ? "" : ", ", arg.name, "=", ToString(arg.value));
    if (!args.empty()) out += " {" + args + "}";
    if (!def.engine().empty()) out += " engine " + def.engine();
    if (def.is_gradient_op()) out += " gradient";
    for (size_t i = 0; i < def.control_inputs().size(); ++i)
      out += (i ? ", " : " after ") + def.control_inputs()[i];
    return out;
  }
};

// The longest common subsequence of two lists of lines, in memory linear in their length
// (Hirschberg 1975). Common beginnings and ends cost nothing more.
template <class Strings>
class LineDiff {
 public:
  LineDiff(const Strings& before, const Strings& after) : before_(before), after_(after) {
    for (const std::string& line : before) a_.push_back(numbers_.Add(line));
    for (const std::string& line : after) b_.push_back(numbers_.Add(line));
    Split(0, a_.size(), 0, b_.size());
  }
  const Strings& lines() const { return lines_; }

 private:
  void Removed(size_t i) { lines_.push_back("- " + before_[i]); }
  void Added(size_t i) { lines_.push_back("+ " + after_[i]); }
  void Kept(size_t i) { lines_.push_back("  " + before_[i]); }

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
  // At most one line before, or none after.
  void Small(size_t a0, size_t a1, size_t b0, size_t b1) {
    size_t match = b1;
    for (size_t j = b0; j < b1 && a0 < a1; ++j)
      if (a_[a0] == b_[j]) match = j;
    if (match == b1)
      for (size_t i = a0; i < a1; ++i) Removed(i);
    for (size_t j = b0; j < b1; ++j) j == match ? Kept(a0) : Added(j);
  }
  // Element j: how long the subsequence is with the first j lines after (the last j, backwards).
  std::vector<int> Lengths(size_t a0, size_t a1, size_t b0, size_t b1, bool backwards) const {
    const size_t height = a1 - a0, width = b1 - b0;
    std::vector<int> row(width + 1, 0);
    for (size_t i = 0; i < height; ++i) {
      const int line = a_[backwards ? a1 - 1 - i : a0 + i];
      int diagonal = 0;
      for (size_t j = 1; j <= width; ++j) {
        const int above = row[j];
        if (b_[backwards ? b1 - j : b0 + j - 1] == line)
          row[j] = diagonal + 1;
        else if (row[j - 1] > row[j])
          row[j] = row[j - 1];
        diagonal = above;
      }
    }
    return row;
  }

  const Strings &before_, &after_;
  NameIndex numbers_;
  std::vector<int> a_, b_;
  Strings lines_;
};

}  // namespace detail

// "input X float32[N, 3]", "constant W float32[3, 4]", "MatMul (X, W) -> (Y)", "output Y": names,
// attributes, device, engine and control inputs where they are not the plain ones. Does not need
// the graph to be right.
template <class G = Graph>
std::string PrintGraph(const G& graph) {
  std::vector<std::string> lines;
  detail::GraphPrinter<G>::Print(graph, "", lines);
  return detail::GraphPrinter<G>::Join(lines);
}

// Both listings as one: "- " before lines that only `before` has, "+ " before those that only
// `after` has, two spaces before the rest. Time is the product of the numbers of lines that differ.
template <class G = Graph>
std::string PrintGraph(const G& before, const G& after) {
  std::vector<std::string> a, b;
  detail::GraphPrinter<G>::Print(before, "", a);
  detail::GraphPrinter<G>::Print(after, "", b);
  return detail::GraphPrinter<G>::Join(detail::LineDiff<std::vector<std::string>>(a, b).lines());
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_PRINT_PRINT_HPP_
