// A library that stays in the process: the thread that has run it holds a destructor of its.
#include <memory>

#include "opkit/plugin/author.hpp"

using namespace opkit;  // NOLINT: as an author writes it
namespace {

struct Scratchpad {
  ~Scratchpad() { delete[] memory; }
  float* memory = nullptr;
};
thread_local Scratchpad t_scratchpad;

REGISTER_OP(LibPinned)
    .setForward([](const AttrMap&, std::span<const OpTensor>, std::span<OpTensor> out,
                   OpResource&) {
      if (!t_scratchpad.memory) t_scratchpad.memory = new float[1]{};
      *out[0].data<float>() = ++t_scratchpad.memory[0];
    })
    .input("x")
    .output("runs")
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out = in; });

}  // namespace

// As MXNet has it, and not named.
ReturnValue initialize(int) { return FAIL; }
