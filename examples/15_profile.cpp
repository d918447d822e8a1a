// Shows the time inside custom operators of the program and of a library. The table and the trace
// show their own code and the operators that they invoke separately.
//   ./profile libcompose.so            # examples/library/compose.cc, compiled as it says
#include <cstdio>
#include <opkit/plugin.hpp>
#include <opkit/profile.hpp>

using namespace opkit;

// y = (x - mean) / |x - mean|. The operator computes the mean itself and invokes the toolkit's
// operators for the rest.
REGISTER_OP(center)
    .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource& res) {
      const OpTensor mean = res.temporary({1}, DType::kFloat32);
      {
        const OpScope scope = res.scope("mean");
        float sum = 0;
        for (int64_t i = 0; i < in[0].size(); ++i) sum += in[0].data<float>()[i];
        *mean.data<float>() = sum / static_cast<float>(in[0].size());
      }
      const OpTensor centered = res.temporary({in[0].size()}, DType::kFloat32);
      const OpTensor size = res.temporary({in[0].size()}, DType::kFloat32);
      res.invoke("Sub", {in[0], mean}, {centered});
      res.invoke("Abs", {centered}, {size});
      res.invoke("Div", {centered, size}, {out[0]});
    })
    .input("x")
    .output("y")
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; });

Tensor Ramp(const Shape& shape) {
  Tensor ramp(shape, DType::kFloat32);
  for (int64_t i = 0; i < ramp.numel(); ++i)
    ramp.mutable_data<float>()[i] = 0.01f * (i % 97) - 0.4f;
  return ramp;
}

int main(int argc, char** argv) {
  Library library;
  if (argc > 1) library = Library::Load(argv[1]);
  const Tensor x = Ramp({1000}), rows = Ramp({64, 32}), w = Ramp({32, 32}), b = Ramp({32});

  Profiler::Start({.shapes = true, .memory = true});
  for (int i = 0; i < 20; ++i) {
    Invoke("center", {x});
    if (library.is_loaded()) Invoke("residual_layer", {rows, w, b});
  }
  Profiler::Stop();
  if (library.is_loaded()) library.Unload();  // the recording keeps the library's names

  const ProfileTable table = MakeProfileTable(Profiler::Read());
  std::printf("%s", ToString(table).c_str());
  SaveChromeTrace(Profiler::Read(), "profile.json");  // for https://ui.perfetto.dev

  const auto ran = [&](const char* name) {
    for (const ProfileTableRow& row : table.rows)
      if (row.name == name && row.domain == "Custom Operators" && row.count == 20) return true;
    std::printf("%s is not there 20 times\n", name);
    return false;
  };
  bool right = true;
  for (const char* name : {"center", "center::mean", "center::Sub", "center::Abs", "center::Div"})
    right &= ran(name);
  if (argc > 1)
    for (const char* name : {"residual_layer", "residual_layer::MatMul", "residual_layer::rectify"})
      right &= ran(name);
  return right ? 0 : 1;
}
