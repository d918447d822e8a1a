// expect: setInferType(f): write int f(std::map<std::string, std::string> attrs, std::vector<int>&
// intypes, std::vector<int>& outtypes)
#include <map>

#include "opkit/op/function/function_operator.hpp"

// By value the answer would be lost.
int InferType(std::map<std::string, std::string>, std::vector<int>, std::vector<int>) { return 1; }
REGISTER_OP(Broken).setInferType(InferType);
