#include "opkit/profile/machine_peak.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "support/error_of.hpp"

namespace machine_peak_test {
namespace {

using namespace opkit;

// The machine's own time, on a machine where every thread is interrupted, or slow at times.
class BusyClock final : public TimingClock {
 public:
  enum Trouble : uint8_t { kPreemptions, kSlowSpins };
  explicit BusyClock(Trouble trouble) : trouble_(trouble) {}
  int64_t Preemptions() override { return trouble_ == kPreemptions ? ++count_ : 0; }
  int64_t Spin() override { return trouble_ == kSlowSpins && ++count_ > 1 ? 1300 : 1000; }

 private:
  const Trouble trouble_;
  int64_t count_ = 0;
};

}  // namespace

TEST_CASE("a machine has positive peak rates, larger ones in its caches") {
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    const MachineRates rates = MachinePeak(threads, {.seconds = 1e-3, .most_bytes = 3 << 20});
    CHECK(rates.threads == threads);
    CHECK(rates.flops > 1e8);
    CHECK(rates.bytes > 1e7);
    double capacity = 0, rate = std::numeric_limits<double>::infinity();
    for (const CacheCeiling& cache : rates.caches) {
      CAPTURE(cache.name);
      CHECK(cache.name[0] == 'L');
      CHECK(cache.capacity > capacity);
      CHECK(cache.bytes_per_second <= rate);
      capacity = cache.capacity, rate = cache.bytes_per_second;
    }
    CHECK(rates.bytes <= rate);
  }
  CHECK(ErrorOf([] { MachinePeak(0); }).code() == ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([] { MachinePeak(1, {.seconds = 0}); }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("rates measured on a busy machine are marked") {
  for (const BusyClock::Trouble trouble : {BusyClock::kPreemptions, BusyClock::kSlowSpins}) {
    BusyClock clock(trouble);
    CHECK(MachinePeak(1, {.seconds = 1e-3, .most_bytes = 1 << 20, .clock = &clock}).disturbed);
  }
}

TEST_CASE("the share of a peak is that of the rate that bounds the work") {
  const MachineRates rates{100e9, 10e9};
  CHECK(rates.ShareOf(100, 1, 1, 2).share == 0.5);  // 1 ns of arithmetic, a tenth of traffic
  CHECK(rates.ShareOf(100, 1, 1, 2).ceiling == "FMA");
  CHECK(rates.ShareOf(1, 10, 10, 4).share == 0.25);  // 1 ns of traffic
  CHECK(rates.ShareOf(1, 10, 10, 4).ceiling == "memory");
  CHECK(rates.ShareOf(1, 10, 10, 0).share == 0);
  CHECK(MachineRates().ShareOf(1, 10, 10, 4).share == 0);
  CHECK(rates.ShareOf(0, 0, 0, 4).share == 0);
}

TEST_CASE("bytes come from the smallest level that holds the data") {
  MachineRates rates{100e9, 10e9, {{"L1", 1000, 80e9}, {"L2", 10'000, 40e9}}};
  const auto ceiling = [&](double data) { return rates.ShareOf(1, 1000, data, 100).ceiling; };
  CHECK(ceiling(1000) == "L1");
  CHECK(ceiling(1001) == "L2");
  CHECK(ceiling(10'000) == "L2");
  CHECK(ceiling(10'001) == "memory");
  CHECK(ceiling(std::numeric_limits<double>::quiet_NaN()) == "memory");
  CHECK(rates.ShareOf(1, 1000, 5000, 50).share == doctest::Approx(0.5));  // 25 ns from L2
  rates.caches[0].bytes_per_second = 0;  // unknown: the next level counts
  CHECK(ceiling(500) == "L2");
}

TEST_CASE("a share names its ceiling, and the reasons for more than 100 %") {
  CHECK(ToString(PeakShare{}) == "");
  CHECK(ToString(PeakShare{0.0012, "L1"}) == "0.12 % of L1");
  CHECK(ToString(PeakShare{0.0312, "L1"}) == "3.1 % of L1");
  CHECK(ToString(PeakShare{0.714, "L2"}) == "71 % of L2");
  CHECK(ToString(PeakShare{1.004, "L2"}) == "100 % of L2");
  CHECK(ToString(PeakShare{1.18, "memory"}) == "118 % of memory (data nearer or unused)");
  CHECK(ToString(PeakShare{1.3, "FMA"}) == "130 % of FMA (fewer or narrower operations)");
  CHECK(ToString(PeakShare{1e30, "FMA"}).substr(0, 7) == "1e+32 %");
}

}  // namespace machine_peak_test
