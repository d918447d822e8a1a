// Operators that never come to an end: in their body, which writes the number of its process, in a
// body that has started another process, and in their inference.
#include <unistd.h>

#include <cstdio>
#include <opkit/plugin/author.hpp>

using namespace opkit;

void Hang() {
  while (true) pause();
}
Status Body(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
  std::printf("hangs in %d\n", getpid());
  std::fflush(stdout);
  Hang();
  return SUCCESS;
}
Status Fork(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
  static_cast<void>(fork());
  Hang();
  return SUCCESS;
}
void OneOfEach(const AttrMap&, int* num_in, int* num_out) { *num_in = *num_out = 1; }
void Float(const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
  in[0] = out[0] = DType::kFloat32;
}
void SameShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; }

REGISTER_OP(Hangs).setForward(Body).setParseAttrs(OneOfEach).setInferType(Float).setInferShape(
    SameShape);
REGISTER_OP(HangsInTwo)
    .setForward(Fork)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape(SameShape);
REGISTER_OP(HangsInInference)
    .setForward(Body)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape([](const AttrMap&, ShapeVectors&, ShapeVectors&) { Hang(); });
