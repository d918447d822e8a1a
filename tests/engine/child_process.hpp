// Runs a part of a test in a process of its own.
#ifndef OPKIT_TESTS_ENGINE_CHILD_PROCESS_HPP_
#define OPKIT_TESTS_ENGINE_CHILD_PROCESS_HPP_

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

// Runs `body` in a forked child and returns its exit status, -1 if it did not exit by itself.
template <class F>
int ExitStatusOfChild(F body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(100);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// From now on the system refuses this process every thread, to root too: no address space holds its
// stack.
inline void RefuseThreads() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, size_t{1} << 46);
  if (pthread_setattr_default_np(&attributes) != 0) _exit(99);
}

#endif  // OPKIT_TESTS_ENGINE_CHILD_PROCESS_HPP_
