// The library that library_bench loads. Its operators do nothing, so that only the call is
// measured.
#include <map>

#include "opkit/plugin/author.hpp"

using namespace opkit;

static Status EmptyForward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>,
                           OpResource&) {
  return SUCCESS;
}
// Exported, so that the benchmark can call the same function directly.
extern "C" void* bench_empty_function() { return reinterpret_cast<void*>(&EmptyForward); }
static int EmptyOfVectors(std::map<std::string, std::string>, std::vector<OpTensor>,
                          std::vector<OpTensor>, OpResource) {
  return SUCCESS;
}
static int AnyNumber(const AttrMap&, int*, int*) { return SUCCESS; }
static Status LikeInput0(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  for (auto& shape : out) shape = in[0];
  return SUCCESS;
}

REGISTER_OP(bench_empty)
    .setForward(EmptyForward)
    .setParseAttrs(AnyNumber)
    .setInferShape(LikeInput0);
REGISTER_OP(bench_empty_of_vectors)
    .setForward(EmptyOfVectors)
    .setParseAttrs(AnyNumber)
    .setInferShape(LikeInput0);
