// The class spelling: an operator bound to the blobs of a workspace, with a schema of the facts
// that hold on every device.
//   g++ -std=c++20 -Isingle_include examples/02_operator_class.cpp -o scale && ./scale
#include <cstdio>
#include <opkit/opkit.hpp>

using namespace opkit;

template <class Context>
class ScaleOp final : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  ScaleOp(const OperatorDef& def, Workspace* ws)
      : Operator<Context>(def, ws), scale_(GetSingleArgument<float>("scale", 1.f)) {}

  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    const float* in = x.data<float>();
    float* out = y->mutable_data<float>();
    ParallelFor(context_, x.numel(), [=, scale = scale_](int64_t i) { out[i] = scale * in[i]; });
    return true;
  }

 private:
  const float scale_;
};

OPERATOR_SCHEMA(Scale)
    .NumInputs(1)
    .NumOutputs(1)
    .Inplace({{0, 0}})
    .IdenticalTypeAndShape()
    .Arg<float>("scale", "what every element is multiplied by", 1.f)
    .PointwiseCost(1)
    .Doc("Multiplies a tensor by a number.");
REGISTER_CPU_OPERATOR(Scale, ScaleOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR(Scale, ScaleOp<CPUStreamContext>);

int main() {
  Workspace ws;
  *ws.CreateTensor("X") = Tensor::From<float>({2, 2}, {1, 2, 3, 4});

  auto op = CreateOperator(OperatorDef("Scale").Input("X").Output("Y").Arg("scale", 2.f), &ws);
  op->Run();

  // The same operator on an asynchronous device: the work is issued now and is done when the event
  // completes.
  auto async = CreateOperator(
      OperatorDef("Scale").Input("Y").Output("Z").Arg("scale", 10.f).Device(DeviceType::kCPUStream),
      &ws);
  async->RunAsync(0);
  async->event().Finish();

  const Tensor& z = *ws.GetTensor("Z");
  std::printf("%s: %g %g %g %g\n", ToString(z).c_str(), z.data<float>()[0], z.data<float>()[1],
              z.data<float>()[2], z.data<float>()[3]);
  return z.ToVector<float>() == std::vector<float>{20, 40, 60, 80} ? 0 : 1;
}
