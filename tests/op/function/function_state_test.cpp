// State of function operators between and after their runs: states that several operators share,
// and runs that end later than they return.
#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "opkit/device/cpu_stream.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/op/gradient/gradient.hpp"
#include "opkit/op/gradient/gradient_check.hpp"
#include "opkit/op/invoke.hpp"
#include "support/bench.hpp"
#include "support/error_of.hpp"
#include "support/function_ops.hpp"
#include "support/test_allocator.hpp"

namespace function_state_test {
using namespace opkit;  // NOLINT: as an author writes it

namespace {

void Add(Workspace& ws, const std::string& name, const Floats& values) {
  *ws.CreateTensor(name) = Tensor::From<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

// y = number of its run; dx = dy * runs. Says how many runs of one state there were at once.
class Counter final : public StatefulOp {
 public:
  Status Run(FunctionPass pass, OpIns in, OpOuts out, OpResource&) override {
    const int now = ++inside_;
    int most = most_at_once.load();
    while (now > most && !most_at_once.compare_exchange_weak(most, now)) {
    }
    if (pass == FunctionPass::kForward) {
      *out[0].data<float>() = static_cast<float>(++runs_);
    } else {
      for (int i = 0; i < 2000; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      *out[0].data<float>() = *in[0].data<float>() * static_cast<float>(runs_);
    }
    --inside_;
    return SUCCESS;
  }
  static inline std::atomic<int> most_at_once{0};

 private:
  std::atomic<int> inside_{0};
  int runs_ = 0;
};
void MakeCounter(const AttrMap&, std::unique_ptr<StatefulOp>* state) {
  *state = std::make_unique<Counter>();
}
REGISTER_OP(StateCounter)
    .setCreateOpState(MakeCounter)
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// The same of an operator that has a kernel of a ranked backend as well, for few elements.
class StateRankedOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const SymbolicShape& shape = query.inputs[0].shape;
    if (!shape.is_known() || shape.ToShape().numel() > 1) return {};
    return {KernelConfig()};
  }
  bool RunOnDevice() override {
    *Output(0, {1}, DType::kFloat32)->mutable_data<float>() = -1;
    return true;
  }
};
REGISTER_OP(StateRanked)
    .setCreateOpState(MakeCounter)
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(StateRanked, STATE_FAST, StateRankedOp);
OPKIT_REGISTER_BACKEND_RANK("STATE_FAST", 10);

// Leaves the handles of its last run to the test.
struct Left {
  OpCompletion completion;
  OpResource resource;
};
std::optional<Left> g_left;
REGISTER_OP(StateAsync)
    .setForward([](const AttrMap& attrs, OpIns, OpOuts, OpResource& res) -> Status {
      if (attrs.Has("alloc")) res.alloc(1000);
      g_left.emplace(Left{res.defer(), res});
      return SUCCESS;
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .scratch(256)
    .async();

// How many states of StateCounted live.
int g_states = 0;

class CountedState : public StatefulOp {
 public:
  CountedState() { ++g_states; }
  ~CountedState() override { --g_states; }
  int Forward(std::vector<OpTensor>, std::vector<OpTensor> outputs, const OpResource&) override {
    *outputs[0].data<float>() = static_cast<float>(++runs_);
    return runs_ < 100 ? SUCCESS : FAIL;
  }
  int Backward(std::vector<OpTensor> inputs, std::vector<OpTensor> outputs,
               const OpResource&) override {
    *outputs[0].data<float>() = *inputs[0].data<float>() * static_cast<float>(runs_);
    return SUCCESS;
  }

 private:
  int runs_ = 0;
};
class OnlyForward : public StatefulOp {
 public:
  int Forward(std::vector<OpTensor>, std::vector<OpTensor>, const OpResource&) override {
    return SUCCESS;
  }
};

// Counts with spans and an OpStatus; says why it fails.
class SpanState : public StatefulOp {
 public:
  OpStatus Forward(std::span<const OpTensor> inputs, std::span<OpTensor> outputs,
                   OpResource&) override {
    if (*inputs[0].data<float>() < 0) return OpStatus::Failure("it counts nothing below zero");
    *outputs[0].data<float>() = static_cast<float>(++runs_);
    return SUCCESS;
  }
  OpStatus Backward(std::span<const OpTensor> inputs, std::span<OpTensor> outputs,
                    OpResource&) override {
    *outputs[0].data<float>() = *inputs[0].data<float>() * static_cast<float>(runs_);
    return SUCCESS;
  }

 private:
  int runs_ = 0;
};
REGISTER_OP(StateOfSpans)
    .setCreateOpState([](const AttrMap&, std::unique_ptr<StatefulOp>* state) {
      *state = std::make_unique<SpanState>();
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// y = 2 x, by an object that backward needs.
class DoublesState : public StatefulOp {
 public:
  OpStatus Forward(std::span<const OpTensor> inputs, std::span<OpTensor> outputs,
                   OpResource&) override {
    factor_ = 2;
    *outputs[0].data<float>() = factor_ * *inputs[0].data<float>();
    return SUCCESS;
  }
  OpStatus Backward(std::span<const OpTensor> inputs, std::span<OpTensor> outputs,
                    OpResource&) override {
    *outputs[0].data<float>() = factor_ * *inputs[0].data<float>();
    return SUCCESS;
  }

 private:
  float factor_ = 0;
};
REGISTER_OP(StateDoubles)
    .setCreateOpState([](const AttrMap&, std::unique_ptr<StatefulOp>* state) {
      *state = std::make_unique<DoublesState>();
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

TEST_CASE("the gradient of an operator that leaves a state for it can be checked") {
  const GradientCheckResult result =
      CheckGradient(OperatorDef("StateDoubles", {"x"}, {"y"}), {Tensor::From<float>({1}, {3})});
  CHECK_MESSAGE(result.ok(), ToString(result));
  CHECK(result.elements_checked == 1);
}

Device g_state_device;
int MakeCountedState(std::map<std::string, std::string> attrs, StatefulOp** state) {
  if (attrs.count("nothing")) return SUCCESS;
  *state = new CountedState;
  if (attrs.count("fail")) return FAIL;
  if (attrs.count("throw")) throw std::runtime_error("after making it");
  return SUCCESS;
}
int MakeOwned(const std::map<std::string, std::string>&, OpContext context,
              std::unique_ptr<StatefulOp>* state) {
  g_state_device = context.device;
  *state = std::make_unique<OnlyForward>();
  return SUCCESS;
}
REGISTER_OP(StateCounted)
    .setCreateOpState(MakeCountedState, "cpu")
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);
REGISTER_OP(StateOwned)
    .setCreateOpState(MakeOwned)
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// y = number of its run * factor * x, for the shape that it is made for.
std::string g_shaped;
class ShapedState final : public StatefulOp {
 public:
  ShapedState(int64_t size, float factor) : size_(size), factor_(factor) { ++g_states; }
  ~ShapedState() override { --g_states; }
  Status Run(FunctionPass pass, OpIns in, OpOuts out, OpResource&) override {
    if (pass == FunctionPass::kForward) ++runs_;
    for (int64_t i = 0; i < size_; ++i)
      out[0].data<float>()[i] = static_cast<float>(runs_) * factor_ * in[0].data<float>()[i];
    return SUCCESS;
  }

 private:
  const int64_t size_;
  const float factor_;
  int runs_ = 0;
};
int MakeShaped(std::map<std::string, std::string> attrs, const OpContext& context,
               const std::vector<std::vector<int64_t>>& in_shapes, const std::vector<DType>& types,
               StatefulOp** state) {
  const int64_t size = in_shapes.at(0).at(0);
  if (size == 3) {
    OPKIT_ERROR_MSG << "no " << size << " elements";
    return FAIL;
  }
  if (size == 4) throw std::runtime_error("told to");
  if (size == 5) return SUCCESS;
  if (size == 6) Throw(ErrorCode::kUnsupported, "of an Error");
  g_shaped += StrCat(size, " ", types.at(0), " ", context.node->op, "; ");
  *state = new ShapedState(size, std::stof(attrs.at("factor")));
  return SUCCESS;
}
REGISTER_OP(StateShaped)
    .setCreateOpState(MakeShaped)
    .setCreateOpState(MakeShaped, "cpu_stream")
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// y = the last extent of x, plus 10 for doubles.
class NarrowState final : public StatefulOp {
 public:
  explicit NarrowState(unsigned value) : value_(value) {}
  int Forward(std::vector<OpTensor>, std::vector<OpTensor> outputs, const OpResource&) override {
    if (outputs[0].dtype() == DType::kFloat64)
      *outputs[0].data<double>() = value_;
    else
      *outputs[0].data<float>() = static_cast<float>(value_);
    return SUCCESS;
  }

 private:
  const unsigned value_;
};
Status MakeNarrow(const AttrMap&, OpContext, std::vector<std::vector<unsigned int>> in_shapes,
                  const std::vector<int> in_types, std::unique_ptr<StatefulOp>* state) {
  const bool wide = in_types[0] == static_cast<int>(DType::kFloat64);
  *state = std::make_unique<NarrowState>(in_shapes[0].back() + (wide ? 10 : 0));
  return SUCCESS;
}
REGISTER_OP(StateNarrow)
    .setCreateOpState(MakeNarrow)
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

}  // namespace

TEST_CASE("state belongs to one operator and is destroyed with it") {
  CHECK(g_states == 0);
  {
    Bench a, b;
    a.Add("x", {0});
    b.Add("x", {0});
    auto& first = a.Create(OperatorDef("StateCounted", {"x"}, {"y"}));
    auto& second = b.Create(OperatorDef("StateCounted", {"x"}, {"y"}));
    CHECK(g_states == 2);
    first.Run();
    first.Run();
    second.Run();
    CHECK(a.Values("y") == Floats{2});
    CHECK(b.Values("y") == Floats{1});
    a.op.reset();  // before its workspace
    CHECK(g_states == 1);
  }
  CHECK(g_states == 0);
}

TEST_CASE("state is not leaked when making it fails") {
  Bench bench;
  bench.Add("x", {0});
  auto message = [&](const char* attribute) {
    return ErrorOf([&] {
             bench.Create(OperatorDef("StateCounted", {"x"}, {"y"}, {{attribute, true}}));
           })
        .message();
  };
  CHECK(Contains(message("fail"), "createOpState of operator StateCounted failed"));
  CHECK(message("throw") == "createOpState of operator StateCounted threw: after making it");
  CHECK(message("nothing") ==
        "createOpState of operator StateCounted succeeded but made no StatefulOp");
  CHECK(g_states == 0);
  CHECK_FALSE(bench.ws.HasBlob("y"));
}

TEST_CASE("backward of a stateful operator runs on the state of its forward operator") {
  Bench bench;
  bench.Add("x", {0});
  bench.Add("dy", {5});
  const OperatorDef def("StateCounted", {"x"}, {"y"});
  const GradientOpsMeta gradient = GetGradientForOp(def, {"dy"});
  CHECK(Contains(ErrorOf([&] { CreateOperator(gradient.ops[0], &bench.ws); }).message(), "y"));
  bench.ws.CreateTensor("y");
  CHECK(Contains(ErrorOf([&] { CreateOperator(gradient.ops[0], &bench.ws); }).message(),
                 "needs the state of StateCounted, whose operator must be created before it"));
  auto& forward = bench.Create(def);
  auto backward = CreateOperator(gradient.ops[0], &bench.ws);
  CHECK(g_states == 1);
  forward.Run();
  forward.Run();
  forward.Run();
  backward->Run();
  CHECK(bench.Values(gradient.g_input[0].dense) == Floats{15});
  bench.op.reset();
  CHECK(g_states == 0);
  CHECK(Contains(ErrorOf([&] { backward->Run(); }).message(),
                 "the operator StateCounted that made the state is destroyed"));
}

TEST_CASE("a StatefulOp takes spans and answers with a status, as functions do") {
  Bench bench;
  bench.Add("x", {0});
  bench.Add("dy", {5});
  const OperatorDef def("StateOfSpans", {"x"}, {"y"});
  const GradientOpsMeta gradient = GetGradientForOp(def, {"dy"});
  auto& forward = bench.Create(def);
  auto backward = CreateOperator(gradient.ops[0], &bench.ws);
  forward.Run();
  forward.Run();
  CHECK(bench.Values("y") == Floats{2});
  backward->Run();
  CHECK(bench.Values(gradient.g_input[0].dense) == Floats{10});
  *bench.ws.GetTensor("x")->mutable_data<float>() = -1;
  CHECK(ErrorOf([&] { forward.Run(); }).message() ==
        "forward of operator StateOfSpans failed: it counts nothing below zero");
}

TEST_CASE("createOpState sees its device; a StatefulOp without Backward gives an error") {
  Bench bench;
  g_state_device = Device{DeviceType::kCUDA, 3};
  bench.Add("x", {0});
  bench.Create(OperatorDef("StateOwned", {"x"}, {"y"})).Run();
  CHECK(g_state_device == Device{});
  bench.Add("dy", {1});
  auto& backward = bench.Create(OperatorDef("StateOwned_backward", {"dy", "x", "y"}, {"dx"}));
  CHECK(ErrorOf([&] { backward.Run(); }).message() ==
        "backward of operator StateOwned failed: its StatefulOp does not override Backward");
}

TEST_CASE(
    "createOpState gets the inputs' shapes and types in the first run, and where they change") {
  Bench bench;
  bench.Add("x", {1, 2});
  bench.Add("dy", {10, 20});
  g_shaped.clear();
  const OperatorDef def("StateShaped", {"x"}, {"y"}, {{"factor", 3}});
  const GradientOpsMeta gradient = GetGradientForOp(def, {"dy"});
  auto& forward = bench.Create(def);
  auto backward = CreateOperator(gradient.ops[0], &bench.ws);
  CHECK(g_shaped.empty());
  forward.Run();
  forward.Run();
  CHECK(g_shaped == "2 float32 StateShaped; ");
  CHECK(bench.Values("y") == Floats{6, 12});  // 2 runs * 3 * x, of one state
  backward->Run();
  CHECK(g_shaped == "2 float32 StateShaped; ");  // that of the forward runs
  CHECK(bench.Values(gradient.g_input[0].dense) == Floats{60, 120});
  bench.Add("x", {1});
  forward.Run();
  CHECK(g_shaped == "2 float32 StateShaped; 1 float32 StateShaped; ");
  CHECK(bench.Values("y") == Floats{3});
  CHECK(g_states == 1);  // the old one is gone
  bench.Add("x", {1, 2});
  forward.Run();
  CHECK(bench.Values("y") == Floats{3, 6});  // made anew
  CHECK(g_states == 1);
  backward->Run();
  CHECK(bench.Values(gradient.g_input[0].dense) == Floats{30, 60});
  bench.op.reset();
  CHECK(g_states == 0);
}

TEST_CASE("the gradient of an operator whose state is of its inputs can be checked") {
  const GradientCheckResult result = CheckGradient(
      OperatorDef("StateShaped", {"x"}, {"y"}, {{"factor", 3}}), {Tensor::From<float>({1}, {3})});
  CHECK_MESSAGE(result.ok(), ToString(result));
}

TEST_CASE("a run whose state cannot be made fails, and the operator keeps its state") {
  Bench bench;
  bench.Add("x", {1});
  auto& op = bench.Create(OperatorDef("StateShaped", {"x"}, {"y"}, {{"factor", 3}}));
  op.Run();
  const auto error = [&](size_t size) {
    bench.Add("x", Floats(size, 1));
    return ErrorOf([&] { op.Run(); }).message();
  };
  CHECK(error(3) ==
        "forward of operator StateShaped failed: no 3 elements (createOpState returned FAIL)");
  CHECK(error(4) == "createOpState threw: told to");
  CHECK(error(5) ==
        "forward of operator StateShaped failed: createOpState succeeded but made no StatefulOp");
  bench.Add("x", Floats(6, 1));
  const std::string what = ErrorOf([&] { op.Run(); }).what();
  CHECK_MESSAGE(Contains(what, "of an Error\n  in createOpState\n"), what);
  CHECK(g_states == 1);
  bench.Add("x", {1});
  op.Run();
  CHECK(bench.Values("y") == Floats{6});  // its second run
}

TEST_CASE("MXNet's form with narrow extents, a Status and an owner does too") {
  ResolvedOperator op("StateNarrow", 1);
  CHECK(op({Tensor::From<double>({1, 3}, {0, 0, 0})})[0].data<double>()[0] == 13);
  CHECK(op({Tensor::From<float>({2}, {0, 0})})[0].data<float>()[0] == 2);
  CHECK(op({Tensor::From<double>({2}, {0, 0})})[0].data<double>()[0] == 12);
}

TEST_CASE("a backward node without an input for each gradient makes no state") {
  int made = 0;
  detail::StateOfInputs of_inputs([&](const ShapeVectors&, const std::vector<DType>&,
                                      detail::IntrusivePtr<StatefulOp>&) { return ++made, FAIL; });
  opkit_call call{};
  OpResource resource(&call);
  const OpTensor in[3];
  OpTensor out[2];
  for (const size_t inputs : {1, 3})
    CHECK(Contains(
        of_inputs.Run(FunctionPass::kBackward, std::span(in, inputs), out, resource).message(),
        StrCat("it has ", inputs, " inputs for 2 gradients of inputs")));
  CHECK(made == 0);
}

TEST_CASE("on a stream a state that is replaced lives while its work may be left") {
  g_states = 0;
  {
    Workspace ws;
    Add(ws, "x", {1});
    auto op = CreateOperator(
        OperatorDef("StateShaped", {"x"}, {"y"}, {{"factor", 3}}).Device(DeviceType::kCPUStream),
        &ws);
    op->Run();
    Add(ws, "x", {1, 2});
    op->Run();
    CHECK(g_states == 2);
  }
  CHECK(g_states == 0);
}

TEST_CASE("a call that selects another kernel makes a new state, in the way of none") {
  ResolvedOperator op("StateRanked", 1);
  const Tensor one = Tensor::From<float>({1}, {0}), two = Tensor::From<float>({2}, {0, 0}),
               three = Tensor::From<float>({3}, {0, 0, 0});
  const auto first = [&](const Tensor& x) { return op({x})[0].data<float>()[0]; };
  CHECK(first(two) == 1);
  CHECK(first(two) == 2);
  CHECK(first(three) == 1);  // selected anew
  CHECK(first(one) == -1);
  CHECK(first(two) == 1);
  CHECK(Invoke("StateRanked", {two})[0].data<float>()[0] == 1);
}

TEST_CASE("the backward operators of one state run one after the other") {
  Workspace ws;
  Add(ws, "x", {0});
  Add(ws, "dy", {5});
  Add(ws, "dz", {7});
  const OperatorDef def("StateCounter", {"x"}, {"y"});
  auto forward = CreateOperator(def, &ws);
  forward->Run();
  const OperatorDef first = GetGradientForOp(def, {"dy"}).ops[0];
  const OperatorDef second(first.type(), {"dz", "x", "y"}, {"dx of the other loss"}, first.args());
  auto a = CreateOperator(first, &ws), b = CreateOperator(second, &ws);
  Counter::most_at_once = 0;
  std::thread other([&] {
    for (int i = 0; i < 3000; ++i) b->Run();
  });
  for (int i = 0; i < 3000; ++i) a->Run();
  other.join();
  CHECK(Counter::most_at_once == 1);
  CHECK(ws.GetTensor(first.outputs()[0])->data<float>()[0] == 5);
  CHECK(ws.GetTensor(second.outputs()[0])->data<float>()[0] == 7);
}

TEST_CASE(
    "a backend's backward gets its own state, even if another backend registered the gradient") {
  // The plain backend keeps none, and its is the gradient.
  static const FunctionOpBuilder plain =
      FunctionOpBuilder("StateMixed", __FILE__, __LINE__)
          .setForward(
              [](const AttrMap&, OpIns, OpOuts out, OpResource&) { *out[0].data<float>() = -1; })
          .setBackward(
              [](const AttrMap&, OpIns, OpOuts out, OpResource&) { *out[0].data<float>() = -1; })
          .setParseAttrs(OneToOne)
          .setInferShape(SameShape);
  const OperatorDef def = OperatorDef("StateMixed", {"x"}, {"y"}).Backends("stateful");
  CHECK_FALSE(GetGradientForOp(def, {"dy"}).ops[0].args().Has(detail::kStateArgument));

  detail::IntrusivePtr<FunctionOpRecord> record(new FunctionOpRecord);
  record->name = "StateMixed";
  FunctionDevice& device = record->devices.emplace_back();
  device.name = "cpu";
  device.create_state = [](const AttrMap&, const OpContext&,
                           detail::IntrusivePtr<StatefulOp>& state) -> OpStatus {
    state = detail::IntrusivePtr<StatefulOp>(new Counter);
    return SUCCESS;
  };
  detail::FunctionOpHost host(record);
  host.Add(device, FunctionPass::kForward, "stateful");
  host.Add(device, FunctionPass::kBackward, "stateful");

  Workspace ws;
  Add(ws, "x", {0});
  Add(ws, "dy", {5});
  auto forward = CreateOperator(def, &ws);
  auto backward = CreateOperator(GetGradientForOp(def, {"dy"}).ops[0], &ws);
  for (int i = 0; i < 3; ++i) forward->Run();
  backward->Run();
  CHECK(ws.GetTensor(backward->def().outputs()[0])->data<float>()[0] == 15);
}

TEST_CASE("memory allocated after the function has returned is freed when the run ends") {
  Workspace ws;
  Add(ws, "x", {0});
  auto op = CreateOperator(OperatorDef("StateAsync", {"x"}, {"y"}, {{"alloc", true}}), &ws);
  op->RunAsync();
  g_left->completion.Complete();
  op->event().Finish();
  g_left.reset();
  const int64_t before = LiveBytes();  // the output and the scratch
  op->RunAsync();
  const int64_t started = LiveBytes();
  CHECK(started > before);
  std::thread([] {
    OpResource resource = g_left->resource;
    auto* bytes = static_cast<char*>(resource.alloc(1 << 20));
    bytes[(1 << 20) - 1] = 1;
    CHECK(resource.temporary({1 << 10}, DType::kFloat32).size() == 1 << 10);
  }).join();
  CHECK(LiveBytes() - started > 1 << 20);
  g_left->completion.Complete();
  op->event().Finish();
  CHECK(LiveBytes() == before);
  g_left.reset();
}

TEST_CASE("functions that only the operator's function may call are Errors after it has returned") {
  Workspace ws;
  Add(ws, "x", {0});
  auto op = CreateOperator(OperatorDef("StateAsync", {"x"}, {"y"}), &ws);
  op->RunAsync();
  const OpResource late = g_left->resource;
  CHECK(ErrorOf([&] { late.defer(); }).message() ==
        "defer() in operator StateAsync after forward has returned; call it before");
  CHECK(Contains(ErrorOf([&] { late.invoke_async("Scale", {}, {}); }).message(),
                 "invoke_async in operator StateAsync after forward has returned"));
  CHECK(Contains(ErrorOf([&] { late.allocate_output(0, {1}, DType::kFloat32); }).message(),
                 "allocate_output in operator StateAsync after forward has returned"));
  std::thread([&] {  // what work in another thread may call
    const OpTensor x = late.temporary({1}, DType::kFloat32),
                   y = late.temporary({1}, DType::kFloat32);
    late.parallel_for(1, [=](int64_t i) { x.data<float>()[i] = 5; });
    late.invoke("StateCounter", {x}, {y});
    CHECK(*x.data<float>() == 5);
    CHECK(*y.data<float>() == 1);  // its first run
  })
      .join();
  g_left->completion.Complete();
  op->event().Finish();
  op->RunAsync();  // goes on as before
  g_left->completion.Complete();
  op->event().Finish();
  g_left.reset();
}

TEST_CASE(
    "a run that goes on after its operator is gone keeps the scratch that was planned for it") {
  Workspace ws;
  Add(ws, "x", {0});
  auto op = CreateOperator(OperatorDef("StateAsync", {"x"}, {"y"}), &ws);
  Storage planned = AllocateStorage(Device{}, 256);
  op->SetScratch(planned->data(), 256, planned);
  CHECK(planned.use_count() == 2);
  op->RunAsync();
  CHECK(g_left->resource.scratch() == planned->data());
  op.reset();
  CHECK(planned.use_count() == 2);  // the run's
  g_left->completion.Complete();
  CHECK(planned.use_count() == 1);
  g_left.reset();
}

}  // namespace function_state_test
