#include "opkit/graph/tune/tuning_cache.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <limits>
#include <thread>

#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"

namespace tuning_cache_test { namespace {

using namespace opkit;

// Times that are not round, so that a wrong digit is seen.
MeasuredTime TimeOf(double median, int64_t unix_ms = 0) {
  return {median, median * 0.9, median * 1.1, 17, 4096, unix_ms};
}
void CheckTime(const std::optional<MeasuredTime>& found, double median) {
  const MeasuredTime expected = TimeOf(median);
  REQUIRE(found.has_value());
  CHECK(found->median_ns == expected.median_ns);
  CHECK(found->low_ns == expected.low_ns);
  CHECK(found->high_ns == expected.high_ns);
  CHECK(found->samples == expected.samples);
  CHECK(found->bytes == expected.bytes);
}
std::string OnlyWarning(const TuningCache& cache) {
  const std::vector<std::string> warnings = cache.warnings();
  if (warnings.size() != 1) return std::to_string(warnings.size()) + " warnings";
  return warnings[0];
}

// Runs `body` in a process of its own.
template <class F>
pid_t Start(F body) {
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(100);
  _exit(body());
}
int EndOf(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_CASE("entries with odd texts come back from the file, each of its kind") {
  const TemporaryFolder folder;
  const std::string path = folder / "cache/deep/tuning.json";
  std::string every;
  for (int c = 0; c < 128; ++c) every += static_cast<char>(c);
  const std::string keys[] = {"",
                              "Conv",
                              every,
                              "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80",
                              std::string(10'000, 'k'),
                              "]}",
                              "\n{\"time\": \"Conv\""};
  {
    TuningCache cache(path, every);
    CHECK(!cache.FindTime("Conv"));
    double median = 0.1;
    for (const std::string& key : keys) {
      cache.AddTime(key, TimeOf(median *= 3));
      cache.AddPlan(key, {"y\tConv\t" + key, median, 2 * median});
    }
    CHECK(cache.size() == 14);
    CHECK(cache.Save());
    CHECK(cache.warnings().empty());
  }
  const TuningCache cache(path, every);
  CHECK(cache.warnings().empty());
  CHECK(cache.size() == 14);
  double median = 0.1;
  for (const std::string& key : keys) {
    CheckTime(cache.FindTime(key), median *= 3);
    CHECK(cache.FindTime(key)->unix_ms > 0);
    const std::optional<TunedPlan> plan = cache.FindPlan(key);
    REQUIRE(plan.has_value());
    CHECK(plan->selection == "y\tConv\t" + key);
    CHECK(plan->tuned_ns == median);
    CHECK(plan->default_ns == 2 * median);
    CHECK(plan->unix_ms > 0);
  }
  CHECK(!cache.FindTime("conv"));
}

TEST_CASE("the text of a file is JSON with one entry on each line") {
  const TemporaryFolder folder;
  TuningCache cache(folder / "c", "m");
  cache.AddTime("b", {2.5, 2, 3, 7, 0, 12});
  cache.AddTime("a", {1e-9, 0, 1, 0, 9, 13});
  cache.AddPlan("p", {"y\tConv", 10, 20.5, 14});
  CHECK(cache.Save());
  CHECK(
      ReadFile(folder / "c") ==
      "{\"opkit\": \"tuning cache\", \"schema\": 1, \"machines\": [\n"
      "{\"machine\": \"m\", \"entries\": [\n"
      "{\"time\": \"a\", \"median_ns\": 1e-09, \"low_ns\": 0, \"high_ns\": 1, \"samples\": 0, "
      "\"bytes\": 9, \"unix_ms\": 13, \"check\": \"08522247315220fe\"},\n"
      "{\"time\": \"b\", \"median_ns\": 2.5, \"low_ns\": 2, \"high_ns\": 3, \"samples\": 7, "
      "\"bytes\": 0, \"unix_ms\": 12, \"check\": \"e8f163d8cad36f3d\"},\n"
      "{\"plan\": \"p\", \"selection\": \"y\\u0009Conv\", \"tuned_ns\": 10, \"default_ns\": 20.5, "
      "\"unix_ms\": 14, \"check\": \"e4a17201214740a0\"}\n"
      "]}\n"
      "]}\n");
}

TEST_CASE("a measurement without an hour replaces the entry, one with an hour an older entry") {
  TuningCache cache("", "m");
  const int64_t future = int64_t{1} << 50;
  cache.AddTime("k", TimeOf(1, future));
  cache.AddTime("k", TimeOf(2, future - 1));
  CheckTime(cache.FindTime("k"), 1);
  cache.AddTime("k", TimeOf(3));
  CheckTime(cache.FindTime("k"), 3);
  CHECK(cache.FindTime("k")->unix_ms > future);
  cache.AddPlan("k", {"a", 1, 1, 5});
  cache.AddPlan("k", {"b", 1, 1, 4});
  CHECK(cache.FindPlan("k")->selection == "a");
  CHECK(cache.Save());  // in memory alone
  CHECK(cache.warnings().empty());
}

TEST_CASE("values that no measurement has are refused and change nothing") {
  TuningCache cache("", "m");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const MeasuredTime& time : {MeasuredTime{nan, 0, 1},
                                   {1, nan, 1},
                                   {1, 0, nan},
                                   {1, 0, infinity},
                                   {1, -1, 1},
                                   {1, 2, 3},
                                   {4, 2, 3},
                                   {1, 1, 1, -1},
                                   {1, 1, 1, 1, -1},
                                   {1, 1, 1, 1, 1, -1}}) {
    const Error error = ErrorOf([&] { cache.AddTime("key", time); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.message(), "0 <= low <= median <= high"));
    CHECK(Contains(error.message(), "for 'key'"));
  }
  for (const TunedPlan& plan :
       {TunedPlan{"", nan, 1}, {"", 1, infinity}, {"", -1, 1}, {"", 1, 1, -1}})
    CHECK(Contains(ErrorOf([&] { cache.AddPlan("key", plan); }).message(), "tuned plan"));
  CHECK(cache.size() == 0);
}

// A file in memory: a disk may take milliseconds for each of thousands of files.
class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("opkit", 0)), path_("/proc/self/fd/" + std::to_string(file_)) {}
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile() { close(file_); }
  const std::string& path() const { return path_; }
  void Write(std::string_view bytes) const {
    REQUIRE(ftruncate(file_, 0) == 0);
    REQUIRE(pwrite(file_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  const int file_;
  const std::string path_;
};

// A file of three entries of two machines, and the entries.
std::string SmallFile(const std::string& path) {
  TuningCache one(path, "one"), two(path, "two");
  one.AddTime("k1", TimeOf(1.25, 1));
  one.AddPlan("k\xC3\xA4", {"y\tConv", 10, 20, 2});
  CHECK(one.Save());
  two.AddTime("k1", TimeOf(7.5, 3));
  CHECK(two.Save());
  return ReadFile(path);
}
// Checks that what a cache finds is what SmallFile wrote; returns how many of its entries it finds.
size_t CheckSmall(const TuningCache& one, const TuningCache& two) {
  size_t found = 0;
  if (const auto time = one.FindTime("k1")) {
    CheckTime(time, 1.25);
    CHECK(time->unix_ms == 1);
    ++found;
  }
  if (const auto plan = one.FindPlan("k\xC3\xA4")) {
    CHECK(plan->selection == "y\tConv");
    CHECK(plan->tuned_ns == 10);
    CHECK(plan->default_ns == 20);
    CHECK(plan->unix_ms == 2);
    ++found;
  }
  if (const auto time = two.FindTime("k1")) {
    CheckTime(time, 7.5);
    ++found;
  }
  CHECK(found == one.size() + two.size());  // there is no entry of another key
  return found;
}

TEST_CASE("a file that is cut off at any byte has the entries before, and a warning says so") {
  const TemporaryFolder folder;
  const MemoryFile file;
  const std::string bytes = SmallFile(folder / "whole");
  size_t before = 0;
  for (size_t length = 0; length <= bytes.size(); ++length) {
    CAPTURE(length);
    file.Write(std::string_view(bytes).substr(0, length));
    const TuningCache one(file.path(), "one"), two(file.path(), "two");
    const size_t found = CheckSmall(one, two);
    CHECK(found >= before);
    if (length > 0 && found < 3)
      CHECK(OnlyWarning(one) == "'" + file.path() + "' is damaged: 1 line is not used");
    before = found;
  }
  CHECK(before == 3);
}

TEST_CASE("a byte that is damaged costs the entries on its line, and no value is wrong") {
  const TemporaryFolder folder;
  const MemoryFile file;
  const std::string bytes = SmallFile(folder / "whole");
  const size_t first_line = bytes.find('\n');
  size_t all = 0, without_one = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int flip : {1, 0x20, 0x80}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      CAPTURE(at);
      CAPTURE(flip);
      file.Write(damaged);
      const TuningCache one(file.path(), "one"), two(file.path(), "two");
      const size_t found = CheckSmall(one, two);
      all += found == 3;
      without_one += found == 2;
      if (at > first_line) CHECK(found >= 1);  // a machine's line costs its entries
      if (found < 3) CHECK(one.warnings().size() == 1);
    }
  }
  CHECK(without_one > 500);
  CHECK(all > 50);
}

TEST_CASE("a save keeps the entries that damage has left, and repairs the file") {
  const TemporaryFolder folder;
  std::string bytes = SmallFile(folder / "c");
  bytes[bytes.find("1.25")] = '2';
  folder.Write("c", bytes);
  TuningCache cache(folder / "c", "one");
  CHECK(!cache.FindTime("k1"));
  cache.AddTime("k2", TimeOf(3));
  CHECK(cache.Save());
  CHECK(cache.warnings().size() == 1);
  const TuningCache one(folder / "c", "one"), two(folder / "c", "two");
  CHECK(one.warnings().empty());
  CHECK(one.FindPlan("k\xC3\xA4").has_value());
  CheckTime(one.FindTime("k2"), 3);
  CheckTime(two.FindTime("k1"), 7.5);
}

TEST_CASE("a file of a newer schema is not used and not written, one of an older is replaced") {
  const TemporaryFolder folder;
  std::string bytes = SmallFile(folder / "c");
  const size_t schema = bytes.find("1, \"machines\"");
  REQUIRE(schema != bytes.npos);
  bytes[schema] = '2';
  folder.Write("c", bytes);
  TuningCache newer(folder / "c", "one");
  CHECK(newer.size() == 0);
  CHECK(OnlyWarning(newer) == "'" + folder / "c" +
                                  "' is a tuning cache of schema 2, of a newer opkit; this one has "
                                  "schema 1");
  newer.AddTime("k", TimeOf(1));
  CHECK(!newer.Save());
  CHECK(newer.warnings().back() == newer.warnings()[0] + "; nothing is written to it");
  CHECK(ReadFile(folder / "c") == bytes);
  CHECK(Contains(ErrorOf([&] { newer.MergeFrom(folder / "c"); }).message(), "newer opkit"));

  bytes[schema] = '0';
  folder.Write("c", bytes);
  TuningCache older(folder / "c", "one");
  CHECK(older.size() == 0);
  CHECK(Contains(OnlyWarning(older), "schema 0, of an older opkit"));
  older.AddTime("k", TimeOf(1));
  CHECK(older.Save());
  CHECK(TuningCache(folder / "c", "one").size() == 1);
}

TEST_CASE("a file of another kind is not used and not written") {
  const TemporaryFolder folder;
  for (const std::string_view bytes :
       {"x", "{}", "{\"opkit\": \"selection\"}", "\x08\x07\x12\x04onnx", "\n", "[\n]}\n"}) {
    CAPTURE(bytes);
    const std::string path = folder.Write("c", bytes);
    TuningCache cache(path, "m");
    CHECK(OnlyWarning(cache) == "'" + path + "' is no tuning cache");
    cache.AddTime("k", TimeOf(1));
    CHECK(!cache.Save());
    CHECK(ReadFile(path) == bytes);
    CheckTime(cache.FindTime("k"), 1);
  }
  TuningCache unreadable(folder.path(), "m");
  CHECK(Contains(OnlyWarning(unreadable), "it is not a regular file"));
}

TEST_CASE("a save keeps what others have written, and the newer entry of a key") {
  const TemporaryFolder folder;
  const std::string path = folder / "c";
  TuningCache first(path, "m"), second(path, "m"), other(path, "another");
  first.AddTime("both", TimeOf(1, 10));
  first.AddTime("first", TimeOf(2));
  second.AddTime("both", TimeOf(3, 20));
  second.AddPlan("second", {"s", 4, 5});
  other.AddTime("both", TimeOf(6, 5));
  CHECK(other.Save());
  CHECK(second.Save());
  CHECK(first.Save());
  CheckTime(first.FindTime("both"), 3);  // it has what it met in the file
  CHECK(first.FindPlan("second").has_value());
  const TuningCache read(path, "m"), read_other(path, "another");
  CheckTime(read.FindTime("both"), 3);
  CheckTime(read.FindTime("first"), 2);
  CHECK(read.FindPlan("second").has_value());
  CHECK(read.size() == 3);
  CheckTime(read_other.FindTime("both"), 6);
  CHECK(read_other.size() == 1);
  CHECK(ReadFile(path).find("another") < ReadFile(path).find("\"m\""));
}

TEST_CASE("a save without anything new does not touch the file") {
  const TemporaryFolder folder;
  const std::string path = folder / "none/c";
  CHECK(TuningCache(path, "m").Save());
  CHECK(!std::filesystem::exists(folder / "none"));
  SmallFile(folder / "c");
  TuningCache cache(folder / "c", "one");
  std::filesystem::remove(folder / "c");
  CHECK(cache.Save());
  CHECK(!std::filesystem::exists(folder / "c"));
}

TEST_CASE("processes that save at the same time lose no entry") {
  const TemporaryFolder folder;
  const std::string path = folder / "c";
  const auto add = [&](int process) {
    TuningCache cache(path, "m");
    bool good = true;
    for (int i = 0; i < 50; ++i) {
      cache.AddTime("p" + std::to_string(process) + " k" + std::to_string(i), TimeOf(i));
      if (i % 10 == 9) good = cache.Save() && good;
    }
    return good && cache.warnings().empty() ? 0 : 1;
  };
  const pid_t first = Start([&] { return add(1); }), second = Start([&] { return add(2); });
  CHECK(EndOf(first) == 0);
  CHECK(EndOf(second) == 0);
  const TuningCache cache(path, "m");
  CHECK(cache.warnings().empty());
  CHECK(cache.size() == 100);
  for (int i = 0; i < 50; ++i) CheckTime(cache.FindTime("p2 k" + std::to_string(i)), i);
}

TEST_CASE("threads share a cache and save it at the same time") {
  const TemporaryFolder folder;
  TuningCache cache(folder / "c", "m");
  std::thread threads[2];
  for (int t = 0; t < 2; ++t)
    threads[t] = std::thread([&, t] {
      for (int i = 0; i < 20; ++i) {
        cache.AddTime(std::to_string(t) + " " + std::to_string(i), TimeOf(i));
        cache.FindTime("1 " + std::to_string(i));
        if (i % 5 == 4) cache.Save();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(cache.warnings().empty());
  CHECK(TuningCache(folder / "c", "m").size() == 40);
}

TEST_CASE("a process that is killed while it saves leaves a whole file") {
  const TemporaryFolder folder;
  const std::string path = folder / "c";
  size_t before = 0;
  for (int round = 0; round < 8; ++round) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = Start([&] {
      TuningCache cache(path, "m");
      for (int i = 0;; ++i) {
        cache.AddTime(std::to_string(round) + std::string(2000, 'k') + std::to_string(i),
                      TimeOf(i));
        if (!cache.Save() || !cache.warnings().empty() || write(ends[1], "s", 1) != 1) return 1;
      }
    });
    char saved;
    for (int i = 0; i <= round % 3; ++i) CHECK(read(ends[0], &saved, 1) == 1);
    usleep(static_cast<useconds_t>(round * 150));  // to meet another step of the next save
    kill(child, SIGKILL);
    CHECK(EndOf(child) == -SIGKILL);
    close(ends[0]);
    close(ends[1]);
    const TuningCache cache(path, "m");
    CHECK(cache.warnings().empty());
    CHECK(cache.size() > before);
    before = cache.size();
  }
  TuningCache cache(path, "m");
  cache.AddTime("last", TimeOf(1));
  CHECK(cache.Save());  // no lock is left, and no half file is in the way
  CHECK(TuningCache(path, "m").size() == before + 1);
}

TEST_CASE("a full disk is a warning: the old file is whole and the entries are in memory") {
  const TemporaryFolder folder;
  const std::string path = folder / "c", bytes = SmallFile(path);
  const pid_t child = Start([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    TuningCache cache(path, "one");
    cache.AddTime(std::string(5000, 'k'), TimeOf(2));
    const bool saved = cache.Save() || cache.Save();
    const bool good = !saved && cache.FindTime(std::string(5000, 'k')) && cache.FindTime("k1") &&
                      OnlyWarning(cache) == "cannot write '" + path + "': File too large";
    return good ? 0 : 1;
  });
  CHECK(EndOf(child) == 0);
  CHECK(ReadFile(path) == bytes);
  CHECK(!std::filesystem::exists(path + ".new"));
}

TEST_CASE("a folder that cannot be written is a warning, and its file is read") {
  const TemporaryFolder folder;
  const std::string path = folder / "c", bytes = SmallFile(path);
  REQUIRE(chmod(path.c_str(), 0666) == 0);
  std::filesystem::remove(path + ".lock");
  REQUIRE(chmod(folder.path().c_str(), 0555) == 0);
  const pid_t child = Start([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return 2;  // root may write everywhere
    TuningCache cache(path, "one");
    cache.AddTime("k", TimeOf(2));
    const bool good = !cache.Save() && cache.FindTime("k1") &&
                      OnlyWarning(cache) == "cannot write '" + path + ".lock': Permission denied";
    return good ? 0 : 1;
  });
  CHECK(EndOf(child) == 0);
  REQUIRE(chmod(folder.path().c_str(), 0755) == 0);
  CHECK(ReadFile(path) == bytes);
}

TEST_CASE("a text that is not UTF-8 is kept in memory, and a warning says that the file lacks it") {
  const TemporaryFolder folder;
  TuningCache cache(folder / "c", "m");
  cache.AddTime("\xFF", TimeOf(1));
  cache.AddTime("good", TimeOf(2));
  cache.AddPlan("plan", {"\xC3", 1, 2});
  CheckTime(cache.FindTime("\xFF"), 1);
  CHECK(cache.Save());
  CHECK(OnlyWarning(cache) == "'" + folder / "c" + "' lacks 2 entries: their text is not UTF-8");
  CHECK(TuningCache(folder / "c", "m").size() == 1);
}

TEST_CASE("entries are exported, of one machine or all, and merged from another file") {
  const TemporaryFolder folder;
  SmallFile(folder / "c");
  const TuningCache one(folder / "c", "one");
  one.Export(folder / "all");
  one.Export(folder / "mine", true);
  CHECK(ReadFile(folder / "all") == ReadFile(folder / "c"));
  CHECK(!Contains(ReadFile(folder / "mine"), "two"));
  CHECK(TuningCache(folder / "mine", "one").size() == 2);

  TuningCache cache(folder / "new", "two");
  cache.AddTime("k1", TimeOf(5, 2));
  CHECK(cache.MergeFrom(folder / "all") == 3);
  CHECK(cache.MergeFrom(folder / "all") == 0);
  CheckTime(cache.FindTime("k1"), 7.5);
  CHECK(cache.Save());
  CHECK(ReadFile(folder / "new") == ReadFile(folder / "c"));

  CHECK(ErrorOf([&] { cache.MergeFrom(folder / "none"); }).message() ==
        "'" + folder / "none" + "' is missing or empty, expected a tuning cache");
  folder.Write("x", "x");
  CHECK(ErrorOf([&] { cache.MergeFrom(folder / "x"); }).message() ==
        "'" + folder / "x" + "' is no tuning cache");
  CHECK(ErrorOf([&] { cache.MergeFrom(folder.path()); }).code() == ErrorCode::kIo);
  CHECK(ErrorOf([&] { one.Export("/dev/null/x"); }).code() == ErrorCode::kIo);
  CHECK(cache.warnings().empty());
}

TEST_CASE("the default file is the one that the environment names") {
  const auto path = [](const char* file, const char* cache, const char* home) {
    std::string found;
    const std::pair<const char*, const char*> variables[] = {
        {"OPKIT_TUNING_CACHE", file}, {"XDG_CACHE_HOME", cache}, {"HOME", home}};
    for (const auto& [name, value] : variables) value ? setenv(name, value, 1) : unsetenv(name);
    return TuningCache::DefaultPath();
  };
  const char* const names[] = {"OPKIT_TUNING_CACHE", "XDG_CACHE_HOME", "HOME"};
  std::optional<std::string> before[3];
  for (int i = 0; i < 3; ++i)
    if (const char* const value = getenv(names[i])) before[i] = value;
  CHECK(path("f.json", "/cache", "/me") == "f.json");
  CHECK(path("", "/cache", "/me") == "/cache/opkit/tuning.json");
  CHECK(path(nullptr, "relative", "/me") == "/me/.cache/opkit/tuning.json");
  CHECK(path(nullptr, nullptr, "/me") == "/me/.cache/opkit/tuning.json");
  CHECK(path(nullptr, "", nullptr).empty());
  for (int i = 0; i < 3; ++i)
    before[i] ? setenv(names[i], before[i]->c_str(), 1) : unsetenv(names[i]);
}

}  // namespace
}  // namespace tuning_cache_test
