// Runs work in a child process and throws its Failures in this one.
#ifndef OPKIT_TOOLS_OPKIT_CHILD_HPP_
#define OPKIT_TOOLS_OPKIT_CHILD_HPP_

#include <functional>

#include "opkit/base/process/child_process.hpp"

namespace cli {

using opkit::detail::ChildEnd;
using opkit::detail::ChildOutcome;
using opkit::detail::ChildReporter;
using ChildWork = std::function<ChildEnd(const ChildReporter& voice)>;

// Calls opkit::detail::RunInChild. Rethrows a Failure of the work here, and an opkit::Error as a
// Failure with kRunFailed.
ChildOutcome RunInChild(double seconds, const ChildWork& work);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_CHILD_HPP_
