// Files are prepared for the model, and its answers read, as the package magika does.
#include "identify.hpp"

#include <doctest/doctest.h>

#include <filesystem>

#include "expected.hpp"
#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"

namespace demo { namespace {

const std::string kPackage = "magika-1.0.3/magika";

std::string ContentOf(const nlohmann::json& parts) {
  std::string content;
  for (const auto& part : parts)
    for (int i = 0; i < part[1].get<int>(); ++i) {
      if (part[0].is_string())
        content += part[0].get<std::string>();
      else
        for (const int byte : part[0]) content += static_cast<char>(byte);
    }
  return content;
}

MagikaConfig SmallConfig() {
  MagikaConfig config;
  config.begin_size = 4;
  config.end_size = 3;
  config.block_size = 6;
  config.fewest_bytes = 2;
  config.padding = -1;
  config.threshold = 0.5f;
  config.thresholds = {{"markdown", 0.75f}, {"noise", 0.9f}};
  config.replacements = {{"noise", "unknown"}, {"words", "txt"}};
  config.types = {{"markdown", {"Markdown", true}},
                  {"png", {"PNG image", false}},
                  {"txt", {"Text", true}},
                  {"unknown", {"Unknown", false}}};
  return config;
}
using Bytes = std::vector<int32_t>;
Bytes Prepared(const std::string& content) {
  Bytes bytes(7, 77);
  return PrepareBytes(SmallConfig(), content, bytes.data()) ? bytes : Bytes();
}

TEST_CASE("the model reads both ends of a file, each without its white space") {
  CHECK(Prepared("abcdefgh") == Bytes{'a', 'b', 'c', 'd', 'f', 'g', 'h'});
  CHECK(Prepared("abc") == Bytes{'a', 'b', 'c', -1, 'a', 'b', 'c'});
  CHECK(Prepared("ab") == Bytes{'a', 'b', -1, -1, -1, 'a', 'b'});
  // Only leading space goes from the beginning, and only trailing space from the end.
  CHECK(Prepared(" ab ") == Bytes{'a', 'b', ' ', -1, ' ', 'a', 'b'});
  // Only the first and the last block are read: the middle of a longer file stays unseen.
  CHECK(Prepared("\t\n\v abcdefg\r\n   ") == Bytes{'a', 'b', -1, -1, -1, -1, 'g'});
  CHECK(Prepared(std::string("\0\xff", 2)) == Bytes{0, 255, -1, -1, -1, 0, 255});
}

TEST_CASE("too few bytes are no matter for the model") {
  CHECK(Prepared("").empty());
  CHECK(Prepared("a").empty());
  CHECK(Prepared("      ").empty());
  CHECK(Prepared("     ab").empty());  // the second one is behind the block
  CHECK(LabelOfFewBytes(SmallConfig(), "") == std::string("empty"));
  CHECK(LabelOfFewBytes(SmallConfig(), "a") == std::string("txt"));
  CHECK(LabelOfFewBytes(SmallConfig(), "\xff") == std::string("unknown"));
}

TEST_CASE(
    "labels are replaced by the configuration's rules, doubtful labels by more general ones") {
  const MagikaConfig config = SmallConfig();
  CHECK(OutputLabel(config, "png", 0.5f) == "png");
  CHECK(OutputLabel(config, "png", 0.49f) == "unknown");
  CHECK(OutputLabel(config, "markdown", 0.75f) == "markdown");
  CHECK(OutputLabel(config, "markdown", 0.74f) == "txt");
  CHECK(OutputLabel(config, "words", 0.9f) == "txt");
  CHECK(OutputLabel(config, "words", 0.1f) == "txt");
  CHECK(OutputLabel(config, "noise", 0.95f) == "unknown");
  CHECK(OutputLabel(config, "noise", 0.6f) == "unknown");
}

TEST_CASE("made-up files are prepared as magika prepares them") {
  const MagikaConfig config = MagikaConfig::Load(DataFile(kPackage));
  REQUIRE(config.labels.size() == 214);
  REQUIRE(config.begin_size + config.end_size == 2048);
  std::vector<int32_t> bytes(2048);
  for (const auto& file : Expected()["files"]) {
    CAPTURE(file["name"].get<std::string>());
    const std::string content = ContentOf(file["parts"]);
    const bool shown = PrepareBytes(config, content, bytes.data());
    CHECK(shown == file["hash"].is_string());
    if (shown) {
      CHECK(Fnv({reinterpret_cast<const char*>(bytes.data()), bytes.size() * 4}) ==
            file["hash"].get<std::string>());
    } else {
      CHECK(LabelOfFewBytes(config, content) == file["label"].get<std::string>());
    }
  }
}

TEST_CASE("made-up files are identified as magika identifies them") {
  const TemporaryFolder folder;
  std::vector<std::string> paths;
  for (const auto& file : Expected()["files"])
    paths.push_back(folder.Write(std::to_string(paths.size()), ContentOf(file["parts"])));
  paths.push_back(folder.path() + "/nowhere");

  FileIdentifier identifier(DataFile(kPackage));
  std::vector<size_t> done;
  const auto kinds = identifier.Identify(paths, [&](size_t count) { done.push_back(count); });
  REQUIRE(kinds.size() == paths.size());
  for (size_t i = 0; i + 1 < kinds.size(); ++i) {
    const auto& file = Expected()["files"][i];
    CAPTURE(file["name"].get<std::string>());
    CHECK(kinds[i].label == file["label"].get<std::string>());
    // For files that are nearly all padding the model subtracts nearly equal numbers: another order
    // of sums changes the third digit.
    CHECK(kinds[i].confidence == doctest::Approx(file["score"].get<float>()).epsilon(1e-2));
  }
  CHECK(kinds.back().label == "unreadable");
  REQUIRE(done.size() > 1);
  CHECK(std::is_sorted(done.begin(), done.end()));
  CHECK(done.back() == paths.size());
}

TEST_CASE("a configuration that is not there or damaged is an error that names it") {
  const TemporaryFolder folder;
  CHECK(ErrorOf([&] { MagikaConfig::Load(folder.path()); }).message() ==
        "cannot open '" + folder.path() + "/models/standard_v3_3/config.min.json'");
  std::filesystem::create_directories(folder.path() + "/models/standard_v3_3");
  folder.Write("models/standard_v3_3/config.min.json", R"({"mid_size": 0})");
  const std::string error = ErrorOf([&] { MagikaConfig::Load(folder.path()); }).message();
  CHECK(Contains(error, "the configuration in " + folder.path() + " is damaged"));
  CHECK(Contains(error, "use_inputs_at_offsets"));
  folder.Write("models/standard_v3_3/config.min.json",
               R"({"mid_size": 64, "use_inputs_at_offsets": false})");
  CHECK(ErrorOf([&] { MagikaConfig::Load(folder.path()); }).message() ==
        "the model reads other parts of a file than its two ends");
}

}  // namespace
}  // namespace demo
