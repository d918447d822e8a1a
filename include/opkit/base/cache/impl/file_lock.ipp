// The definitions of base/cache/file_lock.hpp.
#ifndef OPKIT_BASE_CACHE_IMPL_FILE_LOCK_IPP_
#define OPKIT_BASE_CACHE_IMPL_FILE_LOCK_IPP_

#include <cerrno>
#include <cstring>

#include "opkit/base/cache/file_lock.hpp"
#include "opkit/base/cache/file_state.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/platform.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE void FailFile(const char* cannot, const std::string& path, const char* why) {
  Throw(ErrorCode::kIo, "cannot ", cannot, " '", path, "': ", why ? why : std::strerror(errno));
}

OPKIT_INLINE bool MakeFolders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (mkdir(folder.c_str(), 0777) == 0) continue;
    const int error = errno;
    if (StateOf(folder.c_str()).exists()) continue;
    errno = error;
    return false;
  }
  return true;
}

OPKIT_INLINE FileLock::FileLock(const std::string& path, double wait_s)
    : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) FailFile("write", path);
  const int64_t deadline = MonotonicNs() + static_cast<int64_t>(wait_s * 1e9);
  while (!Set(F_WRLCK)) {
    const bool is_held = errno == EAGAIN || errno == EACCES;
    if (is_held && MonotonicNs() < deadline) {
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
    } else if (errno != EINTR) {
      const std::string why = !is_held ? std::string(std::strerror(errno))
                              : wait_s > 0
                                  ? StrCat("another process has held the lock for ", wait_s, " s")
                                  : "another program holds the lock";
      close(file_);
      FailFile("lock", path, why.c_str());
    }
  }
}
OPKIT_INLINE FileLock::~FileLock() {
  Set(F_UNLCK);  // a child process that another thread has forked may still have the file open
  close(file_);
}

OPKIT_INLINE bool FileLock::Set(short type) const {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return fcntl(file_, F_OFD_SETLK, &lock) == 0;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_CACHE_IMPL_FILE_LOCK_IPP_
