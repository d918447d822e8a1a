// A library with an operator that is right and a static object whose destructor crashes.
#include <csignal>
#include <opkit/plugin/author.hpp>

using namespace opkit;

struct Crashes {
  ~Crashes() { std::raise(SIGSEGV); }
};
static const Crashes crashes;

REGISTER_OP(Copy)
    .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource&) {
      for (int64_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = in[0].data<float>()[i];
    })
    .setParseAttrs([](const AttrMap&, int* num_in, int* num_out) { *num_in = *num_out = 1; })
    .setInferType([](const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
      in[0] = out[0] = DType::kFloat32;
    })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; });
