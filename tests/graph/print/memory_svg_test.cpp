#include "opkit/graph/print/memory_svg.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "opkit/graph/memory/plan_memory.hpp"
#include "support/error_of.hpp"
#include "support/text.hpp"

namespace memory_svg_test { namespace {

using opkit::MemoryInterval;
using opkit::MemoryPlan;
using opkit::MemorySvgOptions;
using opkit::ToSvg;

const std::vector<MemoryInterval> kBuffers = {{0, 4, 1 << 20}, {0, 2, 1 << 19}, {2, 4, 1 << 19}};

TEST_CASE("every buffer with bytes is a rectangle with its description") {
  std::vector<MemoryInterval> buffers = kBuffers;
  buffers.push_back({0, 1, 0});
  const std::string svg = ToSvg(buffers, opkit::PlanMemory(buffers));
  CHECK(Count(svg, "<title>") == 3);
  CHECK(Contains(svg, "<title>0: 1 MiB at 0, live from 0 to 4</title>"));
  CHECK(Contains(svg, "<title>1: 512 KiB at 1048576, live from 0 to 2</title>"));
  CHECK(Contains(svg, "1.5 MiB arena, lower bound 1.5 MiB, ratio 1.0000; 2 MiB without sharing"));
  CHECK(Contains(svg, ">step</text>"));
  CHECK(Contains(svg, ">address</text>"));
  CHECK(Contains(svg, ">256 KiB</text>"));  // on the axis
  CHECK(Count(svg, "<svg") == 1);
  CHECK(svg.substr(svg.size() - 7) == "</svg>\n");
}

TEST_CASE("rectangles lie at the plan's places, time to the right and addresses up") {
  MemoryPlan plan;
  plan.offsets = {0, 100};
  plan.arena_bytes = 200;
  MemorySvgOptions options;
  options.width = 86 + 24 + 400;
  options.height = 62 + 52 + 400;
  const std::string svg = ToSvg({{0, 10, 100}, {10, 20, 50}}, plan, options);
  CHECK(Contains(svg, "<rect x=\"86.00\" y=\"262.00\" width=\"200.00\" height=\"200.00\""));
  CHECK(Contains(svg, "<rect x=\"286.00\" y=\"162.00\" width=\"200.00\" height=\"100.00\""));
}

TEST_CASE("text is escaped and labels are drawn where there is room") {
  MemorySvgOptions options;
  options.title = "a<b & \"c\"";
  options.names = {"x<y", std::string(500, 'n'), "\x01&"};
  const std::string svg = ToSvg(kBuffers, opkit::PlanMemory(kBuffers), options);
  CHECK(Contains(svg, ">a&lt;b &amp; &quot;c&quot;</text>"));
  CHECK(Contains(svg, ">x&lt;y</text>"));
  CHECK(Contains(svg, "> &amp;</text>"));
  CHECK(Count(svg, std::string(500, 'n')) == 1);  // in what it says when pointed at
  CHECK_FALSE(Contains(svg, "x<y"));
}

TEST_CASE("an empty plan and extreme spans are drawn") {
  CHECK(Contains(ToSvg({}, opkit::PlanMemory(std::vector<MemoryInterval>{})), "0 B arena"));
  const std::vector<MemoryInterval> wide = {{INT64_MIN, INT64_MAX, int64_t{1} << 61}};
  const std::string svg = ToSvg(wide, opkit::PlanMemory(wide));
  CHECK(Contains(svg, "2 EiB arena"));
  CHECK(Count(svg, "<line") < 40);
}

TEST_CASE("a plan of other buffers is refused") {
  CHECK(ErrorOf([] { (void)ToSvg(kBuffers, MemoryPlan()); }).message() ==
        "expected an offset for each of 3 buffers, found 0");
  MemorySvgOptions options;
  options.names = {"x"};
  CHECK(ErrorOf([&] { (void)ToSvg(kBuffers, opkit::PlanMemory(kBuffers), options); }).message() ==
        "expected a name for each of 3 buffers, or none; found 1");
}

}  // namespace
}  // namespace memory_svg_test
