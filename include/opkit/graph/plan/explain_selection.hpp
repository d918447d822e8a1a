// ExplainSelection: rates the kernels of a specialization's nodes again, with the layouts that were
// chosen, and lists why each was chosen or not. Plan::Explain calls it.
#ifndef OPKIT_GRAPH_PLAN_EXPLAIN_SELECTION_HPP_
#define OPKIT_GRAPH_PLAN_EXPLAIN_SELECTION_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/graph/explanation.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

Explanation ExplainSelection(const Specialization& specialization);

// Hook for ExplainSelection; called before a plan drops the constants that it has converted.
OPKIT_IMAGE_LOCAL inline constinit Hook<Explanation(const Specialization&)> g_explain_converted{
    "a plan of kernels that differ in layout or device", "opkit/graph/plan/converters.hpp"};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/explain_selection.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_EXPLAIN_SELECTION_HPP_
