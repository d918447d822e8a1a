// BenchmarkOperator: the rows that it registers, and a kernel that works in a layout of its own.
#include "opkit/interop/google_benchmark.hpp"

#include <doctest/doctest.h>

#include <sstream>

#include "opkit/op/registration.hpp"

namespace google_benchmark_test {
using namespace opkit;

// A layout that takes more bytes than the standard one: a kernel that is run on tensors in the
// standard layout writes behind them.
constexpr int64_t kSpread = 64;
LayoutId Spread() {
  static const LayoutId id = RegisterLayout(
      {.name = "bench_spread",
       .to_standard =
           [](const Tensor& from, Tensor& to) {
             for (int64_t i = 0; i < from.numel(); ++i)
               static_cast<float*>(to.raw_mutable_data())[i] =
                   static_cast<const float*>(from.raw_data())[i * kSpread];
           },
       .from_standard =
           [](const Tensor& from, Tensor& to) {
             for (int64_t i = 0; i < from.numel(); ++i)
               static_cast<float*>(to.raw_mutable_data())[i * kSpread] =
                   static_cast<const float*>(from.raw_data())[i];
           },
       .bytes = [](const Shape& shape,
                   DType dtype) { return kSpread * shape.numel() * ItemSize(dtype); }});
  return id;
}
std::string layouts_seen;

class SpreadOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    KernelConfig config;
    config.input_layouts = config.output_layouts = {{Spread(), {}}};
    return {config};
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    layouts_seen = StrCat(x.layout(), " ", y->layout());
    const auto* from = static_cast<const float*>(x.raw_data());
    auto* to = static_cast<float*>(y->raw_mutable_data());
    for (int64_t i = 0; i < x.numel(); ++i) to[i * kSpread] = Scale() * from[i * kSpread];
    return true;
  }
  float Scale() const { return GetSingleArgument<float>("scale", 1.0f); }
};
class DeclinesOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    throw UnsupportedOperatorFeature("it needs another machine");
  }
  bool RunOnDevice() override { return true; }
};
OPERATOR_SCHEMA(BenchSpread)
    .NumInputs(1)
    .NumOutputs(1)
    .IdenticalTypeAndShape()
    .Arg<float>("scale", "", 1.0f);
REGISTER_CPU_OPERATOR(BenchSpread, SpreadOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(BenchSpread, declines, DeclinesOp);

TEST_CASE("a row names attributes, a kernel gets its own layout, one that declines says why") {
  char program[] = "interop_test", shortest[] = "--benchmark_min_time=0.001";
  char* arguments[] = {program, shortest, nullptr};
  int count = 2;
  benchmark::Initialize(&count, arguments);
  BenchmarkOperator("BenchSpread", {{100}}, {.args = {{"scale", 2.0f}}});
  std::ostringstream rows;
  benchmark::ConsoleReporter reporter(benchmark::ConsoleReporter::OO_None);
  reporter.SetOutputStream(&rows);
  reporter.SetErrorStream(&rows);
  CHECK(benchmark::RunSpecifiedBenchmarks(&reporter, "BenchSpread") == 2);
  const std::string text = rows.str();
  CAPTURE(text);
  CHECK(text.find("BenchSpread(scale=2)/cpu/reference/float32/[100]/") != text.npos);
  CHECK(text.find("threads=") != text.npos);
  CHECK(layouts_seen == "bench_spread bench_spread");
  const size_t declined = text.find("BenchSpread(scale=2)/cpu/declines/float32/[100]/");
  REQUIRE(declined != text.npos);
  CHECK(text.find("it needs another machine", declined) != text.npos);
}

}  // namespace google_benchmark_test
