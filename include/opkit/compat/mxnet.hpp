// MXNet's further spellings, for functions that are ported from MXNet's lib_api.h: those of
// operators, and those of MXNet 1.7.0's partitioners and passes, which read JSON. A library
// includes opkit/op.hpp before this header; a program includes this header alone, and
// opkit/partition.hpp if it has partitioners.
#ifndef OPKIT_COMPAT_MXNET_HPP_
#define OPKIT_COMPAT_MXNET_HPP_

#include <iosfwd>

#ifndef OPKIT_PLUGIN_AUTHOR_HPP_
#include "opkit/functions.hpp"
#endif

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

using MXReturnValue = ReturnValue;
inline constexpr MXReturnValue MX_FAIL = FAIL, MX_SUCCESS = SUCCESS;
using MXTensor = OpTensor;

// Ignores std::endl, with which messages of MXNet's sources end.
inline const ErrorMessageStream& operator<<(const ErrorMessageStream& to,
                                            std::ostream& (*)(std::ostream&)) {
  return to;
}

}}  // namespace opkit

#ifndef OPKIT_NO_SHORT_MACROS
// Explains the MX_FAIL that follows: MX_ERROR_MSG << "expected 2 axes, found " << rank;
#define MX_ERROR_MSG OPKIT_ERROR_MSG
#endif  // OPKIT_NO_SHORT_MACROS

#endif  // OPKIT_COMPAT_MXNET_HPP_
