// TfIdfVectorizer.
#include "opkit/ops/text/tf_idf_vectorizer.hpp"

#include <doctest/doctest.h>

#include "opkit/op/invoke.hpp"
#include "support/error_of.hpp"

namespace tf_idf_vectorizer_test { namespace {

using namespace opkit;
using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;
using Strings = std::vector<std::string>;

// Two words and two pairs of words; the columns are in another order than the pool.
Arguments Node(const char* mode, int64_t least, int64_t most, int64_t skips) {
  return {{"mode", mode},
          {"min_gram_length", least},
          {"max_gram_length", most},
          {"max_skip_count", skips},
          {"ngram_counts", Ints{0, 2}},
          {"ngram_indexes", Ints{1, 0, 3, 2}},
          {"pool_strings", Strings{"a", "b", "a", "b", "b", "a"}}};
}
Tensor Texts(const Shape& shape, const Strings& texts) { return Tensor::From(shape, texts); }
Floats Run(const Tensor& x, Arguments args) {
  return Invoke("TfIdfVectorizer", {x}, std::move(args))[0].ToVector<float>();
}
std::string Refused(const Tensor& x, Arguments args) {
  return ErrorOf([&] { Run(x, std::move(args)); }).message();
}

TEST_CASE("n-grams are counted by row, with words left out between theirs") {
  const Tensor x = Texts({4}, {"a", "b", "c", "a"});
  CHECK(Run(x, Node("TF", 1, 2, 0)) == Floats{1, 2, 0, 1});
  CHECK(Run(x, Node("TF", 2, 2, 0)) == Floats{0, 0, 0, 1});
  CHECK(Run(x, Node("TF", 2, 2, 1)) == Floats{0, 0, 1, 1});
  const Tensor rows = Texts({2, 2}, {"a", "a", "b", "a"});
  CHECK(Invoke("TfIdfVectorizer", {rows}, Node("TF", 1, 2, 5))[0].shape() == Shape{2, 4});
  CHECK(Run(rows, Node("TF", 1, 2, 5)) == Floats{0, 2, 0, 0, 1, 1, 1, 0});
  CHECK(Run(Texts({0}, {}), Node("TF", 1, 2, 5)) == Floats{0, 0, 0, 0});
}

TEST_CASE("weights count once or for each n-gram") {
  const Tensor x = Texts({3}, {"a", "a", "b"});
  Arguments args = Node("IDF", 1, 1, 0);
  CHECK(Run(x, args) == Floats{1, 1, 0, 0});
  args.Set("weights", Floats{2, 3, 4, 5});
  CHECK(Run(x, args) == Floats{3, 2, 0, 0});
  args.Set("mode", "TFIDF");
  CHECK(Run(x, args) == Floats{3, 4, 0, 0});
  args.Set("mode", "TF");
  CHECK(Run(x, args) == Floats{1, 2, 0, 0});
}

// The values are those of ONNX Runtime 1.31.
TEST_CASE("weights belong to the n-grams in the order of the pool, not to columns") {
  const auto run = [](const char* mode, const Ints& columns) {
    return Run(Tensor::From<int64_t>({7}, {1, 1, 2, 3, 3, 3, 4}),
               {{"mode", mode},
                {"min_gram_length", 1},
                {"max_gram_length", 1},
                {"max_skip_count", 0},
                {"ngram_counts", Ints{0}},
                {"ngram_indexes", columns},
                {"pool_int64s", Ints{1, 2, 3, 4, 5}},
                {"weights", Floats{1, 2, 3, 4, 5}}});
  };
  CHECK(run("IDF", {4, 1, 2, 3, 0}) == Floats{0, 2, 3, 4, 1});
  CHECK(run("TFIDF", {4, 1, 2, 3, 0}) == Floats{0, 2, 9, 4, 2});
  // The n-grams of one column add up; a column of no n-gram is 0.
  CHECK(run("TF", {0, 1, 1, 3, 3}) == Floats{2, 4, 0, 1});
  CHECK(run("IDF", {0, 1, 1, 3, 3}) == Floats{1, 3, 0, 4});
  CHECK(run("TFIDF", {0, 1, 2, 3, 6}) == Floats{2, 2, 9, 4, 0, 0, 0});
}

TEST_CASE("lengths and skips beyond the words of a row end at once") {
  const Tensor x = Texts({3}, {"a", "b", "a"});
  constexpr int64_t kHuge = int64_t{1} << 62;
  CHECK(Run(x, Node("TF", 1, kHuge, 0)) == Run(x, Node("TF", 1, 2, 0)));
  CHECK(Run(x, Node("TF", 2, 2, kHuge)) == Run(x, Node("TF", 2, 2, 2)));
  CHECK(Run(x, Node("TF", kHuge, kHuge, kHuge)) == Floats{0, 0, 0, 0});
}

TEST_CASE("words may be integers") {
  Arguments args = Node("TF", 1, 2, 0);
  args.Remove("pool_strings");
  args.Set("pool_int64s", Ints{7, 8, 7, 8, 8, 7});
  CHECK(Run(Tensor::From<int32_t>({3}, {7, 8, 7}), args) == Floats{1, 2, 1, 1});
  CHECK(Run(Tensor::From<int64_t>({1, 2}, {8, 7}), args) == Floats{1, 1, 1, 0});
  CHECK(Contains(Refused(Texts({1}, {"a"}), args), "but the pool has integers"));
}

TEST_CASE("lists that do not fit each other are refused") {
  const Tensor x = Texts({1}, {"a"});
  const auto with = [](const char* name, Attribute value) {
    Arguments args = Node("TF", 1, 2, 0);
    args.Set(name, std::move(value));
    return args;
  };
  CHECK(Contains(Refused(x, with("ngram_counts", Ints{0, 3})), "does not divide the 6 words"));
  CHECK(Contains(Refused(x, with("ngram_counts", Ints{0, 8})), "does not divide the 6 words"));
  CHECK(Contains(Refused(x, with("ngram_indexes", Ints{0, 1, 2})), "has 3 columns, but the pool"));
  CHECK(Contains(Refused(x, with("ngram_indexes", Ints{0, 1, 2, -1})), "'ngram_indexes' has -1"));
  CHECK(Contains(Refused(x, with("weights", Floats{1})), "expected one for each of the 4 n-grams"));
  CHECK(Contains(Refused(x, with("pool_int64s", Ints{1})), "either in 'pool_strings' or in"));
  CHECK(Contains(Refused(x, with("min_gram_length", 3)), "lengths of 3 to 2"));
  CHECK(Contains(Refused(Texts({1, 1, 1}, {"a"}), Node("TF", 1, 2, 0)), "expected [C] or [N, C]"));
}

}  // namespace
}  // namespace tf_idf_vectorizer_test
