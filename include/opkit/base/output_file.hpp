// OutputFile, WriteFile: a file is written whole, or stays what it was.
#ifndef OPKIT_BASE_OUTPUT_FILE_HPP_
#define OPKIT_BASE_OUTPUT_FILE_HPP_

#include <cstdio>
#include <string>
#include <string_view>

#include "opkit/base/error.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A new file beside the old one, whose place it takes when all is written: what goes wrong until
// then leaves the old one as it was. Links are followed, permissions kept. A pipe, a device, and a
// file in a folder where none may be made are written where they are. A descriptor, "/dev/stdout"
// or "/dev/fd/3", is written to from where it stands, whatever is behind it.
class OutputFile {
 public:
  // Errors here and below: kFailedPrecondition with the path and what the system says.
  explicit OutputFile(const std::string& path);
  OutputFile(OutputFile&&) = delete;
  ~OutputFile();

  void Write(std::string_view bytes);
  // Puts what was written in the place of `path`. To be called last.
  void Commit();

 private:
  [[noreturn]] void Fail() const;

  std::string path_, target_, temporary_;  // `target_` is behind links; no temporary: in place
  std::FILE* file_ = nullptr;
  bool truncated_ = false;  // the old contents are cut off, or stay because others write there too
};

}  // namespace detail

void WriteFile(const std::string& path, std::string_view bytes);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/output_file.ipp"
#endif

#endif  // OPKIT_BASE_OUTPUT_FILE_HPP_
