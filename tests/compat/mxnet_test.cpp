// A function as MXNet's lib_api.h has it, with one include.
#include "opkit/compat/mxnet.hpp"

#include <doctest/doctest.h>

#include <map>
#include <ostream>

#include "support/error_of.hpp"

using namespace opkit;

namespace {

MXReturnValue forward(const std::map<std::string, std::string>& attrs,
                      std::vector<MXTensor>* inputs, std::vector<MXTensor>* outputs,
                      const OpResource&) {
  if (attrs.count("refuse")) {
    MX_ERROR_MSG << "refused " << inputs->size() << " inputs" << std::endl;
    return MX_FAIL;
  }
  for (int64_t i = 0; i < inputs->at(0).size(); ++i)
    outputs->at(0).data<float>()[i] = 2 * inputs->at(0).data<float>()[i];
  return MX_SUCCESS;
}
MXReturnValue parseAttrs(const std::map<std::string, std::string>&, int* num_in, int* num_out) {
  *num_in = *num_out = 1;
  return MX_SUCCESS;
}
MXReturnValue inferShape(const std::map<std::string, std::string>&,
                         std::vector<std::vector<unsigned int>>& in,
                         std::vector<std::vector<unsigned int>>& out) {
  out[0] = in[0];
  return MX_SUCCESS;
}
REGISTER_OP(CompatTwice)
    .setForward(forward, "cpu")
    .setParseAttrs(parseAttrs)
    .setInferShape(inferShape);

TEST_CASE("an operator in MXNet's spelling runs after one include") {
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  CHECK(Invoke("CompatTwice", {x})[0].ToVector<float>() == std::vector<float>{2, 4});
  CHECK(Contains(ErrorOf([&] {
                   Invoke("CompatTwice", {x}, {{"refuse", "yes"}});
                 }).message(),
                 "refused 1 inputs"));
}

}  // namespace
