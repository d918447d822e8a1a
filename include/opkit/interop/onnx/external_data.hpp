// OnnxExternalData: weights that an ONNX model keeps in files beside it. Their paths must not lead
// out of the model's folder. A file there may be a symbolic link to another place, as in the caches
// of model hubs. Each file is mapped once.
#ifndef OPKIT_INTEROP_ONNX_EXTERNAL_DATA_HPP_
#define OPKIT_INTEROP_ONNX_EXTERNAL_DATA_HPP_

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "opkit/interop/mapped_file.hpp"
#include "opkit/interop/onnx/wire.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Reads a StringStringEntryProto: a key and its value.
inline std::pair<std::string, std::string> ReadOnnxEntry(std::string_view bytes) {
  std::pair<std::string, std::string> out;
  for (WireMessage message(bytes); message.Next();) {
    if (message.field() == OnnxEntryField::kKey) out.first = message.String();
    if (message.field() == OnnxEntryField::kValue) out.second = message.String();
  }
  return out;
}

// The fields of TensorProto.external_data, a list of keys and values.
struct OnnxExternalEntry {
  std::string location;
  int64_t offset = 0;
  int64_t length = -1;  // -1: not in the model

  // Reads one StringStringEntryProto. Ignores other keys, such as checksum.
  void Read(std::string_view bytes) {
    auto [key, value] = ReadOnnxEntry(bytes);
    if (key == "location") location = std::move(value);
    if (key == "offset") offset = Number(key, value);
    if (key == "length") length = Number(key, value);
  }

 private:
  static int64_t Number(const std::string& key, const std::string& text) {
    int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, number);
    if (read.ec != std::errc() || read.ptr != end || number < 0)
      Throw(ErrorCode::kInvalidArgument, "the ", key, " of its external data should be a number, ",
            "found '", text, "'");
    return number;
  }
};

// The bytes of a tensor, and the mapped file that holds them.
struct OnnxExternalBytes {
  std::string_view view;
  Storage storage;
};

// The mapped files of a model.
class OnnxExternalData {
 public:
  // If `folder` is empty, external data is an Error.
  explicit OnnxExternalData(std::string folder) : folder_(std::move(folder)) {}

  // Returns the `needed` bytes of a tensor. Errors name the file. Throws kInvalidArgument for a
  // file that is too short or outside the folder, kIo for a missing file, kFailedPrecondition
  // without a folder.
  OnnxExternalBytes Get(const OnnxExternalEntry& entry, int64_t needed) {
    if (entry.length >= 0 && entry.length != needed)
      Throw(ErrorCode::kInvalidArgument, "its external data in '", entry.location, "' has ",
            entry.length, " bytes, but its type and shape need ", needed);
    const Storage& file = Open(entry.location);
    if (entry.offset > file->nbytes() || needed > file->nbytes() - entry.offset)
      Throw(ErrorCode::kInvalidArgument, "its external data is bytes ", entry.offset, " to ",
            static_cast<uint64_t>(entry.offset) + static_cast<uint64_t>(needed), " of '",
            entry.location, "', which has only ", file->nbytes(), "; is the file complete?");
    return {BytesOf(file).substr(static_cast<size_t>(entry.offset), static_cast<size_t>(needed)),
            file};
  }

 private:
  struct File {
    std::string location;
    Storage storage;
  };

  const Storage& Open(const std::string& location) {
    for (const File& file : files_)
      if (file.location == location) return file.storage;
    if (folder_.empty())
      Throw(ErrorCode::kFailedPrecondition, "its data is in the file '", location,
            "', and a model parsed from memory has no folder; load it by its path, or name the "
            "folder (external_dir)");
    CheckRelative(location);
    const std::string folder = RealPath(folder_, location);
    const std::string path = RealPath(folder_ + "/" + location, location);
    if (path == folder)
      Throw(ErrorCode::kInvalidArgument, "its external data '", location,
            "' is the model's folder, not a file in it");
    const size_t slash = location.find_last_of('/');
    const std::string around = slash == std::string::npos
                                   ? folder
                                   : RealPath(folder_ + "/" + location.substr(0, slash), location);
    if (folder != "/" && around != folder &&
        around.compare(0, folder.size() + 1, folder + "/") != 0)
      Throw(ErrorCode::kInvalidArgument, "its external data '", location,
            "' leads out of the model's folder by a symbolic link to a folder; put that folder "
            "there itself");
    files_.push_back({location, MapFile(path)});
    return files_.back().storage;
  }
  // Throws kInvalidArgument unless the path is relative and without "..".
  static void CheckRelative(const std::string& location) {
    bool escapes =
        location.empty() || location[0] == '/' || location.find('\0') != std::string::npos;
    for (size_t begin = 0; begin <= location.size();) {
      const size_t end = (std::min)(location.find('/', begin), location.size());
      escapes |= location.compare(begin, end - begin, "..") == 0;
      begin = end + 1;
    }
    if (escapes)
      Throw(ErrorCode::kInvalidArgument, "its external data '", location,
            "' should be a file in the model's folder, named relative to it and without '..'");
  }
  static std::string RealPath(const std::string& path, const std::string& location) {
    char* found = ::realpath(path.c_str(), nullptr);
    if (!found)
      Throw(ErrorCode::kIo, "its external data '", location, "' cannot be opened as '", path,
            "': ", std::strerror(errno));
    std::string out(found);
    ::free(found);
    return out;
  }

  std::string folder_;
  std::vector<File> files_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_ONNX_EXTERNAL_DATA_HPP_
