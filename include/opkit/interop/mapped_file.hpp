// A file as the bytes of a Storage: mapped, so that pages are read from disk when they are first
// touched and shared by all processes that map the file.
#ifndef OPKIT_INTEROP_MAPPED_FILE_HPP_
#define OPKIT_INTEROP_MAPPED_FILE_HPP_

#include <string>
#include <string_view>

#include "opkit/core/storage.hpp"

namespace opkit::inline OPKIT_ABI {

// The file's bytes on the CPU, unmapped with the last handle. They are read-only: writing to them
// ends the program, and so does reading bytes that another process has cut off the file since.
// Errors: kNotFound for a file that cannot be opened, kInvalidArgument for a folder or device.
Storage MapFile(const std::string& path);

inline std::string_view BytesOf(const Storage& storage) {
  return {static_cast<const char*>(storage->data()), static_cast<size_t>(storage->nbytes())};
}

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/mapped_file.ipp"
#endif

#endif  // OPKIT_INTEROP_MAPPED_FILE_HPP_
