#include "opkit/report/report.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "opkit/profile/profiler.hpp"
#include "support/awkward.hpp"
#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/text.hpp"

namespace report_test {
namespace {

using namespace opkit;

struct Recorded {
  Recorded() {
    Profiler::Start();
    { const ProfileScope scope("</script> \"quoted\" \\ \n \xff"); }
    Profiler::Stop();
  }
};

}  // namespace

TEST_CASE("a report is one page whose data no name can leave") {
  const TemporaryFolder folder;
  const Recorded recorded;
  SaveReport(Profiler::Read(), folder / "report.html");
  const std::string page = ReadFile(folder / "report.html");
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.ends_with("</html>\n"));
  CHECK(page.find("default-src 'none'") != std::string::npos);  // it may load nothing
  CHECK(page.find("http://") == std::string::npos);
  CHECK(page.find("https://") == std::string::npos);
  const size_t begin = page.find("id=\"data\">"), end = page.find("</script>", begin);
  REQUIRE(end != std::string::npos);
  const std::string data = page.substr(begin, end - begin);
  CHECK(data.find("\\u003c/script> \\\"quoted\\\" \\\\ \\u000a \xef\xbf\xbd") != std::string::npos);
  CHECK(data.ends_with("}"));
}

TEST_CASE("a report's data is valid JSON for any name, number and peak") {
  const TemporaryFolder folder;
  Profile profile;
  RunReport run;
  for (const auto& [name, utf8] : AwkwardNames()) {
    const uint32_t number = InternName(name);
    profile.threads.push_back({1, name});
    ProfileSpan& span = profile.spans.emplace_back();
    span.end = 1;
    span.name = span.node = span.custom = number;
    span.work = {number, UINT64_MAX, UINT64_MAX, number};
    profile.markers.push_back({0, number, 0, false});
    for (const double value : AwkwardNumbers()) profile.counters.push_back({0, number, value});
    run.nodes.push_back({name, 0, 0, INT64_MAX, {}, false});
    run.buffers.push_back({name, name, INT64_MAX, 0, INT64_MIN});
  }
  for (const double number : AwkwardNumbers()) {
    ProfileTableOptions table;
    table.peak = {number, number};
    run.partition = AwkwardNames()[3].bytes;
    SaveReport(profile, folder / "awkward.html", table, run);
    const std::string page = ReadFile(folder / "awkward.html");
    const size_t begin = page.find("id=\"data\">") + 10;
    const auto data =
        nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
    const auto& texts = data.at("texts");
    REQUIRE(data.at("counters").size() == AwkwardNames().size());
    for (size_t i = 0; i < AwkwardNames().size(); ++i) {
      CHECK(texts.at(data.at("thread_names").at(i).get<size_t>()) == AwkwardNames()[i].utf8);
      CHECK(texts.at(data.at("run").at("nodes").at(i).at(0).get<size_t>()) ==
            AwkwardNames()[i].utf8);
    }
    for (size_t i = 0; i < AwkwardNumbers().size(); ++i) {
      const auto& value = data.at("counters").at(0).at("value").at(i);
      if (std::isfinite(AwkwardNumbers()[i]))
        CHECK(value == AwkwardNumbers()[i]);
      else
        CHECK(value.is_null());
    }
    CHECK(data.at("peak").at("flops").is_null() == !std::isfinite(number));
  }
}

TEST_CASE("a report shows a run where it is given one") {
  const TemporaryFolder folder;
  const Recorded recorded;
  RunReport run;
  run.nodes = {{"first", 1, 2, 3, {}, true}, {"</script>", 3, 4, 5, {0}, false}};
  run.buffers = {{"x", "first", 64, 2, 5}};
  run.arena_bytes = 128;
  run.processes = {{5, 1}, {4, 2}};
  run.waits = {{"first", 1, 0, 2, 1}};
  SaveReport(Profiler::Read(), folder / "run.html", {}, run);
  SaveReport(Profiler::Read(), folder / "none.html");
  const std::string page = ReadFile(folder / "run.html");
  const std::string texts = page.substr(page.find("\"texts\":"));
  CHECK(Contains(page, "\"run\":{\"begin\":0,\"end\":0,\"arena\":128,\"nodes\":[["));
  CHECK(Contains(page, ",1,2,3,1,[]],["));
  CHECK(Contains(page, ",3,4,5,0,[0]]],\"buffers\":[["));
  CHECK(Contains(page, ",64,2,5]],\"processes\":[[5,1],[4,2]],\"waits\":[["));
  CHECK(Contains(page, ",1,0,2,1]]}"));
  CHECK(Contains(texts, "\"first\",\"\\u003c/script>\",\"x\""));
  CHECK_FALSE(Contains(ReadFile(folder / "none.html"), "\"run\":"));
}

TEST_CASE("a report shows partitioners' nodes if it gets them, with a run or without") {
  const TemporaryFolder folder;
  const Recorded recorded;
  RunReport run;
  run.partition = "{\"taken\": 0, \"of\": 1, \"subgraphs\": [], \"nodes\": [\n</script>]}";
  SaveReport(Profiler::Read(), folder / "partition.html", {}, run);
  SaveReport(Profiler::Read(), folder / "none.html");
  CHECK(Contains(ReadFile(folder / "partition.html"),
                 R"(,"partition":"{\"taken\": 0, \"of\": 1, \"subgraphs\": [], \"nodes\": [\u000a)"
                 R"(\u003c/script>]}",)"));
  CHECK_FALSE(Contains(ReadFile(folder / "none.html"), "\"partition\":\""));
}

TEST_CASE("a report that cannot be written is an Error, and the recording stays") {
  const TemporaryFolder folder;
  const Recorded recorded;
  CHECK(ErrorOf([&] { SaveReport(Profiler::Read(), folder / "no/report.html"); }).code() ==
        ErrorCode::kIo);
  CHECK(ErrorOf([&] { SaveReport(Profiler::Read(), "/dev/full"); }).code() == ErrorCode::kIo);
  CHECK(Profiler::Read().spans.size() == 1);
}

TEST_CASE("the error in a program without a writer names the header that has one") {
  const TemporaryFolder folder;
  detail::g_report_writer.Fill(nullptr);
  const Error error = ErrorOf([&] { SaveReport(Profiler::Read(), folder / "report.html"); });
  detail::g_report_writer.Fill(&detail::SaveHtmlReport);
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "no file of the program includes opkit/report/report.hpp"));
}

}  // namespace report_test
