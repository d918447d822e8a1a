#include "opkit/plugin/build.hpp"

#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "library_fixture.hpp"

namespace {

using namespace library_fixture;
namespace fs = std::filesystem;

// A folder with a cache, a source, a header, and a script that stands for a compiler. The script
// writes the source and the header one behind the other, and says that it has read both.
struct Workshop {
  Workshop() {
    folder.Write("ops.cc", "source ");
    folder.Write("a header.h", "header");
    folder.Write("version", "stub 1\n");
    folder.Write("behaviour", "");
    folder.Write("more headers", "");
    folder.Write("compiler", R"(#!/bin/sh
cd ')" + folder.path() + R"('
if [ "$*" = --version ]; then cat version; exit; fi
echo "$*" >> runs
. ./behaviour
while [ $# -gt 0 ]; do
  case "$1" in
    -o) out=$2; shift;;
    -MF) list=$2; shift;;
    *.cc|*.cu) source=$1;;
  esac
  shift
done
cat "$source" 'a header.h' > "$out" || exit 1
echo "out.so${space}: $source \\" > "$list"
echo "  $PWD/a\\ header.h" >> "$list"
cat 'more headers' >> "$list"
)");
    chmod((folder / "compiler").c_str(), 0755);
    options = {.compiler = folder / "compiler",
               .include_dir = OPKIT_TEST_ROOT "/include",
               .cache_dir = folder / "cache"};
  }
  // Returns what the script has made of the source.
  std::string Build(const std::string& name = "ops.cc") {
    return ReadFile(BuildLibrary(folder / name, options));
  }
  int runs() const { return Count(ReadFile(folder / "runs"), "\n"); }
  // Returns the names in the cache, without locks.
  std::vector<std::string> Cached() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder / "cache"))
      if (entry.path().filename() != "locks") names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  const TemporaryFolder folder;
  BuildOptions options;
};

// Counts the files of a folder that are opened.
class Opened {
 public:
  explicit Opened(const std::string& folder) : events_(inotify_init1(IN_NONBLOCK)) {
    REQUIRE(events_ >= 0);
    REQUIRE(inotify_add_watch(events_, folder.c_str(), IN_OPEN) >= 0);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { close(events_); }

  // Returns the names, sorted, of those that were opened since the last call.
  std::vector<std::string> Take() const {
    std::vector<std::string> names;
    alignas(inotify_event) char bytes[4096];
    for (ssize_t size; (size = read(events_, bytes, sizeof bytes)) > 0;)
      for (ssize_t at = 0; at < size;) {
        const auto* event = reinterpret_cast<const inotify_event*>(bytes + at);
        if (event->len > 0) names.emplace_back(event->name);
        at += static_cast<ssize_t>(sizeof *event + event->len);
      }
    std::ranges::sort(names);
    names.erase(std::ranges::unique(names).begin(), names.end());
    return names;
  }

 private:
  const int events_;
};

// Sets an environment variable, or removes it, until the end of the scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before, was_set_ = true;
    Set(value);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { Set(was_set_ ? before_.c_str() : nullptr); }

 private:
  void Set(const char* value) {
    if (value)
      setenv(name_, value, 1);
    else
      unsetenv(name_);
  }
  const char* const name_;
  std::string before_;
  bool was_set_ = false;
};

TEST_CASE("a source is compiled again only when something has changed on which it depends") {
  Workshop shop;
  CHECK(shop.Build() == "source header");
  CHECK(shop.Build() == "source header");
  CHECK(shop.runs() == 1);
  CHECK(BuildLibrary(shop.folder / "ops.cc", shop.options).ends_with("/libops.so"));

  SUBCASE("the source") {
    shop.folder.Write("ops.cc", "SOURCE ");  // the same size
    CHECK(shop.Build() == "SOURCE header");
  }
  SUBCASE("a header") {
    shop.folder.Write("a header.h", "HEADER");
    CHECK(shop.Build() == "source HEADER");
  }
  SUBCASE("a header, with its old time") {
    const fs::path header = shop.folder / "a header.h";
    const auto time = fs::last_write_time(header);
    shop.folder.Write("a header.h", "HEADER");
    fs::last_write_time(header, time);
    CHECK(shop.Build() == "source HEADER");
  }
  SUBCASE("the flags, from a call and from the environment") {
    shop.options.flags = {"-DX=a b"};
    CHECK(shop.Build() == "source header");
    CHECK(Contains(ReadFile(shop.folder / "runs"), "-DX=a b"));
    shop.options.flags.clear();
    CHECK(shop.Build() == "source header");  // the first result is still there
    CHECK(shop.runs() == 2);
    const ScopedVariable flags("CXXFLAGS", " -O3  -g ");
    CHECK(shop.Build() == "source header");
    CHECK(shop.runs() == 3);
    CHECK(Contains(ReadFile(shop.folder / "runs"), "-shared -O3 -g /"));
    return;
  }
  SUBCASE("the compiler's version") {
    shop.folder.Write("version", "stub 2\n");
    CHECK(shop.Build() == "source header");
    CHECK(shop.runs() == 1);  // the compiler's own file is as it was
    fs::last_write_time(shop.folder / "compiler", fs::file_time_type::clock::now());
    CHECK(shop.Build() == "source header");
  }
  SUBCASE("a lost result") {
    fs::remove(BuildLibrary(shop.folder / "ops.cc", shop.options));
    CHECK(shop.Build() == "source header");
  }
  SUBCASE("a result that is cut off") {
    fs::resize_file(BuildLibrary(shop.folder / "ops.cc", shop.options), 3);
    CHECK(shop.Build() == "source header");
  }
  SUBCASE("a record that is cut off") {
    const fs::path record = fs::path(shop.folder / "cache") / shop.Cached()[0] / "record";
    fs::resize_file(record, fs::file_size(record) - 9);
    CHECK(shop.Build() == "source header");
  }
  CHECK(shop.runs() == 2);
  CHECK(shop.Build() != "");
  CHECK(shop.runs() == 2);
}

TEST_CASE("a file with a new time and its old content is no change") {
  Workshop shop;
  CHECK(shop.Build() == "source header");
  for (const char* name : {"ops.cc", "a header.h", "compiler"})
    fs::last_write_time(shop.folder / name, fs::file_time_type::clock::now());
  CHECK(shop.Build() == "source header");
  CHECK(shop.Build() == "source header");
  CHECK(shop.runs() == 1);
}

TEST_CASE("the second call reads no source and no header, and a later one those with a new time") {
  const Workshop shop;
  const std::string path = shop.folder / "ops.cc";
  BuildLibrary(path, shop.options);
  const Opened opened(shop.folder.path());
  BuildLibrary(path, shop.options);
  CHECK(opened.Take().empty());
  fs::last_write_time(shop.folder / "a header.h", fs::file_time_type::clock::now());
  BuildLibrary(path, shop.options);
  CHECK(opened.Take() == std::vector<std::string>{"a header.h"});
  BuildLibrary(path, shop.options);
  CHECK(opened.Take().empty());
  CHECK(shop.runs() == 1);
}

TEST_CASE("a source is compiled each time if a header of it is gone") {
  Workshop shop;
  shop.folder.Write("more headers", shop.folder / "gone.h");
  for (int i = 0; i < 2; ++i) CHECK(shop.Build() == "source header");
  CHECK(shop.runs() == 2);
  shop.folder.Write("gone.h", "");
  for (int i = 0; i < 2; ++i) CHECK(shop.Build() == "source header");
  CHECK(shop.runs() == 3);
}

TEST_CASE("a new header that hides another one of its name is a change") {
  Workshop shop;
  fs::create_directories(shop.folder / "first/sub");
  fs::create_directories(shop.folder / "sub");
  shop.folder.Write("sub/other.h", "");
  shop.folder.Write("more headers", (shop.folder / "sub/other.h") + "\n");
  shop.options.flags = {"-I", shop.folder / "first"};
  CHECK(shop.Build() == "source header");
  shop.folder.Write("first/unrelated.h", "");
  shop.folder.Write("unrelated.h", "");
  CHECK(shop.Build() == "source header");
  CHECK(shop.runs() == 1);
  SUBCASE("in a folder of the flags") { shop.folder.Write("first/a header.h", ""); }
  SUBCASE("in a sub-folder of it") { shop.folder.Write("first/sub/other.h", ""); }
  SUBCASE("with its folder") {
    fs::remove(shop.folder / "first/sub");
    shop.Build();
    fs::create_directories(shop.folder / "first/sub");
  }
  SUBCASE("beside the source") { shop.folder.Write("other.h", ""); }
  const int before = shop.runs();
  for (int i = 0; i < 2; ++i) CHECK(shop.Build() == "source header");
  CHECK(shop.runs() == before + 1);
}

TEST_CASE("a source of CUDA is compiled by nvcc, with nvcc's words") {
  Workshop shop;
  const std::string path = shop.folder.Write("ops.cu", "kernel ");
  shop.folder.Write("behaviour", "space=' '\n");  // nvcc writes a space before the colon
  const ScopedVariable nvcc("NVCC", shop.options.compiler.c_str()),
      flags("NVCCFLAGS", "-arch=native"), cxx_flags("CXXFLAGS", "-not-for-nvcc");
  shop.options.compiler.clear();
  shop.options.flags = {"--use_fast_math"};
  CHECK(shop.Build("ops.cu") == "kernel header");
  const std::string command = ReadFile(shop.folder / "runs");
  CHECK(command.starts_with("-std=c++20 -O2 -shared -Xcompiler -fPIC -arch=native " + path +
                            " --use_fast_math -I" OPKIT_TEST_ROOT "/include -MD -MF "));
  shop.folder.Write("a header.h", "HEADER");
  CHECK(shop.Build("ops.cu") == "kernel HEADER");
}

TEST_CASE("a compiler may be several words, and sources of one name are several sources") {
  Workshop shop;
  shop.options.compiler = "env SOME=variable " + shop.options.compiler;
  CHECK(shop.Build() == "source header");
  fs::create_directory(shop.folder / "other");
  shop.folder.Write("other/ops.cc", "other ");
  CHECK(shop.Build("other/ops.cc") == "other header");
  CHECK(shop.Build() == "source header");
  CHECK(shop.runs() == 2);
  shop.folder.Write("version", "stub 2\n");
  fs::last_write_time(shop.folder / "compiler", fs::file_time_type::clock::now());
  CHECK(shop.Build() == "source header");
  CHECK(shop.runs() == 3);  // the last of the words that are programs is the compiler
}

TEST_CASE("a folder that cannot be written is an error, and a full disk leaves nothing behind") {
  Workshop shop;
  const std::string path = shop.folder / "ops.cc";
  shop.options.cache_dir = "/proc/opkit";
  const Error error = ErrorOf([&] { BuildLibrary(path, shop.options); });
  CHECK(error.code() == ErrorCode::kIo);
  CHECK(Contains(error.message(), "cannot write '/proc/opkit': "));
  shop.options.cache_dir = shop.folder / "cache";
  // In a process that can write no more than `limit` bytes to a file.
  const auto build_with_limit = [&](rlim_t limit) {
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit bytes{limit, limit};
      setrlimit(RLIMIT_FSIZE, &bytes);
      const Error error = ErrorOf([&] { BuildLibrary(path, shop.options); });
      _exit(static_cast<int>(error.code()));
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  // The record, which is written last, is longer than the other files.
  std::string headers;
  for (int i = 0; i < 30; ++i)
    headers += shop.folder.Write("header" + std::to_string(i), "") + "\n";
  shop.folder.Write("more headers", headers);
  constexpr rlim_t kLimit = 2000;
  REQUIRE(headers.size() < kLimit);
  CHECK(build_with_limit(kLimit) == static_cast<int>(ErrorCode::kIo));
  REQUIRE(shop.Cached().size() == 1);
  const fs::path folder = fs::path(shop.folder / "cache") / shop.Cached()[0];
  const auto files = [&] { return std::distance(fs::directory_iterator(folder), {}); };
  CHECK(files() == 1);  // the result, which no record names
  CHECK(shop.Build() == "source header");
  CHECK(shop.runs() == 2);
  CHECK(files() == 2);
  const std::string large(kLimit, 'x');
  shop.folder.Write("ops.cc", large);
  CHECK(build_with_limit(kLimit) == static_cast<int>(ErrorCode::kInvalidArgument));
  CHECK(shop.runs() == 3);
  CHECK(files() == 2);
  CHECK(shop.Cached().size() == 1);
  CHECK(shop.Build() == large + "header");
}

TEST_CASE("a header that changes while the source is compiled has the source compiled again") {
  Workshop shop;
  shop.folder.Write("behaviour", R"(
if [ ! -e once ]; then touch once; sleep 0.05; printf changed > 'a header.h'; fi
)");
  CHECK(shop.Build() == "source changed");
  CHECK(shop.runs() == 2);
  CHECK(shop.Build() == "source changed");
  CHECK(shop.runs() == 2);
}

TEST_CASE("a source that does not compile is an error with the command and the compiler's text") {
  Workshop shop;
  CHECK(shop.Build() == "source header");
  const std::string before = shop.Cached()[0];
  shop.folder.Write("ops.cc", "broken");
  shop.folder.Write("behaviour", "echo \"$source: what is broken?\" >&2; exit 3\n");
  const std::string path = shop.folder / "ops.cc";
  try {
    BuildLibrary(path, shop.options);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    const std::string& text = error.message();
    CHECK(text.starts_with("'" + path +
                           "' does not compile: the compiler's exit status is 3; its " +
                           "command: " + shop.options.compiler + " -std=c++20 "));
    CHECK(text.ends_with("/out.so\n: what is broken?"));
  }
  CHECK(shop.Cached() == std::vector<std::string>{before});  // the failed compilation left nothing
  shop.folder.Write("behaviour", "kill -9 $$\n");
  CHECK(Contains(ErrorOf([&] { BuildLibrary(path, shop.options); }).message(),
                 "does not compile: signal 9 ended the compiler; its command: "));
  shop.folder.Write("behaviour", "exit 0\n");
  CHECK(Contains(ErrorOf([&] { BuildLibrary(path, shop.options); }).message(),
                 "does not compile: the compiler wrote no file; "));
  shop.folder.Write("behaviour", "");
  CHECK(shop.Build() == "brokenheader");
}

TEST_CASE("what is missing is named") {
  Workshop shop;
  const std::string path = shop.folder / "ops.cc";
  const auto error = [&](const std::string& source) {
    return ErrorOf([&] { BuildLibrary(source, shop.options); }).message();
  };
  CHECK(error("ops.txt") ==
        "'ops.txt' is no source of a library: expected a name that ends with .cc, .cpp, .cxx, .c "
        "or .cu");
  CHECK(!IsLibrarySource("libops.so"));
  CHECK(!IsLibrarySource("folder/.cc"));
  for (const char* name : {"a.cc", "a.cpp", "b/a.cxx", "a.c", "a.cu"}) CHECK(IsLibrarySource(name));
  CHECK(error("no.cc") == "cannot read 'no.cc': No such file or directory");

  shop.options.compiler = "no_such_compiler -x";
  CHECK(error(path) == "the compiler 'no_such_compiler', which " + path +
                           " needs, is not found: install it, or name another one by $CXX");
  CHECK(shop.folder.Write("ops.cu", "").ends_with("ops.cu"));
  {
    const ScopedVariable nvcc("NVCC", "no_such_nvcc");
    shop.options.compiler.clear();
    CHECK(error(shop.folder / "ops.cu") ==
          "the compiler 'no_such_nvcc', which " + (shop.folder / "ops.cu") +
              " needs, is not found: install it, or name another one by $NVCC");
  }
  shop.options.compiler = shop.folder / "ops.cc";  // a file that the system does not run
  chmod(path.c_str(), 0755);
  CHECK(error(path) == "the compiler '" + path + "' cannot be run: Exec format error");
  shop.options.compiler = shop.folder / "compiler";

  shop.options.include_dir = shop.folder.path();
  CHECK(error(path) == "BuildOptions::include_dir is '" + shop.folder.path() +
                           "', which has no file opkit/op.hpp");
  shop.options.include_dir.clear();
  {
    const ScopedVariable include("OPKIT_INCLUDE_DIR", "/nowhere");
    CHECK(error(path) == "$OPKIT_INCLUDE_DIR is '/nowhere', which has no file opkit/op.hpp");
  }
  const ScopedVariable include("OPKIT_INCLUDE_DIR", OPKIT_TEST_ROOT "/include");
  shop.options.cache_dir.clear();
  {
    const ScopedVariable build("OPKIT_BUILD_CACHE", nullptr), xdg("XDG_CACHE_HOME", nullptr),
        home("HOME", nullptr);
    CHECK(error(path) ==
          "there is no folder for compiled libraries: set $OPKIT_BUILD_CACHE or $HOME");
  }
  {
    const ScopedVariable build("OPKIT_BUILD_CACHE", path.c_str());
    CHECK(Contains(error(path), "': Not a directory"));
  }
  CHECK(shop.runs() == 0);
  const ScopedVariable build("OPKIT_BUILD_CACHE", nullptr),
      xdg("XDG_CACHE_HOME", shop.folder.path().c_str());
  CHECK(BuildLibrary(path, shop.options).starts_with(shop.folder / "opkit/build/ops."));
}

TEST_CASE("results that were used longest ago are removed, and what a killed process left") {
  Workshop shop;
  shop.options.keep = 2;
  const auto record = [&](const char* name) {
    return fs::path(BuildLibrary(shop.folder / name, shop.options)).parent_path().parent_path() /
           "record";
  };
  const auto now = fs::file_time_type::clock::now();
  for (const char* name : {"one.cc", "two.cc"}) shop.folder.Write(name, name);
  fs::last_write_time(record("one.cc"), now - std::chrono::hours(1));
  fs::last_write_time(record("two.cc"), now - std::chrono::hours(2));
  record("two.cc");  // a use makes it the newer one
  fs::create_directory(shop.folder / "cache/opkit.new.killed");
  fs::create_directory(shop.folder / "cache/opkit.new.running");
  fs::create_directory(shop.folder / "cache/mine");
  for (const char* name : {"cache/opkit.new.killed", "cache/mine"})
    fs::last_write_time(shop.folder / name, now - std::chrono::hours(25));
  CHECK(shop.Build() == "source header");
  const std::vector<std::string> left = shop.Cached();
  REQUIRE(left.size() == 4);
  CHECK(left[0] == "mine");
  CHECK(left[1] == "opkit.new.running");
  CHECK(left[2].starts_with("ops."));
  CHECK(left[3].starts_with("two."));
  CHECK(shop.Build("one.cc") == "one.ccheader");

  const fs::path folder = record("ops.cc").parent_path();
  for (const char* text : {"a", "b", "c"}) {
    shop.folder.Write("ops.cc", text);
    CHECK(shop.Build() == std::string(text) + "header");
  }
  CHECK(std::distance(fs::directory_iterator(folder), {}) == 3);  // two results and the record
}

// Starts a process that builds the source, and ends with 0 if the result is right.
pid_t StartBuild(Workshop& shop) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    _exit(shop.Build() == "source header" ? 0 : 1);
  } catch (...) {
    _exit(2);
  }
}

TEST_CASE("a killed process leaves no lock, and three processes at once compile once") {
  Workshop shop;
  // The first run does not end by itself; it belongs to a process that is killed.
  shop.folder.Write("behaviour", R"(
if [ ! -e stuck ]; then echo $$ > stuck.new; mv stuck.new stuck; while :; do sleep 0.01; done; fi
)");
  const pid_t killed = StartBuild(shop);
  while (!fs::exists(shop.folder / "stuck")) usleep(1000);
  const pid_t waiting = StartBuild(shop);  // it waits for the lock
  kill(killed, SIGKILL);
  int status = 0;
  waitpid(killed, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  const pid_t others[] = {waiting, StartBuild(shop), StartBuild(shop)};
  for (const pid_t other : others) {
    waitpid(other, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  kill(static_cast<pid_t>(std::stoi(ReadFile(shop.folder / "stuck"))), SIGKILL);
  CHECK(shop.runs() == 2);  // the killed one, and one for all three
}

// A library in C with the operator c_scale, whose default factor is `factor`.
std::string Source(const std::string& factor) {
  std::string text = ReadFile(OPKIT_TEST_ROOT "/examples/library/plain_c.c");
  return text.replace(text.find("? 1\n"), 3, "? " + factor);
}

TEST_CASE("a built library is loaded, and a new build of its source takes its place") {
  const TemporaryFolder folder;
  const BuildOptions options = {
      .flags = {"-O0"}, .compiler = OPKIT_TEST_CC, .cache_dir = folder / "cache"};
  const std::string path = folder.Write("built.c", Source("2"));
  const std::string before = Registrations();
  const Library library = Library::Build(path, options);
  CHECK(library.operators() == std::vector<std::string>{"c_scale"});
  CHECK(library.name() == "libbuilt.so");
  CHECK(library.backend() == "built");
  CHECK(Call("c_scale", Floats{1, 2}) == Floats{2, 4});
  CHECK(Library::Build(path, options) == library);

  const auto error = [&] { return ErrorOf([&] { Library::Build(path, options); }); };
  folder.Write("built.c", "int broken = ;\n");
  CHECK(Contains(error().message(), "built.c:1:14: error: expected"));
  CHECK(Call("c_scale", Floats{1, 2}) == Floats{2, 4});  // of the older build

  folder.Write("built.c", Source("3"));
  {
    const ResolvedOperator held("c_scale", 1);
    CHECK(error().code() == ErrorCode::kFailedPrecondition);
    CHECK(Contains(error().what(), "while a new build of '" + path + "' replaces it"));
    CHECK(library.is_loaded());
  }
  Library newer = Library::Build(path, options);
  CHECK(!library.is_loaded());
  CHECK(newer.name() == "libbuilt.so");
  CHECK(Call("c_scale", Floats{1, 2}) == Floats{3, 6});

  folder.Write("built.c", "int no_library;\n");
  CHECK(Contains(error().message(), "opkit_library_entry"));
  CHECK(Call("c_scale", Floats{1, 2}) == Floats{3, 6});  // loaded again
  for (Library& loaded : Library::All())
    if (loaded.path().starts_with(folder.path())) loaded.Unload();
  CHECK(Registrations() == before);
}

TEST_CASE("a path may have any character, and a source includes what lies beside it") {
  const TemporaryFolder folder;
  const std::string place = folder / "a: \"b'\\ $c #d\\";
  fs::create_directories(place + "/sub");
  const BuildOptions options = {
      .flags = {"-O0", "-Isub folder"}, .compiler = OPKIT_TEST_CC, .cache_dir = place + "/cache"};
  const std::string path = place + "/my \"ops'\\\\ $x #1.c";
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(name) << text;
  };
  write(path, "#include \"sub/factor.h\"\n" + Source("FACTOR"));
  for (const char* factor : {"2", "3"}) {  // gcc's list of headers is read as it is meant
    write(place + "/sub/factor.h", "#define FACTOR " + std::string(factor) + "\n");
    Library library = Library::Build(path, options);
    CHECK(Call("c_scale", Floats{1})[0] == std::stof(factor));
    CHECK(BuildLibrary(path, options) == library.path());
    if (factor[0] == '3') library.Unload();
  }
}

TEST_CASE("a source that includes op.hpp needs no option") {
  const TemporaryFolder folder;
  const ScopedVariable flags("CXXFLAGS", "-O0"), cache("OPKIT_BUILD_CACHE", folder.path().c_str()),
      compiler("CXX", OPKIT_TEST_CXX), include("OPKIT_INCLUDE_DIR", nullptr);
  Library library = Library::Build(OPKIT_TEST_ROOT "/examples/library/first.cc");
  CHECK(Call("my_leaky_relu", Floats{-1, 2}, {{"slope", 0.5f}}) == Floats{-0.5, 2});
  library.Unload();
}

}  // namespace
