// expect: setInferShape(f): write int f(std::map<std::string, std::string> attrs,
// std::vector<std::vector<unsigned int>>& inshapes, std::vector<std::vector<unsigned int>>&
// outshapes), or with int64_t
#include <map>

#include "opkit/op/function/function_operator.hpp"

int InferShape(std::map<std::string, std::string>, std::vector<std::vector<int>>&,
               std::vector<std::vector<int>>&) {
  return 1;
}
REGISTER_OP(Broken).setInferShape(InferShape);
