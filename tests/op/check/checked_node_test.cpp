// How CheckOperator runs a kernel: between guards, with its reads noted, and with a deadline.
#include "op/check/checked_ops.hpp"

namespace checked_node_test {
using namespace checked_ops;

namespace {

constexpr auto kPastEnd = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  for (int64_t i = 0; i < Count(op); ++i) y[i] = x[i];
  if (Count(op)) y[Count(op)] = 0;
};
SCHEMA_OF_ONE(BadPastEnd);
REGISTER_CPU_OPERATOR(BadPastEnd, LambdaOp<kPastEnd>);

constexpr auto kScratch = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  Tensor scratch(Shape{4}, DType::kFloat32);
  scratch.mutable_data<float>()[-1] = 1;
  for (int64_t i = 0; i < Count(op); ++i) y[i] = x[i];
};
SCHEMA_OF_ONE(BadScratch);
REGISTER_CPU_OPERATOR(BadScratch, LambdaOp<kScratch>);

constexpr auto kUnwritten = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  for (int64_t i = 0; i + 1 < Count(op); ++i) y[i] = x[i];
};
SCHEMA_OF_ONE(BadUnwritten).Output(0, "y");
REGISTER_CPU_OPERATOR(BadUnwritten, LambdaOp<kUnwritten>);

constexpr auto kAdds = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  for (int64_t i = 0; i < Count(op); ++i) y[i] += x[i];
};
SCHEMA_OF_ONE(BadReadsOutput);
REGISTER_CPU_OPERATOR(BadReadsOutput, LambdaOp<kAdds>);

constexpr auto kNeighbour = [](auto& op) {
  const float* x = In(op);
  float* y = OutLike(op);
  for (int64_t i = 0; i < Count(op); ++i) y[i] = x[i] + x[i + 1];
};
SCHEMA_OF_ONE(BadReadsBeyond);
REGISTER_CPU_OPERATOR(BadReadsBeyond, LambdaOp<kNeighbour>);

constexpr auto kWritesInput = [](auto& op) {
  float* x = const_cast<float*>(In(op));
  float* y = OutLike(op);
  for (int64_t i = 0; i < Count(op); ++i) y[i] = x[i] *= 2;
};
SCHEMA_OF_ONE(BadWritesInput).Input(0, "x");
REGISTER_CPU_OPERATOR(BadWritesInput, LambdaOp<kWritesInput>);

constexpr auto kNothing = [](auto&) {};
SCHEMA_OF_ONE(BadNothing);
REGISTER_CPU_OPERATOR(BadNothing, LambdaOp<kNothing>);

class NeverOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool HasAsyncPart() const override { return true; }
  bool RunOnDevice() override {
    OutLike(*this);
    return true;
  }
};
SCHEMA_OF_ONE(BadNever);
REGISTER_CPU_OPERATOR(BadNever, NeverOp);

// Reads its argument by another name.
template <class Context>
class BadArgumentOp final : public Operator<Context> {
 public:
  BadArgumentOp(const OperatorDef& def, opkit::Workspace* ws)
      : Operator<Context>(def, ws),
        factor_(this->template GetSingleArgument<float>("sclae", 1.f)),
        axes_(this->template GetRepeatedArgument<int>("axes")) {}
  bool RunOnDevice() override {
    const float* x = In(*this);
    float* y = OutLike(*this);
    for (int64_t i = 0; i < Count(*this); ++i) y[i] = factor_ * x[i];
    return true;
  }

 private:
  float factor_;
  std::vector<int> axes_;
};
SCHEMA_OF_ONE(BadArgument).Arg<float>("scale", "").Arg("axes", "");
REGISTER_CPU_OPERATOR(BadArgument, BadArgumentOp<CPUContext>);
SCHEMA_OF_ONE(GoodUnknownArgument).Arg<float>("scale", "").AllowUnknownArgs();
REGISTER_CPU_OPERATOR(GoodUnknownArgument, BadArgumentOp<CPUContext>);

}  // namespace

TEST_CASE("reads and writes outside the operator's own memory are blamed") {
  Expect("BadPastEnd", {"it writes past the end of output 0 'output0' (24 bytes)  [cpu/reference; "
                        "float32[2, 3]]"});
  Expect("BadScratch",
         {"it writes before the start of scratch memory that it allocated (16 bytes)"});
  Expect("BadUnwritten", {"it leaves 1 of 6 elements of output 0 'y' unwritten, first [1, 2]"});
  Expect("BadReadsOutput",
         {"it reads memory that was never written (the output before it is written, or "
          "scratch): with other bytes there output 0"});
  Expect("BadReadsBeyond", {"it reads outside its tensors: with other bytes around them output 0 "
                            "'output0': element [1, 2] is "});
  Expect("BadWritesInput", {"it changes input 0 'x', which is not one of its outputs"});
  Expect("BadNothing", {"it never sets output 0 'output0'"});
}

TEST_CASE("an argument that its schema does not declare is blamed") {
  Expect("BadArgument",
         {"operator BadArgument reads the argument 'sclae', which its schema does not declare (did "
          "you mean 'scale'? known: 'scale', 'axes')"});
  Expect("GoodUnknownArgument", {});
}

TEST_CASE("an operator that never completes is given up after the deadline") {
  CheckOptions hasty;
  hasty.run.deadline_ms = 10;
  Expect("BadNever", {"nothing completes its event, which is still SCHEDULED 10 ms after RunAsync"},
         hasty);
}

TEST_CASE("the allocator is put back and other tests' memory is left alone") {
  opkit::Allocator* before = &opkit::GetAllocator(opkit::DeviceType::kCPU);
  CheckOperator("BadPastEnd");
  CHECK(&opkit::GetAllocator(opkit::DeviceType::kCPU) == before);
}

}  // namespace checked_node_test
