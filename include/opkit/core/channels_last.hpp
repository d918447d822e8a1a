// ChannelsLast: the layout "NHWC", in which the channels of a tensor [N, C, ...] lie together.
#ifndef OPKIT_CORE_CHANNELS_LAST_HPP_
#define OPKIT_CORE_CHANNELS_LAST_HPP_

#include "opkit/core/layout.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Returns the layout's id. The first call registers the layout. Element [n, c, ...] of a tensor of
// rank 2 and above lies at [n, ..., c]; lower ranks are stored as in the standard layout.
OPKIT_IMAGE_LOCAL LayoutId ChannelsLast();

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/core/impl/channels_last.ipp"
#endif

#endif  // OPKIT_CORE_CHANNELS_LAST_HPP_
