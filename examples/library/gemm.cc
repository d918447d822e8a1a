// c = alpha * a * b with its gradient, made of plain functions: my_gemm has maps and vectors,
// my_fast_gemm has the form that allocates nothing.
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -Iinclude examples/library/gemm.cc -o libgemm.so
#include "gemm.hpp"

#include <map>

using namespace opkit;
using Attrs = std::map<std::string, std::string>;
using Tensors = std::vector<OpTensor>;

float Alpha(const Attrs& attrs) { return std::stof(attrs.at("alpha")); }  // given, or the default

int Forward(Attrs attrs, Tensors in, Tensors out, OpResource res) {
  Multiply(Alpha(attrs), in[0], in[1], out[0], res);
  return SUCCESS;
}
// in: the gradient of c, then a, b and c. out: the gradients of a and b.
int Backward(Attrs attrs, Tensors in, Tensors out, OpResource res) {
  Multiply(Alpha(attrs), in[0], Matrix(in[2]).Transposed(), out[0], res);
  Multiply(Alpha(attrs), Matrix(in[1]).Transposed(), in[0], out[1], res);
  return SUCCESS;
}

int ParseAttrs(Attrs, int* num_in, int* num_out) {
  *num_in = 2;
  *num_out = 1;
  return SUCCESS;
}
int InferType(Attrs, std::vector<int>& in, std::vector<int>& out) {
  in[0] = in[1] = out[0] = static_cast<int>(DType::kFloat32);
  return SUCCESS;
}
int InferShape(Attrs, ShapeVectors& in, ShapeVectors& out) {  // std::vector<std::vector<int64_t>>
  if (in[0].size() != 2 || in[1].size() != 2 || in[0][1] != in[1][0]) {
    OPKIT_ERROR_MSG << "cannot multiply " << in[0] << " by " << in[1];
    return FAIL;
  }
  out[0] = {in[0][0], in[1][1]};
  return SUCCESS;
}

REGISTER_OP(my_gemm)
    .setForward(Forward, "cpu")
    .setBackward(Backward, "cpu")
    .setParseAttrs(ParseAttrs)
    .setInferType(InferType)
    .setInferShape(InferShape)
    .input("a", "a matrix", {DType::kFloat32})
    .input("b", "a matrix with as many rows as A has columns", {DType::kFloat32})
    .output("c", "alpha * A * B", {DType::kFloat32})
    .arg("alpha", "the factor of the product", 1.f)
    .doc("alpha * A * B.");

Status FastForward(const AttrMap& attrs, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource& res) {
  Multiply(attrs.Get<float>("alpha"), in[0], in[1], out[0], res);
  return SUCCESS;
}
Status FastBackward(const AttrMap& attrs, std::span<const OpTensor> in, std::span<OpTensor> out,
                    OpResource& res) {
  Multiply(attrs.Get<float>("alpha"), in[0], Matrix(in[2]).Transposed(), out[0], res);
  Multiply(attrs.Get<float>("alpha"), Matrix(in[1]).Transposed(), in[0], out[1], res);
  return SUCCESS;
}

REGISTER_OP(my_fast_gemm)
    .setForward(FastForward)
    .setBackward(FastBackward)
    .setInferType(InferType)
    .setInferShape(InferShape)
    .input("a", "a matrix", {DType::kFloat32})
    .input("b", "a matrix with as many rows as A has columns", {DType::kFloat32})
    .output("c", "alpha * A * B", {DType::kFloat32})
    .arg("alpha", "the factor of the product", 1.f)
    .doc("alpha * A * B, without an allocation in a run.");
