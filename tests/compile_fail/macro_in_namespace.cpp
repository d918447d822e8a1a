// compiles
// flags: -Wall -Wextra -Wpedantic -Werror
#include "macros.hpp"

namespace mine::opkit {  // names of the toolkit that are the author's here
namespace detail {
}
struct GoodOp : ::GoodOp {
  using ::GoodOp::GoodOp;
};
template <class Context, class T>
void Thrice(Context&, In<"x", T> x, Out<"y", T> y) {
  for (int64_t i = 0; i < x.size(); ++i) y[i] = 3 * x[i];
}
OPERATOR_SCHEMA(Made).NumInputs(1);
REGISTER_CPU_OPERATOR(Good, GoodOp);
REGISTER_CPU_STREAM_OPERATOR_STR("Good", GoodOp);
REGISTER_CPU_OPERATOR_CREATOR(Good, MakeGood);
OPKIT_REGISTER_BACKEND_RANK("mine", 5);
REGISTER_OP(made).setForward(Forward);
OPKIT_OP(Thrice).SameShape<"x", "y">().Kernel<CPUContext, float>();
REGISTER_GRADIENT(Good, GoodGradient);
NO_GRADIENT(Good);
SHOULD_NOT_DO_GRADIENT(Good);
GRADIENT_NOT_IMPLEMENTED_YET(Good);
OPKIT_REGISTRATIONS(mine)
OPKIT_USE_REGISTRATIONS(mine);

namespace {
OPERATOR_SCHEMA(Other).NumInputs(1);
REGISTER_CPU_OPERATOR(Good, GoodOp);
REGISTER_CPU_STREAM_OPERATOR_STR("Good", GoodOp);
REGISTER_CPU_OPERATOR_CREATOR(Good, MakeGood);
OPKIT_REGISTER_BACKEND_RANK("mine", 5);
REGISTER_OP(other).setForward(Forward);
REGISTER_GRADIENT(Good, GoodGradient);
NO_GRADIENT(Good);
SHOULD_NOT_DO_GRADIENT(Good);
GRADIENT_NOT_IMPLEMENTED_YET(Good);
OPKIT_REGISTRATIONS(more)
OPKIT_USE_REGISTRATIONS(more);
}  // namespace
}  // namespace mine::opkit
