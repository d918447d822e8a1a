// expect-first: OPKIT_OP: where a parameter of a function over <Context, T> depends on T, its type must be T itself, or std::vector<T> for an attribute
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class T>
using Counts = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
template <class Context, class T>
void Count(Context&, In<"x", T>, Out<"y", Counts<T>>) {}
OPKIT_OP(Count).SameShape<"x", "y">().Kernel<CPUContext, float>();
