// ExplainSelection: asks the kernels of a specialization's nodes once more, with the layouts that
// were chosen, and tells what came of each. Behind Plan::Explain.
#ifndef OPKIT_GRAPH_PLAN_EXPLAIN_SELECTION_HPP_
#define OPKIT_GRAPH_PLAN_EXPLAIN_SELECTION_HPP_

#include "opkit/graph/explanation.hpp"
#include "opkit/graph/plan/specialization.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

Explanation ExplainSelection(const Specialization& specialization);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/plan/impl/explain_selection.ipp"
#endif

#endif  // OPKIT_GRAPH_PLAN_EXPLAIN_SELECTION_HPP_
