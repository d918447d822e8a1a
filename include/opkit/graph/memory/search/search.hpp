// The searches that follow the greedy portfolio until time or steps run out. To add one, write a
// function with the parameters of AnnealOrder and give it a row in kPlannerSearches.
#ifndef OPKIT_GRAPH_MEMORY_SEARCH_SEARCH_HPP_
#define OPKIT_GRAPH_MEMORY_SEARCH_SEARCH_HPP_

#include "opkit/base/suggest.hpp"
#include "opkit/graph/memory/search/anneal.hpp"
#include "opkit/graph/memory/search/skyline_restarts.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

struct PlannerSearch {
  const char* name;  // for MemorySearchOptions::name
  bool (*applies)(const MemoryProblem& problem);
  void (*run)(const MemoryProblem& problem, SearchBudget* budget, Placing* best);
};

// In the order of preference.
inline constexpr PlannerSearch kPlannerSearches[] = {
    {"skyline", [](const MemoryProblem& problem) { return problem.spans_decide; }, RestartSkyline},
    {"annealing", [](const MemoryProblem& problem) { return problem.count <= kMostInMatrix; },
     AnnealOrder},
};

inline void CheckSearchName(const std::string& name) {
  std::vector<std::string> names;
  for (const PlannerSearch& search : kPlannerSearches) names.push_back(search.name);
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end())
    Throw(ErrorCode::kNotFound, "the memory planner has no search '", name, "'",
          SuggestName(name, names));
}

// Runs the search of that name, if it can take the problem; for an empty name, the first search
// that can. Does nothing if no conflicts are listed or the placing is low enough.
inline void SearchPlacing(const std::string& name, const MemoryProblem& problem,
                          SearchBudget* budget, Placing* best) {
  if (problem.conflicts.empty() || best->height <= budget->enough) return;
  for (const PlannerSearch& search : kPlannerSearches)
    if ((name.empty() || name == search.name) && search.applies(problem))
      return search.run(problem, budget, best);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_GRAPH_MEMORY_SEARCH_SEARCH_HPP_
