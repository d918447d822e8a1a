// An operator with threads that only the finalizer ends, and words when that and a destructor run.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <opkit/plugin/author.hpp>
#include <stdexcept>
#include <thread>

namespace {
using namespace opkit;  // NOLINT: as an author writes it

void Say(const char* what) {
  const std::string line = std::string(NAME " ") + what + "\n";
  if (write(1, line.data(), line.size()) < 0) std::abort();
}
struct Speaks {
  ~Speaks() { Say("is destroyed"); }
};
const Speaks speaks;

std::atomic<bool> g_stop{false};
std::thread g_thread;  // ends the process when it is destroyed while its thread runs
std::thread& ThreadOfFunction() {
  static std::thread thread;
  return thread;
}
void Wait() {
  while (!g_stop) std::this_thread::yield();
}

void Finalize() {
  if (g_stop.exchange(true)) return Say("is finalized again");
  if (g_thread.joinable()) {
    g_thread.join();
    ThreadOfFunction().join();
  }
  Say("is finalized");
  if (std::getenv("OPKIT_TEST_EXIT_IN_FINALIZE")) std::exit(0);
  if (std::getenv("OPKIT_TEST_THROW_IN_FINALIZE")) throw std::runtime_error("no room for the log");
}
OPKIT_LIBRARY_FINALIZE(Finalize);

REGISTER_OP(LibFinalizes)
    .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource&) {
      if (!g_thread.joinable()) {
        g_thread = std::thread(&Wait);
        ThreadOfFunction() = std::thread(&Wait);
      }
      std::memcpy(out[0].data<float>(), in[0].data<float>(), in[0].size() * sizeof(float));
    })
    .setParseAttrs([](const AttrMap&, int* num_in, int* num_out) { *num_in = *num_out = 1; })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; });

}  // namespace
