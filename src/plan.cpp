// Plans of graphs: selection, fusion, conversion, memory. Compiled once.
#include "opkit/graph/impl/plan.ipp"
#include "opkit/graph/impl/draw_plan.ipp"
#include "opkit/graph/plan/impl/converted_graph.ipp"
#include "opkit/graph/plan/impl/converters.ipp"
#include "opkit/graph/plan/impl/explain_selection.ipp"
#include "opkit/graph/plan/impl/fused_graph.ipp"
#include "opkit/graph/plan/impl/kernel_selector.ipp"
#include "opkit/graph/plan/impl/specialization.ipp"
