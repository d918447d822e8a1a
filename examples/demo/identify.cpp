#include "identify.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <opkit/interop/mapped_file.hpp>

namespace demo {
namespace {

using namespace opkit;

constexpr const char* kModel = "/models/standard_v3_3/";
constexpr int kFilesAtOnce = 16;

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  if (!file) Throw(ErrorCode::kIo, "cannot open '", path, "'");
  return nlohmann::json::parse(file);
}

constexpr std::string_view kWhiteSpace = " \t\n\r\v\f";

std::string_view WithoutLeading(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kWhiteSpace), text.size()));
}
std::string_view WithoutTrailing(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kWhiteSpace) + 1);
}

// Follows the Unicode standard's table 3-7: no surrogates, no overlong sequences.
bool IsUtf8(std::string_view text) {
  const auto byte = [&](size_t at) -> unsigned {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
  };
  for (size_t i = 0; i < text.size();) {
    const unsigned first = byte(i);
    if (first >= 0x80 && (first < 0xc2 || first > 0xf4)) return false;
    const size_t more = (first >= 0x80) + (first >= 0xe0) + (first >= 0xf0);
    unsigned low = 0x80, high = 0xbf;  // range of the second byte
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    for (size_t n = 1; n <= more; ++n, low = 0x80, high = 0xbf)
      if (byte(i + n) < low || byte(i + n) > high) return false;
    i += more + 1;
  }
  return true;
}

}  // namespace

MagikaConfig MagikaConfig::Load(const std::string& folder) {
  MagikaConfig config;
  try {
    const nlohmann::json model = ReadJson(folder + kModel + "config.min.json");
    if (model.at("mid_size") != 0 || model.at("use_inputs_at_offsets") != false)
      Throw(ErrorCode::kUnsupported, "the model reads other parts of a file than its two ends");
    config.begin_size = model.at("beg_size");
    config.end_size = model.at("end_size");
    config.block_size = model.at("block_size");
    config.fewest_bytes = model.at("min_file_size_for_dl");
    config.padding = model.at("padding_token");
    config.threshold = model.at("medium_confidence_threshold");
    config.labels = model.at("target_labels_space");
    config.thresholds = model.at("thresholds");
    config.replacements = model.at("overwrite_map");
    if (config.fewest_bytes < 1 || config.fewest_bytes > config.begin_size)
      Throw(ErrorCode::kUnsupported, "min_file_size_for_dl must be 1 to ", config.begin_size,
            ", found ", config.fewest_bytes);
    const nlohmann::json types = ReadJson(folder + "/config/content_types_kb.min.json");
    for (const auto& [label, type] : types.items()) {
      const auto& description = type.at("description");
      config.types[label] = {description.is_null() ? label : description.get<std::string>(),
                             type.at("is_text").get<bool>()};
    }
  } catch (const nlohmann::json::exception& error) {
    Throw(ErrorCode::kInvalidArgument, "the configuration in ", folder,
          " is damaged: ", error.what());
  }
  return config;
}

bool PrepareBytes(const MagikaConfig& config, std::string_view content, int32_t* bytes) {
  if (content.size() < config.fewest_bytes) return false;
  const size_t block = std::min(config.block_size, content.size());
  const std::string_view begin = WithoutLeading(content.substr(0, block));
  const std::string_view end = WithoutTrailing(content.substr(content.size() - block));
  std::fill_n(bytes, config.begin_size + config.end_size, config.padding);
  const auto write = [&](std::string_view text, int32_t* to) {
    for (const char c : text) *to++ = static_cast<unsigned char>(c);
  };
  const size_t last = std::min(config.end_size, end.size());
  write(begin.substr(0, config.begin_size), bytes);
  write(end.substr(end.size() - last), bytes + config.begin_size + config.end_size - last);
  return begin.size() >= config.fewest_bytes;
}

const char* LabelOfFewBytes(const MagikaConfig& config, std::string_view content) {
  if (content.empty()) return "empty";
  return IsUtf8(content.substr(0, config.block_size)) ? "txt" : "unknown";
}

std::string OutputLabel(const MagikaConfig& config, const std::string& label, float confidence) {
  const auto replaced = config.replacements.find(label);
  const std::string& output = replaced == config.replacements.end() ? label : replaced->second;
  const auto own = config.thresholds.find(label);
  if (confidence >= (own == config.thresholds.end() ? config.threshold : own->second))
    return output;
  const auto type = config.types.find(output);
  return type != config.types.end() && type->second.is_text ? "txt" : "unknown";
}

// A batch of files for one run of the model.
struct FileIdentifier::Batch {
  std::vector<size_t> files;  // indices in the list of answers
  std::vector<int32_t> bytes;
};

FileIdentifier::FileIdentifier(const std::string& folder)
    : config_(MagikaConfig::Load(folder)),
      model_(ReadModel(folder + kModel + "model.onnx").graph) {}

FileKind FileIdentifier::Describe(std::string label, float confidence) const {
  const auto type = config_.types.find(label);
  const std::string description = type == config_.types.end() ? label : type->second.description;
  return {std::move(label), description, confidence};
}

void FileIdentifier::Run(Batch& batch, std::vector<FileKind>& kinds) {
  const auto files = static_cast<int64_t>(batch.files.size());
  const auto classes = static_cast<int64_t>(config_.labels.size());
  if (files == 0) return;
  const Tensor bytes =
      Tensor::From<int32_t>({files, static_cast<int64_t>(batch.bytes.size()) / files}, batch.bytes);
  const Tensor scores = model_.Run(bytes);
  if (scores.shape() != Shape({files, classes}))
    Throw(ErrorCode::kInvalidArgument, "expected scores of ", classes, " labels, found ", scores);
  const float* row = scores.data<float>();
  for (const size_t file : batch.files) {
    const auto best = static_cast<size_t>(std::max_element(row, row + classes) - row);
    kinds[file] = Describe(OutputLabel(config_, config_.labels[best], row[best]), row[best]);
    row += classes;
  }
  batch = {};
}

std::vector<FileKind> FileIdentifier::Identify(const std::vector<std::string>& paths,
                                               const std::function<void(size_t)>& progress) {
  std::vector<FileKind> kinds(paths.size());
  std::vector<int32_t> bytes(config_.begin_size + config_.end_size);
  Batch batch;
  for (size_t i = 0; i < paths.size(); ++i) {
    try {
      const Storage file = MapFile(paths[i]);
      const std::string_view content = BytesOf(file);
      if (PrepareBytes(config_, content, bytes.data())) {
        batch.files.push_back(i);
        batch.bytes.insert(batch.bytes.end(), bytes.begin(), bytes.end());
      } else {
        kinds[i] = Describe(LabelOfFewBytes(config_, content), 1);
      }
    } catch (const Error&) {
      kinds[i] = {"unreadable", "cannot be read", 0};
    }
    if (batch.files.size() == kFilesAtOnce || i + 1 == paths.size()) {
      Run(batch, kinds);
      if (progress) progress(i + 1);
    }
  }
  return kinds;
}

}  // namespace demo
