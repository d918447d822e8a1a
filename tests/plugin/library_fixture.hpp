// Support for tests of loaded libraries.
#ifndef OPKIT_TESTS_PLUGIN_LIBRARY_FIXTURE_HPP_
#define OPKIT_TESTS_PLUGIN_LIBRARY_FIXTURE_HPP_

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "opkit/op/gradient/gradient.hpp"
#include "opkit/plugin.hpp"
#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/tensors.hpp"

namespace library_fixture {
using namespace opkit;

inline std::string PathOf(const std::string& name) {
  return OPKIT_TEST_LIBRARIES "/lib" + name + ".so";
}

// All that is registered: operators, their kernels and gradients, and what is wrong with them.
inline std::string Registrations() {
  std::string out;
  for (const std::string& op : RegisteredOperators()) {
    out += op + (HasGradient(op) ? " with gradient:" : ":");
    for (const Kernel* kernel : OpRegistry::Global().KernelsOf(op))
      out += StrCat(" ", kernel->device, "/", kernel->backend, "/", kernel->origin);
    out += "\n";
  }
  return out + StrCat(CheckRegistrations());
}

// Loaded until the scope's end; then nothing of it is left.
class Scoped {
 public:
  explicit Scoped(const std::string& name, const LoadOptions& options = {})
      : before_(Registrations()), library_(Library::Load(PathOf(name), options)) {}
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;
  ~Scoped() {
    if (!library_.is_loaded()) return;
    CHECK_NOTHROW(library_.Unload());
    CHECK(Registrations() == before_);
  }
  Library* operator->() { return &library_; }
  Library& operator*() { return library_; }

 private:
  std::string before_;
  Library library_;
};

// The system's own word on it.
inline bool IsInMap(const std::string& path) { return Contains(ReadFile("/proc/self/maps"), path); }

inline Tensor Call(const std::string& op, const std::vector<Tensor>& inputs, Arguments args = {}) {
  InvokeOptions options;
  options.num_outputs = 1;
  return Invoke(op, inputs, std::move(args), options)[0];
}
inline Floats Call(const std::string& op, const Floats& x, Arguments args = {}) {
  return Call(op, {Vector(x)}, std::move(args)).ToVector<float>();
}

}  // namespace library_fixture

#endif  // OPKIT_TESTS_PLUGIN_LIBRARY_FIXTURE_HPP_
