// Definitions of MPI's datatypes, reductions and errors.
#ifndef OPKIT_BACKENDS_MPI_IMPL_TYPES_IPP_
#define OPKIT_BACKENDS_MPI_IMPL_TYPES_IPP_

#include <string>

#include "opkit/backends/mpi/types.hpp"
#include "opkit/base/error.hpp"
#include "opkit/cluster/reduce.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void CheckMpi(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int size = 0;
  MPI_Error_string(code, text, &size);
  Throw(ErrorCode::kOperatorFailed, function, " failed: ", std::string(text, Index(size)));
}

OPKIT_INLINE MPI_Datatype MpiTypeOf(DType dtype) {
  if (IsPlain(dtype)) {
    switch (ItemSize(dtype)) {
      case 1:
        return MPI_BYTE;
      case 2:
        return MPI_UINT16_T;
      case 4:
        return MPI_UINT32_T;
      case 8:
        return MPI_UINT64_T;
      case 16:
        return MPI_C_DOUBLE_COMPLEX;
      default:
        break;
    }
  }
  Throw(ErrorCode::kUnsupported, "processes on MPI do not exchange elements of ", ToString(dtype));
}

template <DType kDType, Reduction kReduction>
void ReduceForMpi(void* from, void* into, int* count, MPI_Datatype*) {
  ReduceInto(kReduction, kDType, *count, from, into);
}
template <DType kDType>
void MakeMpiOps(MPI_Op (&ops)[4]) {
  // The order of the processes decides how halves are rounded.
  constexpr int kCommutes = ItemSize(kDType) > 2 ? 1 : 0;
  MPI_User_function* const functions[] = {
      &ReduceForMpi<kDType, Reduction::kSum>, &ReduceForMpi<kDType, Reduction::kProduct>,
      &ReduceForMpi<kDType, Reduction::kMax>, &ReduceForMpi<kDType, Reduction::kMin>};
  for (int i = 0; i < 4; ++i)
    CheckMpi(MPI_Op_create(functions[i], kCommutes, &ops[i]), "MPI_Op_create");
}

OPKIT_INLINE MpiReductions::MpiReductions() {
  MakeMpiOps<kDTypes[0]>(ops_[0]);
  MakeMpiOps<kDTypes[1]>(ops_[1]);
  MakeMpiOps<kDTypes[2]>(ops_[2]);
  MakeMpiOps<kDTypes[3]>(ops_[3]);
}
OPKIT_INLINE MpiReductions::~MpiReductions() {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (is_finalized) return;
  for (auto& ops : ops_)
    for (MPI_Op& op : ops) MPI_Op_free(&op);
}

OPKIT_INLINE MpiReduction MpiReductions::Of(Reduction reduction, DType dtype) const {
  constexpr int kNames = static_cast<int>(Reduction::kMin) + 1;
  static_assert(kNames == 4);
  const MPI_Op known[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
  const size_t which = static_cast<size_t>(reduction);
  const bool keeps_nan = reduction == Reduction::kMax || reduction == Reduction::kMin;
  switch (dtype) {
    case DType::kInt8:
      return {MPI_INT8_T, known[which]};
    case DType::kInt16:
      return {MPI_INT16_T, known[which]};
    case DType::kInt32:
      return {MPI_INT32_T, known[which]};
    case DType::kInt64:
      return {MPI_INT64_T, known[which]};
    case DType::kUInt8:
      return {MPI_UINT8_T, known[which]};
    case DType::kUInt16:
      return {MPI_UINT16_T, known[which]};
    case DType::kUInt32:
      return {MPI_UINT32_T, known[which]};
    case DType::kUInt64:
      return {MPI_UINT64_T, known[which]};
    case DType::kFloat16:
      return {MPI_UINT16_T, ops_[0][which]};
    case DType::kBFloat16:
      return {MPI_UINT16_T, ops_[1][which]};
    case DType::kFloat32:
      return {MPI_FLOAT, keeps_nan ? ops_[2][which] : known[which]};
    case DType::kFloat64:
      return {MPI_DOUBLE, keeps_nan ? ops_[3][which] : known[which]};
    default:
      Throw(ErrorCode::kTypeMismatch, "a reduction does not compute ", ToString(dtype));
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_MPI_IMPL_TYPES_IPP_
