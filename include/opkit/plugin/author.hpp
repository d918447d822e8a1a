// The contents of opkit/op.hpp, the one header that the author of an operator library includes.
// Operators registered in such a unit belong to the library; a host loads them with Library::Load
// (plugin/library.hpp).
//
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -I<opkit>/include my_ops.cc -o libmy_ops.so
//
// With -fno-gnu-unique the library can be unloaded. Without this option of g++ even
// std::make_shared keeps the library in the process.
//
// REGISTER_OP(name)… (op/function_op.hpp) needs no other header. For operators that are classes or
// typed functions, also include <opkit/opkit.hpp>. For their gradients include
// <opkit/op/gradient/gradient.hpp> before opkit.hpp; for typed partitioners and passes include
// <opkit/partition.hpp>.
#ifndef OPKIT_PLUGIN_AUTHOR_HPP_
#define OPKIT_PLUGIN_AUTHOR_HPP_

#include "opkit/macros.hpp"
#include "opkit/plugin/export/library_export.hpp"
#include "opkit/plugin/export/library_partitioner.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Adds a record to the library. Stores the author's functions in the form of opkit_abi.h. Functions
// that the author does not give are not compiled.
class OPKIT_IMAGE_LOCAL LibraryOpHost {
 public:
  static constexpr bool kIsLibrary = true;
  explicit LibraryOpHost(FunctionRecord record) : record_(std::move(record)) {}

  void Begin() { AddToLibrary(record_); }
  static std::string DeviceName(const char* name, const char*) { return name; }
  template <FunctionPass kPass>
  void Add(FunctionDevice& device) {
    if constexpr (kPass == FunctionPass::kForward)
      device.abi.forward = &RunForward;
    else
      device.abi.backward = &RunBackward;
  }
  void Doc() {}
  void Attr(const AttributeSchema&) {}
  void OpenAttrs() {}
  void Input(const ValueSchema&) {}
  void Output(const ValueSchema&) {}
  void InfersTypes() {
    record_->abi.infer_type = &GuardBy<FunctionOpRecord, &RecordFunctions::InferType>;
  }
  void InfersShapes() {
    record_->abi.infer_shape = &GuardBy<FunctionOpRecord, &RecordFunctions::InferShape>;
  }
  void MutatesInputs() {
    record_->abi.mutated_inputs = &GuardBy<FunctionOpRecord, &RecordFunctions::MutatedInputs>;
  }
  void NeedsScratch() {
    record_->abi.scratch_bytes = &GuardBy<FunctionOpRecord, &RecordFunctions::ScratchBytes>;
  }
  void Cost() { record_->abi.cost = &GuardBy<FunctionOpRecord, &RecordFunctions::Cost>; }
  void HasEffects() {}
  void NeedsSubgraph() {}
  void NoGradient() {}
  void DropBackward() {
    for (FunctionDevice& device : record_->devices) device.abi.backward = nullptr;
  }
  void Problem(const std::string&) {}

 private:
  FunctionRecord record_;
};

LibraryOpHost OpHost(int);  // REGISTER_OP prefers this to the program's OpHost

// Argument of MXNet's initialize(int version): the number of MXNet's last version, 1.9.1.
inline constexpr int kMXNetVersion = 10901;

template <auto f>
OpStatus CallInitialize(int host_major, int host_minor) {
  auto call = f;
  static_assert((std::is_invocable_v<decltype(f), int, int> ||
                 std::is_invocable_v<decltype(f), int>)&&kIsReturn<FunctionReturn<decltype(f)>>,
                "OPKIT_LIBRARY_INITIALIZE(f): write int f(int host_major, int host_minor); the "
                "answer is int (1 is success), bool, ReturnValue, Status or void");
  if constexpr (std::is_invocable_v<decltype(f), int, int>)
    return CallForStatus(call, host_major, host_minor);
  else
    return CallForStatus(call, kMXNetVersion);
}

}  // namespace detail

using LibraryOpBuilder = BasicFunctionOpBuilder<detail::LibraryOpHost>;

}}  // namespace opkit

// Marks this image as a library (op/op_registry.hpp).
extern "C" __attribute__((weak, visibility("hidden"))) char opkit_image_is_library;
char opkit_image_is_library = 1;

extern "C" __attribute__((weak, used, visibility("default"))) const opkit_library*
opkit_library_entry(const opkit_host* host) {
  return ::opkit::detail::DescribeLibrary(host);
}

// Sets the function that is called when the library is loaded, before its operators are used: int
// f(int host_major, int host_minor), with the version of the host's ABI. A failure stops the
// loading. MXNet's initialize(int version) is allowed too; its argument is kMXNetVersion.
#define OPKIT_LIBRARY_INITIALIZE(...)                                  \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_LIBRARY_INITIALIZE);                  \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_initialize_) = \
      (::opkit::detail::LibraryContents::Global().initialize =         \
           &::opkit::detail::CallInitialize<(__VA_ARGS__)>,            \
       true)
// Sets the library's own version, which Library::own_version() and `opkit lib` show:
// OPKIT_LIBRARY_VERSION("1.2.0");
#define OPKIT_LIBRARY_VERSION(version)                              \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_LIBRARY_VERSION);                  \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_version_) = \
      (::opkit::detail::LibraryContents::Global().own_version = version, true)
// Sets a function void f() that is called once: before the library is unloaded, or at the program's
// end by exit() or a return from main, before the destructors of static objects.
#define OPKIT_LIBRARY_FINALIZE(...)                                  \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_LIBRARY_FINALIZE);                  \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_finalize_) = \
      (::opkit::detail::LibraryContents::Global().finalize = (__VA_ARGS__), true)

#ifdef OPKIT_OPKIT_HPP_
#include "opkit/plugin/export/export_operators.hpp"
#endif
#if defined OPKIT_OPKIT_HPP_ && defined OPKIT_OP_GRADIENT_GRADIENT_HPP_
#include "opkit/plugin/export/export_gradients.hpp"
#endif
#ifdef OPKIT_GRAPH_HPP_
#include "opkit/plugin/export/export_graphs.hpp"
#endif
#ifdef OPKIT_PARTITION_HPP_
#include "opkit/plugin/export/export_partitioners.hpp"
#endif

#endif  // OPKIT_PLUGIN_AUTHOR_HPP_
