// TfIdfVectorizer: counts n-grams, runs of n words, in rows of words. Source:
// https://onnx.ai/onnx/operators/onnx__TfIdfVectorizer.html, opset 9.
#ifndef OPKIT_OPS_TEXT_TF_IDF_VECTORIZER_HPP_
#define OPKIT_OPS_TEXT_TF_IDF_VECTORIZER_HPP_

#include <algorithm>
#include <map>

#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

using TfIdfTypes = ElementTypes<int32_t, int64_t>;

// Returns the number of columns of the output. Throws kInvalidArgument for wrong indices.
inline int64_t TfIdfColumns(const Arguments& args) {
  int64_t columns = 0;
  for (const int64_t index : args.Get<std::vector<int64_t>>("ngram_indexes", {})) {
    constexpr int64_t kMost = int64_t{1} << 40;
    if (index < 0 || index >= kMost)
      Throw(ErrorCode::kInvalidArgument, "TfIdfVectorizer: 'ngram_indexes' has ", index,
            ", expected columns of the output");
    columns = (std::max)(columns, index + 1);
  }
  return columns;
}

// The n-grams of a node, whose words are of type Word, and the place of each in the pool.
template <class Word>
class NgramTable {
 public:
  NgramTable() = default;
  // The words of the 1-grams stand from counts[0] on in `pool`, those of the 2-grams from counts[1]
  // on, and so on. `columns` is the number of columns that the node names. Throws kInvalidArgument
  // unless the lists fit each other.
  NgramTable(const std::vector<Word>& pool, const std::vector<int64_t>& counts, size_t columns) {
    size_t number = 0;
    for (size_t n = 1; n <= counts.size(); ++n) {
      const int64_t begin = counts[n - 1];
      const int64_t end = n < counts.size() ? counts[n] : static_cast<int64_t>(pool.size());
      if (begin < 0 || end < begin || end > static_cast<int64_t>(pool.size()) ||
          static_cast<size_t>(end - begin) % n != 0)
        Throw(ErrorCode::kInvalidArgument, "TfIdfVectorizer: 'ngram_counts' ", counts,
              " does not divide the ", pool.size(), " words of the pool into ", n, "-grams");
      for (auto word = pool.begin() + begin; word != pool.begin() + end;
           word += static_cast<std::ptrdiff_t>(n), ++number)
        places_.emplace(std::vector<Word>(word, word + static_cast<std::ptrdiff_t>(n)), number);
    }
    if (number != columns)
      Throw(ErrorCode::kInvalidArgument, "TfIdfVectorizer: 'ngram_indexes' has ", columns,
            " columns, but the pool has ", number, " n-grams");
  }
  // Returns the place of an n-gram among those of the pool, null if the pool does not have it.
  const size_t* PlaceOf(const std::vector<Word>& ngram) const {
    const auto found = places_.find(ngram);
    return found == places_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::vector<Word>, size_t> places_;
};

}  // namespace detail

class TfIdfVectorizerOp final : public StandardOperator {
 public:
  TfIdfVectorizerOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : StandardOperator(def, ws, config), width_(detail::TfIdfColumns(def.args())) {
    const auto counts = GetRepeatedArgument<int64_t>("ngram_counts");
    const auto strings = GetRepeatedArgument<std::string>("pool_strings");
    const auto numbers = GetRepeatedArgument<int64_t>("pool_int64s");
    if (strings.empty() == numbers.empty())
      Throw(ErrorCode::kInvalidArgument,
            "TfIdfVectorizer: expected words either in 'pool_strings' or in 'pool_int64s'");
    if (least_ < 1 || most_ < least_ || skips_ < 0)
      Throw(ErrorCode::kInvalidArgument, "TfIdfVectorizer: lengths of ", least_, " to ", most_,
            " and up to ", skips_, " skips; expected lengths from 1 on and 0 or more skips");
    if (strings.empty())
      numbers_ = detail::NgramTable<int64_t>(numbers, counts, columns_.size());
    else
      strings_ = detail::NgramTable<std::string>(strings, counts, columns_.size());
    of_strings_ = !strings.empty();
    if (!weights_.empty() && weights_.size() != columns_.size())
      Throw(ErrorCode::kInvalidArgument, "TfIdfVectorizer: 'weights' has ", weights_.size(),
            " elements, expected one for each of the ", columns_.size(), " n-grams of the pool");
  }
  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if ((x.dtype() == DType::kString) != of_strings_)
      Throw(ErrorCode::kTypeMismatch, "TfIdfVectorizer: the input is ", x, ", but the pool has ",
            of_strings_ ? "strings" : "integers");
    if (of_strings_)
      Count(x.ToVector<std::string>(), strings_, *y);
    else
      detail::TfIdfTypes::Visit(x.dtype(), [&]<class T>() {
        const std::vector<T> words = x.ToVector<T>();
        Count(std::vector<int64_t>(words.begin(), words.end()), numbers_, *y);
      });
    return true;
  }

 private:
  template <class Word>
  void Count(const std::vector<Word>& words, const detail::NgramTable<Word>& table, Tensor& y) {
    auto* out = y.mutable_data<float>();
    std::fill_n(out, y.numel(), 0.f);
    const int64_t rows = y.rank() == 1 ? 1 : y.dim(0);
    const int64_t width = rows == 0 ? 0 : static_cast<int64_t>(words.size()) / rows;
    for (int64_t row = 0; row < rows; ++row, out += width_)
      CountRow(words.data() + row * width, width, table, out);
  }
  // Adds the n-grams of a row of `width` words to the row `out` of the output.
  template <class Word>
  void CountRow(const Word* words, int64_t width, const detail::NgramTable<Word>& table,
                float* out) {
    std::vector<Word> ngram;
    const int64_t most = (std::min)(most_, width);
    for (int64_t n = least_; n <= most; ++n) {
      // A larger step leads from the first word of the row past its last one.
      const int64_t steps = n == 1 ? 1 : (std::min)(skips_, (width - 1) / (n - 1) - 1) + 1;
      for (int64_t step = 1; step <= steps; ++step)
        for (int64_t begin = 0; begin + (n - 1) * step < width; ++begin) {
          ngram.clear();
          for (int64_t i = 0; i < n; ++i) ngram.push_back(words[begin + i * step]);
          if (const size_t* place = table.PlaceOf(ngram)) Add(*place, out);
        }
    }
  }
  // Adds an occurrence of the n-gram at `place` in the pool. The weights stand in the pool's order.
  void Add(size_t place, float* out) const {
    const float weight = mode_ == "TF" || weights_.empty() ? 1.f : weights_[place];
    float& sum = out[columns_[place]];
    sum = mode_ == "IDF" ? weight : sum + weight;
  }

  const int64_t width_;  // the columns of the output
  const std::vector<int64_t> columns_ = GetRepeatedArgument<int64_t>("ngram_indexes");
  const std::string mode_ = GetSingleArgument<std::string>("mode");
  const int64_t least_ = GetSingleArgument<int64_t>("min_gram_length");
  const int64_t most_ = GetSingleArgument<int64_t>("max_gram_length");
  const int64_t skips_ = GetSingleArgument<int64_t>("max_skip_count");
  const std::vector<float> weights_ = GetRepeatedArgument<float>("weights");
  detail::NgramTable<std::string> strings_;
  detail::NgramTable<int64_t> numbers_;
  bool of_strings_ = false;
};

OPKIT_STANDARD_OPERATOR(TfIdfVectorizer, kNone, TfIdfVectorizerOp)
    .Input(0, "X", "words, [C] or [N, C]", WithStrings(detail::TfIdfTypes::DTypes()))
    .Output(0, "Y", "a column for each n-gram of the pool, [columns] or [N, columns]",
            {DType::kFloat32})
    .RequiredArg("mode",
                 "TF: the number of times that an n-gram occurs; IDF: its weight, if "
                 "it occurs; TFIDF: the product",
                 {"TF", "IDF", "TFIDF"})
    .RequiredArg<int64_t>("min_gram_length", "the smallest number of words")
    .RequiredArg<int64_t>("max_gram_length", "the largest number of words")
    .RequiredArg<int64_t>("max_skip_count",
                          "the largest number of words between two words of an n-gram")
    .RequiredArg<std::vector<int64_t>>(
        "ngram_counts", "for each length from 1 on, the place of its first word in the pool")
    .RequiredArg<std::vector<int64_t>>("ngram_indexes", "the column of each n-gram of the pool")
    .Arg<std::vector<std::string>>("pool_strings", "the words of the n-grams")
    .Arg<std::vector<int64_t>>("pool_int64s", "the same for numbers")
    .Arg<std::vector<float>>("weights", "of the n-grams, in the order of the pool; by default 1")
    .Infer([](InferenceContext& c) {
      const SymbolicShape& shape = c.input_shape(0);
      if (shape.has_rank() && shape.rank() != 1 && shape.rank() != 2)
        Throw(ErrorCode::kInvalidArgument, "TfIdfVectorizer: the input is ", ToString(shape),
              ", expected [C] or [N, C]");
      const Dim columns(detail::TfIdfColumns(c.args()));
      c.SetOutput(0, DType::kFloat32,
                  !shape.has_rank()   ? SymbolicShape()
                  : shape.rank() == 1 ? SymbolicShape({columns})
                                      : SymbolicShape({shape[0], columns}));
    })
    .Doc(
        "Counts the n-grams of the pool in each row of words. Two words of an n-gram may have up "
        "to `max_skip_count` words between them, equally many between each two.");

}}  // namespace opkit

#endif  // OPKIT_OPS_TEXT_TF_IDF_VECTORIZER_HPP_
