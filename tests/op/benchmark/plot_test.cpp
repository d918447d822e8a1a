#include "opkit/op/benchmark/plot.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "support/error_of.hpp"
#include "support/text.hpp"

namespace plot_test {
namespace {

using namespace opkit;

KernelTimes Row(const std::string& backend, int threads, double ns) {
  KernelTimes row;
  row.backend = backend;
  row.threads = threads;
  row.times.ns = {ns};
  row.times.median = ns;
  row.times.low = 0.9 * ns;
  row.times.high = 1.1 * ns;
  row.flops = 2000;
  row.bytes = 100;
  return row;
}
KernelTimes Refused(const std::string& backend, const std::string& why) {
  KernelTimes row;
  row.backend = backend;
  row.refused = why;
  return row;
}
const MachineRates kOne{100e9, 10e9, {{"L1", 1000, 80e9}, {"L2", 10'000, 40e9}}, 1};
const MachineRates kTwo{200e9, 15e9, {{"L1", 2000, 160e9}}, 2};

// Every element is closed, in order, and every number is finite.
void CheckWellFormed(const std::string& svg) {
  CAPTURE(svg);
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != svg.npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    REQUIRE(end != svg.npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    REQUIRE(!Contains(tag, "<"));
    if (tag[0] == '/') {
      REQUIRE(!open.empty());
      CHECK(tag.substr(1) == open.back());
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  CHECK(open.empty());
  CHECK(!Contains(svg, "nan"));
  CHECK(!Contains(svg, "inf"));
}

}  // namespace

TEST_CASE("one problem has a bar for each row, and the reason of a refused one") {
  KernelComparison found{"Relu float32 [8]", {Row("reference", 1, 4000), Row("eigen", 1, 1000)}};
  found.rows[1].verdict = KernelTimes::Verdict::kFaster;
  found.rows[1].speedup = 4;
  found.rows.push_back(Refused("cuda", "no device"));
  const std::string svg = ToSvg({&found, 1});
  CheckWellFormed(svg);
  CHECK(Contains(svg, ">Relu float32 [8]</text>"));
  CHECK(Count(svg, "<rect") == 3);  // the page and two bars
  CHECK(Contains(svg, ">4 µs</text>"));
  CHECK(Contains(svg, ">1 µs, 4x faster</text>"));
  CHECK(Contains(svg, ">no device</text>"));
  CHECK(Contains(svg,
                 "<title>reference, 1 thread: 4 µs (3.6 µs to 4.4 µs), 0.5 GFLOP/s, "
                 "0.025 GB/s</title>"));
  CHECK(Count(svg, "<polyline") == 0);
  CHECK(!Contains(svg, "roofline"));
  // The first bar is four times as long.
  const auto width = [&](size_t bar) {
    size_t at = svg.find("<rect");
    for (size_t i = 0; i <= bar; ++i) at = svg.find("<rect", at + 1);
    return std::stod(svg.substr(svg.find("width=\"", at) + 7));
  };
  CHECK(width(0) == doctest::Approx(4 * width(1)).epsilon(0.01));
}

TEST_CASE("a sweep has a line for each kernel and number of threads") {
  std::vector<KernelComparison> found(3);
  for (size_t i = 0; i < 3; ++i) {
    const double size = i == 0 ? 1 : i == 1 ? 10 : 100;
    for (const int threads : {1, 2})
      for (const char* backend : {"reference", "eigen"})
        found[i].rows.push_back(Row(backend, threads, 1000 * size / threads));
  }
  found[1].rows[0] = Refused("reference", "not this one");
  const std::string svg =
      ToSvg(found, {.title = "Relu", .axis = "N", .places = {"1", "10", "100"}});
  CheckWellFormed(svg);
  CHECK(Count(svg, "<polyline") == 4);
  CHECK(Count(svg, "stroke-width=\"2\" stroke-dasharray") == 4);  // 2 threads, with the legend
  CHECK(Count(svg, "<title>N = 10: ") == 3);
  for (const char* text : {">Relu<", ">N<", ">1<", ">10<", ">100<", ">eigen, 2 threads<"})
    CHECK(Contains(svg, text));
  CHECK(Contains(svg, ">10 µs<"));  // an axis of powers of ten
  // Two decades: the middle place lies in the middle.
  const size_t line = svg.find("<polyline points=\"", svg.find("<polyline points=\"") + 1);
  double x[3], y[3];
  REQUIRE(std::sscanf(svg.c_str() + line, "<polyline points=\"%lf,%lf %lf,%lf %lf,%lf\"", &x[0],
                      &y[0], &x[1], &y[1], &x[2], &y[2]) == 6);
  CHECK(x[1] - x[0] == doctest::Approx(x[2] - x[1]).epsilon(0.001));
  CHECK(y[0] - y[1] == doctest::Approx(y[1] - y[2]).epsilon(0.001));
  CHECK(y[0] > y[1]);  // longer times are higher up

  // Places that are no numbers are evenly apart.
  const std::string evenly = ToSvg(found, {.places = {"small", "1", "large"}});
  CheckWellFormed(evenly);
  CHECK(Contains(evenly, ">small<"));
  CHECK(ErrorOf([&] { ToSvg(found, {.places = {"1"}}); }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("the roofline has a line for each level and a point for each row with known work") {
  KernelComparison found{"Add", {Row("reference", 1, 4000), Row("eigen", 2, 1000)}};
  found.rows.push_back(Row("unknown", 1, 500));
  found.rows.back().flops = 0;
  found.rows[0].of_peak = {0.5, "L2"};
  const std::string one = ToSvg({&found, 1}, {.peaks = {kOne}});
  CheckWellFormed(one);
  for (const char* text : {"L1 80 GB/s", "L2 40 GB/s", "memory 10 GB/s", "FMA 100 GFLOP/s",
                           "the ceilings of 1 thread<", "50 % of L2</title>"})
    CHECK(Contains(one, text));
  CHECK(Count(one, "r=\"4.5\"") == 2);
  // The largest number of threads gives the ceilings.
  const std::string two = ToSvg({&found, 1}, {.peaks = {kOne, kTwo}});
  CHECK(Contains(two, "L1 160 GB/s"));
  CHECK(Contains(two, "the ceilings of 2 threads<"));
  CHECK(!Contains(two, "L2 40"));
  // Lines that are too near to each other share a text.
  MachineRates near = kOne;
  near.caches[1].bytes_per_second = 78e9;
  CHECK(Contains(ToSvg({&found, 1}, {.peaks = {near}}), ">L1 80, L2 78 GB/s</text>"));
}

TEST_CASE("any name and number makes a picture") {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  CheckWellFormed(ToSvg({}));
  CheckWellFormed(ToSvg({}, {.peaks = {kOne}}));
  std::vector<KernelComparison> found(2);
  CheckWellFormed(ToSvg(found, {.peaks = {kOne}}));
  found[0].name = "a<b> & \"c\" \x01";
  for (const double number : {0.0, -1.0, nan, infinity, 1e-300, 1e300}) {
    CAPTURE(number);
    KernelTimes odd = Row("<kernel> & \"", 1, number), work = Row("work", 1, 10);
    work.flops = work.bytes = number;
    found[0].rows = {odd, work, Refused("gone", "<why> & \"")};
    found[1].rows = {Refused("gone", "x"), Row("work", 1, 20)};
    for (const MachineRates& peak : {kOne, MachineRates{number, 1e9}, MachineRates{1e9, number},
                                     MachineRates{1e9, 1e9, {{"<L1>", number, number}}}}) {
      CheckWellFormed(ToSvg(found, {.axis = "<&", .places = {"<", "&"}, .peaks = {peak}}));
      const std::string bars = ToSvg(std::span(found).first(1), {.peaks = {peak}});
      CheckWellFormed(bars);
      CHECK(Contains(bars, ">a&lt;b&gt; &amp; &quot;c&quot;  </text>"));
      CHECK(Contains(bars, "&lt;why&gt; &amp; &quot;"));
    }
  }
}

}  // namespace plot_test
