#include "opkit/base/output_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"

namespace output_file_test { namespace {

using namespace opkit;
using opkit::detail::OutputFile;
using opkit::detail::ReadFileIfPresent;
using opkit::detail::UpdateFile;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
int FilesIn(const std::string& folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// While it lives, no file grows beyond so many bytes.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

TEST_CASE("a file is there when it is committed, and not before") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  OutputFile file(path);
  file.Write("on");
  file.Write("e");
  CHECK(!std::filesystem::exists(path));
  file.Commit();
  CHECK(Contents(path) == "one");
  SaveFile(path, "2");
  CHECK(Contents(path) == "2");
  CHECK(FilesIn(folder.path()) == 1);
}

TEST_CASE("a write that fails, or is given up, leaves the file that was there and no other") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  SaveFile(path, "before");
  {
    const FileSizeLimit limit(100);
    const Error error = ErrorOf([&] { SaveFile(path, std::string(100'000, 'x')); });
    CHECK(error.message() == "cannot write '" + path + "': File too large");
    CHECK(error.code() == ErrorCode::kIo);
  }
  OutputFile(path).Write("given up");
  CHECK(Contents(path) == "before");
  CHECK(FilesIn(folder.path()) == 1);
}

TEST_CASE("a file keeps its permissions, and a link goes on leading to it") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file", link = folder.path() + "/link";
  SaveFile(path, "before");
  REQUIRE(chmod(path.c_str(), 0640) == 0);
  REQUIRE(symlink("file", link.c_str()) == 0);
  SaveFile(link, "after");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(Contents(path) == "after");
  struct stat found;
  REQUIRE(stat(path.c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0640);
}

TEST_CASE("a descriptor is written to from where it stands, though a file is behind it") {
  const TemporaryFolder folder;
  const std::string log = folder.path() + "/log", link = folder.path() + "/link";
  const int descriptor = open(log.c_str(), O_RDWR | O_CREAT, 0600);
  REQUIRE(descriptor >= 0);
  REQUIRE(write(descriptor, "one ", 4) == 4);
  const std::string name = "/dev/fd/" + std::to_string(descriptor);
  REQUIRE(symlink(name.c_str(), link.c_str()) == 0);
  for (const std::string& path : {name, link, "/proc/self/fd/" + std::to_string(descriptor)})
    SaveFile(path, "more ");
  REQUIRE(unlink(log.c_str()) == 0);  // the file has no name now
  SaveFile(name, "last");
  char found[64] = {};
  CHECK(pread(descriptor, found, sizeof found - 1, 0) == 23);
  CHECK(std::string(found) == "one more more more last");
  CHECK(FilesIn(folder.path()) == 1);
  close(descriptor);
  CHECK(Contains(ErrorOf([&] { SaveFile(name, "x"); }).message(), "Bad file descriptor"));
}

TEST_CASE(
    "a link to no file yet makes the file that it leads to, and any name that a folder takes is "
    "written") {
  const TemporaryFolder folder;
  const std::string link = folder.path() + "/link";
  REQUIRE(symlink("made", link.c_str()) == 0);
  SaveFile(link, "x");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(Contents(folder.path() + "/made") == "x");
  const std::string longest = folder.path() + "/" + std::string(255, 'f');
  SaveFile(longest, "y");
  CHECK(Contents(longest) == "y");
  REQUIRE(symlink("loop", (folder.path() + "/loop").c_str()) == 0);
  CHECK_THROWS_AS(SaveFile(folder.path() + "/loop", "z"), Error);
}

TEST_CASE("a device is written in place, and a path that cannot be written is named") {
  SaveFile("/dev/null", "nothing");
  CHECK(ErrorOf([] { SaveFile("/dev/full", "x"); }).message() ==
        "cannot write '/dev/full': No space left on device");
  CHECK(ErrorOf([] { OutputFile("/nowhere/file"); }).message() ==
        "cannot write '/nowhere/file': No such file or directory");
  CHECK(Contains(ErrorOf([] { OutputFile("/"); }).message(), "cannot write '/': Is a directory"));
}

int WaitFor(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_CASE("an update gets the present bytes, makes missing folders and leaves only a lock behind") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a/b/file";
  const auto append = [](std::string_view bytes) { return std::string(bytes) + "x"; };
  UpdateFile(path, append);
  CHECK(ReadFileIfPresent(path) == "x");
  REQUIRE(chmod(path.c_str(), 0640) == 0);
  UpdateFile(path, append);
  CHECK(ReadFileIfPresent(path) == "xx");
  struct stat found;
  REQUIRE(stat(path.c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0640);
  CHECK(FilesIn(folder.path() + "/a/b") == 2);
  REQUIRE(symlink("a/b/file", (folder.path() + "/link").c_str()) == 0);
  UpdateFile(folder.path() + "/link", append);
  CHECK(std::filesystem::is_symlink(folder.path() + "/link"));
  CHECK(Contents(path) == "xxx");
}

TEST_CASE("an update that fails leaves the file, and the next one does not wait for its lock") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  SaveFile(path, "before");
  {
    const FileSizeLimit limit(100);
    const Error error = ErrorOf(
        [&] { UpdateFile(path, [](std::string_view) { return std::string(100'000, 'x'); }); });
    CHECK(error.message() == "cannot write '" + path + "': File too large");
    CHECK(error.code() == ErrorCode::kIo);
  }
  const auto refuse = [](std::string_view) -> std::string { throw std::runtime_error("no"); };
  CHECK_THROWS_AS(UpdateFile(path, refuse), std::runtime_error);
  CHECK(Contents(path) == "before");
  CHECK(FilesIn(folder.path()) == 2);  // the file and its lock
  // A process was killed before the rename.
  SaveFile(path + ".new", "half");
  UpdateFile(
      path, [](std::string_view bytes) { return std::string(bytes) + " and after"; }, 0);
  CHECK(Contents(path) == "before and after");
  CHECK(FilesIn(folder.path()) == 2);
}

TEST_CASE("what is no file is neither read nor updated") {
  const TemporaryFolder folder;
  const auto same = [](std::string_view bytes) { return std::string(bytes); };
  CHECK(ReadFileIfPresent(folder.path() + "/none").empty());
  CHECK(ErrorOf([&] { ReadFileIfPresent("/dev/zero"); }).message() ==
        "cannot read '/dev/zero': it is not a regular file");
  CHECK(Contains(ErrorOf([&] { ReadFileIfPresent(folder.path()); }).message(), "not a regular"));
  const std::string path = folder.path() + "/link";
  REQUIRE(symlink("/dev/null", path.c_str()) == 0);
  CHECK(ErrorOf([&] { UpdateFile(path, same); }).message() ==
        "cannot write '" + path + "': it is not a regular file");
  CHECK(!std::filesystem::exists("/dev/null.lock"));
  CHECK(Contains(ErrorOf([&] { UpdateFile("/dev/null/file", same); }).message(),
                 "cannot write '/dev/null/file.lock': Not a directory"));
}

TEST_CASE(
    "an update waits for the lock as long as it is asked to, and for a child that inherits it "
    "not at all") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  const auto same = [](std::string_view bytes) { return std::string(bytes); };
  int ends[2] = {-1, -1};
  REQUIRE(pipe(ends) == 0);
  pid_t child = -1;
  UpdateFile(path, [&](std::string_view) {
    const Error error = ErrorOf([&] { UpdateFile(path, same, 0.002); });
    CHECK(error.message() ==
          "cannot lock '" + path + ".lock': another process has held the lock for 0.002 s");
    CHECK(error.code() == ErrorCode::kIo);
    child = fork();
    if (child == 0) {  // has the lock's file open until it ends
      char byte;
      close(ends[1]);
      _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    return std::string("1");
  });
  UpdateFile(
      path, [](std::string_view bytes) { return std::string(bytes) + "2"; }, 0);
  CHECK(Contents(path) == "12");
  close(ends[0]);
  close(ends[1]);
  CHECK(WaitFor(child) == 0);
}

TEST_CASE("updates of several processes lose nothing") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  pid_t children[3];
  for (pid_t& child : children) {
    child = fork();
    if (child != 0) continue;
    for (int i = 0; i < 10; ++i)
      UpdateFile(path, [](std::string_view bytes) { return std::string(bytes) + "x"; });
    _exit(0);
  }
  for (const pid_t child : children) CHECK(WaitFor(child) == 0);
  CHECK(Contents(path) == std::string(30, 'x'));
}

}  // namespace
}  // namespace output_file_test
