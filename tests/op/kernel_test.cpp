// A kernel is a record: where it came from, how it makes an operator, what it proposes for a query.
#include "opkit/op/kernel.hpp"

#include <doctest/doctest.h>

#include "opkit/op/operator_base.hpp"

namespace kernel_test { namespace {

using opkit::DType;
using opkit::ErrorCode;
using opkit::Kernel;
using opkit::KernelConfig;
using opkit::KernelQuery;
using opkit::Layout;
using opkit::OperatorDef;
using opkit::TensorInfo;
using opkit::UnsupportedOperatorFeature;

TEST_CASE(
    "a kernel is for the CPU, of the plain operator and of default priority unless it says so") {
  const Kernel kernel{};
  CHECK(kernel.device == opkit::DeviceType::kCPU);
  CHECK(kernel.backend == "reference");
  CHECK(kernel.priority == opkit::Kernel::Priority::kDefault);
  CHECK_FALSE(static_cast<bool>(kernel.create));
  CHECK_FALSE(static_cast<bool>(kernel.propose));
}

TEST_CASE("a kernel names the place of its registration") {
  Kernel kernel;
  kernel.file = "ops/scale.cc";
  kernel.line = 12;
  CHECK(kernel.Place() == "ops/scale.cc:12");
}

TEST_CASE("a kernel proposes layouts, in-place, scratch and cost from what the query knows") {
  Kernel kernel;
  kernel.propose = [](const KernelQuery& query) {
    std::vector<KernelConfig> configs;
    if (query.inputs[0].dtype != DType::kFloat32) return configs;
    KernelConfig blocked;
    blocked.input_layouts = {Layout{7, {}}};
    blocked.output_layouts = {Layout{7, {}}};
    blocked.inplace = {{0, 0}};
    blocked.scratch_bytes = 64 * query.def.args().Get<int>("threads", 1);
    blocked.cost_ns = 10;
    configs.push_back(blocked);
    configs.emplace_back();  // and plainly
    return configs;
  };
  const OperatorDef def = OperatorDef("Conv").Input("X").Output("Y").Arg("threads", 4);
  std::vector<TensorInfo> inputs{TensorInfo(DType::kFloat32, opkit::Shape{2})}, outputs(1);
  const std::vector<KernelConfig> configs = kernel.propose({def, inputs, outputs});
  REQUIRE(configs.size() == 2);
  CHECK(configs[0].input_layouts[0].id == 7);
  CHECK(configs[0].scratch_bytes == 256);
  CHECK(configs[0].inplace == std::vector<std::pair<int, int>>{{0, 0}});
  CHECK(configs[1].input_layouts.empty());
  CHECK(configs[1].cost_ns < 0);
  inputs[0].dtype = DType::kInt8;
  CHECK(kernel.propose({def, inputs, outputs}).empty());
}

TEST_CASE("UnsupportedOperatorFeature is an Error of its own kind") {
  const UnsupportedOperatorFeature error("needs stride 1");
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(error.message() == "needs stride 1");
  CHECK(std::is_base_of_v<opkit::Error, UnsupportedOperatorFeature>);
}

}  // namespace
}  // namespace kernel_test
