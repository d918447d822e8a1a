// The definitions of run_program.hpp.
#ifndef OPKIT_BASE_PROCESS_IMPL_RUN_PROGRAM_IPP_
#define OPKIT_BASE_PROCESS_IMPL_RUN_PROGRAM_IPP_

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "opkit/base/process/run_program.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE ProgramEnd RunProgram(const char* const* words, const char* output) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  pid_t program = 0;
  ProgramEnd end;
  // The system does not write to the words.
  end.error = posix_spawnp(&program, words[0], &files, &attributes, const_cast<char* const*>(words),
                           environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  int status = 0;
  while (end.error == 0 && waitpid(program, &status, 0) < 0) {
    if (errno == EINTR) continue;
    break;  // this process ignores SIGCHLD, so that the system has discarded the status
  }
  if (WIFSIGNALED(status)) end.status = -1, end.signal = WTERMSIG(status);
  if (WIFEXITED(status)) end.status = WEXITSTATUS(status);
  return end;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_PROCESS_IMPL_RUN_PROGRAM_IPP_
