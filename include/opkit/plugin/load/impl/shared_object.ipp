// Opens and closes shared objects by dlopen, and makes the necessary copies of files.
#ifndef OPKIT_PLUGIN_LOAD_IMPL_SHARED_OBJECT_IPP_
#define OPKIT_PLUGIN_LOAD_IMPL_SHARED_OBJECT_IPP_

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "opkit/base/platform.hpp"
#include "opkit/plugin/load/elf_file.hpp"
#include "opkit/plugin/load/shared_object.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE std::string Demangle(const std::string& symbol) {
  if (!symbol.starts_with("_Z")) return symbol;  // "f" would be read as the type float
  int failed = 0;
  char* text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &failed);
  std::string out = failed == 0 && text ? text : symbol;
  std::free(text);
  return out;
}

// A SharedObject that is in the list of all open objects.
class OpenedObject final : public SharedObject {
 public:
  OpenedObject(const std::string& path, bool own_copy) : own_copy_(own_copy) {
    path_ = path;
    if (path.empty() || path.find('\0') != std::string::npos)
      RefuseLibrary(ErrorCode::kInvalidArgument, path, "is not a path", "name a file");
    const std::string name = path.find('/') == std::string::npos ? "./" + path : path;
    identity_ = Identify(name);
    const File file(name);
    if (file.error != 0) CannotOpen(file.error);
    const std::string_view bytes(static_cast<const char*>(file.data), file.size);
    info_ = ReadElf(bytes, path_);
    if (own_copy || !ShareOpenOne()) {
      // The loader replaces $ORIGIN, $LIB and $PLATFORM in paths; the path of a copy has none of
      // them.
      if (own_copy || name.find('$') != std::string::npos || IsLoaded(name))
        LoadCopy(bytes);
      else if (const std::string failure = Load(name); !handle_)
        ThrowNotLoaded(failure);
    }
    link_map* map = nullptr;
    if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0) base_ = map->l_addr;
    MutexLock lock(AllOpen().mutex);
    AllOpen().objects.push_back(this);
  }
  ~OpenedObject() override {
    {
      MutexLock lock(AllOpen().mutex);
      std::erase(AllOpen().objects, this);
    }
    dlclose(handle_);  // outside the lock: it runs the library's destructors
  }

  void* handle() const { return handle_; }
  const std::vector<std::string>& ExportedFunctions() const override { return info_.functions; }
  std::vector<std::string> PinningSymbols() const override {
    std::vector<std::string> out;
    for (const std::string& symbol : info_.unique) out.push_back(Demangle(symbol));
    for (const std::string& symbol : info_.thread_locals)
      out.push_back(Demangle(symbol) + " (thread_local)");
    if (info_.has_thread_locals && info_.thread_locals.empty())
      out.push_back("thread_local variables");
    if (info_.no_delete) out.push_back("the linker's option -z nodelete");
    return out;
  }
  template <class F>
  static bool FindOpen(F&& wanted) {
    MutexLock lock(AllOpen().mutex);
    return std::ranges::any_of(AllOpen().objects, [&](OpenedObject* o) { return wanted(*o); });
  }

 private:
  // The identity of a file and of its content.
  struct Identity {
    uint64_t device = 0, inode = 0;
    int64_t size = 0, seconds = 0, nanoseconds = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  struct File : FileMapping {
    explicit File(const std::string& name) : FileMapping(MapFileForReading(name.c_str())) {}
    File(File&&) = delete;
    ~File() {
      if (error == 0 && size > 0) UnmapFile(data, size);
    }
  };
  // A temporary file, deleted when the loader has mapped it.
  struct Copy {
    Copy() = default;
    Copy(Copy&&) = delete;
    ~Copy() {
      if (file < 0) return;
      if (!path.empty()) unlink(path.c_str());
      close(file);
    }
    int file = -1;
    std::string path;  // path of the copy on disk
  };
  // All open objects of the process. Open uses them to distinguish an image in use from a left-over
  // one.
  struct OpenObjects {
    Mutex mutex;
    std::vector<OpenedObject*> objects;
  };
  static OpenObjects& AllOpen() {
    static auto* all = new OpenObjects;  // objects may outlive every static one
    return *all;
  }
  Identity Identify(const std::string& name) const {
    struct stat status;
    if (stat(name.c_str(), &status) != 0) CannotOpen(errno);
    if (S_ISDIR(status.st_mode))
      RefuseLibrary(ErrorCode::kInvalidArgument, path_, "is a directory", "name a file in it");
    if (!S_ISREG(status.st_mode))
      RefuseLibrary(ErrorCode::kInvalidArgument, path_, "is a pipe, socket or device",
                    "name a regular file");
    return {status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec,
            status.st_mtim.tv_nsec};
  }
  [[noreturn]] void CannotOpen(int error) const {
    if (error == ENOENT || error == ENOTDIR)
      RefuseLibrary(ErrorCode::kIo, path_, "does not exist",
                    "build it, or mend the path (a relative one begins at the current directory)");
    RefuseLibrary(ErrorCode::kIo, path_, StrCat("cannot be opened (", std::strerror(error), ")"),
                  error == EACCES ? "permit reading it and entering its folders"
                                  : "mend that or name another file");
  }

  // Ends the process if a static initialiser of the library throws: the exception would leave the
  // loader locked, and with pointers to its own dead stack frames. (dlopen is declared not to
  // throw, and compilers differ in what then happens.)
  static void* OpenImage(const char* name) noexcept {
    void* (*const volatile open)(const char*, int) = &dlopen;
    return open(name, RTLD_NOW | RTLD_LOCAL);
  }
  // Loads the file. Returns the loader's message if that fails, else an empty string.
  std::string Load(const std::string& name) {
    handle_ = OpenImage(name.c_str());
    loaded_path_ = name;
    if (handle_) return {};
    const char* text = dlerror();
    std::string failure = text ? text : "no reason given";
    if (failure.starts_with(name + ": ")) failure.erase(0, name.size() + 2);
    return failure;
  }
  static bool IsLoaded(const std::string& name) {
    void* const loaded = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (loaded) dlclose(loaded);
    return loaded;
  }
  // Takes another handle of an open object's image. Calls the loader without holding our lock. The
  // loader has its own lock, and may be running code that opens a library.
  bool ShareOpenOne() {
    void* wanted = nullptr;
    const auto is_same = [&](OpenedObject& other) {
      if (other.own_copy_ || other.identity_ != identity_) return false;
      if (wanted) return other.handle_ == wanted;
      loaded_path_ = other.loaded_path_;
      return wanted = other.handle_, true;
    };
    if (!FindOpen(is_same)) return false;
    handle_ = dlopen(loaded_path_.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle_ == wanted && FindOpen(is_same)) return true;
    if (handle_) dlclose(handle_);  // the object was closed or replaced meanwhile
    return false;
  }

  // Loads a copy in memory, or in a folder if the system does not run code from memory.
  void LoadCopy(std::string_view bytes) {
    const char* folder = std::getenv("TMPDIR");
    if (!folder || !*folder) folder = "/tmp";
    std::string failure;
    Copy memory, disk;
    // /proc/self/maps shows this name.
    memory.file = memfd_create(path_.substr(path_.rfind('/') + 1, 200).c_str(), MFD_CLOEXEC);
    if (Write(memory.file, bytes)) {
      std::string name = StrCat("/proc/self/fd/", memory.file);
      // Changes the name until no loaded image has it: the system reuses file numbers, and a mapped
      // image keeps its name.
      while (IsLoaded(name)) name.insert(0, 1, '/');
      failure = Load(name);
      if (handle_) return;
    }
    disk.path = StrCat(folder, "/opkit_XXXXXX");
    disk.file = mkostemp(disk.path.data(), O_CLOEXEC);
    if (Write(disk.file, bytes))
      failure = Load(disk.path);
    else if (failure.empty())
      Throw(ErrorCode::kIo, "cannot load '", path_,
            "' a second time: expected room for a copy of it, but found none in memory or in '",
            folder, "' (", std::strerror(errno), "): set TMPDIR to a folder with space");
    if (!handle_) ThrowNotLoaded(failure);
  }
  static bool Write(int file, std::string_view bytes) {
    while (file >= 0 && !bytes.empty()) {
      const ssize_t written = write(file, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return file >= 0;
  }

  [[noreturn]] OPKIT_COLD void ThrowNotLoaded(const std::string& failure) const {
    struct Hint {
      std::string_view says;
      ErrorCode code;
      const char* mend;
    };
    constexpr Hint kHints[] = {
        {"undefined symbol: ", ErrorCode::kInvalidArgument,
         "link what defines it into the library"},
        {"cannot open shared object file", ErrorCode::kIo,
         "install what it depends on, or link it with -Wl,-rpath,FOLDER (absolute: a file that is "
         "loaded a second time has another $ORIGIN)"},
        {"' not found", ErrorCode::kUnsupported,
         "build it on a system no newer than the one it runs on"},
        {"failed to map segment", ErrorCode::kUnsupported,
         "move it out of a file system that is mounted noexec"},
        {"static TLS", ErrorCode::kUnsupported, "compile it without -ftls-model=initial-exec"},
        {"executable stack", ErrorCode::kUnsupported, "link it with -Wl,-z,noexecstack"},
        {"", ErrorCode::kInvalidArgument, "build it again for this system"}};
    const Hint* hint = kHints;
    while (failure.find(hint->says) == std::string::npos) ++hint;
    std::string readable;
    if (hint == kHints) {
      const size_t begin = failure.find(hint->says) + hint->says.size();
      const std::string symbol = failure.substr(begin, failure.find(',', begin) - begin);
      if (symbol.starts_with("_Z")) readable = StrCat(", which is ", Demangle(symbol));
    }
    Throw(hint->code, "expected '", path_, "' to load, but the loader says \"", failure, "\"",
          readable, ": ", hint->mend);
  }

  Identity identity_;
  ElfInfo info_;
  const bool own_copy_;
};

OPKIT_INLINE IntrusivePtr<SharedObject> SharedObject::Open(const std::string& path) {
  return MakeIntrusive<OpenedObject>(path, false);
}
OPKIT_INLINE IntrusivePtr<SharedObject> SharedObject::OpenCopy(const std::string& path) {
  return MakeIntrusive<OpenedObject>(path, true);
}
OPKIT_INLINE CloseReport SharedObject::Close(IntrusivePtr<SharedObject>& object) {
  IntrusivePtr<SharedObject> last = std::move(object);
  CloseReport report;
  report.still_used = last.use_count() > 1;
  if (!last || report.still_used) return report.unmapped = !last, report;
  const std::string mapped = last->loaded_path_;
  const uintptr_t base = last->base_;
  void* const handle = last->handle_;
  std::vector<std::string> pinning = last->PinningSymbols();
  last = {};
  report.unmapped = !IsMapped(mapped, base);
  if (report.unmapped) return report;
  report.still_used =
      pinning.empty() || OpenedObject::FindOpen([&](auto& o) { return o.handle() == handle; });
  if (!report.still_used) report.pinned_by = std::move(pinning);
  return report;
}
OPKIT_INLINE bool SharedObject::IsMapped(const std::string& loaded_path, uintptr_t base) {
  std::pair<const char*, uintptr_t> wanted(loaded_path.c_str(), base);
  return dl_iterate_phdr(
             [](dl_phdr_info* image, size_t, void* data) {
               const auto& [name, at] = *static_cast<decltype(wanted)*>(data);
               return int{image->dlpi_addr == at && std::strcmp(image->dlpi_name, name) == 0};
             },
             &wanted) != 0;
}
OPKIT_INLINE void* SharedObject::Find(const char* symbol) const {
  void* const found = dlsym(handle_, symbol);
  Dl_info image;
  const bool ours = found && dladdr(found, &image) && loaded_path_ == image.dli_fname;
  return ours ? found : nullptr;
}
OPKIT_INLINE bool SharedObject::Uses(std::string_view part_of_name) const {
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || !map->l_ld) return false;
  // The loader has checked the tables. Some loaders store addresses in them, others offsets.
  const auto at = [&](uintptr_t address) { return address < base_ ? base_ + address : address; };
  uintptr_t names = 0, symbols = 0, tables[2] = {}, sizes[2] = {};
  for (const auto* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    const uintptr_t value = entry->d_un.d_val;
    if (entry->d_tag == DT_STRTAB) names = at(value);
    if (entry->d_tag == DT_SYMTAB) symbols = at(value);
    if (entry->d_tag == DT_JMPREL) tables[0] = at(value);
    if (entry->d_tag == DT_PLTRELSZ) sizes[0] = value;
    if (entry->d_tag == DT_RELA) tables[1] = at(value);
    if (entry->d_tag == DT_RELASZ) sizes[1] = value;
  }
  if (names == 0 || symbols == 0) return false;
  for (size_t t = 0; t < 2; ++t)
    for (size_t i = 0; i < sizes[t] / sizeof(ElfW(Rela)); ++i) {
      const ElfW(Xword) info = reinterpret_cast<const ElfW(Rela)*>(tables[t])[i].r_info;
      const size_t symbol = sizeof(void*) == 8 ? info >> 32 : info >> 8;
      if (symbol == 0) continue;
      const char* const name = reinterpret_cast<const char*>(names) +
                               reinterpret_cast<const ElfW(Sym)*>(symbols)[symbol].st_name;
      if (std::string_view(name).find(part_of_name) != std::string_view::npos) return true;
    }
  return false;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_LOAD_IMPL_SHARED_OBJECT_IPP_
