// Attention on cuBLASLt against the reference kernel of the CPU.
#include "opkit/backends/cuda/libraries/cublas_attention.hpp"

#include "fake_libraries.hpp"
#include "on_cuda.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"
#include "support/text.hpp"

namespace cublas_attention_test {
using namespace opkit;

namespace {

constexpr int64_t kBatch = 2, kHeads = 4, kKeyHeads = 2, kQueries = 3, kKeys = 5;
constexpr int64_t kSize = 6, kValueSize = 4, kPast = 2;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor As(DType dtype, const Tensor& x) {
  Tensor out(x.shape(), dtype);
  for (int64_t i = 0; const float number : x.ToVector<float>()) detail::SetNumber(out, i++, number);
  return out;
}
// Returns Q, K and V, of rank 3 or 4.
std::vector<Tensor> Inputs(int rank, int64_t queries = kQueries) {
  if (rank == 3)
    return {Random({kBatch, queries, kHeads * kSize}, 1),
            Random({kBatch, kKeys, kKeyHeads * kSize}, 2),
            Random({kBatch, kKeys, kKeyHeads * kValueSize}, 3)};
  return {Random({kBatch, kHeads, queries, kSize}, 1), Random({kBatch, kKeyHeads, kKeys, kSize}, 2),
          Random({kBatch, kKeyHeads, kKeys, kValueSize}, 3)};
}
Arguments WithHeads(int rank, Arguments args = {}) {
  if (rank == 3) args.Set("q_num_heads", kHeads), args.Set("kv_num_heads", kKeyHeads);
  return args;
}
std::vector<Tensor> Run(const std::vector<Tensor>& inputs, const Arguments& args, int outputs,
                        Device device, const char* backend) {
  return Invoke(
      "Attention", inputs, args,
      {.device = device, .backends = backend, .num_outputs = outputs, .backend_need = kRequired});
}
void Compare(const std::vector<Tensor>& inputs, const Arguments& args = {}, int outputs = 1,
             double tolerance = 1e-5) {
  std::string node = "Attention of";
  for (const Tensor& input : inputs) node += " " + ToString(input);
  for (const auto& arg : args) node += ", " + arg.name + " " + ToString(arg.value);
  INFO(node);
  const auto expected = Run(inputs, args, outputs, {}, "reference");
  std::vector<Tensor> there;
  for (const Tensor& input : inputs) there.push_back(OnCuda(input));
  const auto found = Run(there, args, outputs, kCuda0, "cublas");
  REQUIRE(found.size() == expected.size());
  for (size_t o = 0; o < found.size(); ++o)
    CHECK(Difference(OnHost(found[o]), expected[o], {.rtol = tolerance, .atol = tolerance}) == "");
}

}  // namespace

TEST_CASE("attention with grouped heads, of ranks 3 and 4, and with one query") {
  for (const int rank : {3, 4}) {
    Compare(Inputs(rank), WithHeads(rank));
    Compare(Inputs(rank, 1), WithHeads(rank));
    Compare(Inputs(rank), WithHeads(rank, {{"is_causal", 1}}));
    Compare(Inputs(rank), WithHeads(rank, {{"scale", 0.7f}, {"softcap", 0.5f}}));
  }
}

TEST_CASE("attention with masks") {
  for (const Shape& shape : {Shape{kQueries, kKeys}, Shape{1, kKeys}, Shape{kKeys},
                             Shape{kHeads, 1, kKeys}, Shape{kBatch, 1, kQueries, kKeys},
                             Shape{kBatch, kHeads, kQueries, kKeys}, Shape{kQueries, 3}}) {
    std::vector<Tensor> inputs = Inputs(4);
    inputs.push_back(Random(shape, 4));
    Compare(inputs, {{"is_causal", 1}});
    Tensor bools(shape, DType::kBool);
    for (int64_t i = 0; i < bools.numel(); ++i) bools.mutable_data<bool>()[i] = i % 3 != 1;
    inputs[3] = bools;
    Compare(inputs);
  }
  std::vector<Tensor> inputs = Inputs(4);
  inputs.push_back(Filled({kQueries, kKeys}, -kInfinity));
  Compare(inputs);  // no key counts: NaN
  for (const DType dtype : {DType::kFloat32, DType::kBool}) {
    inputs[3] = Tensor({kQueries, 0}, dtype);
    Compare(inputs);
  }
}

TEST_CASE("attention with keys of the past, and with the keys and values as outputs") {
  const Tensor past_key = Random({kBatch, kKeyHeads, kPast, kSize}, 5);
  const Tensor past_value = Random({kBatch, kKeyHeads, kPast, kValueSize}, 6);
  for (const int rank : {3, 4}) {
    std::vector<Tensor> inputs = Inputs(rank);
    Compare(inputs, WithHeads(rank), 3);
    inputs.insert(inputs.end(), {Tensor(), past_key, past_value});
    Compare(inputs, WithHeads(rank, {{"is_causal", 1}}), 3);
    Compare(inputs, WithHeads(rank), 1);
  }
}

TEST_CASE("attention shows its scores after each step") {
  for (const int64_t mode : {0, 1, 2, 3}) {
    std::vector<Tensor> inputs = Inputs(4);
    inputs.push_back(Random({kQueries, kKeys}, 4));
    Compare(inputs, {{"qk_matmul_output_mode", mode}, {"softcap", 0.8f}}, 4);
  }
}

TEST_CASE("attention over the first keys, behind which the values may be anything") {
  for (const int outputs : {1, 3}) {
    std::vector<Tensor> inputs = Inputs(4);
    for (int64_t head = 0; head < kKeyHeads; ++head)
      inputs[2].mutable_data<float>()[(head * kKeys + 3) * kValueSize] = kInfinity;
    inputs.insert(inputs.end(), {Tensor(), Tensor(), Tensor(), Vector<int64_t>({3, kKeys})});
    Compare(inputs, {}, outputs);
  }
}

TEST_CASE("recorded runs of attention read other lengths, and report one outside the keys") {
  std::vector<Tensor> inputs = Inputs(4);
  inputs.insert(inputs.end(), {Tensor(), Tensor(), Tensor(), Vector<int64_t>({3, kKeys})});
  CheckRecordedOnCuda("cublas", "Attention", inputs, {}, 6, Vector<int64_t>({4, 1}),
                      Vector<int64_t>({kKeys + 1, 2}),
                      "Attention: the length 6 is outside its axis", 1e-5);
}

TEST_CASE("values whose weight is 0 may be infinite or NaN") {
  const auto with = [](int rank, std::vector<std::pair<int64_t, float>> steps) {
    std::vector<Tensor> inputs = Inputs(rank);
    const int64_t row = rank == 3 ? kKeyHeads * kValueSize : kValueSize;
    for (const auto& [step, value] : steps) inputs[2].mutable_data<float>()[step * row] = value;
    return inputs;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int rank : {3, 4}) {
    // The last queries weigh these values, too, and are infinite or NaN.
    Compare(with(rank, {{1, nan}, {2, kInfinity}}), WithHeads(rank, {{"is_causal", 1}}));
    std::vector<Tensor> inputs = with(rank, {{1, nan}, {2, -kInfinity}});
    Tensor mask({kKeys}, DType::kBool);
    for (int64_t i = 0; i < kKeys; ++i) mask.mutable_data<bool>()[i] = i != 1 && i != 2;
    inputs.push_back(mask);
    Compare(inputs, WithHeads(rank));
  }
  for (const DType dtype : {DType::kFloat64, DType::kBFloat16}) {
    std::vector<Tensor> inputs = with(4, {{1, nan}});
    for (Tensor& input : inputs) input = As(dtype, input);
    Compare(inputs, {{"is_causal", 1}}, 1, dtype == DType::kFloat64 ? 1e-12 : 2e-2);
  }
}

TEST_CASE("attention of other types") {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kFloat64, 1e-12}, {DType::kFloat16, 2e-3}, {DType::kBFloat16, 2e-2}}) {
    std::vector<Tensor> inputs = Inputs(3);
    for (Tensor& input : inputs) input = As(dtype, input);
    inputs.push_back(As(dtype, Random({kQueries, kKeys}, 4)));
    Compare(inputs, WithHeads(3), 1, tolerance);
  }
  // The products stay in float32, where they do not overflow.
  std::vector<Tensor> large = {As(DType::kFloat16, Filled({1, 1, 1, 4}, 300)),
                               As(DType::kFloat16, Filled({1, 1, 2, 4}, 300)),
                               As(DType::kFloat16, Random({1, 1, 2, 3}, 1))};
  Compare(large, {{"scale", 1.f}}, 1, 2e-3);
}

TEST_CASE("attention without queries, keys or numbers") {
  Compare({Tensor({1, 2, 0, 4}, DType::kFloat32), Random({1, 2, 3, 4}, 1), Random({1, 2, 3, 5}, 2)},
          {}, 3);
  Compare({Random({1, 2, 3, 4}, 1), Tensor({1, 2, 0, 4}, DType::kFloat32),
           Tensor({1, 2, 0, 5}, DType::kFloat32)});
  Compare({Tensor({1, 2, 3, 0}, DType::kFloat32), Tensor({1, 2, 4, 0}, DType::kFloat32),
           Random({1, 2, 4, 5}, 2)},
          {{"scale", 1.f}});
  Compare({Random({1, 2, 3, 4}, 1), Random({1, 2, 3, 4}, 2), Tensor({1, 2, 3, 0}, DType::kFloat32)},
          {{"qk_matmul_output_mode", 3}}, 4);
}

TEST_CASE("heads that share keys are one product") {
  std::vector<Tensor> inputs;
  for (const Tensor& input : Inputs(4)) inputs.push_back(OnCuda(input));
  fake::TakeCublasCalls();
  Run(inputs, {}, 1, kCuda0, "cublas");
  CHECK(fake::TakeCublasCalls() ==
        std::vector<fake::CublasCall>{
            {kHeads / kKeyHeads * kQueries, kKeys, kSize, kBatch * kKeyHeads},
            {kHeads / kKeyHeads * kQueries, kValueSize, kKeys, kBatch * kKeyHeads}});
}

TEST_CASE("attention declines several types and masks of integers") {
  const auto why = [](DType value, DType mask) {
    const OperatorDef def("Attention", {"Q", "K", "V", "mask"}, {"Y"});
    const std::vector<TensorInfo> inputs = {{DType::kFloat32, Shape{1, 1, 2, 3}},
                                            {DType::kFloat32, Shape{1, 1, 4, 3}},
                                            {value, Shape{1, 1, 4, 3}},
                                            {mask, Shape{2, 4}}};
    const std::vector<TensorInfo> outputs = {{DType::kFloat32, Shape{1, 1, 2, 3}}};
    return std::string(ErrorOf([&] { CublasAttentionOp::Propose({def, inputs, outputs}); }).what());
  };
  CHECK(why(DType::kFloat32, DType::kBool) == "no Error was thrown");
  CHECK(Contains(why(DType::kFloat16, DType::kBool), "input 2 is float16"));
  CHECK(Contains(why(DType::kFloat32, DType::kInt32), "input 3 is int32"));
}

}  // namespace cublas_attention_test
