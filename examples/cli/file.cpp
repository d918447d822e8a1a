#include "file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "program.hpp"

namespace cli {
namespace {

[[noreturn]] void Refuse(const std::string& path) {
  throw Failure(ExitCode::kBadFile, "cannot write '" + path + "': " + std::strerror(errno));
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (path == "-") return;
  file_ = std::fopen(path.c_str(), "ab");
  if (!file_) Refuse(path);
}
OutputFile::~OutputFile() {
  if (file_) std::fclose(file_);
}

void OutputFile::Write(std::string_view text) {
  if (path_ == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);  // what goes wrong, main finds at the end
    return;
  }
  // A pipe or a device has nothing to cut off.
  if (ftruncate(fileno(file_), 0) != 0 && errno != EINVAL) Refuse(path_);
  errno = 0;
  const bool all = std::fwrite(text.data(), 1, text.size(), file_) == text.size();
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!all || !closed) Refuse(path_);
}

void WriteFile(const std::string& path, std::string_view text) { OutputFile(path).Write(text); }

}  // namespace cli
