// PassOn: an operator that copies its first input, for benchmarks of large graphs. A program that
// includes this header declares the schema.
#ifndef OPKIT_BENCH_GRAPH_PASS_ON_HPP_
#define OPKIT_BENCH_GRAPH_PASS_ON_HPP_

#include "opkit/opkit.hpp"

namespace pass_on {

class PassOnOp final : public opkit::Operator<opkit::CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    OutputTensorCopyFrom(0, Input(0));
    return true;
  }
};
REGISTER_CPU_OPERATOR(PassOn, PassOnOp);

}  // namespace pass_on

#endif  // OPKIT_BENCH_GRAPH_PASS_ON_HPP_
