#include "opkit/export/core.hpp"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <opkit/opkit.hpp>

#include "support/error_of.hpp"

namespace kept_operators_test { namespace {

using namespace opkit;
using opkit::detail::CallKey;
using opkit::detail::ExportedOperator;
using opkit::detail::ForeignTensor;
using opkit::detail::ReadyOperator;

std::atomic<int> g_made{0};

// y = x + the number of runs of this object, so that a test sees which object runs.
class CountRuns final : public Operator<CPUContext> {
 public:
  CountRuns(const OperatorDef& def, Workspace* ws) : Operator<CPUContext>(def, ws) { ++g_made; }
  bool RunOnDevice() override {
    Tensor* y = Output(0, Input(0).shape(), DType::kFloat32);
    ++runs_;
    for (int64_t i = 0; i < y->numel(); ++i)
      y->mutable_data<float>()[i] = Input(0).data<float>()[i] + static_cast<float>(runs_);
    return true;
  }

 private:
  int runs_ = 0;
};
OPERATOR_SCHEMA(ExportCountRuns)
    .NumInputs(1)
    .NumOutputs(1)
    .Stateful()
    .Arg<int64_t>("start", "not used", 0)
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(ExportCountRuns, CountRuns);

// Gives its input as its output, in the same memory.
class GiveInput final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    OutputTensorAlias(0, Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(ExportGiveInput).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(ExportGiveInput, GiveInput);

constinit ExportedOperator g_count_runs{"ExportCountRuns"};
constinit ExportedOperator g_missing{"ExportCountRun"};

constexpr int64_t kThree[] = {3}, kFour[] = {4};

ForeignTensor Foreign(std::vector<float>& values, const int64_t* shape) {
  return {values.data(), DType::kFloat32, {}, 1, shape};
}
std::unique_ptr<ReadyOperator> Make() {
  return std::make_unique<ReadyOperator>("ExportCountRuns", std::vector{1});
}

TEST_CASE("ReadyOperator: an output of another type is refused before the run") {
  std::vector<float> x = {1, 2, 3}, y(4);
  ReadyOperator op("ExportCountRuns", {1});
  op.SetInput(0, Foreign(x, kThree));
  CHECK_THROWS_WITH_AS(op.SetOutput(0, Foreign(y, kFour)),
                       doctest::Contains("is given as float32[4], but the result is float32[3]"),
                       Error);
  op.Release();
  op.SetInput(0, Foreign(x, kThree));
  op.SetOutput(0, Foreign(y, kThree));
  op.Run();
  CHECK(y == std::vector<float>{2, 3, 4, 0});
  op.Release();
  op.SetInput(0, Foreign(x, kThree));
  op.Run();
  CHECK(op.TakeOutput(0).ToVector<float>() == std::vector<float>{3, 4, 5});
}

// y = x in reverse. It reads x again after it has begun to write.
class Reverse final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    for (int o = 0; o < OutputSize(); ++o) {
      Tensor* y = Output(o, Input(0).shape(), DType::kFloat32);
      for (int64_t i = 0; i < y->numel(); ++i)
        y->mutable_data<float>()[i] = Input(0).data<float>()[y->numel() - 1 - i];
    }
    return true;
  }
};
OPERATOR_SCHEMA(ExportReverse).NumInputs(1).NumOutputs(1, 2).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(ExportReverse, Reverse);

TEST_CASE("ReadyOperator: an output that shares memory with an input gets the whole result") {
  std::vector<float> x = {1, 2, 3, 4};
  ReadyOperator op("ExportReverse", {1}, {}, {}, 1);
  op.SetInput(0, Foreign(x, kFour));
  op.SetOutput(0, Foreign(x, kFour));
  op.Run();
  op.Release();
  CHECK(x == std::vector<float>{4, 3, 2, 1});
  op.SetInput(0, ForeignTensor{x.data(), DType::kFloat32, {}, 1, kThree});
  op.SetOutput(0, ForeignTensor{x.data() + 1, DType::kFloat32, {}, 1, kThree});
  op.Run();
  op.Release();
  CHECK(x == std::vector<float>{4, 2, 3, 4});
}

TEST_CASE("ReadyOperator: two outputs that share memory are refused") {
  std::vector<float> x = {1, 2, 3}, y(4);
  ReadyOperator op("ExportReverse", {1}, {}, {}, 2);
  op.SetInput(0, Foreign(x, kThree));
  op.SetOutput(0, Foreign(y, kThree));
  CHECK_THROWS_WITH_AS(op.SetOutput(1, ForeignTensor{y.data() + 1, DType::kFloat32, {}, 1, kThree}),
                       doctest::Contains("outputs 0 and 1 of ExportReverse are given as tensors"),
                       Error);
}

TEST_CASE("ReadyOperator: outputs with gaps are refused if they have an element in common") {
  std::vector<float> x = {1, 2, 3}, y(12);
  ReadyOperator op("ExportReverse", {1}, {}, {}, 2);
  static const int64_t kTwo[] = {2}, kMinusTwo[] = {-2};
  const auto strided = [&](int at, const int64_t* strides) {
    return ForeignTensor{y.data() + at, DType::kFloat32, {}, 1, kThree, strides};
  };
  const auto give = [&](const ForeignTensor& first, const ForeignTensor& second) {
    op.SetInput(0, Foreign(x, kThree));
    op.SetOutput(0, first);
    std::string text;
    try {
      op.SetOutput(1, second);
    } catch (const Error& error) {
      text = error.message();
    }
    op.Release();
    return text.find("share memory") != std::string::npos;
  };
  CHECK(give(strided(0, kTwo), strided(0, kTwo)));
  CHECK(give(strided(0, kTwo), strided(2, kTwo)));
  CHECK(give(strided(0, kTwo), strided(4, kMinusTwo)));
  CHECK(give(strided(0, kTwo), strided(3, nullptr)));
  CHECK(give(strided(3, nullptr), strided(0, kTwo)));
  CHECK_FALSE(give(strided(0, kTwo), strided(1, kTwo)));
  CHECK_FALSE(give(strided(5, kMinusTwo), strided(0, kTwo)));
  CHECK_FALSE(give(strided(0, kTwo), strided(5, nullptr)));
  CHECK_FALSE(give(strided(5, nullptr), strided(0, kTwo)));
}

// Writes zeros to its input.
class Clear final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    Output(0, Input(0).shape(), DType::kFloat32);
    auto* x = static_cast<float*>(Input(0).raw_mutable_data());
    std::fill(x, x + Input(0).numel(), 0.f);
    return true;
  }
};
OPERATOR_SCHEMA(ExportClear).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape().MutatesInputs({0});
REGISTER_CPU_OPERATOR(ExportClear, Clear);

TEST_CASE("ReadyOperator: an input that is written must be one that can be viewed") {
  std::vector<float> x = {1, 2, 3};
  static const int64_t kMinusOne[] = {-1};
  ReadyOperator op("ExportClear", {1});
  CHECK_THROWS_WITH_AS(op.SetInput(0, {x.data() + 2, DType::kFloat32, {}, 1, kThree, kMinusOne}),
                       doctest::Contains("operator ExportClear writes to input 0"), Error);
  op.Release();
  op.SetInput(0, Foreign(x, kThree));
  op.Run();
  op.Release();
  CHECK(x == std::vector<float>{0, 0, 0});
}

TEST_CASE("ReadyOperator: tensors that keep their memory are released at the end of the call") {
  struct Host {
    std::vector<float> values = {1, 2, 3, 4, 5, 6};
    int released = 0;
    Tensor View(Shape shape, Dims strides) {
      Storage storage = AdoptStorage(
          Device(), values.data(), 24,
          [](void*, void* host) { ++static_cast<Host*>(host)->released; }, this);
      return Tensor(std::move(storage), 0, std::move(shape), DType::kFloat32, std::move(strides));
    }
  } x, y;
  ReadyOperator op("ExportReverse", {1}, {}, {}, 1);
  op.SetInput(0, x.View({3}, {}));
  op.SetOutput(0, y.View({3}, {2}));  // with gaps, so that the result is copied
  op.Run();
  CHECK(x.released + y.released == 0);
  op.Release();
  CHECK(y.values == std::vector<float>{3, 2, 2, 4, 1, 6});
  CHECK(x.released == 1);
  CHECK(y.released == 1);
}

TEST_CASE("ReadyOperator: results share no memory with the host's inputs") {
  std::vector<float> x = {1, 2, 3}, y(3);
  ReadyOperator op("ExportGiveInput", {1});
  op.SetInput(0, Foreign(x, kThree));
  op.SetOutput(0, Foreign(y, kThree));
  op.Run();
  op.Release();
  CHECK(y == x);
  op.SetInput(0, Foreign(x, kThree));
  op.Run();
  const Tensor taken = op.TakeOutput(0);
  op.Release();
  x[0] = 7;
  CHECK(taken.ToVector<float>() == std::vector<float>{1, 2, 3});
}

TEST_CASE("KeptOperator: equal keys share an operator; a call inside of a call has its own") {
  CallKey one, two;
  one.Add(1), two.Add(2);
  g_made = 0;
  const ReadyOperator* first = nullptr;
  {
    const detail::Lease lease = detail::KeptOperator(g_count_runs, one, &Make);
    first = &*lease;
    const detail::Lease inner = detail::KeptOperator(g_count_runs, one, &Make);
    CHECK(&*inner != first);
  }
  CHECK(&*detail::KeptOperator(g_count_runs, one, &Make) == first);
  CHECK(&*detail::KeptOperator(g_count_runs, two, &Make) != first);
  CHECK(g_made == 3);
  const auto use = [](int i) {
    CallKey key;
    key.Add(i);
    detail::KeptOperator(g_count_runs, key, &Make);
  };
  for (int round = 0; round < 2; ++round) {
    for (int i = 10; i < 26; ++i) use(i);
    CHECK(g_made == 19);
  }
  use(1);  // the oldest of 17
  CHECK(g_made == 20);
  use(11);
  CHECK(g_made == 20);
  use(10);  // made room for 1
  CHECK(g_made == 21);
}

TEST_CASE("CallKey: long keys and texts") {
  CallKey a, b, c;
  a.AddText("ab"), a.AddText("c");
  b.AddText("a"), b.AddText("bc");
  CHECK(a.bytes() != b.bytes());
  const std::string text(300, 'x');
  c.Add(7), c.AddText(text), c.Add(8);
  CHECK(c.bytes().size() == 4 + sizeof(size_t) + 300 + 4);
  CHECK(c.bytes().substr(4 + sizeof(size_t), 300) == text);
}

TEST_CASE("OperatorPool: operators use the backends that the host names") {
  CHECK_NOTHROW(
      detail::OperatorPool(g_count_runs, {1}, {}, InvokeOptions{.backends = "reference"}));
  CHECK(ErrorOf([] {
          detail::OperatorPool(g_count_runs, {1}, {}, InvokeOptions{.backends = "no_such_backend"});
        }).code() == ErrorCode::kNotFound);
}

TEST_CASE("OperatorPool: calls of a stateful operator follow each other on one operator") {
  g_made = 0;
  detail::OperatorPool pool(g_count_runs, {1}, {});
  {
    std::optional<detail::Lease> first(pool.Take());
    std::thread second([&] { pool.Take(); });
    // A second operator would be made while the first call runs.
    for (int i = 0; i < 1000 && g_made == 1; ++i) std::this_thread::yield();
    first.reset();
    second.join();
    CHECK(g_made == 1);
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      std::vector<float> x = {0, 0, 0}, y(3);
      for (int i = 0; i < 50; ++i) {
        const detail::Lease lease = pool.Take();
        lease->SetInput(0, Foreign(x, kThree));
        lease->SetOutput(0, Foreign(y, kThree));
        lease->Run();
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<float> x = {0, 0, 0};
  const detail::Lease lease = pool.Take();
  lease->SetInput(0, Foreign(x, kThree));
  lease->Run();
  CHECK(lease->TakeOutput(0).ToVector<float>() == std::vector<float>{201, 201, 201});
  CHECK(g_made == 1);
}

TEST_CASE("OperatorPool: a stateful operator that calls itself is an Error") {
  detail::OperatorPool pool(g_count_runs, {1}, {});
  {
    const detail::Lease lease = pool.Take();
    CHECK_THROWS_WITH_AS(pool.Take(), doctest::Contains("is called while a run of it waits"),
                         Error);
  }
  CHECK_NOTHROW(pool.Take());
}

TEST_CASE("ExportedOperator: its schema and its state") {
  CHECK(&g_count_runs.schema() == OpRegistry::Global().FindSchema("ExportCountRuns"));
  CHECK(g_count_runs.needs_instance());
  CHECK_THROWS_WITH_AS(
      g_missing.schema(),
      doctest::Contains(
          "operator 'ExportCountRun' is exported, but this shared object registers no "
          "operator of that name (did you mean 'ExportCountRuns'?"),
      Error);
  CHECK_THROWS_WITH_AS(detail::RefuseState(g_count_runs, "make one"),
                       doctest::Contains("keeps state between its runs"), Error);
  CHECK_NOTHROW(detail::RefuseMutation(g_count_runs, 1, {}, "a host"));
}

TEST_CASE("FitAttribute: numbers of a host take the schema's type") {
  const auto fit = [](AttributeType type, Attribute value) {
    const detail::AttributeSchema declared{"a", "", false, type, {}};
    return detail::FitAttribute(&declared, std::move(value));
  };
  CHECK(fit(AttributeType::kBool, int64_t{1}) == Attribute(true));
  CHECK(fit(AttributeType::kInt, true) == Attribute(int64_t{1}));
  CHECK(fit(AttributeType::kBools, std::vector<int64_t>{1, 0}) ==
        Attribute(std::vector<bool>{true, false}));
  CHECK(fit(AttributeType::kBool, int64_t{2}) == Attribute(int64_t{2}));
  CHECK(fit(AttributeType::kString, int64_t{1}) == Attribute(int64_t{1}));
  CHECK(fit(AttributeType::kBools, int64_t{1}) == Attribute(int64_t{1}));
}

TEST_CASE("GuardBoundary: every exception becomes a code and a text") {
  const auto text_of = [](auto call) {
    std::string out;
    detail::GuardBoundary(
        [&] {
          call();
          return 0;
        },
        [&](ErrorCode code, const char* text) {
          out = StrCat(detail::PythonClassOf(code), ": ", text);
          return 1;
        });
    return out;
  };
  CHECK(text_of([] {}) == "");
  CHECK(text_of([] { Throw(ErrorCode::kTypeMismatch, "a text"); }) == "TypeError: a text");
  CHECK(text_of([] { Throw(ErrorCode::kNotFound, "no name"); }) == "LookupError: no name");
  CHECK(text_of([] { throw std::bad_alloc(); }).find("Error: ") != std::string::npos);
}
}}  // namespace kept_operators_test
