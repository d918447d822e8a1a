// PlanParts: the types that a plan is made of. What is between Compile and the executor is a
// template over them, so that programs which run no graph do not compile it.
#ifndef OPKIT_GRAPH_PLAN_PLAN_PARTS_HPP_
#define OPKIT_GRAPH_PLAN_PLAN_PARTS_HPP_

#include "opkit/engine/schedule/schedule.hpp"
#include "opkit/engine/thread_pool.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/memory/lifetimes.hpp"
#include "opkit/graph/memory/types.hpp"
#include "opkit/op/kernel_candidates.hpp"

namespace opkit::inline OPKIT_ABI {

// What was selected for a node.
struct NodeChoice {
  const Kernel* kernel = nullptr;
  KernelConfig config;
  detail::IntrusivePtr<detail::RefCounted> owner;  // keeps the kernel's library loaded
};

namespace detail {

// A class below takes from here, by the same name, what it would otherwise compile where it stands.
struct PlanParts {
  using Graph = opkit::Graph;
  using GraphInput = opkit::GraphInput;
  using GraphView = opkit::GraphView;
  using GraphTypes = opkit::GraphTypes;
  using OperatorBase = opkit::OperatorBase;
  using Event = opkit::Event;
  using ThreadPool = opkit::ThreadPool;
  using NodeChoice = opkit::NodeChoice;
  using ScheduleEdge = opkit::ScheduleEdge;
  using Schedule = opkit::Schedule;
  using RunOrder = opkit::RunOrder;
  using RunValue = opkit::RunValue;
  using InPlaceOption = opkit::InPlaceOption;
  using MemoryLifetimes = opkit::MemoryLifetimes;
  using MemoryPlan = opkit::MemoryPlan;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_PLAN_PARTS_HPP_
