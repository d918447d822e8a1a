#include "file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "program.hpp"

namespace cli {

void WriteFile(const std::string& path, std::string_view text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);  // what goes wrong, main finds at the end
    return;
  }
  errno = 0;
  std::FILE* file = std::fopen(path.c_str(), "wb");
  bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file) written = std::fclose(file) == 0 && written;
  if (!written)
    throw Failure(ExitCode::kBadFile, "cannot write '" + path + "': " + std::strerror(errno));
}

}  // namespace cli
