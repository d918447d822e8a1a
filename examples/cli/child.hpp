// Work in a process of its own: code of others that crashes there is a sentence here.
#ifndef OPKIT_EXAMPLES_CLI_CHILD_HPP_
#define OPKIT_EXAMPLES_CLI_CHILD_HPP_

#include <functional>
#include <string>

namespace cli {

struct ChildOutcome {
  std::string answer;  // what the work returned
  std::string crash;  // how it ended otherwise: "signal 11 (Segmentation fault)"; empty: it did not
  std::string step;   // what it said last that it was about to do
};

// Runs `work` in a child, which has no threads of this process, and waits for it. A Failure that
// the work throws is thrown here; an opkit::Error is one with kRunFailed. `say` tells of the next
// step.
using ChildStep = std::function<void(const std::string& step)>;
ChildOutcome RunInChild(const std::function<std::string(const ChildStep& say)>& work);

}  // namespace cli

#endif  // OPKIT_EXAMPLES_CLI_CHILD_HPP_
