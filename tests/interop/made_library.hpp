// Makes a library in a test, whose operators return their input, to check what a saved graph says
// of a library.
#ifndef OPKIT_TESTS_INTEROP_MADE_LIBRARY_HPP_
#define OPKIT_TESTS_INTEROP_MADE_LIBRARY_HPP_

#include <cstring>
#include <deque>

#include "opkit/plugin/library.hpp"

namespace made_library {

inline opkit_status HandOn(void*, const opkit_call* call) {
  const opkit_tensor *from = opkit_input(call, 0), *to = opkit_output(call, 0);
  std::memcpy(to->data, from->data, static_cast<size_t>(opkit_numel(to)) * sizeof(float));
  return OPKIT_OK;
}
inline opkit_status OneOfEach(const opkit_op*, const opkit_node*, int32_t* inputs,
                              int32_t* outputs) {
  *inputs = *outputs = 1;
  return OPKIT_OK;
}
inline opkit_status SameShape(const opkit_op*, const opkit_node*, opkit_value* inputs,
                              opkit_value* outputs) {
  outputs->rank = inputs->rank;
  std::memcpy(outputs->dims, inputs->dims, sizeof outputs->dims);
  return OPKIT_OK;
}

// Loaded for its life; `file` is the name of a file that it might be in, `name` that which it says
// it has, null for none, like `version`.
class MadeLibrary {
 public:
  MadeLibrary(const std::string& file, const char* name, const char* version,
              const std::vector<const char*>& operators) {
    kernel_.size = sizeof kernel_;
    kernel_.device = "cpu";
    kernel_.forward = HandOn;
    for (const char* op : operators) {
      opkit_op& made = ops_.emplace_back();
      made.size = sizeof made;
      made.name = op;
      made.num_kernels = 1;
      made.kernels = kernels_;
      made.parse_attrs = OneOfEach;
      made.infer_shape = SameShape;
      pointers_.push_back(&made);
    }
    library_.size = sizeof library_;
    library_.abi_major = OPKIT_ABI_MAJOR;
    library_.abi_minor = OPKIT_ABI_MINOR;
    library_.name = name;
    library_.version = version;
    library_.num_ops = pointers_.size();
    library_.ops = pointers_.data();
    Current() = &library_;
    loaded_ = opkit::Library::LoadEntry([](const opkit_host*) { return Current(); }, file);
  }
  MadeLibrary(const MadeLibrary&) = delete;
  MadeLibrary& operator=(const MadeLibrary&) = delete;
  ~MadeLibrary() { loaded_.Unload(); }

  const opkit::Library& loaded() const { return loaded_; }

 private:
  static const opkit_library*& Current() {
    static const opkit_library* current = nullptr;
    return current;
  }
  opkit_kernel kernel_{};
  const opkit_kernel* kernels_[1] = {&kernel_};
  std::deque<opkit_op> ops_;
  std::vector<const opkit_op*> pointers_;
  opkit_library library_{};
  opkit::Library loaded_;
};

}  // namespace made_library

#endif  // OPKIT_TESTS_INTEROP_MADE_LIBRARY_HPP_
