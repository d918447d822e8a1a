#include "opkit/plugin/build.hpp"

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
    folder.Write("compiler", R"(#!/bin/sh
cd ')" + folder.path() + R"('
if [ "$*" = --version ]; then cat version; exit; fi
echo "$*" >> runs
. ./behaviour
while [ $# -gt 0 ]; do
  case "$1" in
    -o) out=$2; shift;;
    -MF) list=$2; shift;;
    *.cc) source=$1;;
  esac
  shift
done
cat "$source" 'a header.h' > "$out"
echo "out.so: $source \\" > "$list"
echo "  $PWD/a\\ header.h" >> "$list"
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

TEST_CASE("a source that includes op.hpp needs no option") {
  const TemporaryFolder folder;
  const ScopedVariable flags("CXXFLAGS", "-O0"), cache("OPKIT_BUILD_CACHE", folder.path().c_str()),
      compiler("CXX", OPKIT_TEST_CXX), include("OPKIT_INCLUDE_DIR", nullptr);
  Library library = Library::Build(OPKIT_TEST_ROOT "/examples/library/first.cc");
  CHECK(Call("my_leaky_relu", Floats{-1, 2}, {{"slope", 0.5f}}) == Floats{-0.5, 2});
  library.Unload();
}

}  // namespace
