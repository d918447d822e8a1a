// A file's bytes as a storage.
#include "opkit/interop/mapped_file.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"

namespace mapped_file_test {
using namespace opkit;

TEST_CASE("MapFile gives the bytes of a file that may be deleted afterwards") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("file", "");
  const Storage empty = MapFile(path);
  CHECK(empty->nbytes() == 0);
  CHECK(BytesOf(empty).empty());
  const std::string text(100'000, 'x');
  std::ofstream(path) << text << "end";
  Storage file = MapFile(path);
  CHECK(file->device() == Device{});
  CHECK(BytesOf(file) == text + "end");
  std::filesystem::remove(path);
  detail::ForgetMapped(file->data(), static_cast<size_t>(file->nbytes()));
  CHECK(BytesOf(file) == text + "end");
  file = Storage();
}

TEST_CASE("A file that cannot be mapped is an Error that names it") {
  CHECK(ErrorOf([] { MapFile("/nowhere/at/all"); }).code() == ErrorCode::kIo);
  CHECK(ErrorOf([] { MapFile("/nowhere/at/all"); }).message() ==
        "cannot open '/nowhere/at/all': No such file or directory");
  const Error folder = ErrorOf([] { MapFile("/"); });
  CHECK(folder.code() == ErrorCode::kInvalidArgument);
  CHECK(folder.message() == "'/' is not a regular file");
}

}  // namespace mapped_file_test
