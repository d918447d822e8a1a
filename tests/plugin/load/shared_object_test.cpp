// Shared objects opened, opened again, rebuilt, closed and damaged; fixtures/ are the libraries.
#include "opkit/plugin/load/shared_object.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "opkit/plugin/load/elf_file.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/temporary_folder.hpp"

namespace shared_object_test {
namespace {

using namespace opkit;
using detail::CloseReport;
using detail::SharedObject;
namespace fs = std::filesystem;

const std::string kFixtures = SHARED_OBJECT_FIXTURES "/";

// No image of an earlier test has a name in it.
struct Folder : TemporaryFolder {
  std::string Put(const std::string& fixture, const std::string& name = "ops.so") const {
    return TemporaryFolder::Put(kFixtures + fixture, name);
  }
};

// The system's own word on it.
bool MapsName(const std::string& path) { return Contains(ReadFile("/proc/self/maps"), path); }

int Call(const detail::IntrusivePtr<SharedObject>& library, const char* function) {
  void* const found = library->Find(function);
  REQUIRE(found != nullptr);
  return reinterpret_cast<int (*)()>(found)();
}
Error OpenError(const std::string& path) {
  return ErrorOf([&] { SharedObject::Open(path); });
}
std::string Expected(const std::string& path, const std::string& rest) {
  return "expected '" + path + "' to be a shared object, but it " + rest;
}
// Runs it in a child, which may spoil the process; true when it returned true.
template <class F>
bool InChild(F&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = false;
    try {
      good = body();
    } catch (...) {
    }
    ::_exit(good ? 0 : 1);
  }
  int result = -1;
  ::waitpid(child, &result, 0);
  return result == 0;
}
bool DenyMemoryFiles() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{4, rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("A library is opened, called and gone after Close") {
  const Folder folder;
  const std::string path = folder.Put("good.so");
  detail::IntrusivePtr<SharedObject> library = SharedObject::Open(path);
  CHECK(library->path() == path);
  CHECK(library->loaded_path() == path);
  CHECK(Call(library, "Value") == 1);
  CHECK(library->Find("NoSuchFunction") == nullptr);
  CHECK(library->Find("malloc") == nullptr);  // of a library that this one depends on
  CHECK(library->PinningSymbols().empty());
  const uintptr_t base = library->base();
  CHECK(MapsName(path));
  CHECK(SharedObject::IsMapped(path, base));
  const CloseReport report = SharedObject::Close(library);
  CHECK_FALSE(library);
  CHECK(report.unmapped);
  CHECK_FALSE(report.still_used);
  CHECK(report.pinned_by.empty());
  CHECK_FALSE(MapsName(path));
  CHECK_FALSE(SharedObject::IsMapped(path, base));
  CHECK(SharedObject::Close(library).unmapped);  // nothing is nowhere
}

TEST_CASE("The last handle closes without Close") {
  const Folder folder;
  const std::string path = folder.Put("good.so");
  SharedObject::Open(path);
  CHECK_FALSE(MapsName(path));
}

TEST_CASE("The exported functions are those that the file defines") {
  const auto library = SharedObject::Open(kFixtures + "good.so");
  Strings functions = library->ExportedFunctions();
  const auto has = [&](const char* name) {
    return std::find(functions.begin(), functions.end(), name) != functions.end();
  };
  CHECK(has("Value"));
  CHECK(has("CountUp"));
  CHECK(has("_ZN7fixture5TwiceEi"));
  CHECK_FALSE(has("__cxa_finalize"));  // only used
  CHECK_FALSE(has("count"));
  CHECK(detail::Demangle("_ZN7fixture5TwiceEi") == "fixture::Twice(int)");
  CHECK(detail::Demangle("f") == "f");
  CHECK(detail::Demangle("_Z?") == "_Z?");
}

TEST_CASE("A path without a slash is a file in the current directory") {
  const Folder folder;
  folder.Put("good.so", "opkit_here.so");
  const fs::path before = fs::current_path();
  fs::current_path(folder / "");
  auto library = SharedObject::Open("opkit_here.so");
  const Error error = OpenError("libc.so.6");  // is on the loader's own path
  fs::current_path(before);
  CHECK(library->path() == "opkit_here.so");
  CHECK(library->loaded_path() == "./opkit_here.so");
  CHECK(Call(library, "Value") == 1);
  CHECK(error.code() == ErrorCode::kIo);
  CHECK(SharedObject::Close(library).unmapped);
}

TEST_CASE("Another directory's file of the same relative name is another library") {
  const Folder one, two;
  one.Put("good.so");
  two.Put("rebuilt.so");
  const fs::path before = fs::current_path();
  fs::current_path(one / "");
  const auto first = SharedObject::Open("ops.so");
  fs::current_path(two / "");
  const auto second = SharedObject::Open("ops.so");
  fs::current_path(before);
  CHECK(Call(first, "Value") == 1);
  CHECK(Call(second, "Value") == 2);
}

TEST_CASE("A path that is no readable file is refused with a sentence") {
  const Folder folder;
  const std::string missing = folder / "missing.so";
  CHECK(OpenError(missing).code() == ErrorCode::kIo);
  CHECK(OpenError(missing).message() ==
        Expected(missing,
                 "does not exist: build it, or mend the path (a relative one begins at the current "
                 "directory)"));
  CHECK(OpenError(folder.Write("file", "x") + "/in_it.so").code() == ErrorCode::kIo);
  CHECK(OpenError("").message() == Expected("", "is not a path: name a file"));
  CHECK(OpenError(std::string("a\0b", 3)).code() == ErrorCode::kInvalidArgument);

  CHECK(OpenError(folder / "").message() ==
        Expected(folder / "", "is a directory: name a file in it"));
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {pipe, std::string("/dev/null")})
    CHECK(OpenError(path).message() ==
          Expected(path, "is a pipe, socket or device: name a regular file"));

  const std::string circle = folder / "circle.so";
  fs::create_symlink(circle, circle);
  CHECK(OpenError(circle).message() ==
        Expected(circle,
                 "cannot be opened (Too many levels of symbolic links): mend that or name another "
                 "file"));
  // The superuser reads everything.
  const std::string secret = folder.Put("good.so", "secret.so");
  REQUIRE(::chmod(secret.c_str(), 0) == 0);
  REQUIRE(::chmod((folder / "").c_str(), 0755) == 0);
  const uid_t user = ::geteuid();
  if (user == 0) REQUIRE(::seteuid(65534) == 0);
  const Error error = OpenError(secret);
  if (user == 0) REQUIRE(::seteuid(user) == 0);
  CHECK(error.code() == ErrorCode::kIo);
  CHECK(error.message() ==
        Expected(secret,
                 "cannot be opened (Permission denied): permit reading it and entering its "
                 "folders"));
}

TEST_CASE("A file that is not a shared object is refused with a sentence") {
  const Folder folder;
  const auto refused = [](const std::string& path, const std::string& rest) {
    const Error error = OpenError(path);
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(error.message() == Expected(path, rest));
  };
  refused(folder.Write("empty.so", ""), "is empty: copy or build it again");
  refused(folder.Write("ops.cpp", "// naïve text\nint main() {}\n"),
          "is a text file: name the library's .so, or build it with -shared");
  refused(folder.Write("ops.a", "!<arch>\n/      "),
          "is a static archive: link its object files with -shared");
  refused(folder.Write("noise", std::string("\x01\x02\0\x03", 4)),
          "is not an ELF file: name the library's .so");
  refused(folder.Write("tiny.so",
                       "\x7f"
                       "ELF\x02\x01"),
          "is cut off (its ELF header would end at byte 20, the file ends at byte 6): copy or "
          "build it again");
  refused(SHARED_OBJECT_FIXTURE_OBJECT, "is an object file: link it with -shared");
  refused(kFixtures + "executable",
          "is a position-independent executable (PIE): link it with -shared");
  std::string bytes = ReadFile(kFixtures + "good.so");
  bytes[16] = ET_EXEC;
  refused(folder.Write("fixed", bytes),
          "is an executable: link it with -shared and compile with -fPIC");
  bytes[16] = ET_CORE;
  refused(folder.Write("core", bytes), "is a core dump: name the library's .so");
  ElfW(Ehdr) header;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::string debug_only = ReadFile(kFixtures + "good.so");
  for (size_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    char* const at = debug_only.data() + header.e_phoff + i * sizeof segment;
    std::memcpy(&segment, at, sizeof segment);
    segment.p_filesz = 0;
    std::memcpy(at, &segment, sizeof segment);
  }
  refused(folder.Write("ops.so.debug", debug_only),
          "has nothing to load: name the library's .so, or link it with -shared");
  bytes[16] = 77;
  refused(folder.Write("what", bytes), "is damaged (its ELF type is 77): copy or build it again");
}

TEST_CASE("Another machine's library is refused by name") {
  const Folder folder;
  const std::string good = ReadFile(kFixtures + "good.so");
  const auto refused = [&](std::string bytes, const std::string& found) {
    const std::string path = folder.Write("other.so", bytes);
    const Error error = OpenError(path);
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(Contains(error.message(), Expected(path, "is built for " + found +
                                                       ": build it for this program's machine, ")));
  };
  const auto with = [&](int bits, int order, int machine) {
    std::string bytes = good;
    bytes[EI_CLASS] = static_cast<char>(bits);
    bytes[EI_DATA] = static_cast<char>(order);
    const bool little = order == ELFDATA2LSB;
    bytes[little ? 18 : 19] = static_cast<char>(machine & 255);
    bytes[little ? 19 : 18] = static_cast<char>(machine >> 8);
    return bytes;
  };
  if (good[18] != static_cast<char>(EM_AARCH64))
    refused(with(ELFCLASS64, ELFDATA2LSB, EM_AARCH64), "AArch64 (64-bit, little-endian)");
  refused(with(ELFCLASS32, ELFDATA2LSB, EM_386), "x86 (32-bit, little-endian)");
  refused(with(ELFCLASS64, ELFDATA2MSB, EM_S390), "S/390 (64-bit, big-endian)");
  refused(with(ELFCLASS64, ELFDATA2LSB, 999), "machine 999 (64-bit, little-endian)");
  // The 32-bit header is shorter than ours, and the message still names its kind.
  refused(with(ELFCLASS32, ELFDATA2LSB, EM_ARM).substr(0, 52), "ARM (32-bit, little-endian)");
#ifdef __x86_64__
  CHECK(Contains(OpenError(folder / "other.so").message(), "machine, x86-64 (64-bit, "));
#endif
}

TEST_CASE("The loader's refusal is reported with its reason and a way out") {
  const std::string undefined = kFixtures + "undefined.so";
  CHECK(OpenError(undefined).code() == ErrorCode::kInvalidArgument);
  CHECK(OpenError(undefined).message() ==
        "expected '" + undefined +
            "' to load, but the loader says \"undefined symbol: _ZN7fixture14DefinedNowhereEi\", "
            "which is fixture::DefinedNowhere(int): link what defines it into the library");
  CHECK_FALSE(MapsName(undefined));
  const Error copied = ErrorOf([&] { SharedObject::OpenCopy(undefined); });
  CHECK(copied.message() == OpenError(undefined).message());

  const std::string dependent = kFixtures + "dependent.so";
  const Error missing = OpenError(dependent);
  CHECK(missing.code() == ErrorCode::kIo);
  CHECK(Contains(missing.message(), "'" + dependent +
                                        "' to load, but the loader says \"dependency.so: cannot "
                                        "open shared object file: No such file or directory\": "
                                        "install what it depends on"));
  // Found by its name when it is there already; its symbols are not the dependent's.
  auto dependency = SharedObject::Open(kFixtures + "dependency.so");
  auto library = SharedObject::Open(dependent);
  CHECK(Call(library, "Value") == 8);
  CHECK(library->Find("DependencyValue") == nullptr);
  CHECK(library->ExportedFunctions() == Strings{"Value"});
  // Which also keeps it, though nothing in it pins it.
  const CloseReport report = SharedObject::Close(dependency);
  CHECK_FALSE(report.unmapped);
  CHECK(report.still_used);
  CHECK(SharedObject::Close(library).unmapped);
  CHECK_FALSE(MapsName(kFixtures + "dependency.so"));
}

TEST_CASE("The same file twice is one image, closed by the second") {
  const Folder folder;
  const std::string path = folder.Put("good.so");
  fs::create_symlink(path, folder / "link.so");
  auto first = SharedObject::Open(path);
  auto second = SharedObject::Open(folder / "link.so");
  auto third = second;
  CHECK(Call(first, "CountUp") == 1);
  CHECK(Call(second, "CountUp") == 2);
  CHECK(second->path() == folder / "link.so");
  CHECK(second->loaded_path() == path);
  for (auto* library : {&first, &second}) {
    const CloseReport report = SharedObject::Close(*library);
    CHECK_FALSE(report.unmapped);
    CHECK(report.still_used);
    CHECK(report.pinned_by.empty());
  }
  CHECK(Call(third, "CountUp") == 3);
  CHECK(SharedObject::Close(third).unmapped);
  CHECK_FALSE(MapsName(path));
}

TEST_CASE("A copy has variables of its own beside the first") {
  const Folder folder;
  const std::string path = folder.Put("good.so");
  auto first = SharedObject::Open(path);
  auto copy = SharedObject::OpenCopy(path);
  auto other = SharedObject::OpenCopy(path);
  auto again = SharedObject::Open(path);
  CHECK(Call(first, "CountUp") == 1);
  CHECK(Call(copy, "CountUp") == 1);
  CHECK(Call(other, "CountUp") == 1);
  CHECK(Call(again, "CountUp") == 2);  // the first, not one that someone wants alone
  CHECK(copy->path() == path);
  CHECK(copy->loaded_path() != path);
  CHECK(copy->loaded_path() != other->loaded_path());
  CHECK(copy->ExportedFunctions() == first->ExportedFunctions());
  CHECK(MapsName("/memfd:ops.so"));
  for (auto* library : {&copy, &other}) CHECK(SharedObject::Close(*library).unmapped);
  CHECK_FALSE(MapsName("/memfd:ops.so"));
  CHECK(SharedObject::Close(first).still_used);
  CHECK(SharedObject::Close(again).unmapped);
}

TEST_CASE("An image that the program itself holds is not taken over, and said to be used") {
  const Folder folder;
  const std::string path = folder.Put("good.so");
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(handle != nullptr);
  auto count_up = reinterpret_cast<int (*)()>(::dlsym(handle, "CountUp"));
  CHECK(count_up() == 1);
  auto copy = SharedObject::Open(path);
  CHECK(copy->loaded_path() != path);
  CHECK(Call(copy, "CountUp") == 1);
  CHECK(SharedObject::Close(copy).unmapped);
  ::dlclose(handle);
  auto library = SharedObject::Open(path);
  CHECK(library->loaded_path() == path);
  void* const held = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const CloseReport report = SharedObject::Close(library);
  CHECK_FALSE(report.unmapped);
  CHECK(report.still_used);
  ::dlclose(held);
  CHECK_FALSE(MapsName(path));
}

TEST_CASE("A file that was rebuilt gives its new code, beside the old or after it") {
  const Folder folder;
  const std::string path = folder.Put("good.so");
  auto old = SharedObject::Open(path);
  CHECK(Call(old, "Value") == 1);
  folder.Put("rebuilt.so");
  auto rebuilt = SharedObject::Open(path);
  auto again = SharedObject::Open(path);
  CHECK(Call(old, "Value") == 1);
  CHECK(Call(rebuilt, "Value") == 2);
  CHECK(rebuilt->path() == path);
  CHECK(rebuilt->loaded_path() != path);
  CHECK(Call(rebuilt, "CountUp") == 1);
  CHECK(Call(again, "CountUp") == 2);  // of the same rebuilt file
  CHECK(again->loaded_path() == rebuilt->loaded_path());
  CHECK(SharedObject::Close(old).unmapped);
  CHECK(SharedObject::Close(rebuilt).still_used);
  CHECK(SharedObject::Close(again).unmapped);

  folder.Put("good.so");
  auto last = SharedObject::Open(path);
  CHECK(Call(last, "Value") == 1);
  CHECK(last->loaded_path() == path);  // nothing was left over
}

TEST_CASE("A file written to in place is another one, by its time alone") {
  const Folder folder;
  const std::string path = folder.Put("good.so");
  const auto old = SharedObject::Open(path);
  CHECK(Call(old, "CountUp") == 1);
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  CHECK(Call(SharedObject::Open(path), "CountUp") == 1);
}

TEST_CASE("A unique symbol pins a library, is named, and a reload is fresh") {
  const Folder folder;
  const std::string path = folder.Put("unique.so");
  auto library = SharedObject::Open(path);
  CHECK(library->PinningSymbols() == Strings{"fixture::shared_count"});
  CHECK(Call(library, "CountUp") == 1);
  CHECK(Call(library, "CountShared") == 1);
  const std::string loaded = library->loaded_path();
  const uintptr_t base = library->base();
  CloseReport report = SharedObject::Close(library);
  CHECK_FALSE(report.unmapped);
  CHECK_FALSE(report.still_used);
  CHECK(report.pinned_by == Strings{"fixture::shared_count"});
  CHECK(MapsName(path));
  CHECK(SharedObject::IsMapped(loaded, base));

  library = SharedObject::Open(path);
  CHECK(library->loaded_path() != path);
  CHECK(Call(library, "CountUp") == 1);      // its own
  CHECK(Call(library, "CountShared") == 2);  // one in the process, as its linkage says
  // A second handle keeps it for a reason of its own.
  auto other = SharedObject::Open(path);
  CHECK(other->loaded_path() == library->loaded_path());
  CHECK(SharedObject::Close(other).still_used);
}

TEST_CASE("A thread-local with a destructor keeps a library until the thread ends") {
  const Folder folder;
  const std::string path = folder.Put("thread_local.so");
  const Strings pinning = {"fixture::counted (thread_local)", "fixture::file_count (thread_local)"};
  std::thread([&] {
    auto library = SharedObject::Open(path);
    CHECK(library->PinningSymbols() == pinning);
    CHECK(Call(library, "CountUp") == 1);
    const CloseReport report = SharedObject::Close(library);
    CHECK_FALSE(report.unmapped);
    CHECK_FALSE(report.still_used);
    CHECK(report.pinned_by == pinning);
    library = SharedObject::Open(path);
    CHECK(library->loaded_path() != path);
    CHECK(Call(library, "CountUp") == 1);
  }).join();
  auto unused = SharedObject::OpenCopy(path);
  CHECK(SharedObject::Close(unused).unmapped);  // no thread has made one
}

TEST_CASE("Thread-locals are named as far as the file has symbols, and noticed without") {
  std::string bytes = ReadFile(kFixtures + "thread_local.so");
  detail::ElfInfo info = detail::ReadElf(bytes, "x");
  CHECK(info.has_thread_locals);
  // The second is a local symbol, in the full table alone.
  CHECK(info.thread_locals == Strings{"_ZN7fixture7countedE", "_ZN7fixtureL10file_countE"});
  std::string marked = bytes;  // as ARM64's assemblers mark where data begins
  marked.replace(marked.rfind("_ZN7fixtureL10file_countE"), 3, std::string("$d\0", 3));
  CHECK(detail::ReadElf(marked, "x").thread_locals == Strings{"_ZN7fixture7countedE"});
  ElfW(Ehdr) header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.e_shoff = 0;  // without section headers
  std::memcpy(bytes.data(), &header, sizeof header);
  info = detail::ReadElf(bytes, "x");
  CHECK(info.has_thread_locals);
  CHECK(info.thread_locals.empty());
  CHECK(info.functions.empty());
  const Folder folder;
  CHECK(SharedObject::Open(folder.Write("stripped.so", bytes))->PinningSymbols() ==
        Strings{"thread_local variables"});
}

TEST_CASE("The linker's -z nodelete pins, and is named") {
  const Folder folder;
  const std::string path = folder.Put("no_delete.so");
  auto library = SharedObject::Open(path);
  CHECK(Call(library, "CountUp") == 1);
  CHECK(SharedObject::Close(library).pinned_by == Strings{"the linker's option -z nodelete"});
  folder.Put("rebuilt.so");
  library = SharedObject::Open(path);
  CHECK(Call(library, "Value") == 2);
  CHECK(Call(library, "CountUp") == 1);
}

TEST_CASE("A copy that stays mapped does not stand in for later ones") {
  for (int round = 1; round <= 3; ++round) {
    auto pinned = SharedObject::OpenCopy(kFixtures + "no_delete.so");
    CHECK(Call(pinned, "CountUp") == 1);
    CHECK_FALSE(SharedObject::Close(pinned).unmapped);
    auto library = SharedObject::OpenCopy(kFixtures + "rebuilt.so");
    CHECK(Call(library, "Value") == 2);
  }
}

TEST_CASE("A path with a dollar sign is taken literally") {
  const Folder folder;
  const std::string path = folder.Put("good.so", "$ORIGIN $LIB.so");
  const auto library = SharedObject::Open(path);
  const auto again = SharedObject::Open(path);
  CHECK(Call(library, "CountUp") == 1);
  CHECK(Call(again, "CountUp") == 2);
}

TEST_CASE("Without files in memory a copy is made in TMPDIR and removed") {
  const Folder folder;
  REQUIRE(::chmod((folder / "").c_str(), 0755) == 0);
  CHECK(InChild([&] {
    if (!DenyMemoryFiles()) return false;
    ::setenv("TMPDIR", (folder / "").c_str(), 1);
    auto library = SharedObject::OpenCopy(kFixtures + "good.so");
    return library->loaded_path().starts_with(folder / "/opkit_") && Call(library, "Value") == 1 &&
           MapsName(folder / "opkit_") && fs::is_empty(folder / "") &&
           SharedObject::Close(library).unmapped;
  }));
  CHECK(InChild([&] {
    if (!DenyMemoryFiles()) return false;
    ::setenv("TMPDIR", (folder / "none").c_str(), 1);
    const Error error = ErrorOf([] { SharedObject::OpenCopy(kFixtures + "good.so"); });
    return error.code() == ErrorCode::kIo &&
           error.message() == "cannot load '" + kFixtures +
                                  "good.so' a second time: expected room for a copy of it, but "
                                  "found none in memory or in '" +
                                  (folder / "none") +
                                  "' (No such file or directory): set TMPDIR to a folder with "
                                  "space";
  }));
}

// Not for ThreadSanitizer, which does not see the loader's own lock.
TEST_CASE("Threads may open and close one file at once") {
  const Folder folder;
  const std::string path = folder.Put("good.so");
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        auto library = round % 8 == i ? SharedObject::OpenCopy(path) : SharedObject::Open(path);
        good += reinterpret_cast<int (*)()>(library->Find("Value"))();
        SharedObject::Close(library);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(good == 200);
  CHECK_FALSE(MapsName(path));
}

// From here on hostile files. Only Open of what the reader refuses is tried: what it accepts is
// code, which may do as it likes.

TEST_CASE("A file that is cut anywhere is refused") {
  const Folder folder;
  const std::string whole = ReadFile(kFixtures + "good.so");
  for (size_t size = 0; size < whole.size(); size += 97) {
    const std::string path = folder.Write("cut.so", std::string_view(whole).substr(0, size));
    const Error error = OpenError(path);
    CAPTURE(size);
    CAPTURE(error.message());
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.message(), size == 0 ? "is empty" : "is cut off (its "));
  }
  // Also without the table at its end that is missed first.
  std::string bytes = whole;
  ElfW(Ehdr) header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.e_shoff = 0;
  std::memcpy(bytes.data(), &header, sizeof header);
  detail::ReadElf(bytes, "x");
  CHECK(Contains(OpenError(folder.Write("cut.so", bytes.substr(0, 4096))).message(),
                 "is cut off (its segments would end at byte "));
}

TEST_CASE("Any byte of a header may be anything") {
  std::random_device entropy;
  const uint32_t seed = entropy();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const char* fixture : {"good.so", "thread_local.so"}) {
    const std::string whole = ReadFile(kFixtures + fixture);
    ElfW(Ehdr) header;
    std::memcpy(&header, whole.data(), sizeof header);
    std::vector<size_t> at;  // the tables' bytes, and the symbols'
    const auto add = [&](size_t begin, size_t size) {
      for (size_t i = begin; i < begin + size; ++i) at.push_back(i);
    };
    add(0, sizeof header);
    add(header.e_phoff, header.e_phnum * sizeof(ElfW(Phdr)));
    add(header.e_shoff, header.e_shnum * sizeof(ElfW(Shdr)));
    for (size_t i = 0; i < header.e_shnum; ++i) {
      ElfW(Shdr) section;
      std::memcpy(&section, whole.data() + header.e_shoff + i * sizeof section, sizeof section);
      if (section.sh_type == SHT_DYNSYM || section.sh_type == SHT_DYNAMIC)
        add(section.sh_offset, section.sh_size);
    }
    int refused = 0, read = 0;
    const auto read_one = [&](const std::string& bytes) {
      // A block of exactly this size: a sanitizer sees any reading beyond it.
      const std::vector<char> block(bytes.begin(), bytes.end());
      try {
        detail::ReadElf({block.data(), block.size()}, "x");
        ++read;
      } catch (const Error& error) {
        CHECK(Contains(error.message(), "expected 'x' to be a shared object, but it "));
        ++refused;
      }
    };
    for (const size_t i : at)
      for (const int value : {0, 1, 0x7f, 0x80, 0xff, whole[i] ^ 1, whole[i] ^ 0x40}) {
        std::string bytes = whole;
        bytes[i] = static_cast<char>(value);
        read_one(bytes);
      }
    for (int round = 0; round < 5000; ++round) {
      std::string bytes = whole;
      for (size_t i = 0; i <= round % 8u; ++i) {
        const size_t where = at[random() % at.size()] & ~size_t{7};  // a word at once
        const uint64_t values[] = {random(), ~uint64_t{0} - random() % 4096, bytes.size() - 1,
                                   uint64_t{1} << random() % 64};
        std::memcpy(bytes.data() + where, &values[random() % 4], 8);
      }
      bytes.resize(random() % 4 ? bytes.size() : random() % bytes.size());
      read_one(bytes);
    }
    CHECK(refused > 1000);
    CHECK(read > 1000);
  }
}

TEST_CASE("Many symbols of one long name do not fill the memory") {
  std::string bytes = ReadFile(kFixtures + "good.so");
  ElfW(Ehdr) header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto section = [&](size_t i) { return header.e_shoff + i * sizeof(ElfW(Shdr)); };
  ElfW(Shdr) table;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    std::memcpy(&table, bytes.data() + section(i), sizeof table);
    if (table.sh_type != SHT_DYNSYM) continue;
    ElfW(Sym) symbol{};
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbol.st_shndx = 1;
    table.sh_offset = bytes.size();
    table.sh_size = 40'000 * sizeof symbol;
    std::memcpy(bytes.data() + section(i), &table, sizeof table);
    for (int k = 0; k < 40'000; ++k)
      bytes.append(reinterpret_cast<const char*>(&symbol), sizeof symbol);
    ElfW(Shdr) names;
    std::memcpy(&names, bytes.data() + section(table.sh_link), sizeof names);
    names.sh_offset = bytes.size();
    names.sh_size = 1'000'001;
    std::memcpy(bytes.data() + section(table.sh_link), &names, sizeof names);
    bytes.append(1'000'000, 'n').push_back('\0');
    break;
  }
  REQUIRE(bytes.size() > 1'900'000);
  CHECK(ErrorOf([&] { detail::ReadElf(bytes, "x"); }).message() ==
        Expected("x",
                 "is damaged (its symbols' names are larger than the file): copy or build it "
                 "again"));
}

}  // namespace shared_object_test
