// LoadedLibrary: a library's code, and what it has registered in this program.
#ifndef OPKIT_PLUGIN_LOAD_LOADED_LIBRARY_HPP_
#define OPKIT_PLUGIN_LOAD_LOADED_LIBRARY_HPP_

#include "opkit/op/function_op.hpp"
#include "opkit/plugin/load/shared_object.hpp"

namespace opkit::inline OPKIT_ABI {
class Partitioner;
class NamedPass;

namespace detail {

// A loaded library.
struct LoadedLibrary : RefCounted {
  ~LoadedLibrary() override;
  LibraryImagePtr image;
  std::string path, backend;
  std::vector<FunctionRecord> records;
  std::vector<std::pair<std::string, const opkit_backend*>> backends;  // that it describes
  std::vector<char> owns;                  // the operator of records[i] is this library's
  std::vector<std::string> gradients;      // of the operators whose gradient is this library's
  bool overrides = false;                  // its kernels come first
  std::vector<LayoutId> layouts;           // that it registered
  std::vector<std::string> found_layouts;  // of its own, whose names were there before it
  std::vector<DeviceType> devices;
  std::vector<IntrusivePtr<const Partitioner>> partitioners;
  std::vector<IntrusivePtr<const NamedPass>> passes;
  IntrusivePtr<FunctionUse> in_use{new FunctionUse};
  int64_t idle_count = 1;  // handles of in_use while no operator of it lives: records', kernels'

  const opkit_op& op(size_t i) const { return *image->library->ops[i]; }
};
using LoadedLibraryPtr = IntrusivePtr<LoadedLibrary>;

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_PLUGIN_LOAD_LOADED_LIBRARY_HPP_
