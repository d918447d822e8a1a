// The definitions of base/output_file.hpp.
#ifndef OPKIT_BASE_IMPL_OUTPUT_FILE_IPP_
#define OPKIT_BASE_IMPL_OUTPUT_FILE_IPP_

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "opkit/base/output_file.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/strings.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// An open file of its own name beside `target`, which is stored in `name`; -1 where the folder
// takes none.
inline int OpenBeside(const std::string& target, mode_t mode, std::string* name) {
  for (int n = 0;; ++n) {
    *name = StrCat(target, ".", getpid(), ".", n, ".new");
    const int file = open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file >= 0 || errno != EEXIST) return file;
  }
}

OPKIT_INLINE OutputFile::OutputFile(const std::string& path) : path_(path), target_(path) {
  struct stat old;
  const bool exists = stat(path.c_str(), &old) == 0;
  if (exists) {
    if (access(path.c_str(), W_OK) != 0) Fail();
    if (char* real = realpath(path.c_str(), nullptr)) {
      target_ = real;
      std::free(real);
    }
  }
  if (!exists || S_ISREG(old.st_mode)) {
    const int made = detail::OpenBeside(target_, exists ? 0600 : 0666, &temporary_);
    if (made >= 0) {
      // The owner may not be ours to keep; whoever could read the old file can read the new one.
      if (exists) static_cast<void>(fchmod(made, old.st_mode & 07777));
      file_ = fdopen(made, "wb");
      return;
    }
    temporary_.clear();
    if (!exists) Fail();
  }
  file_ = std::fopen(path.c_str(), "ab");
  if (!file_) Fail();
}
OPKIT_INLINE OutputFile::~OutputFile() {
  if (file_) std::fclose(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

OPKIT_INLINE void OutputFile::Write(std::string_view bytes) {
  // A pipe or a device has nothing to cut off.
  if (temporary_.empty() && !std::exchange(truncated_, true) && ftruncate(fileno(file_), 0) != 0 &&
      errno != EINVAL)
    Fail();
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) Fail();
}

OPKIT_INLINE void OutputFile::Commit() {
  Write({});
  if (std::fclose(std::exchange(file_, nullptr)) != 0) Fail();
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) Fail();
  temporary_.clear();
}

OPKIT_INLINE void OutputFile::Fail() const {
  Throw(ErrorCode::kFailedPrecondition, "cannot write '", path_, "': ", std::strerror(errno));
}

}  // namespace detail

OPKIT_INLINE void WriteFile(const std::string& path, std::string_view bytes) {
  detail::OutputFile file(path);
  file.Write(bytes);
  file.Commit();
}

}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_OUTPUT_FILE_IPP_
