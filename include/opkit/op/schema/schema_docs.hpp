// A schema as Markdown: the reference that an operator's users read is generated from the rules
// that its nodes are checked against, so that the two cannot differ.
#ifndef OPKIT_OP_SCHEMA_SCHEMA_DOCS_HPP_
#define OPKIT_OP_SCHEMA_SCHEMA_DOCS_HPP_

#include "opkit/op/op_registry.hpp"

namespace opkit::inline OPKIT_ABI {
// Name, description, inputs, outputs, attributes and in-place pairs.
std::string ToMarkdown(const OpSchema& schema);
// All operators of the program that are not private, by name, and what runs each of them.
OPKIT_IMAGE_LOCAL std::string DocsOfAllOperators();

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/schema/impl/schema_docs.ipp"
#endif

#endif  // OPKIT_OP_SCHEMA_SCHEMA_DOCS_HPP_
