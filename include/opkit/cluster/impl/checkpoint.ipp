// Definitions of checkpoints: the files of a folder, the manifest, and how rows are cut anew.
#ifndef OPKIT_CLUSTER_IMPL_CHECKPOINT_IPP_
#define OPKIT_CLUSTER_IMPL_CHECKPOINT_IPP_

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <utility>

#include "opkit/base/cache/file_lock.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/function_ref.hpp"
#include "opkit/base/index.hpp"
#include "opkit/base/json/json_line_reader.hpp"
#include "opkit/base/json/json_writer.hpp"
#include "opkit/base/output_file.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/strings.hpp"
#include "opkit/cluster/checkpoint.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// A file descriptor that closes itself.
class CheckpointFile {
 public:
  explicit CheckpointFile(int number) : number_(number) {}
  CheckpointFile(CheckpointFile&&) = delete;
  ~CheckpointFile() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  const int number_;
};

inline uint64_t ChecksumOf(std::string_view bytes) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Writes the pieces to a new file beside `path`, on the disk, and then gives it its name.
inline void WriteWholeFile(const std::string& path, const std::vector<std::string_view>& pieces) {
  const std::string temporary = StrCat(path, ".new");
  try {
    const CheckpointFile file(
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file.number() < 0) FailFile("write", temporary);
    for (std::string_view rest : pieces)
      while (!rest.empty()) {
        const ssize_t written = write(file.number(), rest.data(), rest.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) FailFile("write", temporary);
        rest.remove_prefix(static_cast<size_t>(written));
      }
    if (fsync(file.number()) != 0) FailFile("write", temporary);
    if (std::rename(temporary.c_str(), path.c_str()) != 0) FailFile("write", path);
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}
// Writes the names of a folder's files to the disk.
inline void SyncFolder(const std::string& folder) {
  const CheckpointFile file(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.number() < 0 || (fsync(file.number()) != 0 && errno != EINVAL))
    FailFile("write", folder);
}

// A tensor as the manifest describes it. A replicated tensor has one piece, in the file of the
// process `owner`; a sharded one has a piece in each file. The pieces of a file follow each other
// in the order of the tensors.
struct SavedTensor {
  std::string name;
  DType dtype = DType::kUndefined;
  bool is_sharded = false;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t owner = 0;
  std::vector<int64_t> rows;       // of each piece, of a sharded tensor
  std::vector<int64_t> checksums;  // of each piece

  bool is_empty() const { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }
  int64_t row_bytes() const {
    if (is_empty()) return 0;  // the product of the other extents may be too large for a number
    int64_t count = ItemSize(dtype);
    for (size_t axis = is_sharded ? 1 : 0; axis < shape.size(); ++axis) count *= shape[axis];
    return count;
  }
  // True if the tensors of two processes may be saved as one.
  bool IsLike(const SavedTensor& other) const {
    auto mine = shape, theirs = other.shape;
    if (is_sharded && other.is_sharded) mine[0] = theirs[0] = 0;
    return name == other.name && dtype == other.dtype && is_sharded == other.is_sharded &&
           mine == theirs;
  }
  friend std::string ToString(const SavedTensor& tensor) {
    return StrCat("'", tensor.name, "' ", opkit::ToString(tensor.dtype), Shape(tensor.shape),
                  tensor.is_sharded ? " sharded" : "");
  }
  // Returns the bytes of the piece that a process wrote; 0 if it wrote none.
  int64_t BytesOn(int64_t process) const {
    if (is_sharded) return rows[Index(process)] * row_bytes();
    return process == owner ? row_bytes() : 0;
  }
};
struct CheckpointManifest {
  std::string id;  // a part of the names of the files, which no other SaveCheckpoint gives
  int64_t processes = 0;
  std::vector<SavedTensor> tensors;

  std::string FileOf(const std::string& folder, int64_t process) const {
    return StrCat(folder, "/checkpoint.", id, ".", process);
  }
};

constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr size_t kIdDigits = 16;
inline std::string NewCheckpointId() {
  std::random_device random;
  std::string id;
  while (id.size() < kIdDigits) id += kHexDigits[random() % kHexDigits.size()];
  return id;
}
inline bool IsCheckpointId(std::string_view text) {
  return text.size() == kIdDigits && text.find_first_not_of(kHexDigits) == text.npos;
}

// Returns the last line of a manifest.
inline std::string ChecksumLine(std::string_view lines_above) {
  std::string line;
  JsonWriter(line)
      .BeginObject()
      .Member("checksum", static_cast<int64_t>(ChecksumOf(lines_above)))
      .EndObject();
  return line + "\n";
}

inline std::string ManifestText(const CheckpointManifest& manifest) {
  std::string text;
  JsonWriter(text)
      .BeginObject()
      .Member("opkit_checkpoint", 1)
      .Member("id", manifest.id)
      .Member("processes", manifest.processes)
      .Member("tensors", manifest.tensors.size())
      .EndObject();
  for (const SavedTensor& tensor : manifest.tensors) {
    text += '\n';
    JsonWriter(text)
        .BeginObject()
        .Member("name", tensor.name)
        .Member("dtype", ToString(tensor.dtype))
        .Member("sharded", int{tensor.is_sharded})
        .Member("owner", tensor.owner)
        .Member("shape", tensor.shape)
        .Member("rows", tensor.rows)
        .Member("checksums", tensor.checksums)
        .EndObject();
  }
  text += '\n';
  return text + ChecksumLine(text);
}
inline bool ReadIntegers(JsonLineReader& line, std::vector<int64_t>* numbers) {
  if (!line.Skip("[")) return false;
  while (!line.Skip("]")) {
    if (!numbers->empty() && !line.Skip(", ")) return false;
    if (!line.ReadInteger(&numbers->emplace_back())) return false;
  }
  return true;
}
// Throws kIo, with the path, for a text that ManifestText did not write.
inline CheckpointManifest ParseManifest(const std::string& path, std::string_view text) {
  CheckpointManifest manifest;
  const auto expect = [&](bool is_good) {
    if (!is_good) FailFile("read", path, "it is no checkpoint of this toolkit, or it is damaged");
  };
  expect(text.size() >= 2);
  const size_t above = text.rfind('\n', text.size() - 2) + 1;  // 0 if there is one line
  std::string_view rest = text.substr(0, above);
  expect(text.substr(above) == ChecksumLine(rest));
  const auto next_line = [&] {
    const size_t end = rest.find('\n');
    expect(end != std::string_view::npos);
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    return JsonLineReader(line);
  };
  JsonLineReader head = next_line();
  int64_t tensors = 0;
  expect(head.Skip(R"({"opkit_checkpoint": 1, "id": )") && head.ReadString(&manifest.id) &&
         head.Skip(R"(, "processes": )") && head.ReadInteger(&manifest.processes) &&
         head.Skip(R"(, "tensors": )") && head.ReadInteger(&tensors) && head.rest() == "}" &&
         IsCheckpointId(manifest.id) && manifest.processes >= 1 &&
         manifest.processes <= (int64_t{1} << 24) && tensors >= 0);
  int64_t all_elements = 0;
  for (int64_t i = 0; i < tensors; ++i) {
    JsonLineReader line = next_line();
    SavedTensor& tensor = manifest.tensors.emplace_back();
    std::string dtype;
    int64_t is_sharded = 0;
    expect(line.Skip(R"({"name": )") && line.ReadString(&tensor.name) &&
           line.Skip(R"(, "dtype": )") && line.ReadString(&dtype) &&
           line.Skip(R"(, "sharded": )") && line.ReadInteger(&is_sharded) &&
           line.Skip(R"(, "owner": )") && line.ReadInteger(&tensor.owner) &&
           line.Skip(R"(, "shape": )") && ReadIntegers(line, &tensor.shape) &&
           line.Skip(R"(, "rows": )") && ReadIntegers(line, &tensor.rows) &&
           line.Skip(R"(, "checksums": )") && ReadIntegers(line, &tensor.checksums) &&
           line.rest() == "}");
    tensor.dtype = DTypeFromName(dtype);
    tensor.is_sharded = is_sharded != 0;
    const size_t pieces = tensor.is_sharded ? Index(manifest.processes) : 1;
    expect(tensor.dtype != DType::kUndefined && !IsObject(tensor.dtype) &&
           !IsPacked(tensor.dtype) && (is_sharded == 0 || is_sharded == 1) && tensor.owner >= 0 &&
           tensor.owner < manifest.processes && tensor.checksums.size() == pieces &&
           tensor.rows.size() == (is_sharded ? pieces : 0) &&
           (!tensor.is_sharded || !tensor.shape.empty()));
    int64_t rows = 0, elements = 1;
    for (const int64_t extent : tensor.rows)
      expect(extent >= 0 && !__builtin_add_overflow(rows, extent, &rows));
    // Counts an extent of 0 as 1, as Shape does: so it can be made of these extents.
    for (const int64_t extent : tensor.shape)
      expect(extent >= 0 &&
             !__builtin_mul_overflow(elements, (std::max)(extent, int64_t{1}), &elements));
    if (tensor.is_empty()) elements = 0;
    expect(!__builtin_add_overflow(all_elements, elements, &all_elements) &&
           all_elements <= (int64_t{1} << 56) && (!tensor.is_sharded || rows == tensor.shape[0]));
  }
  expect(rest.empty());
  return manifest;
}
// Returns nothing if there is no checkpoint.
inline std::optional<CheckpointManifest> ReadManifest(const std::string& folder) {
  const std::string path = StrCat(folder, "/checkpoint");
  struct stat status;
  if (stat(path.c_str(), &status) != 0 && errno == ENOENT) return {};
  return ParseManifest(path, ReadFileIfPresent(path));
}

// Runs a step on each process and returns the texts that the processes give. If it throws on one of
// them, calls `undo` and throws the Error of the first such process, on all.
inline std::vector<std::string> DoTogether(Communicator& communicator,
                                           FunctionRef<std::string()> step,
                                           FunctionRef<void()> undo) {
  std::string text;
  try {
    text = StrCat("+", step());
  } catch (const Error& error) {
    text = StrCat("-", static_cast<int>(error.code()), " ", error.what());
  } catch (const std::exception& error) {
    text = StrCat("-", static_cast<int>(ErrorCode::kIo), " ", error.what());
  }
  std::vector<std::string> texts = communicator.Exchange(text);
  for (size_t process = 0; process < texts.size(); ++process) {
    std::string& other = texts[process];
    if (other.starts_with('-')) {
      undo();
      int code = 0;
      const char* const end = other.data() + other.size();
      const char* const after = std::from_chars(other.data() + 1, end, code).ptr;
      Throw(static_cast<ErrorCode>(code), "process ", process, " cannot save its checkpoint:",
            std::string_view(after, static_cast<size_t>(end - after)));
    }
    other.erase(0, 1);
  }
  return texts;
}

// True for the name of a file of SaveCheckpoint, under its temporary name too, with another id.
inline bool IsOfOther(std::string_view name, const std::string& kept_id) {
  constexpr std::string_view kStart = "checkpoint.", kTemporary = ".new";
  if (!name.starts_with(kStart)) return false;
  name.remove_prefix(kStart.size());
  const std::string_view id = name.substr(0, kIdDigits);
  if (!IsCheckpointId(id) || id == kept_id) return false;
  name.remove_prefix(kIdDigits);
  if (name.ends_with(kTemporary)) name.remove_suffix(kTemporary.size());
  int process = -1;
  if (!name.empty()) std::from_chars(name.data() + 1, name.data() + name.size(), process);
  return process >= 0 && name == StrCat(".", process);
}
// Removes the files of other checkpoints, and those that a killed SaveCheckpoint left behind.
inline void RemoveOthers(const std::string& folder, const std::string& kept_id) {
  std::error_code error;  // what stays is removed by the next SaveCheckpoint
  std::vector<std::string> others;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (IsOfOther(name, kept_id)) others.push_back(StrCat(folder, "/", name));
  }
  for (const std::string& other : others) unlink(other.c_str());
}

// Reads the pieces of a checkpoint, tensor by tensor in the order of the manifest.
class CheckpointReader {
 public:
  CheckpointReader(const std::string& folder, const CheckpointManifest& manifest)
      : folder_(folder), manifest_(manifest), offsets_(Index(manifest.processes)) {
    for (int64_t process = 0; process < manifest.processes; ++process) {
      int64_t bytes = 0;
      for (const SavedTensor& saved : manifest.tensors) bytes += saved.BytesOn(process);
      const std::string path = manifest.FileOf(folder, process);
      struct stat status;
      if (stat(path.c_str(), &status) != 0) FailFile("read", path);
      if (status.st_size != bytes)
        FailFile("read", path,
                 StrCat("it has ", int64_t{status.st_size}, " bytes, but ", bytes, " were written")
                     .c_str());
    }
  }

  Tensor Read(const SavedTensor& saved, int process, int processes) {
    std::vector<int64_t> shape = saved.shape;
    int64_t begin = 0, end = 1;  // the rows that this process gets; a replicated tensor is one row
    if (saved.is_sharded && processes == manifest_.processes) {
      for (int i = 0; i < process; ++i) begin += saved.rows[Index(i)];
      end = begin + saved.rows[Index(process)];
    } else if (saved.is_sharded) {
      begin = saved.shape[0] / processes * process;
      end = begin + saved.shape[0] / processes;
    }
    if (saved.is_sharded) shape[0] = end - begin;
    Tensor tensor(Shape(shape), saved.dtype);
    char* const out = tensor.nbytes() > 0 ? static_cast<char*>(tensor.raw_mutable_data()) : nullptr;
    int64_t row = 0;
    for (int64_t from = 0; from < manifest_.processes; ++from) {
      if (!saved.is_sharded && from != saved.owner) continue;
      const int64_t first = row;
      row += saved.is_sharded ? saved.rows[Index(from)] : 1;
      const int64_t bytes = saved.BytesOn(from);
      const int64_t offset = std::exchange(offsets_[Index(from)], offsets_[Index(from)] + bytes);
      const int64_t low = (std::max)(first, begin), high = (std::min)(row, end);
      if (low >= high || bytes == 0) continue;
      // Reads the whole piece, so that its checksum can be compared.
      const std::string piece = ReadPiece(manifest_.FileOf(folder_, from), offset, bytes);
      const size_t number = saved.is_sharded ? Index(from) : 0;
      if (static_cast<int64_t>(ChecksumOf(piece)) != saved.checksums[number])
        FailFile("read", manifest_.FileOf(folder_, from),
                 StrCat("the elements of '", saved.name, "' are damaged").c_str());
      const int64_t row_bytes = saved.row_bytes();
      std::memcpy(out + (low - begin) * row_bytes, piece.data() + (low - first) * row_bytes,
                  static_cast<size_t>((high - low) * row_bytes));
    }
    return tensor;
  }

 private:
  static std::string ReadPiece(const std::string& path, int64_t offset, int64_t bytes) {
    const CheckpointFile file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.number() < 0) FailFile("read", path);
    std::string piece(static_cast<size_t>(bytes), '\0');
    size_t done = 0;
    while (done < piece.size()) {
      const ssize_t got = pread(file.number(), piece.data() + done, piece.size() - done,
                                offset + static_cast<int64_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) FailFile("read", path);
      if (got == 0) FailFile("read", path, "it ends too early");
      done += static_cast<size_t>(got);
    }
    return piece;
  }

  const std::string folder_;
  const CheckpointManifest& manifest_;
  std::vector<int64_t> offsets_;  // of the next piece in the file of each process
};

// Returns the tensors of a process from the files that the manifest names.
inline std::vector<CheckpointTensor> LoadTensors(const std::string& folder,
                                                 const CheckpointManifest& manifest, int process,
                                                 int processes) {
  for (const SavedTensor& saved : manifest.tensors)
    if (saved.is_sharded && processes != manifest.processes && saved.shape[0] % processes != 0)
      Throw(ErrorCode::kInvalidArgument, "the checkpoint '", folder, "' of ", manifest.processes,
            StrCat(" processes has the sharded tensor '", saved.name, "' with ", saved.shape[0],
                   " rows, which ", processes, " processes cannot divide equally"));
  CheckpointReader reader(folder, manifest);
  std::vector<CheckpointTensor> tensors;
  for (const SavedTensor& saved : manifest.tensors)
    tensors.push_back({saved.name, reader.Read(saved, process, processes), saved.is_sharded});
  return tensors;
}

}  // namespace detail

OPKIT_INLINE void SaveCheckpoint(Communicator& communicator, const std::string& folder,
                                 const std::vector<CheckpointTensor>& tensors) {
  const int process = communicator.process(), processes = communicator.processes();
  const auto owner = [&](size_t i) { return static_cast<int64_t>(i) % processes; };
  std::vector<Tensor> dense;  // the pieces of this process, in the order of the tensors
  std::vector<std::string_view> pieces;
  // On process 0: another job that saves in the folder has an Error until this one has saved.
  std::optional<detail::FileLock> lock;
  const auto nothing_to_undo = [] {};
  // Each process describes its own tensors as a checkpoint of one process.
  const auto describe = [&] {
    detail::CheckpointManifest mine;
    mine.id = detail::NewCheckpointId();
    mine.processes = 1;
    if (process == 0) {
      if (!detail::MakeFolders(StrCat(folder, "/checkpoint"))) detail::FailFile("make", folder);
      lock.emplace(StrCat(folder, "/checkpoint.lock"), 0);
      detail::ReadManifest(folder);  // throws for a file of that name that is another program's
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& [name, tensor, is_sharded] = tensors[i];
      for (size_t other = 0; other < i; ++other)
        if (tensors[other].name == name)
          Throw(ErrorCode::kInvalidArgument, "two tensors have the name '", name, "'");
      if (tensor.dtype() == DType::kUndefined)
        Throw(ErrorCode::kInvalidArgument, "the tensor '", name, "' has no elements yet");
      if (tensor.device() != Device{} || IsPacked(tensor.dtype()) || IsObject(tensor.dtype()))
        Throw(ErrorCode::kUnsupported, "the tensor '", name, "' is ", ToString(tensor.dtype()),
              " on ", ToString(tensor.device()),
              "; a checkpoint has numbers of 8 bits or more, on the CPU");
      if (is_sharded && tensor.rank() == 0)
        Throw(ErrorCode::kInvalidArgument, "the sharded tensor '", name, "' is a scalar");
      detail::SavedTensor& saved = mine.tensors.emplace_back();
      saved.name = name;
      saved.dtype = tensor.dtype();
      saved.is_sharded = is_sharded;
      saved.shape.assign(tensor.shape().begin(), tensor.shape().end());
      if (is_sharded) saved.rows = {tensor.dim(0)};
      std::string_view bytes;
      if (is_sharded || owner(i) == process) {
        Tensor& own = dense.emplace_back();
        if (tensor.is_dense())
          own = tensor;
        else
          own.CopyFrom(tensor);
        if (own.nbytes() > 0)
          bytes = {static_cast<const char*>(own.raw_data()), static_cast<size_t>(own.nbytes())};
        pieces.push_back(bytes);
      }
      saved.checksums = {static_cast<int64_t>(detail::ChecksumOf(bytes))};
    }
    return detail::ManifestText(mine);
  };
  // All processes compute the same from these texts.
  const std::vector<std::string> texts =
      detail::DoTogether(communicator, describe, nothing_to_undo);
  detail::CheckpointManifest manifest = detail::ParseManifest("process 0", texts[0]);
  manifest.processes = processes;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) manifest.tensors[i].owner = owner(i);
  for (size_t other = 1; other < texts.size(); ++other) {
    const auto theirs = detail::ParseManifest(StrCat("process ", other), texts[other]).tensors;
    if (theirs.size() != manifest.tensors.size())
      Throw(ErrorCode::kInvalidArgument, "the processes save different tensors: process 0 saves ",
            manifest.tensors.size(), ", process ", other, StrCat(" saves ", theirs.size()));
    for (size_t i = 0; i < theirs.size(); ++i) {
      detail::SavedTensor& saved = manifest.tensors[i];
      const detail::SavedTensor& their = theirs[i];
      if (!saved.IsLike(their))
        Throw(ErrorCode::kInvalidArgument, "the processes save different tensors: process 0 saves ",
              ToString(saved), ", process ", other, StrCat(" saves ", ToString(their)));
      if (saved.is_sharded) {
        saved.shape[0] += their.shape[0];
        saved.rows.push_back(their.rows[0]);
        saved.checksums.push_back(their.checksums[0]);
      } else if (saved.owner == static_cast<int64_t>(other)) {
        saved.checksums = their.checksums;
      }
    }
  }
  const std::string own = manifest.FileOf(folder, process);
  const auto write_tensors = [&] {
    detail::WriteWholeFile(own, pieces);
    return std::string();
  };
  detail::DoTogether(communicator, write_tensors, [&] { unlink(own.c_str()); });
  const auto write_manifest = [&] {
    if (process != 0) return std::string();
    detail::SyncFolder(folder);
    const std::string text = detail::ManifestText(manifest);
    detail::WriteWholeFile(StrCat(folder, "/checkpoint"), {text});
    detail::SyncFolder(folder);
    detail::RemoveOthers(folder, manifest.id);
    lock.reset();
    return std::string();
  };
  detail::DoTogether(communicator, write_manifest, nothing_to_undo);
}

OPKIT_INLINE std::vector<CheckpointTensor> LoadCheckpoint(const std::string& folder, int process,
                                                          int processes) {
  if (process < 0 || process >= processes)
    Throw(ErrorCode::kOutOfRange, "there is no process ", process, " of ", processes);
  constexpr int kTries = 10;
  for (int tried = 1;; ++tried) {
    const auto manifest = detail::ReadManifest(folder);
    if (!manifest)
      Throw(ErrorCode::kNotFound, "the folder '", folder,
            "' has no checkpoint: SaveCheckpoint has not finished there");
    try {
      return detail::LoadTensors(folder, *manifest, process, processes);
    } catch (const Error& error) {
      // A SaveCheckpoint that ended meanwhile has removed the files.
      if (error.code() != ErrorCode::kIo || tried == kTries) throw;
      const auto newer = detail::ReadManifest(folder);
      if (!newer || newer->id == manifest->id) throw;
    }
  }
}

OPKIT_INLINE void RestoreCheckpoint(const std::string& folder, int process, int processes,
                                    const std::vector<CheckpointTensor>& tensors) {
  const std::vector<CheckpointTensor> loaded = LoadCheckpoint(folder, process, processes);
  std::vector<const Tensor*> sources;
  for (const CheckpointTensor& given : tensors) {
    const auto found = std::find_if(loaded.begin(), loaded.end(),
                                    [&](const auto& each) { return each.name == given.name; });
    if (found == loaded.end())
      Throw(ErrorCode::kNotFound, "the checkpoint '", folder, "' has no tensor '", given.name, "'");
    const auto text = [](const CheckpointTensor& each) {
      return StrCat(ToString(each.tensor.dtype()), each.tensor.shape(),
                    each.is_sharded ? " sharded" : "");
    };
    if (given.tensor.dtype() != found->tensor.dtype() ||
        given.tensor.shape() != found->tensor.shape() || given.is_sharded != found->is_sharded)
      Throw(given.tensor.dtype() != found->tensor.dtype() ? ErrorCode::kTypeMismatch
                                                          : ErrorCode::kInvalidArgument,
            "the tensor '", given.name, "' is ", text(given), ", but in the checkpoint '",
            StrCat(folder, "' it is ", text(*found)));
    if (given.tensor.device() != Device{} || !given.tensor.is_dense())
      Throw(ErrorCode::kUnsupported, "the tensor '", given.name,
            "' is not dense memory of the CPU; use LoadCheckpoint and copy");
    sources.push_back(&found->tensor);
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    if (sources[i]->nbytes() > 0)
      std::memcpy(tensors[i].tensor.raw_mutable_data(), sources[i]->raw_data(),
                  static_cast<size_t>(sources[i]->nbytes()));
}

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_IMPL_CHECKPOINT_IPP_
