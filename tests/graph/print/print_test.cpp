#include "opkit/graph/print/print.hpp"

#include <doctest/doctest.h>

#include "opkit/graph/subgraph.hpp"
#include "opkit/op/check/check_data.hpp"
#include "support/error_of.hpp"

namespace print_test {
using namespace opkit;

namespace {

Graph Sample() {
  Graph g;
  g.AddInput("X", DType::kFloat32, {Sym("N"), 3, Dim()});
  g.AddInput("Z", DType::kInt64, Shape{}, Device{DeviceType::kCUDA, 1});
  g.AddConstant("W", Tensor::From<float>({3, 1}, {1, 2, 3}));
  g.AddNode(OperatorDef("MatMul").Name("mm").Input("X").Input("W").Output("A"));
  g.AddNode(OperatorDef("Scale")
                .Input("A")
                .Output("Y")
                .Arg("scale", 2.5)
                .Arg("note", "two\nlines")
                .Backends("eigen")
                .IsGradientOp(true)
                .ControlInput("mm")
                .Device(DeviceType::kCUDA));
  g.AddOutput("Y");
  return g;
}

// The lines of a difference that begin with `sign` or two spaces, without these.
std::string Side(const std::string& diff, char sign) {
  std::string out;
  for (size_t begin = 0; begin < diff.size();) {
    const size_t end = diff.find('\n', begin) + 1;
    if (diff[begin] == sign || diff[begin] == ' ') out += diff.substr(begin + 2, end - begin - 2);
    begin = end;
  }
  return out;
}
int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

}  // namespace

TEST_CASE("a listing has a line for each input, constant, node and output") {
  CHECK(ToString(Sample()) == R"(input X float32[N, 3, ?]
input Z int64[] on cuda:1
constant W float32[3, 1]
MatMul 'mm' (X, W) -> (A)
Scale (A) -> (Y) {scale=2.5, note="two\nlines"} backend eigen gradient after mm on cuda
output Y
)");
  CHECK(ToString(Graph()).empty());
}

TEST_CASE("subgraphs are listed below their node") {
  Graph inner;
  inner.AddInput("x", DType::kFloat32, {2});
  inner.AddNode(OperatorDef("Relu").Input("x").Output("y"));
  inner.AddOutput("y");
  Graph g;
  g.AddInput("c", DType::kBool, Shape{});
  g.AddNode(OperatorDef("If")
                .Input("c")
                .Output("Y")
                .Subgraph("then", MakeSubgraph(inner))
                .Subgraph("else", MakeSubgraph(Graph())));
  CHECK(ToString(g) == R"(input c bool[]
If (c) -> (Y)
  then:
    input x float32[2]
    Relu (x) -> (y)
    output y
  else:
)");
}

TEST_CASE("a broken graph can be printed") {
  Graph g;
  g.AddNode(OperatorDef("NoSuchOperator").Input("missing").Output("Y"));
  CHECK(ToString(g) == "NoSuchOperator (missing) -> (Y)\n");
}

TEST_CASE("a difference marks removed and added lines") {
  const Graph before = Sample();
  Graph after = before;
  after.ReplaceNode(1, OperatorDef("Relu").Input("A").Output("Y"));
  after.AddNode(OperatorDef("Relu").Input("A").Output("B"));
  CHECK(ToString(before, after) == R"(  input X float32[N, 3, ?]
  input Z int64[] on cuda:1
  constant W float32[3, 1]
  MatMul 'mm' (X, W) -> (A)
- Scale (A) -> (Y) {scale=2.5, note="two\nlines"} backend eigen gradient after mm on cuda
+ Relu (A) -> (Y)
+ Relu (A) -> (B)
  output Y
)");
  CHECK(ToString(Graph(), Graph()).empty());
  CHECK(Count(ToString(before, Graph()), "- ") == 6);
  CHECK(Count(ToString(Graph(), before), "+ ") == 6);
}

TEST_CASE("differences hold both graphs and keep as many lines as can be kept") {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    detail::CheckRandom random(seed);
    Graph graphs[2];
    std::vector<int> lines[2];
    for (int side = 0; side < 2; ++side) {
      const int count = static_cast<int>(random.Next() % 14);
      for (int i = 0; i < count; ++i) {
        lines[side].push_back(static_cast<int>(random.Next() % 4));
        graphs[side].AddNode(OperatorDef(StrCat("Op", lines[side].back())));
      }
    }
    const std::string diff = ToString(graphs[0], graphs[1]);
    CHECK(Side(diff, '-') == ToString(graphs[0]));
    CHECK(Side(diff, '+') == ToString(graphs[1]));
    // The textbook table.
    const size_t n = lines[0].size(), m = lines[1].size();
    std::vector<std::vector<int>> best(n + 1, std::vector<int>(m + 1, 0));
    for (size_t i = 1; i <= n; ++i)
      for (size_t j = 1; j <= m; ++j)
        best[i][j] = lines[0][i - 1] == lines[1][j - 1]
                         ? best[i - 1][j - 1] + 1
                         : (std::max)(best[i - 1][j], best[i][j - 1]);
    CHECK(Count("\n" + diff, "\n  ") == best[n][m]);
  }
}

}  // namespace print_test
