// A kernel for an operator that the host has already: ONNX's HardSigmoid, min(max(alpha * x + beta,
// 0), 1). With LoadOptions::allow_override or --library it comes before the host's kernel.
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -Iinclude examples/library/hard_sigmoid.cc -o libhard_sigmoid.so
#include <algorithm>
#include <opkit/op.hpp>

using namespace opkit;

Status Forward(const AttrMap& attrs, std::span<const OpTensor> in, std::span<OpTensor> out,
               OpResource& res) {
  const float alpha = attrs.Get("alpha", 0.2f), beta = attrs.Get("beta", 0.5f);
  const float* x = in[0].data<float>();
  float* y = out[0].data<float>();
  res.parallel_for(in[0].size(),
                   [=](int64_t i) { y[i] = std::clamp(alpha * x[i] + beta, 0.f, 1.f); });
  return SUCCESS;
}

REGISTER_OP(HardSigmoid)
    .setForward(Forward)
    .input("x")
    .output("y")
    .setInferType([](const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
      in[0] = out[0] = DType::kFloat32;
    })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; })
    .inplace({{0, 0}});
