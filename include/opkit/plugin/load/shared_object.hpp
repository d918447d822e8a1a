// A shared object that is loaded while the program runs: a wrong file is refused with its reason
// before the loader sees it, a second instance or a rebuilt file can live beside the first, and
// closing tells whether the code is really gone. The calls of POSIX and the reading of ELF that
// loading needs are in impl/; another system has another version of those files.
#ifndef OPKIT_PLUGIN_LOAD_SHARED_OBJECT_HPP_
#define OPKIT_PLUGIN_LOAD_SHARED_OBJECT_HPP_

#include "opkit/abi/opkit_abi.h"
#include "opkit/base/error.hpp"
#include "opkit/base/ref_counted.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Returns a C++ name as a person writes it, and another name as it is.
std::string Demangle(const std::string& symbol);

// Whether closing a library took its code out of the process.
struct CloseReport {
  bool unmapped = false;    // no code or data of it is left in the process
  bool still_used = false;  // another handle, or another part of the program, uses it
  std::vector<std::string>
      pinned_by;  // else the symbols of it that may hold it, for a person to read
};

// An open library. Its functions may be called from any thread; the last handle closes it, after
// which nothing that came from it may be used.
//
//   IntrusivePtr<SharedObject> library = SharedObject::Open("build/ops.so");
//   void* entry = library->Find("entry");
//   const CloseReport report = SharedObject::Close(library);
class SharedObject : public RefCounted {
 public:
  // The file's code and data as they are now: those of an open SharedObject when it is of the
  // same, unchanged file (then variables are shared), else fresh ones. When the loader would give
  // an old image instead (of a file that was rebuilt, or was closed and stayed mapped), a copy of
  // the file is loaded. A path without '/' is a file in the current directory. The file must not be
  // written to meanwhile. Errors: kNotFound for a missing file or dependency, kUnsupported for
  // another machine's, else kInvalidArgument.
  static IntrusivePtr<SharedObject> Open(const std::string& path);
  // Opens the file with variables of its own in any case, by loading a copy of the file.
  // STB_GNU_UNIQUE ones remain one in the process, and a dependency is not looked for in the file's
  // folder ($ORIGIN).
  static IntrusivePtr<SharedObject> OpenCopy(const std::string& path);
  // Drops the handle and tells whether that unmapped the library.
  static CloseReport Close(IntrusivePtr<SharedObject>& object);
  // Whether an image of this loaded_path() and base() is in the process, now or still.
  static bool IsMapped(const std::string& loaded_path, uintptr_t base);

  // The path as the caller wrote it, and as the loader was given it: the same, or the name of a
  // copy.
  const std::string& path() const { return path_; }
  const std::string& loaded_path() const { return loaded_path_; }
  uintptr_t base() const { return base_; }

  // The address of a symbol that this library (and not one it depends on) exports; null when there
  // is none.
  void* Find(const char* symbol) const;
  // The mangled names of the functions that the file exported when it was opened; see Demangle.
  virtual const std::vector<std::string>& ExportedFunctions() const = 0;
  // Symbols that may keep the code mapped after the last handle is gone.
  virtual std::vector<std::string> PinningSymbols() const = 0;

 protected:
  SharedObject() = default;

  std::string path_;
  std::string loaded_path_;
  void* handle_ = nullptr;
  uintptr_t base_ = 0;
};

// The code of a library, kept loaded by every object that may call it.
struct LibraryImage : RefCounted {
  IntrusivePtr<SharedObject> object;  // null for the program's own operators
  const opkit_library* library = nullptr;
  std::string name;       // no other library of the program has it
  std::string announced;  // its own name or its file's, without a folder
};
using LibraryImagePtr = IntrusivePtr<LibraryImage>;

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/load/impl/shared_object.ipp"
#endif

#endif  // OPKIT_PLUGIN_LOAD_SHARED_OBJECT_HPP_
