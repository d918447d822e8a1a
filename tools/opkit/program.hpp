// The parts that all commands of `opkit` share: exit codes, failures, and text. A command is a file
// with a function that adds the command to the program; main.cpp calls each function.
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

// The exit codes, which `opkit --help` documents.
enum class ExitCode {
  kSuccess = 0,
  kRunFailed = 1,  // an operator failed, a check found a mistake, or memory ran out
  kUsage = 2,      // the command line is wrong
  kBadFile = 3,    // a file cannot be read or written, or is damaged
  kBadModel = 4,   // an unknown operator or opset, or no kernel of the given backends
  kBadInput = 5,   // an input does not fit the model
  kNoPlan = 6,     // no memory plan within the capacity
};

// Ends the program with one line on stderr: the mistake, and how to correct it.
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

// Returns the message with its context in one line.
std::string Describe(const opkit::Error& error);
// Replaces control characters, such as those in a model's names, which a terminal would obey.
std::string Printable(std::string_view text);
// Returns "1 node" or "2 nodes".
std::string Counted(size_t count, const char* noun);
// Returns the first sentence of a documentation, at most 72 characters of it, for a table.
std::string FirstSentence(const std::string& doc);

// Calls `f` and rethrows an Error as a Failure.
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
void AddBenchCompareCommand(CLI::App& bench);
void AddBenchOpCommand(CLI::App& program);
void AddTuneCommand(CLI::App& program);
void AddCompareCommand(CLI::App& program);
void AddPlanCommand(CLI::App& program);
void AddInspectCommand(CLI::App& program);
void AddBuildCommand(CLI::App& program);
void AddExportCommand(CLI::App& program);
void AddOpsCommand(CLI::App& program);
void AddLibCommand(CLI::App& program);
void AddCheckCommand(CLI::App& program);
void AddTraceCommand(CLI::App& program);
void AddPartitionCommand(CLI::App& program);
void AddSimulateCommand(CLI::App& program);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_PROGRAM_HPP_
