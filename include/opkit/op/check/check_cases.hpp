// The node and inputs that CheckOperator runs an operator on: from the caller, from the schema's
// TestInputs, or made here.
#ifndef OPKIT_OP_CHECK_CHECK_CASES_HPP_
#define OPKIT_OP_CHECK_CHECK_CASES_HPP_

#include "opkit/op/check/check_report.hpp"
#include "opkit/op/schema.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Inputs of one node.
struct CheckCase {
  std::vector<Tensor> inputs;
  bool guessed = false;  // made here, so that a refusal says nothing about the operator

  std::string Describe() const;
};

// The smallest node of the operator that its schema accepts. Error (kInvalidArgument) when none is
// found, which says what is missing.
OperatorDef MakeCheckDef(const OpSchema& schema, const CheckOptions& options);

// The dtypes that the operator's inputs claim, those of the input with the longest list.
std::vector<DType> ClaimedDTypes(const OpSchema& schema, const CheckOptions& options);

CheckCase MakeCase(const OpSchema& schema, const OperatorDef& def, const Shape& shape, DType dtype,
                   uint64_t seed);
// Most checks use the first case that runs, so it is neither empty nor square.
std::vector<CheckCase> MakeCases(const OpSchema& schema, const OperatorDef& def, DType dtype,
                                 const CheckOptions& options);

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/check/impl/check_cases.ipp"
#endif

#endif  // OPKIT_OP_CHECK_CHECK_CASES_HPP_
