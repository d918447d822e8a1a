// EnergyCounter: the energy that the machine uses, in joules. `opkit tune --objective energy`
// compares configurations by it.
#ifndef OPKIT_PROFILE_TIMING_ENERGY_COUNTER_HPP_
#define OPKIT_PROFILE_TIMING_ENERGY_COUNTER_HPP_

#include <memory>
#include <string>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A counter of energy. The hardware counts for all programs, and renews its figure about every
// millisecond (RAPL) or every 100 ms (NVML): compare readings that lie well apart, on a quiet
// machine. Tests plant counters of their own.
class EnergyCounter {
 public:
  virtual ~EnergyCounter() = default;
  // Returns the joules used since the counter was opened. Throws the errors of the function that
  // opened it if the counter has become unreadable.
  virtual double Joules() = 0;
};

// Opens the counters of the processor packages: RAPL of Intel and AMD, which Linux shows in
// `folder` (powercap, docs.kernel.org/power/powercap/powercap.html). Sums the packages. Their parts
// (core, uncore, dram) and the whole platform (psys) do not count, because they overlap them or are
// on few machines. A counter begins anew at its largest value, on large machines after some
// minutes: read it more often than that. Throws kNotFound if `folder` has no package, as in most
// virtual machines, and kUnsupported with the path and the system's reason if a file cannot be read
// or has no number: since Linux 5.10 only root may read energy_uj.
//
//   const std::unique_ptr<EnergyCounter> energy = OpenCpuEnergy();
//   const double before = energy->Joules();
//   for (int run = 0; run < 1000; ++run) executor.Run();
//   const double joules_of_a_run = (energy->Joules() - before) / 1000;
std::unique_ptr<EnergyCounter> OpenCpuEnergy(const std::string& folder = "/sys/class/powercap");

// Opens the counter of an NVIDIA GPU, Volta or newer. `gpu` is its number in nvidia-smi. `library`
// is NVML, a part of the driver, which is loaded at run time. Throws kNotFound if there is no such
// library or GPU, and kUnsupported with NVML's reason if the GPU has no counter.
std::unique_ptr<EnergyCounter> OpenGpuEnergy(int gpu = 0,
                                             const std::string& library = "libnvidia-ml.so.1");

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/profile/timing/impl/energy_counter.ipp"
#endif

#endif  // OPKIT_PROFILE_TIMING_ENERGY_COUNTER_HPP_
