// A file as the bytes of a Storage: mapped, so that what is never read is never loaded and what is
// read twice is there once.
#ifndef OPKIT_INTEROP_MAPPED_FILE_HPP_
#define OPKIT_INTEROP_MAPPED_FILE_HPP_

#include <cstring>
#include <string>
#include <string_view>

#include "opkit/base/platform.hpp"
#include "opkit/core/storage.hpp"

namespace opkit::inline OPKIT_ABI {

// The file's bytes on the CPU, read-only: writing to them ends the program. Gone with the last
// handle. The file must not be shortened meanwhile (reading beyond its end ends the program too).
// Errors: kNotFound for a file that cannot be opened, kInvalidArgument for what is not a file.
inline Storage MapFile(const std::string& path) {
  const detail::FileMapping file = detail::MapFileForReading(path.c_str());
  if (file.error != 0)
    Throw(file.error == ENOMEM ? ErrorCode::kOutOfMemory : ErrorCode::kNotFound, "cannot open '",
          path, "': ", std::strerror(file.error));
  if (!file.is_file) Throw(ErrorCode::kInvalidArgument, "'", path, "' is not a regular file");
  if (file.size == 0) return AdoptStorage({}, nullptr, 0);
  return AdoptStorage(
      {}, file.data, static_cast<int64_t>(file.size),
      [](void* data, void* size) { detail::UnmapFile(data, reinterpret_cast<uintptr_t>(size)); },
      reinterpret_cast<void*>(file.size));
}

inline std::string_view BytesOf(const Storage& storage) {
  return {static_cast<const char*>(storage->data()), static_cast<size_t>(storage->nbytes())};
}

}  // namespace opkit

#endif  // OPKIT_INTEROP_MAPPED_FILE_HPP_
