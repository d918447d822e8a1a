// LoadedLibrary: a library's code, and its registrations in this program.
#ifndef OPKIT_PLUGIN_LOAD_LOADED_LIBRARY_HPP_
#define OPKIT_PLUGIN_LOAD_LOADED_LIBRARY_HPP_

#include "opkit/op/function_op.hpp"
#include "opkit/plugin/load/shared_object.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
class Partitioner;
class NamedPass;

namespace detail {

// The code, the records and all registrations of a loaded library, for Unload to remove.
struct LoadedLibrary : RefCounted {
  ~LoadedLibrary() override;
  LibraryImagePtr image;
  std::string path, backend;
  std::vector<FunctionRecord> records;
  std::vector<std::pair<std::string, const opkit_backend*>> backends;  // backends that it describes
  std::vector<char> owns;                  // owns[i]: it registered the operator of records[i]
  std::vector<std::string> gradients;      // operators whose gradient it registered
  bool overrides = false;                  // true if its kernels come first
  std::vector<LayoutId> layouts;           // layouts that it registered
  std::vector<std::string> found_layouts;  // its layouts that were registered already
  std::vector<DeviceType> devices;
  std::vector<IntrusivePtr<const Partitioner>> partitioners;
  std::vector<IntrusivePtr<const NamedPass>> passes;
  IntrusivePtr<FunctionUse> in_use{new FunctionUse};
  int64_t idle_count = 1;  // use count of in_use while no operator of the library is alive

  const opkit_op& op(size_t i) const { return *image->library->ops[i]; }
};
using LoadedLibraryPtr = IntrusivePtr<LoadedLibrary>;

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PLUGIN_LOAD_LOADED_LIBRARY_HPP_
