#include "opkit/op/function/op_resource.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "opkit/op/create_operator.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/op/invoke.hpp"
#include "support/allocations.hpp"
#include "support/bench.hpp"
#include "support/error_of.hpp"
#include "support/function_ops.hpp"
#include "support/test_allocator.hpp"

namespace op_resource_test {
using namespace opkit;  // NOLINT: as an author writes it

namespace {

Status AddForward(const AttrMap& attrs, OpIns in, OpOuts out, OpResource&) {
  const float scale = attrs.Get("scale", 1.f);
  for (int64_t i = 0; i < in[0].size(); ++i)
    out[0].data<float>()[i] = scale * (in[0].data<float>()[i] + in[1].data<float>()[i]);
  return SUCCESS;
}

REGISTER_OP(ResBody)
    .setForward(CallBody)
    .setForward(CallBody, "cpu_stream")
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);
REGISTER_OP(ResScratch)
    .setForward(CallBody)
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .scratch([](const AttrMap& attrs, const ShapeVectors& in) {
      return attrs.Get("unit", int64_t{8}) * in[0][0];
    });
REGISTER_OP(ResFixedScratch)
    .setForward(CallBody)
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .scratch(1000);
REGISTER_OP(ResAdd)
    .setForward(AddForward)
    .setInferShape(SameShape)
    .setParseAttrs([](const AttrMap&, int* num_in, int* num_out) {
      *num_in = 2;
      *num_out = 1;
      return SUCCESS;
    });

// y[0] = the attribute "value".
struct Counted final : StatefulOp {
  explicit Counted(float its_value) : value(its_value) { ++alive, ++made; }
  ~Counted() override { --alive; }
  Status Run(FunctionPass, OpIns, OpOuts out, OpResource&) override {
    if (value < 0) return Status::Failure("the value is negative");
    out[0].data<float>()[0] = value;
    return SUCCESS;
  }
  float value;
  static inline int alive = 0, made = 0;
};
REGISTER_OP(ResCounted)
    .setCreateOpState([](const AttrMap& attrs, std::unique_ptr<StatefulOp>* state) {
      *state = std::make_unique<Counted>(attrs.Get<float>("value"));
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// One operator on x, of which only y = ResBody(x) matters.
struct BodyBench : Bench {
  explicit BodyBench(const char* type = "ResBody", Arguments args = {}, Device its_device = {},
                     std::string name = {}) {
    Add("x", {1, 2});
    Create(
        OperatorDef(type, {"x"}, {"y"}, std::move(args)).Device(its_device).Name(std::move(name)));
  }
  template <class Body>
  void Run(Body body) {
    g_body = std::move(body);
    op->Run();
  }
};
constexpr Device kStream{DeviceType::kCPUStream, 0};

}  // namespace

TEST_CASE("every alloc is memory of its own, aligned, and freed when the operator ends") {
  BodyBench bench;
  bench.Run([](OpIns, OpOuts, OpResource&) {});
  const int64_t before = LiveBytes();
  bench.Run([&](OpIns, OpOuts, OpResource& res) {
    char* a = res.alloc<char>(100);
    char* b = res.alloc<char>(100);
    REQUIRE(a != b);
    CHECK((a + 100 <= b || b + 100 <= a));
    CHECK(reinterpret_cast<uintptr_t>(a) % 64 == 0);
    CHECK(reinterpret_cast<uintptr_t>(b) % 64 == 0);
    std::memset(a, 1, 100);
    std::memset(b, 2, 100);
    CHECK(a[99] == 1);
    CHECK(LiveBytes() - before == 200);
    CHECK(res.alloc(0) == nullptr);
    CHECK(ErrorOf([&] { res.alloc(-1); }).code() == ErrorCode::kInvalidArgument);
    CHECK(ErrorOf([&] { res.alloc<double>(int64_t{1} << 61); }).code() == ErrorCode::kOutOfRange);
  });
  CHECK(LiveBytes() == before);
}

TEST_CASE("memory is freed also when the operator fails, and may be taken from any thread") {
  BodyBench bench;
  bench.Run([](OpIns, OpOuts, OpResource&) {});
  const int64_t before = LiveBytes();
  const Error error = ErrorOf([&] {
    bench.Run([&](OpIns, OpOuts, OpResource& res) {
      res.parallel_for(
          64, [&](int64_t) { res.alloc(1 << 10); }, 1);
      CHECK(LiveBytes() - before == 64 << 10);
      res.temporary({4}, DType::kFloat64);
      Throw(ErrorCode::kUnsupported, "after allocating");
    });
  });
  CHECK(error.message() == "after allocating");
  CHECK(LiveBytes() == before);
}

TEST_CASE("scratch is as large as declared, and the same in every run") {
  BodyBench bench("ResScratch", {{"unit", 16}});
  void* first = nullptr;
  bench.Run([&](OpIns, OpOuts, OpResource& res) {
    CHECK(res.scratch_bytes() == 32);
    first = res.scratch();
    CHECK(reinterpret_cast<uintptr_t>(first) % 64 == 0);
    std::memset(first, 1, 32);
  });
  const int64_t allocations = Allocations();
  g_body = [&](OpIns, OpOuts, OpResource& res) {
    first = res.scratch() == first ? first : nullptr;
  };
  const int64_t body = Allocations() - allocations;
  bench.op->Run();
  CHECK(first != nullptr);
  CHECK(Allocations() - allocations == body);
  *bench.ws.GetTensor("x") = Tensor({100}, DType::kFloat32);
  bench.Run([&](OpIns, OpOuts, OpResource& res) { CHECK(res.scratch_bytes() == 1600); });

  BodyBench without;
  without.Run([](OpIns, OpOuts, OpResource& res) {
    CHECK(Contains(ErrorOf([&] { res.scratch(); }).message(), "has no scratch"));
    CHECK(res.scratch_bytes() == 0);
  });
}

TEST_CASE("backward has the scratch of its forward") {
  static int64_t bytes = 0, aligned = 0;
  static const FunctionOpBuilder registered =
      FunctionOpBuilder("ResScratchBackward", __FILE__, __LINE__)
          .setForward([](const AttrMap&, OpIns, OpOuts, OpResource&) {})
          .setBackward([](const AttrMap&, OpIns, OpOuts, OpResource& res) {
            bytes = res.scratch_bytes();
            aligned = reinterpret_cast<uintptr_t>(res.scratch()) % 64 == 0 && res.scratch();
          })
          .setParseAttrs(OneToOne)
          .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
            out[0] = {in[0][0], 100};
          })
          .scratch([](const AttrMap& attrs, const ShapeVectors& in) {
            return attrs.Get("unit", int64_t{8}) * in[0][0] * static_cast<int64_t>(in.size());
          });
  const auto run = [](int64_t n, int64_t unit) {
    const Tensor x({n}, DType::kFloat32), y({n, 100}, DType::kFloat32);
    Invoke("ResScratchBackward_backward", {y, x, y}, {{"unit", unit}});
    return bytes;
  };
  CHECK(run(3, 16) == 48);
  CHECK(aligned == 1);
  CHECK(run(5, 8) == 40);
  const OperatorDef def("ResScratchBackward_backward", {"dy", "x", "y"}, {"dx"});
  const Kernel* kernel = OpRegistry::Global().KernelsOf(def.type())[0];
  const TensorInfo x{DType::kFloat32, {4}}, y{DType::kFloat32, {4, 100}};
  const std::vector<TensorInfo> known{y, x, y}, unknown{y, TensorInfo(), y};
  CHECK(kernel->propose(KernelQuery{def, known, {}})[0].scratch_bytes == 32);
  CHECK(kernel->propose(KernelQuery{def, unknown, {}})[0].scratch_bytes == 0);
}

TEST_CASE("a kernel proposes its scratch and in-place pairs before the run") {
  auto scratch = [](const char* op, Arguments args, SymbolicShape shape) {
    const Kernel* kernel = OpRegistry::Global().KernelsOf(op)[0];
    const OperatorDef def(op, {"x"}, {"y"}, std::move(args));
    const TensorInfo info(DType::kFloat32, std::move(shape));
    const auto configs = const_cast<Kernel*>(kernel)->propose({def, {&info, 1}, {&info, 1}});
    REQUIRE(configs.size() == 1);
    return configs[0].scratch_bytes;
  };
  CHECK(scratch("ResScratch", {{"unit", 4}}, Shape{10, 3}) == 40);
  CHECK(scratch("ResScratch", {{"unit", 4}}, {Dim(), 3}) == 0);
  CHECK(scratch("ResFixedScratch", {}, Shape{}) == 1000);
  CHECK(Contains(ErrorOf([&] {
                   scratch("ResScratch", {{"unit", -1}}, Shape{10});
                 }).message(),
                 "scratch's function of operator ResScratch failed: it asked for -10 bytes"));
}

TEST_CASE("random numbers depend on the seed, the operator and the run alone") {
  auto draw = [](BodyBench& bench) {
    std::vector<uint64_t> numbers;
    bench.Run([&](OpIns, OpOuts, OpResource& res) {
      numbers = {res.random()(), res.random()(), res.random(5)()};
    });
    return numbers;
  };
  SetSeed(42);
  BodyBench first, other("ResBody", {}, {}, "other");
  const auto a1 = draw(first), a2 = draw(first), b1 = draw(other);
  CHECK(a1[0] != a1[1]);
  CHECK(a1[0] != a1[2]);
  CHECK(a1 != a2);
  CHECK(a1 != b1);
  SetSeed(42);
  BodyBench again;  // another object, another place in memory, run after others
  CHECK(draw(again) == a1);
  CHECK(draw(again) == a2);
  CHECK(draw(first) == a1);
  SetSeed(43);
  CHECK(draw(first) != a1);
}

TEST_CASE("parallel_for covers every index once and passes exceptions on") {
  BodyBench bench;
  bench.Run([](OpIns, OpOuts, OpResource& res) {
    std::vector<int> hits(1000);
    res.parallel_for(1000, [&](int64_t i) { ++hits[static_cast<size_t>(i)]; });
    CHECK(hits == std::vector<int>(1000, 1));
    CHECK_THROWS_WITH(res.parallel_for(10,
                                       [](int64_t i) {
                                         if (i == 3) throw std::runtime_error("three");
                                       }),
                      "three");
    int now = 0;
    res.launch([&] { now = 1; });
    CHECK(now == 1);
  });
}

TEST_CASE("log lines go to the hook with the operator's name") {
  static std::string seen;
  const LogHook before = SetLogHook([](LogLevel level, std::string_view op, std::string_view text) {
    seen += StrCat(ToString(level), " ", op, ": ", text, "; ");
  });
  BodyBench bench;
  bench.Run([](OpIns, OpOuts, OpResource& res) {
    res.log(LogLevel::kInfo, "x has ", 2, " elements");
    res.log(LogLevel::kError, "bad");
  });
  CHECK(seen == "info ResBody: x has 2 elements; error ResBody: bad; ");
  const bool was_another = SetLogHook(before) != before;
  CHECK(was_another);
}

TEST_CASE("invoke runs another operator on the tensors given") {
  BodyBench bench;
  auto invoke_twice = [](OpIns in, OpOuts out, OpResource& res) {
    const OpTensor sum = res.temporary({2}, DType::kFloat32);
    res.invoke("ResAdd", {in[0], in[0]}, {sum});
    void* memory = out[0].raw_data();
    res.invoke("ResAdd", {sum, in[0]}, {out[0]}, {{"scale", 10.f}});
    CHECK(out[0].raw_data() == memory);
    CHECK(out[0].data<float>()[1] == 60);
  };
  bench.Run(invoke_twice);
  CHECK(bench.Values("y") == Floats{30, 60});
  bench.Run(invoke_twice);
  CHECK(bench.Values("y") == Floats{30, 60});
  // ResAdd may not run in place: its result is copied to where it was asked for.
  bench.Run([](OpIns in, OpOuts, OpResource& res) {
    res.invoke("ResAdd", {in[0], in[0]}, {in[0]});
  });
  CHECK(bench.Values("x") == Floats{2, 4});
}

TEST_CASE("invoke on memory that no tensor of the host stands for") {
  BodyBench bench;
  bench.Run([](OpIns in, OpOuts, OpResource& res) {
    float values[4] = {1, 0, 2, 0}, result[2] = {};
    const int64_t shape[] = {2}, strides[] = {2}, dense[] = {1};
    const OpTensor strided(values, DType::kFloat32, shape, strides);
    const OpTensor target(result, DType::kFloat32, shape, dense);
    res.invoke("ResAdd", {strided, in[0]}, {target});
    CHECK(result[0] == 2);
    CHECK(result[1] == 4);
  });
}

TEST_CASE("errors of invoke name the operator") {
  BodyBench bench;
  auto error = [&](std::function<void(OpIns, OpResource&)> body) {
    return ErrorOf([&] { bench.Run([&](OpIns in, OpOuts, OpResource& res) { body(in, res); }); });
  };
  CHECK(
      Contains(error([](OpIns in, OpResource& res) {
                 res.invoke("ResAdd", {in[0], in[0]}, {res.temporary({3}, DType::kFloat32)});
               }).message(),
               "invoke(\"ResAdd\"): output 0 is float32[2] on cpu, but the tensor given for it is "
               "float32[3] on cpu"));
  CHECK(Contains(
      error([](OpIns in, OpResource& res) { res.invoke("ResAdd", {in[0]}, {in[0]}); }).message(),
      "ResAdd has 1 inputs, expected 2"));
  CHECK(Contains(
      error([](OpIns in, OpResource& res) { res.invoke("ResAd", {in[0]}, {in[0]}); }).message(),
      "did you mean 'ResAdd'?"));
}

TEST_CASE("invoke on a part of a tensor works on that part") {
  for (const Device device : {Device{}, kStream}) {  // whose work comes after the function returned
    CAPTURE(ToString(device));
    BodyBench bench("ResBody", {}, device);
    bench.Run([](OpIns in, OpOuts out, OpResource& res) {
      const int64_t one[] = {1};
      opkit_tensor second = in[0].view(), target = out[0].view();
      for (opkit_tensor* part : {&second, &target}) {
        part->data = static_cast<float*>(part->data) + 1;
        part->shape = one;
      }
      out[0].data<float>()[0] = 7;
      const opkit_tensor inputs[] = {second, second};
      CHECK(res.call()->host->invoke(res.call(), "ResAdd", 2, inputs, 1, &target, 0, nullptr) ==
            OPKIT_OK);
    });
    CHECK(bench.Values("y") == Floats{7, 4});
  }
}

TEST_CASE("null pointers from a library are errors or ignored") {
  BodyBench bench;
  bench.Run([](OpIns, OpOuts, OpResource& res) {
    const opkit_host& host = *res.call()->host;
    opkit_tensor tensor{};
    tensor.size = sizeof tensor;
    CHECK(host.temporary(res.call(), OPKIT_FLOAT32, 2, nullptr, &tensor) == OPKIT_INVALID_ARGUMENT);
    CHECK(host.launch(res.call(), nullptr, nullptr, nullptr) == OPKIT_INVALID_ARGUMENT);
    CHECK(host.parallel_for(res.call(), 9, 1, nullptr, nullptr) == OPKIT_INVALID_ARGUMENT);
    host.log(res.call(), OPKIT_LOG_INFO, nullptr);
    host.set_error(OPKIT_FAILED, nullptr, 3);
    host.add_error(nullptr, 3);
  });
}

TEST_CASE("invoke checks its arguments") {
  BodyBench bench;
  const int64_t shape[] = {2}, strides[] = {1}, negative[] = {-2}, far[] = {INT64_MAX};
  float values[2] = {1, 2};
  struct Asked {
    opkit_tensor in[2], out;
    opkit_attr attr;
    const opkit_attr* attrs[1];
    const char* op;
    uint64_t num_in, num_attrs;
  };
  const auto message = [&](auto spoil) {
    std::string text;
    bench.Run([&](OpIns in, OpOuts, OpResource& res) {
      const OpTensor plain(values, DType::kFloat32, shape, strides);
      double scale = 2;
      Asked asked{{plain.view(), in[0].view()}, plain.view(), {}, {}, "ResAdd", 2, 1};
      asked.attr.size = sizeof asked.attr;
      asked.attr.name = "scale";
      asked.attr.type = OPKIT_ATTR_FLOAT;
      asked.attr.count = 1;
      asked.attr.floats = &scale;
      asked.attrs[0] = &asked.attr;
      spoil(asked);
      const opkit_host* host = res.call()->host;
      const opkit_status status = host->invoke(res.call(), asked.op, asked.num_in, asked.in, 1,
                                               &asked.out, asked.num_attrs, asked.attrs);
      text = status == OPKIT_OK ? "" : host->failure_text();
    });
    return text;
  };
  CHECK(message([](Asked&) {}).empty());
  CHECK(values[0] == 4);
  const auto says = [&](auto spoil, const char* text) {
    const std::string found = message(spoil);
    CAPTURE(found);
    CHECK(Contains(found, text));
  };
  says([](Asked& a) { a.op = nullptr; }, "invoke() has no operator's name");
  says([](Asked& a) { a.in[0].size = 8; }, "null or shorter than version 1.0's");
  says([](Asked& a) { a.num_in = 1 << 20; }, "invoke() is given 1048576 tensors");
  says([](Asked& a) { a.in[0].dtype = 99; }, "has the dtype 99, which does not exist");
  says([](Asked& a) { a.in[0].rank = -1; }, "has the rank -1");
  says([](Asked& a) { a.in[0].rank = OPKIT_MAX_RANK + 1; }, "has the rank ");
  says([](Asked& a) { a.in[0].shape = nullptr; }, "has no shape or no strides");
  says([&](Asked& a) { a.in[0].shape = negative; }, "has the extent -2 on axis 0");
  says([&](Asked& a) { a.in[0].shape = far; }, "reaches further than 64 bits can count");
  says([&](Asked& a) { a.in[0].strides = far; }, "reaches further than 64 bits can count");
  says([](Asked& a) { a.out.data = nullptr; }, "has no memory");
  says([](Asked& a) { a.out.device_type = 0; }, "on a device of the type 0");
  says([](Asked& a) { a.attrs[0] = nullptr; }, "attribute 0 of a library is null");
  says([](Asked& a) { a.attr.size = 8; }, "attribute 0 of a library is shorter");
  says([](Asked& a) { a.attr.type = 12; }, "has the type 12, which does not exist");
  says([](Asked& a) { a.attr.name = nullptr; }, "attribute 0 of a library has no name");
  says([](Asked& a) { a.attr.floats = nullptr; }, "has elements that are null");
  says([](Asked& a) { a.attr.count = 2; }, "has 2 elements and is no list");
  says([](Asked& a) { a.num_attrs = 1 << 20; }, "gives 1048576 attributes");
}

TEST_CASE("an operator that invokes with ever new attributes keeps few of them") {
  BodyBench bench;
  Counted::alive = 0;
  bench.Run([&](OpIns in, OpOuts out, OpResource& res) {
    for (int i = 0; i < 200; ++i) {
      res.invoke("ResCounted", {in[0]}, {out[0]}, {{"value", static_cast<float>(i)}});
      CHECK(out[0].data<float>()[0] == static_cast<float>(i));
    }
  });
  CHECK(Counted::alive > 1);
  CHECK(Counted::alive < 100);
  bench.op.reset();
  CHECK(Counted::alive == 0);
}

TEST_CASE("operators invoked on a stream are kept from run to run, for each stream") {
  BodyBench bench("ResBody", {}, kStream);
  g_body = [](OpIns in, OpOuts out, OpResource& res) {
    res.invoke("ResCounted", {in[0]}, {out[0]}, {{"value", 5.f}});
  };
  Counted::made = 0;
  for (const int stream : {0, 0, 1, 0, 1}) {
    bench.op->RunAsync(stream);
    bench.op->event().Finish();
    CHECK(bench.Values("y")[0] == 5);
  }
  CHECK(Counted::made == 2);
  bench.op.reset();
  CHECK(Counted::alive == 0);
}

TEST_CASE("on a stream invoke and parallel_for keep their places in it") {
  BodyBench bench("ResBody", {}, kStream);
  g_body = [](OpIns in, OpOuts out, OpResource& res) {
    const OpTensor half = res.temporary({2}, DType::kFloat32);
    const float* x = in[0].data<float>();
    float* h = half.data<float>();
    res.parallel_for(2, [=](int64_t i) { h[i] = x[i] / 2; });
    res.invoke("ResAdd", {half, in[0]}, {out[0]});
    float* y = out[0].data<float>();
    res.launch([=] { y[0] += 100; });
  };
  Event gate;
  gate.SetScheduled();
  bench.op->WaitEvent(gate, 0);
  bench.op->RunAsync(0);
  bench.ws.GetTensor("x")->mutable_data<float>()[1] = 8;  // nothing has run yet
  gate.SetFinished();
  bench.op->event().Finish();
  CHECK(bench.Values("y") == Floats{101.5f, 12});

  // A wrong call fails when it is issued, and what goes wrong in the stream fails the event.
  g_body = [](OpIns in, OpOuts out, OpResource& res) { res.invoke("ResAdd", {in[0]}, {out[0]}); };
  CHECK(Contains(ErrorOf([&] { bench.op->RunAsync(0); }).message(),
                 "ResAdd has 1 inputs, expected 2"));
  g_body = [](OpIns in, OpOuts out, OpResource& res) {
    res.invoke("ResCounted", {in[0]}, {out[0]}, {{"value", -1.f}});
  };
  bench.op->RunAsync(0);
  CHECK(Contains(ErrorOf([&] { bench.op->event().Finish(); }).message(), "the value is negative"));
}

}  // namespace op_resource_test
