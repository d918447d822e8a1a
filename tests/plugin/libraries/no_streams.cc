// A library with an operator for CUDA that includes nothing of the backend.
#include <opkit/opkit.hpp>

#include <opkit/backends/cuda/registration.hpp>
#include <opkit/plugin/author.hpp>

namespace {

using namespace opkit;  // NOLINT: as an author writes it

std::unique_ptr<OperatorBase> MakeNothing(const OperatorDef&, Workspace*) { return {}; }
OPERATOR_SCHEMA(LibCudaOnly).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CUDA_OPERATOR_CREATOR(LibCudaOnly, MakeNothing);

}  // namespace
