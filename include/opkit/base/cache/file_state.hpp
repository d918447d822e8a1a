// FileState: what the system says of a file without reading it, so that a cache sees a change; and
// the names in a folder.
#ifndef OPKIT_BASE_CACHE_FILE_STATE_HPP_
#define OPKIT_BASE_CACHE_FILE_STATE_HPP_

#include <cstdint>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The size of a file and the times at which its content and its inode changed last. A file that is
// written changes at least one of them, but for a change of the same size within one tick of the
// system's clock for files (10 ms at most). All are -1 if there is no such file.
struct FileState {
  int64_t size = -1, modified_ns = -1, changed_ns = -1;
  bool exists() const { return size >= 0; }
  friend bool operator==(const FileState&, const FileState&) = default;
};
FileState StateOf(const char* path);
// Returns the time since 1970. No file that was written before has a later time.
int64_t FileClockNs();
// Returns the same after a pause of at most 10 ms: a file that is written after this call has a
// later time. Files get the time of the last tick of a coarse clock; since Linux 6.13 some get the
// exact time.
int64_t FileClockNsWithPause();
// Calls visit(context, name) for each file and folder in a folder, but "." and "..", in any order.
void VisitFolder(const char* path, void (*visit)(void* context, const char* name), void* context);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/cache/impl/file_state.ipp"
#endif

#endif  // OPKIT_BASE_CACHE_FILE_STATE_HPP_
