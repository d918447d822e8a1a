// Lists the backends that are linked into a test, so that it can run on each without their names.
#ifndef OPKIT_TESTS_SUPPORT_BACKENDS_HPP_
#define OPKIT_TESTS_SUPPORT_BACKENDS_HPP_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "opkit/op/op_registry.hpp"

// Returns the operators with a CPU kernel, by backend.
inline std::map<std::string, std::set<std::string>> OperatorsByBackend() {
  std::map<std::string, std::set<std::string>> out;
  for (const std::string& op : opkit::RegisteredOperators())
    for (const opkit::Kernel* kernel :
         opkit::OpRegistry::Global().FindKernels(op, opkit::DeviceType::kCPU))
      out[kernel->backend].insert(op);
  return out;
}

// Returns the reference backend, then the others sorted by name.
inline std::vector<std::string> Backends() {
  std::vector<std::string> out{opkit::kReferenceBackend};
  for (const auto& [backend, operators] : OperatorsByBackend())
    if (backend != opkit::kReferenceBackend) out.push_back(backend);
  return out;
}

#endif  // OPKIT_TESTS_SUPPORT_BACKENDS_HPP_
