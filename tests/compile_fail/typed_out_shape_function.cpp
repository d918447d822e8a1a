// expect-first: OPKIT_OP(…).OutShape<"name">(f): f must be callable as SymbolicShape(const InferenceContext&)
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
void Axpy(Context&, In<"x", float>, In<"y", float>, Out<"z", float>, Attr<"alpha", float>) {}

OPKIT_OP(Axpy).OutShape<"z">([](const Tensor&) { return Shape{}; }).Kernel<CPUContext>();
