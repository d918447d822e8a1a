#include "opkit/op/benchmark/benchmark_node.hpp"

#include <doctest/doctest.h>

#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"
#include "support/text.hpp"

namespace benchmark_node_test {
namespace {

using namespace opkit;
using detail::BenchmarkNode;
using detail::NodeName;

// y = x, by a kernel with three configurations, of which the second is a variant and the third has
// layouts.
std::string g_variant;
class ManyWaysOp final : public Operator<CPUContext> {
 public:
  ManyWaysOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Operator(def, ws), variant_(config->variant) {}
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    if (!query.def.args().empty()) throw UnsupportedOperatorFeature("it takes no odd node");
    KernelConfig plain, fast, other;
    fast.variant = "fast";
    other.input_layouts = other.output_layouts = {{test_layouts::LayoutA(), {}}};
    return {plain, fast, other};
  }
  bool RunOnDevice() override {
    Copy(Input(0), Output(0, Input(0).shape(), Input(0).dtype()));
    g_variant = variant_;
    return true;
  }

 private:
  std::string variant_;
};
REGISTER_CPU_OPERATOR(BenchmarkManyWays, ManyWaysOp);
OPERATOR_SCHEMA(BenchmarkManyWays)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg<bool>("odd", "the kernel declines", false)
    .Arg<int64_t>("size", "nothing", 1)
    .IdenticalTypeAndShape();

OperatorDef Node(Arguments args = {}) { return {"BenchmarkManyWays", {"x"}, {"y"}, args}; }
const std::vector<Tensor> kInputs = {Tensor::From<float>({2}, {1, 2})};

}  // namespace

TEST_CASE("a kernel is listed in each configuration, under a name of its own") {
  const BenchmarkNode node(Node(), kInputs, {});
  CHECK(NodeName(node.def()) == "BenchmarkManyWays");
  const std::vector<KernelCandidate> found = node.Candidates({});
  REQUIRE(found.size() == 3);
  CHECK(BenchmarkNode::NameOf(found[0]) == "reference");
  CHECK(BenchmarkNode::NameOf(found[1]) == "reference fast");
  CHECK(BenchmarkNode::NameOf(found[2]) == "reference #2");
  CHECK(detail::LayoutsText(found[0].config) == "");
  CHECK(detail::LayoutsText(found[2].config) == "A -> A");
  node.Prepare(found[1], ColdData::kNone).Run();
  CHECK(g_variant == "fast");
  CHECK(node.Candidates({"eigen"}).empty());
}

TEST_CASE("a kernel that declines gives its reason, and attributes are a part of the name") {
  const BenchmarkNode node(Node({{"odd", true}, {"size", 3}}), kInputs, {true});
  CHECK(NodeName(node.def()) == "BenchmarkManyWays(odd=true,size=3)");
  CHECK(node.inputs()[0].constant);
  const std::vector<KernelCandidate> found = node.Candidates({"reference"});
  REQUIRE(found.size() == 1);
  CHECK(found[0].dropped == "it takes no odd node");
}

TEST_CASE("a node needs a tensor for each input") {
  const Error error = ErrorOf([] { BenchmarkNode(Node(), {}, {}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(), "needs 1 inputs, found 0 tensors and shapes"));
}

}  // namespace benchmark_node_test
