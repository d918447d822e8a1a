// expect: setForward(f): write int f(std::map<std::string, std::string> attrs,
// std::vector<OpTensor> inputs, std::vector<OpTensor> outputs, OpResource res) or Status f(const
// AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&)
#include <map>

#include "opkit/op/function/function_operator.hpp"

int Forward(std::map<std::string, std::string>, std::vector<float>, std::vector<opkit::OpTensor>,
            opkit::OpResource) {
  return 1;
}
REGISTER_OP(Broken).setForward(Forward);
