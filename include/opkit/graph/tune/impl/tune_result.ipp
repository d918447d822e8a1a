// Definitions of TuneResult: what it lists, and its text.
#ifndef OPKIT_GRAPH_TUNE_IMPL_TUNE_RESULT_IPP_
#define OPKIT_GRAPH_TUNE_IMPL_TUNE_RESULT_IPP_

#include <algorithm>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/strings.hpp"
#include "opkit/graph/tune/tune.hpp"
#include "opkit/profile/text_columns.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_COLD OPKIT_INLINE std::vector<size_t> TuneResult::Pareto() const {
  std::vector<size_t> found;
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto is_beaten_by = [&](const Plan& other) {
      return other.times.median <= plans[i].times.median && other.bytes <= plans[i].bytes &&
             (other.times.median < plans[i].times.median || other.bytes < plans[i].bytes ||
              &other < &plans[i]);  // the first of equal plans
    };
    if (std::ranges::none_of(plans, is_beaten_by)) found.push_back(i);
  }
  detail::StableSort(
      found, [&](size_t a, size_t b) { return plans[a].times.median < plans[b].times.median; });
  return found;
}

OPKIT_COLD OPKIT_INLINE std::string ToString(const TuneResult& result, bool nodes) {
  const auto us = [](double ns) { return detail::Microseconds(ns); };
  const auto percent = [](double p) {
    char text[32];
    std::snprintf(text, sizeof text, p < 0.001 ? "p < 0.001" : "p = %.3f", p);
    return std::string(text);
  };
  const bool has_joules = !result.plans.empty() && result.plans[0].joules >= 0;
  std::vector<std::vector<std::string>> lines = {
      {"plan", "median us", "95 % interval", "speedup", "by chance", "bytes"}};
  if (has_joules) lines[0].push_back("mJ a run");
  for (size_t i = 0; i < result.plans.size(); ++i) {
    const TuneResult::Plan& plan = result.plans[i];
    char speedup[32];
    std::snprintf(speedup, sizeof speedup, "%.3f", plan.speedup);
    lines.push_back({StrCat(i == result.best ? "* " : "  ", plan.name), us(plan.times.median),
                     StrCat(us(plan.times.low), " to ", us(plan.times.high)), speedup,
                     i == 0 ? "" : percent(plan.p), StrCat(plan.bytes)});
    if (!has_joules) continue;
    char joules[32];
    std::snprintf(joules, sizeof joules, "%.3f", plan.joules * 1e3);
    lines.back().push_back(joules);
  }
  std::string out = detail::AlignColumns(lines, 1);
  out += StrCat("\n", result.plans_measured, " plans and ", result.configurations,
                " configurations measured in ", us(result.seconds * 1e9 / 1e6), " s",
                result.is_complete ? "" : "; the time was over before all was tried", "\n");
  if (result.predicted_ns > 0)
    out += StrCat("best assignment by these times: ", us(result.predicted_ns), " us, at least ",
                  us(result.lower_bound_ns), " us whatever the assignment\n");
  int changed = 0;
  for (const TuneResult::Node& node : result.nodes) {
    if (node.is_default) continue;
    ++changed;
    if (!nodes) continue;
    out += StrCat("\n", node.name, ": ", node.work, "\n");
    for (size_t i = 0; i < node.ways.size(); ++i)
      out += StrCat(static_cast<int>(i) == node.chosen ? "  * " : "    ", node.ways[i].way, ": ",
                    us(node.ways[i].median), " us (", us(node.ways[i].low), " to ",
                    StrCat(us(node.ways[i].high), ")\n"));
    if (node.chosen < 0) out += "  * by the kernel of an earlier node\n";
  }
  return out + StrCat("\n", changed, " of ", result.nodes.size(),
                      " nodes have another kernel than by default\n");
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_TUNE_IMPL_TUNE_RESULT_IPP_
