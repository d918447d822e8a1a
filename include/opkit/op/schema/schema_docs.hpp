// ToMarkdown: a schema as Markdown. It generates the reference of operators from the rules that
// verify nodes, so that the reference and the rules cannot differ.
#ifndef OPKIT_OP_SCHEMA_SCHEMA_DOCS_HPP_
#define OPKIT_OP_SCHEMA_SCHEMA_DOCS_HPP_

#include "opkit/op/op_registry.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
// Returns name, description, inputs, outputs, attributes and in-place pairs.
std::string ToMarkdown(const OpSchema& schema);
// Returns the docs of all operators of the program that are not private, sorted by name, each with
// its kernels.
OPKIT_IMAGE_LOCAL std::string DocsOfAllOperators();

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/schema/impl/schema_docs.ipp"
#endif

#endif  // OPKIT_OP_SCHEMA_SCHEMA_DOCS_HPP_
