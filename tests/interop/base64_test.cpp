#include "opkit/interop/base64.hpp"

#include <doctest/doctest.h>

namespace base64_test {
using opkit::detail::DecodeBase64;
using opkit::detail::EncodeBase64;

TEST_CASE("the examples of RFC 4648 are encoded and decoded") {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    CHECK(EncodeBase64(bytes) == text);
    CHECK(DecodeBase64(text) == bytes);
  }
}

TEST_CASE("every byte and every length survive") {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  for (size_t length = 0; length <= bytes.size(); ++length) {
    const std::string part = bytes.substr(bytes.size() - length);
    CHECK(DecodeBase64(EncodeBase64(part)) == part);
  }
}

TEST_CASE("other text is refused, also what another decoder would let pass") {
  for (const char* text : {"Z", "Zg", "Zg=", "Zm9v\n", "Zm9 ",
                           "Z===", "====", "Zg==Zg==", "=Zg=", "Zm-_", "Zh==", "Zm9=", "Z\xffg="}) {
    CAPTURE(text);
    CHECK_FALSE(DecodeBase64(text));
  }
}

}  // namespace base64_test
