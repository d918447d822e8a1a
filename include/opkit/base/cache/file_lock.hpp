// FileLock: excludes other processes and threads while a file or a folder of a cache is changed.
#ifndef OPKIT_BASE_CACHE_FILE_LOCK_HPP_
#define OPKIT_BASE_CACHE_FILE_LOCK_HPP_

#include <string>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Throws kIo, "cannot CANNOT 'PATH': WHY"; without `why` the message of errno.
[[noreturn]] OPKIT_COLD void FailFile(const char* cannot, const std::string& path,
                                      const char* why = nullptr);

// Makes the missing folders above a file, for "a/b/c" the folders a and a/b. Returns false, with
// the reason in errno, if it cannot; opening the file then fails too.
bool MakeFolders(const std::string& path);

// The lock of a file, held until the end of the scope. The system frees the lock of a process that
// ends in any way. It belongs to this open file, not to the process: threads exclude each other
// too.
class FileLock {
 public:
  // Makes the file if there is none; it stays afterwards. Waits for another holder of the lock.
  // Throws kIo after `wait_s` seconds, or if the file cannot be written.
  FileLock(const std::string& path, double wait_s);
  FileLock(FileLock&&) = delete;
  ~FileLock();

 private:
  bool Set(short type) const;
  const int file_;
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/cache/impl/file_lock.ipp"
#endif

#endif  // OPKIT_BASE_CACHE_FILE_LOCK_HPP_
