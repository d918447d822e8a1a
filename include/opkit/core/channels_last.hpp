// ChannelsLast: the layout "NHWC", in which the channels of a tensor [N, C, ...] lie together.
#ifndef OPKIT_CORE_CHANNELS_LAST_HPP_
#define OPKIT_CORE_CHANNELS_LAST_HPP_

#include "opkit/core/layout.hpp"

namespace opkit::inline OPKIT_ABI {

// Elements [n, c, ...] of a tensor of rank 2 and above lie at [n, ..., c]; of a lower rank as in
// the standard layout. Registered by the first call.
OPKIT_IMAGE_LOCAL LayoutId ChannelsLast();

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/core/impl/channels_last.ipp"
#endif

#endif  // OPKIT_CORE_CHANNELS_LAST_HPP_
