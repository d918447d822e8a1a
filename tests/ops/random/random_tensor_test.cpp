// RandomNormal, RandomUniform, their Like forms, Bernoulli and Multinomial.
#include "opkit/ops/random/random_tensor.hpp"

#include "../data_movement.hpp"
#include "opkit/graph/executor.hpp"

namespace random_tensor_test {
using namespace opkit_tests;

namespace {

constexpr int64_t kMany = 100000;

// The mean, the variance and the third moment about the mean.
struct Moments {
  double mean = 0, variance = 0, skew = 0;

  explicit Moments(const Tensor& x) {
    const std::vector<double> values = detail::NumbersOf<double>(x);
    const auto n = static_cast<double>(values.size());
    for (const double value : values) mean += value / n;
    for (const double value : values) {
      variance += (value - mean) * (value - mean) / n;
      skew += (value - mean) * (value - mean) * (value - mean) / n;
    }
  }
};
Tensor Draw(const std::string& op, Arguments args, const std::vector<Tensor>& inputs = {}) {
  return Invoke(op, inputs, std::move(args))[0];
}
const Arguments kOne = {{"seed", 1.f}, {"shape", {kMany}}};

TEST_CASE("the numbers have the moments of their distributions") {
  // A mean of n numbers is off by more than 4 standard deviations / sqrt(n) once in 16,000 seeds.
  const Moments normal(
      Draw("RandomNormal", {{"seed", 1.f}, {"shape", {kMany}}, {"mean", 3.f}, {"scale", 2.f}}));
  CHECK(normal.mean == doctest::Approx(3).epsilon(0.008));
  CHECK(normal.variance == doctest::Approx(4).epsilon(0.018));
  CHECK(std::fabs(normal.skew) < 0.25);
  const Tensor numbers =
      Draw("RandomUniform",
           {{"seed", 1.f}, {"shape", {kMany}}, {"low", -1.f}, {"high", 3.f}, {"dtype", 11}});
  const Moments uniform(numbers);
  CHECK(uniform.mean == doctest::Approx(1).epsilon(0.015));
  CHECK(uniform.variance == doctest::Approx(16. / 12).epsilon(0.01));
  const std::vector<double> values = numbers.ToVector<double>();
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  CHECK(*least >= -1);
  CHECK(*most < 3);
}

TEST_CASE("neighbours and streams are not correlated") {
  const std::vector<double> x = detail::NumbersOf<double>(Draw("RandomNormal", kOne));
  const std::vector<double> other =
      detail::NumbersOf<double>(Draw("RandomNormal", {{"seed", 2.f}, {"shape", {kMany}}}));
  double neighbours = 0, seeds = 0;
  for (size_t i = 1; i < x.size(); ++i) {
    neighbours += x[i] * x[i - 1] / kMany;
    seeds += x[i] * other[i] / kMany;
  }
  CHECK(std::fabs(neighbours) < 0.0127);  // 4 / sqrt(n)
  CHECK(std::fabs(seeds) < 0.0127);
}

TEST_CASE("any number of threads draws the same numbers") {
  const Tensor chances = Invoke("RandomUniform", {}, kOne)[0];
  const Tensor logs = Tensor::From<float>({1, 3}, {0, 1, 2});
  auto draw = [&] {
    return std::vector<Tensor>{
        Draw("RandomNormal", kOne),
        Draw("RandomUniform", kOne),
        Draw("RandomNormalLike", {{"seed", 1.f}}, {chances}),
        Draw("RandomUniformLike", {{"seed", 1.f}}, {chances}),
        Draw("Bernoulli", {{"seed", 1.f}}, {chances}),
        Draw("Multinomial", {{"seed", 1.f}, {"sample_size", kMany}}, {logs})};
  };
  std::vector<std::vector<Tensor>> drawn;
  for (const int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    const PoolScope scope(pool);
    drawn.push_back(draw());
  }
  for (size_t i = 0; i < drawn[0].size(); ++i) {
    CAPTURE(i);
    CHECK(detail::SameBytes(drawn[0][i], drawn[1][i]));
    CHECK(detail::SameBytes(drawn[0][i], drawn[2][i]));
  }
}

TEST_CASE("numbers differ by run, and by the output's name, unless there is a seed") {
  auto runs = [](const std::string& name, Arguments args) {
    Workspace ws;
    args.Set("shape", Ints{20});
    const auto op = CreateOperator(OperatorDef("RandomNormal", {}, {name}, args), &ws);
    std::vector<Floats> out;
    for (int run = 0; run < 3; ++run) {
      CHECK(op->Run());
      out.push_back(FloatsOf(*ws.GetTensor(name)));
    }
    return out;
  };
  SetSeed(5);
  const auto y = runs("y", {});
  CHECK(y[0] != y[1]);
  CHECK(y[1] != y[2]);
  CHECK(runs("z", {})[0] != y[0]);
  SetSeed(5);
  CHECK(runs("y", {}) == y);
  SetSeed(6);
  CHECK(runs("y", {})[0] != y[0]);
  const auto seeded = runs("y", {{"seed", 2.5f}});
  CHECK(seeded[0] == seeded[1]);
  CHECK(runs("z", {{"seed", 2.5f}})[0] == seeded[0]);
  CHECK(runs("y", {{"seed", 2.f}})[0] != seeded[0]);
}

TEST_CASE("a plan neither evaluates random nodes once, nor merges two of them") {
  Graph graph;
  for (const char* name : {"a", "b"}) {
    graph.AddNode(OperatorDef("RandomUniform", {}, {name}, {{"shape", {8}}}));
    graph.AddOutput(name);
  }
  const Plan plan = Compile(graph);
  Executor executor(plan);
  const Floats a = FloatsOf(executor.Run({}).Get("a"));
  const NamedTensors second = executor.Run({});
  CHECK(FloatsOf(second.Get("a")) != FloatsOf(second.Get("b")));
  CHECK(FloatsOf(second.Get("a")) != a);
}

TEST_CASE("Bernoulli draws 1 as often as the probability says, in any type") {
  const Tensor chances = Draw("RandomUniform", {{"seed", 3.f}, {"shape", {kMany}}, {"high", 0.5f}});
  const Tensor drawn = Draw("Bernoulli", {{"seed", 1.f}}, {chances});
  CHECK(drawn.dtype() == DType::kFloat32);
  CHECK(Moments(drawn).mean == doctest::Approx(0.25).epsilon(0.02));
  const Tensor certain = Tensor::From<float>({4}, {0, 1, 0, 1});
  CHECK(Draw("Bernoulli", {{"dtype", 9}}, {certain}).ToVector<bool>() ==
        std::vector<bool>{false, true, false, true});
  CHECK(Draw("Bernoulli", {{"dtype", 7}}, {certain}).ToVector<int64_t>() == Ints{0, 1, 0, 1});
  CHECK(Contains(ErrorOf([] { Draw("Bernoulli", {}, {Tensor::Scalar(1.5f)}); }).message(),
                 "Bernoulli: a probability is 1.5, expected 0 to 1"));
  CHECK(Contains(ErrorOf([] { Draw("Bernoulli", {}, {Tensor::Scalar(NAN)}); }).message(),
                 "expected 0 to 1"));
}

TEST_CASE("Multinomial draws each class as often as its probability says") {
  const Tensor logs = Tensor::From<float>(
      {2, 4}, {std::log(1.f), -INFINITY, std::log(3.f), std::log(4.f), 900, 900, 0, -900});
  const Tensor drawn =
      Draw("Multinomial", {{"seed", 1.f}, {"sample_size", kMany}, {"dtype", 7}}, {logs});
  CHECK(drawn.shape() == Shape{2, kMany});
  double count[2][4] = {};
  const Ints classes = drawn.ToVector<int64_t>();
  for (size_t i = 0; i < classes.size(); ++i) ++count[i / kMany][static_cast<size_t>(classes[i])];
  const double expected[2][4] = {{0.125, 0, 0.375, 0.5}, {0.5, 0.5, 0, 0}};
  for (int row = 0; row < 2; ++row)
    for (int c = 0; c < 4; ++c) {
      CAPTURE(row);
      CAPTURE(c);
      CHECK(std::fabs(count[row][c] / kMany - expected[row][c]) < 0.0064);  // 4 standard deviations
      CHECK((count[row][c] == 0) == (expected[row][c] == 0));
    }
  CHECK(Draw("Multinomial", {}, {logs}).dtype() == DType::kInt32);
  const Tensor never = Tensor::From<float>({1, 2}, {-INFINITY, -INFINITY});
  CHECK(Contains(ErrorOf([&] { Draw("Multinomial", {}, {never}); }).message(),
                 "no class of a finite log-probability"));
  CHECK(ErrorOf([] {
          Draw("Multinomial", {}, {Tensor::From<float>({1, 2}, {NAN, 0})});
        }).code() == ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([] {
          Draw("Multinomial", {}, {Counting({2, 0})});
        }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("types and shapes are inferred, and wrong ones refused") {
  CHECK(Inferred("RandomNormal", {}, {{"shape", {2, 3}}, {"dtype", 10}}) == "float16[2, 3]");
  CHECK(Inferred("RandomUniformLike", {{Sym("N"), 3}}) == "float32[N, 3]");
  CHECK(Inferred("RandomNormalLike", {{DType::kInt64, {2}}}, {{"dtype", 11}}) == "float64[2]");
  CHECK(Inferred("Bernoulli", {{2}}, {{"dtype", 6}}) == "int32[2]");
  CHECK(Inferred("Multinomial", {{Sym("N"), 3}}, {{"sample_size", 5}}) == "int32[N, 5]");
  CHECK(Contains(Refused("RandomNormal", {}, {{"shape", {2, -3}}}), "extents of 0 or more"));
  CHECK(Contains(Refused("RandomNormal", {}, {{"shape", {2}}, {"dtype", 7}}), "dtype=7 is not"));
  CHECK(Contains(Refused("RandomNormalLike", {{DType::kInt64, {2}}}), "or the attribute 'dtype'"));
  CHECK(Contains(Refused("Multinomial", {{2}}), "expected [batch, classes]"));
  CHECK(Contains(Refused("Multinomial", {{2, 2}}, {{"sample_size", -1}}), "expected 0 or more"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  const Tensor x = Tensor::From<float>({2, 3}, {0, 0.25f, 0.5f, 1, 1, 0.125f});
  CheckNode(OperatorDef("RandomNormal", {}, {"y"}, {{"seed", 1.f}, {"shape", {5}}}), {});
  CheckNode(OperatorDef("RandomUniform", {}, {"y"}, {{"shape", {5}}}), {});
  for (const char* op : {"RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}) {
    CAPTURE(op);
    CheckNode(OperatorDef(op, {"x"}, {"y"}, {{"seed", 1.f}}), {x});
  }
}

}  // namespace
}  // namespace random_tensor_test
