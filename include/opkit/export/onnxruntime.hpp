// Exports operators to ONNX Runtime: a shared object with OPKIT_EXPORT_ONNXRUNTIME(Axpy) is a
// library of custom operators, in the domain of OPKIT_EXPORT_DOMAIN, that any version from 1.18 on
// loads. Neither ONNX Runtime's header nor its library is needed to compile and link it.
//
//   OPKIT_EXPORT_DOMAIN("mine");
//   OPKIT_EXPORT_ONNXRUNTIME(Axpy);
//
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique axpy.cc -o libmyops.so
//
//   options = onnxruntime.SessionOptions()
//   options.register_custom_ops_library("./libmyops.so")
//   session = onnxruntime.InferenceSession("model.onnx", options)
#ifndef OPKIT_EXPORT_ONNXRUNTIME_HPP_
#define OPKIT_EXPORT_ONNXRUNTIME_HPP_

#include "opkit/export/description.hpp"
#include "opkit/export/onnxruntime/ort_api.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Adds the operators of g_onnxruntime_operators to a session's options (OrtSessionOptions*).
// Returns a status of the host; null for success.
OPKIT_IMAGE_LOCAL void* RegisterForOnnxRuntime(void* session_options,
                                               const OrtApiBase& base) noexcept;

}}}  // namespace opkit::detail

// The function that ONNX Runtime looks up in a library of custom operators.
extern "C" OPKIT_VISIBLE inline void* RegisterCustomOps(
    void* session_options, const ::opkit::detail::OrtApiBase* base) noexcept {
  return ::opkit::detail::RegisterForOnnxRuntime(session_options, *base);
}

// Exports an operator to ONNX Runtime. Write it at namespace scope in one unit of the shared
// object; the operator is registered in this or another unit. The operator's types are the
// dtypes of its schema that its inference accepts. A node's attributes are checked when the session
// is made. Several threads may run a session; a stateful operator has a state for each node of a
// session, and its runs follow each other.
#define OPKIT_EXPORT_ONNXRUNTIME(op)                                                       \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_EXPORT_ONNXRUNTIME);                                      \
  static constinit ::opkit::detail::ExportedOperator opkit_onnxruntime_operator_##op{#op}; \
  [[gnu::used]] static constexpr auto opkit_onnxruntime_entry_##op = &RegisterCustomOps;   \
  OPKIT_ADD_EXPORT_(g_onnxruntime_operators, opkit_onnxruntime_operator_##op, onnxruntime_##op)

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/onnxruntime.ipp"
#endif

#endif  // OPKIT_EXPORT_ONNXRUNTIME_HPP_
