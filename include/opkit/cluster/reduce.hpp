// ReduceInto: combines blocks of elements, for communicators that reduce by themselves and for the
// deterministic AllReduce.
#ifndef OPKIT_CLUSTER_REDUCE_HPP_
#define OPKIT_CLUSTER_REDUCE_HPP_

#include "opkit/cluster/communication.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Combines `count` elements of `from` into `into`, element by element. float16 and bfloat16 are
// computed in float and rounded once. Throws kTypeMismatch for a dtype without arithmetic.
void ReduceInto(Reduction reduction, DType dtype, int64_t count, const void* from, void* into);
// Divides `count` elements, the sums of a mean, by their number of terms; no reciprocal is rounded.
// Throws kTypeMismatch for a dtype that is no float.
void DivideElements(DType dtype, int64_t count, int64_t terms, void* elements);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/reduce.ipp"
#endif

#endif  // OPKIT_CLUSTER_REDUCE_HPP_
