#include "opkit/profile/recording/decoder.hpp"

#include <doctest/doctest.h>

namespace decoder_test {
namespace {

using namespace opkit;
using namespace opkit::detail;

// A session from tick 1000 (5000 ns) to tick 2000, with two ns for each tick.
ProfileDecoder MakeDecoder() { return ProfileDecoder({1000, 5000, 2000, 2.0}); }

}  // namespace

TEST_CASE("facts of a run reach its span, whichever thread wrote them and whenever") {
  const uint32_t conv = InternName("Conv"), shapes = InternName("float32[2]");
  const ProfileRecord first[] = {
      {.work = {.shapes = shapes, .id = 7, .flops = 10, .bytes = 20}},
      {.pushed = {.name = conv, .id = 7, .time = 1010}},
  };
  const ProfileRecord second[] = {
      {.span = {.kind = Invocation::Kind::kOperator, .id = 7, .begin = 1100, .end = 1200}},
      {.on_device = {.id = 7, .begin = 5150, .end = 5450}},
      {.completed = {.id = 7, .time = 1300}},
      {.completed = {.id = 8, .time = 1300}},  // of a span that was dropped
  };
  ProfileDecoder decoder = MakeDecoder();
  decoder.BeginThread({1, "main"});
  decoder.Add(first);
  decoder.EndThread();
  decoder.BeginThread({2, "worker"});
  decoder.Add(second);
  decoder.EndThread();
  const Profile profile = decoder.Finish();
  CHECK(profile.duration == 2000);
  REQUIRE(profile.spans.size() == 1);
  const ProfileSpan& span = profile.spans[0];
  CHECK(span.name == conv);
  CHECK(span.thread == 1);
  CHECK(span.begin == 200);
  CHECK(span.end == 400);
  CHECK(span.pushed == 20);
  CHECK(span.pusher == 0);
  CHECK(span.device_begin == 150);
  CHECK(span.device_end == 450);
  CHECK(span.completed == 600);
  CHECK(span.work.shapes == shapes);
  CHECK(span.work.flops == 10);
  CHECK(span.work.bytes == 20);
  CHECK_FALSE(span.open);
}

TEST_CASE("an open span ends with the last span of its thread, and a part of it gets its name") {
  const uint32_t outer = InternName("outer"), node = InternName("node_1");
  const ProfileRecord first[] = {
      {.span = {.name = outer, .node = node, .id = 1, .begin = 1100}},
      {.span = {.name = InternName("inner"), .id = 2, .begin = 1200, .end = 2500}},
  };
  const ProfileRecord second[] = {
      {.span = {.type = RecordType::kAdopted, .id = 1, .begin = 1300, .end = 1400}}};
  ProfileDecoder decoder = MakeDecoder();
  decoder.BeginThread({1, "main"});
  decoder.Add(first);
  decoder.EndThread();
  decoder.BeginThread({2, "worker"});
  decoder.Add(second);
  decoder.EndThread();
  const Profile profile = decoder.Finish();
  REQUIRE(profile.spans.size() == 3);
  CHECK(profile.spans[0].open);
  CHECK(profile.spans[0].end == 3000);
  CHECK(profile.spans[2].adopted);
  CHECK(profile.spans[2].name == outer);
  CHECK(profile.spans[2].node == node);
  CHECK_FALSE(profile.spans[2].open);
}

TEST_CASE("texts before a record are its name, and counts of one invocation are summed") {
  ProfileRecord records[] = {
      {.text = {}},
      {.text = {}},
      {.marker = {.frame = true, .time = 1500}},
      {.counter = {.name = InternName("queue"), .time = 1400, .value = 2.5}},
      {.counts = {.first = 0, .id = 3, .values = {1, 2, 3}}},
      {.counts = {.first = 3, .id = 3, .values = {4, 5, 6}}},
      {.counts = {.first = 0, .id = 3, .values = {10, 20, 30}}},
      {.memory =
           {.allocator = InternName("cpu"), .id = 3, .time = 1600, .bytes = -64, .live = 128}},
  };
  const std::string name = std::string(TextRecord::kBytes, 'a') + "end";
  name.copy(records[0].text.text, TextRecord::kBytes);
  name.copy(records[1].text.text, TextRecord::kBytes, TextRecord::kBytes);
  ProfileDecoder decoder = MakeDecoder();
  decoder.BeginThread({1, "main"});
  decoder.Add(records);
  decoder.EndThread();
  const Profile profile = decoder.Finish();
  REQUIRE(profile.markers.size() == 1);
  CHECK(InternedName(profile.markers[0].name) == name);
  CHECK(profile.markers[0].frame);
  CHECK(profile.markers[0].time == 1000);
  REQUIRE(profile.counts.size() == 1);
  const uint64_t sums[] = {11, 22, 33, 4, 5, 6};
  for (int i = 0; i < 6; ++i) CHECK(profile.counts[0].values[i] == sums[i]);
  REQUIRE(profile.allocations.size() == 1);
  CHECK(profile.allocations[0].bytes == -64);
  CHECK(profile.allocations[0].invocation == 3);
  REQUIRE(profile.counters.size() == 2);  // in order of time
  CHECK(profile.counters[0].value == 2.5);
  CHECK(InternedName(profile.counters[1].name) == "memory of cpu");
  CHECK(profile.counters[1].value == 128);
}

TEST_CASE("a message is a fact of the span that sent it, and of no adopted part") {
  ProfileRecord records[] = {
      {.span = {.id = 3, .begin = 1100, .end = 1200}},
      {.span = {.type = RecordType::kAdopted, .id = 3, .begin = 1300, .end = 1400}},
      {.span = {.id = 4, .begin = 1500, .end = 1600}},
      {.message = {.from = 1, .to = 2, .id = 3, .plan = 5, .channel = 6, .number = 7}},
  };
  ProfileDecoder decoder = MakeDecoder();
  decoder.BeginThread({1, "main"});
  decoder.Add(records);
  decoder.EndThread();
  const Profile profile = decoder.Finish();
  REQUIRE(profile.spans.size() == 3);
  const ProfileMessage& message = profile.spans[0].message;
  CHECK(message.from == 1);
  CHECK(message.to == 2);
  CHECK(message.plan == 5);
  CHECK(message.channel == 6);
  CHECK(message.number == 7);
  CHECK(profile.spans[1].message.from == -1);
  CHECK(profile.spans[2].message.from == -1);
}

}  // namespace decoder_test
