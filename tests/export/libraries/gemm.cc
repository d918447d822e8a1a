// The operators of examples/library/gemm.cc, of gemm_stateful.cc (the library's other unit) and of
// this file, in a library of opkit that serves the other hosts too.
#include "../../../examples/library/gemm.cc"

#include <opkit/opkit.hpp>

#include <opkit/export/all.hpp>

template <class Context>
void my_doubled(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = 2 * x[i]; });
}
OPKIT_OP(my_doubled).SameShape<"x", "y">().Kernel<CPUContext>();

// 2 * A * B, by another operator of this library.
REGISTER_OP(my_doubled_gemm)
    .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource& res) {
      res.invoke("my_fast_gemm", {in[0], in[1]}, {out[0]}, {{"alpha", 2.f}});
      return Status(SUCCESS);
    })
    .setInferShape(InferShape)
    .input("a")
    .input("b")
    .output("c");

OPKIT_EXPORT_DOMAIN("mine");
OPKIT_EXPORT(my_gemm);
OPKIT_EXPORT(my_doubled_gemm);
OPKIT_EXPORT_TVM_FFI(my_doubled);
OPKIT_EXPORT_TVM_FFI(state_gemm);
OPKIT_EXPORT_TVM_FFI(my_gem);
