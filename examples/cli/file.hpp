// Whole files in and out, for text: "-" is standard output.
#ifndef OPKIT_EXAMPLES_CLI_FILE_HPP_
#define OPKIT_EXAMPLES_CLI_FILE_HPP_

#include <cstdio>
#include <string>
#include <string_view>

namespace cli {

// A file that is opened before work is done for what it is to hold, and has what it had until then.
// Failures (kBadFile) name the file and say what the system says.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();
  void Write(std::string_view text);  // all that it is to hold

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
};

void WriteFile(const std::string& path, std::string_view text);

}  // namespace cli

#endif  // OPKIT_EXAMPLES_CLI_FILE_HPP_
