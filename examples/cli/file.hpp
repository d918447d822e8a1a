// Whole files in and out, for text: "-" is standard output.
#ifndef OPKIT_EXAMPLES_CLI_FILE_HPP_
#define OPKIT_EXAMPLES_CLI_FILE_HPP_

#include <string>
#include <string_view>

namespace cli {

// Failures (kBadFile) name the file and say what the system says.
void WriteFile(const std::string& path, std::string_view text);

}  // namespace cli

#endif  // OPKIT_EXAMPLES_CLI_FILE_HPP_
