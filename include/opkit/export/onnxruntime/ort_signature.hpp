// OrtSignature: an operator's inputs, outputs and types in the form in which ONNX Runtime takes a
// custom operator.
#ifndef OPKIT_EXPORT_ONNXRUNTIME_ORT_SIGNATURE_HPP_
#define OPKIT_EXPORT_ONNXRUNTIME_ORT_SIGNATURE_HPP_

#include <vector>

#include "opkit/export/onnxruntime/ort_api.hpp"
#include "opkit/op/schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The inputs or the outputs. If the operator has no largest number of them, the last is variadic:
// it stands for `variadic_least` or more values of one type.
struct OrtValues {
  std::vector<OrtArity> arities;
  int variadic_least = 0;

  OrtValues() = default;
  OrtValues(int least, int most, size_t declared);
};

// The dtypes of all inputs and outputs of one custom operator. ONNX Runtime merges the custom
// operators of one name, and chooses among them by the types of the inputs.
struct OrtTypes {
  std::vector<DType> inputs, outputs;
  friend bool operator==(const OrtTypes&, const OrtTypes&) = default;
};

struct OrtSignature {
  OrtValues inputs, outputs;
  // The dtypes that the schema allows and the operator's inference accepts. Without inference, or
  // with more than 64 such combinations, inputs with the same list of dtypes have the same dtype.
  std::vector<OrtTypes> types;

  // Throws kUnsupported if ONNX Runtime has none of the operator's dtypes.
  explicit OrtSignature(const OpSchema& schema);
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/onnxruntime/impl/ort_signature.ipp"
#endif

#endif  // OPKIT_EXPORT_ONNXRUNTIME_ORT_SIGNATURE_HPP_
