// Library: operators loaded from a shared object at run time. They are operators like any other:
// in the registry, in graphs and plans, under observers.
#ifndef OPKIT_PLUGIN_LIBRARY_HPP_
#define OPKIT_PLUGIN_LIBRARY_HPP_

#include "opkit/plugin/load/loaded_library.hpp"

namespace opkit::inline OPKIT_ABI {
struct LoadOptions {
  // The backend of the library's kernels where the operator exists already, which a node asks for
  // with .Engine(backend). Empty: the file's name without "lib" and ".so".
  std::string backend = {};
  // The library's kernels come before those that an operator has, until the library is unloaded.
  bool allow_override = false;
  // Loads the file once more where it is loaded already, with variables of its own.
  bool own_copy = false;
};

// Whether unloading took a library's code out of the process.
struct UnloadReport {
  bool unmapped = false;               // no code of it is left in the process
  std::vector<std::string> pinned_by;  // else the symbols of it that may hold it there
  std::string finalize_failure = {};   // what its finalize threw; empty where it ended well
  friend std::string ToString(const UnloadReport& report);
};

// A handle, copied freely; the library stays loaded until Unload, whether a handle is left or not.
// Loading and unloading may come from any thread, while others create and run operators; unloading
// waits for what makes operators, plans and gradients at the moment. A schema or kernel that the
// program has got from the registry is its own to let go of before.
//
//   Library lib = Library::Load("build/libmy_ops.so");
//   std::vector<Tensor> y = Invoke("my_gemm", {a, b});
class Library {
 public:
  // No library: is_loaded() is false, and the others are an Error (kFailedPrecondition).
  Library() = default;
  // Registers every operator of the file, or none. The same unchanged file is loaded once. An
  // operator that exists already gets another backend. A file without operators is told to the log
  // hook (SetLogHook). Errors: kNotFound for a missing file; kUnsupported for another machine's and
  // another version of the ABI; kInvalidArgument for a file that is no such library, or for a fault
  // in it; kAlreadyExists for two operators of a name in it; the failure that its initialize
  // reports.
  static Library Load(const std::string& path, const LoadOptions& options = {});
  // Loads the operators of this program itself, in a unit that includes author.hpp.
  static Library LoadEntry(opkit_library_entry_function entry, const std::string& name,
                           const LoadOptions& options = {});
  // All libraries that are loaded.
  static std::vector<Library> All();

  // The file's name, with a number behind it when it is not the first of that name.
  const std::string& name() const { return image().name; }
  const std::string& path() const { return loaded().path; }
  // The backend of its kernels for operators that existed before.
  const std::string& backend() const { return loaded().backend; }
  // The version of the toolkit that it was compiled with; empty where it does not say.
  std::string version() const {
    const char* version = image().library->version;
    return version ? version : "";
  }
  // Its own version, which OPKIT_LIBRARY_VERSION says; empty where it does not say.
  std::string own_version() const;
  std::pair<uint32_t, uint32_t> abi_version() const {
    return {image().library->abi_major, image().library->abi_minor};
  }
  // The operators' names, in the library's order.
  std::vector<std::string> operators() const;
  // Names of its partitioners and of its graph passes.
  std::vector<std::string> partitioners() const;
  std::vector<std::string> passes() const;
  bool is_loaded() const { return loaded_ && loaded_->image; }

  // Removes every registration and unmaps the file, where nothing in it holds it. Error
  // (kFailedPrecondition), and nothing changes, while an operator or plan of it is alive, and from
  // inside a function of a library or the making of an operator, a plan or a gradient.
  UnloadReport Unload();

  friend bool operator==(const Library&, const Library&) = default;

 private:
  explicit Library(detail::LoadedLibraryPtr loaded) : loaded_(std::move(loaded)) {}
  detail::LoadedLibrary& loaded() const;
  const detail::LibraryImage& image() const;
  detail::LoadedLibraryPtr loaded_;
};

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/impl/library.ipp"
#endif

#endif  // OPKIT_PLUGIN_LIBRARY_HPP_
