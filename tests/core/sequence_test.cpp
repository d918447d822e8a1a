// Sequences, optional values and strings as elements of tensors.
#include "opkit/core/sequence.hpp"

#include <doctest/doctest.h>

#include "opkit/core/attribute.hpp"
#include "opkit/core/dlpack.hpp"
#include "opkit/device/copy.hpp"
#include "support/error_of.hpp"

namespace sequence_test { namespace {

using opkit::Attribute;
using opkit::Device;
using opkit::DeviceType;
using opkit::DType;
using opkit::ElementsOf;
using opkit::ErrorCode;
using opkit::MakeOptional;
using opkit::MakeSequence;
using opkit::Shape;
using opkit::Tensor;
using Strings = std::vector<std::string>;

const std::string kLong(100, 'x');  // longer than a string keeps in place
Tensor Texts() { return Tensor::From<std::string>({2, 2}, {"a", "", kLong, "d"}); }
Strings Of(const Tensor& tensor) { return tensor.ToVector<std::string>(); }

TEST_CASE("strings are copied one by one, dense and strided") {
  const Tensor x = Texts();
  CHECK(ToString(x) == "string[2, 2] on cpu");
  const Tensor copy = x.Contiguous();
  CHECK(!copy.SharesMemoryWith(x));
  CHECK(Of(copy) == Strings{"a", "", kLong, "d"});
  CHECK(Of(x.Permute({1, 0})) == Strings{"a", kLong, "", "d"});
  CHECK(Of(x.Slice(0, 1, 2)) == Strings{kLong, "d"});
  CHECK(Of(x.View({4})) == Strings{"a", "", kLong, "d"});
  Tensor copied;
  Copy(x, &copied);
  CHECK(Of(copied) == Of(x));
  CHECK(Attribute(copied) == Attribute(x));
  copied.mutable_data<std::string>()[3] = "e";
  CHECK(!(Attribute(copied) == Attribute(x)));
  Strings own{"p", "q"};
  CHECK(Of(Tensor::FromExternal(own.data(), {2}).Contiguous()) == own);
}

TEST_CASE("memory of strings is never used for numbers, nor memory of numbers for strings") {
  Tensor x({8, 8}, DType::kFloat32);
  x.Resize({2}, DType::kString);
  CHECK(Of(x) == Strings{"", ""});
  const void* const strings = x.raw_data();
  x.mutable_data<std::string>()[1] = kLong;
  x.Resize({1});
  CHECK(x.raw_data() == strings);
  x.Resize({1}, DType::kInt64);
  CHECK(x.raw_data() != strings);
  x.CopyFrom(Texts());
  CHECK(Of(x)[2] == kLong);
  const Tensor texts = Texts();
  const auto view = [&](Shape shape, DType dtype, int64_t offset) {
    return ErrorOf([&] { Tensor(texts.storage(), offset, std::move(shape), dtype); }).message();
  };
  CHECK(view({2}, DType::kInt64, 0) == "memory of string cannot be viewed as int64");
  CHECK(view({1}, DType::kString, 8) ==
        "memory of string cannot be viewed as string from the middle of an element on");
  CHECK(view({1}, DType::kSequence, 0) == "memory of string cannot be viewed as sequence");
  CHECK(view({5}, DType::kString, 0) ==
        opkit::StrCat("a view string[5] with strides[] at byte 0 does not fit in its storage of ",
                      4 * sizeof(std::string), " bytes"));
  CHECK(Of(Tensor(texts.storage(), 2 * sizeof(std::string), {2}, DType::kString)) ==
        Strings{kLong, "d"});
}

TEST_CASE("what has no bytes is refused by name") {
  const Tensor x = Texts();
  CHECK(Contains(ErrorOf([&] { static_cast<void>(x.nbytes()); }).what(), "string"));
  CHECK(ErrorOf([&] { x.data<float>(); }).code() == ErrorCode::kTypeMismatch);
  CHECK(ErrorOf([&] { ToDLPack(x); }).message() ==
        "cannot export tensor string[2, 2] on cpu to DLPack: its elements are not numbers");
  CHECK(ErrorOf([&] {
          Tensor({1}, DType::kString, Device{DeviceType::kCUDA, 0});
        }).code() == ErrorCode::kUnsupported);
}

TEST_CASE("a sequence shares its tensors, an optional value has one or none") {
  const Tensor a = Tensor::From<float>({2}, {1, 2}), b = Tensor::From<float>({}, {3});
  const Tensor sequence = MakeSequence({a, b});
  CHECK(ToString(sequence) == "sequence[2] on cpu");
  REQUIRE(ElementsOf(sequence).size() == 2);
  CHECK(ElementsOf(sequence)[0].raw_data() == a.raw_data());
  CHECK(ElementsOf(sequence)[1].shape() == Shape{});
  CHECK(ElementsOf(sequence.Contiguous())[1].raw_data() == b.raw_data());
  CHECK(Attribute(sequence) == Attribute(MakeSequence({a.Contiguous(), b})));
  CHECK(!(Attribute(sequence) == Attribute(MakeSequence({b, a}))));
  CHECK(ElementsOf(MakeSequence({})).empty());
  const Tensor present = MakeOptional(sequence);
  CHECK(present.shape() == Shape{1});
  CHECK(ElementsOf(ElementsOf(present)[0]).size() == 2);
  CHECK(MakeOptional(std::nullopt).shape() == Shape{0});
}

TEST_CASE("elements that do not belong together are refused") {
  const Tensor a = Tensor::Scalar(1.f), i = Tensor::Scalar(1);
  CHECK(ErrorOf([&] {
          MakeSequence({a, i});
        }).message() ==
        "a sequence cannot have the element int32[] on cpu beside float32[] on cpu");
  CHECK(ErrorOf([&] { MakeSequence({MakeSequence({a})}); }).code() == ErrorCode::kTypeMismatch);
  CHECK(ErrorOf([&] { MakeOptional(MakeOptional(a)); }).code() == ErrorCode::kTypeMismatch);
  CHECK(ErrorOf([&] { MakeSequence({Tensor()}); }).code() == ErrorCode::kUninitialized);
  CHECK(ErrorOf([&] { ElementsOf(a); }).code() == ErrorCode::kTypeMismatch);
}

}  // namespace
}  // namespace sequence_test
