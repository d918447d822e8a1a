// The definitions of plugin/build.hpp.
//
// The folder of the results:
//
//   locks/00 … locks/3f                 locks; several sources may share one
//   ops.HASH/                           a source, with its compiler and flags
//   ops.HASH/record                     the current result, and every file on which it depends
//   ops.HASH/CONTENT/libops.so          a result, for the content of these files
//   opkit.new.XXXXXX/                   a compilation that is under way, or was killed
#ifndef OPKIT_PLUGIN_IMPL_BUILD_IPP_
#define OPKIT_PLUGIN_IMPL_BUILD_IPP_

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <utility>

#include "opkit/base/cache/cache_folder.hpp"
#include "opkit/base/cache/file_lock.hpp"
#include "opkit/base/cache/file_state.hpp"
#include "opkit/base/cache/texts_hash.hpp"
#include "opkit/base/error.hpp"
#include "opkit/base/output_file.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/process/run_program.hpp"
#include "opkit/plugin/build.hpp"
#include "opkit/version.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

using Words = std::vector<std::string>;

inline Words SplitWords(std::string_view text) {
  Words words;
  for (size_t begin; (begin = text.find_first_not_of(" \t\n")) != text.npos;) {
    text.remove_prefix(begin);
    const size_t end = (std::min)(text.find_first_of(" \t\n"), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}
// Returns the words of a command as a shell would read them.
inline std::string JoinWords(const Words& words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ' ';
    if (!word.empty() && word.find_first_of(" \t\n'\"\\$&;()<>|*?#`") == word.npos) {
      out += word;
      continue;
    }
    out += '\'';
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

// Returns the absolute path of an existing file, without links; empty if there is none.
inline std::string RealPath(const std::string& path) {
  char* const real = realpath(path.c_str(), nullptr);
  std::string out = real ? real : "";
  std::free(real);
  return out;
}
inline std::string Absolute(const std::string& path) {
  return path.starts_with('/') ? path : RealPath(".") + "/" + path;
}
inline std::string NameOfFile(const std::string& path) { return path.substr(path.rfind('/') + 1); }

inline Words FilesOf(const std::string& folder) {
  Words names;
  VisitFolder(
      folder.c_str(),
      [](void* list, const char* name) { static_cast<Words*>(list)->emplace_back(name); }, &names);
  return names;
}
inline void RemoveAll(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return;
  for (const std::string& name : FilesOf(path)) RemoveAll(path + "/" + name);
  static_cast<void>(rmdir(path.c_str()));
}

inline std::string HashOfText(std::string_view text) {
  TextsHash hash;
  hash.Add(text);
  return hash.text();
}

// The differences between the languages of a source.
struct SourceLanguage {
  const char *ending, *compiler_variable, *compiler, *flags_variable;
  const char* flags;
};
inline const SourceLanguage* LanguageOf(const std::string& path) {
  static constexpr char kCxx[] = "-std=c++20 -O2 -fPIC -shared";
  static constexpr SourceLanguage kLanguages[] = {
      {".cc", "CXX", "c++", "CXXFLAGS", kCxx},
      {".cpp", "CXX", "c++", "CXXFLAGS", kCxx},
      {".cxx", "CXX", "c++", "CXXFLAGS", kCxx},
      {".c", "CC", "cc", "CFLAGS", "-O2 -fPIC -shared"},
      {".cu", "NVCC", "nvcc", "NVCCFLAGS", "-std=c++20 -O2 -shared -Xcompiler -fPIC"}};
  const std::string name = NameOfFile(path);
  for (const SourceLanguage& language : kLanguages)
    if (name.ends_with(language.ending) && name.size() > std::strlen(language.ending))
      return &language;
  return nullptr;
}

// Returns the file of a program, looked up in $PATH; empty if there is none.
inline std::string ProgramFile(const std::string& word) {
  const auto runs = [](const std::string& file) {
    struct stat status;
    return stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
           access(file.c_str(), X_OK) == 0;
  };
  if (word.find('/') != word.npos) return runs(word) ? Absolute(word) : std::string();
  const std::string path = VariableOf("PATH");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = (std::min)(path.find(':', begin), path.size());
    const std::string file = path.substr(begin, end - begin) + "/" + word;
    if (end > begin && runs(file)) return file;
    begin = end + 1;
  }
  return {};
}

// Returns the file of the program or shared object that contains this code.
inline std::string OwnImage() {
  static const std::string own = [] {
    const auto here = reinterpret_cast<uintptr_t>(&IsLibrarySource);
    // A line: "7f0c1a000000-7f0c1a021000 r-xp 00000000 08:01 123  /usr/lib/libopkit.so"
    std::string maps(size_t{1} << 20, '\0');
    maps.resize(ReadStartOfFile("/proc/self/maps", maps.data(), maps.size()));
    for (size_t begin = 0, end; (end = maps.find('\n', begin)) != maps.npos; begin = end + 1) {
      const std::string_view line = std::string_view(maps).substr(begin, end - begin);
      uintptr_t low = 0, high = 0;
      const auto dash = std::from_chars(line.data(), line.data() + line.size(), low, 16);
      if (dash.ptr == line.data() + line.size()) continue;
      std::from_chars(dash.ptr + 1, line.data() + line.size(), high, 16);
      if (here < low || here >= high) continue;
      const size_t slash = line.find('/');
      return slash == line.npos ? std::string() : std::string(line.substr(slash));
    }
    return std::string();
  }();
  return own;
}

inline bool HasHeader(const std::string& folder) {
  return !folder.empty() && StateOf((folder + "/opkit/op.hpp").c_str()).exists();
}
inline std::string FindIncludeFolder(const BuildOptions& options) {
  const std::string variable = VariableOf("OPKIT_INCLUDE_DIR");
  for (const auto& [given, name] : {std::pair(&options.include_dir, "BuildOptions::include_dir"),
                                    std::pair(&variable, "$OPKIT_INCLUDE_DIR")}) {
    if (given->empty()) continue;
    if (!HasHeader(*given))
      Throw(ErrorCode::kNotFound, name, " is '", *given, "', which has no file opkit/op.hpp");
    return RealPath(*given);
  }
  const std::string image = OwnImage(), beside = image.substr(0, image.rfind('/') + 1);
  const std::string self = __FILE__;
  const size_t end = self.rfind("opkit/plugin/impl/"), single = self.rfind("opkit/");
  for (const std::string& folder :
       {beside + "../include", beside + "../../include", beside + "include",
        self.substr(0, end != self.npos      ? end
                       : single != self.npos ? single
                                             : 0)})
    if (HasHeader(folder)) return RealPath(folder);
  Throw(ErrorCode::kNotFound,
        "the file opkit/op.hpp, which sources of libraries include, is not found: set "
        "$OPKIT_INCLUDE_DIR to the folder that has opkit/op.hpp, such as PREFIX/include");
}

// A file on which a result depends, or a folder, whose path ends with a slash.
struct BuildInput {
  std::string path;
  FileState state;
  std::string hash;  // of its content; of the compiler's --version; of a folder: HashOfFolder
};
// Returns the names of the files and folders in the paths of the files.
inline std::set<std::string> NamesOnPaths(const std::vector<BuildInput>& inputs) {
  std::set<std::string> names;
  for (const BuildInput& input : inputs)
    for (size_t begin = 0; begin < input.path.size() && !input.path.ends_with('/');) {
      const size_t end = (std::min)(input.path.find('/', begin), input.path.size());
      if (end > begin) names.insert(input.path.substr(begin, end - begin));
      begin = end + 1;
    }
  return names;
}
// Hashes those of the folder's entries that are in `names`. A new entry of such a name may be, or
// contain, a header that the compiler finds before the one that it found.
inline std::string HashOfFolder(const std::string& folder, const std::set<std::string>& names) {
  Words entries = FilesOf(folder);
  std::erase_if(entries, [&](const std::string& entry) { return !names.contains(entry); });
  std::ranges::sort(entries);
  TextsHash hash;
  for (const std::string& entry : entries) hash.Add(entry);
  return hash.text();
}
// Adds the folder and those of its sub-folders that are in `names`.
inline void AddFolder(const std::string& folder, const std::set<std::string>& names, int depth,
                      std::vector<BuildInput>& inputs) {
  const bool is_known =
      std::ranges::any_of(inputs, [&](const BuildInput& input) { return input.path == folder; });
  const FileState state = StateOf(folder.c_str());
  if (is_known || !state.exists() || depth == 0) return;
  inputs.push_back({folder, state, HashOfFolder(folder, names)});
  for (const std::string& entry : FilesOf(folder))
    if (names.contains(entry)) AddFolder(folder + entry + "/", names, depth - 1, inputs);
}
// The file `record`: a result, and the files on which it depends. The first is the compiler.
struct BuildRecord {
  static constexpr std::string_view kHead = "opkit build 2\n";
  std::string content;  // the name of the result's folder
  int64_t size = 0;     // of the result
  std::vector<BuildInput> inputs;

  std::string ToText() const {
    std::string out = StrCat(kHead, content, " ", size, "\n");
    for (const BuildInput& input : inputs)
      out += StrCat(input.hash, " ", input.state.size, " ", input.state.modified_ns, " ",
                    input.state.changed_ns, " ", input.path, "\n");
    return out + "end\n";
  }
  // Returns false for a text that ToText has not written, or that is cut off.
  bool Read(std::string_view text) {
    const auto word = [&](char end) {
      const size_t at = (std::min)(text.find(end), text.size());
      const std::string_view out = text.substr(0, at);
      text.remove_prefix((std::min)(at + 1, text.size()));
      return out;
    };
    const auto number = [&](char end) {
      const std::string_view digits = word(end);
      int64_t value = -1;
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
      return value;
    };
    if (!text.starts_with(kHead) || !text.ends_with("\nend\n")) return false;
    text.remove_prefix(kHead.size());
    content = word(' ');
    size = number('\n');
    while (text != "end\n" && !text.empty()) {
      BuildInput input;
      input.hash = word(' ');
      input.state.size = number(' ');
      input.state.modified_ns = number(' ');
      input.state.changed_ns = number(' ');
      input.path = word('\n');
      inputs.push_back(std::move(input));
    }
    return !inputs.empty();
  }
};

// Returns the files that a compiler's -MD names: "target: a b \⏎ c", where "\ " is a space in a
// name, "\#" a "#", and "$$" a "$". Backslashes before such a space are doubled, others are not.
inline Words ParseDependencies(std::string_view text) {
  Words files;
  std::string file;
  const auto at = [&](size_t i) { return i < text.size() ? text[i] : '\n'; };
  const size_t colon = text.find(": ");
  text.remove_prefix(colon == text.npos ? text.size() : colon + 2);
  for (size_t i = 0; i <= text.size(); ++i) {
    const size_t end = (std::min)(text.find_first_not_of('\\', i), text.size());
    if (const size_t slashes = end - i; slashes > 0) {
      i = end;
      file.append(at(i) == ' ' ? slashes / 2 : slashes - (at(i) == '#' || at(i) == '\n'), '\\');
      if (at(i) == '#' || (at(i) == ' ' && slashes % 2 == 1)) {
        file += at(i);
        continue;
      }
    }
    if (at(i) == '$' && at(i + 1) == '$') ++i;
    if (at(i) != ' ' && at(i) != '\n')
      file += at(i);
    else if (!file.empty())
      files.push_back(std::exchange(file, {}));
  }
  return files;
}

// A folder for one compilation, removed at the end of the scope.
class BuildFolder {
 public:
  static constexpr std::string_view kPrefix = "opkit.new.";
  explicit BuildFolder(const std::string& cache) : path_(cache + "/opkit.new.XXXXXX") {
    if (!mkdtemp(path_.data())) FailFile("write", cache);
  }
  BuildFolder(BuildFolder&&) = delete;
  ~BuildFolder() { RemoveAll(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline ProgramEnd RunWords(const Words& words, const std::string& output) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  pointers.push_back(nullptr);
  return RunProgram(pointers.data(), output.c_str());
}

// One call of BuildLibrary.
class LibraryBuild {
 public:
  LibraryBuild(const std::string& source, const BuildOptions& options)
      : given_(source), keep_(options.keep), language_(LanguageOf(source)) {
    if (!language_)
      Throw(ErrorCode::kInvalidArgument, "'", source,
            "' is no source of a library: expected a name that ends with .cc, .cpp, .cxx, .c or "
            ".cu");
    source_ = RealPath(source);
    if (source_.empty()) FailFile("read", source);
    std::string compiler = options.compiler;
    if (compiler.empty()) compiler = VariableOf(language_->compiler_variable);
    compiler_ = SplitWords(compiler);
    if (compiler_.empty()) compiler_ = {language_->compiler};
    FindCompiler();
    include_ = FindIncludeFolder(options);
    for (Words words :
         {SplitWords(language_->flags), SplitWords(VariableOf(language_->flags_variable))})
      flags_.insert(flags_.end(), words.begin(), words.end());
    own_flags_ = options.flags;
    cache_ = options.cache_dir.empty() ? VariableOf("OPKIT_BUILD_CACHE") : options.cache_dir;
    if (cache_.empty() && !UserCacheFolder().empty()) cache_ = UserCacheFolder() + "/build";
    if (cache_.empty())
      Throw(ErrorCode::kIo,
            "there is no folder for compiled libraries: set $OPKIT_BUILD_CACHE or $HOME");
    cache_ = Absolute(cache_);
    const std::string name = NameOfFile(source_);
    stem_ = name.substr(0, name.rfind('.'));
    const std::string key = Key();
    folder_ = StrCat(cache_, "/", stem_, ".", key);
    record_ = folder_ + "/record";
    lock_ = StrCat(cache_, "/locks/", key[0] & 3, key[1]);
  }

  // The folder of this source, compiler and flags: all results lie in it.
  const std::string& folder() const { return folder_; }

  std::string Run() {
    if (const std::string found = Find(/*is_locked=*/false); !found.empty()) return found;
    if (!MakeFolders(lock_)) FailFile("write", cache_);
    constexpr double kMostSeconds = 3600;  // compilers of CUDA take minutes
    const FileLock lock(lock_, kMostSeconds);
    if (const std::string found = Find(/*is_locked=*/true); !found.empty()) return found;
    const std::string made = Compile();
    RemoveOldResults();
    return made;
  }

 private:
  // A library that is compiled again for another content keeps its name, in another folder.
  std::string ResultOf(const BuildRecord& record) const {
    return StrCat(folder_, "/", record.content, "/lib", stem_, ".so");
  }

  void FindCompiler() {
    for (const std::string& word : compiler_) {
      const std::string file = ProgramFile(word);
      if (file.empty() && compiler_file_.empty())
        Throw(ErrorCode::kNotFound, "the compiler '", word, "', which ", given_,
              " needs, is not found: install it, or name another one by $",
              language_->compiler_variable);
      if (!file.empty()) compiler_file_ = file;  // in "ccache g++" the compiler is the last
    }
  }

  // Hashes what is known before a compilation, without the contents of files.
  std::string Key() const {
    TextsHash hash;
    for (const std::string& text :
         {std::string(OPKIT_VERSION_STRING), source_, compiler_file_, include_})
      hash.Add(text);
    for (const Words* words : {&compiler_, &flags_, &own_flags_}) {
      for (const std::string& word : *words) hash.Add(word);
      hash.Add("");
    }
    // The variables that compilers read, and the folder where relative folders begin.
    for (const char* name : {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH",
                             "COMPILER_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"})
      hash.Add(VariableOf(name));
    if (!own_flags_.empty() || !VariableOf(language_->flags_variable).empty())
      hash.Add(RealPath("."));
    return hash.text();
  }

  // Returns the recorded result if nothing has changed since; else an empty text. Only the holder
  // of the lock may write the record again.
  std::string Find(bool is_locked) const {
    BuildRecord record;
    if (!record.Read(ReadFileIfPresent(record_))) return {};
    const std::string result = ResultOf(record);
    if (StateOf(result.c_str()).size != record.size) return {};
    bool has_new_state = false;
    for (BuildInput& input : record.inputs) {
      const FileState now = StateOf(input.path.c_str());
      if (!now.exists()) return {};
      if (now == input.state) continue;
      // The content may be the same: after `touch`, or when a branch was left and entered again.
      if (HashOf(input.path, record) != input.hash) return {};
      input.state = now;
      has_new_state = true;
    }
    if (has_new_state && is_locked) SaveFile(record_, record.ToText());
    if (has_new_state && !is_locked) return {};  // Run comes again, with the lock
    static_cast<void>(utimensat(AT_FDCWD, record_.c_str(), nullptr, 0));  // used last now
    return result;
  }

  std::string HashOf(const std::string& input, const BuildRecord& record) const {
    if (input.ends_with('/')) return HashOfFolder(input, NamesOnPaths(record.inputs));
    return input == compiler_file_ ? HashOfText(Version()) : HashOfText(ReadFileIfPresent(input));
  }
  // Returns the folders that the flags name for headers, and that of the source.
  Words SearchedFolders() const {
    Words folders = {source_.substr(0, source_.rfind('/')), include_};
    Words words = flags_;
    words.insert(words.end(), own_flags_.begin(), own_flags_.end());
    for (size_t i = 0; i < words.size(); ++i)
      for (const std::string_view option : {"-I", "-iquote", "-isystem"}) {
        if (!words[i].starts_with(option)) continue;
        const bool is_next = words[i] == option && i + 1 < words.size();
        folders.push_back(is_next ? words[i + 1] : words[i].substr(option.size()));
        break;
      }
    return folders;
  }
  // Returns what the compiler prints for --version.
  const std::string& Version() const {
    if (version_.empty()) {
      const BuildFolder folder(cache_);
      Words words = compiler_;
      words.push_back("--version");
      const ProgramEnd end = RunWords(words, folder / "version");
      if (end.error != 0)
        Throw(ErrorCode::kNotFound, "the compiler '", JoinWords(compiler_),
              "' cannot be run: ", std::strerror(end.error));
      version_ = "version " + ReadFileIfPresent(folder / "version");
    }
    return version_;
  }

  // Compiles into a new folder, which is renamed when it is whole, and writes the record.
  std::string Compile() const {
    const BuildFolder folder(cache_);
    BuildRecord record;
    // A file that changes while it is compiled may have been read before or after the change.
    for (int attempt = 0; attempt < 2; ++attempt) {
      const int64_t begin = FileClockNsWithPause();
      RunCompiler(folder);
      record.inputs = {
          {compiler_file_, StateOf(compiler_file_.c_str()), HashOf(compiler_file_, record)}};
      bool has_changed = false;
      Words files = ParseDependencies(ReadFileIfPresent(folder / "d"));
      if (std::ranges::find(files, source_) == files.end()) files.push_back(source_);
      for (const std::string& file : files) {
        const std::string path = Absolute(file);
        const FileState state = StateOf(path.c_str());
        has_changed |= state.modified_ns > begin && state.modified_ns <= FileClockNs();
        record.inputs.push_back({path, state, HashOf(path, record)});
      }
      if (!has_changed) break;
    }
    const std::set<std::string> names = NamesOnPaths(record.inputs);
    constexpr int kMostDepth = 6;
    for (const std::string& searched : SearchedFolders())
      if (const std::string path = RealPath(searched); !path.empty())
        AddFolder(path + "/", names, kMostDepth, record.inputs);
    TextsHash content;
    for (const BuildInput& input : record.inputs) content.Add(input.hash);
    record.content = content.text();
    record.size = StateOf((folder / "out.so").c_str()).size;
    const std::string result = ResultOf(record);
    if (!MakeFolders(result)) FailFile("write", result);
    if (std::rename((folder / "out.so").c_str(), result.c_str()) != 0) FailFile("write", result);
    RemoveOtherContents(record.content);
    SaveFile(record_, record.ToText());
    return result;
  }

  void RunCompiler(const BuildFolder& folder) const {
    Words words = compiler_;
    words.insert(words.end(), flags_.begin(), flags_.end());
    // g++ else shares static variables between libraries, and keeps a library from being unloaded.
    if (std::strcmp(language_->compiler_variable, "CXX") == 0 &&
        Version().find("Free Software Foundation") != std::string::npos)
      words.push_back("-fno-gnu-unique");
    words.push_back(source_);
    words.insert(words.end(), own_flags_.begin(), own_flags_.end());
    words.insert(words.end(),
                 {"-I" + include_, "-MD", "-MF", folder / "d", "-o", folder / "out.so"});
    const ProgramEnd end = RunWords(words, folder / "log");
    if (end.good() && StateOf((folder / "out.so").c_str()).exists()) return;
    if (end.error != 0)
      Throw(ErrorCode::kNotFound, "the compiler '", JoinWords(compiler_),
            "' cannot be run: ", std::strerror(end.error));
    constexpr size_t kMostText = 20000;
    std::string text = ReadFileIfPresent(folder / "log");
    if (text.size() > kMostText) text = text.substr(0, kMostText) + "\n…";
    while (text.ends_with('\n')) text.pop_back();
    Throw(ErrorCode::kInvalidArgument, "'", given_, "' does not compile: ",
          end.signal != 0   ? StrCat("signal ", end.signal, " ended the compiler")
          : end.status != 0 ? StrCat("the compiler's exit status is ", end.status)
                            : std::string("the compiler wrote no file"),
          "; its command: ", JoinWords(words), text.empty() ? "" : "\n", text);
  }

  // Keeps the result before this one: a process may be about to load it.
  void RemoveOtherContents(const std::string& content) const {
    BuildRecord before;
    if (!before.Read(ReadFileIfPresent(record_))) before.content.clear();
    for (const std::string& name : FilesOf(folder_))
      if (name != content && name != before.content && name != NameOfFile(record_))
        RemoveAll(folder_ + "/" + name);
  }

  // True for the name of a folder that this class makes: "ops.HASH".
  static bool IsResult(std::string_view name) {
    const size_t dot = name.rfind('.');
    return dot != name.npos && name.size() - dot - 1 == TextsHash::kDigits &&
           name.find_first_not_of("0123456789abcdef", dot + 1) == name.npos;
  }
  // Removes results beyond `keep`, and what killed processes left a day ago.
  void RemoveOldResults() const {
    constexpr int64_t kDayNs = int64_t{24} * 3600 * 1'000'000'000;
    std::vector<std::pair<int64_t, std::string>> results;  // the time of the last use first
    for (const std::string& name : FilesOf(cache_)) {
      if (!IsResult(name) && !name.starts_with(BuildFolder::kPrefix)) continue;
      const std::string path = cache_ + "/" + name;
      const FileState record = StateOf((path + "/record").c_str());
      if (record.exists())
        results.emplace_back(path == folder_ ? INT64_MAX : record.modified_ns, path);
      else if (StateOf(path.c_str()).modified_ns < FileClockNs() - kDayNs)
        RemoveAll(path);
    }
    std::ranges::sort(results);
    const auto kept = static_cast<size_t>((std::max)(keep_, 1));
    for (size_t i = 0; i + kept < results.size(); ++i) {
      const BuildFolder removed(cache_);  // at once, so that no process finds half a result
      static_cast<void>(std::rename(results[i].second.c_str(), (removed / "old").c_str()));
    }
  }

  const std::string given_;  // the source's path as the caller wrote it
  const int keep_;
  const SourceLanguage* const language_;
  std::string source_, compiler_file_, include_, cache_, stem_, folder_, record_, lock_;
  Words compiler_, flags_, own_flags_;
  mutable std::string version_;
};

}  // namespace detail

OPKIT_INLINE bool IsLibrarySource(const std::string& path) { return detail::LanguageOf(path); }

OPKIT_INLINE std::string BuildLibrary(const std::string& source, const BuildOptions& options) {
  return detail::LibraryBuild(source, options).Run();
}

}}  // namespace opkit

#endif  // OPKIT_PLUGIN_IMPL_BUILD_IPP_
