// CheckGradient: compares the gradient operators of a node with central differences of its forward
// run. For op authors' tests; CheckOperator calls it for every operator that has a gradient.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_CHECK_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_CHECK_HPP_

#include "opkit/op/gradient/gradient.hpp"

namespace opkit::inline OPKIT_ABI {

struct GradientCheckOptions {
  double step = 0;  // of the differences; 0: 1e-5 for float64, 2^-7 for float32, 2^-4 for halves
  double threshold = 0;  // relative, absolute below 1; 0: 1e-6, 5e-3, 0.1
  // Those that must have a right gradient; empty: all floating-point inputs to which the maker
  // gives one.
  std::vector<int> inputs = {};
  uint64_t seed = 1;            // of the output gradients
  int64_t max_elements = 1000;  // of each input are tested, spread evenly
};

struct GradientMismatch {
  int input = 0;
  int64_t element = 0;  // in row-major order
  double analytic = 0;  // what the gradient operators compute
  double numeric = 0;
};

struct GradientCheckResult {
  std::vector<std::string> findings;  // sentences; empty when the gradient is right
  // What was left out: inputs without a gradient that outputs depend on, outputs whose gradient is
  // read nowhere.
  std::vector<std::string> notes;
  std::vector<GradientMismatch> mismatches;
  int64_t elements_checked = 0;
  double largest_error = 0;  // relative, absolute below 1; of elements that were right

  bool ok() const { return findings.empty(); }
  friend std::string ToString(const GradientCheckResult& result);
};

// Runs the node, an operator that says it keeps state newly made in each run, and its gradient
// operators with output gradients of its own making, and every
// tested element of every input up and down by a step. The inputs are dense tensors on the host,
// one for each of the node's (a default-constructed one where it leaves an input out), away from
// kinks. Errors: those of the operators and of GetGradientForOp.
//
//   CheckGradient(OperatorDef("Mul", {"a", "b"}, {"c"}), {a, b}).ok()
GradientCheckResult CheckGradient(const OperatorDef& def, std::vector<Tensor> inputs,
                                  const GradientCheckOptions& options = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/gradient/impl/gradient_check.ipp"
#endif

#endif  // OPKIT_OP_GRADIENT_GRADIENT_CHECK_HPP_
