// LinearAttention.
#include "opkit/ops/nn/linear_attention.hpp"

#include "../data_movement.hpp"

namespace linear_attention_test {
using namespace opkit_tests;

namespace {

const char* const kOp = "LinearAttention";
const Tensor kNone;
const float kHalf = std::log(0.5f);

Arguments Heads(int64_t queries, int64_t keys, const char* rule) {
  return {{"q_num_heads", queries}, {"kv_num_heads", keys}, {"update_rule", rule}, {"scale", 1.f}};
}
std::vector<Floats> Run(const std::vector<Tensor>& inputs, const Arguments& args) {
  const auto out = Invoke(kOp, inputs, args, {.num_outputs = 2});
  return {FloatsOf(out[0]), FloatsOf(out[1])};
}
Tensor Steps(const Floats& values) {
  return Tensor::From<float>({1, static_cast<int64_t>(values.size()), 1}, values);
}

TEST_CASE("the linear rule adds the products of keys and values") {
  const auto out = Run({Steps({1, 10}), Steps({2, 3}), Steps({5, 7})}, Heads(1, 1, "linear"));
  CHECK(out[0] == Floats{10, 310});
  CHECK(out[1] == Floats{31});
  const Tensor past = Tensor::From<float>({1, 1, 1, 1}, {100});
  CHECK(Run({Steps({1}), Steps({2}), Steps({5}), past}, Heads(1, 1, "linear"))[0] == Floats{110});
}

TEST_CASE("the state is a matrix of keys and values") {
  const Tensor query = Tensor::From<float>({1, 1, 2}, {1, 10});
  const Tensor key = Tensor::From<float>({1, 1, 2}, {1, 2});
  const Tensor value = Tensor::From<float>({1, 1, 3}, {3, 5, 7});
  const auto out = Run({query, key, value}, Heads(1, 1, "linear"));
  CHECK(out[1] == Floats{3, 5, 7, 6, 10, 14});
  CHECK(out[0] == Floats{63, 105, 147});
  Arguments by_size = Heads(1, 1, "linear");
  by_size.Set("scale", 0.f);
  CHECK(Run({query, key, value}, by_size)[0][0] == doctest::Approx(63 / std::sqrt(2.)));
}

TEST_CASE("gated rules let the state decay, delta rules replace a key's value") {
  const Tensor one = Steps({1, 1}), values = Steps({4, 10});
  CHECK(Run({one, one, values, kNone, Steps({0, kHalf})}, Heads(1, 1, "gated"))[0] ==
        Floats{4, 12});
  const Tensor beta = Steps({1, 0.5f});
  CHECK(Run({one, one, values, kNone, kNone, beta}, Heads(1, 1, "delta"))[0] == Floats{4, 7});
  CHECK(Run({one, one, values, kNone, Steps({0, kHalf}), beta}, Heads(1, 1, "gated_delta"))[0] ==
        Floats{4, 6});
  // A decay for each element of the key.
  const Tensor key = Tensor::From<float>({1, 1, 2}, {0, 0});
  const Tensor decay = Tensor::From<float>({1, 1, 2}, {0, kHalf});
  const Tensor past = Tensor::From<float>({1, 1, 2, 1}, {8, 8});
  CHECK(Run({key, key, Steps({1}), past, decay}, Heads(1, 1, "gated"))[1] == Floats{8, 4});
}

TEST_CASE("heads of queries share the state of a head of keys") {
  const Tensor query = Tensor::From<float>({1, 1, 4}, {1, 2, 3, 4});
  const Tensor key = Tensor::From<float>({1, 1, 2}, {1, 1});
  const Tensor value = Tensor::From<float>({1, 1, 2}, {1, 10});
  CHECK(Run({query, key, value}, Heads(4, 2, "linear"))[0] == Floats{1, 2, 30, 40});
  // One beta for all heads, or one for each.
  CHECK(Run({query, key, value, kNone, kNone, Steps({2})}, Heads(4, 2, "delta"))[1] ==
        Floats{2, 20});
  CHECK(Run({query, key, value, kNone, kNone, Tensor::From<float>({1, 1, 2}, {2, 3})},
            Heads(4, 2, "delta"))[1] == Floats{2, 30});
}

TEST_CASE("shapes are inferred, and wrong ones refused") {
  const Known q{Sym("N"), Sym("T"), 12}, k{Sym("N"), Sym("T"), 6}, v{Sym("N"), Sym("T"), 10};
  const Arguments linear = Heads(4, 2, "linear"), gated = Heads(4, 2, "gated");
  CHECK(Inferred(kOp, {q, k, v}, linear, 2) == "float32[N, T, 20] float32[N, 2, 3, 5]");
  CHECK(Contains(Refused(kOp, {q, k, v}, Heads(3, 2, "linear")), "a multiple of kv_num_heads"));
  CHECK(Contains(Refused(kOp, {q, k, v}, gated), "an input decay"));
  CHECK(Contains(Refused(kOp, {q, k, v}, Heads(4, 2, "delta")), "an input beta"));
  CHECK(Contains(Refused(kOp, {q, k, v, kLeftOut, k}, linear), "no input decay"));
  CHECK(Contains(Refused(kOp, {q, k, v, kLeftOut, {1, 1, 3}}, gated), "for each head"));
  CHECK(Contains(Refused(kOp, {q, v, v}, linear), "queries and keys of one size"));
  CHECK(Contains(Refused(kOp, {q, {1, 1, 7}, v}, linear), "a multiple of the number of heads"));
  CHECK(Contains(Refused(kOp, {q, k, v, {1, 2, 3, 4}}, linear), "a past_state of shape"));
  CHECK(Contains(Refused(kOp, {{1, 2}, k, v}, linear), "[batch, steps, any]"));
}

TEST_CASE("the operator keeps the promises of its schema") {
  CheckNode(
      OperatorDef(kOp, {"q", "k", "v", "s", "d", "b"}, {"y", "state"}, Heads(4, 2, "gated_delta")),
      {Random({2, 3, 8}, 1), Random({2, 3, 4}, 2), Random({2, 3, 6}, 3), Random({2, 2, 2, 3}, 4),
       Random({2, 3, 2}, 5), Random({2, 3, 1}, 6)});
}

TEST_CASE("gradients of every rule, through time and with shared states") {
  const auto random = [](Shape shape, uint64_t seed) {
    return RandomTensor(shape, DType::kFloat32, seed);
  };
  // 2 sequences of 3 steps, 2 heads of keys of 2 elements, 4 heads of queries, values of 1 element.
  const Tensor query = random({2, 3, 8}, 1), key = random({2, 3, 4}, 2),
               value = random({2, 3, 2}, 3), past = random({2, 2, 2, 1}, 4);
  struct Rule {
    const char* name;
    int64_t decay, beta;
  };
  for (const Rule& rule : {Rule{"linear", 0, 0},
                           {"gated", 2, 0},
                           {"gated", 4, 0},
                           {"delta", 0, 2},
                           {"gated_delta", 4, 1},
                           {"gated_delta", 2, 2}}) {
    CAPTURE(rule.name);
    const Arguments args = {{"q_num_heads", 4}, {"kv_num_heads", 2}, {"update_rule", rule.name}};
    std::vector<std::string> names = {"q", "k", "v", "s"};
    std::vector<Tensor> inputs = {query, key, value, past};
    std::vector<int> of = {0, 1, 2, 3};
    if (rule.decay + rule.beta > 0) names.push_back(rule.decay > 0 ? "d" : "");
    if (rule.decay + rule.beta > 0)
      inputs.push_back(rule.decay > 0 ? random({2, 3, rule.decay}, 5) : Tensor());
    if (rule.decay > 0) of.push_back(4);
    if (rule.beta > 0) {
      names.emplace_back("b");
      inputs.push_back(random({2, 3, rule.beta}, 6));
      of.push_back(5);
    }
    const OperatorDef node("LinearAttention", names, {"y", "next"}, args);
    const GradientCheckOptions options{.threshold = 1e-2, .inputs = of};
    const auto result = CheckGradient(node, inputs, options);
    CHECK_MESSAGE(result.ok(), ToString(result));
  }
}

}  // namespace
}  // namespace linear_attention_test
