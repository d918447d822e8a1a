// Lists the backends that are linked into a test, so that it can run on each without their names.
#ifndef OPKIT_TESTS_SUPPORT_BACKENDS_HPP_
#define OPKIT_TESTS_SUPPORT_BACKENDS_HPP_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "opkit/device/copy.hpp"
#include "opkit/graph/plan/options.hpp"
#include "opkit/op/op_registry.hpp"

// A backend with kernels for devices of a type.
struct Backend {
  opkit::DeviceType device = opkit::DeviceType::kCPU;
  std::string name = opkit::kReferenceBackend;

  auto operator<=>(const Backend&) const = default;
  // True for the reference kernels of the CPU, with which the others are compared.
  bool IsReference() const { return *this == Backend(); }
  std::string Name() const {
    return device == opkit::DeviceType::kCPU || name == ToString(device)
               ? name
               : opkit::StrCat(device, " ", name);
  }
};

// Returns the operators with a kernel on the CPU or on CUDA, by backend.
inline std::map<Backend, std::set<std::string>> OperatorsByBackend() {
  std::map<Backend, std::set<std::string>> out;
  for (const std::string& op : opkit::RegisteredOperators())
    for (const opkit::DeviceType device : {opkit::DeviceType::kCPU, opkit::DeviceType::kCUDA})
      for (const opkit::Kernel* kernel : opkit::OpRegistry::Global().FindKernels(op, device))
        out[{device, kernel->backend}].insert(op);
  return out;
}

// Returns the reference backend of the CPU, then the others sorted by device and name.
inline std::vector<Backend> Backends() {
  std::vector<Backend> out{Backend()};
  for (const auto& [backend, operators] : OperatorsByBackend())
    if (!backend.IsReference()) out.push_back(backend);
  return out;
}

// Returns the backends that a test of models runs on: those of CUDA if there are any, so that a
// program with kernels for CUDA does not repeat the runs on the CPU; otherwise all.
inline std::vector<Backend> BackendsOfModels() {
  std::vector<Backend> all = Backends(), cuda;
  for (const Backend& backend : all)
    if (backend.device == opkit::DeviceType::kCUDA) cuda.push_back(backend);
  return cuda.empty() ? all : cuda;
}

// Returns the options of a plan for the first CUDA device if there are kernels for CUDA, otherwise
// the default.
inline opkit::PlanOptions OptionsOfModels() {
  opkit::PlanOptions out;
  if (BackendsOfModels()[0].device == opkit::DeviceType::kCUDA)
    out.devices = {opkit::Device{opkit::DeviceType::kCUDA, 0}, {}};
  return out;
}

// Has plans that are compiled with options() prefer a backend, on the first device of its type.
class PreferredBackend {
 public:
  explicit PreferredBackend(const Backend& backend) : device_(backend.device) {
    opkit::OpRegistry::Global().SetPreference(device_, {backend.name, opkit::kReferenceBackend});
  }
  PreferredBackend(const PreferredBackend&) = delete;
  PreferredBackend& operator=(const PreferredBackend&) = delete;
  ~PreferredBackend() { opkit::OpRegistry::Global().SetPreference(device_, {}); }

  opkit::PlanOptions options(int threads = 0) const {
    opkit::PlanOptions out;
    out.threads = threads;
    if (device_ != opkit::DeviceType::kCPU) out.devices = {opkit::Device{device_, 0}, {}};
    return out;
  }

 private:
  const opkit::DeviceType device_;
};

// Returns the tensor, or its copy in the host's memory.
inline opkit::Tensor OnHost(const opkit::Tensor& tensor) {
  if (tensor.device().type == opkit::DeviceType::kCPU) return tensor;
  opkit::Tensor host;
  opkit::Copy(tensor, &host);
  return host;
}

#endif  // OPKIT_TESTS_SUPPORT_BACKENDS_HPP_
