// An operator that keeps data between its runs, and another way without state: the data is a value,
// an output of one run and an input of the next.
//   g++ -std=c++20 -Isingle_include examples/14_state.cpp -o state && ./state
#include <algorithm>
#include <cstdio>
#include <opkit/graph.hpp>

using namespace opkit;

// y is the mean of the inputs of all runs so far.
class RunningMeanOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    sums_.resize(static_cast<size_t>(x.numel()));
    ++runs_;
    for (int64_t i = 0; i < x.numel(); ++i) {
      sums_[static_cast<size_t>(i)] += x.data<float>()[i];
      y->mutable_data<float>()[i] = sums_[static_cast<size_t>(i)] / static_cast<float>(runs_);
    }
    return true;
  }
  void Reset() { sums_.clear(), runs_ = 0; }

 private:
  std::vector<float> sums_;
  int runs_ = 0;
};
OPERATOR_SCHEMA(RunningMean).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape().Stateful();
REGISTER_CPU_OPERATOR(RunningMean, RunningMeanOp);

// The same state as a value: next = decay * state + (1 - decay) * x.
template <class Context>
void Smooth(Context& ctx, In<"x", float> x, In<"state", float> state, Out<"next", float> next,
            Attr<"decay", float> decay) {
  ParallelFor(ctx, x.size(),
              [=] OPKIT_DEVICE(int64_t i) { next[i] = decay * state[i] + (1 - decay) * x[i]; });
}
OPKIT_OP(Smooth)
    .SameShape<"x", "state", "next">()
    .Inplace<"state", "next">()
    .Default<"decay">(0.5f)
    .Kernel<CPUContext>();

int main() {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {1}).AddInput("state", DType::kFloat32, {1});
  graph.AddNode(OperatorDef("RunningMean", {"X"}, {"mean"}).Name("mean"));
  graph.AddNode(OperatorDef("Smooth", {"X", "state"}, {"next"}));
  graph.AddOutput("mean").AddOutput("next");
  Executor exec(Compile(graph));

  Tensor state = Tensor::From<float>({1}, {0});
  const auto run = [&](float x) {
    const auto out = exec.Run({{"X", Tensor::From<float>({1}, {x})}, {"state", state}});
    state = out.Get("next");
    std::printf("mean %g, smooth %g\n", out.Get("mean").data<float>()[0], state.data<float>()[0]);
    return out.Get("mean").data<float>()[0];
  };
  bool right = run(2) == 2;
  right &= run(4) == 3;

  const auto& nodes = exec.plan().graph().nodes();
  const auto node = std::ranges::find(nodes, "mean", &OperatorDef::name) - nodes.begin();
  dynamic_cast<RunningMeanOp&>(exec.op(static_cast<int>(node))).Reset();
  right &= run(10) == 10;
  return right && state.data<float>()[0] == 6.25f ? 0 : 1;
}
