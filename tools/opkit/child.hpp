// Work in a process of its own, whose Failures are thrown here.
#ifndef OPKIT_TOOLS_OPKIT_CHILD_HPP_
#define OPKIT_TOOLS_OPKIT_CHILD_HPP_

#include <functional>

#include "opkit/base/child_process.hpp"

namespace cli {

using opkit::detail::ChildEnd;
using opkit::detail::ChildOutcome;
using opkit::detail::ChildVoice;
using ChildWork = std::function<ChildEnd(const ChildVoice& voice)>;

// As opkit::detail::RunInChild; a Failure that the work throws is thrown here, and an opkit::Error
// is one with kRunFailed.
ChildOutcome RunInChild(double seconds, const ChildWork& work);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_CHILD_HPP_
