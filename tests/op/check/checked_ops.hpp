// Operators for the tests of CheckOperator, and exactly what it is to find.
#ifndef OPKIT_TESTS_OP_CHECK_CHECKED_OPS_HPP_
#define OPKIT_TESTS_OP_CHECK_CHECKED_OPS_HPP_

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "opkit/device/cpu_stream.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/op/check.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/registration.hpp"

namespace checked_ops {

using opkit::CheckOperator;
using opkit::CheckOptions;
using opkit::CheckReport;
using opkit::CPUContext;
using opkit::CPUStreamContext;
using opkit::DType;
using opkit::GradientMakerBase;
using opkit::InferenceContext;
using opkit::Operator;
using opkit::OperatorBase;
using opkit::OperatorDef;
using opkit::Shape;
using opkit::Tensor;
using opkit::Workspace;

// An operator whose RunOnDevice is a lambda.
template <auto Body, class Context = CPUContext>
class LambdaOp : public Operator<Context> {
 public:
  using Operator<Context>::Operator;
  bool RunOnDevice() override {
    Body(*this);
    return true;
  }
  Context& ctx() { return this->context_; }
  int64_t memory = 0;  // survives the run
};

inline const float* In(const OperatorBase& op, int i = 0) {
  OPKIT_ENFORCE(op.Input(i).is_dense());
  return op.Input(i).data<float>();
}
inline float* OutLike(OperatorBase& op, int o = 0) {
  return op.Output(o, op.Input(0).shape(), DType::kFloat32)->mutable_data<float>();
}
inline int64_t Count(const OperatorBase& op) { return op.Input(0).numel(); }

#define SCHEMA_OF_ONE(name) OPERATOR_SCHEMA(name).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape()

// Exactly these findings, in this order: each must hold its part of the sentences.
inline void Expect(const CheckReport& report, const std::vector<std::string>& parts) {
  INFO(ToString(report));
  REQUIRE(report.findings.size() == parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    CAPTURE(parts[i]);
    CHECK(report.findings[i].find(parts[i]) != std::string::npos);
  }
  CHECK(report.ok() == parts.empty());
}
inline void Expect(const char* op, const std::vector<std::string>& parts,
                   CheckOptions options = {}) {
  Expect(CheckOperator(op, options), parts);
}

inline constexpr auto kDouble = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  opkit::ParallelFor(Count(op), [=](int64_t i) { y[i] = 2 * x[i]; });
};

}  // namespace checked_ops

#endif  // OPKIT_TESTS_OP_CHECK_CHECKED_OPS_HPP_
