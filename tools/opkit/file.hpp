// Writes whole files of text; "-" is standard output.
#ifndef OPKIT_TOOLS_OPKIT_FILE_HPP_
#define OPKIT_TOOLS_OPKIT_FILE_HPP_

#include <optional>
#include <string>
#include <string_view>

#include "opkit/base/output_file.hpp"

namespace cli {

// A file that is opened before the work for its content begins. It keeps its old content until
// Write. Throws Failures (kBadFile) with the file's name and the system's message.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  void Write(std::string_view text);  // the whole content

 private:
  std::optional<opkit::detail::OutputFile> file_;  // none: standard output
};

void WriteFile(const std::string& path, std::string_view text);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_FILE_HPP_
