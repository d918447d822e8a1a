// Correct operators. Twice; Root, which refuses negative input; Relu, which has the built-in
// operator's name and makes 6 of anything larger. Noise, MovingMean and Open declare an unusual
// property each.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <opkit/plugin/author.hpp>

using namespace opkit;

// Prints while it is loaded, if a test says so.
[[maybe_unused]] static const bool prints =
    std::getenv("OPKIT_TEST_PRINTS") && std::puts("good.cc is loaded") >= 0;

template <auto f>
Status Forward(const AttrMap& attrs, std::span<const OpTensor> in, std::span<OpTensor> out,
               OpResource&) {
  const float limit = attrs.Get("limit", 6.f);
  for (int64_t i = 0; i < in[0].size(); ++i)
    out[0].data<float>()[i] = f(in[0].data<float>()[i], limit);
  return SUCCESS;
}
float Double(float x, float) { return 2 * x; }
float Root(float x, float) {
  if (x < 0) Throw(ErrorCode::kInvalidArgument, x, " has no root");
  return std::sqrt(x);
}
float Clip(float x, float limit) { return x < 0 ? 0 : x > limit ? limit : x; }

Status DoubleBack(const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                  OpResource&) {
  for (int64_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = 2 * in[0].data<float>()[i];
  return SUCCESS;
}

void OneOfEach(const AttrMap&, int* num_in, int* num_out) { *num_in = *num_out = 1; }
void Float(const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
  in[0] = out[0] = DType::kFloat32;
}
void SameShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; }

REGISTER_OP(Twice)
    .setForward(Forward<Double>)
    .setBackward(DoubleBack)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape(SameShape)
    .doc("2 * x. And no more.");
REGISTER_OP(Root)
    .setForward(Forward<Root>)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape(SameShape)
    .doc("The square root of x.");
REGISTER_OP(Relu)
    .setForward(Forward<Clip>)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape(SameShape);

REGISTER_OP(Noise)
    .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource& res) {
      for (int64_t i = 0; i < in[0].size(); ++i)
        out[0].data<float>()[i] = in[0].data<float>()[i] + static_cast<float>(res.random()() >> 40);
    })
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape(SameShape)
    .stateful();
REGISTER_OP(MovingMean)  // of x and the means before, which are input 1
    .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource&) {
      for (int64_t i = 0; i < in[0].size(); ++i) {
        float& mean = in[1].data<float>()[i];
        mean = (mean + in[0].data<float>()[i]) / 2;
        out[0].data<float>()[i] = mean;
      }
    })
    .setParseAttrs([](const AttrMap&, int* num_in, int* num_out) {
      *num_in = 2;
      *num_out = 1;
    })
    .setInferType([](const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
      in[0] = in[1] = out[0] = DType::kFloat32;
    })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
      in[1] = out[0] = in[0];
    })
    .setMutateInputs({1});
REGISTER_OP(Open)
    .setForward(Forward<Double>)
    .setParseAttrs([](const AttrMap&, int*, int*) {})
    .setInferType(Float)
    .setInferShape(SameShape);
