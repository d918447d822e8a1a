// NetBenchmark: how long each node of a net takes and at what rates it computes and moves bytes, as
// rows and as a table to read (what Caffe2's TEST_Benchmark logs).
#ifndef OPKIT_GRAPH_NET_BENCHMARK_HPP_
#define OPKIT_GRAPH_NET_BENCHMARK_HPP_

#include "opkit/base/strings.hpp"

namespace opkit::inline OPKIT_ABI {

struct NetBenchmarkOptions {
  int warmup = 1;
  int runs = 10;
};

// A node, or all nodes of one operator.
struct NetBenchmarkRow {
  std::string op;               // its type
  std::string name;             // of the node
  int node = -1;                // its index in the graph; -1 for all nodes of a type
  int count = 1;                // nodes in this row
  double ms = 0;                // of one run: the median; sums of medians for a type
  double share = 0;             // of the sum over all nodes, from 0 to 1
  double flops = 0, bytes = 0;  // of one run, by the schema's cost

  double gflops() const { return ms > 0 ? flops / ms * 1e-6 : 0; }     // per second
  double gigabytes() const { return ms > 0 ? bytes / ms * 1e-6 : 0; }  // per second
};

// A template, so that programs that measure no net do not compile it.
template <class Row>
struct BasicNetBenchmark {
  std::vector<Row> nodes;  // in the order they ran
  std::vector<Row> types;  // the longest first
  double net_ms = 0;       // a run of the whole net: the median
  int runs = 0;

  // Fills in the shares and `types` from the times of `nodes`.
  void SumUp() {
    double total = 0;
    for (const Row& row : nodes) total += row.ms;
    types.clear();
    for (Row& row : nodes) {
      row.share = total > 0 ? row.ms / total : 0;
      Row* sum = nullptr;
      for (Row& type : types)
        if (type.op == row.op) sum = &type;
      if (!sum) {
        sum = &types.emplace_back();
        sum->op = row.op;
        sum->count = 0;
      }
      ++sum->count;
      sum->ms += row.ms;
      sum->share += row.share;
      sum->flops += row.flops;
      sum->bytes += row.bytes;
    }
    for (size_t i = 1; i < types.size(); ++i)
      for (size_t k = i; k > 0 && types[k].ms > types[k - 1].ms; --k)
        std::swap(types[k], types[k - 1]);
  }

  // A header, a line for each node, the sums by operator, and the time of the whole net. A rate
  // that the schema does not tell is "-".
  friend std::string ToString(const BasicNetBenchmark& benchmark) { return Table(benchmark); }

 private:
  template <class Lines = std::vector<std::vector<std::string>>>
  static std::string Table(const BasicNetBenchmark& benchmark) {
    Lines table{{"node", "op", "ms", "share", "GFLOP/s", "GB/s"}};
    for (const Row& row : benchmark.nodes)
      table.push_back(
          Cells(row, std::to_string(row.node), row.name.empty() ? "" : " '" + row.name + "'"));
    table.push_back({});
    for (const Row& row : benchmark.types) table.push_back(Cells(row, "", StrCat(" x", row.count)));
    std::vector<size_t> widths(table[0].size(), 0);
    for (const auto& line : table)
      for (size_t c = 0; c < line.size(); ++c)
        if (line[c].size() > widths[c]) widths[c] = line[c].size();
    std::string out;
    for (const auto& line : table) {
      for (size_t c = 0; c < line.size(); ++c) {
        const std::string fill(widths[c] - line[c].size(), ' ');
        out += (c ? "  " : "") + (c == 1 ? line[c] + fill : fill + line[c]);
      }
      out += "\n";
    }
    return StrCat(out, "\nnet: ", Fixed(benchmark.net_ms, 4), " ms, the median of ",
                  benchmark.runs) +
           " runs\n";
  }
  static std::vector<std::string> Cells(const Row& row, std::string node, const std::string& more) {
    return {std::move(node),
            row.op + more,
            Fixed(row.ms, 4),
            Fixed(row.share * 100, 1) + "%",
            row.flops > 0 ? Fixed(row.gflops(), 2) : "-",
            row.bytes > 0 ? Fixed(row.gigabytes(), 2) : "-"};
  }
  static std::string Fixed(double value, int digits) {
    char buffer[64];  // whatever the program's locale says
    const auto end =
        std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, digits);
    return end.ec == std::errc() ? std::string(buffer, end.ptr) : StrCat(value);
  }
};
using NetBenchmark = BasicNetBenchmark<NetBenchmarkRow>;

}  // namespace opkit

#endif  // OPKIT_GRAPH_NET_BENCHMARK_HPP_
