// Cast and CastLike.
#include "opkit/ops/cast.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "opkit/interop/doctest.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "support/error_of.hpp"

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

TEST_CASE("types that it does not convert to are refused") {
  const Tensor x = Tensor::Scalar(1.f);
  const Error string = ErrorOf([&] { Cast(x, kOnnxString); });
  CHECK(string.code() == ErrorCode::kUnsupported);
  CHECK(Contains(string.message(), "Cast: to=8 is an element type (string"));
  const Error unknown = ErrorOf([&] { Cast(x, 99); });
  CHECK(unknown.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(unknown.message(), "Cast: to=99 is no element type of ONNX"));
  CHECK(Contains(ErrorOf([&] { Invoke("Cast", {x}); }).message(), "needs the argument 'to'"));
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

TEST_CASE("the operator keeps the promises of its schema") {
  for (const int64_t to : {kOnnxFloat, kOnnxInt64, kOnnxBool, kOnnxFloat16}) {
    CheckOptions options;
    options.args = {{"to", to}};
    OPKIT_CHECK_OPERATOR("Cast", options);
  }
}

}  // namespace
}  // namespace cast_test
