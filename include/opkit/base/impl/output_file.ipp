// The definitions of base/output_file.hpp.
#ifndef OPKIT_BASE_IMPL_OUTPUT_FILE_IPP_
#define OPKIT_BASE_IMPL_OUTPUT_FILE_IPP_

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "opkit/base/cache/file_lock.hpp"
#include "opkit/base/output_file.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/strings.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the descriptor in a name such as "/dev/stdout" or "/dev/fd/3"; -1 for other names. The
// file of a descriptor may have no name any more, and the descriptor has its own write offset.
inline int DescriptorOf(std::string_view path) {
  for (const auto& [name, number] :
       {std::pair("/dev/stdin", 0), {"/dev/stdout", 1}, {"/dev/stderr", 2}})
    if (path == name) return number;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    int number = -1;
    const std::string_view digits = path.substr(folder.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return error == std::errc() && end == digits.data() + digits.size() ? number : -1;
  }
  return -1;
}
inline std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}
// Follows up to 40 symbolic links and returns the last path; no file need exist there.
inline std::string BehindLinks(std::string path) {
  char next[4096];
  for (int links = 0; links < 40 && DescriptorOf(path) < 0; ++links) {
    const ssize_t length = readlink(path.c_str(), next, sizeof next);
    if (length < 0) return path;
    const std::string_view target(next, static_cast<size_t>(length));
    path = target.starts_with('/') ? std::string(target) : StrCat(FolderOf(path), target);
  }
  return path;
}

// Opens a new file in the folder of `target` and stores its name in `name`; returns -1 if the file
// cannot be created there. The name is short even if the target's name has the greatest length that
// the system allows.
inline int OpenBeside(const std::string& target, mode_t mode, std::string* name) {
  for (int n = 0;; ++n) {
    *name = StrCat(FolderOf(target), ".opkit.", getpid(), ".", n, ".new");
    const int file = open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file >= 0 || errno != EEXIST) return file;
  }
}

OPKIT_INLINE OutputFile::OutputFile(const std::string& path)
    : path_(path), target_(detail::BehindLinks(path)) {
  if (const int descriptor = detail::DescriptorOf(target_); descriptor >= 0) {
    if (descriptor == 1) std::fflush(stdout);  // keeps earlier prints in front
    const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    file_ = own < 0 ? nullptr : fdopen(own, "wb");
    if (!file_) Fail();
    truncated_ = true;
    return;
  }
  struct stat old;
  const bool exists = stat(target_.c_str(), &old) == 0;
  if (!exists && errno != ENOENT) Fail();
  if (exists && access(target_.c_str(), W_OK) != 0) Fail();
  if (!exists || S_ISREG(old.st_mode)) {
    const int made = detail::OpenBeside(target_, exists ? 0600 : 0666, &temporary_);
    if (made >= 0) {
      // Readers of the old file can read the new one. The owner is not kept: the system may not
      // allow it.
      if (exists) static_cast<void>(fchmod(made, old.st_mode & 07777));
      file_ = fdopen(made, "wb");
      return;
    }
    temporary_.clear();
    if (!exists) Fail();
  }
  file_ = std::fopen(target_.c_str(), "ab");
  if (!file_) Fail();
}
OPKIT_INLINE OutputFile::~OutputFile() {
  if (file_) std::fclose(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

OPKIT_INLINE void OutputFile::Write(std::string_view bytes) {
  // EINVAL: a pipe or a device, whose contents cannot be cut off.
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
  Throw(ErrorCode::kIo, "cannot write '", path_, "': ", std::strerror(errno));
}

OPKIT_INLINE std::string ReadFileIfPresent(const std::string& path) {
  struct Descriptor {
    const int number;
    ~Descriptor() {
      if (number >= 0) close(number);
    }
  };
  // Without O_NONBLOCK opening a pipe would wait for its writer.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status;
  if (file.number < 0 && errno == ENOENT) return {};
  if (file.number < 0 || fstat(file.number, &status) != 0) FailFile("read", path);
  if (!S_ISREG(status.st_mode)) FailFile("read", path, "it is not a regular file");
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = read(file.number, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) FailFile("read", path);
    if (got == 0) break;  // the file has become shorter
    size += static_cast<size_t>(got);
  }
  bytes.resize(size);
  return bytes;
}

// Writes a new file to the disk. `mode` is -1 for the mode that new files have. Returns false, with
// errno, if that fails.
inline bool WriteToDisk(const std::string& path, int mode, std::string_view bytes) {
  const int file =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode < 0 ? 0666 : 0600);
  if (file < 0) return false;
  if (mode >= 0) static_cast<void>(fchmod(file, static_cast<mode_t>(mode)));
  bool good = true;
  while (good && !bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    good = written >= 0 || errno == EINTR;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  good = good && fsync(file) == 0;
  const int error = errno;
  const bool closed = close(file) == 0;
  if (!good) errno = error;
  return good && closed;
}

OPKIT_INLINE void UpdateFile(const std::string& path,
                             FunctionRef<std::string(std::string_view bytes)> change,
                             double wait_s) {
  const std::string target = BehindLinks(path), temporary = target + ".new";
  struct stat old;
  if (stat(target.c_str(), &old) == 0 && !S_ISREG(old.st_mode))  // such as /dev/null
    FailFile("write", path, "it is not a regular file");
  static_cast<void>(MakeFolders(target));
  const FileLock lock(target + ".lock", wait_s);
  const std::string bytes = change(ReadFileIfPresent(target));
  const bool exists = stat(target.c_str(), &old) == 0;
  if (exists && access(target.c_str(), W_OK) != 0) FailFile("write", path);
  // A process that was killed leaves ".new"; only the holder of the lock writes it.
  unlink(temporary.c_str());
  if (WriteToDisk(temporary, exists ? static_cast<int>(old.st_mode & 07777) : -1, bytes) &&
      std::rename(temporary.c_str(), target.c_str()) == 0)
    return;
  const int error = errno;
  unlink(temporary.c_str());
  FailFile("write", path, std::strerror(error));
}

}  // namespace detail

OPKIT_INLINE void SaveFile(const std::string& path, std::string_view bytes) {
  detail::OutputFile file(path);
  file.Write(bytes);
  file.Commit();
}

}}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_OUTPUT_FILE_IPP_
