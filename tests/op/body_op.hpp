// An operator whose body is written in the test that runs it.
#ifndef OPKIT_TESTS_OP_BODY_OP_HPP_
#define OPKIT_TESTS_OP_BODY_OP_HPP_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "opkit/op/create_operator.hpp"
#include "opkit/op/operator.hpp"

// Built directly, without a registry: it has no schema, so that outputs may share memory with
// inputs. `masks` are what a schema would say (bit i of masks[o]: output o may share with input i).
template <class Context>
class BodyOp final : public opkit::Operator<Context> {
 public:
  using Body = std::function<bool(BodyOp&)>;
  BodyOp(const opkit::OperatorDef& def, opkit::Workspace* ws, Body run = {})
      : opkit::Operator<Context>(def, ws), body(std::move(run)) {}

  bool RunOnDevice() override { return body(*this); }
  bool HasAsyncPart() const override { return Context::kAsynchronous || async_part; }

  void SetCustom() { this->set_invocation_kind(opkit::Invocation::Kind::kCustomOperator); }

  Body body;
  bool async_part = false;
};

using BodyOpCPU = BodyOp<opkit::CPUContext>;

// One that runs as if created with a schema that pairs output o with the inputs in masks[o].
template <class Context>
std::unique_ptr<BodyOp<Context>> WithSchema(std::unique_ptr<BodyOp<Context>> op,
                                            std::vector<uint64_t> masks) {
  op->SetRegistration("body_op.cc", 12);
  op->SetInplaceMasks(std::move(masks));
  return op;
}

#endif  // OPKIT_TESTS_OP_BODY_OP_HPP_
