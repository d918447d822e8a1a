// The definitions of ready_operator.hpp.
#ifndef OPKIT_EXPORT_IMPL_READY_OPERATOR_IPP_
#define OPKIT_EXPORT_IMPL_READY_OPERATOR_IPP_

#include "opkit/export/ready_operator.hpp"

#endif  // OPKIT_EXPORT_IMPL_READY_OPERATOR_IPP_
