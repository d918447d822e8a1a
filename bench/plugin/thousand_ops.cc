// A library of 1,000 operators, for the time that loading one takes.
#include "opkit/plugin/author.hpp"

using namespace opkit;

static Status Forward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
  return SUCCESS;
}
static int AnyNumber(const AttrMap&, int*, int*) { return SUCCESS; }
static Status LikeInput0(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  for (auto& shape : out) shape = in[0];
  return SUCCESS;
}
static const bool kRegistered = [] {
  for (int i = 0; i < 1000; ++i)
    LibraryOpBuilder(StrCat("bench_op_", i).c_str(), __FILE__, i)
        .setForward(Forward)
        .setParseAttrs(AnyNumber)
        .setInferShape(LikeInput0)
        .doc("One of a thousand.");
  return true;
}();
