// An operator in Caffe2's spelling with its gradient: after one other #include the source stays as
// it is. Below it a program runs the operator in a workspace and trains through it in a graph.
#include <opkit/compat/caffe2.hpp>

namespace caffe2 {

// y = x moved towards 0 by `margin`; 0 where x is nearer to 0.
template <class Context>
class ShrinkOp final : public Operator<Context> {
 public:
  USE_OPERATOR_CONTEXT_FUNCTIONS;
  template <class... Args>
  explicit ShrinkOp(Args&&... args)
      : Operator<Context>(std::forward<Args>(args)...),
        margin_(this->template GetSingleArgument<float>("margin", 0.5f)) {
    CAFFE_ENFORCE_GE(margin_, 0, "margin is ", margin_);
  }
  bool RunOnDevice() override {
    return DispatchHelper<TensorTypes<float, double>>::call(this, Input(0));
  }
  template <typename T>
  bool DoRunWithType() {
    const auto& X = Input(0);
    auto* Y = Output(0, X.sizes(), at::dtype<T>());
    const T* x = X.template data<T>();
    T* y = Y->template mutable_data<T>();
    const T margin = static_cast<T>(margin_);
    for (int64_t i = 0; i < X.numel(); ++i)
      y[i] = x[i] > margin ? x[i] - margin : x[i] < -margin ? x[i] + margin : T(0);
    return true;
  }

 private:
  const float margin_;
};

template <class Context>
class ShrinkGradientOp final : public Operator<Context> {
 public:
  USE_OPERATOR_CONTEXT_FUNCTIONS;
  USE_SIMPLE_CTOR_DTOR(ShrinkGradientOp);
  bool RunOnDevice() override {
    const auto &Y = Input(0), &dY = Input(1);
    auto* dX = Output(0, Y.sizes(), at::dtype<float>());
    for (int64_t i = 0; i < Y.numel(); ++i)
      dX->template mutable_data<float>()[i] =
          Y.template data<float>()[i] == 0 ? 0 : dY.template data<float>()[i];
    return true;
  }
};

REGISTER_CPU_OPERATOR(Shrink, ShrinkOp<CPUContext>);
REGISTER_CPU_OPERATOR(ShrinkGradient, ShrinkGradientOp<CPUContext>);
OPERATOR_SCHEMA(Shrink)
    .NumInputs(1)
    .NumOutputs(1)
    .AllowInplace({{0, 0}})
    .IdenticalTypeAndShape()
    .Arg("margin", "*(type: float; default: 0.5)* the move towards 0")
    .SetDoc("Moves each element towards 0.");
OPERATOR_SCHEMA(ShrinkGradient).NumInputs(2).NumOutputs(1).IdenticalTypeAndShapeOfInput(0);

class GetShrinkGradient : public GradientMakerBase {
  using GradientMakerBase::GradientMakerBase;
  vector<OperatorDef> GetGradientDefs() override {
    return SingleGradientDef("ShrinkGradient", "", vector<string>{O(0), GO(0)},
                             vector<string>{GI(0)});
  }
};
REGISTER_GRADIENT(Shrink, GetShrinkGradient);

}  // namespace caffe2

using namespace opkit;

int main() {
  Workspace ws;
  *ws.CreateTensor("X") = Tensor::From<float>({3}, {-2, 0.25f, 2});
  CreateOperator(OperatorDef("Shrink", {"X"}, {"Y"}), &ws)->Run();
  bool right = ws.GetTensor("Y")->ToVector<float>() == std::vector<float>{-1.5f, 0, 1.5f};

  Graph net;
  net.AddInput("X", DType::kFloat32, {3});
  net.AddNode(OperatorDef("Shrink", {"X"}, {"Y"}, {{"margin", 1.f}}));
  net.AddOutput("Y");
  const std::string dx = AddGradients(net, "Y", {"X"}).at("X").dense;
  net.AddOutput(dx);
  Executor exec(Compile(net));
  const auto out = exec.Run({{"X", *ws.GetTensor("X")}});
  right = right && out.Get("Y").ToVector<float>() == std::vector<float>{-1, 0, 1} &&
          out.Get(dx).ToVector<float>() == std::vector<float>{1, 0, 1};
  return right ? 0 : 1;
}
