#include "opkit/profile/timing/energy_counter.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <functional>

#include "support/error_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/text.hpp"

namespace energy_counter_test {
namespace {

using namespace opkit;

// A folder as powercap's.
class Powercap {
 public:
  void AddZone(const std::string& zone, const std::string& name, uint64_t microjoules,
               uint64_t range = 262143328850) {
    std::filesystem::create_directory(folder_ / zone);
    folder_.Write(zone + "/name", name + "\n");
    folder_.Write(zone + "/max_energy_range_uj", std::to_string(range) + "\n");
    Set(zone, std::to_string(microjoules) + "\n");
  }
  void Set(const std::string& zone, const std::string& text) {
    folder_.Write(zone + "/energy_uj", text);
  }
  const std::string& path() const { return folder_.path(); }
  std::string EnergyOf(const std::string& zone) const { return folder_ / (zone + "/energy_uj"); }

 private:
  TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("the energy of all packages counts, that of their parts and of the platform does not") {
  Powercap machine;
  machine.AddZone("intel-rapl:0", "package-0", 1'000'000);
  machine.AddZone("intel-rapl:0:0", "core", 5);
  machine.AddZone("intel-rapl:1", "psys", 7);
  machine.AddZone("intel-rapl:3", "package-1", 0);  // 2 is missing
  machine.AddZone("intel-rapl-mmio:0", "package-0", 1'000'000);
  const auto counter = OpenCpuEnergy(machine.path());
  CHECK(counter->Joules() == 0);
  machine.Set("intel-rapl:0", "3500000\n");
  machine.Set("intel-rapl:3", "250000\n");
  machine.Set("intel-rapl:0:0", "99000000\n");
  machine.Set("intel-rapl:1", "99000000\n");
  machine.Set("intel-rapl-mmio:0", "99000000\n");
  CHECK(counter->Joules() == doctest::Approx(2.75));
  CHECK(counter->Joules() == doctest::Approx(2.75));
}

TEST_CASE("a counter that begins anew goes on") {
  Powercap machine;
  machine.AddZone("intel-rapl:0", "package-0", 262'143'000'000, 262'143'328'850);
  const auto counter = OpenCpuEnergy(machine.path());
  machine.Set("intel-rapl:0", "671150\n");
  CHECK(counter->Joules() == doctest::Approx(1.0));
  machine.Set("intel-rapl:0", "1671150\n");
  CHECK(counter->Joules() == doctest::Approx(2.0));
}

TEST_CASE("a machine without counters, and counters that cannot be read, are Errors") {
  Powercap machine;
  Error error = ErrorOf([&] { OpenCpuEnergy(machine.path() + "/absent"); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "'" + machine.path() + "/absent' has no zone intel-rapl:N"));
  machine.AddZone("intel-rapl:0", "psys", 7);
  CHECK(ErrorOf([&] { OpenCpuEnergy(machine.path()); }).code() == ErrorCode::kNotFound);

  machine.AddZone("intel-rapl:1", "package-0", 7);
  machine.AddZone("intel-rapl:2", "package-1", 7);
  const std::string path = machine.EnergyOf("intel-rapl:2");
  const auto counter = OpenCpuEnergy(machine.path());
  std::filesystem::remove(path);
  const auto refuses = [&](const std::string& why) {
    for (const auto& call : {std::function<void()>([&] { OpenCpuEnergy(machine.path()); }),
                             std::function<void()>([&] { counter->Joules(); })}) {
      error = ErrorOf(call);
      CHECK(error.code() == ErrorCode::kUnsupported);
      CHECK(Contains(error.message(), path));
      CHECK(Contains(error.message(), why));
    }
  };
  refuses("No such file or directory");
  for (const char* text : {"", "many", "12 J", "-5", "99999999999999999999"}) {
    machine.Set("intel-rapl:2", text);
    refuses(std::string("found '") + text + "'");
  }
  // Root may read every file, so a folder stands for a file that the system refuses to read.
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  refuses("Is a directory");
}

TEST_CASE("a GPU's energy comes from NVML") {
  const std::string nvml = OPKIT_TEST_TOOLS "/libopkit_test_nvml.so";
  const auto counter = OpenGpuEnergy(0, nvml);
  CHECK(counter->Joules() == doctest::Approx(1.5));
  CHECK(counter->Joules() == doctest::Approx(3.0));
  CHECK(OpenGpuEnergy(2, nvml)->Joules() == 0);
  Error error = ErrorOf([&] { OpenGpuEnergy(1, nvml); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "energy counter of GPU 1: NVML says \"Not Supported\""));
  error = ErrorOf([&] { OpenGpuEnergy(3, nvml); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "energy counter of GPU 3: NVML says \"Invalid Argument\""));
  error = ErrorOf([] { OpenGpuEnergy(0, "libopkit_absent.so.1"); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "libopkit_absent.so.1"));
  error = ErrorOf([] { OpenGpuEnergy(0, OPKIT_TEST_TOOLS "/libopkit_test_itt_tool.so"); });
  CHECK(Contains(error.message(), "is no NVML: it has no nvmlInit_v2"));

  // A counter that could not be opened does not keep NVML in use.
  void* const library = dlopen(nvml.c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto users = reinterpret_cast<int (*)()>(dlsym(library, "opkit_test_nvml_users"));
  CHECK(users() == 1);
  dlclose(library);
}

}  // namespace energy_counter_test
