#include "opkit/base/hook.hpp"

#include <doctest/doctest.h>

#include <string>

#include "opkit/base/error.hpp"

namespace opkit { namespace {

constinit detail::Hook<std::string(int, std::string)> g_hook{"repeating a text",
                                                             "opkit/repeat.hpp"};
std::string Repeat(int times, std::string text) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST_CASE("an empty hook is an Error that names the header, a filled one calls") {
  CHECK(!g_hook);
  try {
    g_hook(2, "ab");
    FAIL("an empty hook was called");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kFailedPrecondition);
    CHECK(error.message().starts_with("repeating a text needs opkit/repeat.hpp: include it"));
  }
  CHECK(g_hook.Fill(&Repeat));
  CHECK(g_hook.Fill(&Repeat));
  CHECK(g_hook);
  CHECK(g_hook(2, "ab") == "abab");
}

}  // namespace
}  // namespace opkit
