// KernelRun: a node that one kernel runs in one configuration, again and again, as it runs in a
// graph: inputs lie in the configuration's layouts, constants are known, outputs have memory.
#ifndef OPKIT_OP_BENCHMARK_KERNEL_RUN_HPP_
#define OPKIT_OP_BENCHMARK_KERNEL_RUN_HPP_

#include <memory>
#include <span>
#include <vector>

#include "opkit/op/kernel.hpp"
#include "opkit/op/operator_base.hpp"
#include "opkit/op/schema/op_cost.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Which data is out of the processor's caches when a run begins.
enum class ColdData : uint8_t {
  kNone,     // none: each run reads what the run before it has read
  kWeights,  // the constants, and what a kernel has made of them
  kAll,      // the other inputs and the outputs too
};

class KernelRun {
 public:
  struct Options {
    ColdData cold = ColdData::kNone;
    // By input: true if its data never changes, as a weight's. Missing entries are false.
    std::vector<bool> constants = {};
  };

  // `inputs` are on the host, in the standard layout, one for each input of the node; those that it
  // leaves out are empty. The node's device is the kernel's. Throws UnsupportedOperatorFeature if
  // the kernel refuses the node, and the errors of its first run.
  KernelRun(const OperatorDef& def, const Kernel& kernel, const KernelConfig& config,
            std::span<const Tensor> inputs, const Options& options);
  KernelRun(KernelRun&&) noexcept;
  ~KernelRun();

  // Runs the node on the next of its copies. Data is cold because runs take copies in turn, which
  // are larger than the caches together.
  void Run();
  // Copies of the node, 1 if no data is to be cold.
  size_t copies() const { return copies_.size(); }
  // The work of a run, by the operator's schema.
  const OpCost& cost() const { return cost_; }
  // Returns an output of the latest run, in the standard layout, on the host.
  Tensor Output(size_t o) const;

 private:
  struct Copy;
  std::vector<std::unique_ptr<Copy>> copies_;
  size_t next_ = 0, latest_ = 0;
  OpCost cost_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/benchmark/impl/kernel_run.ipp"
#endif

#endif  // OPKIT_OP_BENCHMARK_KERNEL_RUN_HPP_
