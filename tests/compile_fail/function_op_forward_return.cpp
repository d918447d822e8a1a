// expect: setForward(f): write int f(std::map<std::string, std::string> attrs,
#include "opkit/op/function/function_operator.hpp"

const char* Forward(const opkit::AttrMap&, std::span<const opkit::OpTensor>,
                    std::span<opkit::OpTensor>, opkit::OpResource&) {
  return nullptr;
}
REGISTER_OP(Broken).setForward(Forward);
