// The definition of interop/mapped_file.hpp.
#ifndef OPKIT_INTEROP_IMPL_MAPPED_FILE_IPP_
#define OPKIT_INTEROP_IMPL_MAPPED_FILE_IPP_

#include <cerrno>
#include <cstring>

#include "opkit/base/platform.hpp"
#include "opkit/interop/mapped_file.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE Storage MapFile(const std::string& path) {
  const detail::FileMapping file = detail::MapFileForReading(path.c_str());
  if (file.error != 0)
    Throw(file.error == ENOMEM ? ErrorCode::kOutOfMemory : ErrorCode::kIo, "cannot open '", path,
          "': ", std::strerror(file.error));
  if (!file.is_file) Throw(ErrorCode::kInvalidArgument, "'", path, "' is not a regular file");
  if (file.size == 0) return AdoptStorage({}, nullptr, 0);
  return AdoptStorage(
      {}, file.data, static_cast<int64_t>(file.size),
      [](void* data, void* size) { detail::UnmapFile(data, reinterpret_cast<uintptr_t>(size)); },
      reinterpret_cast<void*>(file.size));
}

}}  // namespace opkit

#endif  // OPKIT_INTEROP_IMPL_MAPPED_FILE_IPP_
