// Work in a process of its own: code of others that crashes or hangs there is a sentence here.
#ifndef OPKIT_EXAMPLES_CLI_CHILD_HPP_
#define OPKIT_EXAMPLES_CLI_CHILD_HPP_

#include <functional>
#include <string>

namespace cli {

struct ChildOutcome {
  std::string answer;   // the last that the work gave
  std::string failure;  // "crashes" or "hangs"; empty: the child ended well
  std::string how;      // "signal 11 (Segmentation fault)", "no end within 60 s"
  std::string step;     // what it said last that it was about to do
};

// How the work talks to the process that waits for it.
class ChildVoice {
 public:
  explicit ChildVoice(int to) : to_(to) {}
  // The next step, whose time begins.
  void Step(const std::string& step) const;
  // The answer, which stays when what comes after it crashes or hangs.
  void Answer(const std::string& answer) const;

 private:
  int to_;
};

// How the child ends after its work: as a program does, with the destructors of what was loaded, or
// at once.
enum class ChildEnd { kNormal, kAtOnce };
using ChildWork = std::function<ChildEnd(const ChildVoice& voice)>;

// Runs `work` in a child, which has no threads of this process, and waits for it; a step that lasts
// longer than `seconds` is a hang. Neither the child nor what it starts outlives this call, and the
// child does not outlive this process. A Failure that the work throws is thrown here; an
// opkit::Error is one with kRunFailed.
ChildOutcome RunInChild(double seconds, const ChildWork& work);

}  // namespace cli

#endif  // OPKIT_EXAMPLES_CLI_CHILD_HPP_
