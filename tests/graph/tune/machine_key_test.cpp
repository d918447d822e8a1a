#include "opkit/graph/tune/machine_key.hpp"

#include <doctest/doctest.h>

#include <thread>

#include "opkit/base/platform.hpp"
#include "support/text.hpp"

namespace machine_key_test { namespace {

using namespace opkit;
using detail::ProcessorName;

TEST_CASE("the name of an x86 processor has its model and the instruction sets of kernels") {
  const std::string text =
      "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
      "model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz\nstepping\t: 8\n"
      "cpu MHz\t\t: 2699.998\nflags\t\t: fpu sse sse4_2 avx2 avx512f amx_tile avx512_vnni2\n\n";
  const std::string name =
      "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz, family 6 model 143 stepping 8; sse4_2 avx2 "
      "avx512f amx_tile";
  CHECK(ProcessorName(text) == name);
  CHECK(ProcessorName(text + "processor\t: 1\nflags\t: avx\nFeatures\t: sve\n") == name);
}

TEST_CASE("the name of an Arm processor is made of its numbers") {
  CHECK(ProcessorName("processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd asimddp sve\n"
                      "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\n"
                      "CPU part\t: 0xd40\nCPU revision\t: 1\n") ==
        "arm 0x41 part 0xd40 variant 0x1; asimd asimddp sve");
}

TEST_CASE("text that is no list of processors has a name too") {
  for (const std::string_view text :
       {"", "\n", "flags", "flags:", "model name", "x\n\nmodel name: y"})
    CHECK(ProcessorName(text) == "unknown processor;");
}

TEST_CASE("the key of a machine has the processors of the thread, and what it is given") {
  const std::string key = MachineKey();
  CHECK(key == MachineKey());
  CHECK(Contains(key, "; processors "));
  CHECK(MachineKey(2) == key + "; threads 2");
  CHECK(MachineKey(2, "cuda 9.0") == key + "; threads 2; device cuda 9.0");
  std::string pinned;
  int cpu = -1;
  std::thread([&] {
    detail::PinCurrentThread(0);
    pinned = MachineKey();
    detail::VisitAvailableCpus([&](int each) { cpu = each; });
  }).join();
  const size_t processors = key.find("; processors ");
  CHECK(pinned == key.substr(0, processors) + "; processors " + std::to_string(cpu));
}

}  // namespace
}  // namespace machine_key_test
