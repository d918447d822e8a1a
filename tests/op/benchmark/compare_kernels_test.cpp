#include "opkit/op/benchmark/compare_kernels.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"

namespace compare_kernels_test {
namespace {

using namespace opkit;
using Verdict = KernelTimes::Verdict;

// A machine whose time passes only when a kernel says so.
struct PlantedClock final : TimingClock {
  int64_t now = 0;
  int64_t Now() override { return now; }
  int64_t Preemptions() override { return 0; }
  int64_t Spin() override { return now += 1000, 1000; }
};
PlantedClock g_clock;
int g_threads = 0;

// Counters that kernels move: ten of the first for a run, and three of the second for its threads.
uint64_t g_counts[2] = {};
struct PlantedSource final : CounterSource {
  struct Counters final : ThreadCounters {
    void Read(uint64_t* values) noexcept override { std::copy_n(g_counts, 2, values); }
  };
  std::unique_ptr<ThreadCounters> Open(const std::vector<std::string>& names,
                                       std::vector<std::string>* absent,
                                       CounterSource::Threads threads) override {
    CHECK(threads == CounterSource::Threads::kThisAndNew);
    ++opened;
    if (names[0] == "absent") absent->push_back("absent: it is planted");
    return std::make_unique<Counters>();
  }
  int opened = 0;
};

// y = x, by a kernel whose runs take a planted time: `ns` plus up to `noise`, in turns.
template <int kNs, int kNoise>
class PlantedOp : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Copy(x, Output(0, x.shape(), x.dtype()));
    if (HasArgument("fails")) Throw(ErrorCode::kUnsupported, "failed in its run");
    g_clock.now += kNs + kNoise * (++runs_ % 3) / 2;
    g_threads = NumThreads();
    g_counts[0] += 10'000;
    g_counts[1] += static_cast<uint64_t>(3 * g_threads);
    return true;
  }

 private:
  int runs_ = 0;
};
class RefusingOp final : public PlantedOp<1, 0> {
 public:
  RefusingOp(const OperatorDef& def, Workspace* ws) : PlantedOp(def, ws) {
    throw UnsupportedOperatorFeature("never on Saturdays");
  }
};
// Reads and writes layout "A", and says so.
class ReversedOp final : public PlantedOp<2000, 0> {
 public:
  using PlantedOp::PlantedOp;
  ReversedOp(const OperatorDef& def, Workspace* ws, const KernelConfig*) : PlantedOp(def, ws) {}
  bool RunOnDevice() override {
    CHECK(Input(0).layout().id == test_layouts::LayoutA());
    const Tensor& x = Input(0);
    *Output(0) = MakeTensor(x.shape(), x.dtype(), x.layout());
    std::memcpy(Output(0)->raw_mutable_data(), x.raw_data(), size_t(x.nbytes()));
    g_clock.now += 2000;
    return true;
  }
};
REGISTER_CPU_OPERATOR(ComparePlanted, PlantedOp<4000, 0>);
OPERATOR_SCHEMA(ComparePlanted)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg<bool>("fails", "the run fails")
    .IdenticalTypeAndShape()
    .PointwiseCost(2);
using Ophalf = PlantedOp<2000, 0>;
REGISTER_CPU_OPERATOR_WITH_ENGINE(ComparePlanted, half, Ophalf);
using Opalike = PlantedOp<3990, 20>;
REGISTER_CPU_OPERATOR_WITH_ENGINE(ComparePlanted, alike, Opalike);
using Optwice = PlantedOp<8000, 0>;
REGISTER_CPU_OPERATOR_WITH_ENGINE(ComparePlanted, twice, Optwice);
REGISTER_CPU_OPERATOR_WITH_ENGINE(ComparePlanted, saturday, RefusingOp);

// Runs in 4 us, or in 1 us by the variant "swift".
class VariedOp final : public PlantedOp<1000, 0> {
 public:
  VariedOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : PlantedOp(def, ws), is_swift_(config && config->variant == "swift") {}
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    std::vector<KernelConfig> configs(3);
    configs[1].variant = "swift";
    configs[2].inplace = {{0, 0}};
    return configs;
  }
  bool RunOnDevice() override {
    if (!is_swift_) g_clock.now += 3000;
    return PlantedOp::RunOnDevice();
  }

 private:
  const bool is_swift_;
};
REGISTER_CPU_OPERATOR_WITH_ENGINE(ComparePlanted, varied, VariedOp);

const KernelTimes& Row(const KernelComparison& found, const std::string& backend, int threads = 1) {
  for (const KernelTimes& row : found.rows)
    if (row.backend == backend && row.threads == threads) return row;
  FAIL("no row of " << backend);
  return found.rows[0];
}
CompareKernelsOptions Planted() {
  CompareKernelsOptions options;
  options.shapes = {{8}};
  options.timing = {.least_rounds = 30, .most_rounds = 30};
  options.clock = &g_clock;
  options.backends = {"reference", "half", "alike", "twice", "saturday"};
  return options;
}

}  // namespace

TEST_CASE("kernels are compared with the first one, and a reason stands for one that refuses") {
  const KernelComparison found = CompareKernels("ComparePlanted", Planted());
  CHECK(found.name == "ComparePlanted float32 [8]");
  REQUIRE(found.rows.size() == 5);
  const KernelTimes& first = found.rows[0];
  CHECK(first.verdict == Verdict::kFirst);
  double medians[4] = {};
  for (int i = 0; const char* backend : {"reference", "half", "alike", "twice"}) {
    CHECK(Row(found, backend).refused.empty());
    medians[i++] = Row(found, backend).times.median;
  }
  CHECK(medians[0] == 4000);
  CHECK(medians[1] == 2000);
  CHECK(medians[3] == 8000);
  CHECK(Row(found, "saturday").refused == "never on Saturdays");
  for (const KernelTimes& row : found.rows) {
    if (&row == &first || !row.refused.empty()) continue;
    CAPTURE(row.backend);
    CHECK(row.speedup == doctest::Approx(first.times.median / row.times.median));
    const double ratio = first.times.median / row.times.median;
    const bool alike = ratio > 0.99 && ratio < 1.01;
    if (!alike) CHECK(row.verdict == (ratio > 1 ? Verdict::kFaster : Verdict::kSlower));
    if (!alike) CHECK(row.p < 0.001);
  }
  const std::string text = ToString(found);
  CHECK(Contains(text, "saturday: never on Saturdays\n"));
  CHECK(Contains(text, "x slower, p < 0.001"));
  CHECK(Contains(text, "4.000"));
}

TEST_CASE("a row has the name of its variant, and each variant its time") {
  CompareKernelsOptions options = Planted();
  options.backends = {"varied"};
  const KernelComparison found = CompareKernels("ComparePlanted", options);
  REQUIRE(found.rows.size() == 3);
  CHECK(Row(found, "varied").times.median == 4000);
  CHECK(Row(found, "varied swift").times.median == 1000);
  CHECK(Row(found, "varied #2").times.median == 4000);
  CHECK(BenchmarkName(found, found.rows[1]) == "ComparePlanted float32 [8]/varied swift/threads:1");
  CHECK(Contains(ToString(found), "varied swift"));
}

TEST_CASE("rates and the share of the peak come from the schema's cost") {
  CompareKernelsOptions options = Planted();
  options.peaks = {{.flops = 1e9, .bytes = 16e9}};
  const KernelComparison found = CompareKernels("ComparePlanted", options);
  const KernelTimes& row = Row(found, "reference");
  CHECK(row.flops == 16);
  CHECK(row.bytes == 64);
  CHECK(row.of_peak.share == doctest::Approx(16.0 / 4000));  // the operations need 16 ns
  CHECK(Contains(ToString(found), "0.40 % of FMA"));
  options.peaks[0].bytes = 1e6;  // memory would need 64 us
  CHECK(Contains(ToString(CompareKernels("ComparePlanted", options)),
                 "1600 % of memory (data nearer or unused)"));
  options.peaks[0].caches = {{"L1", 64, 32e6}};  // the cache needs 2 us
  CHECK(Contains(ToString(CompareKernels("ComparePlanted", options)), "50 % of L1"));
  // All copies of cold data together do not fit there.
  options.cold = ColdData::kAll;
  const KernelComparison cold = CompareKernels("ComparePlanted", options);
  CHECK(Row(cold, "reference").data_bytes > 50e3);
  CHECK(Contains(ToString(cold), "1600 % of memory"));
}

TEST_CASE("each number of threads has its rows, and kernels run with so many") {
  CompareKernelsOptions options = Planted();
  options.backends = {"half"};
  options.threads = {1, 2};
  const KernelComparison found = CompareKernels("ComparePlanted", options);
  REQUIRE(found.rows.size() == 2);
  CHECK(Row(found, "half", 2).verdict == Verdict::kFirst);
  CHECK((g_threads == 1 || g_threads == 2));
  options.threads = {2};
  CompareKernels("ComparePlanted", options);
  CHECK(g_threads == 2);
}

TEST_CASE("counters have a column each, for one run on all of its threads") {
  CompareKernelsOptions options = Planted();
  PlantedSource source;
  options.backends = {"half", "twice", "saturday"};
  options.threads = {1, 2};
  options.counters = {"cycles", "misses"};
  options.counter_source = &source;
  const KernelComparison found = CompareKernels("ComparePlanted", options);
  for (const int threads : {1, 2})
    for (const char* backend : {"half", "twice"})
      CHECK(Row(found, backend, threads).counts == std::vector<double>{10'000, 3.0 * threads});
  CHECK(Row(found, "saturday").counts.empty());
  const std::string text = ToString(found);
  CHECK(Contains(text, "of peak  cycles  misses  "));
  CHECK(Contains(text, "10k       6"));
  CHECK(Contains(ToJson({&found, 1}), "\"cycles\": 10000, \"misses\": 6}"));
}

TEST_CASE("a counter that is absent is an Error before anything is timed") {
  CompareKernelsOptions options = Planted();
  PlantedSource source;
  options.counters = {"absent"};
  options.counter_source = &source;
  const int64_t begin = g_clock.now;
  const Error error = ErrorOf([&] { CompareKernels("ComparePlanted", options); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "cannot count absent: it is planted"));
  CHECK(g_clock.now == begin);
  options.counter_source = nullptr;
  options.counters = {"cycels"};
  CHECK(Contains(ErrorOf([&] { CompareKernels("ComparePlanted", options); }).message(),
                 "there is no counter 'cycels' (did you mean 'cycles'?"));
}

TEST_CASE("Google Benchmark's JSON has a repetition for each sample") {
  CompareKernelsOptions options = Planted();
  options.backends = {"twice"};
  const KernelComparison found = CompareKernels("ComparePlanted", options);
  const std::string json = ToJson({&found, 1});
  CHECK(Count(json, "\"run_type\": \"iteration\"") == 30);
  CHECK(Contains(json, "\"name\": \"ComparePlanted float32 [8]/twice/threads:1\""));
  CHECK(Contains(json, "\"repetitions\": 30, \"repetition_index\": 29"));
  CHECK(Contains(json, "\"real_time\": 8000, \"cpu_time\": 8000, \"time_unit\": \"ns\""));
  CHECK(Count(json, "of_peak") == 0);
  options.peaks = {{.flops = 1e9, .bytes = 16e9}};
  const KernelComparison with_peak = CompareKernels("ComparePlanted", options);
  CHECK(Count(ToJson({&with_peak, 1}), "\"of_peak\": 0.00") == 30);
  CHECK(Count(ToJson({&with_peak, 1}), "\"ceiling\": \"FMA\"") == 30);
}

TEST_CASE("inputs that do not fit and failing runs are errors") {
  CompareKernelsOptions options = Planted();
  CHECK(ErrorOf([&] { CompareKernels("CompareNothing", options); }).code() == ErrorCode::kNotFound);
  options.shapes = {{8}, {8}};
  CHECK_THROWS_AS(CompareKernels("ComparePlanted", options), Error);
  options = Planted();
  options.args = {{"fails", true}};
  CHECK(Contains(ErrorOf([&] { CompareKernels("ComparePlanted", options); }).message(),
                 "failed in its run"));
}

}  // namespace compare_kernels_test
