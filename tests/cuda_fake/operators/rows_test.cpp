// The operators on CUDA that reduce or normalize rows, pool windows or compute losses, against the
// reference kernels of the CPU.
#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "on_cuda.hpp"
#include "opkit/backends/cuda/ops/rows/loss.hpp"
#include "opkit/backends/cuda/ops/rows/normalization.hpp"
#include "opkit/backends/cuda/ops/rows/order.hpp"
#include "opkit/backends/cuda/ops/rows/pool.hpp"
#include "opkit/backends/cuda/ops/rows/reduction.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"
#include "support/text.hpp"

namespace rows_test {
using namespace opkit;

namespace {

using Ints = std::vector<int64_t>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor List(const Ints& values) { return Vector<int64_t>(values); }
Tensor Scalar(float value) { return Tensor::From<float>({}, {value}); }
Tensor As(DType dtype, const Tensor& x) {
  Tensor out(x.shape(), dtype);
  for (int64_t i = 0; i < x.numel(); ++i) detail::SetNumber(out, i, x.data<float>()[i]);
  return out;
}

void Compare(const std::string& op, const std::vector<Tensor>& inputs, const Arguments& args = {},
             int outputs = 1, double tolerance = 1e-4) {
  CheckOnCuda(kCUDABackend, op, inputs, args, outputs, tolerance);
}
std::string MessageOf(const std::function<void()>& call) { return ErrorOf(call).what(); }
// Returns why the kernel on CUDA does not take a node; empty if it does.
template <class Op>
std::string WhyDeclined(const OperatorDef& def, const std::vector<TensorInfo>& inputs,
                        const std::vector<TensorInfo>& outputs) {
  return MessageOf([&] { Op::Propose({def, inputs, outputs}); });
}

const Tensor kLeftOut;

}  // namespace

TEST_CASE("reductions along all kinds of axes") {
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd",
                         "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"}) {
    Compare(op, {Random({4, 6, 5, 3}, 1), List({0, 2})});
    Compare(op, {Random({4, 6, 5, 3}, 2), List({1, -1})}, {{"keepdims", 0}});
    Compare(op, {Random({3, 1, 7}, 3)});
    Compare(op, {Random({3, 7}, 3)}, {{"noop_with_empty_axes", 1}});
    Compare(op, {Tensor({0, 3}, DType::kFloat32), List({1})});
    Compare(op, {Tensor({3, 0}, DType::kFloat32), List({1})});
    Compare(op, {As(DType::kFloat16, Random({5, 9}, 4)), List({0})}, {}, 1, 2e-3);
    Compare(op, {Random({5, 9}, 5, DType::kFloat64), List({0})}, {}, 1, 1e-12);
  }
  Compare("ReduceLogSum", {Filled({4, 90}, 3), List({1})});
  Compare("ReduceSum", {Vector<int32_t>({INT32_MAX, 1, -5})});
  Compare("ReduceMax", {Tensor::From<int64_t>({2, 3}, {3, -9, 1, INT64_MAX, 2, 2}), List({1})});
  Compare("ReduceMin", {Tensor::From<bool>({2, 2}, {true, false, true, true}), List({0})});
  Compare("ReduceMax", {Vector({1, kNan, 3})});
  Compare("ReduceLogSumExp",
          {Tensor::From<float>({2, 2}, {-kInfinity, -kInfinity, 1, kInfinity}), List({1})});
}

TEST_CASE("a reduction to few elements is cut into pieces") {
  CHECK(detail::ReduceShares::Of(1, 70000, true).pieces == 17);
  CHECK(detail::ReduceShares::Of(1 << 20, 70000, true).pieces == 1);
  CHECK(detail::ReduceShares::Of(5, 3000, false).pieces == 46);
  CHECK(detail::ReduceShares::Of(0, 3000, false).pieces == 1);
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp"}) {
    Compare(op, {Random({70000}, 1)}, {}, 1, 1e-3);
    Compare(op, {Random({2, 9001}, 2), List({1})}, {}, 1, 1e-3);
    Compare(op, {Random({3000, 5}, 3), List({0})}, {}, 1, 1e-3);
    Compare(op, {Random({40, 3, 70}, 4), List({0, 2})}, {}, 1, 1e-3);
  }
}

TEST_CASE("the gradients of reductions and of broadcasting") {
  for (const int mean : {0, 1}) {
    Compare("ReduceGradient", {Random({4, 6, 5, 3}, 1), List({0, 2}), Random({1, 6, 1, 3}, 2)},
            {{"mean", mean}});
    Compare("ReduceGradient", {Random({4, 6, 5}, 1), List({1}), Random({4, 5}, 2)},
            {{"mean", mean}});
    Compare("ReduceGradient", {Random({4, 6}, 1), kLeftOut, Random({1, 1}, 2)}, {{"mean", mean}});
  }
  CHECK(Contains(
      MessageOf([] {
        RunOnCuda(kCUDABackend, "ReduceGradient", {Random({4, 6}, 1), List({0}), Random({5}, 2)});
      }),
      "expected the 6 elements"));
  Compare("SumToShape", {Random({4, 6, 5}, 1), Random({6, 1}, 2)}, {{"factor", 0.5f}});
  Compare("SumToShape", {Random({300, 6}, 1), Random({6}, 2)});
  Compare("SumToShape", {Random({4, 6}, 1), Random({4, 6}, 2)}, {{"factor", -2.f}});
  Compare("SumToShape", {Random({4, 6}, 1), Scalar(0)});
}

TEST_CASE("softmax along inner, outer and long axes") {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    Compare(op, {Random({7, 33}, 1)});
    Compare(op, {Random({2, 1500}, 2)});
    Compare(op, {Random({3, 20, 50}, 3)}, {{"axis", 1}});
    Compare(op, {Random({9, 2}, 4)}, {{"axis", 0}});
    Compare(op, {Tensor({0, 3}, DType::kFloat32)});
    Compare(op, {As(DType::kBFloat16, Random({5, 9}, 5))}, {}, 1, 1e-2);
    Compare(op, {Random({5, 9}, 6, DType::kFloat64)}, {}, 1, 1e-12);
    const std::vector<float> extremes = {
        1, -kInfinity, 3, 9, -kInfinity, -kInfinity, -kInfinity, -kInfinity,
        1, kInfinity,  2, 3, 1,          kNan,       2,          3};
    Compare(op, {Tensor::From<float>({4, 4}, extremes)});
    Compare(op, {Tensor::From<float>({1, 6}, {1e30f, 1e30f, -1e30f, 0, 88, 1e30f})});
  }
}

TEST_CASE("softmax, normalizations and sums in place") {
  Workspace ws;
  const Tensor x = Random({3, 60}, 1);
  const auto run = [&](OperatorDef def) {
    Tensor* blob = ws.CreateTensor("X");
    *blob = Tensor(kCuda0);
    Copy(x, blob);
    const void* const memory = blob->raw_data();
    REQUIRE(CreateOperator(def.Device(kCuda0), &ws)->Run());
    CHECK(blob->raw_data() == memory);
    Tensor host;
    Copy(*blob, &host);
    return host;
  };
  const Tolerance close{.rtol = 1e-4, .atol = 1e-5};
  CHECK(Difference(run(OperatorDef("Softmax").Input("X").Output("X")), Invoke("Softmax", {x})[0],
                   close) == "");
  *ws.CreateTensor("axis") = List({1});
  CHECK(Difference(run(OperatorDef("CumSum").Input("X").Input("axis").Output("X")),
                   Invoke("CumSum", {x, List({1})})[0], close) == "");
  const Tensor scale = Random({60}, 2);
  Copy(scale, &(*ws.CreateTensor("scale") = Tensor(kCuda0)));
  CHECK(Difference(run(OperatorDef("LayerNormalization").Input("X").Input("scale").Output("X")),
                   Invoke("LayerNormalization", {x, scale}, {}, {.num_outputs = 1})[0],
                   close) == "");
}

TEST_CASE("the first and the last of the largest and the smallest elements") {
  const Tensor ties = Tensor::From<float>({2, 5}, {1, 4, 4, 1, 2, kNan, 7, kNan, -3, -3});
  for (const char* op : {"ArgMax", "ArgMin"})
    for (const int last : {0, 1}) {
      Compare(op, {ties}, {{"axis", 1}, {"select_last_index", last}});
      Compare(op, {ties}, {{"axis", 0}, {"keepdims", 0}, {"select_last_index", last}});
      Compare(op, {Random({2, 3000}, 1)}, {{"axis", -1}, {"select_last_index", last}});
      Compare(op, {Random({3, 20, 40}, 2)}, {{"axis", 1}, {"select_last_index", last}});
    }
  Compare("ArgMax", {Vector<int64_t>({3, INT64_MAX, INT64_MAX - 1})});
  for (const int largest : {0, 1}) {
    Compare("TopK", {ties, List({4})}, {{"largest", largest}}, 2);
    Compare("TopK", {ties, List({2})}, {{"largest", largest}, {"axis", 0}}, 2);
    Compare("TopK", {ties, List({0})}, {{"largest", largest}}, 2);
    Compare("TopK", {Random({3, 200, 2}, 1), List({64})}, {{"largest", largest}, {"axis", 1}}, 2);
  }
  Compare("TopK", {Vector<int32_t>({5, -7, 5, 9}), List({3})}, {}, 2);
}

TEST_CASE("running sums and products") {
  for (const char* op : {"CumSum", "CumProd"})
    for (const int exclusive : {0, 1})
      for (const int reverse : {0, 1}) {
        const Arguments args{{"exclusive", exclusive}, {"reverse", reverse}};
        Compare(op, {Random({3, 70}, 1), List({1})}, args);
        Compare(op, {Random({3, 5, 40}, 2), List({1})}, args);
        Compare(op, {Random({6, 2}, 2), List({0})}, args);
        if (op == std::string("CumSum"))
          Compare(op, {Vector<int32_t>({3, 1 << 30, 1 << 30, -7, 2, 2, 1}), List({0})}, args);
      }
  Compare("CumSum", {Tensor({0, 3}, DType::kFloat32), List({0})});
}

TEST_CASE("rows divided by their norm") {
  for (const int p : {1, 2}) {
    Compare("LpNormalization", {Random({4, 70}, 1)}, {{"p", p}});
    Compare("LpNormalization", {Random({4, 6, 40}, 2)}, {{"p", p}, {"axis", 1}});
    Compare("LpNormalization", {Filled({2, 3}, 0)}, {{"p", p}});
  }
  CHECK(Contains(MessageOf([] {
                   RunOnCuda(kCUDABackend, "LpNormalization", {Random({4}, 1)}, {{"p", 3}});
                 }),
                 "expected 1 or 2"));
}

TEST_CASE("layer normalization") {
  const Tensor x = Random({3, 4, 40}, 1);
  Compare("LayerNormalization", {x, Random({40}, 2), Random({40}, 3)}, {}, 3);
  Compare("LayerNormalization", {x, Random({4, 40}, 2)}, {{"axis", 1}});
  Compare("LayerNormalization", {x, Random({4, 1}, 2), Random({3, 1, 40}, 3)}, {{"axis", 1}});
  Compare("LayerNormalization", {x, Random({40}, 2), kLeftOut}, {{"stash_type", 16}}, 3);
  Compare("LayerNormalization", {As(DType::kFloat16, x), As(DType::kFloat16, Random({40}, 2))}, {},
          1, 5e-3);
  // The variance is small beside the mean.
  Tensor far_from_zero = Random({2, 2000}, 4);
  for (int64_t i = 0; i < far_from_zero.numel(); ++i)
    far_from_zero.mutable_data<float>()[i] += 1000;
  Compare("LayerNormalization", {far_from_zero, Filled({2000}, 1)}, {}, 1, 2e-2);
}

TEST_CASE("other normalizations") {
  const Tensor x = Random({3, 6, 4, 5}, 1);
  Compare("RMSNormalization", {x, Random({5}, 2)});
  Compare("RMSNormalization", {x, Random({4, 1}, 2)}, {{"axis", 2}});
  Compare("GroupNormalization", {x, Random({6}, 2), Random({6}, 3)}, {{"num_groups", 2}});
  Compare("InstanceNormalization", {x, Random({6}, 2), Random({6}, 3)});
  Compare("MeanVarianceNormalization", {x});
  Compare("MeanVarianceNormalization", {x}, {{"axes", Ints{1, 3}}});
  const auto positive = [](uint64_t seed, DType dtype) {
    Tensor out = Random({6}, seed);
    for (int64_t i = 0; i < 6; ++i) out.mutable_data<float>()[i] += 1.5f;
    return As(dtype, out);
  };
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    const std::vector<Tensor> inputs = {x, As(dtype, Random({6}, 2)), As(dtype, Random({6}, 3)),
                                        As(dtype, Random({6}, 4)), positive(5, dtype)};
    Compare("BatchNormalization", inputs);
    Compare("BatchNormalization", inputs, {{"training_mode", 1}, {"momentum", 0.3f}}, 3, 1e-3);
    std::vector<Tensor> half = inputs;
    half[0] = As(DType::kBFloat16, x);
    Compare("BatchNormalization", half, {}, 1, 2e-2);
  }
  CHECK(Contains(WhyDeclined<CUDARMSNormalizationOperator>(
                     OperatorDef("RMSNormalization").Input("X").Input("s").Output("Y"),
                     {{DType::kFloat16, Shape{2, 5}}, {DType::kFloat32, Shape{5}}},
                     {{DType::kFloat32, Shape{2, 5}}}),
                 "it computes float16, and input 1 is float32"));
}

TEST_CASE("pools and their gradients") {
  struct Pool {
    Shape x;
    Arguments args;
  };
  const Pool pools[] = {
      {{2, 3, 11}, {{"kernel_shape", Ints{3}}, {"strides", Ints{2}}}},
      {{1, 2, 7, 9},
       {{"kernel_shape", Ints{3, 2}},
        {"strides", Ints{2, 3}},
        {"dilations", Ints{2, 1}},
        {"pads", Ints{1, 1, 2, 0}}}},
      {{2, 1, 6, 6}, {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", 1}}},
      {{1, 2, 5, 4, 6}, {{"kernel_shape", Ints{2, 3, 2}}, {"auto_pad", "SAME_UPPER"}}},
  };
  for (const Pool& pool : pools) {
    const auto with = [&](const char* name, Attribute value) {
      Arguments args = pool.args;
      args.Set(name, std::move(value));
      return args;
    };
    const Tensor x = Random(pool.x, 1);
    const Tensor y = Invoke("MaxPool", {x}, pool.args, {.num_outputs = 1})[0];
    Compare("MaxPool", {x}, pool.args, 2);
    Compare("MaxPool", {x}, with("storage_order", 1), 2);
    Compare("AveragePool", {x}, pool.args);
    Compare("AveragePool", {x}, with("count_include_pad", 1));
    Compare("LpPool", {x}, with("p", 3));
    for (const char* function : {"AveragePool", "LpPool", "MaxPool"}) {
      Arguments args = with("function", std::string(function));
      Compare("PoolGradient", {x, Random(y.shape(), 2)}, args);
      args.Set("count_include_pad", 1);
      Compare("PoolGradient", {x, Random(y.shape(), 3)}, args);
    }
  }
  Compare("MaxPool", {Tensor::From<float>({1, 1, 5}, {1, 1, kNan, kNan, -kInfinity})},
          {{"kernel_shape", Ints{2}}}, 2);
  Tensor bytes({1, 1, 4}, DType::kInt8);
  for (int64_t i = 0; i < 4; ++i)
    bytes.mutable_data<int8_t>()[i] = static_cast<int8_t>(-128 + i % 2);
  Compare("MaxPool", {bytes}, {{"kernel_shape", Ints{2}}}, 2);
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"}) {
    Compare(op, {Random({2, 3, 5, 4}, 1)});
    Compare(op, {Random({1, 2, 3000}, 2)}, {}, 1, 1e-3);
  }
  CHECK(Contains(WhyDeclined<CUDAMaxPoolOperator>(OperatorDef("MaxPool").Input("X").Output("Y"),
                                                  {{DType::kFloat32, Shape{1, 1, 2, 2, 2, 2, 2}}},
                                                  {{DType::kFloat32, SymbolicShape()}}),
                 "at most 4 spatial axes, and the input has 5"));
}

TEST_CASE("losses and their gradients") {
  const Tensor labels = Vector<int64_t>({2, 0, 1, 2});
  Tensor pixels({1, 40}, DType::kInt32);
  for (int64_t i = 0; i < 40; ++i) pixels.mutable_data<int32_t>()[i] = static_cast<int32_t>(i % 3);
  for (const char* op : {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}) {
    const bool softmax = op == std::string("SoftmaxCrossEntropyLoss");
    for (const char* reduction : {"mean", "sum", "none"})
      for (const bool weighted : {false, true})
        for (const bool ignores : {false, true}) {
          Arguments args{{"reduction", std::string(reduction)}};
          if (ignores) args.Set("ignore_index", 0);
          const Tensor weights = weighted ? Vector({0.5f, 2, 3}) : kLeftOut;
          const bool each = reduction == std::string("none");
          Arguments gradient = args;
          gradient.Set("softmax", int64_t{softmax});
          Compare(op, {Random({4, 3}, 1), labels, weights}, args, softmax ? 2 : 1);
          Compare(op, {Random({1, 3, 40}, 2), pixels, weights}, args);
          Compare("LossGradient",
                  {Random({4, 3}, 1), labels, weights, each ? Random({4}, 2) : Scalar(0.7f)},
                  gradient, 1);
          Compare(
              "LossGradient",
              {Random({1, 3, 40}, 2), pixels, weights, each ? Random({1, 40}, 3) : Scalar(0.7f)},
              gradient, 1);
        }
  }
  const Tensor loss = OnHost(RunOnCuda(kCUDABackend, "SoftmaxCrossEntropyLoss",
                                       {Random({2, 3}, 1), Vector<int64_t>({1, 3})},
                                       {{"reduction", "none"}}, 1)[0]);
  CHECK(!std::isnan(loss.data<float>()[0]));
  CHECK(std::isnan(loss.data<float>()[1]));
  CHECK(Contains(WhyDeclined<CUDALossGradientOperator>(
                     OperatorDef("LossGradient", {"s", "l", "w", "dY"}, {"ds", "dw"}),
                     {{DType::kFloat32, Shape{4, 3}},
                      {DType::kInt64, Shape{4}},
                      {DType::kFloat32, Shape{3}},
                      {DType::kFloat32, Shape{}}},
                     {{DType::kFloat32, Shape{4, 3}}, {DType::kFloat32, Shape{3}}}),
                 "does not compute the gradient of the weights"));
}

TEST_CASE("TopK of many elements sorts the rows") {
  Tensor ties({3, 100}, DType::kFloat32);
  for (int i = 0; i < 300; ++i)
    ties.mutable_data<float>()[i] = i % 41 == 0 ? kNan : static_cast<float>(i * 7 % 13);
  for (const int largest : {0, 1}) {
    Compare("TopK", {ties, List({65})}, {{"largest", largest}}, 2);
    Compare("TopK", {ties, List({100})}, {{"largest", largest}}, 2);
    Compare("TopK", {Random({2, 128, 3}, 1), List({128})}, {{"largest", largest}, {"axis", 1}}, 2);
    Compare("TopK", {Random({2, 5000}, 2), List({3000})}, {{"largest", largest}}, 2);
  }
  Compare("TopK", {Random({300}, 3, DType::kFloat64), List({200})}, {}, 2);
  Compare("TopK", {As(DType::kBFloat16, Random({2, 70}, 4)), List({70})}, {}, 2);
  std::vector<int64_t> wide(70);
  for (int64_t i = 0; i < 70; ++i) wide[static_cast<size_t>(i)] = INT64_MAX - i * 37 % 70;
  Compare("TopK", {Vector<int64_t>(wide), List({66})}, {{"largest", 0}}, 2);
  Compare("TopK", {Vector<uint64_t>({3, UINT64_MAX, 0, 7}), List({3})}, {}, 2);

  const Tensor k = List({65});
  const auto configs = CUDATopKOperator::Propose(
      {OperatorDef("TopK", {"X", "K"}, {"V", "I"}),
       std::vector<TensorInfo>{{DType::kFloat32, Shape{2, 100}}, TensorInfo::OfConstant(k)},
       std::vector<TensorInfo>{{DType::kFloat32, Shape{2, 65}}, {DType::kInt64, Shape{2, 65}}}});
  CHECK(configs[0].scratch_bytes == 2 * 128 * 16);
}

}  // namespace rows_test
