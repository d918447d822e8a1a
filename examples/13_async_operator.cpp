// An operator that waits for an answer from a thread of its own. Meanwhile the thread that runs the
// graph continues.
//   g++ -std=c++20 -Isingle_include examples/13_async_operator.cpp -o async && ./async
#include <chrono>
#include <cstdio>
#include <opkit/opkit.hpp>
#include <thread>

using namespace opkit;

class AskOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  ~AskOp() override {
    if (answer_.joinable()) answer_.join();  // the thread uses this operator's tensors
  }
  bool HasAsyncPart() const override { return true; }
  bool RunOnDevice() override {
    if (answer_.joinable()) answer_.join();
    const Tensor& x = Input(0);
    float* y = Output(0, x.shape(), x.dtype())->mutable_data<float>();
    // Captures by value: when this thread works, RunOnDevice has returned. Members still exist.
    answer_ = std::thread([this, in = x.data<float>(), y, count = x.numel()] {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // stands for a network or a disk
      for (int64_t i = 0; i < count; ++i) y[i] = -in[i];
      const bool answered = count > 0;
      SetEventFinished(answered ? nullptr : "nothing was asked");  // the last word of the run
    });
    return true;
  }

 private:
  std::thread answer_;
};
OPERATOR_SCHEMA(Ask).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Ask, AskOp);

int main() {
  Workspace ws;
  *ws.CreateTensor("x") = Tensor::From<float>({2}, {1, 2});
  auto op = CreateOperator(OperatorDef("Ask", {"x"}, {"y"}), &ws);

  op->RunAsync();
  std::printf("meanwhile, the event is %s\n", ToString(op->event().Query()));
  op->event().Finish();  // Run() does both; a plan waits before y is read
  const std::vector<float> y = ws.GetTensor("y")->ToVector<float>();
  std::printf("%g %g\n", y[0], y[1]);

  *ws.GetTensor("x") = Tensor::From<float>({0}, {});
  try {
    op->Run();
  } catch (const Error& error) {  // the thread's message, with the node
    std::printf("%s\n", error.what());
    return y == std::vector<float>{-1, -2} ? 0 : 1;
  }
  return 1;
}
