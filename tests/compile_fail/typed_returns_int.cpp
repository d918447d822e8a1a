// expect-first: OPKIT_OP: the function must return void or bool
#include "opkit/op/typed_operator.hpp"

using namespace opkit;

template <class Context>
int Copy(Context&, In<"x", float>, Out<"y", float>) {
  return 0;
}
OPKIT_OP(Copy).SameShape<"x", "y">().Kernel<CPUContext>();
