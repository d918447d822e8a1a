// Operators of com.microsoft through the reader of models, which makes ONNX's own of them. The
// expected numbers are those of ONNX Runtime.
#include "opkit/graph/executor.hpp"
#include "opkit/interop/onnx.hpp"
#include "opkit/ops/all.hpp"
#include "ops/data_movement.hpp"
#include "support/onnx_bytes.hpp"

namespace microsoft_operators_test {
using namespace opkit_tests;
using A = onnx_bytes::AttributeProto;
using OnnxGraph = onnx_bytes::Graph;
using Attributes = std::vector<A>;

namespace {

// The numbers -1.25 to 1.25 of a fixed order, or small integers.
Tensor Pattern(const Shape& shape, DType dtype = DType::kFloat32) {
  Tensor out(shape, dtype);
  for (int64_t i = 0; i < out.numel(); ++i) {
    const auto number = static_cast<double>((i * 7 + 3) % 11);
    detail::SetNumber(out, i,
                      dtype == DType::kFloat32 ? (number - 5) / 4
                      : dtype == DType::kInt8  ? number * 9 - 40
                      : dtype == DType::kUInt8 ? number * 20
                                               : static_cast<double>((i * 7 + 3) % 11 % 3));
  }
  return out;
}
template <class T = float>
Tensor One(T value) {
  return Tensor::Scalar<T>(value);
}

// A model of one node of com.microsoft.
std::string Model(const char* op, const std::vector<Tensor>& inputs, const Attributes& attributes,
                  const Strings& outputs, std::vector<NamedTensor>* given) {
  OnnxGraph graph;
  Strings names;
  for (const Tensor& input : inputs) {
    names.push_back(input.dtype() == DType::kUndefined ? "" : StrCat("x", names.size()));
    if (names.back().empty()) continue;
    std::vector<onnx_bytes::Extent> extents;
    for (const int64_t extent : input.shape()) extents.push_back(static_cast<int>(extent));
    graph.Input(names.back(), extents, static_cast<int>(OnnxNumberOf(input.dtype())));
    given->push_back({names.back(), input});
  }
  graph.Node(op, names, outputs, attributes, "node", "com.microsoft");
  for (const std::string& output : outputs)
    if (!output.empty()) graph.Output(output);
  return graph.Model();
}
// The numbers of an output, to be compared with Near.
struct Numbers {
  std::vector<double> values;
};
struct Near {
  std::vector<double> values;
  Near(std::initializer_list<double> numbers) : values(numbers) {}
};
// Expected numbers are rounded to four digits.
bool operator==(const Numbers& found, const Near& expected) {
  bool same = found.values.size() == expected.values.size();
  for (size_t i = 0; same && i < found.values.size(); ++i)
    same = std::fabs(found.values[i] - expected.values[i]) <=
           1e-3 * (std::max)(1.0, std::fabs(expected.values[i]));
  return same;
}
std::ostream& operator<<(std::ostream& out, const Numbers& numbers) {
  for (const double value : numbers.values) out << value << ' ';
  return out;
}
Numbers Run(const char* op, const std::vector<Tensor>& inputs, const Attributes& attributes,
            const Strings& outputs = {"y0"}, const char* read = "y0") {
  std::vector<NamedTensor> given;
  const std::string model = Model(op, inputs, attributes, outputs, &given);
  Executor executor(Compile(ParseOnnxModel(model).graph));
  const Tensor output = executor.Run(given).Get(read);
  Numbers numbers;
  PlainTypes::Visit(output.dtype(), [&]<class T>() {
    for (const T value : output.ToVector<T>()) numbers.values.push_back(static_cast<double>(value));
  });
  return numbers;
}
std::string Refused(const char* op, const std::vector<Tensor>& inputs, const Attributes& attributes,
                    const Strings& outputs = {"y0"}) {
  std::vector<NamedTensor> given;
  const std::string model = Model(op, inputs, attributes, outputs, &given);
  return ErrorOf([&] { ParseOnnxModel(model); }).message();
}

TEST_CASE("Gelu with a bias, and by tanh") {
  CHECK(Run("Gelu", {Pattern({4})}, {}) == Near({-0.1543f, 1.118f, 0.1497f, -0.17f}));
  CHECK(Run("BiasGelu", {Pattern({2, 3}), Pattern({3})}, {}) ==
        Near({-0.1587f, 2.484f, 0.3457f, -0.1321f, 2.222f, 0.1497f}));
  CHECK(Run("FastGelu", {Pattern({4})}, {}) == Near({-0.1543f, 1.118f, 0.1497f, -0.17f}));
  CHECK(Run("FastGelu", {Pattern({2, 2}), Pattern({2})}, {}) ==
        Near({-0.1588f, 2.485f, -0.1003f, 0.3457f}));
  CHECK(Run("QuickGelu", {Pattern({4})}, {}) == Near({-0.1496f, 1.117f, 0.1512f, -0.1636f}));
  CHECK(Run("QuickGelu", {Pattern({4})}, {A::Float("alpha", 0.5f)}) ==
        Near({-0.2189f, 0.8142f, 0.1328f, -0.3055f}));
}

TEST_CASE("FusedMatMul transposes its factors and scales the product") {
  CHECK(Run("FusedMatMul", {Pattern({3, 2}), Pattern({2, 3})},
            {A::Float("alpha", 0.5f), A::Int("transA", 1), A::Int("transB", 1)}) ==
        Near({0.4062f, 0.3125f, -0.7812f, -0.8438f}));
  CHECK(Run("FusedMatMul", {Pattern({3, 2, 1}), Pattern({2, 1, 2})},
            {A::Int("transBatchA", 1), A::Int("transA", 0)}) ==
        Near({0.25f, -0.625f, -0.125f, 0.3125f, -0.5f, 1.25f, 0.3125f, -0.9375f, -0.1875f, 0.5625f,
              0, 0}));
}

TEST_CASE("CDist gives the distances of rows") {
  // Row 1 of the second matrix is row 0 of the first.
  const Tensor a = Tensor::From<float>({2, 2}, {0.5f, -1, 3, 2});
  const Tensor b = Tensor::From<float>({3, 2}, {0, 0, 0.5f, -1, 3, -2});
  CHECK(Run("CDist", {a, b}, {}) == Near({1.25f, 0, 7.25f, 13, 15.25f, 16}));
  CHECK(Run("CDist", {a, b}, {A::String("metric", "euclidean")}) ==
        Near({1.118f, 0, 2.6926f, 3.6056f, 3.9051f, 4}));
}

TEST_CASE("FusedConv adds a tensor and computes an activation") {
  CHECK(Run("FusedConv", {Pattern({1, 1, 3, 3}), Pattern({1, 1, 2, 2}), Pattern({1})},
            {A::String("activation", "LeakyRelu"), A::Floats("activation_params", {0.25f})}) ==
        Near({0.375f, -0.1406f, 0.3125f, -0.1562f}));
  CHECK(Run("FusedConv",
            {Pattern({1, 1, 3, 3}), Pattern({1, 1, 2, 2}), Pattern({1}), Pattern({1, 1, 2, 2})},
            {A::String("activation", "Relu")}) == Near({0, 0.6875f, 0.5625f, 0}));
  CHECK(Run("FusedConv", {Pattern({1, 1, 3, 3}), Pattern({1, 1, 2, 2})},
            {A::String("activation", "Clip"), A::Floats("activation_params", {-0.5f, 0.5f})}) ==
        Near({0.5f, -0.0625f, 0.5f, -0.125f}));
}

TEST_CASE("SkipLayerNormalization adds before it normalises") {
  CHECK(Run("SkipLayerNormalization",
            {Pattern({1, 2, 3}), Pattern({1, 2, 3}), Pattern({3}), Pattern({3}), Pattern({3})},
            {A::Float("epsilon", 0.5f)}) ==
        Near({0.05216f, 2.768f, 0.2224f, 0.05216f, 2.768f, 0.2224f}));
  CHECK(Run("SkipLayerNormalization", {Pattern({1, 2, 3}), Pattern({2, 3}), Pattern({3})}, {},
            {"y0", "", "", "y3"}, "y3") == Near({-1, 2.5f, 0.5f, -1.5f, 2, 0}));
  CHECK(Run("SkipSimplifiedLayerNormalization",
            {Pattern({1, 2, 3}), Pattern({1, 2, 3}), Pattern({3}), Pattern({3})},
            {A::Float("epsilon", 0.5f)}) ==
        Near({0.303f, 1.894f, 0.07576f, 0.4313f, 1.752f, 0.02696f}));
}

TEST_CASE("EmbedLayerNormalization sums the embeddings of words, positions and segments") {
  CHECK(Run("EmbedLayerNormalization",
            {Pattern({1, 3}, DType::kInt32), Pattern({1, 3}, DType::kInt32), Pattern({3, 2}),
             Pattern({4, 2}), Pattern({3, 2}), Pattern({2}), Pattern({2})},
            {A::Float("epsilon", 0.5f)}, {"y0", "y1"}, "y1") == Near({0}));
  CHECK(Run("EmbedLayerNormalization",
            {Pattern({1, 3}, DType::kInt32), Tensor(), Pattern({3, 2}), Pattern({4, 2}), Tensor(),
             Pattern({2}), Pattern({2}), Tensor(), Pattern({1, 3}, DType::kInt32)},
            {A::Float("epsilon", 0.5f)}, {"y0", "y1", "y2"},
            "y2") == Near({-1, 2.5f, 0.5f, -1.5f, -1, 2.5f}));
}

TEST_CASE("Attention has heads, masks, a past and a causal order") {
  CHECK(Run("Attention", {Pattern({1, 2, 2}), Pattern({2, 6}), Pattern({6})},
            {A::Int("num_heads", 2)}) == Near({1.059f, 0.3288f, 0.9946f, 0.2491f}));
  CHECK(Run("Attention", {Pattern({1, 2, 2}), Pattern({2, 6}), Pattern({6}), Vector<int32_t>({1})},
            {A::Int("num_heads", 1)}) == Near({1.125f, -0.625f, 1.125f, -0.625f}));
  CHECK(Run("Attention",
            {Pattern({1, 3, 2}), Pattern({2, 6}), Pattern({6}), Pattern({1, 3}, DType::kInt32)},
            {A::Int("num_heads", 1), A::Int("unidirectional", 1)}) ==
        Near({1.125f, -0.625f, 0.875f, 0.375f, 0.875f, 0.375f}));
  CHECK(Run("Attention",
            {Pattern({1, 2, 2}), Pattern({2, 6}), Pattern({6}), Pattern({1, 2, 2}, DType::kInt32)},
            {A::Int("num_heads", 1), A::Float("scale", 0.5f)}) ==
        Near({0.875f, 0.375f, 0.875f, 0.375f}));
  CHECK(Run("Attention",
            {Pattern({1, 2, 2}), Pattern({2, 6}), Pattern({6}), Tensor(), Pattern({2, 1, 1, 2, 2})},
            {A::Int("num_heads", 1), A::Int("unidirectional", 1)}, {"y0", "y1"},
            "y0") == Near({0.91f, 0.02231f, 0.6908f, 0.1631f}));
  CHECK(Run("Attention",
            {Pattern({1, 2, 2}), Pattern({2, 6}), Pattern({6}), Tensor(), Pattern({2, 1, 1, 2, 2})},
            {A::Int("num_heads", 1)}, {"y0", "y1"},
            "y1") == Near({-0.5f, 1.25f, 0.25f, -0.75f, -0.1875f, -1.938f, 0.5f, 0, 1, 0, -1, 0.75f,
                           1.125f, -0.625f, 0.875f, 0.375f}));
  CHECK(Run("Attention",
            {Pattern({1, 2, 2}), Pattern({2, 8}), Pattern({8}), Tensor(), Tensor(),
             Pattern({1, 1, 2, 2})},
            {A::Int("num_heads", 1), A::Ints("qkv_hidden_sizes", {2, 2, 4})}) ==
        Near({0.5644f, -0.1155f, -0.7954f, 0.3944f, 1.177f, 0.05941f, -1.058f, 0.8974f}));
  CHECK(Run("QAttention",
            {Pattern({1, 2, 2}, DType::kUInt8), Pattern({2, 6}, DType::kInt8), Pattern({6}),
             One(0.01f), One(0.02f), Tensor(), One<uint8_t>(7), One<int8_t>(3)},
            {A::Int("num_heads", 1)}) == Near({2.02f, -0.1444f, 2.021f, -0.1481f}));
}

TEST_CASE("Operators on quantised tensors compute their numbers") {
  CHECK(Run("QLinearAdd",
            {Pattern({2, 3}, DType::kUInt8), One(0.02f), One<uint8_t>(5),
             Pattern({3}, DType::kUInt8), One(0.03f), One<uint8_t>(7), One(0.05f), One<uint8_t>(9)},
            {}) == Near({63, 203, 123, 55, 195, 115}));
  CHECK(Run("QLinearMul",
            {Pattern({2, 3}, DType::kInt8), One(0.02f), One<int8_t>(-5), Pattern({3}, DType::kInt8),
             One(0.03f), One<int8_t>(7), One(0.01f), One<int8_t>(9)},
            {}) == Near({19, 127, 17, 29, 127, 13}));
  CHECK(Run("QLinearSigmoid",
            {Pattern({2, 3}, DType::kUInt8), One(0.02f), One<uint8_t>(5), One(0.004f),
             One<uint8_t>(0)},
            {}) == Near({188, 245, 227, 167, 243, 217}));
  CHECK(Run("QLinearLeakyRelu",
            {Pattern({4}, DType::kInt8), One(0.02f), One<int8_t>(-5), One(0.01f), One<int8_t>(3)},
            {A::Float("alpha", 0.25f)}) == Near({-1, 113, 41, -5}));
  CHECK(Run("QLinearGlobalAveragePool",
            {Pattern({1, 2, 2, 2}, DType::kUInt8), One(0.02f), One<uint8_t>(5), One(0.01f),
             One<uint8_t>(1)},
            {A::Int("channels_last", 0)}) == Near({201, 221}));
  CHECK(Run("QLinearAveragePool",
            {Pattern({1, 1, 2, 3}, DType::kUInt8), One(0.02f), One<uint8_t>(5), One(0.01f),
             One<uint8_t>(1)},
            {A::Ints("kernel_shape", {2, 2})}) == Near({231, 255}));
  CHECK(Run("QLinearConcat",
            {One(0.02f), One<uint8_t>(5), Pattern({1, 2}, DType::kUInt8), One(0.01f),
             One<uint8_t>(3), Pattern({1, 2}, DType::kUInt8), One(0.04f), One<uint8_t>(4)},
            {A::Int("axis", 1)}) == Near({33, 103, 117, 255}));
  CHECK(Run("QGemm",
            {Pattern({3, 2}, DType::kUInt8), One(0.02f), One<uint8_t>(100),
             Pattern({2, 3}, DType::kInt8), Vector({0.01f, 0.02f}), Vector<int8_t>({2, 3}),
             Vector<int32_t>({7, -9})},
            {A::Int("transA", 1), A::Int("transB", 1), A::Float("alpha", 0.5f)}) ==
        Near({0.2527f, 0.3822f, -0.4373f, -0.9578f}));
  CHECK(Run("QGemm",
            {Pattern({2, 3}, DType::kUInt8), One(0.02f), One<uint8_t>(100),
             Pattern({3, 2}, DType::kInt8), One(0.01f), One<int8_t>(2), Tensor(), One(0.07f),
             One<uint8_t>(120)},
            {}) == Near({127, 108, 125, 106}));
  // ONNX Runtime gives 240 and 192 for 241.2 and 193.1.
  CHECK(Run("QLinearSoftmax",
            {Pattern({1, 2, 2}, DType::kUInt8), One(0.02f), One<uint8_t>(5), One(0.004f),
             One<uint8_t>(1)},
            {A::Int("axis", 1), A::Int("opset", 13)}) == Near({59, 241, 193, 11}));
  CHECK(Run("QLinearSoftmax",
            {Pattern({1, 2, 2}, DType::kUInt8), One(0.02f), One<uint8_t>(5), One(0.004f),
             One<uint8_t>(1)},
            {A::Int("axis", 1), A::Int("opset", 12)}) == Near({13, 193, 40, 9}));
}

TEST_CASE("MultiHeadAttention, with biases, masks and a past") {
  const Tensor q = Pattern({1, 2, 4}), k = Pattern({1, 3, 4}), none;
  const A heads = A::Int("num_heads", 2);
  CHECK(Run("MultiHeadAttention", {q, k, k}, {heads}) ==
        Near({-0.2549, 0.8681, 0.1519, -0.4112, 0.4113, -0.0476, -0.6331, 0.3817}));
  const Tensor mask = Tensor::From<int32_t>({1, 3}, {1, 0, 1});
  CHECK(
      Run("MultiHeadAttention", {q, k, k, Pattern({12}), mask}, {heads, A::Float("scale", 0.3f)}) ==
      Near({-0.7189, -0.3114, 0.8703, -1.1297, -0.6777, -0.7226, 0.8715, -1.1285}));
  CHECK(Run("MultiHeadAttention", {q, k, k, none, none, Pattern({1, 2, 2, 3})}, {heads}) ==
        Near({0.2435, 0.4216, -0.172, -0.0313, 0.7688, -0.0947, -0.8734, 0.631}));
  CHECK(Run("MultiHeadAttention", {k, k, k}, {heads, A::Int("unidirectional", 1)}) ==
        Near({-0.5, 1.25, 0.25, -0.75, 0.6142, 0.3215, -0.8035, 0.5142, -0.0303, -0.8018, 0.1563,
              -0.4063}));
  const Tensor past = Pattern({1, 2, 1, 2});
  const std::vector<Tensor> with_past{q, q, q, none, none, none, past, past};
  CHECK(Run("MultiHeadAttention", with_past, {heads}, {"y0", "k", "v"}) ==
        Near({-0.3668, 1.139, 0.0585, -0.5202, 0.3863, 0.5114, -0.6604, 0.3425}));
  CHECK(Run("MultiHeadAttention", with_past, {heads}, {"y0", "k", "v"}, "k") ==
        Near({-0.5, 1.25, -0.5, 1.25, 1, 0, 0.25, -0.75, 0.25, -0.75, -1, 0.75}));
  CHECK(Contains(Refused("MultiHeadAttention", {q}, {heads}), "must be three inputs"));
  CHECK(Contains(Refused("MultiHeadAttention", with_past, {heads, A::Int("unidirectional", 1)}),
                 "it has a past"));
}

TEST_CASE("GroupQueryAttention, of a first prompt") {
  const Tensor q = Pattern({1, 2, 16}), k = Pattern({1, 2, 8}), none;
  const Attributes heads{A::Int("num_heads", 2), A::Int("kv_num_heads", 1)};
  const Tensor last = Vector<int32_t>({1}), total = One<int32_t>(2);
  CHECK(Run("GroupQueryAttention", {q, k, k, none, none, last, total}, heads, {"y0", "k", "v"}) ==
        Near({-0.5,    1.25,    0.25,   -0.75,   1,     0,      -1,      0.75,
              -0.5,    1.25,    0.25,   -0.75,   1,     0,      -1,      0.75,
              -0.3208, -0.5417, 0.4292, -0.5708, 1.179, 0.1792, -0.8208, 0.9292,
              -0.3375, -0.3748, 0.4125, -0.5875, 1.162, 0.1625, -0.8375, 0.9125}));
  Attributes more = heads;
  more.push_back(A::Float("softcap", 0.5f));
  more.push_back(A::Float("scale", 2));
  // Queries, keys and values in one input.
  CHECK(Run("GroupQueryAttention", {Pattern({1, 2, 32}), none, none, none, none, last, total},
            more) == Near({0.25,   -0.75,    1,      0,      -1,      0.75,   -0.25,   -1.25,
                           0.25,   -0.75,    1,      0,      -1,      0.75,   -0.25,   -1.25,
                           0.519,  -0.481,   0.5293, 0.269,  -0.731,  0.2793, 0.01897, -0.981,
                           0.9797, -0.02026, -0.277, 0.7297, -0.2703, -0.527, 0.4797,  -0.5203}));
}

TEST_CASE("GroupQueryAttention, of one more step for a cache") {
  const Tensor q = Pattern({2, 1, 16}), k = Pattern({2, 1, 8}), cache = Pattern({2, 1, 4, 8});
  const Attributes heads{A::Int("num_heads", 2), A::Int("kv_num_heads", 1)};
  const Tensor last = Vector<int32_t>({2, 1}), total = One<int32_t>(3);
  // The elements of the batch have 2 and 1 earlier steps in a cache of 4 rows.
  CHECK(Run("GroupQueryAttention", {q, k, k, cache, cache, last, total}, heads) ==
        Near({-0.4651, 0.9014,  0.2849, -0.7151, 1.035,   0.03486, -0.9651, 0.7849,
              -0.3418, -0.332,  0.4082, -0.5918, 1.158,   0.1582,  -0.8418, 0.9082,
              0.1002,  -0.8998, 0.8502, -0.1498, 0.3162,  0.6002,  -0.3998, 0.06619,
              0.3986,  -0.6014, 1.149,  0.1486,  -0.4797, 0.8986,  -0.1014, -0.7297}));
  Attributes window = heads;
  window.push_back(A::Int("local_window_size", 2));
  CHECK(Run("GroupQueryAttention", {q, k, k, cache, cache, last, total}, window) ==
        Near({-0.4388, 0.6382,  0.3112, -0.6888, 1.061,   0.06118, -0.9388, 0.8112,
              -0.3062, -0.6878, 0.4438, -0.5562, 1.194,   0.1938,  -0.8062, 0.9438,
              0.1002,  -0.8998, 0.8502, -0.1498, 0.3162,  0.6002,  -0.3998, 0.06619,
              0.3986,  -0.6014, 1.149,  0.1486,  -0.4797, 0.8986,  -0.1014, -0.7297}));
  // A cache that has no row for the step becomes longer.
  const Tensor one_q = Pattern({1, 1, 16}), one_k = Pattern({1, 1, 8}), none;
  const Tensor past = Pattern({1, 1, 2, 8});
  const std::vector<Tensor> grown{one_q,
                                  one_k,
                                  one_k,
                                  past,
                                  past,
                                  Vector<int32_t>({2}),
                                  total,
                                  none,
                                  none,
                                  none,
                                  Pattern({1, 2, 1, 3})};
  CHECK(Run("GroupQueryAttention", grown, heads) ==
        Near({-0.4064, 0.3143, 0.3436, -0.6564, 1.094, 0.09357, -0.9064, 0.8436, -0.284, -0.9105,
              0.466, -0.534, 1.216, 0.216, -0.784, 0.966}));
  CHECK(Run("GroupQueryAttention", grown, heads, {"y0", "k", "v"}, "k") ==
        Near({-0.5, 1.25, 0.25,  -0.75, 1,    0,    -1,   0.75,  -0.25, -1.25, 0.5, -0.5,
              1.25, 0.25, -0.75, 1,     -0.5, 1.25, 0.25, -0.75, 1,     0,     -1,  0.75}));
}

TEST_CASE("GroupQueryAttention rotates queries and keys by the angles of their steps") {
  const Tensor q = Pattern({1, 1, 16}), past = Pattern({1, 1, 1, 16}), angles = Pattern({3, 8});
  const std::vector<Tensor> inputs{
      q, q, q, past, past, Vector<int32_t>({1}), One<int32_t>(2), angles, angles};
  Attributes rotary{A::Int("num_heads", 1), A::Int("kv_num_heads", 1), A::Int("do_rotary", 1)};
  CHECK(Run("GroupQueryAttention", inputs, rotary, {"y0", "k", "v"}, "k") ==
        Near({-0.5,   1.25,  0.25,   -0.75, 1,     0,      -1,     0.75,   -0.25, -1.25,   0.5,
              -0.5,   1.25,  0.25,   -0.75, 1,     0.0625, -3.125, -0.125, 0.125, -0.3125, -0.0625,
              0.1875, -0.25, 0.1875, 0,     0.375, 0.625,  2.812,  0.0625, 1.312, 1.75}));
  rotary.push_back(A::Int("rotary_interleaved", 1));
  CHECK(Run("GroupQueryAttention", inputs, rotary, {"y0", "k", "v"}, "k") ==
        Near({-0.5,  1.25,  0.25, -0.75,  1,    0,      -1,      0.75,   -0.25, -1.25, 0.5,
              -0.5,  1.25,  0.25, -0.75,  1,    0.4375, -0.1875, -1.25,  0.625, 0.5,   0.5,
              0.875, 0.125, 1.25, -1.875, 0.25, 0,      -0.75,   -1.125, -1.75, 0.25}));
}

TEST_CASE("GroupQueryAttention whose softmax has a sink") {
  const Tensor q = Pattern({1, 2, 16}), k = Pattern({1, 2, 8}), none;
  std::vector<Tensor> inputs{q, k, k, none, none, Vector<int32_t>({1}), One<int32_t>(2)};
  Attributes heads{A::Int("num_heads", 2), A::Int("kv_num_heads", 1)};
  Attributes smooth = heads;
  smooth.push_back(A::Int("smooth_softmax", 1));
  CHECK(Run("GroupQueryAttention", inputs, smooth) ==
        Near({-0.4271, 1.068,   0.2135, -0.6406, 0.8542, 0,       -0.8542, 0.6406,
              -0.3275, 0.8187,  0.1637, -0.4912, 0.6549, 0,       -0.6549, 0.4912,
              -0.2357, -0.3979, 0.3153, -0.4193, 0.8662, 0.1316,  -0.603,  0.6826,
              -0.1827, -0.2029, 0.2233, -0.318,  0.6293, 0.08796, -0.4534, 0.494}));
  inputs.resize(11);
  inputs.push_back(Vector({0.5f, -1}));
  CHECK(Run("GroupQueryAttention", inputs, heads) ==
        Near({-0.3902, 0.9755,  0.1951, -0.5853, 0.7804, 0,      -0.7804, 0.5853,
              -0.4188, 1.047,   0.2094, -0.6282, 0.8376, 0,      -0.8376, 0.6282,
              -0.2011, -0.3395, 0.269,  -0.3577, 0.739,  0.1123, -0.5144, 0.5823,
              -0.2573, -0.2858, 0.3145, -0.4479, 0.8862, 0.1239, -0.6385, 0.6957}));
}

TEST_CASE("what a GroupQueryAttention has beyond that is an Error by its name") {
  const Tensor q = Pattern({1, 1, 8}), none, last = Vector<int32_t>({0}), total = One<int32_t>(1);
  const std::vector<Tensor> inputs{q, q, q, none, none, last, total};
  const auto refused = [&](std::vector<Tensor> more, Attributes attributes) {
    attributes.push_back(A::Int("num_heads", 1));
    attributes.push_back(A::Int("kv_num_heads", 1));
    more.insert(more.begin(), inputs.begin(), inputs.end());
    return Refused("GroupQueryAttention", more, attributes);
  };
  CHECK(Contains(refused({}, {A::Int("causal", 0)}), "its causal is 0; opkit has only 1"));
  CHECK(Contains(refused({}, {A::Int("qk_output", 2)}), "its qk_output is 2"));
  CHECK(Contains(refused({}, {A::String("k_quant_type", "PER_TENSOR")}),
                 "its k_quant_type is 'PER_TENSOR'"));
  CHECK(Contains(refused({none, none, none, none, none, Vector({1})}, {}),
                 "it has input 12, k_scale"));
  CHECK(Contains(refused({}, {A::Int("do_rotary", 1)}), "it needs input 7"));
  CHECK(Contains(
      Refused("GroupQueryAttention", inputs, {A::Int("num_heads", 3), A::Int("kv_num_heads", 2)}),
      "its num_heads is 3 and its kv_num_heads is 2"));
}

TEST_CASE("RotaryEmbedding, with places or the place of the first step") {
  const Tensor x = Pattern({1, 2, 8}), cache = Pattern({4, 2}), half = Pattern({4, 1});
  CHECK(Run("RotaryEmbedding", {x, Tensor::From<int64_t>({1, 2}, {3, 1}), cache, cache}, {}) ==
        Near({0.75, 1.5, 0.25, 0.375, -2, -0.5625, 0, 0.5625, -0.1875, 0.5625, 0.0625, 1.312, 0.5,
              0.5625, 0.125, -0.9375}));
  CHECK(Run("RotaryEmbedding", {x, List({2}), cache, cache}, {A::Int("interleaved", 1)}) ==
        Near({-1.75, 0.75, 0, 0, 1, 1, -0, 0, -1, 1.5, 0.75, 0, -1, -1.5, -1.312, 0.1875}));
  CHECK(Run("RotaryEmbedding", {Pattern({1, 1, 2, 4}), List({1}), half, half},
            {A::Int("num_heads", 1), A::Int("rotary_embedding_dim", 2)}) ==
        Near({-2.188, 0.9375, 0.25, -0.75, 0.25, 0.25, -1, 0.75}));
  CHECK(Run("RotaryEmbedding", {x, One<int64_t>(2), cache, cache}, {}).values ==
        Run("RotaryEmbedding", {x, List({2}), cache, cache}, {}).values);
  CHECK(Contains(Refused("RotaryEmbedding", {x, List({0, 1}), cache, cache}, {}),
                 "its position_ids of rank 1 have 2 elements, not 1"));
  Executor unknown(
      Compile(ParseOnnxModel(OnnxGraph()
                                 .Input("x", {1, 2, 8})
                                 .Input("places", {"S"}, onnx_bytes::kInt64)
                                 .Input("cache", {4, 2})
                                 .Node("RotaryEmbedding", {"x", "places", "cache", "cache"}, {"y"},
                                       {}, "node", "com.microsoft")
                                 .Output("y")
                                 .Model())
                  .graph));
  unknown.Run({{"x", x}, {"places", List({2})}, {"cache", cache}});
  CHECK(Contains(ErrorOf([&] {
                   unknown.Run({{"x", x}, {"places", List({0, 1})}, {"cache", cache}});
                 }).message(),
                 "Reshape"));
  CHECK(Contains(Refused("RotaryEmbedding", {x, List({2}), cache, cache}, {A::Float("scale", 2)}),
                 "its scale is not 1"));
  CHECK(Contains(
      Refused("RotaryEmbedding", {x, List({2}), cache, cache}, {A::Int("is_packed_batching", 1)}),
      "its is_packed_batching is not 0"));
}

TEST_CASE("FusedGemm, SimplifiedLayerNormalization and QLinearWhere") {
  const Tensor a = Pattern({2, 3}), b = Pattern({3, 2});
  CHECK(Run("FusedGemm", {a, b, Pattern({2})},
            {A::String("activation", "Relu"), A::Float("alpha", 0.5f)}) ==
        Near({0, 0.4688, 0, 0.4063}));
  CHECK(Run("FusedGemm", {a, b},
            {A::String("activation", "LeakyRelu"), A::Float("activation_alpha", 0.2f)}) ==
        Near({0.8125, -0.3125, 0.625, -0.3375}));
  const Attributes row{A::Int("axis", -1), A::Float("epsilon", 1e-3f), A::Int("stash_type", 1)};
  OnnxGraph graph;
  graph.Input("x", {2, 3}).Input("scale", {3});
  graph.Node("SimplifiedLayerNormalization", {"x", "scale"}, {"y"}, row);
  graph.Output("y");
  const Graph read = ParseOnnxModel(graph.Model()).graph;
  CHECK(read.nodes()[0].type() == "RMSNormalization");
  CHECK(Numbers{detail::NumbersOf<double>(
            Executor(Compile(read)).Run({{"x", a}, {"scale", Pattern({3})}})[0])} ==
        Near({0.316, 1.9748, 0.079, 0.5191, 1.7304, 0}));
  const Tensor chosen = Tensor::From<bool>({2, 2}, {true, false, false, true});
  CHECK(Run("QLinearWhere",
            {chosen, Pattern({2, 2}, DType::kUInt8), One(0.02f), One<uint8_t>(5),
             Tensor::From<uint8_t>({2, 2}, {120, 40, 60, 200}), One(0.04f), One<uint8_t>(9),
             One(0.05f), One<uint8_t>(3)},
            {}) == Near({25, 28, 44, 17}));
}

// The values are those of ONNX Runtime 1.31.
TEST_CASE("QuantizeLinear and DequantizeLinear are ONNX's") {
  const Tensor x = Tensor::From<float>({2, 3}, {-.5f, 1.25f, .25f, -1, 1, 0});
  CHECK(Run("QuantizeLinear", {x, One(0.02f), One<int16_t>(-5)}, {}) ==
        Near({-30, 57, 7, -55, 45, -5}));
  CHECK(Run("QuantizeLinear",
            {x, Tensor::From<float>({2}, {.02f, .001f}), Tensor::From<uint16_t>({2}, {7, 65000})},
            {A::Int("axis", 0)}) == Near({0, 69, 19, 64000, 65535, 65000}));
  CHECK(Run("DequantizeLinear",
            {Tensor::From<int16_t>({1, 3}, {-300, 7, 40}), Tensor::From<float>({3}, {.5f, .25f, 2}),
             Tensor::From<int16_t>({3}, {1, 2, -3})},
            {}) == Near({-150.5, 1.25, 86}));
  CHECK(Run("DequantizeLinear", {Tensor::From<int32_t>({2}, {-300, 7}), One(0.5f)}, {}) ==
        Near({-150, 3.5}));
}

TEST_CASE("What no rule translates is refused by name") {
  CHECK(Contains(Refused("Gelu", {Pattern({2})}, {A::Int("wide", 1)}),
                 "node 'node' (com.microsoft.Gelu): opkit does not read its attribute 'wide'"));
  CHECK(Contains(Refused("BiasGelu", {Pattern({2})}, {}), "it needs input 1"));
  CHECK(Contains(Refused("Gelu", {Pattern({2})}, {}, {"y0", "y1"}), "it has 1 outputs, found 2"));
  CHECK(Contains(Refused("FusedConv", {Pattern({1, 1, 2, 2}), Pattern({1, 1, 1, 1})},
                         {A::String("activation", "Gelu")}),
                 "its activation is 'Gelu'"));
  CHECK(Contains(Refused("FusedConv", {Pattern({1, 1, 2, 2}), Pattern({1, 1, 1, 1})},
                         {A::String("activation", "LeakyRelu")}),
                 "its activation_params are too few"));
  CHECK(Contains(
      Refused("CDist", {Pattern({2, 2}), Pattern({2, 2})}, {A::String("metric", "cityblock")}),
      "its metric is 'cityblock', expected euclidean or sqeuclidean"));
  const std::vector<Tensor> attention{Pattern({2, 2, 2}), Pattern({2, 6}), Pattern({6})};
  CHECK(Contains(Refused("Attention", attention, {A::Int("num_heads", 3)}),
                 "its 3 heads do not divide"));
  std::vector<Tensor> masked = attention;
  masked.push_back(Vector<int32_t>({1, 2, 0, 0}));
  CHECK(Contains(Refused("Attention", masked, {A::Int("num_heads", 1)}), "its mask is"));
  CHECK(Contains(Refused("Attention", attention, {A::Int("num_heads", 1), A::Int("do_rotary", 1)}),
                 "its do_rotary is not 0"));
  const Tensor byte = Pattern({1, 1, 2, 2}, DType::kUInt8), zero = One<uint8_t>(0);
  CHECK(Contains(Refused("QLinearGlobalAveragePool", {byte, One(1.f), zero, One(1.f), zero},
                         {A::Int("channels_last", 1)}),
                 "its channels are last"));
}

TEST_CASE("A reader that allows unknown operators keeps the nodes") {
  std::vector<NamedTensor> given;
  OnnxOptions options;
  options.allow_unknown_operators = true;
  const Graph graph =
      ParseOnnxModel(Model("Gelu", {Pattern({2})}, {}, {"y0"}, &given), options).graph;
  CHECK(graph.node(0).type() == "com.microsoft.Gelu");
}

}  // namespace
}  // namespace microsoft_operators_test
