// The description that a shared object gives of its exported operators: their schemas, and the
// types of the outputs of a call, as JSON through two C functions. `opkit export` reads it to write
// the Python side of the shared object, which calls opkit_export_infer itself.
#ifndef OPKIT_EXPORT_DESCRIPTION_HPP_
#define OPKIT_EXPORT_DESCRIPTION_HPP_

#include "opkit/export/exported_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns JSON that describes the exported operators: the function behind opkit_export_describe.
// The text is valid until this thread's next call of a function of this header:
//   {"opkit": "0.1.0", "domain": "mine", "operators": [
//     {"name": "Axpy", "hosts": ["tvm_ffi", "xla"], "doc": "…", "num_inputs": [2, 2],
//      "num_outputs": [1, 1], "inputs": [{"name": "x", "doc": "…", "dtypes": ["float32"]}],
//      "outputs": […], "attributes": [{"name": "alpha", "doc": "…", "type": "float",
//      "required": false, "default": 1.0, "values": []}], "stateful": false,
//      "gradient": "Axpy_grad"}]}
// The largest number of inputs or outputs is null without a limit. An attribute of any type has no
// type; a default that JSON cannot write is left out; the gradient is null if there is none
// (gradient_operator.hpp). An Error is {"error": "…", "class": "…"}.
OPKIT_IMAGE_LOCAL const char* DescribeExports() noexcept;

// Returns the dtypes and shapes of the outputs of a call, as far as the inputs decide them: the
// function behind opkit_export_infer. An extent is a number, the text of a symbol, or null. An
// input that is left out is null.
//   {"op": "Axpy", "inputs": [{"dtype": "float32", "shape": [3, "N"]}, null],
//    "attributes": {"alpha": 2.0}}
//   {"outputs": [{"dtype": "float32", "shape": [3, "N"]}]}
// A dtype or shape of which nothing is known is null. An Error, the same as that of the call, is
// {"error": "…", "class": "ValueError"} with the class of Python's exceptions.
OPKIT_IMAGE_LOCAL const char* InferExport(const char* call) noexcept;

}}}  // namespace opkit::detail

// The functions that other programs look up in a shared object with exported operators.
extern "C" OPKIT_VISIBLE inline const char* opkit_export_describe() noexcept {
  return ::opkit::detail::DescribeExports();
}
extern "C" OPKIT_VISIBLE inline const char* opkit_export_infer(const char* call) noexcept {
  return ::opkit::detail::InferExport(call);
}

// Adds an exported operator to the list of its host; the macros of the hosts' headers use it.
// `tag` makes the names of its variables.
#define OPKIT_ADD_EXPORT_(list, exported, tag)                                       \
  [[gnu::used]] static constexpr auto opkit_describe_##tag = &opkit_export_describe; \
  [[gnu::used]] static constexpr auto opkit_infer_##tag = &opkit_export_infer;       \
  [[maybe_unused]] static const bool opkit_added_##tag = ::opkit::detail::list.Add(exported)

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/description.ipp"
#endif

#endif  // OPKIT_EXPORT_DESCRIPTION_HPP_
