// A program that loads libraries/finalizes.cc and ends in the way that its argument names.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "opkit/op/invoke.hpp"
#include "opkit/plugin/library.hpp"

namespace {
using namespace opkit;

void Say(const std::string& line) {
  if (write(1, (line + "\n").data(), line.size() + 1) < 0) std::abort();
}
struct Speaks {
  ~Speaks() { Say("the program's object is destroyed"); }
};
const Speaks speaks;

struct Unloads {
  Library library;
  ~Unloads() { library.Unload(); }
};

Library Load(const std::string& name = "finalizes") {
  return Library::Load(OPKIT_TEST_LIBRARIES "/lib" + name + ".so");
}
void Run(const std::string& backend = {}) {
  InvokeOptions options;
  options.backends = backend;
  Invoke("LibFinalizes", {Tensor::From<float>({1}, {1})}, {}, options);
}
Library LoadAndRun() {
  Library library = Load();
  Run();
  return library;
}

const std::map<std::string, std::function<void()>> kEnds{
    {"return", [] { LoadAndRun(); }},
    {"return without a run", [] { Load(); }},
    {"another thread exits",
     [] {
       LoadAndRun();
       std::thread([] { std::exit(0); }).join();
     }},
    {"unload", [] { LoadAndRun().Unload(); }},
    {"a static object unloads", [] { static Unloads unloads{LoadAndRun()}; }},
    {"two libraries",
     [] {
       LoadAndRun();
       Run(Load("finalizes_too").backend());
     }},
    {"a forked child exits",
     [] {
       Load();
       const pid_t child = fork();
       if (child == 0) std::exit(0);
       waitpid(child, nullptr, 0);
       Say("the child has ended");
     }},
    {"the finalizer exits",
     [] {
       setenv("OPKIT_TEST_EXIT_IN_FINALIZE", "1", 1);
       LoadAndRun().Unload();
     }},
    {"the finalizer throws at unload",
     [] {
       setenv("OPKIT_TEST_THROW_IN_FINALIZE", "1", 1);
       Say(LoadAndRun().Unload().finalize_failure);
     }},
    {"the finalizer throws at exit",
     [] {
       setenv("OPKIT_TEST_THROW_IN_FINALIZE", "1", 1);
       LoadAndRun();
     }},
    {"quick_exit",
     [] {
       LoadAndRun();
       std::quick_exit(0);
     }},
};

}  // namespace

int main(int, char** argv) { kEnds.at(argv[1])(); }
