// Checkpoints: saved and read back on another number of processes, and whole after every failure.
#include "opkit/cluster/checkpoint.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <set>
#include <thread>

#include "opkit/base/cache/file_lock.hpp"
#include "opkit/base/strings.hpp"
#include "opkit/cluster/local.hpp"
#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/watchdog.hpp"

namespace checkpoint_test { namespace {

using namespace opkit;

// Returns rows `begin` to `end` of a table of two columns whose elements count from 0.
Tensor Rows(int64_t begin, int64_t end) {
  std::vector<float> values(static_cast<size_t>(2 * (end - begin)));
  std::iota(values.begin(), values.end(), static_cast<float>(2 * begin));
  return Tensor::From<float>(Shape{end - begin, 2}, values);
}
// Saves a replicated vector {v, v + 1} and a table of 12 rows.
void Save(const std::string& folder, int processes, int64_t v) {
  LocalCluster(processes).Run([&](const CommunicatorPtr& communicator) {
    const int64_t rows = 12 / processes, p = communicator->process();
    SaveCheckpoint(*communicator, folder,
                   {{"v", Tensor::From<int64_t>({2}, {v, v + 1})},
                    {"table", Rows(p * rows, (p + 1) * rows), true},
                    {"w", Tensor::Scalar(0.5F)}});
  });
}
void CheckLoads(const std::string& folder, int processes, int64_t v) {
  for (int p = 0; p < processes; ++p) {
    const auto tensors = LoadCheckpoint(folder, p, processes);
    REQUIRE(tensors.size() == 3);
    CHECK(tensors[0].name == "v");
    CHECK(tensors[0].tensor.ToVector<int64_t>() == std::vector<int64_t>{v, v + 1});
    CHECK(tensors[1].is_sharded);
    const int64_t rows = 12 / processes;
    CHECK(tensors[1].tensor.shape() == Shape{rows, 2});
    CHECK(tensors[1].tensor.ToVector<float>() == Rows(p * rows, (p + 1) * rows).ToVector<float>());
    CHECK(tensors[2].tensor.ToVector<float>() == std::vector<float>{0.5F});
  }
}
std::set<std::string> FilesOf(const std::string& folder) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.insert(entry.path().filename().string());
  return files;
}
// Returns the number of the files that a checkpoint of `processes` processes has.
size_t NumFiles(int processes) { return static_cast<size_t>(processes) + 2; }

// Returns the name of the file of process 1.
std::string FileOfOne(const std::string& folder) {
  for (const std::string& file : FilesOf(folder))
    if (file.ends_with(".1")) return file;
  return {};
}
// Returns the lines of a manifest with the checksum that belongs to them, FNV-1a.
std::string WithChecksum(const std::string& lines) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : lines) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return StrCat(lines, "{\"checksum\": ", static_cast<int64_t>(hash), "}\n");
}

TEST_CASE("a checkpoint is read back on other numbers of processes") {
  const Watchdog watchdog;
  const TemporaryFolder folder;
  const std::string path = folder / "deep/state";
  for (const int saved : {1, 4, 3}) {
    Save(path, saved, saved);
    for (const int loaded : {1, 2, 3, 4, 6, 12}) CheckLoads(path, loaded, saved);
    CHECK(FilesOf(path).size() == NumFiles(saved));  // the older files are gone
  }
  CHECK(Contains(ErrorOf([&] { LoadCheckpoint(path, 0, 5); }).message(),
                 "the sharded tensor 'table' with 12 rows, which 5 processes cannot divide"));
}

TEST_CASE(
    "shards of different sizes come back to the same processes, and are cut anew for others") {
  const Watchdog watchdog;
  const TemporaryFolder folder;
  LocalCluster(3).Run([&](const CommunicatorPtr& communicator) {
    const int64_t begins[] = {0, 5, 5, 6};  // process 1 has no rows
    const int p = communicator->process();
    SaveCheckpoint(*communicator, folder.path(), {{"t", Rows(begins[p], begins[p + 1]), true}});
  });
  const auto rows = [&](int p, int n) {
    return LoadCheckpoint(folder.path(), p, n)[0].tensor.ToVector<float>();
  };
  CHECK(rows(0, 3) == Rows(0, 5).ToVector<float>());
  CHECK(rows(1, 3).empty());
  CHECK(rows(2, 3) == Rows(5, 6).ToVector<float>());
  CHECK(rows(0, 2) == Rows(0, 3).ToVector<float>());
  CHECK(rows(1, 2) == Rows(3, 6).ToVector<float>());
}

TEST_CASE("tensors that cannot be saved are an Error on all processes") {
  const Watchdog watchdog;
  const TemporaryFolder folder;
  Save(folder.path(), 2, 7);
  const auto refused = [&](const std::vector<CheckpointTensor>& zero,
                           const std::vector<CheckpointTensor>& one) {
    std::string messages[2];
    LocalCluster(2).Run([&](const CommunicatorPtr& communicator) {
      const int p = communicator->process();
      messages[p] = ErrorOf([&] {
                      SaveCheckpoint(*communicator, folder.path(), p == 0 ? zero : one);
                    }).message();
    });
    CHECK(messages[0] == messages[1]);
    CheckLoads(folder.path(), 2, 7);
    return messages[0];
  };
  const Tensor x = Tensor::From<float>({2}, {1, 2}), z = Tensor::From<float>({3}, {1, 2, 3});
  CHECK(Contains(refused({{"x", x}}, {{"y", x}}), "process 0 saves 'x' float32"));
  CHECK(Contains(refused({{"x", x}}, {{"x", z}}), "process 1 saves 'x' float32"));
  CHECK(Contains(refused({{"x", x}}, {{"x", x, true}}), "sharded"));
  CHECK(Contains(refused({{"x", x}}, {}), "process 1 saves 0"));
  CHECK(Contains(refused({{"x", x}}, {{"x", x}, {"x", x}}), "two tensors have the name 'x'"));
  CHECK(Contains(refused({{"x", x}}, {{"x", Tensor()}}), "has no elements yet"));
  CHECK(Contains(refused({{"x", x}}, {{"x", Tensor::Scalar(1.F), true}}), "is a scalar"));
  Tensor packed({2}, DType::kInt4);
  packed.raw_mutable_data();
  CHECK(Contains(refused({{"x", packed}}, {{"x", packed}}), "a checkpoint has numbers of 8 bits"));
}

TEST_CASE("files that are missing, cut off or damaged are an Error") {
  const Watchdog watchdog;
  const TemporaryFolder folder;
  const std::string path = folder / "state";
  const auto error = [&] { return ErrorOf([&] { LoadCheckpoint(path, 0, 2); }); };
  CHECK(error().code() == ErrorCode::kNotFound);
  Save(path, 2, 1);
  const std::string name = "state/" + FileOfOne(path);
  const std::string file = folder / name, manifest = path + "/checkpoint";
  const std::string bytes = ReadFile(file), text = ReadFile(manifest);
  const auto with = [&](const std::string& changed, const std::string& contents) {
    folder.Write(changed.substr(folder.path().size() + 1), contents);
    const Error found = error();
    folder.Write(name, bytes);
    folder.Write("state/checkpoint", text);
    CHECK(found.code() == ErrorCode::kIo);
    return std::string(found.message());
  };
  CHECK(Contains(with(file, bytes.substr(0, 9)), "it has 9 bytes, but 48 were written"));
  std::string damaged = bytes;
  damaged[5] ^= 1;
  folder.Write(name, damaged);
  CHECK(Contains(ErrorOf([&] { LoadCheckpoint(path, 1, 2); }).message(), "'table' are damaged"));
  for (size_t length = 0; length < text.size(); ++length)
    CHECK(Contains(with(manifest, text.substr(0, length)), "it is damaged"));
  CHECK(Contains(with(manifest, text + "x"), "it is damaged"));
  for (size_t at = 0; at < text.size(); ++at)
    for (const int bits : {1, 2, 0x10, 0x80}) {
      std::string flipped = text;
      flipped[at] = static_cast<char>(flipped[at] ^ bits);
      CHECK(Contains(with(manifest, flipped), "it is damaged"));
    }
  std::filesystem::remove(file);
  CHECK(error().code() == ErrorCode::kIo);
}

TEST_CASE("a manifest with a right checksum and a wrong number is an Error") {
  const Watchdog watchdog;
  const TemporaryFolder folder;
  Save(folder.path(), 2, 1);
  std::string lines = ReadFile(folder / "checkpoint");
  lines.erase(lines.rfind('\n', lines.size() - 2) + 1);
  folder.Write("checkpoint", WithChecksum(lines));
  CheckLoads(folder.path(), 2, 1);
  const auto with = [&](const std::string& old_part, const std::string& new_part) {
    CAPTURE(new_part);
    std::string changed = lines;
    const size_t at = changed.find(old_part);
    REQUIRE(at != changed.npos);
    changed.replace(at, old_part.size(), new_part);
    folder.Write("checkpoint", WithChecksum(changed));
    const Error error = ErrorOf([&] { LoadCheckpoint(folder.path(), 0, 1); });
    CHECK(error.code() == ErrorCode::kIo);
    CHECK(Contains(error.message(), "it is damaged"));
  };
  for (const char* number : {"0", "-1", "3", "3000000000", "1000000000000000000",
                             "9223372036854775807", "9223372036854775808"}) {
    with("\"processes\": 2", StrCat("\"processes\": ", number));
    with("\"shape\": [12, 2]", StrCat("\"shape\": [", number, ", 2]"));
  }
  for (const char* number : {"-1", "2", "4", "1000000000000000000"})
    with("\"tensors\": 3", StrCat("\"tensors\": ", number));
  with("\"shape\": [2]", "\"shape\": [0, 9000000000, 9000000000]");
  with("\"shape\": [2]", "\"shape\": [-2]");
  with("\"rows\": [6, 6]", "\"rows\": [13, -1]");
  with("\"rows\": [6, 6]", "\"rows\": [12]");
  with("\"sharded\": 1", "\"sharded\": 2");
  with("\"owner\": 0", "\"owner\": 2");
  with("\"owner\": 0", "\"owner\": -1");
  with("\"dtype\": \"int64\"", "\"dtype\": \"int4\"");
  with("\"dtype\": \"int64\"", "\"dtype\": \"string\"");
  with("\"id\": \"", "\"id\": \"0");
  with("\"id\": \"", "\"id\": \"../");
  // Without a sharded tensor, whose rows give the number of processes.
  const auto head = [&](const char* processes, const char* tensors) {
    folder.Write(
        "checkpoint",
        WithChecksum(StrCat(R"({"opkit_checkpoint": 1, "id": "0123456789abcdef", )",
                            R"("processes": )", processes, R"(, "tensors": )", tensors, "}\n")));
    return ErrorOf([&] { LoadCheckpoint(folder.path(), 0, 1); });
  };
  folder.Write("checkpoint.0123456789abcdef.0", "");
  CHECK(head("1", "0").code() == ErrorCode::kAlreadyExists);  // no Error
  for (const auto& [processes, tensors] :
       {std::pair("3000000000", "0"), std::pair("1000000000000000000", "0"), std::pair("1", "-5")})
    CHECK(Contains(head(processes, tensors).message(), "it is damaged"));
}

TEST_CASE("files of the user stay in the folder") {
  const Watchdog watchdog;
  const TemporaryFolder folder;
  std::set<std::string> own = {"3.14",          "1.1",           "-3.7",
                               "007.5.new",     "2024.11",       "checkpoint.1.0",
                               "checkpoint.md", "checkpoint.old"};
  for (const char* end :
       {"", ".", ".new", ".x", ".01", ".-1", ".+1", ".1.old", ".1.new.new", ".99999999999", "a.1"})
    own.insert(StrCat("checkpoint.0123456789abcdef", end));
  own.insert("checkpoint.0123456789ABCDEF.1");
  own.insert("checkpoint.0123456789abcde.1");
  for (const std::string& file : own) folder.Write(file, "of the user");
  folder.Write("checkpoint.0123456789abcdef.1", "left behind");
  folder.Write("checkpoint.0123456789abcdef.0.new", "left behind");
  for (int saves = 0; saves < 2; ++saves) {
    Save(folder.path(), 2, 1);
    const std::set<std::string> files = FilesOf(folder.path());
    CHECK(files.size() == own.size() + NumFiles(2));
    for (const std::string& file : own) {
      CAPTURE(file);
      CHECK(files.contains(file));
    }
  }
  // Another program's file of this name is no checkpoint that may be replaced.
  folder.Write("checkpoint", "model_checkpoint_path: \"model\"\n");
  CHECK(Contains(ErrorOf([&] { Save(folder.path(), 2, 1); }).message(),
                 "it is no checkpoint of this toolkit"));
  CHECK(ReadFile(folder / "checkpoint") == "model_checkpoint_path: \"model\"\n");
}

TEST_CASE("a checkpoint is read while another job saves") {
  const Watchdog watchdog;
  const TemporaryFolder folder;
  const std::string versions[] = {folder / "one", folder / "two"}, read = folder / "read";
  Save(versions[0], 2, 1);
  Save(versions[1], 2, 2);
  std::set<std::string> files[2];
  for (size_t i = 0; i < 2; ++i)
    for (const std::string& file : FilesOf(versions[i]))
      if (file.starts_with("checkpoint.") && file != "checkpoint.lock") files[i].insert(file);
  std::filesystem::create_directory(read);
  const auto put = [&](size_t version, const std::string& file, const std::string& as) {
    std::filesystem::create_hard_link(StrCat(versions[version], "/", file), StrCat(read, "/", as));
  };
  // Does what SaveCheckpoint does, in the time of some calls of the system.
  const auto save = [&](size_t version) {
    for (const std::string& file : files[version]) put(version, file, file);
    put(version, "checkpoint", "checkpoint.new");
    std::filesystem::rename(read + "/checkpoint.new", read + "/checkpoint");
    for (const std::string& file : files[1 - version])
      std::filesystem::remove(StrCat(read, "/", file));
  };
  save(0);
  constexpr int kSaves = 20;
  std::atomic<int> begun = 0, ended = 0;
  std::thread saver([&] {
    for (int i = 0; i < kSaves; ++i) {
      while (begun <= i) std::this_thread::yield();
      save(static_cast<size_t>(i + 1) % 2);
      ++ended;
    }
  });
  for (int i = 0; i < kSaves; ++i) {
    ++begun;
    do {  // during a load at most this save goes on
      std::string error;
      int64_t v = 0;
      try {
        v = LoadCheckpoint(read, 0, 2)[0].tensor.data<int64_t>()[0];
      } catch (const Error& failed) {
        error = failed.message();
      }
      CHECK(error == "");
      CHECK((v == 1 || v == 2));
    } while (ended <= i);
  }
  saver.join();
}

TEST_CASE("tensors without elements are saved, whatever their other extents are") {
  const Watchdog watchdog;
  const TemporaryFolder folder;
  const Shape shapes[] = {{0, int64_t{1} << 58}, {int64_t{1} << 62, 0}, {0, 3}};
  for (const bool is_sharded : {false, true}) {
    LocalCluster(2).Run([&](const CommunicatorPtr& communicator) {
      std::vector<CheckpointTensor> tensors;
      for (const Shape& shape : shapes)
        if (!is_sharded || shape[0] == 0)
          tensors.push_back({StrCat(shape), Tensor(shape, DType::kFloat64), is_sharded});
      tensors.push_back({"v", Tensor::Scalar(7.F)});
      SaveCheckpoint(*communicator, folder.path(), tensors);
    });
    const auto loaded = LoadCheckpoint(folder.path(), 0, 1);
    CHECK(loaded.size() == (is_sharded ? 3 : 4));
    for (const CheckpointTensor& each : loaded)
      if (each.name != "v") CHECK(StrCat(each.tensor.shape()) == each.name);
    CHECK(loaded.back().tensor.ToVector<float>() == std::vector<float>{7.F});
  }
}

TEST_CASE("a job does not save while another one saves in the folder") {
  const Watchdog watchdog;
  const TemporaryFolder folder;
  Save(folder.path(), 2, 1);
  {
    const detail::FileLock other_job(folder / "checkpoint.lock", 0);
    std::string messages[2];
    LocalCluster(2).Run([&](const CommunicatorPtr& communicator) {
      messages[communicator->process()] =
          ErrorOf([&] { SaveCheckpoint(*communicator, folder.path(), {}); }).message();
    });
    CHECK(messages[0] == messages[1]);
    CHECK(Contains(messages[0], "checkpoint.lock': another program holds the lock"));
    CheckLoads(folder.path(), 2, 1);
  }
  Save(folder.path(), 2, 2);
  CheckLoads(folder.path(), 2, 2);
}

TEST_CASE("a tensor of another dtype or shape is not restored, and neither are the others") {
  const Watchdog watchdog;
  const TemporaryFolder folder;
  Save(folder.path(), 2, 3);
  Tensor v = Tensor::From<int64_t>({2}, {0, 0});
  const auto restore = [&](const CheckpointTensor& other) {
    return ErrorOf([&] { RestoreCheckpoint(folder.path(), 1, 2, {{"v", v}, other}); });
  };
  CHECK(restore({"w", Tensor::Scalar(1.0)}).code() == ErrorCode::kTypeMismatch);
  CHECK(Contains(restore({"table", Rows(0, 5), true}).message(), "the tensor 'table' is float32"));
  CHECK(restore({"table", Rows(0, 6)}).code() == ErrorCode::kInvalidArgument);
  CHECK(restore({"u", v}).code() == ErrorCode::kNotFound);
  CHECK(v.ToVector<int64_t>() == std::vector<int64_t>{0, 0});
  Tensor table = Rows(0, 6);
  RestoreCheckpoint(folder.path(), 1, 2, {{"v", v}, {"table", table, true}});
  CHECK(v.ToVector<int64_t>() == std::vector<int64_t>{3, 4});
  CHECK(table.ToVector<float>() == Rows(6, 12).ToVector<float>());
}

// The system ends a process that writes past its limit. With the signal ignored the write fails, as
// on a full disk.
TEST_CASE("a kill, or a full disk, at any file leaves the checkpoint before") {
  const Watchdog watchdog;
  for (const bool is_killed : {true, false}) {
    // Data files of 68 and 48 bytes, and a manifest of some hundreds.
    for (const rlim_t most : {rlim_t{0}, rlim_t{55}, rlim_t{200}, rlim_t{100000}}) {
      CAPTURE(is_killed);
      CAPTURE(most);
      const TemporaryFolder folder;
      Save(folder.path(), 2, 1);
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        std::signal(SIGXFSZ, is_killed ? SIG_DFL : SIG_IGN);
        const rlimit limit{most, most}, no_core{0, 0};
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || setrlimit(RLIMIT_CORE, &no_core) != 0) _exit(3);
        const Error error = ErrorOf([&] { Save(folder.path(), 2, 2); });
        _exit(error.code() == ErrorCode::kAlreadyExists     ? 0
              : Contains(error.message(), "File too large") ? 1
                                                            : 2);
      }
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      const bool is_whole = most > 10000;
      if (is_whole)
        CHECK(status == 0);
      else if (is_killed)
        CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ));
      else
        CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 1));
      CheckLoads(folder.path(), 2, is_whole ? 2 : 1);
      Save(folder.path(), 2, 5);  // what the kill left behind is no obstacle, and goes
      CheckLoads(folder.path(), 3, 5);
      CHECK(FilesOf(folder.path()).size() == NumFiles(2));
    }
  }
}

}  // namespace
}  // namespace checkpoint_test
