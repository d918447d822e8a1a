// A workspace with named float32 vectors, and one operator on them.
#ifndef OPKIT_TESTS_SUPPORT_BENCH_HPP_
#define OPKIT_TESTS_SUPPORT_BENCH_HPP_

#include <memory>
#include <string>

#include "opkit/device/copy.hpp"
#include "opkit/op/create_operator.hpp"
#include "support/tensors.hpp"

struct Bench {
  explicit Bench(opkit::Device its_device = {}) : device(its_device) {}

  opkit::Tensor& Add(const std::string& name, const Floats& values) {
    opkit::Tensor& tensor = *ws.CreateTensor(name);
    if (IsHostAccessible(device.type)) return tensor = Vector(values);
    tensor = opkit::Tensor(device);
    Copy(Vector(values), &tensor);
    return tensor;
  }
  // Creates the operator on the device that `def` names.
  opkit::OperatorBase& Create(const opkit::OperatorDef& def) {
    op = CreateOperator(def, &ws);
    return *op;
  }
  // Creates an operator from x to y on the bench's device.
  opkit::OperatorBase& Create(const char* type) {
    return Create(opkit::OperatorDef(type, {"x"}, {"y"}).Device(device));
  }
  Floats Values(const std::string& name) {
    const opkit::Tensor& tensor = *ws.GetTensor(name);
    if (IsHostAccessible(tensor.device().type)) return tensor.ToVector<float>();
    opkit::Tensor host;
    Copy(tensor, &host);
    return host.ToVector<float>();
  }

  opkit::Device device;
  opkit::Workspace ws;
  std::unique_ptr<opkit::OperatorBase> op;
};

#endif  // OPKIT_TESTS_SUPPORT_BENCH_HPP_
