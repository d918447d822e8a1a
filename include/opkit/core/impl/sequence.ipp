// The definitions of opkit/core/sequence.hpp.
#ifndef OPKIT_CORE_IMPL_SEQUENCE_IPP_
#define OPKIT_CORE_IMPL_SEQUENCE_IPP_

#include "opkit/core/sequence.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline Tensor TensorOfTensors(DType dtype, std::span<const Tensor> elements) {
  for (const Tensor& element : elements) {
    if (!element.initialized())
      Throw(ErrorCode::kUninitialized, "an element of a ", dtype, " is ", element,
            ": nothing was written to it");
    if (element.dtype() == DType::kOptional ||
        (element.dtype() == DType::kSequence && dtype == DType::kSequence) ||
        element.dtype() != elements[0].dtype())
      Throw(ErrorCode::kTypeMismatch, "a ", dtype, " cannot have the element ", element,
            &element == elements.data() ? "" : StrCat(" beside ", elements[0]));
  }
  Tensor out(Shape{static_cast<int64_t>(elements.size())}, dtype);
  std::copy(elements.begin(), elements.end(), static_cast<Tensor*>(out.raw_mutable_data()));
  return out;
}

}  // namespace detail

OPKIT_INLINE std::span<const Tensor> ElementsOf(const Tensor& value) {
  const DType wanted = value.dtype() == DType::kOptional ? DType::kOptional : DType::kSequence;
  const auto* first = static_cast<const Tensor*>(value.raw_data(wanted));
  if (!value.is_dense())
    Throw(ErrorCode::kUnsupported, "the elements of ", value, " are not dense");
  return {first, static_cast<size_t>(value.numel())};
}
OPKIT_INLINE Tensor MakeSequence(std::span<const Tensor> elements) {
  return detail::TensorOfTensors(DType::kSequence, elements);
}
OPKIT_INLINE Tensor MakeOptional(const std::optional<Tensor>& element) {
  return detail::TensorOfTensors(
      DType::kOptional, {element ? &*element : nullptr, static_cast<size_t>(element.has_value())});
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_SEQUENCE_IPP_
