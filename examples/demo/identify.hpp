// FileIdentifier: says which kind of file something is, from its bytes alone, with the model
// standard_v3_3 of the package magika. What is done before and after the model is what the
// package's own Python source does.
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

// config.min.json beside the model, and content_types_kb.min.json of the package.
struct MagikaConfig {
  // `folder`: the package's. Throws opkit::Error for files that are not what they should be.
  static MagikaConfig Load(const std::string& folder);

  struct ContentType {
    std::string description;
    bool is_text = false;
  };
  size_t begin_size = 0, end_size = 0;  // how many bytes of both ends the model reads,
  size_t block_size = 0;                // after white space was stripped off blocks of this size
  size_t fewest_bytes = 0;              // fewer are not shown to the model
  int32_t padding = 0;                  // stands for bytes that are not there
  float threshold = 0;                  // of confidence, where `thresholds` names no other
  std::vector<std::string> labels;      // by class
  std::map<std::string, float> thresholds;
  std::map<std::string, std::string> replacements;
  std::map<std::string, ContentType> types;
};

// Writes the begin_size + end_size numbers that the model reads. False, where too few bytes are
// left to show to the model.
bool PrepareBytes(const MagikaConfig& config, std::string_view content, int32_t* bytes);
// The label of what is not shown to the model: "empty", "txt" for UTF-8, else "unknown".
const char* LabelOfFewBytes(const MagikaConfig& config, std::string_view content);
// The label in place of one that the model is not sure of, or that stands for several.
std::string OutputLabel(const MagikaConfig& config, const std::string& label, float confidence);

class FileIdentifier {
 public:
  // `folder`: the package's, which holds config/ and models/standard_v3_3/.
  explicit FileIdentifier(const std::string& folder);
  // One answer for each path, "unreadable" where it cannot be opened. Files go through the model
  // several at once; `progress` is called with the number that is done.
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
