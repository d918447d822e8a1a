// The definitions of exported_operator.hpp.
#ifndef OPKIT_EXPORT_IMPL_EXPORTED_OPERATOR_IPP_
#define OPKIT_EXPORT_IMPL_EXPORTED_OPERATOR_IPP_

#include "opkit/export/exported_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE const OpSchema& ExportedOperator::FindSchema() const {
  const OpSchema& schema = OpRegistry::Global().GetSchema(name_);
  // Release: a thread that reads the pointer sees the schema, which is complete after static
  // initialisation.
  schema_.store(&schema, std::memory_order_release);
  return schema;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_EXPORTED_OPERATOR_IPP_
