// BenchmarkNode: a node with inputs, whose kernels are to be timed. CompareKernels and
// BenchmarkOperator (interop/google_benchmark.hpp) list its kernels and make them ready by it.
#ifndef OPKIT_OP_BENCHMARK_BENCHMARK_NODE_HPP_
#define OPKIT_OP_BENCHMARK_BENCHMARK_NODE_HPP_

#include <string>
#include <vector>

#include "opkit/op/benchmark/kernel_run.hpp"
#include "opkit/op/kernel_candidates.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the operator with the node's attributes: "MatMul(trans_b=1)".
std::string NodeName(const OperatorDef& def);

class BenchmarkNode {
 public:
  // `inputs` are on the host; `constants` as in KernelRun::Options. Throws kInvalidArgument for
  // another number of inputs than the node's, kNotFound for an unknown operator, and the errors of
  // inference.
  BenchmarkNode(OperatorDef def, std::vector<Tensor> inputs, std::vector<bool> constants);
  BenchmarkNode(BenchmarkNode&&) = default;  // no copies: `infos_` points into `inputs_`

  const OperatorDef& def() const { return def_; }
  const std::vector<TensorInfo>& inputs() const { return infos_; }

  // Returns every kernel in every configuration that it proposes, of these backends only unless the
  // list is empty. A kernel that declines has the reason in `dropped`. Kernels may ask for the
  // number of threads: call it with the pool of the runs (PoolScope).
  std::vector<KernelCandidate> Candidates(const std::vector<std::string>& backends) const;
  // Returns the backend, "eigen", with the name of the variant or else the number of a further
  // configuration: "onednn winograd", "onednn #1".
  static std::string NameOf(const KernelCandidate& candidate);

  // Makes a kernel ready. Throws the errors of KernelRun.
  KernelRun Prepare(const KernelCandidate& candidate, ColdData cold) const;

 private:
  OperatorDef def_;
  std::vector<Tensor> inputs_;
  std::vector<bool> constants_;
  std::vector<TensorInfo> infos_, outputs_;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/benchmark/impl/benchmark_node.ipp"
#endif

#endif  // OPKIT_OP_BENCHMARK_BENCHMARK_NODE_HPP_
