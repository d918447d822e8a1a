#include "file.hpp"

#include <cstdio>

#include "program.hpp"

namespace cli {

OutputFile::OutputFile(const std::string& path) {
  if (path != "-") FailWith(ExitCode::kBadFile, "", [&] { file_.emplace(path); });
}

void OutputFile::Write(std::string_view text) {
  if (!file_) {
    std::fwrite(text.data(), 1, text.size(), stdout);  // main checks stdout at the end
    return;
  }
  FailWith(ExitCode::kBadFile, "", [&] {
    file_->Write(text);
    file_->Commit();
  });
}

void WriteFile(const std::string& path, std::string_view text) { OutputFile(path).Write(text); }

}  // namespace cli
