#include "opkit/profile/profile_table.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "support/awkward.hpp"

namespace profile_table_test { namespace {

using namespace opkit;

ProfileSpan Span(const char* name, int64_t begin, int64_t end, int thread = 0) {
  ProfileSpan span;
  span.name = InternName(name);
  span.begin = begin;
  span.end = end;
  span.thread = thread;
  span.kind = Invocation::Kind::kOperator;
  return span;
}

// A hundred runs of Add of 1 to 100 ns, the first of which are inside Loop.
Profile Runs() {
  Profile profile;
  profile.threads = {{1, "main"}, {2, "worker"}};
  profile.spans.push_back(Span("Loop", 0, 1000));
  int64_t at = 10;
  for (int i = 1; i <= 100; ++i) {
    profile.spans.push_back(Span("Add", at, at + i));
    at += i + 10;
    if (at > 900 && at < 1000) at = 1010;
  }
  return profile;
}

const ProfileTableRow& Row(const ProfileTable& table, const std::string& name) {
  for (const ProfileTableRow& row : table.rows)
    if (row.name == name) return row;
  FAIL("no row " << name);
  return table.rows[0];
}

TEST_CASE("a row sums the runs of one name, with percentiles by nearest rank") {
  const ProfileTable table = MakeProfileTable(Runs());
  const ProfileTableRow& add = Row(table, "Add");
  CHECK(add.count == 100);
  CHECK(add.total == 5050);
  CHECK(add.self == 5050);
  CHECK(add.mean == 50.5);
  CHECK(add.min == 1);
  CHECK(add.p50 == 50);
  CHECK(add.p90 == 90);
  CHECK(add.p99 == 99);
  CHECK(add.max == 100);
}

TEST_CASE("self is the time without nested spans of the same thread") {
  Profile profile;
  profile.threads = {{1, "main"}, {2, "worker"}};
  profile.spans = {Span("Outer", 0, 100), Span("Inner", 10, 40), Span("Leaf", 20, 30),
                   Span("Inner", 50, 60)};
  const ProfileTable table = MakeProfileTable(profile);
  CHECK(Row(table, "Outer").self == 60);
  CHECK(Row(table, "Inner").self == 30);
  CHECK(Row(table, "Inner").total == 40);
}

TEST_CASE("work of other threads for a run counts in its domain, and in a custom operator's row") {
  Profile profile;
  profile.threads = {{1, "main"}, {2, "worker"}};
  ProfileSpan plain = Span("Add", 0, 100), custom = Span("MyOp", 200, 300);
  plain.work = {InternName("float32[8]"), 8, 96};
  custom.kind = Invocation::Kind::kCustomOperator;
  custom.custom = InternName("MyOp");
  profile.spans = {plain, custom};
  for (const ProfileSpan& whole : {plain, custom}) {
    ProfileSpan part = whole;
    part.thread = 1;
    part.adopted = true;
    part.work = {};
    part.begin += 20;
    part.end -= 10;
    profile.spans.push_back(part);
  }
  for (const bool by_shape : {false, true}) {
    const ProfileTable table = MakeProfileTable(profile, {.by_shape = by_shape});
    REQUIRE(table.rows.size() == 3);
    CHECK(Row(table, "Add").count == 1);
    CHECK(Row(table, "Add").total == 100);
    CHECK(Row(table, "Add").self == 100);
    CHECK(Row(table, "MyOp").self == 100);
    CHECK(Row(table, "MyOp::user_code").count == 0);
    CHECK(Row(table, "MyOp::user_code").self == 70);
    REQUIRE(table.domains.size() == 2);
    CHECK(table.domains[1].domain == "operator");
    CHECK(table.domains[1].self == 170);
  }
}

TEST_CASE("a run on a stream lasts until its event") {
  Profile profile;
  profile.threads = {{1, "main"}};
  profile.spans = {Span("OnStream", 10, 20)};
  profile.spans[0].completed = 510;
  CHECK(Row(MakeProfileTable(profile), "OnStream").total == 500);
  CHECK(Row(MakeProfileTable(profile), "OnStream").self == 10);
}

TEST_CASE("a run that its device has timed has the device's duration") {
  Profile profile;
  profile.threads = {{1, "main"}};
  profile.spans = {Span("OnDevice", 10, 20)};
  profile.spans[0].completed = 510;
  profile.spans[0].device_begin = 100;
  profile.spans[0].device_end = 400;
  CHECK(Row(MakeProfileTable(profile), "OnDevice").total == 300);
  CHECK(Row(MakeProfileTable(profile), "OnDevice").self == 10);
}

TEST_CASE("rows are sorted in the requested order") {
  Profile profile = Runs();
  using Sort = ProfileTableOptions::Sort;
  CHECK(MakeProfileTable(profile, {.sort = Sort::kTotal}).rows[0].name == "Add");
  CHECK(MakeProfileTable(profile, {.sort = Sort::kMax}).rows[0].name == "Loop");
  CHECK(MakeProfileTable(profile, {.sort = Sort::kName}).rows[0].name == "Add");
  CHECK(MakeProfileTable(profile, {.sort = Sort::kMean}).rows[0].name == "Loop");
}

TEST_CASE("rows by node separate nodes of one type") {
  Profile profile = Runs();
  profile.spans[1].node = InternName("first");
  const ProfileTable table = MakeProfileTable(profile, {.by_node = true});
  REQUIRE(table.rows.size() == 3);
  CHECK(ToString(table).find("Add (first)") != std::string::npos);
}

TEST_CASE("rows by shape, with rates, compared with the machine's peaks") {
  Profile profile;
  profile.threads = {{1, "main"}};
  profile.spans = {Span("MatMul", 0, 100), Span("MatMul", 200, 300), Span("MatMul", 400, 600)};
  const uint32_t small = InternName("float32[2, 2]"), large = InternName("float32[8, 8]");
  profile.spans[0].work = profile.spans[1].work = {small, 1000, 100};
  profile.spans[2].work = {large, 8000, 400};
  ProfileTableOptions options;
  options.by_shape = true;
  options.peak = {80e9, 10e9};
  const ProfileTable table = MakeProfileTable(profile, options);
  REQUIRE(table.rows.size() == 2);
  CHECK(table.rows[0].shapes == "float32[2, 2]");
  CHECK(table.rows[0].flops == 2000);
  CHECK(table.rows[0].bytes == 200);
  CHECK(table.rows[0].of_peak.share == doctest::Approx(2000 / 80e9 / 200e-9));
  CHECK(table.rows[1].of_peak.share == doctest::Approx(8000 / 80e9 / 200e-9));
  const std::string text = ToString(table);
  CHECK(text.find("GFLOP/s  GB/s      of peak\n") != std::string::npos);
  CHECK(text.find("MatMul float32[8, 8]  operator") != std::string::npos);
  CHECK(text.find("       40     2  50 % of FMA\n") != std::string::npos);
  CHECK(MakeProfileTable(profile).rows.size() == 1);
  CHECK(nlohmann::json::parse(ToJson(table))["rows"][1]["flops"] == 8000);

  // Small runs count as if they came from the cache that holds them, each run for itself.
  options.peak.caches = {{"L1", 100, 40e9}, {"L2", 400, 20e9}};
  options.by_shape = false;
  options.peak.flops = 1e15;
  const ProfileTable in_caches = MakeProfileTable(profile, options);
  REQUIRE(in_caches.rows.size() == 1);
  CHECK(in_caches.rows[0].of_peak.share == doctest::Approx((200 / 40e9 + 400 / 20e9) / 400e-9));
  CHECK(in_caches.rows[0].of_peak.ceiling == "L2");
  CHECK(nlohmann::json::parse(ToJson(in_caches))["rows"][0]["ceiling"] == "L2");
  options.by_shape = true;
  options.peak = {80e9, 10e9};

  // Two backends that ran one shape have a row each.
  profile.spans[0].work.backend = InternName("eigen");
  const ProfileTable by_backend = MakeProfileTable(profile, options);
  REQUIRE(by_backend.rows.size() == 3);
  CHECK(ToString(by_backend).find("MatMul float32[2, 2] by eigen  operator") != std::string::npos);
  CHECK(nlohmann::json::parse(ToJson(by_backend))["rows"][2]["backend"] == "eigen");
}

TEST_CASE("any name, number and peak makes a table that is valid JSON, and a text") {
  Profile profile;
  profile.threads = {{1, "main"}};
  for (const auto& [name, utf8] : AwkwardNames()) {
    profile.spans.push_back(Span("Add", 0, 100));
    ProfileSpan& span = profile.spans.back();
    span.name = span.node = InternName(name);
    span.work = {InternName(name), UINT64_MAX, 1, InternName(name)};
    profile.allocations.push_back({5, 0, 1, INT64_MAX, InternName(name), 0});
  }
  for (const double number : AwkwardNumbers())
    for (const MachineRates& peak : {MachineRates{number, 1e9}, MachineRates{1e9, number}}) {
      CAPTURE(number);
      ProfileTableOptions options;
      options.by_shape = options.by_node = true;
      options.peak = peak;
      const ProfileTable table = MakeProfileTable(profile, options);
      const auto json = nlohmann::json::parse(ToJson(table));
      REQUIRE(json["rows"].size() == AwkwardNames().size());
      CHECK(json["rows"][0]["flops"] == UINT64_MAX);
      CHECK(ToString(table).size() > 10'000);
      if (!(number > 0)) CHECK(json["rows"][0]["of_peak"] == 0);
    }
}

TEST_CASE("domains have the time spent in them, memory has allocations and their places") {
  Profile profile;
  profile.threads = {{1, "main"}};
  profile.spans = {Span("Outer", 0, 100), Span("scope", 10, 40)};
  profile.spans[0].id = 7;
  profile.spans[1].kind = Invocation::Kind::kUserCode;
  const uint32_t cpu = InternName("cpu");
  profile.allocations = {{5, 7, 64, 64, cpu, 0}, {6, 0, 32, 96, cpu, 0}, {9, 7, -64, 32, cpu, 0}};
  const ProfileTable table = MakeProfileTable(profile);
  REQUIRE(table.domains.size() == 2);
  CHECK(table.domains[0].domain == "operator");
  CHECK(table.domains[0].self == 70);
  CHECK(table.domains[1].domain == "user");
  CHECK(table.domains[1].self == 30);
  REQUIRE(table.memory.size() == 1);
  CHECK(table.memory[0].allocator == "cpu");
  CHECK(table.memory[0].allocations == 2);
  CHECK(table.memory[0].allocated == 96);
  CHECK(table.memory[0].peak == 96);
  CHECK(table.memory[0].live == 32);
  CHECK(Row(table, "Outer").allocated == 64);
  CHECK(ToString(table).find("\nmemory  allocations  allocated  peak  live\ncpu               2  "
                             "       96    96    32\n") != std::string::npos);
  const auto json = nlohmann::json::parse(ToJson(table));
  CHECK(json["memory"][0]["peak"] == 96);
  CHECK(json["domains"][0]["self_ns"] == 70);
}

TEST_CASE("text and JSON hold the rows") {
  Profile profile = Runs();
  profile.dropped = 3;
  const ProfileTable table = MakeProfileTable(profile);
  const std::string text = ToString(table);
  CHECK(text.find("5.050") != std::string::npos);
  CHECK(text.find("3 records found no room") != std::string::npos);
  const auto json = nlohmann::json::parse(ToJson(table));
  CHECK(json.at("dropped") == 3);
  CHECK(json.at("rows").size() == 2);
  CHECK(json.at("rows")[0].at("name") == "Add");
  CHECK(json.at("rows")[0].at("p90_ns") == 90);
  CHECK(MakeProfileTable({}).rows.empty());
}

}  // namespace
}  // namespace profile_table_test
