// expect: setBackward(f): write int f(std::map<std::string, std::string> attrs,
// std::vector<OpTensor> inputs, std::vector<OpTensor> outputs, OpResource res)
#include "opkit/op/function/function_operator.hpp"

int Backward(std::vector<opkit::OpTensor>, std::vector<opkit::OpTensor>, opkit::OpResource) {
  return 1;
}
REGISTER_OP(Broken).setBackward(Backward);
