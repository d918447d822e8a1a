// A library of two units: this one includes author.hpp, the other registers an operator class.
#include <opkit/op.hpp>
#include <opkit/opkit.hpp>

namespace {

using namespace opkit;  // NOLINT: as an author writes it

template <class Context>
void UnitHalve(Context&, In<"x", float> x, Out<"y", float> y) {
  for (int64_t i = 0; i < y.size(); ++i) y[i] = x[i] / 2;
}
OPKIT_OP(UnitHalve).SameShape<"x", "y">().Kernel<CPUContext>();

}  // namespace
