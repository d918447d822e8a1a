#include "opkit/core/attribute.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/error_of.hpp"
#include "support/lists.hpp"

namespace attribute_test { namespace {

using opkit::Arguments;
using opkit::Attribute;
using opkit::AttributeType;
using opkit::ErrorCode;
using opkit::Tensor;

enum class Mode { kFirst, kSecond };

TEST_CASE("an attribute has the type of its value") {
  CHECK(Attribute(3).type() == AttributeType::kInt);
  CHECK(Attribute(uint8_t{3}).type() == AttributeType::kInt);
  CHECK(Attribute('a').type() == AttributeType::kInt);
  CHECK(Attribute(Mode::kSecond).type() == AttributeType::kInt);
  CHECK(Attribute(2.f).type() == AttributeType::kFloat);
  CHECK(Attribute(2.0).type() == AttributeType::kFloat);
  CHECK(Attribute(true).type() == AttributeType::kBool);
  CHECK(Attribute("text").type() == AttributeType::kString);
  CHECK(Attribute(std::string("text")).type() == AttributeType::kString);
  CHECK(Attribute(std::string_view("text")).type() == AttributeType::kString);
  CHECK(Attribute(Tensor::Scalar(1.f)).type() == AttributeType::kTensor);
  CHECK(Attribute(std::vector<int>{1}).type() == AttributeType::kInts);
  CHECK(Attribute({1.f, 2.f}).type() == AttributeType::kFloats);
  CHECK(Attribute(std::vector<bool>{true}).type() == AttributeType::kBools);
  CHECK(Attribute({"a", "b"}).type() == AttributeType::kStrings);
  CHECK(Attribute(std::vector<Tensor>{Tensor::Scalar(1.f)}).type() == AttributeType::kTensors);
  CHECK(Attribute().Get<int>() == 0);
}

TEST_CASE("values come back, in any type of the kind that holds them") {
  CHECK(Attribute(-3).Get<int64_t>() == -3);
  CHECK(Attribute(-3).Get<int8_t>() == -3);
  CHECK(Attribute(200).Get<uint8_t>() == 200);
  CHECK(Attribute(Mode::kSecond).Get<Mode>() == Mode::kSecond);
  CHECK(Attribute(0.1f).Get<float>() == 0.1f);
  CHECK(Attribute(0.1).Get<double>() == 0.1);
  CHECK(Attribute(false).Get<bool>() == false);
  CHECK(Attribute("text").Get<std::string>() == "text");
  CHECK(Attribute(Tensor::Scalar(5)).Get<Tensor>().data<int>()[0] == 5);
  CHECK(Attribute({1, 2}).Get<std::vector<int64_t>>() == std::vector<int64_t>{1, 2});
  CHECK(Attribute({1, 2}).Get<std::vector<uint8_t>>() == std::vector<uint8_t>{1, 2});
  CHECK(Attribute({true, false}).Get<std::vector<bool>>() == std::vector<bool>{true, false});
  CHECK(Attribute({"a", "b"}).Get<Strings>() == Strings{"a", "b"});
  CHECK(Attribute(std::vector<Tensor>(2)).Get<std::vector<Tensor>>().size() == 2);
  CHECK(Attribute({1, 2}).size() == 2);
  CHECK(Attribute({1, 2}).is_list());
  CHECK(Attribute(1).size() == 1);
  CHECK_FALSE(Attribute(1).is_list());
}

TEST_CASE("integers read as floating-point numbers where these hold them exactly") {
  CHECK(Attribute(2).Get<float>() == 2.f);
  CHECK(Attribute(-(1 << 24)).Get<float>() == -16777216.f);
  CHECK(Attribute({1, 2}).Get<std::vector<float>>() == std::vector<float>{1, 2});
  CHECK(Attribute(int64_t{1} << 53).Get<double>() == 9007199254740992.);
  const auto error = ErrorOf([] { Attribute((1 << 24) + 1).Get<float>(); });
  CHECK(error.code() == ErrorCode::kOutOfRange);
  CHECK(error.message() ==
        "value 16777217 is not sure to be exact as the 32-bit floating-point "
        "number asked for");
  CHECK(ErrorOf([] {
          Attribute({int64_t{1}, INT64_MIN}).Get<std::vector<double>>();
        }).code() == ErrorCode::kOutOfRange);
  CHECK_FALSE(Attribute(2).Is<float>());
}

TEST_CASE("a value of another type is an error that names its type") {
  const auto error = ErrorOf([] { Attribute("2").Get<float>(); });
  CHECK(error.code() == ErrorCode::kTypeMismatch);
  CHECK(error.message() == "is string (\"2\"), but is read as float");
  CHECK(ErrorOf([] { Attribute({2}).Get<float>(); }).code() == ErrorCode::kTypeMismatch);
  CHECK(ErrorOf([] { Attribute(2.5f).Get<int>(); }).message() ==
        "is float (2.5), but is read as int");
  CHECK(ErrorOf([] { Attribute(true).Get<int>(); }).message() ==
        "is bool (true), but is read as int");
  CHECK(ErrorOf([] { Attribute(1).Get<bool>(); }).message() == "is int (1), but is read as bool");
  CHECK(ErrorOf([] { Attribute("x").Get<std::vector<int>>(); }).message() ==
        "is string (\"x\"), but is read as ints");
  CHECK(ErrorOf([] {
          Attribute({1, 2}).Get<int>();
        }).message() == "is ints ([1, 2]), but is read as int");
  CHECK(ErrorOf([] {
          Attribute({true, false}).Get<std::vector<int>>();
        }).message() == "is bools ([true, false]), but is read as ints");
  CHECK(Contains(ErrorOf([] { Attribute(Tensor::Scalar(1.f)).Get<std::string>(); }).message(),
                 "is tensor (float32[] on cpu), but is read as string"));
  CHECK(Attribute(2).Is<int>());
  CHECK_FALSE(Attribute(2).Is<float>());
  CHECK_FALSE(Attribute(2).Is<std::vector<int>>());
}

TEST_CASE("an integer that does not fit is an error, not another number") {
  CHECK(ErrorOf([] { Attribute(300).Get<uint8_t>(); }).message() ==
        "value 300 does not fit in the 8-bit unsigned integer asked for");
  CHECK(ErrorOf([] { Attribute(-1).Get<uint64_t>(); }).code() == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([] { Attribute(INT64_C(1) << 31).Get<int32_t>(); }).message() ==
        "value 2147483648 does not fit in the 32-bit signed integer asked for");
  CHECK(ErrorOf([] {
          Attribute({1, 1000}).Get<std::vector<int8_t>>();
        }).code() == ErrorCode::kOutOfRange);
  CHECK(Attribute(INT64_MIN).Get<int64_t>() == INT64_MIN);
  CHECK(Attribute(static_cast<uint64_t>(INT64_MAX)).Get<uint64_t>() ==
        static_cast<uint64_t>(INT64_MAX));
  CHECK(ErrorOf([] { static_cast<void>(Attribute(UINT64_MAX)); }).message() ==
        "attribute value 18446744073709551615 does not fit in int64");
}

TEST_CASE("an empty list reads as a list of anything") {
  const Attribute empty{std::vector<int>{}};
  CHECK(empty.Get<std::vector<int>>().empty());
  CHECK(empty.Get<Strings>().empty());
  CHECK(empty.Get<std::vector<Tensor>>().empty());
  CHECK(ErrorOf([&] { empty.Get<int>(); }).code() == ErrorCode::kTypeMismatch);
  CHECK(ToString(empty) == "[]");
}

TEST_CASE("attributes print as they are written") {
  CHECK(ToString(Attribute(-3)) == "-3");
  CHECK(ToString(Attribute(2.5)) == "2.5");
  CHECK(ToString(Attribute({1.5, 2.5})) == "[1.5, 2.5]");
  CHECK(ToString(Attribute({"a", "b"})) == "[\"a\", \"b\"]");
  CHECK(ToString(Attribute(Tensor::From<int>({1}, {4}))) == "int32[1] on cpu");
}

TEST_CASE("attributes are equal when types and values are, tensors when their contents are") {
  CHECK(Attribute(1) == Attribute(int8_t{1}));
  CHECK(Attribute(1) != Attribute(2));
  CHECK(Attribute(1) != Attribute(1.0));
  CHECK(Attribute(1) != Attribute(true));
  CHECK(Attribute(1) != Attribute({1}));
  CHECK(Attribute("a") == Attribute(std::string("a")));
  CHECK(Attribute({"a"}) != Attribute({"a", "b"}));

  const Tensor a = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  const Tensor transposed = Tensor::From<float>({2, 2}, {1, 3, 2, 4}).Permute({1, 0});
  CHECK(Attribute(a) == Attribute(a.Contiguous()));
  CHECK(Attribute(a) == Attribute(transposed));
  CHECK(Attribute(a) != Attribute(a.Permute({1, 0})));
  CHECK(Attribute(a) != Attribute(a.View({4})));
  CHECK(Attribute(a) != Attribute(Tensor::From<float>({2, 2}, {1, 2, 3, 5})));
  CHECK(Attribute(std::vector<Tensor>{a}) == Attribute(std::vector<Tensor>{a.Contiguous()}));
}

TEST_CASE("arguments are set, replaced, found and removed by name, in the order they were set") {
  Arguments args{{"alpha", 2.f}, {"axis", 1}};
  CHECK(args.size() == 2);
  CHECK(args.Names() == Strings{"alpha", "axis"});
  args.Set("mode", "fast");
  args.Set("alpha", 3.f);
  CHECK(args.Names() == Strings{"alpha", "axis", "mode"});
  CHECK(args.Get<float>("alpha") == 3.f);
  CHECK(args.Has("mode"));
  CHECK(args.Find("mode")->Get<std::string>() == "fast");
  CHECK(args.Remove("axis"));
  CHECK_FALSE(args.Remove("axis"));
  CHECK(args.Find("axis") == nullptr);
  CHECK(args == Arguments{{"alpha", 3.f}, {"mode", "fast"}});
  CHECK(args != Arguments{{"mode", "fast"}, {"alpha", 3.f}});
  CHECK(Arguments().empty());
}

TEST_CASE("an argument that a list gives twice is an error that shows both") {
  const auto error = ErrorOf([] { Arguments({{"alpha", 2.f}, {"axis", 1}, {"alpha", 3}}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() == "argument 'alpha' is given twice, as 2 and as 3");
}

TEST_CASE("a missing argument gives the default, or an error that names the nearest") {
  const Arguments args{{"alpha", 2.f}, {"axis", 1}};
  CHECK(args.Get<float>("beta", 5.f) == 5.f);
  CHECK(args.Get<std::vector<int>>("axes", {1, 2}) == std::vector<int>{1, 2});
  const auto error = ErrorOf([&] { args.Get<float>("alhpa"); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(error.message() == "no argument 'alhpa' (did you mean 'alpha'? known: 'alpha', 'axis')");
  CHECK(ErrorOf([] { Arguments().Get<int>("x"); }).message() == "no argument 'x'");
}

TEST_CASE("an argument of the wrong type is an error that names it, default or not") {
  const Arguments args{{"alpha", "2"}};
  for (const auto& error : {ErrorOf([&] { args.Get<float>("alpha"); }),
                            ErrorOf([&] { args.Get<float>("alpha", 1.f); })}) {
    CHECK(error.code() == ErrorCode::kTypeMismatch);
    CHECK(error.message() == "argument 'alpha': is string (\"2\"), but is read as float");
  }
}

}  // namespace
}  // namespace attribute_test
