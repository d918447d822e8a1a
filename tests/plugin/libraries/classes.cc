// A library of class operators, as Caffe2's are written.
#include <unistd.h>

#include <opkit/engine/task_group.hpp>
#include <opkit/op/fusion.hpp>
#include <opkit/op/gradient/gradient.hpp>
#include <opkit/opkit.hpp>
#include <opkit/plugin/author.hpp>
#include <opkit/profile.hpp>

namespace {

using namespace opkit;  // NOLINT: as an author writes it

template <class Context>
class ScaleOp final : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  ScaleOp(const OperatorDef& def, Workspace* ws)
      : Operator<Context>(def, ws), scale_(GetSingleArgument<float>("scale", 1.f)) {
    if (scale_ == 0) Throw(ErrorCode::kInvalidArgument, "a scale of 0 leaves nothing");
    if (scale_ < 0) throw UnsupportedOperatorFeature("negative scales are another kernel's");
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    if (x.numel() == 13) Throw(ErrorCode::kFailedPrecondition, "13 elements bring bad luck");
    Tensor* y = Output(0, x.shape(), x.dtype());
    const float* from = x.data<float>();
    float* to = y->mutable_data<float>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = scale_ * from[i];
    return true;
  }

 private:
  float scale_;
};
OPERATOR_SCHEMA(LibScale)
    .NumInputs(1)
    .NumOutputs(1)
    .Inplace({{0, 0}})
    .IdenticalTypeAndShape()
    .PointwiseCost(3)
    .Doc("Multiplies by a number.")
    .Arg<float>("scale", "the number", 1.f)
    .Input(0, "x", "numbers", {DType::kFloat32})
    .Output(0, "y", "numbers times scale");
REGISTER_CPU_OPERATOR(LibScale, ScaleOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR(LibScale, ScaleOp<CPUStreamContext>);

// The device that the class which runs was compiled for; on a stream by work that it issues there.
template <class Context>
class WhichOp final : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using Operator<Context>::Operator;
  bool RunOnDevice() override {
    float* y = Output(0, Input(0).shape(), DType::kFloat32)->template mutable_data<float>();
    const float x = Input(0).template data<float>()[0];
    context_.Launch([=] {
      if (x < 0) Throw(ErrorCode::kOutOfRange, "work of the library's is told to fail");
      *y = static_cast<float>(Context::kDeviceType);
    });
    if constexpr (Context::kAsynchronous) {
      Event issued(device());
      context_.Record(issued);
      context_.WaitEvent(issued);
    }
    return true;
  }
};
OPERATOR_SCHEMA(LibWhich).NumInputs(1).NumOutputs(1).Arg("slow", "").IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(LibWhich, WhichOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR(LibWhich, WhichOp<CPUStreamContext>);
// The kernel of another backend: adds 1000, and declines some nodes.
class FastWhichOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  FastWhichOp(const OperatorDef& def, Workspace* ws) : Operator(def, ws) {
    if (HasArgument("slow")) throw UnsupportedOperatorFeature("it is only fast");
  }
  bool RunOnDevice() override {
    *Output(0, Input(0).shape(), DType::kFloat32)->mutable_data<float>() = 1000;
    return true;
  }
};
REGISTER_CPU_OPERATOR_WITH_ENGINE(LibWhich, FAST, FastWhichOp);

// The positive elements of x, whose number no inference knows.
class PositiveOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    std::vector<float> found;
    for (const float x : Input(0).ToVector<float>())
      if (x > 0) found.push_back(x);
    const auto count = static_cast<int64_t>(found.size());
    float* y = Output(0, {count}, DType::kFloat32)->mutable_data<float>();
    std::copy(found.begin(), found.end(), y);
    return true;
  }
};
OPERATOR_SCHEMA(LibPositive).NumInputs(1).NumOutputs(1);
REGISTER_CPU_OPERATOR(LibPositive, PositiveOp);
// The dtype is known all the same.
OPERATOR_SCHEMA(LibPositiveFloats).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& c) {
  c.SetOutput(0, DType::kFloat32, SymbolicShape({Dim()}));
});
REGISTER_CPU_OPERATOR(LibPositiveFloats, PositiveOp);

// (x + x) + x, by the program's operator.
template <class Context>
class InvokesOp final : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  using Operator<Context>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor twice(x.shape(), x.dtype());
    InvokeOnHost("HostPlus", {x, x}, {twice});
    InvokeOnHost("HostPlus", {twice, x}, {*Output(0, x.shape(), x.dtype())});
    return true;
  }
};
OPERATOR_SCHEMA(LibInvokesHost).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(LibInvokesHost, InvokesOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR(LibInvokesHost, InvokesOp<CPUStreamContext>);
// One that calls it where no operator runs.
class InvokesTooEarlyOp final : public Operator<CPUContext> {
 public:
  InvokesTooEarlyOp(const OperatorDef& def, Workspace* ws) : Operator(def, ws) {
    InvokeOnHost("HostPlus", {}, {});
  }
  bool RunOnDevice() override { return true; }
};
OPERATOR_SCHEMA(LibInvokesTooEarly).NumInputs(0).NumOutputs(0);
REGISTER_CPU_OPERATOR(LibInvokesTooEarly, InvokesTooEarlyOp);

OPERATOR_SCHEMA(LibStreamOnly).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_STREAM_OPERATOR(LibStreamOnly, WhichOp<CPUStreamContext>);

// Returns 1 if a loop inside a loop was shared with another thread, 0 if no thread joined within as
// many milliseconds as the input says. Throws from a loop for a negative input.
class SharedLoopOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    const float milliseconds = Input(0).data<float>()[0];
    std::atomic<int> others{0}, waited{0};
    ParallelFor(
        2,
        [&](int64_t) {
          if (milliseconds < 0) Throw(ErrorCode::kOutOfRange, "a loop of the library's fails");
          const pthread_t outer = pthread_self();
          ParallelFor(
              64,
              [&](int64_t) {
                if (!pthread_equal(pthread_self(), outer)) ++others;
                while (others == 0 && waited++ < milliseconds) usleep(1000);
              },
              1);
        },
        1);
    Output(0, {1}, DType::kFloat32)->mutable_data<float>()[0] = others > 0;
    return true;
  }
};
OPERATOR_SCHEMA(LibSharedLoop).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(LibSharedLoop, SharedLoopOp);

class ScaleGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    return SingleGradientDef("LibScale", "", {GO(0)}, {GI(0)});
  }
};
REGISTER_GRADIENT(LibScale, ScaleGradient);

// z = (x * y) elementwise, whose gradient takes two operators and an intermediate result.
class MulOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor &x = Input(0), &y = Input(1);
    Tensor* z = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i)
      z->mutable_data<float>()[i] = x.data<float>()[i] * y.data<float>()[i];
    return true;
  }
};
OPERATOR_SCHEMA(LibMul).NumInputs(2).NumOutputs(1).IdenticalTypeAndShapeOfInput(0);
REGISTER_CPU_OPERATOR(LibMul, MulOp);
class MulGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  std::vector<OperatorDef> GetGradientDefs() override {
    const std::string kept = Temporary("kept");
    return {OperatorDef("LibScale", {GO(0)}, {kept}), OperatorDef("LibMul", {kept, I(1)}, {GI(0)}),
            OperatorDef("LibMul", {GO(0), I(0)}, {GI(1)})};
  }
  bool CopyArguments() const override { return false; }
};
REGISTER_GRADIENT(LibMul, MulGradient);

// Attributes of every kind come back as numbers.
class AttributesOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  AttributesOp(const OperatorDef& def, Workspace* ws)
      : Operator(def, ws),
        ints_(GetRepeatedArgument<int64_t>("ints")),
        floats_(GetRepeatedArgument<double>("floats")),
        words_(GetRepeatedArgument<std::string>("words")),
        flag_(GetSingleArgument<bool>("flag", false)),
        table_(GetSingleArgument<Tensor>("table", Tensor())) {}
  bool RunOnDevice() override {
    double sum = 0;
    for (int64_t one : ints_) sum += static_cast<double>(one);
    for (double one : floats_) sum += one;
    for (const std::string& one : words_) sum += static_cast<double>(one.size());
    for (double one : table_.ToVector<double>()) sum += one;
    Output(0, {}, DType::kFloat64)->mutable_data<double>()[0] = flag_ ? -sum : sum;
    return true;
  }

 private:
  std::vector<int64_t> ints_;
  std::vector<double> floats_;
  std::vector<std::string> words_;
  bool flag_;
  Tensor table_;
};
OPERATOR_SCHEMA(LibAttributes)
    .NumInputs(0)
    .NumOutputs(1)
    .ScalarType(DType::kFloat64)
    .RequiredArg<std::vector<int64_t>>("ints", "numbers")
    .Arg<std::vector<double>>("floats", "numbers", std::vector<double>{0.5, 0.25})
    .Arg<std::vector<std::string>>("words", "whose lengths count")
    .Arg<bool>("flag", "turns the sign", false)
    .RequiredArg<Tensor>("table", "numbers");
REGISTER_CPU_OPERATOR(LibAttributes, AttributesOp);
NO_GRADIENT(LibAttributes);

// x + bias, where there is one.
class BiasOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    const float bias = HasInput(1) ? Input(1).data<float>()[0] : 100.f;
    for (int64_t i = 0; i < x.numel(); ++i) y->mutable_data<float>()[i] = x.data<float>()[i] + bias;
    return true;
  }
};
OPERATOR_SCHEMA(LibBias)
    .NumInputs(1, 2)
    .NumOutputs(1)
    .IdenticalTypeAndShapeOfInput(0)
    .Arg("mode", "any")
    .AllowUnknownArgs();
REGISTER_CPU_OPERATOR(LibBias, BiasOp);
SHOULD_NOT_DO_GRADIENT(LibBias);

// Adds to a value where it lies.
class CountOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    const Shape shape = Input(0).shape();
    float* total = Output(0, shape, DType::kFloat32)->mutable_data<float>();
    for (int64_t i = 0; i < shape.numel(); ++i) total[i] += 1;
    return true;
  }
};
OPERATOR_SCHEMA(LibCount)
    .NumInputs(1)
    .NumOutputs(1)
    .EnforceInplace({{0, 0}})
    .IdenticalTypeAndShape()
    .Stateful();
REGISTER_CPU_OPERATOR(LibCount, CountOp);

// Counts its own runs without any effect on the outputs.
class KeepOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    ++runs_;
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }

 private:
  int runs_ = 0;
};
OPERATOR_SCHEMA(LibKeep).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape().KeepsState();
REGISTER_CPU_OPERATOR(LibKeep, KeepOp);

// Makes its output in other memory, with the dtype and shape of its arguments.
class ElsewhereOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    const auto length = GetSingleArgument<int64_t>("length", 2);
    Tensor made({length}, DType::kFloat32);
    for (int64_t i = 0; i < length; ++i) made.mutable_data<float>()[i] = static_cast<float>(i);
    SetOutputTensor(0, made);
    return true;
  }
};
OPERATOR_SCHEMA(LibElsewhere)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg<int64_t>("length", "of the output", 2)
    .Infer([](InferenceContext& c) { c.SetOutput(0, DType::kFloat32, {Dim(2)}); });
REGISTER_CPU_OPERATOR(LibElsewhere, ElsewhereOp);

// Splits the first axis; as many outputs as inputs, shapes from a constant.
class RepeatOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor &x = Input(0), &times = Input(1);
    const int64_t n = times.data<int64_t>()[0];
    Tensor* y = Output(0, Shape{n, x.dim(0)}, x.dtype());
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(y->mutable_data<float>() + i * x.numel(), x.data<float>(),
                  static_cast<size_t>(x.nbytes()));
    return true;
  }
};
OPERATOR_SCHEMA(LibRepeat).NumInputs(2).NumOutputs(1).Infer([](InferenceContext& c) {
  const SymbolicShape& x = c.input_shape(0);
  if (x.has_rank() && x.rank() != 1)
    Throw(ErrorCode::kInvalidArgument, "x has ", x.rank(), " axes, expected 1");
  const Tensor* times = c.input_constant(1);
  c.SetOutput(0, c.input_dtype(0),
              {times ? Dim(times->data<int64_t>()[0]) : Dim(), x.has_rank() ? x[0] : Dim()});
});
REGISTER_CPU_OPERATOR(LibRepeat, RepeatOp);

// Needs scratch for every row, as its kernel proposes.
class ScratchOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    KernelConfig config;
    config.scratch_bytes = 64 * query.inputs[0].shape[0].value();
    return {config};
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    auto* scratch = static_cast<float*>(Scratch(64 * x.dim(0)));
    std::memcpy(scratch, x.raw_data(), static_cast<size_t>(x.nbytes()));
    Tensor* y = Output(0, x.shape(), x.dtype());
    std::memcpy(y->raw_mutable_data(), scratch, static_cast<size_t>(x.nbytes()));
    return true;
  }
};
OPERATOR_SCHEMA(LibScratch).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(LibScratch, ScratchOp);

// An operator that the program has as well; this kernel does not take every node.
class SharedOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  SharedOp(const OperatorDef& def, Workspace* ws) : Operator(def, ws) {
    if (GetSingleArgument<bool>("refuse", false)) throw UnsupportedOperatorFeature("told to");
  }
  bool RunOnDevice() override {
    Output(0, {1}, DType::kFloat32)->mutable_data<float>()[0] = 2;
    return true;
  }
};
OPERATOR_SCHEMA(LibShared).NumInputs(1).NumOutputs(1).Arg("refuse", "").IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(LibShared, SharedOp);

// Adds 1 a hundred times, in tasks of the library's pool.
class TasksOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator::Operator;
  bool RunOnDevice() override {
    std::atomic<int> count{0};
    TaskGroup group;
    for (int i = 0; i < 100; ++i) group.Run([&] { ++count; });
    group.Wait();
    Output(0, {1}, DType::kFloat32)->mutable_data<float>()[0] =
        Input(0).data<float>()[0] + static_cast<float>(count);
    return true;
  }
};
OPERATOR_SCHEMA(LibTasks)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("mode", "which elements there are", {"valid", "same"})
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(LibTasks, TasksOp);

// y is the number of the kernel: 1 the plain one, 2 that of a ranked backend, which takes a next
// node in (3), 4 that of one which cannot run here.
template <int kNumber>
class RankedOp : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    float* y = Output(0, Input(0).shape(), DType::kFloat32)->template mutable_data<float>();
    y[0] = HasArgument("both") ? 3 : kNumber;
    return true;
  }
};
class RankedFirstOp final : public RankedOp<2> {
 public:
  using RankedOp<2>::RankedOp;
  static std::vector<KernelConfig> Propose(const KernelQuery&) { return {{}}; }
  static std::optional<FusedNode> Fuse(const FusionQuery& query) {
    if (query.next.def.type() != "LibRanked" || query.next.inputs[0].shape.rank() != 1)
      return std::nullopt;
    return FusedNode{OperatorDef("LibRanked", query.node.def.inputs(), query.next.def.outputs(),
                                 {{"both", true}}),
                     query.config};
  }
};
OPERATOR_SCHEMA(LibRanked)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("both", "of two nodes in one")
    .IdenticalTypeAndShape()
    .TestInputs([](DType dtype, uint64_t seed) {
      return std::vector<Tensor>{Tensor({static_cast<int64_t>(seed) + 1}, dtype)};
    });
REGISTER_CPU_OPERATOR(LibRanked, RankedOp<1>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(LibRanked, lib_first, RankedFirstOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(LibRanked, lib_absent, RankedOp<4>);
OPKIT_REGISTER_BACKEND_RANK("lib_first", 300);
OPKIT_REGISTER_BACKEND_RANK("lib_absent", 500);
int g_asked = 0;
OPKIT_REGISTER_BACKEND_AVAILABILITY("lib_absent", [] {
  return ++g_asked == 1 ? "its card is not here" : "asked again";
});

// y = 2 x by LibScale of its own, in a part that it names and by a temporary.
class TracedOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor temporary(x.shape(), x.dtype());
    {
      const ProfileScope scope("its own part");
      temporary = Invoke("LibScale", {x}, {{"scale", 2.f}})[0];
    }
    OutputTensorCopyFrom(0, temporary);
    return true;
  }
};
OPERATOR_SCHEMA(LibTraced).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(LibTraced, TracedOp);

// One of the functions spelling beside them.
Status Twice(const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out, OpResource&) {
  for (int64_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = 2 * in[0].data<float>()[i];
  return SUCCESS;
}
REGISTER_OP(LibTwice)
    .setForward(Twice)
    .setParseAttrs([](const AttrMap&, int* in, int* out) { *in = *out = 1; })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; });

}  // namespace
