// Sequences and optional values: tensors whose elements are tensors. A sequence has shape [n], an
// optional value shape [1] if it is present and [0] if it is not. So blobs, plans and executors
// move them as they move every tensor.
#ifndef OPKIT_CORE_SEQUENCE_HPP_
#define OPKIT_CORE_SEQUENCE_HPP_

#include <optional>
#include <span>

#include "opkit/core/tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the elements of a sequence or of an optional value; valid as long as the tensor. They are
// handles: a program must not write to their memory, which other sequences may share. Errors:
// kTypeMismatch for a tensor of another dtype, kUninitialized.
//
//   const Tensor words = MakeSequence({a, b});
//   for (const Tensor& word : ElementsOf(words)) …
std::span<const Tensor> ElementsOf(const Tensor& value);

// Returns a sequence that shares the memory of these tensors. Errors (kTypeMismatch): the tensors
// have different dtypes, or one of them is a sequence or an optional value; kUninitialized.
Tensor MakeSequence(std::span<const Tensor> elements);
inline Tensor MakeSequence(std::initializer_list<Tensor> elements) {
  return MakeSequence(std::span(elements.begin(), elements.size()));
}

// Returns an optional value that shares the memory of a tensor or a sequence; an absent one for
// nullopt. Errors: kTypeMismatch for an element that is an optional value, kUninitialized.
Tensor MakeOptional(const std::optional<Tensor>& element);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/core/impl/sequence.ipp"
#endif

#endif  // OPKIT_CORE_SEQUENCE_HPP_
