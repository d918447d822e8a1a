// SequenceMap.
#include "opkit/ops/sequence/sequence_map.hpp"

#include <doctest/doctest.h>

#include "opkit/graph/executor.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/ops/shape_of.hpp"
#include "support/error_of.hpp"

namespace sequence_map_test { namespace {

using namespace opkit;
using Floats = std::vector<float>;

Tensor Vector(const Floats& values) {
  return Tensor::From<float>({static_cast<int64_t>(values.size())}, values);
}

// For each element x of a sequence: x + y + z, with a tensor or sequence y and a captured z; and
// the shape of x.
Graph MapGraph(DType y) {
  Graph body;
  body.AddInput("x", DType::kFloat32, {Dim()}).AddInput("y", DType::kFloat32, {Dim()});
  body.AddInput("z", DType::kFloat32, {Dim()});
  body.AddNode(OperatorDef("Add", {"x", "y"}, {"xy"}));
  body.AddNode(OperatorDef("Add", {"xy", "z"}, {"sum"}));
  body.AddNode(OperatorDef("Shape", {"x"}, {"size"}));
  body.AddOutput("sum").AddOutput("size");
  Graph graph;
  graph.AddInput({"s", detail::SequenceInfo(DType::kFloat32)});
  if (y == DType::kSequence)
    graph.AddInput({"y", detail::SequenceInfo(DType::kFloat32)});
  else
    graph.AddInput("y", y, {Dim()});
  graph.AddInput("z", DType::kFloat32, {Dim()});
  OperatorDef map("SequenceMap", {"s", "y", "z"}, {"sums", "sizes"},
                  {{"captures", std::vector<std::string>{"z"}}});
  graph.AddNode(map.Subgraph("body", MakeSubgraph(body)));
  graph.AddOutput("sums").AddOutput("sizes");
  return graph;
}

TEST_CASE("the body runs for each element, with tensors and elements of other sequences") {
  const Tensor s = MakeSequence({Vector({1, 2}), Vector({3})});
  Executor tensors(Compile(MapGraph(DType::kFloat32)));
  for (int run = 0; run < 2; ++run) {
    const NamedTensors out = tensors.Run({{"s", s}, {"y", Vector({10})}, {"z", Vector({100})}});
    const auto sums = ElementsOf(out.Get("sums"));
    REQUIRE(sums.size() == 2);
    CHECK(sums[0].ToVector<float>() == Floats{111, 112});
    CHECK(sums[1].ToVector<float>() == Floats{113});
    CHECK(ElementsOf(out.Get("sizes"))[0].data<int64_t>()[0] == 2);
  }
  CHECK(ElementsOf(tensors.Run({{"s", MakeSequence({})}, {"y", Vector({1})}, {"z", Vector({1})}})
                       .Get("sums"))
            .empty());
  Executor pairs(Compile(MapGraph(DType::kSequence)));
  const NamedTensors out =
      pairs.Run({{"s", s}, {"y", MakeSequence({Vector({5}), Vector({6})})}, {"z", Vector({0})}});
  CHECK(ElementsOf(out.Get("sums"))[1].ToVector<float>() == Floats{9});
  const Error error = ErrorOf([&] {
    pairs.Run({{"s", s}, {"y", MakeSequence({Vector({5})})}, {"z", Vector({0})}});
  });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(), "input 1 has 1 elements, but input 0 has 2"));
}

}  // namespace
}  // namespace sequence_map_test
