// The operators that torch_test.py calls in PyTorch.
#include <opkit/opkit.hpp>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include <opkit/export/torch.hpp>

using namespace opkit;

template <class Context, class T>
void Axpy(Context& ctx, In<"x", T> x, In<"y", T> y, Out<"z", T> z, Attr<"alpha", float> alpha) {
  if (!(alpha.value() < 1e9f)) Throw(ErrorCode::kOutOfRange, "alpha is ", alpha.value());
  const T a = static_cast<T>(alpha.value());
  ParallelFor(ctx, z.size(),
              [=] OPKIT_DEVICE(int64_t i) { z[i] = static_cast<T>(a * x[i] + y[i]); });
}
OPKIT_OP(Axpy)
    .Doc("z = alpha * x + y")
    .SameShape<"x", "y", "z">()
    .Default<"alpha">(1.f)
    .Kernel<CPUContext, float, double, float16, bfloat16, uint8_t, int8_t, int16_t, int32_t,
            int64_t>();

template <class Context>
void Not(Context& ctx, In<"x", bool> x, Out<"y", bool> y) {
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) { y[i] = !x[i]; });
}
OPKIT_OP(Not).SameShape<"x", "y">().Kernel<CPUContext>();

template <class Context>
void ScaleShift(Context& ctx, In<"x", float> x, OptionalIn<"scale", float> scale,
                OptionalIn<"shift", float> shift, Out<"y", float> y) {
  const bool scales(scale), shifts(shift);
  ParallelFor(ctx, y.size(), [=] OPKIT_DEVICE(int64_t i) {
    y[i] = x[i] * (scales ? scale[i] : 1.f) + (shifts ? shift[i] : 0.f);
  });
}
OPKIT_OP(ScaleShift).SameShape<"x", "scale", "shift", "y">().Kernel<CPUContext>();

// Inputs of any number, and as many outputs: the partial sums.
class PartialSums final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    std::vector<float> sums(static_cast<size_t>(Input(0).numel()));
    for (int i = 0; i < InputSize(); ++i) {
      float* y = Output(i, Input(0).shape(), DType::kFloat32)->mutable_data<float>();
      for (size_t n = 0; n < sums.size(); ++n) y[n] = sums[n] += Input(i).data<float>()[n];
    }
    return true;
  }
};
OPERATOR_SCHEMA(PartialSums)
    .NumInputs(1, detail::CountRule::kAny)
    .NumOutputs(1, detail::CountRule::kAny)
    .SameNumberOfOutput();
REGISTER_CPU_OPERATOR(PartialSums, PartialSums);

// Two outputs, of which inference knows the second one only.
class Positive final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const float* x = Input(0).data<float>();
    std::vector<float> found;
    std::copy_if(x, x + Input(0).numel(), std::back_inserter(found), [](float v) { return v > 0; });
    Tensor* y = Output(0, Shape{static_cast<int64_t>(found.size())}, DType::kFloat32);
    std::copy(found.begin(), found.end(), y->mutable_data<float>());
    Output(1, Shape{}, DType::kInt64)->mutable_data<int64_t>()[0] = y->numel();
    return true;
  }
};
OPERATOR_SCHEMA(Positive)
    .NumInputs(1)
    .NumOutputs(2)
    .Input(0, "x", "", {DType::kFloat32})
    .Infer([](InferenceContext& context) {
      context.SetOutput(0, DType::kFloat32, SymbolicShape({Dim()}));
      context.SetOutput(1, DType::kInt64, SymbolicShape(Shape{}));
    });
REGISTER_CPU_OPERATOR(Positive, Positive);

// Writes its attributes as text.
class Describe final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const std::string text = StrCat(
        Arg<int64_t>("i", 0), " ", Arg<double>("f", 0.1), " ", Arg<bool>("b", true), " ",
        Arg<std::string>("s", ""), " ", Arg<std::vector<int64_t>>("is", {}), " ",
        Arg<std::vector<double>>("fs", {}), " ", Arg<std::vector<bool>>("bs", {true}).size(), " ",
        Arg<std::vector<std::string>>("ss", {"a"}), " ", Sum(Arg<Tensor>("t", Tensor())));
    Tensor* y = Output(0, Shape{static_cast<int64_t>(text.size())}, DType::kUInt8);
    std::copy(text.begin(), text.end(), y->mutable_data<uint8_t>());
    return true;
  }

 private:
  static float Sum(const Tensor& t) {
    return t.numel() ? std::accumulate(t.data<float>(), t.data<float>() + t.numel(), 0.f) : 0.f;
  }
};
OPERATOR_SCHEMA(Describe)
    .NumInputs(1)
    .NumOutputs(1)
    .RequiredArg<int64_t>("i", "an integer")
    .Arg<double>("f", "a number", 0.1)
    .Arg<bool>("b", "a bool", true)
    .Arg<std::string>("s", "a text", "say \"a\\b\"")
    .Arg<std::vector<int64_t>>("is", "integers", std::vector<int64_t>{1, -2})
    .Arg<std::vector<double>>("fs", "numbers", std::vector<double>{0.5, 1e30})
    .Arg<std::vector<bool>>("bs", "bools", std::vector<bool>{true})
    .Arg<std::vector<std::string>>("ss", "texts", std::vector<std::string>{"a"})
    .Arg<Tensor>("t", "float32");
REGISTER_CPU_OPERATOR(Describe, Describe);

// No input: the numbers from 0 on.
class Count final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    Tensor* y = Output(0, Shape{Arg<int64_t>("size", 0)}, DType::kInt64);
    std::iota(y->mutable_data<int64_t>(), y->mutable_data<int64_t>() + y->numel(), int64_t{0});
    return true;
  }
};
OPERATOR_SCHEMA(Count)
    .NumInputs(0)
    .NumOutputs(1)
    .RequiredArg<int64_t>("size", "the extent")
    .Infer([](InferenceContext& context) {
      context.SetOutput(0, DType::kInt64, SymbolicShape({Dim(context.Arg<int64_t>("size"))}));
    });
REGISTER_CPU_OPERATOR(Count, Count);

// The number of threads that run a loop's iterations.
template <class Context>
void Threads(Context& ctx, In<"x", float> x, Out<"count", int64_t> count) {
  std::set<std::thread::id> threads;
  std::mutex mutex;
  ParallelFor(
      ctx, x.size(),
      [&](int64_t) {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
      },
      1);
  count[0] = static_cast<int64_t>(threads.size());
}
OPKIT_OP(Threads)
    .OutShape<"count">([](const InferenceContext&) { return Shape{1}; })
    .Kernel<CPUContext>();

// Operators that PyTorch cannot have: with state, and with an input that is written to.
class RunningSum final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override { return true; }
};
OPERATOR_SCHEMA(RunningSum).NumInputs(1).NumOutputs(1).KeepsState().IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(RunningSum, RunningSum);

class Increment final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override { return true; }
};
OPERATOR_SCHEMA(Increment).NumInputs(1).NumOutputs(1).EnforceInplace({{0, 0}});
REGISTER_CPU_OPERATOR(Increment, Increment);

OPKIT_EXPORT_DOMAIN("tests");
OPKIT_EXPORT_TORCH(Axpy);
OPKIT_EXPORT_TORCH(Not);
OPKIT_EXPORT_TORCH(ScaleShift);
OPKIT_EXPORT_TORCH(PartialSums);
OPKIT_EXPORT_TORCH(Positive);
OPKIT_EXPORT_TORCH(Describe);
OPKIT_EXPORT_TORCH(Count);
OPKIT_EXPORT_TORCH(Threads);
OPKIT_EXPORT_TORCH(RunningSum);
OPKIT_EXPORT_TORCH(Increment);
