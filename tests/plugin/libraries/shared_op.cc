// Two operators that other libraries and the program may have as well: y = FACTOR * x, and
// x -> FACTOR times the runs of this file's code so far.
#include <atomic>

#include "opkit/plugin/author.hpp"

namespace {
using namespace opkit;  // NOLINT: as an author writes it

std::atomic<int> g_runs{0};
OPKIT_LIBRARY_INITIALIZE([](int host_major, int) { return host_major == OPKIT_ABI_MAJOR; });
OPKIT_LIBRARY_FINALIZE([] { g_runs = 0; });

int OneToOne(const AttrMap&, int* num_in, int* num_out) {
  *num_in = *num_out = 1;
  return SUCCESS;
}
int SameShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  out = in;
  return SUCCESS;
}

REGISTER_OP(LibShared)
    .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource&) {
      for (int64_t i = 0; i < in[0].size(); ++i)
        out[0].data<float>()[i] = FACTOR * in[0].data<float>()[i];
    })
#ifdef BACKWARD
    .setBackward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                    OpResource&) {
      for (int64_t i = 0; i < in[0].size(); ++i)
        out[0].data<float>()[i] = FACTOR * in[0].data<float>()[i];
    })
#endif
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .doc("Multiplies.");

REGISTER_OP(LibRuns)
    .setForward([](const AttrMap&, std::span<const OpTensor>, std::span<OpTensor> out,
                   OpResource&) { *out[0].data<float>() = static_cast<float>(FACTOR * ++g_runs); })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .stateful();

}  // namespace
