// What the commands of `opkit` share: exit codes, failures, and text. A command is a file with a
// function that adds the command to the program; main.cpp calls each function.
#ifndef OPKIT_TOOLS_OPKIT_PROGRAM_HPP_
#define OPKIT_TOOLS_OPKIT_PROGRAM_HPP_

#include <stdexcept>
#include <string>
#include <string_view>

#include "opkit/base/error.hpp"

namespace CLI {
class App;
}

namespace cli {

// Documented in `opkit --help`.
enum class ExitCode {
  kSuccess = 0,
  kRunFailed = 1,  // an operator, a check of one, or too little memory
  kUsage = 2,      // the command line
  kBadFile = 3,    // cannot be read or written, or is damaged
  kBadModel = 4,   // an operator or opset that is not there, no kernel of the backends asked for
  kBadInput = 5,   // does not fit the model
  kNoPlan = 6,     // within the capacity
};

// Ends the program with one line on stderr: what is wrong, and how to mend it.
class Failure : public std::runtime_error {
 public:
  Failure(ExitCode code, const std::string& what, std::string hint = {})
      : std::runtime_error(what), code_(code), hint_(std::move(hint)) {}
  ExitCode code() const { return code_; }
  const std::string& hint() const { return hint_; }

 private:
  ExitCode code_;
  std::string hint_;
};

// The message with its context, its lines joined.
std::string Describe(const opkit::Error& error);
// Names in models are anybody's text: control characters, which a terminal would obey, become
// blanks.
std::string Printable(std::string_view text);
// "1 node", "2 nodes".
std::string Counted(size_t count, const char* noun);
// The documentation up to the first full stop that ends a sentence, for a table.
std::string FirstSentence(const std::string& doc);

// Calls `f` and makes a Failure of an Error.
template <class F>
auto FailWith(ExitCode code, const std::string& hint, F&& f) {
  try {
    return f();
  } catch (const opkit::Error& error) {
    throw Failure(code, Describe(error), hint);
  }
}

void AddRunCommand(CLI::App& program);
void AddBenchCommand(CLI::App& program);
void AddCompareCommand(CLI::App& program);
void AddPlanCommand(CLI::App& program);
void AddInspectCommand(CLI::App& program);
void AddOpsCommand(CLI::App& program);
void AddLibCommand(CLI::App& program);
void AddCheckCommand(CLI::App& program);
void AddTraceCommand(CLI::App& program);
void AddPartitionCommand(CLI::App& program);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_PROGRAM_HPP_
