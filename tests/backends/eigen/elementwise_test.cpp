// The elementwise kernels of the "eigen" backend on float32 against the plain operators.
#include <doctest/doctest.h>

#include <cmath>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "opkit/op/random.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace elementwise_test {
using namespace opkit;

namespace {

const char* const kUnary[] = {
    "Abs",     "Ceil",        "Clip",      "Cos",       "Elu",  "Erf",  "Exp",        "Floor",
    "Log",     "HardSigmoid", "HardSwish", "LeakyRelu", "Neg",  "Relu", "Reciprocal", "Round",
    "Sigmoid", "Sign",        "Sin",       "Softplus",  "Sqrt", "Tanh"};
const char* const kBinary[] = {"Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum"};

Tensor Run(const std::string& op, const std::string& engine, const std::vector<Tensor>& inputs) {
  return Invoke(op, inputs, {}, {.backends = engine})[0];
}
// Relative, absolute below 1; NaN and infinity must be where the plain operator has them.
double Difference(const Tensor& found, const Tensor& expected) {
  CHECK(found.shape() == expected.shape());
  double largest = 0;
  for (int64_t i = 0; i < expected.numel(); ++i) {
    const double a = found.data<float>()[i], b = expected.data<float>()[i];
    if (a == b || (a != a && b != b)) continue;
    const double difference = std::fabs(a - b) / (std::fabs(b) > 1 ? std::fabs(b) : 1);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}
double Difference(const std::string& op, const std::vector<Tensor>& inputs) {
  return Difference(Run(op, "eigen", inputs), Run(op, "reference", inputs));
}
Tensor Random(const Shape& shape, uint64_t seed, double low, double high) {
  return detail::MakeTestInputs({shape}, DType::kFloat32, seed, low, high)[0];
}
bool IsOfPositive(std::string_view op) { return op == "Log" || op == "Sqrt" || op == "Pow"; }

TEST_CASE("Neg, Sqrt and Sign give zeros the signs that the plain operators give") {
  const Tensor zeros = Tensor::From<float>({2}, {0.f, -0.f});
  const auto is_negative = [&](const std::string& op, const std::string& engine, int64_t i) {
    const Tensor found = Run(op, engine, {zeros});
    CHECK(found.data<float>()[i] == 0);
    return std::signbit(found.data<float>()[i]);
  };
  for (const char* engine : {"eigen", "reference"}) {
    INFO(engine);
    CHECK(is_negative("Neg", engine, 0));
    CHECK_FALSE(is_negative("Neg", engine, 1));
    CHECK_FALSE(is_negative("Sqrt", engine, 0));
    CHECK(is_negative("Sqrt", engine, 1));
    CHECK_FALSE(is_negative("Sign", engine, 0));
    CHECK_FALSE(is_negative("Sign", engine, 1));
  }
}

TEST_CASE("the kernels of this backend are chosen before the plain ones, for float32") {
  std::vector<std::string> ops(std::begin(kUnary), std::end(kUnary));
  ops.insert(ops.end(), std::begin(kBinary), std::end(kBinary));
  ops.push_back("PRelu");
  for (const std::string& op : ops) {
    INFO(op);
    const OpSchema& schema = OpRegistry::Global().GetSchema(op);
    OperatorDef def(op, {}, {"y"});
    std::vector<TensorInfo> floats, doubles;
    for (int i = 0; i < schema.min_inputs(); ++i) {
      def.Input(StrCat("x", i));
      floats.emplace_back(DType::kFloat32, SymbolicShape{4});
      doubles.emplace_back(DType::kFloat64, SymbolicShape{4});
    }
    const auto candidates = KernelCandidates(def, floats, schema.InferOutputs(def, floats));
    CHECK(candidates[0].kernel->backend == "eigen");
    CHECK(candidates[0].dropped.empty());
    CHECK_FALSE(candidates[0].config.inplace.empty());
    const auto others = KernelCandidates(def, doubles, schema.InferOutputs(def, doubles));
    CHECK(Contains(others[0].dropped, "it computes float32, and input"));
    CHECK(others[1].dropped.empty());
  }
}

TEST_CASE("runs of every length are computed to their last element") {
  for (const char* op : kUnary)
    for (int64_t n = 0; n <= 67; ++n) {
      INFO(std::string(op));
      CAPTURE(n);
      CHECK(Difference(op, {Random({n}, 100 + static_cast<uint64_t>(n), IsOfPositive(op) ? 0.1 : -4,
                                   4)}) < 2e-6);
    }
}

TEST_CASE("an element comes out the same wherever it stands") {
  const float value = 0.7f;
  for (const char* op : kUnary) {
    INFO(std::string(op));
    std::vector<float> results;
    for (int64_t n = 1; n <= 40; ++n) {
      const auto y =
          Run(op, "eigen", {Tensor::From<float>({n}, Floats(static_cast<size_t>(n), value))})
              .ToVector<float>();
      results.insert(results.end(), y.begin(), y.end());
    }
    CHECK(results == Floats(results.size(), results[0]));
  }
}

TEST_CASE("numbers close to 0 keep their digits") {
  const float tiny[] = {1.2e-38f, 1.17e-38f, 1e-40f, 1e-45f, 0, -0.f, 3, 1e-20f};
  const float below[] = {-1e-45f, -1e-40f, -1e-20f, -1e-9f, -1e-5f, -0.01f, -0.3499f, -0.3501f};
  for (const char* op : {"Log", "Sqrt", "Elu"}) {
    INFO(std::string(op));
    Floats values;
    for (int i = 0; i < 40; ++i) values.push_back(op[0] == 'E' ? below[i % 8] : tiny[i % 8]);
    const Tensor x = Tensor::From<float>({40}, values);
    const Tensor found = Run(op, "eigen", {x}), expected = Run(op, "reference", {x});
    for (int64_t i = 0; i < 40; ++i) {
      const float a = found.data<float>()[i], b = expected.data<float>()[i];
      CAPTURE(i);
      CHECK((a == b || std::fabs(a - b) <= 1e-6f * std::fabs(b)));
    }
  }
}

TEST_CASE("broadcasting random shapes gives what the plain operator gives") {
  const uint64_t seed = 5;
  CAPTURE(seed);
  RandomGenerator random(seed);
  for (int repeat = 0; repeat < 60; ++repeat) {
    std::vector<int64_t> a, b;
    const auto rank = random() % 5;
    for (uint64_t axis = 0; axis < rank; ++axis) {
      const int64_t extent = 1 + static_cast<int64_t>(random() % (axis + 1 == rank ? 40 : 4));
      if (!a.empty() || random() % 3) a.push_back(random() % 3 ? extent : 1);
      if (!b.empty() || random() % 3) b.push_back(random() % 3 ? extent : 1);
    }
    const Tensor x = Random(Shape(a), seed + 1, 0.1, 3), y = Random(Shape(b), seed + 2, -3, 3);
    INFO(ToString(x));
    INFO(ToString(y));
    for (const char* op : kBinary) {
      INFO(std::string(op));
      CHECK(Difference(op, {x, y}) < 2e-6);
      if (!IsOfPositive(op)) CHECK(Difference(op, {y, x}) < 2e-6);
    }
    const Tensor sum = Run("Add", "", {x, y});
    CHECK(Difference("PRelu", {Run("Sub", "", {sum, Tensor::Scalar(2.f)}), x}) < 2e-6);
    for (const char* op : {"Max", "Mean", "Min", "Sum"})
      CHECK(Difference(op, {x, y, sum, x}) < 2e-6);
  }
}

TEST_CASE("an empty output keeps its shape") {
  const Tensor x(Shape{3, 0}, DType::kFloat32), y = Tensor::Scalar(1.f);
  CHECK(Run("Exp", "eigen", {x}).shape() == Shape{3, 0});
  CHECK(Run("Add", "eigen", {x, y}).shape() == Shape{3, 0});
  CHECK(Run("Max", "eigen", {x, y, y}).shape() == Shape{3, 0});
}

TEST_CASE("NaN, infinities and the largest and smallest numbers") {
  const Tensor ends = Tensor::From<float>(
      {12}, {NAN, INFINITY, -INFINITY, 0, -0.f, 1e30f, -1e30f, 100, -100, 20, -20, 1e-30f});
  for (const char* op : kUnary) {
    INFO(std::string(op));
    if (std::string_view(op) == "Cos" || std::string_view(op) == "Sin") continue;  // of 1e30
    CHECK(Difference(op, {ends}) < 2e-6);
  }
  for (const char* op : {"Cos", "Sin"})
    CHECK(Difference(op, {Tensor::From<float>({5}, {NAN, INFINITY, -INFINITY, 1000, -0.f})}) <
          1e-6);
  const Tensor other =
      Tensor::From<float>({12}, {1, NAN, 1, NAN, 0, -INFINITY, NAN, 1, -1, NAN, INFINITY, 0});
  for (const char* op : {"Add", "Div", "Max", "Min", "Mul", "Sub", "PRelu"}) {
    INFO(std::string(op));
    CHECK(Difference(op, {ends, other}) == 0);
  }
}

TEST_CASE("exponential and Softplus end at infinity and at 0") {
  const Floats y = Run("Exp", "eigen", {Tensor::From<float>({4}, {89, 1e30f, -104.5f, -INFINITY})})
                       .ToVector<float>();
  CHECK(y == Floats{INFINITY, INFINITY, 0, 0});
  const Tensor ends = Tensor::From<float>({4}, {1e30f, INFINITY, -104.5f, -INFINITY});
  CHECK(Run("Softplus", "eigen", {ends}).ToVector<float>() == Floats{1e30f, INFINITY, 0, 0});
}

TEST_CASE("Tanh is exactly 1 or -1 as soon as it rounds to that") {
  const Floats ends = {9.02f, 10, 100, INFINITY, -9.02f, -10, -100, -INFINITY};
  Floats x, expected;
  for (int repeat = 0; repeat < 5; ++repeat)  // in packets, and in what is left after them
    for (const float end : ends) {
      x.push_back(end);
      expected.push_back(end > 0 ? 1 : -1);
    }
  x.pop_back(), expected.pop_back();
  const auto count = static_cast<int64_t>(x.size());
  CHECK(Run("Tanh", "eigen", {Tensor::From<float>({count}, x)}).ToVector<float>() == expected);
  CHECK(Run("Tanh", "reference", {Tensor::From<float>({count}, x)}).ToVector<float>() == expected);
}

TEST_CASE("exponential is finite as far as float is") {
  Floats x;
  for (float at = 87.9f; at < 88.7228f; at += 1e-3f) x.push_back(at);
  x.push_back(88.7228f);
  x.push_back(std::nanf(""));
  const auto count = static_cast<int64_t>(x.size());
  const Floats y = Run("Exp", "eigen", {Tensor::From<float>({count}, x)}).ToVector<float>();
  for (size_t i = 0; i + 1 < x.size(); ++i)
    CHECK(std::abs(y[i] / std::exp(static_cast<double>(x[i])) - 1) < 4e-7);
  CHECK(std::isnan(y.back()));
}

TEST_CASE("the error function is within 1e-6 of std::erf, and never beyond 1") {
  Tensor x({200001}, DType::kFloat32);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mutable_data<float>()[i] = static_cast<float>(i - 100000) * 6e-5f;
  const Tensor y = Run("Erf", "eigen", {x});
  double largest = 0, relative = 0, beyond = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double expected = std::erf(static_cast<double>(x.data<float>()[i]));
    const double found = y.data<float>()[i];
    largest = std::fmax(largest, std::fabs(found - expected));
    if (expected != 0) relative = std::fmax(relative, std::fabs(found / expected - 1));
    beyond = std::fmax(beyond, std::fabs(found));
  }
  CHECK(largest < 1e-6);
  CHECK(relative < 1e-6);
  CHECK(beyond <= 1);
}

TEST_CASE("infinities, zeros and ones are where the plain operator has them") {
  const Tensor x = Tensor::From<float>({14}, {-INFINITY, -3e38f, -1e9f, -105, -88.5f, -3.93f, -0.f,
                                              0, 3.93f, 88.5f, 105, 1e9f, 3e38f, INFINITY});
  for (const char* op : kUnary) {
    INFO(std::string(op));
    const Floats found = Run(op, "eigen", {x}).ToVector<float>();
    const Floats plain = Run(op, "reference", {x}).ToVector<float>();
    for (size_t i = 0; i < plain.size(); ++i) {
      CAPTURE(x.data<float>()[i]);
      if (plain[i] == 0 || std::fabs(plain[i]) == 1 || std::isinf(plain[i]))
        CHECK(found[i] == plain[i]);
      else
        CHECK(std::isnan(found[i]) == std::isnan(plain[i]));
    }
  }
}

TEST_CASE("exponents with code of their own are as std::pow") {
  const Tensor x = Tensor::From<float>({9}, {-INFINITY, -8, -2, -0.f, 0, 0.5f, 4, INFINITY, NAN});
  for (const float exponent : {2.f, 3.f, 0.5f, -1.f, 1.f, 0.f, -0.5f, 2.5f}) {
    CAPTURE(exponent);
    const Tensor found = Run("Pow", "eigen", {x, Tensor::Scalar(exponent)});
    for (int64_t i = 0; i < x.numel(); ++i) {
      const float expected = std::pow(x.data<float>()[i], exponent), y = found.data<float>()[i];
      CAPTURE(x.data<float>()[i]);
      CHECK((y == expected || (std::isnan(y) && std::isnan(expected)) ||
             std::fabs(y / expected - 1) < 1e-6f));
    }
  }
  const Tensor integers = Run("Pow", "eigen", {x, Tensor::Scalar(int64_t{2})});
  CHECK(Difference(integers, Run("Pow", "eigen", {x, Tensor::Scalar(2.f)})) == 0);
}

TEST_CASE("large tensors give the same on one thread and on two") {
  const Tensor x = Random({3, 70001}, 1, -3, 3), y = Random({70001}, 2, -3, 3);
  ThreadPool one(1), two(2);
  auto run = [&](ThreadPool& pool, const std::string& op, const std::vector<Tensor>& inputs) {
    const PoolScope scope(pool);
    return Run(op, "eigen", inputs).ToVector<float>();
  };
  for (const char* op : {"Tanh", "Erf", "Relu"}) CHECK(run(one, op, {x}) == run(two, op, {x}));
  for (const char* op : {"Mul", "Max", "Mean"}) CHECK(run(one, op, {x, y}) == run(two, op, {x, y}));
}

TEST_CASE("an output in place of either input is right for every length") {
  for (int64_t n = 1; n <= 50; ++n) {
    const Tensor a = Random({n}, 7, -2, 2), b = Random({n}, 8, -2, 2);
    for (const char* out : {"a", "b"}) {
      Workspace ws;
      ws.CreateTensor("a")->CopyFrom(a);
      ws.CreateTensor("b")->CopyFrom(b);
      OperatorDef def("Sub", {"a", "b"}, {out});
      CreateOperator(def.Backends("eigen"), &ws)->Run();
      CHECK(Difference(*ws.GetTensor(out), Run("Sub", "reference", {a, b})) == 0);
    }
  }
}

TEST_CASE("the operators keep the promises of their schemas, in every type") {
  for (const char* op : kUnary) OPKIT_CHECK_OPERATOR(op);
  for (const char* op : kBinary) {
    CheckOptions options;
    options.num_inputs = 2;
    OPKIT_CHECK_OPERATOR(op, options);
  }
  OPKIT_CHECK_OPERATOR("PRelu");
}

}  // namespace
}  // namespace elementwise_test
