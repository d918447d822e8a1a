// Every writer that takes a path, into every kind of file: each writes the bytes that it writes to
// a new file, or an Error names the path, and nothing else is there afterwards. A new writer is a
// line of kWriters.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <thread>

#include "opkit/base/output_file.hpp"
#include "opkit/graph.hpp"
#include "opkit/interop/onnx_writer.hpp"
#include "opkit/ops/math/arithmetic.hpp"
#include "opkit/profile/chrome_trace.hpp"
#include "opkit/profile/perfetto_trace.hpp"
#include "opkit/report/report.hpp"
#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/text.hpp"

namespace file_writers_test {
namespace {

using namespace opkit;

// A profile whose text is longer than a pipe holds.
Profile LongProfile() {
  Profile profile;
  profile.threads.push_back({1, "main"});
  for (int64_t i = 0; i < 10'000; ++i) profile.markers.push_back({i, InternName("marker")});
  return profile;
}
Graph OneNode() {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {100'000});
  graph.AddConstant("W", Tensor::From<float>({100'000}, std::vector<float>(100'000, 1)));
  graph.AddNode(OperatorDef("Add", {"X", "W"}, {"Y"}));
  return graph.AddOutput("Y");
}

using Write = void (*)(const std::string& path);
struct Writer {
  const char* name;
  Write write;
};
constexpr Writer kWriters[] = {
    {"text", [](const std::string& path) { SaveFile(path, std::string(200'000, 'x')); }},
    {"ONNX", [](const std::string& path) { SaveOnnx(OneNode(), path); }},
    {"trace", [](const std::string& path) { SaveChromeTrace(LongProfile(), path); }},
    {"pftrace", [](const std::string& path) { SavePerfettoTrace(LongProfile(), path); }},
    {"report", [](const std::string& path) { SaveReport(LongProfile(), path); }}};

int FilesIn(const TemporaryFolder& folder) {
  const std::filesystem::recursive_directory_iterator files(folder.path());
  return static_cast<int>(std::distance(begin(files), end(files)));
}

struct Kind {
  const char* name;
  int files;  // that are there afterwards
  // Returns the file's text after the write, or "cannot write" if the Error names the path.
  std::string (*written)(const TemporaryFolder& folder, Write write);
};

std::string WriteAndRead(const std::string& path, Write write) {
  write(path);
  return ReadFile(path);
}
// Writes to a path that cannot be written, for the reason.
std::string Refused(const std::string& path, Write write, const char* reason) {
  const Error error = ErrorOf([&] { write(path); });
  CHECK(error.code() == ErrorCode::kIo);
  CHECK(error.message() == "cannot write '" + path + "': " + reason);
  return "cannot write";
}
// Returns the text that a write to a descriptor appends to the text before it.
std::string Appended(const std::string& path, int descriptor, Write write) {
  REQUIRE(::write(descriptor, "before", 6) == 6);
  write(path);
  std::string found(static_cast<size_t>(lseek(descriptor, 0, SEEK_END)), '\0');
  REQUIRE(pread(descriptor, found.data(), found.size(), 0) == std::ssize(found));
  CHECK(found.starts_with("before"));
  return found.substr(6);
}

// Takes root's rights away for the rest of the scope.
class Nobody {
 public:
  Nobody() : before_(geteuid()) { REQUIRE((before_ != 0 || seteuid(65534) == 0)); }
  ~Nobody() { CHECK(seteuid(before_) == 0); }

 private:
  const uid_t before_;
};

const Kind kKinds[] = {
    {"a file with another name, which keeps the old contents", 2,
     [](const TemporaryFolder& folder, Write write) {
       const std::string path = folder.Write("file", "old"), link = folder / "link";
       REQUIRE(::link(path.c_str(), link.c_str()) == 0);
       write(path);
       CHECK(ReadFile(link) == "old");
       return ReadFile(path);
     }},
    {"a link to a file", 2,
     [](const TemporaryFolder& folder, Write write) {
       folder.Write("file", std::string(1'000'000, 'o'));
       REQUIRE(symlink("file", (folder / "link").c_str()) == 0);
       write(folder / "link");
       CHECK(std::filesystem::is_symlink(folder / "link"));
       return ReadFile(folder / "file");
     }},
    {"a link to no file yet", 2,
     [](const TemporaryFolder& folder, Write write) {
       REQUIRE(symlink("made", (folder / "link").c_str()) == 0);
       write(folder / "link");
       CHECK(std::filesystem::is_symlink(folder / "link"));
       return ReadFile(folder / "made");
     }},
    {"a link into a folder that is not there", 1,
     [](const TemporaryFolder& folder, Write write) {
       REQUIRE(symlink("no/file", (folder / "link").c_str()) == 0);
       return Refused(folder / "link", write, "No such file or directory");
     }},
    {"a name of 255 bytes", 1,
     [](const TemporaryFolder& folder, Write write) {
       return WriteAndRead(folder / std::string(255, 'n'), write);
     }},
    {"a name of 256 bytes", 0,
     [](const TemporaryFolder& folder, Write write) {
       return Refused(folder / std::string(256, 'n'), write, "File name too long");
     }},
    {"a pipe", 1,
     [](const TemporaryFolder& folder, Write write) {
       const std::string path = folder / "pipe";
       REQUIRE(mkfifo(path.c_str(), 0600) == 0);
       std::string found;
       std::thread reader([&] { found = ReadFile(path); });
       write(path);
       reader.join();
       return found;
     }},
    {"/dev/fd/N, behind which is a file", 1,
     [](const TemporaryFolder& folder, Write write) {
       const int file = open((folder / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
       const std::string found = Appended("/dev/fd/" + std::to_string(file), file, write);
       close(file);
       return found;
     }},
    {"/dev/stdout, which leads to a file", 1,
     [](const TemporaryFolder& folder, Write write) {
       std::fflush(stdout);
       const int before = dup(1);
       const int file = open((folder / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
       REQUIRE(dup2(file, 1) == 1);
       const std::string found = Appended("/dev/stdout", file, write);
       dup2(before, 1);
       for (const int one : {before, file}) close(one);
       return found;
     }},
    {"a full disk", 0,
     [](const TemporaryFolder&, Write write) {
       return Refused("/dev/full", write, "No space left on device");
     }},
    {"a folder", 1,
     [](const TemporaryFolder& folder, Write write) {
       std::filesystem::create_directory(folder / "folder");
       return Refused(folder / "folder", write, "Is a directory");
     }},
    {"a new file in a folder that takes none", 1,
     [](const TemporaryFolder& folder, Write write) {
       std::filesystem::create_directory(folder / "folder");
       chmod(folder.path().c_str(), 0755), chmod((folder / "folder").c_str(), 0555);
       const Nobody nobody;
       return Refused(folder / "folder/file", write, "Permission denied");
     }},
    {"a file of everybody's in a folder that takes no new ones", 2,
     [](const TemporaryFolder& folder, Write write) {
       std::filesystem::create_directory(folder / "folder");
       const std::string path = folder.Write("folder/file", std::string(1'000'000, 'o'));
       chmod(path.c_str(), 0666);
       chmod(folder.path().c_str(), 0755), chmod((folder / "folder").c_str(), 0555);
       const Nobody nobody;
       return WriteAndRead(path, write);
     }},
};

}  // namespace

TEST_CASE("each writer writes the same bytes into every kind of file, or names the path") {
  for (const Writer& writer : kWriters) {
    const TemporaryFolder plain;
    const std::string expected = WriteAndRead(plain / "file", writer.write);
    CHECK(expected.size() > 65'536);
    for (const Kind& kind : kKinds) {
      const std::string writer_name = writer.name, kind_name = kind.name;
      CAPTURE(writer_name);
      CAPTURE(kind_name);
      const TemporaryFolder folder;
      const std::string found = kind.written(folder, writer.write);
      CHECK((found == expected || found == "cannot write"));
      CHECK(FilesIn(folder) == kind.files);
    }
  }
}

}  // namespace file_writers_test
