// MemoryChecker: finds writes and reads of one run outside its tensors, and results that cannot be
// repeated. For the definitions of op/check.hpp.
#ifndef OPKIT_OP_CHECK_CHECK_MEMORY_HPP_
#define OPKIT_OP_CHECK_CHECK_MEMORY_HPP_

#include "opkit/op/check/check_session.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class MemoryChecker {
 public:
  explicit MemoryChecker(CheckSession& session) : session_(session) {}

  // Runs the kernel, and finds writes and reads outside its tensors and results that cannot be
  // repeated. kOk also when something was found; `error` is the exception's text.
  CheckedRun Check(std::vector<Tensor>* outputs, std::string* error) {
    CheckedNode node = session_.Node();
    // Asynchronously first where that is possible at all: only then is there a deadline.
    const auto result =
        session_.Run(node, session_.Asynchronous() ? RunMode::kAsync : RunMode::kRun);
    if (result == CheckedRun::kStuck)
      session_.Find("stuck", StrCat("its event is still SCHEDULED ", session_.options.deadline_ms,
                                    " ms after RunAsync: nothing completes it"));
    if (result != CheckedRun::kOk) {
      *error = node.error();
      return result;
    }
    for (const std::string& sentence : node.Damage()) session_.Find("outside", sentence);
    for (size_t i : node.ChangedInputs(session_.tested->inputs)) {
      if (!session_.MayChange(i))
        session_.Find("input", StrCat("it changes ", session_.InputName(i),
                                      ", which is not one of its outputs"));
    }
    *outputs = node.Outputs();
    for (size_t o = 0; o < outputs->size(); ++o)
      if (!session_.def.outputs()[o].empty() && !(*outputs)[o].initialized())
        session_.Find("unset", StrCat("it never sets ", session_.OutputName(o)));
    if (session_.Broken() || !session_.options.deterministic) return CheckedRun::kOk;

    CheckedNode again = session_.Node();
    if (!session_.Expect(again, *outputs, "random", "run by a second operator of the same node"))
      return CheckedRun::kOk;
    CheckedNode other = session_.Node(CheckSession::kOtherFill);
    if (session_.Run(other) == CheckedRun::kOk) {
      const std::vector<Tensor> filled = other.Outputs();
      for (size_t o = 0; o < outputs->size(); ++o) CheckGarbage(o, (*outputs)[o], filled[o]);
    }
    CheckedNode fenced = session_.Node(CheckSession::kOtherFence);
    if (session_.Broken() || session_.Run(fenced) != CheckedRun::kOk) return CheckedRun::kOk;
    if (const std::string how = session_.Differs(fenced.Outputs(), *outputs); !how.empty())
      session_.Find("beyond",
                    StrCat("it reads outside its tensors: with other bytes around them ", how));
    return CheckedRun::kOk;
  }

 private:
  void CheckGarbage(size_t o, const Tensor& found, const Tensor& other) {
    if (Difference(other, found, 0).empty()) return;
    const std::string name = session_.OutputName(o);
    const int64_t item = ItemSize(found.dtype());
    int64_t unwritten = 0, first = -1;
    if (other.nbytes() == found.nbytes()) {
      for (int64_t i = 0; i < found.numel(); ++i) {
        auto filled = [&](const Tensor& tensor, uint8_t byte) {
          const auto* bytes = static_cast<const uint8_t*>(tensor.raw_data()) + i * item;
          for (int64_t b = 0; b < item; ++b)
            if (bytes[b] != byte) return false;
          return true;
        };
        if (!filled(found, CheckSession::kPattern.fill) ||
            !filled(other, CheckSession::kOtherFill.fill))
          continue;
        if (unwritten++ == 0) first = i;
      }
    }
    session_.Find(
        "garbage",
        unwritten > 0
            ? StrCat("it leaves ", unwritten, " of ", found.numel(), " elements of ", name,
                     " unwritten",
                     found.rank() == 0 ? ", a scalar by its inferred shape: does inference say it?"
                                       : StrCat(", first ", PositionOf(found.shape(), first)))
            : StrCat("it reads memory that nobody wrote (the output before it is written, or "
                     "scratch): with other bytes there ",
                     name, ": ", Difference(other, found, 0)));
  }

  CheckSession& session_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_CHECK_CHECK_MEMORY_HPP_
