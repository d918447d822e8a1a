// An operator whose first run starts a thread that is never joined.
#include <unistd.h>

#include <opkit/plugin/author.hpp>
#include <thread>

using namespace opkit;

static std::thread worker;

REGISTER_OP(StartsThread)
    .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource&) {
      static const bool started = [] {
        worker = std::thread([] {
          while (true) pause();
        });
        return true;
      }();
      for (int64_t i = 0; i < in[0].size() && started; ++i)
        out[0].data<float>()[i] = in[0].data<float>()[i];
    })
    .setParseAttrs([](const AttrMap&, int* num_in, int* num_out) { *num_in = *num_out = 1; })
    .setInferType([](const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
      in[0] = out[0] = DType::kFloat32;
    })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; });
