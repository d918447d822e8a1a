// RunProgram: a program of the system, such as a compiler, run to its end.
#ifndef OPKIT_BASE_PROCESS_RUN_PROGRAM_HPP_
#define OPKIT_BASE_PROCESS_RUN_PROGRAM_HPP_

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The end of a program that RunProgram has run.
struct ProgramEnd {
  int error = 0;   // errno if the program could not be started
  int status = 0;  // its exit status; -1 if a signal ended it
  int signal = 0;  // that signal
  bool good() const { return error == 0 && status == 0; }
};
// Runs a program and waits for its end. `words` are its name, which is looked up in $PATH, and its
// arguments; a null ends them. The program reads no input and writes its output and its messages to
// the file `output`, which is replaced. It gets the default signal handlers.
ProgramEnd RunProgram(const char* const* words, const char* output);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/process/impl/run_program.ipp"
#endif

#endif  // OPKIT_BASE_PROCESS_RUN_PROGRAM_HPP_
