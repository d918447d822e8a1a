// A typed operator in a library, by one line:
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -Iinclude bench/compile_time/typed_library.cc -o libtyped.so
#include <opkit/op.hpp>
#include <opkit/opkit.hpp>

using namespace opkit;

template <class Context>
void LibraryAxpy(Context& ctx, In<"x", float> x, In<"y", float> y, Out<"z", float> z,
                 Attr<"alpha", float> alpha) {
  ParallelFor(ctx, z.size(), [=] OPKIT_DEVICE(int64_t i) { z[i] = alpha * x[i] + y[i]; });
}
OPKIT_OP(LibraryAxpy).SameShape<"x", "y", "z">().Kernel<CPUContext>();
