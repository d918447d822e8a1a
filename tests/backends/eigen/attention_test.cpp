// Attention of the "eigen" backend: the same as the plain operator.
#include <doctest/doctest.h>

#include "support/check_node.hpp"
#include "support/compare_backends.hpp"
#include "support/tensors.hpp"

namespace attention_test {
using namespace opkit;

namespace {

const Tensor kNone;

// [batch, heads, steps, size], or [batch, steps, heads * size].
Tensor Rows(bool packed, int64_t heads, int64_t steps, int64_t size, uint64_t seed) {
  return Random(packed ? Shape{2, steps, heads * size} : Shape{2, heads, steps, size}, seed);
}
Tensor Bools(const Shape& shape) {
  Tensor out(shape, DType::kBool);
  for (int64_t i = 0; i < out.numel(); ++i)
    static_cast<uint8_t*>(out.raw_mutable_data())[i] = i % 3 != 1 || i % 5 == 0;
  return out;
}

TEST_CASE("queries of few and many blocks, with heads apart or side by side") {
  for (const bool packed : {false, true})
    for (const int64_t steps : {1, 5, 64, 130})
      for (const int64_t sharing : {1, 3}) {
        CAPTURE(packed);
        CAPTURE(steps);
        CAPTURE(sharing);
        const Tensor q = Rows(packed, 2 * sharing, steps, 9, 1), k = Rows(packed, 2, 70, 9, 2);
        const Tensor v = Rows(packed, 2, 70, 7, 3);
        for (const int64_t causal : {0, 1})
          CheckSameOn("eigen", "Attention", {q, k, v},
                      {{"q_num_heads", 2 * sharing}, {"kv_num_heads", 2}, {"is_causal", causal}});
      }
}

TEST_CASE("the past, masks, lengths and softcap") {
  const Tensor q = Rows(false, 4, 3, 8, 1), k = Rows(false, 2, 5, 8, 2),
               v = Rows(false, 2, 5, 6, 3);
  const Tensor past_k = Rows(false, 2, 11, 8, 4), past_v = Rows(false, 2, 11, 6, 5);
  for (const Tensor& mask :
       {kNone, Random({3, 16}, 6), Random({2, 4, 1, 12}, 7), Bools({2, 1, 3, 16}),
        Random({1, 16}, 8, DType::kFloat64), Tensor::From<int8_t>({2}, {1, -2})})
    for (const int64_t causal : {0, 1}) {
      CheckSameOn("eigen", "Attention", {q, k, v, mask, past_k, past_v},
                  {{"is_causal", causal}, {"softcap", 0.5f}, {"scale", 0.3f}}, 3);
      for (const int64_t mode : {0, 1, 2, 3})
        CheckSameOn("eigen", "Attention", {q, k, v, mask, past_k, past_v},
                    {{"is_causal", causal}, {"softcap", 0.5f}, {"qk_matmul_output_mode", mode}}, 4);
    }
  CheckSameOn("eigen", "Attention",
              {q, past_k, past_v, kNone, kNone, kNone, Vector<int64_t>({7, 11})});
}

TEST_CASE("queries that see no key, and values that do not count") {
  const float low = -std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor q = Rows(false, 1, 2, 3, 1), k = Rows(false, 1, 2, 3, 2);
  Tensor v = Rows(false, 1, 2, 3, 3);
  CheckSameOn("eigen", "Attention", {q, k, v, Tensor::From<float>({2, 2}, {low, low, 0, 0})});
  CheckSameOn("eigen", "Attention", {q, k, v, kNone, kNone, kNone, Vector<int64_t>({0, 1})});
  for (int64_t i = 3; i < 6; ++i) v.mutable_data<float>()[i] = nan;  // of key 1
  CheckSameOn("eigen", "Attention", {q, k, v}, {{"is_causal", 1}});
  CheckSameOn("eigen", "Attention", {q, k, v, Tensor::From<float>({2}, {0, low})});
}

TEST_CASE("Attention keeps the promises of its schema on every backend") {
  CheckNode(OperatorDef("Attention", {"q", "k", "v"}, {"y", "pk", "pv", "s"}),
            {Random({1, 4, 2, 2}, 1), Random({1, 2, 3, 2}, 2), Random({1, 2, 3, 3}, 3)});
}

}  // namespace
}  // namespace attention_test
