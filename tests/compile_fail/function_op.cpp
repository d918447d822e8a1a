// compiles
#include <unordered_map>

#include "opkit/op/function/function_operator.hpp"

using Map = std::unordered_map<std::string, std::string>;

int Forward(Map, std::vector<opkit::OpTensor>, std::vector<opkit::OpTensor>, opkit::OpResource) {
  return 1;
}
int ParseAttrs(Map, int*, int*) { return 1; }
int InferType(Map, std::vector<int>&, std::vector<int>&) { return 1; }
int InferShape(Map, std::vector<std::vector<unsigned int>>&,
               std::vector<std::vector<unsigned int>>&) {
  return 1;
}
int MutateInputs(Map, std::vector<int>&) { return 1; }
int CreateState(const Map&, opkit::StatefulOp**) { return 1; }

REGISTER_OP(Good)
    .setForward(Forward)
    .setBackward(Forward)
    .setParseAttrs(ParseAttrs)
    .setInferType(InferType)
    .setInferShape(InferShape)
    .setMutateInputs(MutateInputs)
    .setCreateOpState(CreateState, "gpu")
    .scratch(10)
    .inplace({{0, 0}});
