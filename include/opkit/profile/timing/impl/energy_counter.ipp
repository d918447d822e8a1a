// Reads the energy counters of powercap and of NVML.
#ifndef OPKIT_PROFILE_TIMING_IMPL_ENERGY_COUNTER_IPP_
#define OPKIT_PROFILE_TIMING_IMPL_ENERGY_COUNTER_IPP_

#include <dlfcn.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "opkit/base/error.hpp"
#include "opkit/profile/timing/energy_counter.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// Returns the first line of a small file; nullopt, with errno, if it cannot be read.
inline std::optional<std::string> FirstLineOf(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (!file) return {};
  char line[128] = "";
  errno = 0;
  const bool is_read = std::fgets(line, sizeof line, file) || errno == 0;
  const int error = errno;
  std::fclose(file);
  errno = error;
  if (!is_read) return {};
  line[std::strcspn(line, "\n")] = 0;
  return line;
}

// A zone of powercap that is a processor package.
class RaplPackage {
 public:
  explicit RaplPackage(const std::string& zone)
      : path_(zone + "/energy_uj"), range_(ReadNumber(zone + "/max_energy_range_uj")) {
    last_ = ReadNumber(path_);
  }
  // Returns the microjoules since the last call.
  uint64_t Advance() {
    const uint64_t now = ReadNumber(path_);
    const uint64_t used = now >= last_ ? now - last_ : now + (range_ - last_);
    last_ = now;
    return used;
  }

 private:
  static uint64_t ReadNumber(const std::string& path) {
    const std::optional<std::string> text = FirstLineOf(path);
    if (!text)
      Throw(ErrorCode::kUnsupported, "cannot read the energy counter '", path,
            "': ", std::strerror(errno),
            errno == EACCES || errno == EPERM
                ? StrCat("; only root may read it, unless root allows it: chmod a+r ", path)
                : "");
    uint64_t out = 0;
    const char* const end = text->data() + text->size();
    if (const auto read = std::from_chars(text->data(), end, out);
        read.ec != std::errc() || read.ptr != end)
      Throw(ErrorCode::kUnsupported, "expected a number of microjoules in '", path, "', found '",
            *text, "'");
    return out;
  }

  std::string path_;
  uint64_t range_, last_;
};

class RaplCounter final : public EnergyCounter {
 public:
  explicit RaplCounter(const std::string& folder) {
    // The zones "intel-rapl:N" are packages or the platform; their parts are "intel-rapl:N:M". A
    // package that another driver shows again is "intel-rapl-mmio:N". Numbers may be missing.
    constexpr int kMostZones = 256;
    for (int n = 0; n < kMostZones; ++n) {
      const std::string zone = StrCat(folder, "/intel-rapl:", n);
      const std::optional<std::string> name = FirstLineOf(zone + "/name");
      if (name && name->starts_with("package")) packages_.emplace_back(zone);
    }
    if (packages_.empty())
      Throw(ErrorCode::kNotFound, "there is no energy counter of a processor: '", folder,
            "' has no zone intel-rapl:N with the name package-N; a virtual machine or a container ",
            "rarely has one, and the kernel needs the module intel_rapl_msr");
  }
  double Joules() override {
    for (RaplPackage& package : packages_) microjoules_ += package.Advance();
    return 1e-6 * static_cast<double>(microjoules_);
  }

 private:
  std::vector<RaplPackage> packages_;
  uint64_t microjoules_ = 0;
};

// The functions of NVML (NVML API Reference Guide) that read the energy of a GPU.
class NvmlCounter final : public EnergyCounter {
 public:
  NvmlCounter(int gpu, const std::string& library) : gpu_(gpu) {
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle)
      Throw(ErrorCode::kNotFound,
            "there is no energy counter of a GPU, cannot load NVML: ", dlerror());
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
      if (!function) Throw(ErrorCode::kNotFound, "'", library, "' is no NVML: it has no ", name);
    };
    int (*init)() = nullptr;
    int (*get_handle)(unsigned, void**) = nullptr;
    find(init, "nvmlInit_v2");
    find(get_handle, "nvmlDeviceGetHandleByIndex_v2");
    find(shutdown_, "nvmlShutdown");
    find(read_, "nvmlDeviceGetTotalEnergyConsumption");
    find(error_string_, "nvmlErrorString");
    Check(ErrorCode::kNotFound, init());
    try {
      Check(ErrorCode::kNotFound, get_handle(static_cast<unsigned>(gpu), &device_));
      first_ = Read();
    } catch (...) {
      shutdown_();
      throw;
    }
  }
  NvmlCounter(const NvmlCounter&) = delete;
  ~NvmlCounter() override { shutdown_(); }
  double Joules() override { return 1e-3 * static_cast<double>(Read() - first_); }

 private:
  void Check(ErrorCode code, int status) const {
    if (status != 0)
      Throw(code, "there is no energy counter of GPU ", gpu_, ": NVML says \"",
            error_string_(status), "\"");
  }
  unsigned long long Read() const {
    unsigned long long millijoules = 0;
    Check(ErrorCode::kUnsupported, read_(device_, &millijoules));
    return millijoules;
  }

  int gpu_;
  void* device_ = nullptr;
  unsigned long long first_ = 0;
  int (*shutdown_)() = nullptr;
  int (*read_)(void* device, unsigned long long* millijoules) = nullptr;
  const char* (*error_string_)(int) = nullptr;
};

}  // namespace detail

OPKIT_COLD OPKIT_INLINE std::unique_ptr<EnergyCounter> OpenCpuEnergy(const std::string& folder) {
  return std::make_unique<detail::RaplCounter>(folder);
}
OPKIT_COLD OPKIT_INLINE std::unique_ptr<EnergyCounter> OpenGpuEnergy(int gpu,
                                                                     const std::string& library) {
  return std::make_unique<detail::NvmlCounter>(gpu, library);
}

}}  // namespace opkit

#endif  // OPKIT_PROFILE_TIMING_IMPL_ENERGY_COUNTER_IPP_
