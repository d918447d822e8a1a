// The header that `opkit ops --emit cpp` writes: it compiles, and its functions call the operators.
#include <doctest/doctest.h>

#include "all_ops.hpp"
#include "awkward_ops.hpp"
#include "opkit/plugin/library.hpp"
#include "support/error_of.hpp"
#include "support/tensors.hpp"
#include "support/text.hpp"

namespace {

using opkit::Tensor;

TEST_CASE("a function has the inputs, attributes and defaults of its operator") {
  const Tensor x = Tensor::From<float>({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const Tensor w = Tensor::From<float>({1, 1, 2, 2}, {1, 0, 0, 1});
  CHECK(ops::Conv(x, w).ToVector<float>() == Floats{6, 8, 12, 14});
  CHECK(ops::Conv(x, w, {.strides = {{2, 2}}}).ToVector<float>() == Floats{6});
  const Tensor bias = Tensor::From<float>({1}, {100});
  CHECK(ops::Conv(x, w, bias, {.strides = {{2, 2}}}).ToVector<float>() == Floats{106});
  CHECK(ops::ConvAttributes().group == 1);
  CHECK(ops::ConvAttributes().auto_pad == "NOTSET");
  CHECK(Contains(ErrorOf([&] { ops::Conv(x, w, {.auto_pad = "same"}); }).message(), "auto_pad"));
  CHECK(ops::Conv(x, w, {.group = 1}, {.backends = "reference"}).numel() == 4);
}

TEST_CASE("a middle input can be left out, and inputs that repeat are a list") {
  const Tensor x = Tensor::From<float>({2}, {-5, 5}), y = Tensor::From<float>({1}, {7});
  const Tensor most = Tensor::From<float>({}, {1});
  CHECK(ops::Clip(x, Tensor(), most).ToVector<float>() == Floats{-5, 1});
  CHECK(ops::Concat({x, y, x}, {.axis = 0}).ToVector<float>() == Floats{-5, 5, 7, -5, 5});
  CHECK(ErrorOf([&] { ops::Concat({x, y}); }).code() == opkit::ErrorCode::kInvalidArgument);
}

TEST_CASE("several outputs are a struct, and outputs that repeat are a list") {
  const Tensor x = Tensor::From<float>({4}, {1, 4, 2, 3}), k = Tensor::From<int64_t>({1}, {2});
  const ops::TopKOutputs top = ops::TopK(x, k);
  CHECK(top.Values.ToVector<float>() == Floats{4, 3});
  CHECK(top.Indices.ToVector<int64_t>() == std::vector<int64_t>{1, 3});
  const std::vector<Tensor> parts = ops::Split(x, ops::SplitAttributes(), {.num_outputs = 2});
  REQUIRE(parts.size() == 2);
  CHECK(parts[1].ToVector<float>() == Floats{2, 3});
}

TEST_CASE("names that are none in C++ are changed, and reach the operator as they are") {
  opkit::Library library = opkit::Library::Load(OPKIT_TEST_AWKWARD);
  const Tensor x = Tensor::From<float>({2}, {1, 2});
  const ops::my_domain__scale_byAttributes defaults;
  CHECK(defaults.default_ == 2);
  CHECK(!defaults.a_b);  // "a.b"; "a_b" comes after it
  CHECK(defaults.a_b_ == 7);
  CHECK(defaults.class_ == std::vector<double>{0.5, -1e30, 1e30});
  CHECK(defaults.std == std::vector<std::string>{"a \"?\?/\\", "b"});
  CHECK(defaults.ToArguments_.empty());
  CHECK(!defaults._2d);
  opkit::Arguments more;
  more.Set("not described", 1);
  CHECK(ops::my_domain__scale_by(x, {.default_ = 3,
                                     .a_b = 4,
                                     .a_b_ = 5,
                                     .class_ = {0.5, 0.25},
                                     .arguments_ = Tensor::From<float>({1}, {2}),
                                     .more_ = {{x, x}},
                                     .int64_t = 1,
                                     .std = {},
                                     .opkit = true,
                                     ._2d = "",
                                     .any = 1.5,
                                     .more = more})
            .ToVector<float>() == Floats{2132, 2135});
  // Operators whose names would be those of the first one and of its attributes.
  CHECK(ops::my_domain__scale_by_(x).ToVector<float>() == Floats{1, 2});
  CHECK(ops::my_domain__scale_byAttributes_(x).ToVector<float>() == Floats{1, 2});
  CHECK(ops::std(x).ToVector<float>() == Floats{1, 2});
  const std::vector<Tensor> both = ops::class_({x, x}, {.num_outputs = 2});
  CHECK(both.at(1).ToVector<float>() == Floats{1, 2});
  library.Unload();
}

}  // namespace
