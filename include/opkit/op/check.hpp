// CheckOperator: one call that tests an operator against its own claims, every kernel of it that
// the host can run. Its report is sentences that an operator's author can act on.
#ifndef OPKIT_OP_CHECK_HPP_
#define OPKIT_OP_CHECK_HPP_

#include "opkit/op/check/check_report.hpp"
#include "opkit/op/gradient/gradient_check.hpp"

namespace opkit::inline OPKIT_ABI {

// Tests every kernel of the operator that the host can run: outputs as inferred; nothing written or
// read outside its tensors, inputs left alone, every element written; the same again in a second
// run and by a new operator, in place where allowed, with shared memory, by RunAsync, on several
// threads, from a strided input; every dtype its inputs claim, or that its inference
// accepts while it refuses others; empty and odd shapes; as the reference kernel; the gradient,
// where there is one.
//
// Inputs come from the schema's TestInputs; without them all have one shape and values of both
// signs, or, where inference accepts no one shape for all, shapes that it does. What both inference
// and the kernel refuse is left out, and what the kernel's Propose declines. Errors: kNotFound for
// an unknown operator, kInvalidArgument when no node can be made.
//
// The operator runs in a forked child of this process, so that a crash or a hang is a finding as
// well. Only the calling thread goes on in the child: the thread pools and CPU streams of the
// program are empty there and start threads anew. A lock of the operator's own that another thread
// holds at that moment stays locked in the child, which is then told as a hang. An operator with an
// asynchronous part of its own that nothing in the child completes is checked here instead, if this
// process has other threads: one of them may be what completes it. With in_child false, and under
// ThreadSanitizer, every operator runs here: the check then stands in for the CPU's allocator
// meanwhile, one check at a time.
//
//   CheckReport report = CheckOperator("Axpy");
//   if (!report.ok()) puts(ToString(report).c_str());
CheckReport CheckOperator(const std::string& op, const CheckOptions& options = {});
// The same for a node and inputs of the caller's: dense host tensors, a default-constructed one
// where the node leaves an input out. The device of the node does not matter.
CheckReport CheckOperator(const OperatorDef& def, const std::vector<Tensor>& inputs,
                          const CheckOptions& options = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/check.ipp"
#endif

#endif  // OPKIT_OP_CHECK_HPP_
