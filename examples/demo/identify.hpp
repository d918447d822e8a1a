// FileIdentifier: finds the kind of a file from its bytes alone, with the model standard_v3_3 of
// the package magika. The steps before and after the model are those of the package's Python
// source.
#ifndef OPKIT_EXAMPLES_DEMO_IDENTIFY_HPP_
#define OPKIT_EXAMPLES_DEMO_IDENTIFY_HPP_

#include <functional>
#include <map>

#include "model.hpp"

namespace demo {

struct FileKind {
  std::string label;        // "cpp"
  std::string description;  // "C++ source"
  float confidence = 0;
};

// The contents of config.min.json beside the model, and of the package's content_types_kb.min.json.
struct MagikaConfig {
  // `folder` is the package's folder. Throws opkit::Error for missing or damaged files.
  static MagikaConfig Load(const std::string& folder);

  struct ContentType {
    std::string description;
    bool is_text = false;
  };
  size_t begin_size = 0, end_size = 0;  // number of bytes that the model reads at either end,
  size_t block_size = 0;                // after white space was stripped from blocks of this size
  size_t fewest_bytes = 0;              // files with fewer bytes are not given to the model
  int32_t padding = 0;                  // number for a missing byte
  float threshold = 0;                  // confidence for kinds that `thresholds` does not list
  std::vector<std::string> labels;      // by class
  std::map<std::string, float> thresholds;
  std::map<std::string, std::string> replacements;
  std::map<std::string, ContentType> types;
};

// Writes the begin_size + end_size numbers that the model reads. False if too few bytes are left
// for the model.
bool PrepareBytes(const MagikaConfig& config, std::string_view content, int32_t* bytes);
// Returns the label of a file that is not given to the model: "empty", "txt" for UTF-8, else
// "unknown".
const char* LabelOfFewBytes(const MagikaConfig& config, std::string_view content);
// Returns the label to show: another one if the confidence is low or if the label stands for
// several.
std::string OutputLabel(const MagikaConfig& config, const std::string& label, float confidence);

class FileIdentifier {
 public:
  // `folder` is the package's folder, with config/ and models/standard_v3_3/.
  explicit FileIdentifier(const std::string& folder);
  // Returns an answer for each path, "unreadable" for a file that cannot be opened. The model takes
  // several files in each run. Calls `progress` with the number of files that are done.
  std::vector<FileKind> Identify(const std::vector<std::string>& paths,
                                 const std::function<void(size_t)>& progress = {});
  const opkit::Plan& plan() const { return model_.plan(); }

 private:
  struct Batch;
  void Run(Batch& batch, std::vector<FileKind>& kinds);
  FileKind Describe(std::string label, float confidence) const;

  MagikaConfig config_;
  Model model_;
};

}  // namespace demo

#endif  // OPKIT_EXAMPLES_DEMO_IDENTIFY_HPP_
