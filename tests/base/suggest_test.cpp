#include "opkit/base/suggest.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace suggest_test { namespace {

using opkit::EditDistance;
using opkit::NearestName;
using opkit::SuggestName;
using Names = std::vector<std::string>;

TEST_CASE("the edit distance counts insertions, deletions, replacements and swapped neighbours") {
  CHECK(EditDistance("", "") == 0);
  CHECK(EditDistance("", "abc") == 3);
  CHECK(EditDistance("abc", "") == 3);
  CHECK(EditDistance("Conv", "Conv") == 0);
  CHECK(EditDistance("Conv", "Con") == 1);
  CHECK(EditDistance("Conv", "Convx") == 1);
  CHECK(EditDistance("Conv", "Cony") == 1);
  CHECK(EditDistance("Conv", "Covn") == 1);
  CHECK(EditDistance("kitten", "sitting") == 3);
  CHECK(EditDistance("sitting", "kitten") == 3);
}

TEST_CASE("the edit distance ignores case") {
  CHECK(EditDistance("softmax", "SoftMax") == 0);
  CHECK(EditDistance("RELU", "relu6") == 1);
}

TEST_CASE("the nearest name is the one with the fewest slips, the first of equals") {
  CHECK(NearestName("Softmx", Names{"Softplus", "Softmax", "Softsign"}) == "Softmax");
  CHECK(NearestName("Axpz", Names{"Axpy", "Axpx"}) == "Axpy");
  CHECK(NearestName("relu", Names{"Tanh", "Relu"}) == "Relu");
}

TEST_CASE("nothing is suggested beyond a third of the letters, and one slip is always allowed") {
  CHECK(NearestName("Sub", Names{"Mul"}).empty());
  CHECK(NearestName("Add", Names{"And"}) == "And");
  CHECK(NearestName("Sigmoid", Names{"Sigmund"}) == "Sigmund");  // two of seven
  CHECK(NearestName("Sigmoid", Names{"Signals"}).empty());
  CHECK(NearestName("X", Names{"Y"}) == "Y");
  CHECK(NearestName("X", Names{}).empty());
}

TEST_CASE("a suggestion names the nearest name and the known ones") {
  CHECK(SuggestName("X", Names{}).empty());
  CHECK(SuggestName("Softmx", Names{"Relu", "Softmax"}) ==
        " (did you mean 'Softmax'? known: 'Relu', 'Softmax')");
  CHECK(SuggestName("Banana", Names{"Relu"}) == " (known: 'Relu')");
}

TEST_CASE("a long list of known names is cut, and the rest counted") {
  Names names;
  for (int i = 10; i < 25; ++i) names.push_back("Op" + std::to_string(i));
  CHECK(SuggestName("Unlike", names) ==
        " (known: 'Op10', 'Op11', 'Op12', 'Op13', 'Op14', 'Op15', 'Op16', 'Op17', 'Op18', 'Op19', "
        "'Op20', 'Op21' and 3 more)");
}

}  // namespace
}  // namespace suggest_test
