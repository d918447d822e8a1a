// Philox4x32-10.
#include "opkit/ops/random/philox.hpp"

#include <doctest/doctest.h>

namespace philox_test {
using namespace opkit;

namespace {

using Words = std::array<uint32_t, 4>;

TEST_CASE("the words are those of the known answers of Random123, the authors' library") {
  static_assert(Philox(0).At(0).words[0] == 0x6627e8d5);
  CHECK(Philox(0).At(0).words == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint64_t ones = ~uint64_t{0};
  CHECK(Philox(ones).At(ones, ones).words == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // Digits of pi.
  CHECK(Philox(0x299f31d0a4093822).At(0x85a308d3243f6a88, 0x0370734413198a2e).words ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform and normal numbers are made of the words") {
  CHECK(Philox::Bits{{0, 0, 0, 0}}.Uniform() == 0);
  CHECK(Philox::Bits{{0x80000000, 0, 0, 0}}.Uniform() == 0.5);
  CHECK(Philox::Bits{{0xffffffff, 0xffffffff, 0, 0}}.Uniform() == 1 - 0x1p-53);
  CHECK(Philox::Bits{{0, 0, 0, 0}}.Normal() == 0);
  // 1 - e^-2 of the circle's first number: a radius of 2; half of the second: -1.
  CHECK(Philox::Bits{{0xdd5aaab8, 0, 0x80000000, 0}}.Normal() == doctest::Approx(-2));
  CHECK(std::isfinite(Philox::Bits{{0xffffffff, 0xffffffff, 0, 0}}.Normal()));
}

}  // namespace
}  // namespace philox_test
