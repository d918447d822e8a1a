// Library: loads operators from a shared object at run time. Loaded operators work like all others:
// in the registry, in graphs and plans, with observers.
#ifndef OPKIT_PLUGIN_LIBRARY_HPP_
#define OPKIT_PLUGIN_LIBRARY_HPP_

#include "opkit/plugin/build.hpp"
#include "opkit/plugin/load/loaded_library.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
struct LoadOptions {
  // Backend name of the library's kernels for operators that already exist; a node selects these
  // kernels with .Backends(backend). If empty, the file's name without "lib" and ".so".
  std::string backend = {};
  // Prefers the library's kernels to the existing kernels of an operator, until the library is
  // unloaded.
  bool allow_override = false;
  // If the file is already loaded, loads it a second time, with its own variables.
  bool own_copy = false;
};

// The result of Library::Unload: shows if the library's code has left the process.
struct UnloadReport {
  bool unmapped = false;  // true if no code of it is left in the process
  // If not unmapped: symbols of the library that may keep it loaded.
  std::vector<std::string> pinned_by;
  // The exception of the library's finalize; empty if it returned normally.
  std::string finalize_failure = {};
  // Returns the report as a sentence.
  friend std::string ToString(const UnloadReport& report);
};

// A handle to a loaded library, copied freely. The library stays loaded until Unload, even without
// a handle. Any thread may load and unload while others create and run operators. Unload waits
// until no other thread is making an operator, a plan or a gradient. Before Unload, drop pointers
// to the library's schemas and kernels; Unload cannot check them.
//
//   Library lib = Library::Load("build/libmy_ops.so");
//   std::vector<Tensor> y = Invoke("my_gemm", {a, b});
class Library {
 public:
  // A handle to no library: is_loaded() is false, and other members throw kFailedPrecondition.
  Library() = default;
  // Loads a file and registers all of its operators, or none. A file that is already loaded and has
  // not changed is not loaded again. An operator that already exists gets one more backend. For a
  // file without operators, the log hook (SetLogHook) gets a warning. Throws kIo for a missing
  // file; kUnsupported for a file of another machine or another ABI version; kInvalidArgument for a
  // file that is not such a library, or has a fault; kAlreadyExists for two operators of one name
  // in the file; kFailedPrecondition for a file that is loaded with other options; or the failure
  // that the library's initialize reports.
  static Library Load(const std::string& path, const LoadOptions& options = {});
  // Compiles a source, unless BuildLibrary (build.hpp) has its result already, and loads it. If
  // this call has loaded an older result of the same source, compiler and flags, that is unloaded
  // first, once the new one is compiled. Throws the Errors of BuildLibrary, Unload and Load; the
  // older one then stays loaded.
  //
  //   Library lib = Library::Build("my_ops.cc", {.flags = {"-O3"}});
  static Library Build(const std::string& source, const BuildOptions& build = {},
                       const LoadOptions& options = {});
  // Loads the operators of this program itself, from a unit that includes author.hpp.
  static Library LoadEntry(opkit_library_entry_function entry, const std::string& name,
                           const LoadOptions& options = {});
  // Returns all loaded libraries.
  static std::vector<Library> All();

  // Returns the library's own name, or its file's name if the library has no own name. A number is
  // added if another loaded library has the same name.
  const std::string& name() const { return image().name; }
  const std::string& path() const { return loaded().path; }
  // Returns the backend of the library's kernels for operators that existed before.
  const std::string& backend() const { return loaded().backend; }
  // True for a library of another toolkit, which an adapter loads (load/library_adapter.hpp).
  bool is_adapted() const { return bool{image().adapted}; }
  // Returns the version of the toolkit with which the library was compiled; empty if unknown.
  std::string version() const {
    const char* version = image().library->version;
    return version ? version : "";
  }
  // Returns the version that OPKIT_LIBRARY_VERSION sets; empty without it.
  std::string own_version() const;
  std::pair<uint32_t, uint32_t> abi_version() const {
    return {image().library->abi_major, image().library->abi_minor};
  }
  // Returns the operators' names, in the library's order.
  std::vector<std::string> operators() const;
  // Return the names of the library's partitioners and of its graph passes.
  std::vector<std::string> partitioners() const;
  std::vector<std::string> passes() const;
  bool is_loaded() const { return loaded_ && loaded_->image; }

  // Removes every registration, and unmaps the file unless a symbol in it keeps it mapped. Throws
  // kFailedPrecondition, and changes nothing, while an operator or plan of the library is alive, or
  // memory of its devices is in use. Throws the same inside a library's function, and while this
  // thread makes an operator, a plan or a gradient.
  UnloadReport Unload();

  friend bool operator==(const Library&, const Library&) = default;

 private:
  explicit Library(detail::LoadedLibraryPtr loaded) : loaded_(std::move(loaded)) {}
  detail::LoadedLibrary& loaded() const;
  const detail::LibraryImage& image() const;
  detail::LoadedLibraryPtr loaded_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/impl/library.ipp"
#endif

#endif  // OPKIT_PLUGIN_LIBRARY_HPP_
