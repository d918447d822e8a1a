// ArrayFeatureExtractor, FeatureVectorizer, Imputer, OneHotEncoder, LabelEncoder and
// CategoryMapper.
#include "opkit/ops/ml/features.hpp"

#include "../data_movement.hpp"
#include "opkit/ops/ml/category_mapper.hpp"

namespace features_test {
using namespace opkit_tests;

namespace {

Tensor Run(const char* op, const std::vector<Tensor>& inputs, Arguments args = {}) {
  return Invoke(StrCat("ai.onnx.ml.", op), inputs, std::move(args))[0];
}
std::string WhyNot(const char* op, const std::vector<Tensor>& inputs, Arguments args = {}) {
  return ErrorOf([&] { Run(op, inputs, args); }).message();
}

TEST_CASE("columns are extracted by their indices") {
  const Tensor z = Run("ArrayFeatureExtractor", {Counting({2, 3}), List({2, 0})});
  CHECK(z.shape() == Shape{2, 2});
  CHECK(FloatsOf(z) == Floats{2, 0, 5, 3});
  CHECK(Run("ArrayFeatureExtractor", {Counting({3}), List({1})}).shape() == Shape{1, 1});
  CHECK(Run("ArrayFeatureExtractor", {Counting({3}), Tensor::From<int64_t>({1, 2}, {0, 1})})
            .shape() == Shape{1, 2});
  // Indices of any shape are one list.
  const Tensor flat = Run("ArrayFeatureExtractor",
                          {Counting({4}), Tensor::From<int64_t>({3, 2}, {0, 1, 2, 3, 2, 1})});
  CHECK(flat.shape() == Shape{1, 6});
  CHECK(FloatsOf(flat) == Floats{0, 1, 2, 3, 2, 1});
  CHECK(Contains(WhyNot("ArrayFeatureExtractor", {Counting({2, 3}), List({3})}),
                 "index 3 is not a column"));
}

TEST_CASE("inputs become columns of one tensor") {
  const Tensor y = Run("FeatureVectorizer", {Counting({2, 2}), Counting({2, 1})},
                       {{"inputdimensions", Ints{2, 1}}});
  CHECK(FloatsOf(y) == Floats{0, 1, 0, 2, 3, 1});
  CHECK(FloatsOf(Run("FeatureVectorizer", {List({7, 8})})) == Floats{7, 8});
  CHECK(Contains(WhyNot("FeatureVectorizer", {Counting({2, 2}), Counting({3, 1})}), "rows"));
  CHECK(Contains(WhyNot("FeatureVectorizer", {Counting({2, 2})}, {{"inputdimensions", Ints{3}}}),
                 "but 'inputdimensions' says 3"));
}

TEST_CASE("values are replaced by column, NaN too") {
  const Tensor x = Tensor::From<float>({2, 2}, {1, NAN, NAN, 4});
  CHECK(FloatsOf(Run("Imputer", {x},
                     {{"replaced_value_float", NAN}, {"imputed_value_floats", Floats{7, 8}}})) ==
        Floats{1, 8, 7, 4});
  CHECK(Run("Imputer", {List({0, 5})}, {{"imputed_value_int64s", Ints{9}}}).ToVector<int64_t>() ==
        Ints{9, 5});
  CHECK(Contains(WhyNot("Imputer", {x}, {{"imputed_value_int64s", Ints{9}}}), "the values are"));
  CHECK(Contains(WhyNot("Imputer", {x}), "expected 'imputed_value_floats'"));
}

TEST_CASE("categories become places of a 1") {
  const Arguments args = {{"cats_int64s", Ints{5, 3}}};
  const Tensor y = Run("OneHotEncoder", {Vector<float>({3, 4, 5.5f})}, args);
  CHECK(y.shape() == Shape{3, 2});
  CHECK(FloatsOf(y) == Floats{0, 1, 0, 0, 1, 0});
  // The last of equal categories counts, as in LabelEncoder.
  CHECK(FloatsOf(Run("OneHotEncoder", {List({5, 3})}, {{"cats_int64s", Ints{5, 3, 5}}})) ==
        Floats{0, 0, 1, 0, 1, 0});
  CHECK(FloatsOf(Run("OneHotEncoder", {Tensor::From<std::string>({1}, {"a"})},
                     {{"cats_strings", std::vector<std::string>{"a", "b", "a"}}})) ==
        Floats{0, 0, 1});
  Arguments strict = args;
  strict.Set("zeros", 0);
  CHECK(
      Contains(WhyNot("OneHotEncoder", {List({3, 4})}, strict), "4 is not one of the categories"));
  CHECK(Contains(
      WhyNot("OneHotEncoder", {List({3})}, {{"cats_strings", std::vector<std::string>{"a"}}}),
      "the categories are strings"));
}

TEST_CASE("labels are replaced by the values of their keys") {
  CHECK(FloatsOf(Run("LabelEncoder", {List({1, 2, 3})},
                     {{"keys_int64s", Ints{1, 2, 2}},
                      {"values_floats", Floats{10, 20, 30}},
                      {"default_float", 7.f}})) == Floats{10, 30, 7});
  CHECK(Run("LabelEncoder", {Vector<float>({NAN, -0.f, 2})},
            {{"keys_floats", Floats{NAN, 0}}, {"values_int64s", Ints{5, 6}}})
            .ToVector<int64_t>() == Ints{5, 6, -1});
  CHECK(Run("LabelEncoder", {Vector<double>({.5, 1})},
            {{"keys_tensor", Vector<double>({.5})},
             {"values_tensor", Vector<int16_t>({4})},
             {"default_tensor", Vector<int16_t>({9})}})
            .ToVector<int16_t>() == std::vector<int16_t>{4, 9});
  CHECK(Contains(WhyNot("LabelEncoder", {List({1})},
                        {{"keys_int64s", Ints{1, 2}}, {"values_int64s", Ints{1}}}),
                 "has 2 keys and 1 values"));
}

TEST_CASE("categories and labels may be strings") {
  using Strings = std::vector<std::string>;
  const Tensor words = Tensor::From<std::string>({3}, {"a", "b", "c"});
  CHECK(Run("LabelEncoder", {words},
            {{"keys_strings", Strings{"b", "c"}}, {"values_int64s", Ints{5, 6}}})
            .ToVector<int64_t>() == Ints{-1, 5, 6});
  CHECK(Run("LabelEncoder", {List({2, 3})},
            {{"keys_int64s", Ints{3}}, {"values_strings", Strings{"three"}}})
            .ToVector<std::string>() == Strings{"_Unused", "three"});
  CHECK(Run("LabelEncoder", {words},
            {{"keys_tensor", Tensor::From<std::string>({1}, {"c"})},
             {"values_strings", Strings{"z"}},
             {"default_string", "?"}})
            .ToVector<std::string>() == Strings{"?", "?", "z"});
  CHECK(Run("OneHotEncoder", {words}, {{"cats_strings", Strings{"c", "a"}}}).ToVector<float>() ==
        Floats{0, 1, 0, 0, 1, 0});
  CHECK(Contains(
      WhyNot("OneHotEncoder", {words}, {{"cats_strings", Strings{"c", "a"}}, {"zeros", 0}}),
      "'b' is not one of the categories"));
  CHECK(Contains(WhyNot("OneHotEncoder", {List({1})}, {{"cats_strings", Strings{"c"}}}),
                 "but the categories are strings"));
  CHECK(Contains(WhyNot("LabelEncoder", {List({1})},
                        {{"keys_strings", Strings{"a"}}, {"values_int64s", Ints{1}}}),
                 "expected one of [string]"));
  CHECK(Run("ArrayFeatureExtractor", {words, List({2, 0})}).ToVector<std::string>() ==
        Strings{"c", "a"});
}

TEST_CASE("strings become their integers, and integers their strings") {
  using Strings = std::vector<std::string>;
  const Arguments args = {{"cats_int64s", Ints{1, 2, 1, 3}},
                          {"cats_strings", Strings{"a", "b", "c", "a"}}};
  const Tensor numbers =
      Run("CategoryMapper", {Tensor::From<std::string>({2, 2}, {"a", "b", "", "c"})}, args);
  CHECK(numbers.shape() == Shape{2, 2});
  CHECK(numbers.ToVector<int64_t>() == Ints{3, 2, -1, 1});
  CHECK(Run("CategoryMapper", {List({1, 2, 4, 3})}, args).ToVector<std::string>() ==
        Strings{"c", "b", "_Unused", "a"});

  Arguments defaults = args;
  defaults.Set("default_int64", -7);
  defaults.Set("default_string", "?");
  CHECK(Run("CategoryMapper", {Tensor::From<std::string>({1}, {"z"})}, defaults)
            .ToVector<int64_t>() == Ints{-7});
  CHECK(Run("CategoryMapper", {List({9})}, defaults).ToVector<std::string>() == Strings{"?"});

  CHECK(Contains(WhyNot("CategoryMapper", {List({1})},
                        {{"cats_int64s", Ints{1, 2}}, {"cats_strings", Strings{"a"}}}),
                 "has 2 integers in 'cats_int64s' and 1 strings in 'cats_strings'"));
  CHECK(Contains(WhyNot("CategoryMapper", {Vector<float>({1})}, args), "expected one of"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  CheckNode(OperatorDef("ai.onnx.ml.ArrayFeatureExtractor", {"x", "i"}, {"z"}),
            {Counting({2, 3}), List({2, 0})});
  CheckNode(OperatorDef("ai.onnx.ml.FeatureVectorizer", {"a", "b"}, {"y"}),
            {Counting({2, 2}), Counting({2, 1})});
  CheckNode(OperatorDef("ai.onnx.ml.Imputer", {"x"}, {"y"}, {{"imputed_value_floats", Floats{7}}}),
            {Counting({2, 2})});
  CheckNode(OperatorDef("ai.onnx.ml.OneHotEncoder", {"x"}, {"y"}, {{"cats_int64s", Ints{0, 1}}}),
            {Counting({3})});
  CheckNode(OperatorDef("ai.onnx.ml.LabelEncoder", {"x"}, {"y"},
                        {{"keys_int64s", Ints{1}}, {"values_int64s", Ints{2}}}),
            {List({1, 2})});
  CheckNode(
      OperatorDef("ai.onnx.ml.CategoryMapper", {"x"}, {"y"},
                  {{"cats_int64s", Ints{1}}, {"cats_strings", std::vector<std::string>{"a"}}}),
      {List({1, 2})});
}

}  // namespace
}  // namespace features_test
