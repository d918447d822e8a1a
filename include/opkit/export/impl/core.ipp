// The definitions of core.hpp.
#ifndef OPKIT_EXPORT_IMPL_CORE_IPP_
#define OPKIT_EXPORT_IMPL_CORE_IPP_

#include "opkit/export/core.hpp"

#endif  // OPKIT_EXPORT_IMPL_CORE_IPP_
