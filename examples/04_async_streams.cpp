// Two streams, an event between them, and an error that passes from one to the other.
//   g++ -std=c++20 -Isingle_include examples/04_async_streams.cpp -o streams && ./streams
#include <cstdio>
#include <opkit/opkit.hpp>

using namespace opkit;

template <class Context>
void Square(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) {
    if (x[i] < 0) throw Error(ErrorCode::kInvalidArgument, "x must not be negative");
    y[i] = x[i] * x[i];
  });
}
OPKIT_OP(Square).SameShape<"x", "y">().Kernel<CPUStreamContext>();

OperatorDef SquareDef(const char* input, const char* output) {
  return OperatorDef("Square").Input(input).Output(output).Device(DeviceType::kCPUStream);
}

int main() {
  Workspace ws;
  *ws.CreateTensor("A") = Tensor::From<float>({2}, {2, 3});
  auto first = CreateOperator(SquareDef("A", "B"), &ws);
  auto second = CreateOperator(SquareDef("B", "C"), &ws);

  first->RunAsync(/*stream_id=*/0);
  second->WaitEvent(first->event(), /*stream_id=*/1);  // stream 1 waits, this thread does not
  second->RunAsync(/*stream_id=*/1);
  second->event().Finish();
  const std::vector<float> squares = ws.GetTensor("C")->ToVector<float>();
  std::printf("%g %g\n", squares[0], squares[1]);

  ws.GetTensor("A")->mutable_data<float>()[0] = -1;
  first->RunAsync(0);
  second->WaitEvent(first->event(), 1);
  second->RunAsync(1);
  try {
    second->event().Finish();  // fails with the error of the operator that makes its input
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
  }
  return squares == std::vector<float>{16, 81} && second->event().Query() == EventStatus::kFailed
             ? 0
             : 1;
}
