// CheckOperator: one call that tests every kernel of an operator that the host can run against the
// claims of its schema. The report is a list of sentences that the operator's author can act on.
#ifndef OPKIT_OP_CHECK_HPP_
#define OPKIT_OP_CHECK_HPP_

#include "opkit/op/check/check_report.hpp"
#include "opkit/op/gradient/gradient_check.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Tests every kernel of the operator that the host can run:
// - outputs have the inferred dtypes and shapes, and every element is written
// - the kernel writes and reads nothing outside its tensors, and leaves inputs unchanged
// - the results are the same in a second run, by a new operator, in place where allowed, with
//   shared memory, by RunAsync, on several threads, from a strided input, and by the reference
//   kernel
// - every dtype that the schema claims for the inputs works; without claims: if inference refuses
//   some dtypes, every dtype that inference accepts
// - empty and odd shapes work
// - the gradient, if there is one, is right
//
// Inputs come from the schema's TestInputs. Without them all inputs have one shape and values of
// both signs; if inference accepts no common shape, they have shapes that it accepts. Skips inputs
// that inference and the kernel both refuse, and inputs that the kernel's Propose declines. Throws
// kNotFound for an unknown operator, kInvalidArgument if no node can be made.
//
// The operator runs in a forked child of this process, so that a crash or a hang is a finding as
// well. Only the calling thread continues in the child: the program's thread pools and CPU streams
// are empty there and start new threads. If another thread holds a lock of the operator at the
// fork, the lock stays locked in the child, and the report shows a hang. If an operator has its own
// asynchronous part, nothing in the child may complete it. It is then checked in this process, if
// this process has other threads, which may complete it. With run.in_child false, and under
// ThreadSanitizer, every operator runs in this process. The check then replaces the CPU's allocator
// while it runs, and only one check runs at a time.
//
//   CheckReport report = CheckOperator("Axpy");
//   if (!report.ok()) puts(ToString(report).c_str());
CheckReport CheckOperator(const std::string& op, const CheckOptions& options = {});
// Tests a node on the caller's inputs: dense host tensors, or a default-constructed Tensor for an
// input that the node leaves out. The device of the node is ignored.
CheckReport CheckOperator(const OperatorDef& def, const std::vector<Tensor>& inputs,
                          const CheckOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/check.ipp"
#endif

#endif  // OPKIT_OP_CHECK_HPP_
