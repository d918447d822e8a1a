// Whole files of text out: "-" is standard output.
#ifndef OPKIT_TOOLS_OPKIT_FILE_HPP_
#define OPKIT_TOOLS_OPKIT_FILE_HPP_

#include <optional>
#include <string>
#include <string_view>

#include "opkit/base/output_file.hpp"

namespace cli {

// A file that is opened before work is done for what it is to hold, and has what it had until then.
// Failures (kBadFile) name the file and say what the system says.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  void Write(std::string_view text);  // all that it is to hold

 private:
  std::optional<opkit::detail::OutputFile> file_;  // none: standard output
};

void WriteFile(const std::string& path, std::string_view text);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_FILE_HPP_
