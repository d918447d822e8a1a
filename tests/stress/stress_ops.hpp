// Operators of the stress programs, which fail at random, and the function that all of them are of
// their inputs. Only input 0's shape counts: the others are read over and over.
#ifndef OPKIT_TESTS_STRESS_STRESS_OPS_HPP_
#define OPKIT_TESTS_STRESS_STRESS_OPS_HPP_

#include "faults.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/opkit.hpp"

namespace stress_ops {

using namespace opkit;

// One input's part in an element of output `out`.
inline int64_t Mixed(int64_t total, int64_t salt, int out, int64_t value) {
  const auto sum = static_cast<uint64_t>(total) * 1000003 + static_cast<uint64_t>(value);
  return static_cast<int64_t>((sum ^ (sum >> 29)) + static_cast<uint64_t>(salt + out));
}

struct Source {
  const int64_t* data;
  int64_t count;
};
// Elements [begin, end) of output `out`, whose memory may be input 0's.
inline void Mix(const std::vector<Source>& in, int64_t salt, int out, int64_t* to, int64_t begin,
                int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    int64_t total = 0;
    for (const Source& source : in) total = Mixed(total, salt, out, source.data[i % source.count]);
    to[i] = total;
  }
}

// The same, of whole tensors.
inline std::vector<int64_t> Expected(const std::vector<const std::vector<int64_t>*>& inputs,
                                     int64_t salt, int out) {
  std::vector<Source> in;
  for (const auto* input : inputs) in.push_back({input->data(), std::ssize(*input)});
  std::vector<int64_t> to(inputs[0]->size());
  Mix(in, salt, out, to.data(), 0, std::ssize(to));
  return to;
}

template <class Context>
class StressOp : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  StressOp(const OperatorDef& def, Workspace* ws)
      : Operator<Context>(def, ws), salt_(this->template GetSingleArgument<int64_t>("salt", 0)) {
    MayFail(static_cast<uint64_t>(salt_));
  }

 protected:
  std::vector<Source> Sources() {
    std::vector<Source> in;
    for (int i = 0; i < this->InputSize(); ++i)
      in.push_back({this->Input(i).template data<int64_t>(), this->Input(i).numel()});
    return in;
  }
  int64_t* To(int o) {
    return this->Output(o, this->Input(0).shape(), DType::kInt64)->template mutable_data<int64_t>();
  }
  const int64_t salt_;
};

// On the host and on streams, where it fails before and after it was issued.
template <class Context>
class StressMixOp final : public StressOp<Context> {
 public:
  using StressOp<Context>::StressOp;
  bool RunOnDevice() override {
    CountOperator();
    MayFail(static_cast<uint64_t>(this->salt_) + 1);
    for (int o = 0; o < this->OutputSize(); ++o) {
      int64_t* to = this->To(o);
      ParallelFor(this->context_, this->Input(0).numel(),
                  [in = this->Sources(), salt = this->salt_, o, to](int64_t i) {
                    if (i == 0) MayFail(static_cast<uint64_t>(salt) + 2);
                    Mix(in, salt, o, to, i, i + 1);
                  });
    }
    return true;
  }
};
OPERATOR_SCHEMA(StressMix)
    .NumInputs(1, 4)
    .NumOutputs(1)
    .Inplace({{0, 0}})
    .Arg<int64_t>("salt", "of its function", 0)
    .Infer([](InferenceContext& c) { c.SetOutput(0, DType::kInt64, c.input_shape(0)); });
REGISTER_CPU_OPERATOR(StressMix, StressMixOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR(StressMix, StressMixOp<CPUStreamContext>);

OPERATOR_SCHEMA(StressSplit)
    .NumInputs(1, 4)
    .NumOutputs(2)
    .Arg<int64_t>("salt", "of its function", 0)
    .Infer([](InferenceContext& c) {
      for (int o = 0; o < 2; ++o) c.SetOutput(o, DType::kInt64, c.input_shape(0));
    });
REGISTER_CPU_OPERATOR(StressSplit, StressMixOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR(StressSplit, StressMixOp<CPUStreamContext>);

// By memory of its own, and by another operator called by name.
class StressInvokeOp final : public StressOp<CPUContext> {
 public:
  using StressOp<CPUContext>::StressOp;
  bool RunOnDevice() override {
    CountOperator();
    std::vector<Tensor> inputs;
    for (int i = 0; i < InputSize(); ++i) inputs.push_back(Input(i));
    Tensor scratch({64}, DType::kInt64);
    OutputTensorCopyFrom(0, Invoke("StressMix", inputs, {{"salt", salt_}})[0]);
    return true;
  }
};
OPERATOR_SCHEMA(StressInvoke)
    .NumInputs(1, 4)
    .NumOutputs(1)
    .Arg<int64_t>("salt", "of its function", 0)
    .Infer([](InferenceContext& c) { c.SetOutput(0, DType::kInt64, c.input_shape(0)); });
REGISTER_CPU_OPERATOR(StressInvoke, StressInvokeOp);

// A CPU operator whose work goes on elsewhere, and whose event is completed there.
class StressLaterOp final : public StressOp<CPUContext> {
 public:
  using StressOp<CPUContext>::StressOp;
  bool HasAsyncPart() const override { return true; }
  bool RunOnDevice() override {
    CountOperator();
    int64_t* to = To(0);
    MayFail(static_cast<uint64_t>(salt_) + 3);
    auto work = [in = Sources(), salt = salt_, to, count = Input(0).numel(),
                 done = event()]() mutable {
      try {
        MayFail(static_cast<uint64_t>(salt));
        Mix(in, salt, 0, to, 0, count);
        done.SetFinished();
      } catch (...) {
        done.SetFinishedWithException(std::current_exception());
      }
    };
    if (salt_ % 3 == 0)
      work();
    else
      detail::CPUStream::Get({DeviceType::kCPUStream, 0}, 5).Launch(std::move(work));
    return true;
  }
};
OPERATOR_SCHEMA(StressLater)
    .NumInputs(1, 4)
    .NumOutputs(1)
    .Stateful()
    .Arg<int64_t>("salt", "of its function", 0)
    .Infer([](InferenceContext& c) { c.SetOutput(0, DType::kInt64, c.input_shape(0)); });
REGISTER_CPU_OPERATOR(StressLater, StressLaterOp);

}  // namespace stress_ops

#endif  // OPKIT_TESTS_STRESS_STRESS_OPS_HPP_
