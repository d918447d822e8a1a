// Forward declarations of the classes that hold, inspect, rewrite and run graphs, for headers that
// only name them.
#ifndef OPKIT_GRAPH_FWD_HPP_
#define OPKIT_GRAPH_FWD_HPP_

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class Graph;
class GraphView;
class GraphTypes;

class PassList;

struct PlanOptions;
class Plan;
class NamedTensors;
class Executor;

class SimpleNet;
struct NetBenchmark;

}}  // namespace opkit

#endif  // OPKIT_GRAPH_FWD_HPP_
