// A typed operator in a header, which two test files include.
#ifndef OPKIT_TESTS_OP_TYPED_IN_HEADER_HPP_
#define OPKIT_TESTS_OP_TYPED_IN_HEADER_HPP_

#include "opkit/op/typed_operator.hpp"

template <class Context>
void TypedInHeader(Context& context, opkit::In<"x", float> x, opkit::Out<"y", float> y) {
  ParallelFor(context, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = -x[i]; });
}
OPKIT_OP(TypedInHeader).SameShape<"x", "y">().Kernel<opkit::CPUContext>();

#endif  // OPKIT_TESTS_OP_TYPED_IN_HEADER_HPP_
