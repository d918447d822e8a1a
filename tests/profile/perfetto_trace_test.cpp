#include "opkit/profile/perfetto_trace.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <map>
#include <optional>

#include "opkit/profile/chrome_trace.hpp"
#include "support/awkward.hpp"
#include "support/temporary_folder.hpp"

namespace perfetto_trace_test { namespace {

using namespace opkit;

// The fields of a message by their numbers: numbers as they are, texts and messages as bytes.
struct Message {
  explicit Message(std::string_view bytes) {
    size_t at = 0;
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        REQUIRE(at < bytes.size());
        const auto byte = static_cast<unsigned char>(bytes[at++]);
        value |= uint64_t{byte & 0x7fu} << shift;
        if (byte < 0x80) return value;
      }
    };
    while (at < bytes.size()) {
      const uint64_t tag = varint();
      const int field = static_cast<int>(tag >> 3);
      if ((tag & 7) == 0) {
        numbers[field].push_back(varint());
      } else if ((tag & 7) == 1) {
        REQUIRE(at + 8 <= bytes.size());
        uint64_t value = 0;
        for (int i = 7; i >= 0; --i)
          value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<size_t>(i)]);
        at += 8;
        numbers[field].push_back(value);
      } else {
        REQUIRE((tag & 7) == 2);
        const uint64_t size = varint();
        REQUIRE(at + size <= bytes.size());
        texts[field].emplace_back(bytes.substr(at, size));
        at += size;
      }
    }
  }
  std::optional<uint64_t> Number(int field) const {
    const auto found = numbers.find(field);
    if (found == numbers.end()) return std::nullopt;
    return found->second[0];
  }
  std::map<int, std::vector<uint64_t>> numbers;
  std::map<int, std::vector<std::string>> texts;
};

// "begin Add 12", "end 30", … in the order of the file, with the times that the differences make.
std::vector<std::string> Events(const std::string& trace) {
  struct Sequence {
    uint64_t time = 0;
    std::map<uint64_t, std::string> names;
  };
  std::map<uint64_t, Sequence> sequences;
  std::vector<std::string> events;
  const Message whole(trace);
  for (const std::string& bytes : whole.texts.at(1)) {
    const Message packet(bytes);
    if (!packet.Number(10)) continue;  // describes a track
    Sequence& sequence = sequences[*packet.Number(10)];
    if (packet.texts.count(12)) {
      const Message interned(packet.texts.at(12)[0]);
      if (interned.texts.count(2))
        for (const std::string& entry : interned.texts.at(2))
          sequence.names[*Message(entry).Number(1)] = Message(entry).texts.at(2)[0];
    }
    if (!packet.texts.count(11)) continue;
    sequence.time += packet.Number(8).value();
    const Message event(packet.texts.at(11)[0]);
    const char* types[] = {"?", "begin", "end", "instant", "counter"};
    std::string text = types[event.Number(9).value()];
    if (event.Number(10)) text += " " + sequence.names.at(*event.Number(10));
    if (event.Number(44)) text += StrCat(" ", std::bit_cast<double>(*event.Number(44)));
    if (event.Number(47)) text += StrCat(" from ", *event.Number(47));
    if (event.Number(48)) text += StrCat(" to ", *event.Number(48));
    events.push_back(StrCat(text, " ", sequence.time));
  }
  return events;
}

ProfileSpan Span(const char* name, uint64_t id, int64_t begin, int64_t end) {
  ProfileSpan span;
  span.name = InternName(name);
  span.id = id;
  span.begin = begin;
  span.end = end;
  span.kind = Invocation::Kind::kOperator;
  return span;
}
std::string Written(const Profile& profile) {
  const TemporaryFolder folder;
  SavePerfettoTrace(profile, folder / "trace.pftrace");
  return ReadFile(folder / "trace.pftrace");
}

TEST_CASE("slices begin and end as their spans nest, user code between them") {
  Profile profile;
  profile.threads = {{1, "main"}};
  ProfileSpan mine = Span("MyOp", 1, 10, 100), sub = Span("Add", 2, 20, 50);
  mine.kind = Invocation::Kind::kCustomOperator;
  mine.custom = sub.custom = InternName("MyOp");
  profile.spans = {mine, sub, Span("Relu", 3, 100, 100)};
  CHECK(Events(Written(profile)) ==
        std::vector<std::string>{"begin MyOp 10", "begin MyOp::user_code 10", "end 20",
                                 "begin MyOp::Add 20", "end 50", "begin MyOp::user_code 50",
                                 "end 100", "end 100", "begin Relu 100", "end 100"});
}

TEST_CASE("work that goes on, pushes, counters and markers are events of their own") {
  Profile profile;
  profile.threads = {{1, "main"}, {2, "worker"}};
  ProfileSpan issued = Span("Issued", 5, 0, 10), other = Span("Other", 6, 12, 14),
              task = Span("fill", 9, 30, 40);
  issued.completed = 300;
  other.completed = 200;
  other.device_begin = 150;
  other.device_end = 180;
  task.thread = 1;
  task.pushed = 8;
  task.pusher = 0;
  profile.spans = {issued, other, task};
  profile.counters = {{5, InternName("queue"), 2.5}};
  profile.markers = {{25, InternName("here"), 0, false}};
  CHECK(Events(Written(profile)) ==
        std::vector<std::string>{"begin Issued 0", "end 10", "begin Other 12", "end 14",
                                 "begin fill to 9 30", "end 40", "begin Issued 0", "end 300",
                                 "begin Other 150", "end 180", "counter 2.5 5",
                                 "instant fill from 9 8", "instant here 25"});
}

TEST_CASE("a trace of many spans takes at most a quarter of the JSON") {
  Profile profile;
  profile.threads = {{12345, "main"}};
  for (int i = 0; i < 20'000; ++i)
    profile.spans.push_back(Span(i % 2 ? "Add" : "Conv", 1'000'000 + static_cast<uint64_t>(i),
                                 i * 1000, i * 1000 + 700));
  const TemporaryFolder folder;
  SaveChromeTrace(profile, folder / "trace.json");
  CHECK(Written(profile).size() * 4 <= ReadFile(folder / "trace.json").size());
}

TEST_CASE("names of any bytes are written as UTF-8, and finite numbers as they are") {
  Profile profile;
  for (const auto& [name, utf8] : AwkwardNames()) {
    CAPTURE(name.substr(0, 100));
    profile.threads = {{1, name}};
    profile.spans = {Span(name.c_str(), 1, 0, 1)};
    profile.spans[0].name = InternName(name);
    profile.counters.clear();
    std::vector<std::string> expected = {"begin " + (name.empty() ? "(unnamed)" : utf8) + " 0",
                                         "end 1"};
    for (const double value : AwkwardNumbers()) {
      profile.counters.push_back({2, InternName(name), value});
      if (std::isfinite(value)) expected.push_back(StrCat("counter ", value, " 2"));
    }
    CHECK(Events(Written(profile)) == expected);
  }
}

}  // namespace
}  // namespace perfetto_trace_test
