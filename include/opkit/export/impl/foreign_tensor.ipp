// The definitions of foreign_tensor.hpp.
#ifndef OPKIT_EXPORT_IMPL_FOREIGN_TENSOR_IPP_
#define OPKIT_EXPORT_IMPL_FOREIGN_TENSOR_IPP_

#include "opkit/export/foreign_tensor.hpp"

#endif  // OPKIT_EXPORT_IMPL_FOREIGN_TENSOR_IPP_
