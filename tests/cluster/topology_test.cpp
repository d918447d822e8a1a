// Topology: its JSON, and the connections between processes.
#include "opkit/cluster/topology.hpp"

#include <doctest/doctest.h>

#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"

namespace topology_test { namespace {

using namespace opkit;

TEST_CASE("a topology gives the cost of every connection") {
  const Topology topology = Topology::Parse(R"({
    "processes_per_host": 2,
    "within_host": {"latency_us": 2, "gigabytes_per_s": 50, "reduction_gigabytes_per_s": 100},
    "between_hosts": {"gigabytes_per_s": 10, "latency_us": 20},
    "links": [{"between": [3, 0], "latency_us": 500}]
  })");
  CHECK(topology.Between(1, 1).is_zero());
  CHECK(topology.Between(2, 3).latency == doctest::Approx(2e-6));
  CHECK(topology.Between(2, 3).seconds_per_byte == doctest::Approx(1 / 50e9));
  CHECK(topology.Between(3, 2).reduction_per_byte == doctest::Approx(1 / 100e9));
  CHECK(topology.Between(1, 2).latency == doctest::Approx(20e-6));
  for (const LinkCost& link : {topology.Between(0, 3), topology.Between(3, 0)}) {
    CHECK(link.latency == doctest::Approx(500e-6));
    CHECK(link.seconds_per_byte == 0);
  }
  CHECK(topology.OfRing({0, 1}).latency == doctest::Approx(2e-6));
  CHECK(topology.OfRing({0, 1, 2}).latency == doctest::Approx(20e-6));
  CHECK(topology.OfRing({0, 1, 2}).reduction_per_byte == doctest::Approx(1 / 100e9));
  CHECK(topology.OfRing({0, 1, 2, 3}).latency == doctest::Approx(500e-6));  // 3 is beside 0
  CHECK(Topology::Parse("{}").Between(0, 1).is_zero());
}

TEST_CASE("a text that is no topology is refused, with its line") {
  const auto message = [](const char* json) {
    return std::string(ErrorOf([&] { Topology::Parse(json); }).message());
  };
  CHECK(Contains(message("{\n\"hosts\": 3}"), "line 2 of the topology: expected"));
  CHECK(message("{\"hosts\": 3}") ==
        "line 1 of the topology: expected processes_per_host, within_host, between_hosts or links, "
        "found 'hosts'");
  CHECK(Contains(message("{\"processes_per_host\": 0}"), "a number from 1 on"));
  CHECK(Contains(message("{\"processes_per_host\": 1.5}"), "a whole number"));
  CHECK(Contains(message("{\"within_host\": {\"latency_us\": -1}}"), "a number from 0 on"));
  CHECK(Contains(message("{\"within_host\": {\"gigabytes_per_s\": 0}}"), "a number from"));
  CHECK(Contains(message("{\"within_host\": {\"speed\": 1}}"),
                 "or reduction_gigabytes_per_s, found 'speed'"));
  CHECK(Contains(message("{\"links\": [{\"between\": [1, 1]}]}"), "two different processes"));
  CHECK(Contains(message("{\"links\": [{}]}"), "two different processes"));
  CHECK(Contains(message("{} x"), "expected the end, found 'x'"));
  CHECK(Contains(message(""), "expected '{'"));
  const TemporaryFolder folder;
  CHECK(ErrorOf([&] { Topology::Load(folder / "no"); }).code() == ErrorCode::kIo);
  CHECK(Contains(ErrorOf([&] { Topology::Load(folder.Write("t", "[")); }).what(), folder / "t"));
}

}  // namespace
}  // namespace topology_test
