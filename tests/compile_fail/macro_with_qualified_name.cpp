// expect: OPERATOR_SCHEMA(name, …): the name is an identifier; where it is that of a function or class in a namespace, write the macro there
// expect: REGISTER_OPERATOR(name, …): the name is an identifier; where it is that of a function or class in a namespace, write the macro there
// expect: REGISTER_OP(name): write the name without quotes or spaces, as my_gemm, com.me.Gemm or me::Gemm
// expect: OPKIT_OP(name, …): the name is an identifier; where it is that of a function or class in a namespace, write the macro there
#include "macros.hpp"

namespace mine {
template <class Context, class T>
void Thrice(Context&, In<"x", T> x, Out<"y", T> y) {
  for (int64_t i = 0; i < x.size(); ++i) y[i] = 3 * x[i];
}
}  // namespace mine
OPERATOR_SCHEMA("Made").NumInputs(1);
REGISTER_CPU_OPERATOR(mine::Made, GoodOp);
REGISTER_OP(mine::made).setForward(Forward);
REGISTER_OP("made").setForward(Forward);
OPKIT_OP(mine::Thrice).SameShape<"x", "y">().Kernel<CPUContext, float>();
