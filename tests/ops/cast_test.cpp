// Cast and CastLike.
#include "opkit/ops/cast.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "support/error_of.hpp"
#include "support/sanitizers.hpp"

namespace cast_test {
using namespace opkit;

namespace {

constexpr int64_t kOnnxFloat = 1, kOnnxInt32 = 6, kOnnxInt64 = 7, kOnnxString = 8, kOnnxBool = 9,
                  kOnnxFloat16 = 10;

Tensor Cast(const Tensor& x, int64_t to) { return Invoke("Cast", {x}, {{"to", to}})[0]; }

TEST_CASE("Cast truncates to integers, and anything but 0 is true") {
  const Tensor x = Tensor::From<float>({4}, {-1.7f, 0, 2.9f, NAN});
  CHECK(Cast(x, kOnnxInt32).ToVector<int32_t>() == std::vector<int32_t>{-1, 0, 2, 0});
  CHECK(Cast(x, kOnnxBool).ToVector<bool>() == std::vector<bool>{true, false, true, true});
  CHECK(Cast(Tensor::From<int64_t>({2}, {1, -2}), kOnnxFloat).ToVector<float>() ==
        std::vector<float>{1, -2});
  CHECK(Cast(Tensor::Scalar(65519.999), kOnnxFloat16).ToVector<float16>()[0].bits ==
        float16(65504).bits);
}

TEST_CASE("a byte of a bool that is neither 0 nor 1 is true") {
  Tensor x({2}, DType::kBool);
  std::memcpy(x.raw_mutable_data(), "\0\7", 2);
  CHECK(Cast(x, kOnnxInt64).ToVector<int64_t>() == std::vector<int64_t>{0, 1});
  CHECK(std::memcmp(Cast(x, kOnnxBool).raw_data(), "\0\1", 2) == 0);
}

TEST_CASE("0 and 1 survive a cast to every type and back") {
  for (const DType from : PlainTypes::DTypes())
    for (int64_t to = 1; to <= 16; ++to) {
      if (to == kOnnxString || to == 14 || to == 15) continue;
      CAPTURE(from);
      CAPTURE(to);
      Tensor x({2}, from);
      PlainTypes::Visit(from, [&]<class T>() {
        x.mutable_data<T>()[0] = static_cast<T>(0);
        x.mutable_data<T>()[1] = static_cast<T>(1);
      });
      CHECK(Cast(Cast(x, to), kOnnxFloat).ToVector<float>() == std::vector<float>{0, 1});
    }
}

// The elements of a small tensor, each in a float.
std::vector<float> SmallNumbers(const Tensor& tensor) {
  std::vector<float> out(detail::Index(tensor.numel()));
  detail::LoadSmall(tensor.dtype(), tensor.raw_data(), 0, tensor.numel(), out.data());
  return out;
}
// Every code of a small dtype, and the first ones again, so that the last byte is half used.
Tensor EveryCode(DType dtype) {
  const int64_t count = (1 << BitSize(dtype)) + 3;
  std::vector<uint8_t> codes(detail::Index(count));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  Tensor out({count}, dtype);
  detail::StoreCodes(dtype, codes.data(), 0, count, out.raw_mutable_data());
  return out;
}
bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.nbytes() == b.nbytes() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0;
}

TEST_CASE("every code of 2 to 8 bits becomes its number, and the number the code again") {
  for (int64_t number = 17; number <= 26; ++number) {
    const DType dtype = OnnxDType(number);
    CAPTURE(dtype);
    const Tensor x = EveryCode(dtype);
    const std::vector<float> want = SmallNumbers(x);
    const std::vector<float> found = Cast(x, kOnnxFloat).ToVector<float>();
    int differ = 0;
    for (size_t i = 0; i < want.size(); ++i)
      differ += !(want[i] == found[i] || (std::isnan(want[i]) && std::isnan(found[i])));
    CHECK(differ == 0);
    // By way of types that hold all its numbers; NaN comes back as another NaN at most.
    for (const int64_t wide : {kOnnxFloat, int64_t{11}, int64_t{16}, number}) {
      CAPTURE(wide);
      const Tensor back = Invoke("Cast", {Cast(x, wide)}, {{"to", number}, {"saturate", 0}})[0];
      const std::vector<float> again = SmallNumbers(back);
      for (size_t i = 0; i < want.size(); ++i)
        differ += !(want[i] == again[i] || (std::isnan(want[i]) && std::isnan(again[i])));
      CHECK(differ == 0);
      if (IsPacked(dtype)) CHECK(SameBytes(back, x));
    }
    const Tensor like = Invoke("CastLike", {Cast(x, kOnnxFloat), Tensor({0}, dtype)})[0];
    CHECK(SameBytes(like, Cast(Cast(x, kOnnxFloat), number)));
  }
}

TEST_CASE("integers of 2 and 4 bits are the low bits, with the sign of their type") {
  const Tensor x = Tensor::From<int16_t>({5}, {-9, -1, 3, 8, 255});
  const auto cast = [&](const Tensor& from, int64_t to) { return SmallNumbers(Cast(from, to)); };
  using Floats = std::vector<float>;
  CHECK(cast(x, 21) == Floats{7, 15, 3, 8, 15});
  CHECK(cast(x, 22) == Floats{7, -1, 3, -8, -1});
  CHECK(cast(x, 25) == Floats{3, 3, 3, 0, 3});
  CHECK(cast(x, 26) == Floats{-1, -1, -1, 0, -1});
  CHECK(cast(Tensor::From<double>({3}, {-1.9, 7.99999999999, NAN}), 22) == Floats{-1, 7, 0});
  CHECK(cast(Tensor::From<bool>({2}, {true, false}), 25) == Floats{1, 0});
  const Tensor negative = Cast(Tensor::From<int8_t>({2}, {-1, -8}), 22);
  CHECK(Cast(negative, 2).ToVector<uint8_t>() == std::vector<uint8_t>{255, 248});
  CHECK(cast(negative, 21) == Floats{15, 8});
  CHECK(cast(negative, 23) == Floats{-1, -6});
  CHECK(Cast(negative, kOnnxBool).ToVector<bool>() == std::vector<bool>{true, true});
}

TEST_CASE("saturate and round_mode say what is beyond a float8, and between two powers") {
  const Tensor x = Tensor::From<double>({3}, {1e30, 3, 0});
  const auto cast = [&](int64_t to, Arguments args) {
    args.Set("to", to);
    return SmallNumbers(Invoke("Cast", {x}, args)[0]);
  };
  using Floats = std::vector<float>;
  CHECK(cast(17, {}) == Floats{448, 3, 0});
  CHECK(std::isnan(cast(17, {{"saturate", 0}})[0]));
  CHECK(std::isinf(cast(19, {{"saturate", 0}})[0]));
  CHECK(cast(24, {})[1] == 4);
  CHECK(cast(24, {{"round_mode", "down"}})[1] == 2);
  CHECK(cast(24, {{"round_mode", "nearest"}})[1] == 4);
  CHECK(cast(24, {})[2] == 0x1p-127f);
  CHECK(std::isnan(cast(24, {{"saturate", 0}})[2]));
  // A double or an int64 is rounded once: this one is just above a tie of float8_e4m3fn.
  CHECK(SmallNumbers(Cast(Tensor::Scalar(1.0625 + 1e-12), 17))[0] == 1.125f);
  CHECK(SmallNumbers(Cast(Tensor::Scalar<int64_t>((int64_t{1} << 60) + 1), 24))[0] == 0x1p61f);
}

TEST_CASE("more elements than a block, an odd number, on all threads") {
  std::vector<int32_t> numbers(100003);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i % 16) - 8;
  const Tensor x = Tensor::From<int32_t>({100003}, numbers);
  const Tensor packed = Cast(x, 22);
  CHECK(packed.nbytes() == 50002);
  CHECK(Cast(packed, kOnnxInt32).ToVector<int32_t>() == numbers);
}

TEST_CASE("types that it does not convert to are refused") {
  const Tensor x = Tensor::Scalar(1.f);
  constexpr int64_t kOnnxComplex64 = 14;
  const Error complex = ErrorOf([&] { Cast(x, kOnnxComplex64); });
  CHECK(complex.code() == ErrorCode::kUnsupported);
  CHECK(Contains(complex.message(), "Cast: to=14 is a complex element type"));
  const Error unknown = ErrorOf([&] { Cast(x, 99); });
  CHECK(unknown.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(unknown.message(), "Cast: to=99 is no element type of ONNX"));
  CHECK(Contains(ErrorOf([&] { Invoke("Cast", {x}); }).message(), "needs the argument 'to'"));
}

TEST_CASE("numbers become the shortest text that reads back, and texts the number they spell") {
  using Strings = std::vector<std::string>;
  const auto texts = [](const Tensor& x) { return Cast(x, kOnnxString).ToVector<std::string>(); };
  const auto of = [](const Strings& values) {
    return Tensor::From(Shape{static_cast<int64_t>(values.size())}, values);
  };
  CHECK(texts(Tensor::From<float>({7}, {3.14f, -0.5f, 100, 1e20f, NAN, INFINITY, -INFINITY})) ==
        Strings{"3.14", "-0.5", "100", "1e+20", "NaN", "INF", "-INF"});
  CHECK(texts(Tensor::From<double>({2}, {0.1, 1e300})) == Strings{"0.1", "1e+300"});
  CHECK(texts(Tensor::From<float16>({1}, {float16(1.5f)})) == Strings{"1.5"});
  CHECK(texts(Tensor::From<int64_t>({2}, {INT64_MIN, 7})) == Strings{"-9223372036854775808", "7"});
  CHECK(texts(Tensor::From<bool>({2}, {true, false})) == Strings{"1", "0"});
  CHECK(texts(of({"as it is"})) == Strings{"as it is"});
  const Tensor numbers = of({"3.25", "-1e-5", "1E8", "+INF", "inf", "-Inf", " 7 ", "+2"});
  CHECK(Cast(numbers, kOnnxFloat).ToVector<float>() ==
        std::vector<float>{3.25f, -1e-5f, 1e8f, INFINITY, INFINITY, -INFINITY, 7, 2});
  CHECK(std::isnan(Cast(of({"nan"}), kOnnxFloat).data<float>()[0]));
  CHECK(Cast(of({"1e999"}), kOnnxFloat).data<float>()[0] == INFINITY);
  CHECK(Cast(of({"9223372036854775807", "100.5", "-3"}), kOnnxInt64).ToVector<int64_t>() ==
        std::vector<int64_t>{INT64_MAX, 100, -3});
  CHECK(Cast(of({"1", "0", "0.5"}), kOnnxBool).ToVector<bool>() ==
        std::vector<bool>{true, false, true});
  for (const char* text : {"Hello", "", " ", "1.5x", "--1", "+-1", "0x10"}) {
    CAPTURE(text);
    const Error error = ErrorOf([&] { Cast(of({text}), kOnnxFloat); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(error.message() == StrCat("Cast: the text '", text, "' is no number"));
  }
  CHECK(ErrorOf([&] { Cast(of({"3000000000"}), kOnnxInt32); }).message() ==
        "Cast: the text '3000000000' is outside int32");
  CHECK(Invoke("CastLike", {of({"4"}), Tensor::Scalar(1)})[0].data<int32_t>()[0] == 4);
  CHECK(ErrorOf([&] { Cast(Tensor(Shape{1}, DType::kComplex64), kOnnxString); }).code() ==
        ErrorCode::kTypeMismatch);
}

TEST_CASE("in place only between types of one size") {
  auto inplace = [](DType from, int64_t to) {
    const OperatorDef def("Cast", {"x"}, {"y"}, {{"to", to}});
    const std::vector<TensorInfo> inputs{TensorInfo(from, {4})};
    const auto outputs = OpRegistry::Global().GetSchema("Cast").InferOutputs(def, inputs);
    return KernelCandidates(def, inputs, outputs).back().config.inplace.size();
  };
  CHECK(inplace(DType::kFloat32, kOnnxInt32) == 1);
  CHECK(inplace(DType::kInt64, kOnnxInt32) == 0);
  CHECK(inplace(DType::kBool, kOnnxFloat) == 0);
}

TEST_CASE("CastLike converts to the type of its second input, whatever the shape of that is") {
  const Tensor x = Tensor::From<float>({2, 2}, {-1.7f, 0, 2.9f, NAN});
  const Tensor y = Invoke("CastLike", {x, Tensor(Shape{3, 0}, DType::kInt32)})[0];
  CHECK(y.shape() == Shape{2, 2});
  CHECK(y.ToVector<int32_t>() == std::vector<int32_t>{-1, 0, 2, 0});
  CHECK(ErrorOf([&] {
          Invoke("CastLike", {x, Tensor(Shape{1}, DType::kComplex64)});
        }).code() == ErrorCode::kTypeMismatch);
  CHECK(HasGradient("CastLike"));
  OPKIT_CHECK_OPERATOR("CastLike");
}

TEST_CASE("the gradient of Cast is converted back, and integers have none") {
  const auto gradient = [](int64_t to) {
    return GetGradientForOp(OperatorDef("Cast", {"x"}, {"y"}, {{"to", to}}), {GradientValue("g")});
  };
  CHECK(gradient(kOnnxFloat16).ops.size() == 1);
  CHECK(gradient(kOnnxInt64).ops.empty());
  CHECK(gradient(kOnnxInt64).g_input[0].IsEmpty());
  const auto result = CheckGradient(OperatorDef("Cast", {"x"}, {"y"}, {{"to", 11}}),
                                    {Tensor::From<float>({2}, {0.5f, -2})}, {.inputs = {0}});
  CHECK_MESSAGE(result.ok(), ToString(result));
}

TEST_CASE("the operator keeps the promises of its schema") {
#ifdef OPKIT_TESTS_ADDRESS_SANITIZER  // each reads all types, in 4 s of a core
  constexpr int64_t kTypes[] = {kOnnxFloat16};
#else
  constexpr int64_t kTypes[] = {kOnnxFloat, kOnnxInt64, kOnnxBool, kOnnxFloat16};
#endif
  for (const int64_t to : kTypes) {
    CheckOptions options;
    options.args = {{"to", to}};
    options.compare.gradient = false;  // a step is lost in a narrower type
    OPKIT_CHECK_OPERATOR("Cast", options);
  }
}

}  // namespace
}  // namespace cast_test
