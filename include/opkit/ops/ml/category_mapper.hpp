// CategoryMapper: the integer of each string, or the string of each integer. Source:
// https://onnx.ai/onnx/operators/onnx_aionnxml_CategoryMapper.html.
#ifndef OPKIT_OPS_ML_CATEGORY_MAPPER_HPP_
#define OPKIT_OPS_ML_CATEGORY_MAPPER_HPP_

#include <unordered_map>

#include "opkit/ops/ml/ml_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The pairs of a CategoryMapper.
struct CategoryPairs {
  std::vector<int64_t> numbers;
  std::vector<std::string> strings;

  // Throws kInvalidArgument unless the two lists have as many elements.
  explicit CategoryPairs(const OperatorDef& def)
      : numbers(IntList(def.args(), "cats_int64s")),
        strings(def.args().Get<std::vector<std::string>>("cats_strings", {})) {
    if (numbers.size() != strings.size())
      Throw(ErrorCode::kInvalidArgument, def.type(), " has ", numbers.size(),
            " integers in 'cats_int64s' and ", strings.size(),
            " strings in 'cats_strings', expected as many of both");
  }
};

inline void InferCategoryMapper(InferenceContext& c) {
  const CategoryPairs pairs(c.def());
  const DType x = c.input_dtype(0);
  c.SetOutput(0,
              x == DType::kString  ? DType::kInt64
              : x == DType::kInt64 ? DType::kString
                                   : DType::kUndefined,
              c.input_shape(0));
}

}  // namespace detail

class CategoryMapperOp final : public StandardOperator {
 public:
  CategoryMapperOp(const OperatorDef& def, Workspace* ws) : StandardOperator(def, ws) {
    const detail::CategoryPairs pairs(def);
    for (size_t i = 0; i < pairs.numbers.size(); ++i) {
      strings_[pairs.numbers[i]] = pairs.strings[i];
      numbers_[pairs.strings[i]] = pairs.numbers[i];
    }
  }
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (x.dtype() == DType::kString)
      Map(x, numbers_, GetSingleArgument<int64_t>("default_int64"), *y);
    else
      Map(x, strings_, GetSingleArgument<std::string>("default_string"), *y);
    return true;
  }

 private:
  template <class K, class V>
  static void Map(const Tensor& x, const std::unordered_map<K, V>& values, const V& otherwise,
                  Tensor& y) {
    const K* in = x.data<K>();
    V* out = y.mutable_data<V>();
    ParallelFor(x.numel(), [&](int64_t i) {
      const auto found = values.find(in[i]);
      out[i] = found == values.end() ? otherwise : found->second;
    });
  }

  std::unordered_map<int64_t, std::string> strings_;
  std::unordered_map<std::string, int64_t> numbers_;
};

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", CategoryMapper, kNone, CategoryMapperOp)
    .Doc(
        "Each string replaced by its integer, or each integer by its string. Of equal strings or "
        "integers the last counts. An element without a pair becomes the default.")
    .Input(0, "X", "strings or integers", {DType::kString, DType::kInt64})
    .Output(0, "Y", "of X's shape: integers for strings, strings for integers",
            {DType::kInt64, DType::kString})
    .Arg<std::vector<int64_t>>("cats_int64s", "the integers")
    .Arg<std::vector<std::string>>("cats_strings", "the string of each integer")
    .Arg<int64_t>("default_int64", "the default of strings", -1)
    .Arg<std::string>("default_string", "the default of integers", "_Unused")
    .Infer(&detail::InferCategoryMapper);

}}  // namespace opkit

#endif  // OPKIT_OPS_ML_CATEGORY_MAPPER_HPP_
