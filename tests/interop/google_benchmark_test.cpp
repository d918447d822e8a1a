// BenchmarkOperator: the rows that it registers, and a kernel that works in a layout of its own.
#include "opkit/interop/google_benchmark.hpp"

#include <doctest/doctest.h>

#include <set>
#include <sstream>

#include "opkit/core/layout_registry.hpp"
#include "opkit/device/copy.hpp"
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
// Notes who runs: its name, its variant, its threads.
std::vector<std::string> runs_seen;
class NotedOp final : public Operator<CPUContext> {
 public:
  NotedOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Operator(def, ws), name_(config->variant.empty() ? "plain" : config->variant) {}
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    if (query.inputs[0].shape.ToShape() == Shape{13})
      Throw(ErrorCode::kInvalidArgument, "13 is unlucky");
    KernelConfig plain, fast;
    fast.variant = "fast";
    return {plain, fast};
  }
  bool RunOnDevice() override {
    runs_seen.push_back(StrCat(name_, " on ", NumThreads()));
    Copy(Input(0), Output(0, Input(0).shape(), Input(0).dtype()));
    places_seen.insert(Input(0).raw_data());
    return true;
  }
  static inline std::set<const void*> places_seen;

 private:
  std::string name_;
};
OPERATOR_SCHEMA(BenchNoted).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(BenchNoted, NotedOp);

// Runs the benchmarks that match, and returns what is printed.
std::string RunBenchmarks(const std::string& filter, size_t count,
                          const char* flag = "--benchmark_repetitions=1") {
  char program[] = "interop_test", shortest[] = "--benchmark_min_time=0.001";
  std::string more = flag;
  char* arguments[] = {program, shortest, more.data(), nullptr};
  int arguments_count = 3;
  benchmark::Initialize(&arguments_count, arguments);
  std::ostringstream rows;
  benchmark::ConsoleReporter reporter(benchmark::ConsoleReporter::OO_None);
  reporter.SetOutputStream(&rows);
  reporter.SetErrorStream(&rows);
  CHECK(benchmark::RunSpecifiedBenchmarks(&reporter, filter) == count);
  return rows.str();
}

OPERATOR_SCHEMA(BenchSpread)
    .NumInputs(1)
    .NumOutputs(1)
    .IdenticalTypeAndShape()
    .Arg<float>("scale", "", 1.0f);
REGISTER_CPU_OPERATOR(BenchSpread, SpreadOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(BenchSpread, declines, DeclinesOp);

TEST_CASE("a row names attributes, a kernel gets its own layout, one that declines says why") {
  BenchmarkOperator("BenchSpread", {{100}}, {.args = {{"scale", 2.0f}}});
  const std::string text = RunBenchmarks("BenchSpread", 2);
  CAPTURE(text);
  CHECK(text.find("BenchSpread(scale=2)/cpu/reference/float32/[100]/") != text.npos);
  CHECK(text.find("threads=") != text.npos);
  CHECK(text.find("bench_spread -> bench_spread\n") != text.npos);
  CHECK(layouts_seen == "bench_spread bench_spread");
  const size_t declined = text.find("BenchSpread(scale=2)/cpu/declines/float32/[100]/");
  REQUIRE(declined != text.npos);
  CHECK(text.find("it needs another machine", declined) != text.npos);
}

TEST_CASE("a kernel has a row for each variant and each number of threads") {
  BenchmarkOperator("BenchNoted", {{5}}, {.threads = {1, 2}});
  const std::string text = RunBenchmarks("BenchNoted.*5", 4);
  for (const char* row :
       {"reference/float32/[5]/threads:1/", "reference fast/float32/[5]/threads:1/",
        "reference/float32/[5]/threads:2/"})
    CHECK(text.find(std::string("BenchNoted/cpu/") + row) != text.npos);
  runs_seen.clear();
  RunBenchmarks("BenchNoted.*fast.*5.*threads:2", 1);
  CHECK(std::set(runs_seen.begin(), runs_seen.end()) == std::set<std::string>{"fast on 2"});
}

TEST_CASE("repetitions of kernels run in turns") {
  BenchmarkOperator("BenchNoted", {{6}});
  runs_seen.clear();
  RunBenchmarks("BenchNoted.*6", 2, "--benchmark_repetitions=40");
  int changes = 0;
  for (size_t i = 1; i < runs_seen.size(); ++i) changes += runs_seen[i] != runs_seen[i - 1];
  CHECK(changes > 5);  // one after the other would be a change or two
}

TEST_CASE("with the machine's peaks a row has the share of its ceiling") {
  // 64 bytes in and 64 out are in L1, twice as many are not.
  const MachineRates peak{1e9, 1e3, {{"L1", 128, 128e3}}, 1};
  BenchmarkOptions options{.backends = {"reference"}, .threads = {1, 2}, .peaks = {peak}};
  BenchmarkOperator("BenchNoted", {{16}, {32}}, options);
  const std::string text = RunBenchmarks("BenchNoted.*/.(16|32)./", 8);
  CAPTURE(text);
  const auto shares = [&](const std::string& row) {
    const size_t at = text.find("BenchNoted/cpu/reference/float32/" + row);
    REQUIRE(at != text.npos);
    return text.substr(at, text.find('\n', at) - at);
  };
  CHECK(shares("[16]/threads:1/").find(" of_L1=") != std::string::npos);
  CHECK(shares("[32]/threads:1/").find(" of_memory=") != std::string::npos);
  CHECK(shares("[16]/threads:2/").find(" of_") == std::string::npos);  // of unknown rates
}

TEST_CASE("cold data lies elsewhere in each run") {
  BenchmarkOperator("BenchNoted", {{1 << 18}}, {.backends = {"reference"}, .cold = ColdData::kAll});
  NotedOp::places_seen.clear();
  const std::string text = RunBenchmarks("BenchNoted.*fast.*262144", 1);
  CHECK(text.find("float32/[262144]/cold:all/") != text.npos);
  CHECK(NotedOp::places_seen.size() > 10);
}

TEST_CASE("a proposal that fails, and backends without a kernel, do not stop the program") {
  BenchmarkOperator("BenchNoted", {{13}});
  CHECK(RunBenchmarks("BenchNoted/cpu/none/float32/.13.", 1).find("13 is unlucky") !=
        std::string::npos);
  BenchmarkOperator("BenchNoted", {{14}}, {.backends = {"other"}});
  RunBenchmarks("BenchNoted.*float32.\\[14", 0);
}

}  // namespace google_benchmark_test
