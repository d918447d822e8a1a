// CompareRuns' definition: does the two runs, compares their values and writes the table.
#ifndef OPKIT_GRAPH_DEBUG_IMPL_COMPARE_RUNS_IPP_
#define OPKIT_GRAPH_DEBUG_IMPL_COMPARE_RUNS_IPP_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "opkit/core/sequence.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/graph/debug/compare_runs.hpp"
#include "opkit/graph/debug/run_values.hpp"
#include "opkit/graph/plan/plan_state.hpp"
#include "opkit/profile/text_columns.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// True if the number is a NaN. Tests the bits, because -ffast-math would fold std::isnan to false.
inline bool IsNanByBits(double number) {
  return (std::bit_cast<uint64_t>(number) << 1) > (uint64_t{0x7ff0000000000000} << 1);
}

// Compares one value of both runs, element by element.
class ValueComparison {
 public:
  ValueComparison(const CompareRunsOptions& options, ComparedValue& to)
      : options_(options), to_(to) {}

  void Compare(const Tensor& found, const Tensor& expected) {
    if (found.dtype() != expected.dtype() || found.shape() != expected.shape()) {
      DifferInType(StrCat(found.dtype(), found.shape()),
                   StrCat(expected.dtype(), expected.shape()));
    } else if (found.dtype() == DType::kSequence || found.dtype() == DType::kOptional) {
      const auto a = ElementsOf(found), b = ElementsOf(expected);
      for (size_t i = 0; i < a.size(); ++i) {
        place_.push_back(static_cast<int64_t>(i));
        Compare(a[i], b[i]);
        place_.pop_back();
      }
    } else {
      CompareElements(found, expected);
    }
  }

 private:
  void CompareElements(const Tensor& found, const Tensor& expected) {
    const int64_t count = found.numel();
    to_.elements += count;
    if (found.dtype() == DType::kString) {
      const std::string *a = found.data<std::string>(), *b = expected.data<std::string>();
      for (int64_t i = 0; i < count; ++i)
        if (a[i] != b[i]) Differ(found.shape(), i, Quoted(a[i]), Quoted(b[i]), 0, 0);
      return;
    }
    DispatchDType<bool, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
                  float16, bfloat16, float, double>(found.dtype(), [&]<class T>() {
      const T *a = found.data<T>(), *b = expected.data<T>();
      for (int64_t i = 0; i < count; ++i) {
        if constexpr (std::is_integral_v<T>) {
          if (a[i] != b[i])
            Differ(found.shape(), i, StrCat(a[i]), StrCat(b[i]),
                   std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])),
                   std::fabs(static_cast<double>(b[i])));
        } else {
          Element(found.shape(), i, static_cast<double>(a[i]), static_cast<double>(b[i]));
        }
      }
    });
  }
  void Element(const Shape& shape, int64_t i, double a, double b) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const bool a_is_nan = IsNanByBits(a), b_is_nan = IsNanByBits(b);
    if ((a_is_nan && b_is_nan) || a == b) return;
    const bool is_finite = !a_is_nan && !b_is_nan && std::fabs(a) <= kMost && std::fabs(b) <= kMost;
    const double difference = is_finite ? std::fabs(a - b) : kInfinity;
    if (is_finite && difference <= options_.atol + options_.rtol * std::fabs(b))
      Measure(difference, std::fabs(b));
    else
      Differ(shape, i, StrCat(a), StrCat(b), difference, b_is_nan ? 0 : std::fabs(b));
  }
  void Measure(double difference, double expected) {
    to_.max_abs = (std::max)(to_.max_abs, difference);
    if (expected > 0 && expected <= kMost)
      to_.max_rel = (std::max)(to_.max_rel, difference / expected);
  }
  void Differ(const Shape& shape, int64_t i, std::string found, std::string expected,
              double difference, double size) {
    Measure(difference, size);
    ++to_.different;
    if (std::exchange(to_.differs, true)) return;
    to_.found = std::move(found);
    to_.expected = std::move(expected);
    to_.first.resize(Index(shape.rank()));
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      to_.first[Index(axis)] = i % shape[axis];
      i /= shape[axis];
    }
    to_.first.insert(to_.first.begin(), place_.begin(), place_.end());
  }
  // A tensor of another type in a sequence is one element that differs.
  void DifferInType(std::string found, std::string expected) {
    if (!place_.empty()) ++to_.elements, ++to_.different;
    if (std::exchange(to_.differs, true)) return;
    to_.found = std::move(found);
    to_.expected = std::move(expected);
    to_.first = place_;
  }
  static std::string Quoted(const std::string& text) {
    constexpr size_t kShown = 40;
    return StrCat("'", text.size() <= kShown ? text : text.substr(0, kShown) + "...", "'");
  }

  static constexpr double kMost = (std::numeric_limits<double>::max)();
  const CompareRunsOptions& options_;
  ComparedValue& to_;
  std::vector<int64_t> place_;  // of the tensor in the sequences that hold it
};

// One run of a plan for a comparison.
struct ComparedRun {
  // `on` is the run whose values the nodes read; null for this run.
  ComparedRun(const Plan& its_plan, const std::vector<NamedTensor>& inputs, const ComparedRun* on)
      : plan(its_plan) {
    Executor executor(plan);
    // RunKeepingValues needs the operators for these shapes, which the first run makes.
    if (!plan.state()->inputs_known()) executor.Run(Copies(inputs));
    values = on ? RunNodesOnValues(executor, Copies(inputs), on->values)
                : RunKeepingValues(executor, Copies(inputs));
    std::map<std::string_view, int> times;  // a rewritten value occurs several times
    for (const NodeValue& value : values) by_name[{value.name, times[value.name]++}] = &value;
  }
  ComparedRun(const ComparedRun&) = delete;

  // Copies the inputs, because a run may write to them.
  static std::vector<NamedTensor> Copies(const std::vector<NamedTensor>& inputs) {
    std::vector<NamedTensor> copies = inputs;
    for (NamedTensor& copy : copies) {
      if (!copy.tensor.initialized()) continue;  // the run reports the error
      Tensor own(copy.tensor.device());
      Copy(copy.tensor, &own);
      copy.tensor = std::move(own);
    }
    return copies;
  }
  const OperatorDef& node(const NodeValue& value) const { return plan.graph().node(value.node); }
  NodeChoice choice(const NodeValue& value) const { return plan.choice(value.node); }

  const Plan plan;
  std::vector<NodeValue> values;
  std::map<std::pair<std::string_view, int>, const NodeValue*> by_name;
};

// Replaces control characters by spaces.
inline std::string WithoutControls(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = ' ';
  return text;
}
// Returns "reference", or "Relu of reference" if the expected plan has another operator.
inline std::string ExpectedBy(const ComparedValue& value) {
  return value.expected_operator.empty()
             ? value.expected_backend
             : StrCat(value.expected_operator, " of ", value.expected_backend);
}
inline std::string ShortNumber(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", number);
  return text;
}

}  // namespace detail

OPKIT_INLINE RunComparison CompareRuns(const Plan& plan, const Plan& expected,
                                       const std::vector<NamedTensor>& inputs,
                                       const CompareRunsOptions& options) {
  using detail::ComparedRun;
  if (!(options.rtol >= 0) || !(options.atol >= 0))
    Throw(ErrorCode::kInvalidArgument, "runs are compared with tolerances of 0 or more, found ",
          "rtol ", options.rtol, " and atol ", options.atol);
  const ComparedRun run(plan, inputs, nullptr);
  const ComparedRun other(expected, inputs, options.node_by_node ? &run : nullptr);
  RunComparison out;
  out.options = options;
  for (const auto& [key, value] : other.by_name)
    if (!run.by_name.contains(key)) out.not_compared.emplace_back(value->name);
  std::map<std::string_view, int> times;
  for (const NodeValue& value : run.values) {
    const auto found = other.by_name.find({value.name, times[value.name]++});
    if (found == other.by_name.end()) {
      out.not_compared.push_back(value.name);
      continue;
    }
    const NodeValue& same = *found->second;
    const OperatorDef &def = run.node(value), &other_def = other.node(same);
    const NodeChoice choice = run.choice(value), other_choice = other.choice(same);
    ComparedValue& compared = out.values.emplace_back();
    compared.name = value.name;
    compared.node = def.name().empty() ? def.type() : StrCat(def.type(), " '", def.name(), "'");
    compared.backend = choice.name();
    compared.expected_backend = other_choice.name();
    if (def.type() != other_def.type()) compared.expected_operator = other_def.type();
    compared.same_kernel = choice.kernel == other_choice.kernel &&
                           choice.config_number == other_choice.config_number &&
                           def.subgraphs().empty();  // kernels in a body may differ
    detail::ValueComparison(options, compared).Compare(value.tensor, same.tensor);
    if (compared.differs && out.first_different < 0)
      out.first_different = static_cast<int>(out.values.size()) - 1;
  }
  if (out.values.empty() && !out.not_compared.empty())
    Throw(ErrorCode::kInvalidArgument,
          "the two plans have no value in common that a node makes; are they of one graph?");
  return out;
}

OPKIT_INLINE std::string ToString(const RunComparison& runs) {
  std::vector<std::vector<std::string>> lines{
      {"value", "node", "backend", "expected by", "max abs", "max rel", "different", "first"}};
  size_t same_kernels = 0;
  for (const ComparedValue& value : runs.values) {
    same_kernels += value.same_kernel;
    const bool is_compared = !value.differs || value.different > 0;
    const bool has_distance = !value.differs || value.max_abs > 0;
    lines.push_back({detail::WithoutControls(value.name), detail::WithoutControls(value.node),
                     value.backend, detail::ExpectedBy(value),
                     has_distance ? detail::ShortNumber(value.max_abs) : "",
                     has_distance ? detail::ShortNumber(value.max_rel) : "",
                     !value.differs ? "-"
                     : is_compared  ? StrCat(value.different, " of ", value.elements)
                                    : StrCat(value.found, ", not ", value.expected),
                     value.different > 0 ? StrCat(value.first) : ""});
  }
  std::string out = detail::AlignColumns(lines, 4);
  out += StrCat("\n", runs.values.size(), runs.values.size() == 1 ? " value" : " values",
                " compared, ", same_kernels, " of them of the same kernel in both runs");
  if (const size_t n = runs.not_compared.size())
    out += StrCat("; ", n, n == 1 ? " is" : " are", " in one run alone");
  return out + "\n" + runs.Verdict() + "\n";
}

OPKIT_INLINE std::string RunComparison::Verdict() const {
  const std::string beyond =
      StrCat("atol ", options.atol, " + rtol ", options.rtol, " * |expected|");
  if (same()) return "no value differs beyond " + beyond;
  const ComparedValue& first = values[detail::Index(first_different)];
  const std::string where = first.different > 0 ? StrCat(" at ", first.first) : std::string();
  return detail::WithoutControls(
      StrCat("the first value that differs beyond ", beyond, " is '", first.name, "' of node ",
             first.node, StrCat(where, ": ", first.found, " by ", first.backend, ", expected "),
             first.expected, StrCat(" by ", detail::ExpectedBy(first))));
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_DEBUG_IMPL_COMPARE_RUNS_IPP_
