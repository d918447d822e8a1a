// The datatypes, reductions and error codes of MPI, as the communicator on MPI uses them.
#ifndef OPKIT_BACKENDS_MPI_TYPES_HPP_
#define OPKIT_BACKENDS_MPI_TYPES_HPP_

#include <mpi.h>

#include "opkit/cluster/communication.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Throws kOperatorFailed with MPI's text, unless the code of a call is MPI_SUCCESS.
void CheckMpi(int code, const char* function);

// Returns a type of the dtype's size, for elements that MPI only moves. Throws kUnsupported for a
// dtype whose elements are not whole bytes.
MPI_Datatype MpiTypeOf(DType dtype);

// How MPI reduces elements.
struct MpiReduction {
  MPI_Datatype type;
  MPI_Op op;
};
// The reductions that MPI does not have: those of float16 and bfloat16, which ReduceInto computes
// in the order of the processes, and the maximum and minimum of floats, which keep NaN. MPI must be
// initialised.
class MpiReductions {
 public:
  MpiReductions();
  MpiReductions(const MpiReductions&) = delete;
  MpiReductions& operator=(const MpiReductions&) = delete;
  // Gives the operations back to MPI. Does nothing if MPI has been finalised.
  ~MpiReductions();

  // Throws kTypeMismatch for a dtype without arithmetic.
  MpiReduction Of(Reduction reduction, DType dtype) const;

 private:
  static constexpr DType kDTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                                      DType::kFloat64};
  MPI_Op ops_[4][4];  // by dtype and reduction
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/backends/mpi/impl/types.ipp"
#endif

#endif  // OPKIT_BACKENDS_MPI_TYPES_HPP_
