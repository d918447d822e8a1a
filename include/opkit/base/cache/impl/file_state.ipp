// The definitions of file_state.hpp.
#ifndef OPKIT_BASE_CACHE_IMPL_FILE_STATE_IPP_
#define OPKIT_BASE_CACHE_IMPL_FILE_STATE_IPP_

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>

#include <cstring>

#include "opkit/base/cache/file_state.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE FileState StateOf(const char* path) {
  struct stat status;
  if (stat(path, &status) != 0) return {};
  const auto ns = [](const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {status.st_size, ns(status.st_mtim), ns(status.st_ctim)};
}

inline int64_t NsOfClock(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

OPKIT_INLINE int64_t FileClockNs() { return NsOfClock(CLOCK_REALTIME); }

OPKIT_INLINE int64_t FileClockNsWithPause() {
  const int64_t now = FileClockNs();
  const timespec pause{0, 1'000'000};
  while (NsOfClock(CLOCK_REALTIME_COARSE) <= now) nanosleep(&pause, nullptr);
  return now;
}

OPKIT_INLINE void VisitFolder(const char* path, void (*visit)(void* context, const char* name),
                              void* context) {
  DIR* const folder = opendir(path);
  if (!folder) return;
  while (const dirent* entry = readdir(folder)) {
    const char* const name = entry->d_name;
    if (std::strcmp(name, ".") != 0 && std::strcmp(name, "..") != 0) visit(context, name);
  }
  closedir(folder);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_CACHE_IMPL_FILE_STATE_IPP_
