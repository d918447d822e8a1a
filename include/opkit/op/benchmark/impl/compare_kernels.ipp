// Definitions of CompareKernels.
#ifndef OPKIT_OP_BENCHMARK_IMPL_COMPARE_KERNELS_IPP_
#define OPKIT_OP_BENCHMARK_IMPL_COMPARE_KERNELS_IPP_

#include <algorithm>
#include <cmath>
#include <memory>

#include "opkit/base/json/json_writer.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/benchmark/benchmark_node.hpp"
#include "opkit/op/benchmark/compare_kernels.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/profile/mann_whitney.hpp"
#include "opkit/profile/text_columns.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// Compares the kernels of one node: lists its candidates, makes them ready, and times them.
class KernelComparer {
 public:
  KernelComparer(const OperatorDef& def, const CompareKernelsOptions& options)
      : options_(options), node_(def, MakeInputs(def), options.constants) {}

  KernelComparison Compare() {
    out_.name = Name();
    out_.counters = options_.counters;
    if (!out_.counters.empty()) OpenCounters();  // refuses an absent one before the work begins
    for (const int threads : options_.threads) AddCandidates(threads);
    std::vector<TimedCall> calls;
    for (const std::unique_ptr<Timed>& one : timed_) {
      TimedCall& call = calls.emplace_back();
      call.run = [one = one.get()] {
        const PoolScope scope(*one->pool);
        one->run.Run();
      };
    }
    std::vector<CallTimes> times = TimeInterleaved(calls, options_.timing, options_.clock);
    for (size_t i = 0; i < times.size(); ++i) out_.rows[timed_[i]->row].times = std::move(times[i]);
    for (size_t t = 0; t < options_.threads.size(); ++t) Judge(t);
    if (!out_.counters.empty())
      for (const std::unique_ptr<ThreadPool>& pool : pools_) Count(*pool);
    return std::move(out_);
  }

 private:
  struct Timed {
    size_t row;
    ThreadPool* pool;
    KernelRun run;
  };

  std::vector<Tensor> MakeInputs(const OperatorDef& def) const {
    const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
    std::vector<Tensor> inputs = options_.inputs;
    for (size_t i = inputs.size(); i < options_.shapes.size(); ++i)
      inputs.push_back(
          RandomTensor(options_.shapes[i], DTypeOf(schema, i), options_.seed * 31 + i));
    return inputs.empty() ? schema.MakeTestInputs(options_.dtype, options_.seed) : inputs;
  }
  // The dtype of the options if input i allows it, else the first that it allows.
  DType DTypeOf(const OpSchema& schema, size_t i) const {
    if (i >= schema.inputs().size() || schema.inputs()[i].dtypes.empty()) return options_.dtype;
    const std::vector<DType>& allowed = schema.inputs()[i].dtypes;
    return std::ranges::count(allowed, options_.dtype) > 0 ? options_.dtype : allowed[0];
  }
  std::string Name() const {
    std::string inputs;
    for (const TensorInfo& info : node_.inputs())
      inputs += StrCat(inputs.empty() ? " " : ", ", info.dtype, " ", ToString(info.shape));
    return NodeName(node_.def()) + inputs;
  }

  void AddCandidates(int threads) {
    pools_.push_back(std::make_unique<ThreadPool>(threads));
    const PoolScope scope(*pools_.back());  // kernels may ask for the number of threads
    for (const KernelCandidate& candidate : node_.Candidates(options_.backends)) {
      KernelTimes& row = out_.rows.emplace_back();
      row.backend = BenchmarkNode::NameOf(candidate);
      row.layouts = LayoutsText(candidate.config);
      row.threads = threads;
      row.refused = candidate.dropped;
      if (!row.refused.empty()) continue;
      try {
        timed_.push_back(std::make_unique<Timed>(Timed{out_.rows.size() - 1, pools_.back().get(),
                                                       node_.Prepare(candidate, options_.cold)}));
      } catch (const UnsupportedOperatorFeature& error) {
        row.refused = error.message();
        continue;
      }
      const OpCost& cost = timed_.back()->run.cost();
      row.flops = static_cast<double>(cost.flops);
      row.bytes = static_cast<double>(cost.bytes_read) + static_cast<double>(cost.bytes_written);
      row.data_bytes = row.bytes * static_cast<double>(timed_.back()->run.copies());
    }
  }

  std::unique_ptr<ThreadCounters> OpenCounters() const {
    CounterSource& source = options_.counter_source ? *options_.counter_source : PerfCounters();
    std::vector<std::string> absent;
    auto counters = source.Open(out_.counters, &absent, CounterSource::Threads::kThisAndNew);
    if (!absent.empty()) Throw(ErrorCode::kUnsupported, "cannot count ", absent[0]);
    return counters;
  }
  // Counts runs of the kernels that were timed on `timed_on`, on a pool of the same size: its
  // threads start after the counters are opened, so they count, and no other threads do.
  void Count(const ThreadPool& timed_on) {
    const std::unique_ptr<ThreadCounters> counters = OpenCounters();
    ThreadPool pool(timed_on.threads());
    const PoolScope scope(pool);
    constexpr double kNs = 20e6;  // of each kernel, about
    for (const std::unique_ptr<Timed>& one : timed_) {
      if (one->pool != &timed_on) continue;
      KernelTimes& row = out_.rows[one->row];
      const auto runs =
          static_cast<int>(std::clamp(kNs / (std::max)(row.times.median, 1.0), 5.0, 1000.0));
      one->run.Run();
      std::vector<uint64_t> before(out_.counters.size()), after(out_.counters.size());
      counters->Read(before.data());
      for (int run = 0; run < runs; ++run) one->run.Run();
      counters->Read(after.data());
      for (size_t i = 0; i < after.size(); ++i)
        row.counts.push_back((static_cast<double>(after[i]) - static_cast<double>(before[i])) /
                             runs);
    }
  }

  // Compares the rows of one number of threads with the first of them.
  void Judge(size_t t) {
    KernelTimes* first = nullptr;
    std::vector<KernelTimes*> others;
    for (KernelTimes& row : out_.rows) {
      if (row.threads != options_.threads[t] || !row.refused.empty()) continue;
      if (t < options_.peaks.size())
        row.of_peak = options_.peaks[t].ShareOf(row.flops, row.bytes, row.data_bytes,
                                                std::llround(row.times.median));
      if (!first) {
        first = &row;
        continue;
      }
      row.speedup = first->times.median / row.times.median;
      row.p = MannWhitneyTest(first->times.ns, row.times.ns).p;
      others.push_back(&row);
    }
    CorrectForComparisons(others);
    for (KernelTimes* row : others) {
      using Verdict = KernelTimes::Verdict;
      row->verdict = row->p >= options_.significance ? Verdict::kSame
                     : row->speedup > 1              ? Verdict::kFaster
                                                     : Verdict::kSlower;
    }
  }

  const CompareKernelsOptions& options_;
  const BenchmarkNode node_;
  KernelComparison out_;
  std::vector<std::unique_ptr<ThreadPool>> pools_;
  std::vector<std::unique_ptr<Timed>> timed_;
};

// "0.25", "812", "12.3k", "4.56M".
inline std::string CountText(double count) {
  int thousands = 0;
  for (; count >= 10'000 && thousands < 4; ++thousands) count /= 1000;
  const char* const units[] = {"", "k", "M", "G", "T"};
  char text[32] = "";
  std::snprintf(text, sizeof text, "%.4g%s", count, units[thousands]);
  return text;
}

inline std::string VerdictText(const KernelTimes& row) {
  using Verdict = KernelTimes::Verdict;
  char text[64] = "";
  const char* const chance = row.p < 0.001 ? "p < 0.001" : "p < 0.01";
  if (row.verdict == Verdict::kSame) return "same";
  if (row.verdict == Verdict::kFaster)
    std::snprintf(text, sizeof text, "%.2fx faster, %s", row.speedup, chance);
  if (row.verdict == Verdict::kSlower)
    std::snprintf(text, sizeof text, "%.2fx slower, %s", 1 / row.speedup, chance);
  return text;
}

}  // namespace detail

OPKIT_COLD OPKIT_INLINE KernelComparison CompareKernels(const OperatorDef& def,
                                                        const CompareKernelsOptions& options) {
  return detail::KernelComparer(def, options).Compare();
}
OPKIT_COLD OPKIT_INLINE KernelComparison CompareKernels(const std::string& op,
                                                        const CompareKernelsOptions& options) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  size_t count = (std::max)(options.inputs.size(), options.shapes.size());
  if (count == 0) count = schema.MakeTestInputs(options.dtype, options.seed).size();
  OperatorDef def(op, {}, {}, options.args);
  def.Device(options.device.type, options.device.index);
  for (size_t i = 0; i < count; ++i) def.Input(StrCat("input", i));
  const int outputs =
      options.num_outputs < 0 ? (std::max)(1, schema.min_outputs()) : options.num_outputs;
  for (int o = 0; o < outputs; ++o) def.Output(StrCat("output", o));
  return CompareKernels(def, options);
}

OPKIT_COLD OPKIT_INLINE std::string ToString(const KernelComparison& comparison) {
  const auto number = [](double value) {
    char text[48] = "";
    if (value > 0) std::snprintf(text, sizeof text, "%.*f", value < 10 ? 2 : 1, value);
    return std::string(text);
  };
  std::vector<std::vector<std::string>> lines = {{"kernel", "layouts", "threads", "median us",
                                                  "95 % interval", "GFLOP/s", "GB/s", "of peak",
                                                  "against the first"}};
  // The counts stand before the verdict.
  lines[0].insert(lines[0].end() - 1, comparison.counters.begin(), comparison.counters.end());
  std::string refused;
  for (const KernelTimes& row : comparison.rows) {
    if (!row.refused.empty()) {
      refused += StrCat(row.backend, ": ", row.refused, "\n");
      continue;
    }
    const CallTimes& times = row.times;
    lines.push_back(
        {row.backend, row.layouts, StrCat(row.threads), detail::Microseconds(times.median),
         StrCat(detail::Microseconds(times.low), " to ", detail::Microseconds(times.high),
                times.disturbed ? " (disturbed)" : ""),
         number(row.flops / times.median), number(row.bytes / times.median), ToString(row.of_peak),
         detail::VerdictText(row)});
    for (const double count : row.counts)
      lines.back().insert(lines.back().end() - 1, detail::CountText(count));
  }
  return StrCat(comparison.name, "\n", detail::AlignColumns(lines, 2), refused);
}

OPKIT_COLD OPKIT_INLINE std::string BenchmarkName(const KernelComparison& comparison,
                                                  const KernelTimes& row) {
  return StrCat(comparison.name, "/", row.backend,
                row.layouts.empty() ? "" : StrCat("/", row.layouts), "/threads:", row.threads);
}

OPKIT_COLD OPKIT_INLINE std::string ToJson(std::span<const KernelComparison> comparisons) {
  std::string out;
  detail::JsonWriter json(out);
  json.BeginObject().Key("benchmarks").BeginArray();
  for (const KernelComparison& comparison : comparisons)
    for (const KernelTimes& row : comparison.rows) {
      const std::string name = BenchmarkName(comparison, row);
      for (size_t i = 0; i < row.times.ns.size(); ++i) {
        json.NewLine(" ").BeginObject().Member("name", name).Member("run_name", name);
        json.Member("run_type", "iteration").Member("repetitions", row.times.ns.size());
        json.Member("repetition_index", i).Member("threads", row.threads);
        json.Member("iterations", row.times.runs_per_sample).Member("real_time", row.times.ns[i]);
        json.Member("cpu_time", row.times.ns[i]).Member("time_unit", "ns");
        if (row.flops > 0) json.Member("FLOP/s", 1e9 * row.flops / row.times.ns[i]);
        if (row.bytes > 0) json.Member("bytes_per_second", 1e9 * row.bytes / row.times.ns[i]);
        if (row.of_peak.share > 0)
          json.Member("of_peak", row.of_peak.share).Member("ceiling", row.of_peak.ceiling);
        for (size_t c = 0; c < row.counts.size(); ++c)
          json.Member(comparison.counters[c], row.counts[c]);
        json.EndObject();
      }
    }
  json.NewLine().EndArray().EndObject();
  return out;
}

}}  // namespace opkit

#endif  // OPKIT_OP_BENCHMARK_IMPL_COMPARE_KERNELS_IPP_
