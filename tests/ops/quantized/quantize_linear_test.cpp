// QuantizeLinear and DequantizeLinear: rounding, saturation, scales by tensor, axis and block.
// MapBytes, QLinearAdd and QLinearMul.
#include "opkit/ops/quantized/quantize_linear.hpp"

#include "opkit/ops/cast.hpp"
#include "opkit/ops/quantized/byte_elements.hpp"
#include "ops/data_movement.hpp"

namespace quantize_linear_test {
using namespace opkit_tests;

namespace {

template <class T>
std::vector<int> Quantized(const std::vector<Tensor>& inputs, Arguments args = {}) {
  const Tensor y = Invoke("QuantizeLinear", inputs, args)[0];
  const std::vector<T> values = y.ToVector<T>();
  return {values.begin(), values.end()};
}
using List32 = std::vector<int>;
Floats Dequantized(const std::vector<Tensor>& inputs, Arguments args = {}) {
  return FloatsOf(Invoke("DequantizeLinear", inputs, args)[0]);
}

TEST_CASE("halves are rounded to the even number, and numbers out of range saturate") {
  const Tensor two = Tensor::Scalar(2.f);
  const Tensor x = Vector({1, 3, 5, -1, -3, 1000, -1000, INFINITY, -INFINITY, 0});
  CHECK(Quantized<uint8_t>({x, two, Tensor::Scalar<uint8_t>(128)}) ==
        List32{128, 130, 130, 128, 126, 255, 0, 255, 0, 128});
  CHECK(Quantized<int8_t>({x, two, Tensor::Scalar<int8_t>(-1)}) ==
        List32{-1, 1, 1, -1, -3, 127, -128, 127, -128, -1});
  const Tensor far = Vector({70000, -70000, 3});
  CHECK(Quantized<int16_t>({far, two, Tensor::Scalar<int16_t>(7)}) == List32{32767, -32768, 9});
  CHECK(Quantized<uint16_t>({far, two, Tensor::Scalar<uint16_t>(65535)}) ==
        List32{65535, 30535, 65535});
  CHECK(Quantized<uint8_t>({Vector({NAN, 3}), two, Tensor::Scalar<uint8_t>(9)}) == List32{0, 11});
}

TEST_CASE("the type is that of the zero point, of output_dtype, or uint8") {
  const Tensor x = Vector({-3, 300}), one = Tensor::Scalar(1.f);
  CHECK(Quantized<uint8_t>({x, one}) == List32{0, 255});
  CHECK(Quantized<int16_t>({x, one}, {{"output_dtype", 5}}) == List32{-3, 300});
  CHECK(Inferred("QuantizeLinear", {{Sym("N"), 3}, {SymbolicShape()}}) == "uint8[N, 3]");
  CHECK(Inferred("QuantizeLinear", {{3}, {}}, {{"output_dtype", 22}}) == "int4[3]");
  CHECK(Contains(Refused("QuantizeLinear", {{3}, {}}, {{"output_dtype", 24}}),
                 "output_dtype is 24, expected the number of one of"));
  CHECK(Contains(Refused("QuantizeLinear", {{3}, {}}, {{"output_dtype", 1}}),
                 "output_dtype is 1, expected the number of one of"));
}

TEST_CASE("0 and 1 survive in every type that numbers are quantised to") {
  const Tensor x = Vector({0, 1, 0}), one = Tensor::Scalar(1.f);
  for (const DType dtype : QuantizedDTypes()) {
    CAPTURE(dtype);
    const Tensor q = Invoke("QuantizeLinear", {x, one}, {{"output_dtype", OnnxNumberOf(dtype)}})[0];
    CHECK(q.dtype() == dtype);
    CHECK(Dequantized({q, one}) == Floats{0, 1, 0});
    CHECK(Dequantized({Tensor({0}, dtype), one}).empty());
  }
}

TEST_CASE("an axis has a scale for each index, and the last axis too") {
  const Tensor x = Tensor::From<float>({2, 3, 2}, {2, 4, 3, 6, 5, 10, 20, 40, 30, 60, 50, 100});
  const Tensor scale = Vector({2, 3, 5}), zero = Vector<uint8_t>({0, 10, 100});
  const List32 want{1, 2, 11, 12, 101, 102, 10, 20, 20, 30, 110, 120};
  CHECK(Quantized<uint8_t>({x, scale, zero}) == want);
  CHECK(Quantized<uint8_t>({x, scale, zero}, {{"axis", -2}}) == want);
  const Tensor q = Invoke("QuantizeLinear", {x, scale, zero})[0];
  CHECK(Dequantized({q, scale, zero}) == FloatsOf(x));
  const Tensor rows = Tensor::From<int8_t>({2, 2}, {1, 2, 3, 4});
  CHECK(Dequantized({rows, Vector({10, 100}), Vector<int8_t>({1, -1})}) == Floats{0, 300, 20, 500});
  CHECK(Dequantized({rows, Vector({10, 100})}, {{"axis", 0}}) == Floats{10, 20, 300, 400});
}

TEST_CASE("blocks have a scale each, and the last block may be shorter") {
  const Tensor x = Tensor::From<int8_t>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor rows = Tensor::From<float>({2, 2}, {1, 10, 100, 1000});
  CHECK(Dequantized({x, rows}, {{"axis", 1}, {"block_size", 2}}) ==
        Floats{1, 2, 30, 400, 500, 6000});
  const Tensor turned = x.View({3, 2});
  CHECK(Dequantized({turned, rows}, {{"axis", 0}, {"block_size", 2}}) ==
        Floats{1, 20, 3, 40, 500, 6000});
  const Tensor one = Tensor::From<float>({2, 1}, {1, 10});
  CHECK(Dequantized({x, one}, {{"axis", 1}, {"block_size", 5}}) == Floats{1, 2, 3, 40, 50, 60});
  // Axes on both sides of the blocks.
  const Tensor ones = Tensor::From<int8_t>({2, 3, 2}, std::vector<int8_t>(12, 1));
  CHECK(Dequantized({ones, Counting({2, 2, 2})}, {{"block_size", 2}}) ==
        Floats{0, 1, 0, 1, 2, 3, 4, 5, 4, 5, 6, 7});
  // More elements than the kernel converts at once.
  const Tensor scales = Tensor::From<float>({3, 1, 300}, Floats(900, 2.f));
  const Tensor zeros = Filled({3, 1, 300}, 0);
  Tensor all = Filled({3, 2, 300}, 7);
  CHECK(Dequantized({Invoke("QuantizeLinear", {all, scales}, {{"block_size", 2}})[0], scales},
                    {{"block_size", 2}}) == Floats(1800, 8.f));
}

TEST_CASE("whole blocks of the last axis have a scale and a zero point each") {
  const Tensor x = Tensor::From<int8_t>({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor scales = Tensor::From<float>({2, 2}, {1, 10, 100, 1000});
  const Tensor zeros = Tensor::From<int8_t>({2, 2}, {1, 2, 3, 4});
  const Arguments args{{"block_size", 2}};
  CHECK(Dequantized({x, scales}, args) == Floats{1, 2, 30, 40, 500, 600, 7000, 8000});
  const Floats moved{0, 1, 10, 20, 200, 300, 3000, 4000};
  CHECK(Dequantized({x, scales, zeros}, args) == moved);
  CHECK(Quantized<int8_t>({Tensor::From<float>({2, 4}, moved), scales, zeros}, args) ==
        List32{1, 2, 3, 4, 5, 6, 7, 8});
}

// Returns saturate(round(x / scale) + zero), of two nearest integers the even one.
template <class T>
T Rounded(float x, float scale, T zero) {
  constexpr int kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
  const double number = std::nearbyint(x / scale) + static_cast<double>(zero);
  return static_cast<T>(number > kLow ? static_cast<int>((std::min)(number, double{kHigh})) : kLow);
}

TEST_CASE_TEMPLATE("the loops of every machine give the same bytes and floats", T, int8_t,
                   uint8_t) {
  constexpr int64_t kRuns = 3, kMost = 150;
  Floats x(kRuns * kMost), scales(kRuns * kMost);
  std::vector<T> zeros(kRuns * kMost), bytes(kRuns * kMost);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(static_cast<int>(i * 97 % 1201) - 600) / 4;  // halves, too
    scales[i] = static_cast<float>(1 + i % 3) / 4;
    zeros[i] = static_cast<T>(i * 11);
    bytes[i] = static_cast<T>(i * 7);
  }
  x[1] = NAN, x[2] = INFINITY, x[3] = -INFINITY, x[40] = 3e38f, x[41] = -0.f;
  for (const detail::QuantizeLoops<T>& loops : detail::AllQuantizeLoops<T>())
    for (const int64_t n : {int64_t{5}, int64_t{64}, kMost})
      for (const int steps : {0, 1, 2, 3}) {
        const int scale_step = steps / 2, zero_step = steps % 2;
        CAPTURE(n);
        CAPTURE(steps);
        const int64_t runs = scale_step == 0 ? kRuns : 1;
        const detail::ByteScales<T> by{scales.data(), zeros.data(), scale_step, zero_step};
        std::vector<T> y(detail::Index(runs * n)), want_bytes = y;
        Floats numbers(detail::Index(runs * n)), want = numbers;
        for (int64_t i = 0; i < runs * n; ++i) {
          const int64_t at = scale_step == 0 ? i / n : i;
          const float scale = scales[detail::Index(at)];
          const T zero = zeros[detail::Index(at * zero_step)];
          want_bytes[detail::Index(i)] = Rounded(x[detail::Index(i)], scale, zero);
          want[detail::Index(i)] = static_cast<float>(bytes[detail::Index(i)] - zero) * scale;
        }
        loops.quantize(x.data(), by, runs, n, y.data());
        CHECK(y == want_bytes);
        loops.dequantize(bytes.data(), by, runs, n, numbers.data());
        CHECK(numbers == want);
        const detail::FloatLimits limits = loops.limits(x.data() + 4, n);
        float low = 0, high = 0;
        for (int64_t i = 4; i < 4 + n; ++i) {
          low = (std::min)(low, x[detail::Index(i)]);
          high = (std::max)(high, x[detail::Index(i)]);
        }
        CHECK(limits.low == low);
        CHECK(limits.high == high);
        CHECK(loops.limits(x.data() + 1, 1).high == 0);  // NaN
      }
}

TEST_CASE("int32 and 16-bit scales") {
  CHECK(Dequantized({Vector<int32_t>({1 << 20, -3}), Tensor::Scalar(0.5f)}) ==
        Floats{1 << 19, -1.5f});
  const Tensor half =
      Invoke("DequantizeLinear", {Vector<uint16_t>({3, 65535}), Tensor::Scalar(float16(0.5f)),
                                  Tensor::Scalar<uint16_t>(1)})[0];
  CHECK(half.dtype() == DType::kFloat16);
  CHECK(half.ToVector<float16>()[0] == 1.f);
  CHECK(half.ToVector<float16>()[1] == 32768.f);
  CHECK(Quantized<int8_t>({Vector<float16>({float16(3.f), float16(-5.f)}),
                           Tensor::Scalar(float16(2.f)), Tensor::Scalar<int8_t>(0)}) ==
        List32{2, -2});
  CHECK(Quantized<uint8_t>({Vector<int32_t>({3, 5}), Tensor::Scalar(2.f)}) == List32{2, 2});
}

// The elements of a small tensor, each in a float.
Floats SmallNumbers(const Tensor& tensor) {
  Floats out(detail::Index(tensor.numel()));
  detail::LoadSmall(tensor.dtype(), tensor.raw_data(), 0, tensor.numel(), out.data());
  return out;
}

TEST_CASE("a scale of integers divides in double") {
  CHECK(Quantized<int8_t>({Vector<int32_t>({3, 5, -7, 1000}), Tensor::Scalar<int32_t>(2),
                           Tensor::Scalar<int8_t>(1)}) == List32{3, 3, -3, 127});
  // The quotient is a little less than 1999.5, to which float32 would round it.
  CHECK(Quantized<uint16_t>({Vector<int32_t>({2096629711}), Tensor::Scalar<int32_t>(1048577),
                             Tensor::Scalar<uint16_t>(0)}) == List32{1999});
  const Tensor x = Tensor::From<float>({2, 3}, {2.5f, 9, 4, 7.5f, 90, -4});
  CHECK(Quantized<int8_t>({x, Vector<int32_t>({2, 10, 1}), Vector<int8_t>({0, 0, 5})}) ==
        List32{1, 1, 9, 4, 9, 1});
  CHECK(Quantized<uint8_t>({x, Tensor::From<int32_t>({2, 2}, {2, 4, 10, 1})},
                           {{"block_size", 2}}) == List32{1, 4, 1, 1, 9, 0});
  CHECK(
      SmallNumbers(Invoke("QuantizeLinear", {Vector<int32_t>({3, -5}), Tensor::Scalar<int32_t>(2)},
                          {{"output_dtype", 17}})[0]) == Floats{1.5f, -2.5f});
  CHECK(Contains(ErrorOf([] {
                   Invoke("DequantizeLinear", {Vector<int8_t>({3}), Tensor::Scalar<int32_t>(2)});
                 }).message(),
                 "int32"));
}

TEST_CASE("integers of 2 and 4 bits saturate, and an odd number of them is packed") {
  const Tensor x = Vector({-100, -3, -1, 0, 1, 5, 100}), two = Tensor::Scalar(2.f);
  const auto quantized = [&](int number) {
    return Invoke("QuantizeLinear", {x, two}, {{"output_dtype", number}})[0];
  };
  CHECK(SmallNumbers(quantized(22)) == Floats{-8, -2, 0, 0, 0, 2, 7});
  CHECK(SmallNumbers(quantized(21)) == Floats{0, 0, 0, 0, 0, 2, 15});
  CHECK(SmallNumbers(quantized(26)) == Floats{-2, -2, 0, 0, 0, 1, 1});
  CHECK(SmallNumbers(quantized(25)) == Floats{0, 0, 0, 0, 0, 2, 3});
  CHECK(quantized(21).nbytes() == 4);
  const Tensor zero = Invoke("Cast", {Vector({3})}, {{"to", 21}})[0];
  const Tensor y = Invoke("QuantizeLinear", {x, two, zero})[0];
  CHECK(SmallNumbers(y) == Floats{0, 1, 3, 3, 3, 5, 15});
  CHECK(Dequantized({y, two, zero}) == Floats{-6, -4, 0, 0, 0, 4, 24});
}

TEST_CASE("packed elements have scales of an axis and of blocks") {
  const Tensor x =
      Invoke("Cast", {Tensor::From<float>({3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9})}, {{"to", 21}})[0];
  CHECK(Dequantized({x, Vector({1, 10, 100})}, {{"axis", 0}}) ==
        Floats{1, 2, 3, 40, 50, 60, 700, 800, 900});
  CHECK(Dequantized({x, Vector({1, 10, 100})}) == Floats{1, 20, 300, 4, 50, 600, 7, 80, 900});
  const Tensor blocks = Tensor::From<float>({3, 2}, {1, 10, 1, 100, 1, 1000});
  const Arguments args{{"block_size", 2}};
  CHECK(Dequantized({x, blocks}, args) == Floats{1, 2, 30, 4, 5, 600, 7, 8, 9000});
  // More elements than the kernel converts at once, in runs of an odd length, on all threads.
  Floats numbers(7 * 3333);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 16) - 8;
  const Tensor many = Tensor::From<float>({7, 3333}, numbers);
  const Tensor scales = Vector({1, 1, 1, 1, 1, 1, 1});
  const Tensor packed =
      Invoke("QuantizeLinear", {many, scales}, {{"axis", 0}, {"output_dtype", 22}})[0];
  CHECK(Dequantized({packed, scales}, {{"axis", 0}}) == numbers);
}

TEST_CASE("numbers of 4 and 8 bits are rounded to the nearest one") {
  const Tensor x = Vector({-1000, 2.1f, 20, 1e9f}), two = Tensor::Scalar(2.f);
  const auto quantized = [&](int number, int saturate = 1) {
    return SmallNumbers(
        Invoke("QuantizeLinear", {x, two}, {{"output_dtype", number}, {"saturate", saturate}})[0]);
  };
  CHECK(quantized(17) == Floats{-448, 1, 10, 448});
  CHECK(quantized(18) == Floats{-240, 1, 10, 240});
  CHECK(quantized(19) == Floats{-512, 1, 10, 57344});
  CHECK(quantized(20) == Floats{-512, 1, 10, 57344});
  CHECK(quantized(23) == Floats{-6, 1, 6, 6});
  CHECK(std::isnan(quantized(17, 0)[3]));
  CHECK(std::isinf(quantized(19, 0)[3]));
  const Tensor small = Tensor::From<float8_e4m3fn>({2}, {3.f, -448.f});
  CHECK(Dequantized({small, two, Tensor::Scalar(float8_e4m3fn(1.f))}) == Floats{4, -898});
  const Tensor powers = Tensor::From<float8_e8m0fnu>({2}, {0.25f, 8.f});
  CHECK(Dequantized({small, powers}, {{"axis", 0}, {"output_dtype", 1}}) == Floats{0.75f, -3584});
  CHECK(Contains(
      Refused("DequantizeLinear", {{DType::kInt8, {2}}, {DType::kFloat8E8M0, {2}}}, {{"axis", 0}}),
      "output_dtype must say the output's type"));
  CHECK(Contains(Refused("DequantizeLinear", {{DType::kInt8, {2}}, {2}}, {{"output_dtype", 6}}),
                 "output_dtype is 6"));
}

TEST_CASE("shapes that do not fit are refused") {
  CHECK(Contains(Refused("QuantizeLinear", {{2, 3}, {2}}),
                 "expected one scale, or one for each index of axis 1"));
  CHECK(Contains(Refused("QuantizeLinear", {{2, 3}, {3}}, {{"axis", 2}}), "axis is 2"));
  CHECK(Contains(Refused("QuantizeLinear", {{2, 3}, {2, 1}}, {{"block_size", 2}}),
                 "expected 2 scales along axis 1"));
  CHECK(Contains(Refused("QuantizeLinear", {{2, 3}, {2}}, {{"block_size", 2}}), "equal ranks"));
  CHECK(Contains(Refused("QuantizeLinear", {{2, 3}, {3}}, {{"block_size", -1}}),
                 "expected 0 or more"));
  CHECK(Contains(Refused("DequantizeLinear", {{DType::kInt8, {2, 3}}, {3}, {DType::kUInt8, {3}}}),
                 "int8"));
  CHECK(Inferred("DequantizeLinear", {{DType::kInt8, {Sym("N"), 3}}, {3}}) == "float32[N, 3]");
}

TEST_CASE("the operators keep the promises of their schemas") {
  const Tensor scale = Vector({0.5f, 0.25f, 2});
  CheckNode(OperatorDef("QuantizeLinear", {"x", "s", "z"}, {"y"}),
            {Counting({2, 3, 2}), scale, Vector<int8_t>({1, 2, 3})});
  CheckNode(OperatorDef("DequantizeLinear", {"x", "s"}, {"y"}),
            {Counting({2, 3, 2}, DType::kUInt8), scale});
  CheckNode(OperatorDef("DequantizeLinear", {"x", "s"}, {"y"}),
            {Counting({2, 3, 0}, DType::kUInt8), scale});
  CHECK(!HasGradient("QuantizeLinear"));
}

constexpr const char *kMap = "opkit.MapBytes", *kAdd = "com.microsoft.QLinearAdd";

TEST_CASE("every loop looks up all bytes, of any number") {
  std::vector<uint8_t> x(300), table(256);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * 7);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint8_t>(i * 3 + 1);
  for (const detail::MapLoop loop : detail::MapLoops())
    for (const size_t n : {size_t{3}, x.size()}) {
      std::vector<uint8_t> y(n), want(n);
      for (size_t i = 0; i < n; ++i) want[i] = static_cast<uint8_t>(x[i] * 3 + 1);
      loop(x.data(), table.data(), static_cast<int64_t>(n), y.data());
      CHECK(y == want);
    }
}

TEST_CASE("a table has the type of the result, and negative numbers in its second half") {
  Tensor table({256}, DType::kUInt8);
  for (int i = 0; i < 256; ++i) table.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(255 - i);
  const Tensor y = Invoke(kMap, {Tensor::From<int8_t>({2, 2}, {0, 5, -1, -128}), table})[0];
  CHECK(y.shape() == Shape{2, 2});
  CHECK(y.ToVector<uint8_t>() == std::vector<uint8_t>{255, 250, 0, 127});
  CHECK(Contains(Refused(kMap, {{DType::kUInt8, {3}}, {DType::kUInt8, {255}}}), "256"));
  CHECK(Contains(Refused(kMap, {{DType::kFloat32, {3}}, {DType::kUInt8, {256}}}), "float32"));
  CheckNode(OperatorDef(kMap, {"x", "t"}, {"y"}), {Vector<uint8_t>({3, 200}), table});
}

TEST_CASE_TEMPLATE("every loop adds and multiplies alike", T, int8_t, uint8_t) {
  std::vector<T> a(200), b(200);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(i * 5), b[i] = static_cast<T>(i * 3);
  // Scales that are powers of two leave nothing to round before the result.
  const auto check = [&]<bool kIsProduct>(std::bool_constant<kIsProduct>) {
    for (const detail::CombineLoop<T> loop : detail::CombineLoops<T, kIsProduct>())
      for (const int64_t step : {0, 1}) {
        const detail::QuantizedElements<T> left{a.data(), 1, 0.5f, 3}, right{b.data(), step, 2, -1};
        std::vector<T> y(a.size()), swapped(a.size()), want(a.size());
        for (size_t i = 0; i < a.size(); ++i) {
          const float p = static_cast<float>(a[i] - 3) / 2;
          const float q = static_cast<float>(b[step ? i : 0] + 1) * 2;
          want[i] = detail::Quantize<T>((kIsProduct ? p * q : p + q) / 4, 7);
        }
        loop(left, right, 4, 7, static_cast<int64_t>(a.size()), y.data());
        loop(right, left, 4, 7, static_cast<int64_t>(a.size()), swapped.data());
        CHECK(y == want);
        CHECK(swapped == want);
      }
  };
  check(std::false_type());
  check(std::true_type());
}

TEST_CASE("QLinearAdd broadcasts, and lacks no zero point") {
  const Tensor a = Tensor::From<uint8_t>({2, 2}, {10, 20, 30, 40});
  const Tensor row = Tensor::From<uint8_t>({2}, {1, 2}), one = Tensor::Scalar(1.f);
  CHECK(
      Invoke(kAdd, {a, one, Tensor(), row, Tensor::Scalar(10.f), Tensor(), Tensor::Scalar(2.f)})[0]
          .ToVector<uint8_t>() == std::vector<uint8_t>{10, 20, 20, 30});
  const Known scale(DType::kFloat32, {}), bytes(DType::kUInt8, {Sym("N"), 3});
  CHECK(Inferred(kAdd, {bytes, scale, kLeftOut, bytes, scale, kLeftOut, scale}) == "uint8[N, 3]");
  CHECK(Contains(
      Refused(kAdd, {bytes, Known(DType::kFloat32, {2}), kLeftOut, bytes, scale, kLeftOut, scale}),
      "expected one element"));
  CHECK(!Refused(kAdd, {bytes, scale, kLeftOut, Known(DType::kInt8, {3}), scale, kLeftOut, scale})
             .empty());
}

}  // namespace
}  // namespace quantize_linear_test
