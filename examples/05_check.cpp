// One call tests an operator against its own claims. The operator here reads one element too far.
//   g++ -std=c++20 -Iinclude examples/05_check.cpp -o check && ./check
#include <cstdio>
#include <opkit/op/check.hpp>
#include <opkit/opkit.hpp>

using namespace opkit;

template <class Context>
void Differences(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = x[i + 1] - x[i]; });
}
OPKIT_OP(Differences).SameShape<"x", "y">().Kernel<CPUContext>();

template <class Context>
void Twice(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = 2 * x[i]; });
}
OPKIT_OP(Twice).SameShape<"x", "y">().Inplace<"x", "y">().Kernel<CPUContext>();

// The check cannot guess attributes: the options give those that a typed operator requires.
template <class Context>
void Times(Context& ctx, In<"x", float> x, Out<"y", float> y, Attr<"factor", float> factor) {
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = factor * x[i]; });
}
OPKIT_OP(Times).SameShape<"x", "y">().Kernel<CPUContext>();

int main() {
  const CheckReport wrong = CheckOperator("Differences");
  const CheckReport right = CheckOperator("Twice");
  const CheckReport times = CheckOperator("Times", {.args = {{"factor", 3.f}}});
  std::printf("%s\n%s\n%s\n", ToString(wrong).c_str(), ToString(right).c_str(),
              ToString(times).c_str());
  return !wrong.ok() && right.ok() && times.ok() ? 0 : 1;
}
