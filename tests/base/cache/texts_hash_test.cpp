#include "opkit/base/cache/texts_hash.hpp"

#include <doctest/doctest.h>

namespace {

using opkit::detail::TextsHash;

std::string HashOf(std::initializer_list<const char*> texts) {
  TextsHash hash;
  for (const char* text : texts) hash.Add(text);
  return hash.text();
}

TEST_CASE("a hash depends on each text, on their order, and on where one ends") {
  const std::string hash = HashOf({"a", "bc"});
  CHECK(hash.size() == TextsHash::kDigits);
  CHECK(hash.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(hash == HashOf({"a", "bc"}));
  for (const std::string& other : {HashOf({"ab", "c"}), HashOf({"bc", "a"}), HashOf({"abc"}),
                                   HashOf({"a", "bc", ""}), HashOf({"a", "bd"}), HashOf({})})
    CHECK(other != hash);
}

}  // namespace
