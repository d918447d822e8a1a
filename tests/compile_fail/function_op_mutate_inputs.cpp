// expect: setMutateInputs(f): write int f(std::map<std::string, std::string> attrs,
// std::vector<int>& input_indices), or setMutateInputs({0, 2})
#include <map>

#include "opkit/op/function/function_operator.hpp"

int MutateInputs(std::map<std::string, std::string>, std::vector<int>) { return 1; }
REGISTER_OP(Broken).setMutateInputs(MutateInputs);
