// CheckGradient: compares the gradient operators of a node with central differences of its forward
// run. For tests of operators' authors; CheckOperator calls it for every operator with a gradient.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_CHECK_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_CHECK_HPP_

#include "opkit/op/gradient/gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The options of CheckGradient.
struct GradientCheckOptions {
  double step = 0;       // 0: 1e-5 for float64, 2^-7 for float32, 2^-4 for halves
  double threshold = 0;  // largest relative error (absolute below 1); 0: 1e-6, 5e-3, 0.1
  // The inputs whose gradients are checked. Empty: all floating-point inputs to which the gradient
  // maker gives a gradient.
  std::vector<int> inputs = {};
  uint64_t seed = 1;            // seed of the generated output gradients
  int64_t max_elements = 1000;  // tested elements of each input, spread evenly
};

// An element whose gradient is wrong.
struct GradientMismatch {
  int input = 0;
  int64_t element = 0;  // in row-major order
  double analytic = 0;  // computed by the gradient operators
  double numeric = 0;
};

// The result of CheckGradient.
struct GradientCheckResult {
  std::vector<std::string> findings;  // sentences; empty when the gradient is right
  // Skipped parts: inputs that affect an output but get no gradient; outputs whose gradient the
  // maker does not read.
  std::vector<std::string> notes;
  std::vector<GradientMismatch> mismatches;
  int64_t elements_checked = 0;
  // Largest error of an element that passed; relative, or absolute for values below 1.
  double largest_error = 0;

  bool ok() const { return findings.empty(); }
  friend std::string ToString(const GradientCheckResult& result);
};

// Runs the node and, with generated output gradients, its gradient operators. Then changes each
// tested element of each input up and down by a step, and runs the node. An operator with a
// stateful schema is created again for each run. The inputs are dense host tensors away from kinks,
// one for each of the node's inputs (default-constructed for a left-out input). Throws the errors
// of the operators and of GetGradientForOp.
//
//   CheckGradient(OperatorDef("Mul", {"a", "b"}, {"c"}), {a, b}).ok()
GradientCheckResult CheckGradient(const OperatorDef& def, std::vector<Tensor> inputs,
                                  const GradientCheckOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/gradient/impl/gradient_check.ipp"
#endif

#endif  // OPKIT_OP_GRADIENT_GRADIENT_CHECK_HPP_
