// NodeChoice: the kernel that a plan has selected for a node, and its configuration.
#ifndef OPKIT_GRAPH_PLAN_NODE_CHOICE_HPP_
#define OPKIT_GRAPH_PLAN_NODE_CHOICE_HPP_

#include "opkit/op/kernel.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct NodeChoice {
  const Kernel* kernel = nullptr;
  KernelConfig config;
  int config_number = 0;  // index among the kernel's proposals
  Device device;          // where it runs
  int computed_by = -1;   // an earlier node whose kernel computes this node too; -1: none
  detail::IntrusivePtr<detail::RefCounted> owner;  // keeps the kernel's library loaded
  // Better candidates that could not be chosen, "\n  backend NAME: why" for each.
  std::string passed_over;

  // Returns the backend and the variant of the configuration, "onednn winograd".
  std::string name() const { return detail::WithVariant(kernel->backend, config.variant); }
};

}}  // namespace opkit

#endif  // OPKIT_GRAPH_PLAN_NODE_CHOICE_HPP_
