// OutputFile, SaveFile: write a file completely, or leave the old file unchanged. UpdateFile does
// so for a file that several processes change.
#ifndef OPKIT_BASE_OUTPUT_FILE_HPP_
#define OPKIT_BASE_OUTPUT_FILE_HPP_

#include <cstdio>
#include <string>
#include <string_view>

#include "opkit/base/error.hpp"
#include "opkit/base/function_ref.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Writes a new file in the same folder; Commit renames the new file over the old one. An error
// before Commit leaves the old file unchanged. Follows links and keeps permissions. Writes in place
// to a pipe, a device, or a file in a folder where no new file can be created. Writes to a
// descriptor ("/dev/stdout", "/dev/fd/3") from its current offset, for any kind of file.
class OutputFile {
 public:
  // Errors here and below: kIo with the path and the system's message.
  explicit OutputFile(const std::string& path);
  OutputFile(OutputFile&&) = delete;
  ~OutputFile();

  void Write(std::string_view bytes);
  // Replaces `path` by the written file. Call it last.
  void Commit();

 private:
  [[noreturn]] void Fail() const;

  // `target_` is `path_` with links resolved; without a `temporary_` the target is written in
  // place.
  std::string path_, target_, temporary_;
  std::FILE* file_ = nullptr;
  bool truncated_ = false;  // the old contents are cut off, or must stay for a descriptor
};

// Returns the bytes of a file; an empty string if there is none. Throws kIo for anything else that
// cannot be read, such as a folder or a pipe.
std::string ReadFileIfPresent(const std::string& path);

// Changes a file that other processes and threads may change at the same time. `change` gets the
// present bytes, none if there is no file, and returns the new ones; if it throws, the file stays.
// The call makes missing folders. It waits for the lock of the file "PATH.lock", which stays, at
// most so many seconds. The new bytes are on the disk in "PATH.new" before that file is renamed, so
// a kill or a crash at any moment leaves the old file or the new one. Follows links and keeps
// permissions. Throws kIo, with the path and the system's message.
void UpdateFile(const std::string& path, FunctionRef<std::string(std::string_view bytes)> change,
                double wait_s = 10);

}  // namespace detail

void SaveFile(const std::string& path, std::string_view bytes);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/output_file.ipp"
#endif

#endif  // OPKIT_BASE_OUTPUT_FILE_HPP_
