#include "opkit/profile/machine_peak.hpp"

#include <doctest/doctest.h>

#include "support/error_of.hpp"

namespace machine_peak_test {

using namespace opkit;

TEST_CASE("a machine has positive peak rates") {
  const MachineRates one = MachinePeak();
  CHECK(one.flops > 1e8);
  CHECK(one.bytes > 1e7);
  CHECK(ErrorOf([] { MachinePeak(0); }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("the share of a peak is that of the rate that bounds the work") {
  const MachineRates rates{100e9, 10e9};
  CHECK(rates.ShareOf(100, 1, 2) == 0.5);  // 1 ns of arithmetic, a tenth of traffic
  CHECK(rates.ShareOf(1, 10, 4) == 0.25);  // 1 ns of traffic
  CHECK(rates.ShareOf(1, 10, 0) == 0);
  CHECK(MachineRates().ShareOf(1, 10, 4) == 0);
}

}  // namespace machine_peak_test
