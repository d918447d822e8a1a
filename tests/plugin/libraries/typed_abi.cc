// A library in C++, compiled against one version of the ABI and loaded by another.
#include <opkit/op.hpp>

namespace {
using namespace opkit;  // NOLINT: as an author writes it

int OneToOne(const AttrMap&, int* num_in, int* num_out) {
  *num_in = *num_out = 1;
  return SUCCESS;
}

// Reads the attribute by Get, which version 1.0 of the headers calls get.
template <class Attrs>
float Factor(const Attrs& attrs) {
  if constexpr (requires { attrs.Get("factor", 1.f); })
    return attrs.Get("factor", 1.f);
  else
    return attrs.get("factor", 1.f);
}

// y = factor * x - x, by scratch, a temporary, a loop on the host's threads and one of its
// operators.
REGISTER_OP(TypedScale)
    .setForward([](const AttrMap& attrs, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource& res) {
      const float factor = Factor(attrs);
      const OpTensor scaled = res.temporary(in[0].shape(), in[0].dtype());
      const float* x = in[0].data<float>();
      float *s = scaled.data<float>(), *negative = res.alloc<float>(in[0].size());
      res.parallel_for(in[0].size(), [=](int64_t i) { s[i] = factor * x[i]; });
      for (int64_t i = 0; i < in[0].size(); ++i) negative[i] = -x[i];
      const OpTensor minus(negative, DType::kFloat32, in[0].shape(), in[0].strides());
      res.invoke("AbiAdd", {scaled, minus}, {out[0]});
    })
    .setBackward([](const AttrMap& attrs, std::span<const OpTensor> in, std::span<OpTensor> out,
                    OpResource&) {  // {dy, x, y} -> {dx}
      for (int64_t i = 0; i < in[0].size(); ++i)
        out[0].data<float>()[i] = (Factor(attrs) - 1) * in[0].data<float>()[i];
    })
    .setParseAttrs(OneToOne)
    .setInferType([](const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) { out = in; })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out = in; });

}  // namespace
