// A new folder for a test, deleted at the end of the scope.
#ifndef OPKIT_TESTS_SUPPORT_TEMPORARY_FOLDER_HPP_
#define OPKIT_TESTS_SUPPORT_TEMPORARY_FOLDER_HPP_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "opkit_XXXXXX").string()) {
    if (!::mkdtemp(path_.data())) throw std::runtime_error("cannot make the folder " + path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(*this / name, std::ios::binary) << bytes;
    return *this / name;
  }
  // Copies `file` into the folder and returns the path. An existing file is replaced, not
  // overwritten, as linkers do.
  std::string Put(const std::string& file, const std::string& name) const {
    std::filesystem::remove(*this / name);
    std::filesystem::copy_file(file, *this / name);
    return *this / name;
  }

 private:
  std::string path_;
};

// Returns the bytes of a whole file.
inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

#endif  // OPKIT_TESTS_SUPPORT_TEMPORARY_FOLDER_HPP_
