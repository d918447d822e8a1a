// SharedObject: a shared object that is loaded at run time. A wrong file is refused with a reason
// before the loader sees it. A second instance or a rebuilt file can be loaded beside the first.
// Closing reports if the code has really left the process. POSIX calls are in impl/, the reading of
// ELF is in elf_file.hpp; another system needs its own version of these files.
#ifndef OPKIT_PLUGIN_LOAD_SHARED_OBJECT_HPP_
#define OPKIT_PLUGIN_LOAD_SHARED_OBJECT_HPP_

#include "opkit/abi/opkit_abi.h"
#include "opkit/base/error.hpp"
#include "opkit/base/ref_counted.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns a C++ symbol in readable form, any other symbol unchanged.
std::string Demangle(const std::string& symbol);

// The result of SharedObject::Close: shows if the library's code has left the process.
struct CloseReport {
  bool unmapped = false;    // true if no code or data of it is left in the process
  bool still_used = false;  // true if another handle, or another part of the program, uses it
  // If not unmapped: symbols, in readable form, that may keep it loaded.
  std::vector<std::string> pinned_by;
};

// An open library, whose functions any thread may call. The last handle closes the library; no
// object or function of the library may be used afterwards.
//
//   IntrusivePtr<SharedObject> library = SharedObject::Open("build/ops.so");
//   void* entry = library->Find("entry");
//   const CloseReport report = SharedObject::Close(library);
class SharedObject : public RefCounted {
 public:
  // Opens a file with the code and data that it has now. Shares the image, and so the variables, of
  // an open SharedObject of the same, unchanged file. Loads a copy of the file if the loader would
  // return an old image instead: the file was rebuilt, or was closed and stayed mapped. A path
  // without '/' is a file in the current directory. No process may write to the file during the
  // call. Throws kIo for a missing file or dependency; kUnsupported for another machine's file, or
  // for a feature that this system lacks; kIo without room for a copy; else kInvalidArgument.
  static IntrusivePtr<SharedObject> Open(const std::string& path);
  // Loads a copy of the file, so that the library always has its own variables. STB_GNU_UNIQUE
  // variables still exist once in the process, and dependencies are not searched in the file's
  // folder ($ORIGIN).
  static IntrusivePtr<SharedObject> OpenCopy(const std::string& path);
  // Drops the handle and reports if this unmapped the library.
  static CloseReport Close(IntrusivePtr<SharedObject>& object);
  // True if an image of this loaded_path() and base() is in the process, in use or left over.
  static bool IsMapped(const std::string& loaded_path, uintptr_t base);

  // Returns the path that the caller gave. loaded_path() is the path that the loader opened: the
  // same path, or the name of a copy.
  const std::string& path() const { return path_; }
  const std::string& loaded_path() const { return loaded_path_; }
  uintptr_t base() const { return base_; }

  // Returns the address of a symbol that this library itself exports, not a dependency; null if
  // there is none.
  void* Find(const char* symbol) const;
  // Returns the mangled names of the functions that the file exported when it was opened (see
  // Demangle).
  virtual const std::vector<std::string>& ExportedFunctions() const = 0;
  // True if the library reaches a function through the loader's tables, whose mangled name has
  // this part: one that it imports, or one of its own that another library may replace. The
  // library then calls that function, or takes its address.
  bool Uses(std::string_view part_of_name) const;
  // Returns symbols that may keep the code mapped after the last handle is gone.
  virtual std::vector<std::string> PinningSymbols() const = 0;

 protected:
  SharedObject() = default;

  std::string path_;
  std::string loaded_path_;
  void* handle_ = nullptr;
  uintptr_t base_ = 0;
};

// The code of a library. Every object that may call the code keeps it loaded.
struct LibraryImage : RefCounted {
  IntrusivePtr<SharedObject> object;  // null for the program's own operators
  // The description of a file that exports no opkit_library_entry (library_adapter.hpp); else null.
  // Destroyed before `object`.
  IntrusivePtr<RefCounted> adapted;
  const opkit_library* library = nullptr;
  std::string name;       // unique among the libraries of the program
  std::string announced;  // its own name or its file's, without a folder
};
using LibraryImagePtr = IntrusivePtr<LibraryImage>;

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/load/impl/shared_object.ipp"
#endif

#endif  // OPKIT_PLUGIN_LOAD_SHARED_OBJECT_HPP_
