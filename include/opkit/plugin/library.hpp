// Library: loads operators from a shared object at run time. They are operators like any other: in
// the registry, in graphs and plans, under observers.
#ifndef OPKIT_PLUGIN_LIBRARY_HPP_
#define OPKIT_PLUGIN_LIBRARY_HPP_

#include "opkit/plugin/load/loaded_library.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
struct LoadOptions {
  // Backend name of the library's kernels for operators that exist already; a node selects them
  // with .Backends(backend). Empty for the file's name without "lib" and ".so".
  std::string backend = {};
  // Puts the library's kernels before those that an operator has already, until the library is
  // unloaded.
  bool allow_override = false;
  // Loads a file that is loaded already once more, with variables of its own.
  bool own_copy = false;
};

// The result of Library::Unload: whether the library's code has left the process.
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
// until no other thread is making an operator, a plan or a gradient. Drop schemas and kernels taken
// from the registry before Unload, which cannot check them.
//
//   Library lib = Library::Load("build/libmy_ops.so");
//   std::vector<Tensor> y = Invoke("my_gemm", {a, b});
class Library {
 public:
  // A handle to no library: is_loaded() is false, and other members throw kFailedPrecondition.
  Library() = default;
  // Loads a file and registers all of its operators, or none. A file that is loaded already and has
  // not changed is not loaded again. An operator that exists already gets another backend. A file
  // without operators causes a warning to the log hook (SetLogHook). Throws kIo for a missing
  // file; kUnsupported for a file of another machine or another ABI version; kInvalidArgument for a
  // file that is not such a library, or has a fault; kAlreadyExists for two operators of one name
  // in it; kFailedPrecondition for a loaded file with other options; or the failure that the
  // library's initialize reports.
  static Library Load(const std::string& path, const LoadOptions& options = {});
  // Loads the operators of this program itself, from a unit that includes author.hpp.
  static Library LoadEntry(opkit_library_entry_function entry, const std::string& name,
                           const LoadOptions& options = {});
  // Returns all loaded libraries.
  static std::vector<Library> All();

  // Returns the name that the library gives itself, else its file's name; with a number behind it
  // if another loaded library has that name.
  const std::string& name() const { return image().name; }
  const std::string& path() const { return loaded().path; }
  // Returns the backend of the library's kernels for operators that existed before.
  const std::string& backend() const { return loaded().backend; }
  // Returns the version of the toolkit with which it was compiled; empty if unknown.
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
  // Returns the names of the library's partitioners; passes() returns those of its graph passes.
  std::vector<std::string> partitioners() const;
  std::vector<std::string> passes() const;
  bool is_loaded() const { return loaded_ && loaded_->image; }

  // Removes every registration, and unmaps the file unless a symbol in it keeps it mapped. Throws
  // kFailedPrecondition, and changes nothing, while an operator or plan of the library is alive, or
  // memory of its devices is in use. The same holds inside a library's function, and while this
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
