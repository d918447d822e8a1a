// MapFile: a file as the bytes of a Storage. The file is mapped: pages are read from disk when they
// are first touched, and all processes that map the file share them.
#ifndef OPKIT_INTEROP_MAPPED_FILE_HPP_
#define OPKIT_INTEROP_MAPPED_FILE_HPP_

#include <string>
#include <string_view>

#include "opkit/core/storage.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the file's bytes on the CPU; the last handle unmaps them. They are read-only: a write
// ends the program. Reading also ends the program if another process has cut the bytes off the
// file. Throws kIo for a file that cannot be opened, kInvalidArgument for a folder or device.
Storage MapFile(const std::string& path);

inline std::string_view BytesOf(const Storage& storage) {
  return {static_cast<const char*>(storage->data()), static_cast<size_t>(storage->nbytes())};
}

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/mapped_file.ipp"
#endif

#endif  // OPKIT_INTEROP_MAPPED_FILE_HPP_
