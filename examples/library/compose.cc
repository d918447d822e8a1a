// An operator made of other operators: y = relu(x * w + b) + x. The host runs the product and the
// sums and gives the memory between them. Profiles show the operator's own part by its name.
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -Iinclude examples/library/compose.cc -o libcompose.so
#include <opkit/op.hpp>

using namespace opkit;

Status Forward(const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
               OpResource& res) {
  const OpTensor &x = in[0], &w = in[1], &b = in[2];
  const OpTensor product = res.temporary({x.dim(0), w.dim(1)}, DType::kFloat32);
  const OpTensor sum = res.temporary({x.dim(0), w.dim(1)}, DType::kFloat32);
  res.invoke("MatMul", {x, w}, {product});
  res.invoke("Add", {product, b}, {sum});
  {
    const OpScope scope = res.scope("rectify");
    float* values = sum.data<float>();
    res.parallel_for(sum.size(), [=](int64_t i) { values[i] = values[i] > 0 ? values[i] : 0; });
  }
  res.invoke("Add", {sum, x}, {out[0]});
  return SUCCESS;
}

int ParseAttrs(const AttrMap&, int* num_in, int* num_out) {
  *num_in = 3;
  *num_out = 1;
  return SUCCESS;
}
int InferType(const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
  in[0] = in[1] = in[2] = out[0] = DType::kFloat32;
  return SUCCESS;
}
int InferShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  const auto &x = in[0], &w = in[1];
  if (x.size() != 2 || w.size() != 2 || w[0] != w[1] || x[1] != w[0]) {
    OPKIT_ERROR_MSG << "expected x[n, k] and w[k, k], found " << x << " and " << w;
    return FAIL;
  }
  out[0] = x;
  return SUCCESS;
}

REGISTER_OP(residual_layer)
    .setForward(Forward)
    .setParseAttrs(ParseAttrs)
    .setInferType(InferType)
    .setInferShape(InferShape)
    .doc("relu(x * w + b) + x, of operators that the host has.");
