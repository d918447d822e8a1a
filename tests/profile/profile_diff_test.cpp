#include "opkit/profile/profile_diff.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "support/awkward.hpp"
#include "support/error_of.hpp"
#include "support/text.hpp"

namespace profile_diff_test {
namespace {

using namespace opkit;
using Verdict = ProfileDiffRow::Verdict;

std::vector<double> Times(int count, double from) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) out.push_back(from + i);
  return out;
}

const ProfileDiffRow& Row(const ProfileDiff& diff, const std::string& name) {
  for (const ProfileDiffRow& row : diff.rows)
    if (row.name == name) return row;
  FAIL("no row " << name);
  return diff.rows[0];
}

ProfileSpan Span(const char* name, const char* node, int64_t begin, int64_t end) {
  ProfileSpan span;
  span.name = InternName(name);
  span.node = InternName(node);
  span.begin = begin;
  span.end = end;
  span.kind = Invocation::Kind::kOperator;
  return span;
}

}  // namespace

TEST_CASE("differences beyond chance are reported, the most expensive first") {
  const std::vector<NamedTimes> before = {{"Add", Times(20, 1000)},
                                          {"Conv", Times(20, 5000)},
                                          {"Gone", Times(3, 10)},
                                          {"Mul", Times(20, 800)},
                                          {"Once", {100}}};
  const std::vector<NamedTimes> after = {{"Add", Times(20, 1001)},
                                         {"Conv", Times(20, 5500)},
                                         {"Mul", Times(20, 400)},
                                         {"New", Times(4, 30)},
                                         {"Once", {900}}};
  const ProfileDiff diff = CompareTimes(before, after);
  REQUIRE(diff.rows.size() == 6);
  CHECK(diff.rows[0].name == "Conv");
  CHECK(diff.rows[5].name == "Mul");
  const ProfileDiffRow& conv = Row(diff, "Conv");
  CHECK(conv.verdict == Verdict::kSlower);
  CHECK(conv.runs_before == 20);
  CHECK(conv.median_before == 5009.5);
  CHECK(conv.median_after == 5509.5);
  CHECK(conv.change == doctest::Approx(500 / 5009.5));
  CHECK(conv.p < 1e-6);
  CHECK(Row(diff, "Mul").verdict == Verdict::kFaster);
  CHECK(Row(diff, "Add").verdict == Verdict::kSame);
  CHECK(Row(diff, "Add").p > 0.5);
  CHECK(Row(diff, "Once").verdict == Verdict::kTooFew);
  CHECK(Row(diff, "New").verdict == Verdict::kNew);
  CHECK(Row(diff, "New").change == 0);
  CHECK(Row(diff, "Gone").verdict == Verdict::kGone);
}

TEST_CASE("the more is compared, the less is significant") {
  const NamedTimes slow{"slow", Times(5, 1)};
  std::vector<NamedTimes> before = {slow}, after = {{"slow", Times(5, 6)}};
  CHECK(CompareTimes(before, after).rows[0].p == doctest::Approx(0.00793650793));
  CHECK(CompareTimes(before, after).rows[0].verdict == Verdict::kSlower);
  for (const char* name : {"a", "b", "c"}) {
    before.push_back({name, Times(30, 1)});
    after.push_back({name, Times(30, 1)});
  }
  const ProfileDiff four = CompareTimes(before, after);
  CHECK(Row(four, "slow").p == doctest::Approx(4 * 0.00793650793));  // Holm: the smallest of four
  CHECK(Row(four, "slow").verdict == Verdict::kTooFew);
  CHECK(Row(CompareTimes(before, after, 0.05), "slow").verdict == Verdict::kSlower);
  for (const double wrong : {0.0, 1.0, -1.0, std::nan("")})
    CHECK(ErrorOf([&] { CompareTimes(before, after, wrong); }).code() ==
          ErrorCode::kInvalidArgument);
}

TEST_CASE("times that are no number are refused by name") {
  for (const double time : {std::nan(""), double{INFINITY}, -double{INFINITY}}) {
    const std::vector<NamedTimes> good = {{"Add", {1, 2}}},
                                  bad = {{"Add", {1}}, {"Mul", {2, time}}};
    CHECK(Contains(ErrorOf([&] { CompareTimes(good, bad); }).message(), "a time of 'Mul' is"));
    CHECK(Contains(ErrorOf([&] { CompareTimes(bad, good); }).message(), "a time of 'Mul' is"));
  }
}

TEST_CASE("times of one name are put together") {
  const ProfileDiff diff = CompareTimes({{"A", {1, 2}}, {"A", {3}}}, {{"A", {5}}, {"empty", {}}});
  REQUIRE(diff.rows.size() == 1);
  CHECK(diff.rows[0].runs_before == 3);
  CHECK(diff.rows[0].median_before == 2);
}

TEST_CASE("a profile's times are those until the event has ended, of spans that have") {
  Profile profile;
  profile.spans = {Span("Add", "first", 0, 10), Span("Add", "second", 20, 50),
                   Span("Conv", "", 60, 70), Span("Add", "first", 80, 90)};
  profile.spans[1].completed = 120;
  profile.spans[2].adopted = true;
  profile.spans[3].open = true;
  const std::vector<NamedTimes> times = TimesByName(profile);
  REQUIRE(times.size() == 1);
  CHECK(times[0].name == "Add");
  CHECK(times[0].times == std::vector<double>{10, 100});
  const std::vector<NamedTimes> nodes = TimesByName(profile, TimesOf::kNodes);
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[1].name == "Add (second)");
}

TEST_CASE("a difference as text and as JSON") {
  const ProfileDiff diff =
      CompareTimes({{"\"Add\"", Times(9, 1000)}, {"Gone", {1}}}, {{"\"Add\"", Times(9, 2000)}});
  CHECK(Contains(ToString(diff), "\"Add\"  slower      9      9      1.004  2.004"));
  CHECK(Contains(ToString(diff), "+99.6 %"));
  CHECK(Contains(ToString(diff), "Gone   gone"));
  const auto json = nlohmann::json::parse(ToJson(diff));
  CHECK(json["rows"][0]["name"] == "\"Add\"");
  CHECK(json["rows"][0]["verdict"] == "slower");
  CHECK(json["rows"][0]["median_after_ns"] == 2004);
  CHECK(json["rows"][1]["runs_after"] == 0);
}

TEST_CASE("a difference of any names and numbers is valid JSON") {
  std::vector<NamedTimes> before, after;
  for (const auto& [name, utf8] : AwkwardNames()) {
    before.push_back({name, {1, 2, 3}});
    after.push_back({name, {2}});
  }
  for (const double number : AwkwardNumbers()) {
    CAPTURE(number);
    if (!std::isfinite(number)) continue;  // refused
    after[0].times = {number};
    after[1].times = before[1].times = {number, 1, number};
    const ProfileDiff diff = CompareTimes(before, after);
    CHECK(!ToString(diff).empty());
    const auto json = nlohmann::json::parse(ToJson(diff));
    std::vector<std::string> found, expected;
    for (const auto& row : json["rows"]) found.push_back(row["name"]);
    for (const AwkwardName& name : AwkwardNames()) expected.push_back(name.utf8);
    std::ranges::sort(found);
    std::ranges::sort(expected);
    CHECK(found == expected);
  }
}

}  // namespace profile_diff_test
