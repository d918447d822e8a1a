// Attention.
#include "opkit/ops/nn/attention.hpp"

#include "../data_movement.hpp"
#include "opkit/ops/cast.hpp"

namespace attention_test {
using namespace opkit_tests;

namespace {

const float kLow = -std::numeric_limits<float>::infinity();

// Queries of 0: all keys that count have one weight, so that Y is the mean of their values.
const Tensor kQueries = Tensor::From<float>({1, 1, 2, 1}, {0, 0});
const Tensor kKeys = Tensor::From<float>({1, 1, 3, 1}, {1, 2, 3});
const Tensor kValues = Tensor::From<float>({1, 1, 3, 1}, {3, 6, 12});

Floats Run(const std::vector<Tensor>& inputs, Arguments args = {}) {
  return FloatsOf(Invoke("Attention", inputs, std::move(args), {.num_outputs = 1})[0]);
}

TEST_CASE("Attention weighs values by the softmax of scaled products") {
  const Tensor q = Tensor::From<float>({1, 1, 1, 1}, {std::log(2.f)});
  const Tensor k = Tensor::From<float>({1, 1, 2, 1}, {0, 1});
  const Tensor v = Tensor::From<float>({1, 1, 2, 2}, {0, 3, 3, 0});
  CHECK(Run({q, k, v})[0] == doctest::Approx(2));
  CHECK(Run({q, k, v})[1] == doctest::Approx(1));
  CHECK(Run({q, k, v}, {{"scale", 2.f}})[0] == doctest::Approx(12. / 5));
  // softcap * tanh(score / softcap), with a score of 2.
  const Tensor two = Tensor::From<float>({1, 1, 1, 1}, {2});
  const double weight = std::exp(std::tanh(2.)) / (1 + std::exp(std::tanh(2.)));
  CHECK(Run({two, k, v}, {{"softcap", 1.f}})[0] == doctest::Approx(3 * weight));
}

TEST_CASE("masks, lengths and is_causal leave keys out") {
  CHECK(Run({kQueries, kKeys, kValues}) == Floats{7, 7});
  CHECK(Run({kQueries, kKeys, kValues}, {{"is_causal", 1}}) == Floats{3, 4.5f});
  Tensor mask(Shape{2, 3}, DType::kBool);
  const bool kept[] = {true, false, true, false, true, false};
  for (int i = 0; i < 6; ++i) static_cast<uint8_t*>(mask.raw_mutable_data())[i] = kept[i];
  CHECK(Run({kQueries, kKeys, kValues, mask}) == Floats{7.5f, 6});
  CHECK(Run({kQueries, kKeys, kValues, mask}, {{"is_causal", 1}}) == Floats{3, 6});
  const Tensor numbers = Tensor::From<float>({1, 3}, {kLow, 0, 0});
  CHECK(Run({kQueries, kKeys, kValues, numbers}) == Floats{9, 9});
  const Tensor integers = Tensor::From<int64_t>({1, 3}, {-1000, 0, 0});
  CHECK(Run({kQueries, kKeys, kValues, integers}) == Floats{9, 9});
  // A mask with a shorter last axis leaves the keys behind it out.
  const Tensor shorter = Tensor::From<float>({1, 2}, {0, 0});
  CHECK(Run({kQueries, kKeys, kValues, shorter}) == Floats{4.5f, 4.5f});
  const Tensor nothing;
  CHECK(Run({kQueries, kKeys, kValues, nothing, nothing, nothing, List({1})}) == Floats{3, 3});
  CHECK(std::isnan(Run({kQueries, kKeys, kValues, Tensor::From<float>({1, 1}, {kLow})})[0]));
}

TEST_CASE("inputs of rank 3 hold their heads side by side, and heads of queries share keys") {
  const Tensor q = Tensor::From<float>({1, 1, 4}, {0, 0, 0, 0});
  const Tensor k = Tensor::From<float>({1, 2, 2}, {1, 1, 1, 1});
  const Tensor v = Tensor::From<float>({1, 2, 2}, {1, 10, 3, 30});
  const Arguments heads{{"q_num_heads", 4}, {"kv_num_heads", 2}};
  CHECK(Run({q, k, v}, heads) == Floats{2, 2, 20, 20});
}

TEST_CASE("the past comes before the present, and scores are an output") {
  const Tensor past_k = Tensor::From<float>({1, 1, 1, 1}, {5});
  const Tensor past_v = Tensor::From<float>({1, 1, 1, 1}, {9});
  const Tensor q = Tensor::From<float>({1, 1, 2, 1}, {1, 1});
  for (const auto& [mode, scores] : std::vector<std::pair<int, Floats>>{
           {0, {5, 1, 2, 3, 5, 1, 2, 3}}, {2, {5, 1, kLow, kLow, 5, 1, 2, kLow}}}) {
    const auto out =
        Invoke("Attention", {q, kKeys, kValues, Tensor(), past_k, past_v},
               {{"is_causal", 1}, {"qk_matmul_output_mode", mode}}, {.num_outputs = 4});
    CHECK(FloatsOf(out[1]) == Floats{5, 1, 2, 3});
    CHECK(FloatsOf(out[2]) == Floats{9, 3, 6, 12});
    CHECK(FloatsOf(out[3]) == scores);
  }
}

TEST_CASE("shapes are inferred, and wrong ones refused") {
  CHECK(Inferred("Attention", {{Sym("N"), 8, 5, 4}, {Sym("N"), 2, 7, 4}, {Sym("N"), 2, 7, 3}}, {},
                 4) ==
        "float32[N, 8, 5, 3] float32[N, 2, 7, 4] float32[N, 2, 7, 3] float32[N, 8, 5, 7]");
  CHECK(Inferred("Attention", {{1, 5, 8}, {1, 7, 4}, {1, 7, 6}},
                 {{"q_num_heads", 4}, {"kv_num_heads", 2}}) == "float32[1, 5, 12]");
  const Known q{1, 4, 5, 2}, k{1, 4, 7, 2};
  CHECK(Contains(Refused("Attention", {q, k, {1, 4, 6, 2}}), "as many values as keys"));
  CHECK(Contains(Refused("Attention", {q, {1, 4, 7, 3}, k}), "of one size"));
  CHECK(Contains(Refused("Attention", {q, {1, 3, 7, 2}, {1, 3, 7, 2}}), "a multiple of"));
  CHECK(Contains(Refused("Attention", {{1, 5, 8}, {1, 7, 8}, {1, 7, 8}}), "a number of heads"));
  CHECK(Contains(Refused("Attention", {q, k, k, {5, 8}}), "cannot be broadcast"));
  CHECK(Contains(Refused("Attention", {q, k, k, kLeftOut, {1, 4, 2, 2}}), "or neither"));
  CHECK(Contains(Refused("Attention", {q, k, k}, {{"qk_matmul_output_mode", 4}}), "0 to 3"));
  CHECK(Contains(ErrorOf([] {
                   const Tensor none;
                   Run({kQueries, kKeys, kValues, none, none, none, List({4})});
                 }).message(),
                 "nonpad_kv_seqlen has 4, expected 0 to 3"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(OperatorDef("Attention", {"q", "k", "v"}, {"y", "pk", "pv", "s"}),
            {Counting({1, 4, 2, 2}), Counting({1, 2, 3, 2}), Counting({1, 2, 3, 3})});
}

TEST_CASE("Attention has gradients of queries, keys, values, mask and the past") {
  const auto random = [](Shape shape, uint64_t seed) {
    return Random(std::move(shape), seed, DType::kFloat64);
  };
  const Tensor q = random({2, 2, 2, 3}, 1), k = random({2, 1, 3, 3}, 2),
               v = random({2, 1, 3, 2}, 3);
  const Tensor mask = random({2, 5}, 4);
  const Tensor past_k = random({2, 1, 2, 3}, 5), past_v = random({2, 1, 2, 2}, 6);
  for (const int64_t mode : {0, 1, 2, 3})
    CheckNode(OperatorDef("Attention", {"q", "k", "v", "m", "a", "b"}, {"y", "pk", "pv", "s"},
                          {{"softcap", 0.8f}, {"qk_matmul_output_mode", mode}}),
              {q, k, v, mask, past_k, past_v});
  CheckNode(OperatorDef("Attention", {"q", "k", "v"}, {"y"},
                        {{"is_causal", 1}, {"q_num_heads", 2}, {"kv_num_heads", 1}}),
            {random({2, 3, 4}, 1), random({2, 3, 2}, 2), random({2, 3, 1}, 3)});
  const Tensor none;
  CheckNode(OperatorDef("Attention", {"q", "k", "v", "", "", "", "n"}, {"y"}),
            {q, k, v, none, none, none, Vector<int64_t>({2, 3})});
}

}  // namespace
}  // namespace attention_test
