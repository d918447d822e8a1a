// FusionQuery and FusedNode: the argument and the result of a kernel's Fuse, by which a backend
// runs two nodes of a graph as one.
#ifndef OPKIT_OP_FUSION_HPP_
#define OPKIT_OP_FUSION_HPP_

#include "opkit/op/kernel.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A node and the next node, each with its selected configuration. The next node is the only reader
// of the node's output 0.
struct FusionQuery {
  KernelQuery node;
  const KernelConfig& config;
  KernelQuery next;
  const KernelConfig& next_config;
  size_t read;  // index of the input of `next` that is the node's output 0
};
// The fusion of the two nodes: a node with the outputs of `next` and inputs of both, for a kernel
// of the same backend, and its configuration. Kernels are not selected again, so the layouts must
// be those that were selected for the two nodes.
struct FusedNode {
  OperatorDef def;
  KernelConfig config;
};

}}  // namespace opkit

#endif  // OPKIT_OP_FUSION_HPP_
