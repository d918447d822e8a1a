// The first half of CheckOperator: what one run does to memory, whether it can be repeated, and
// whether the schema infers what comes out.
#ifndef OPKIT_OP_CHECK_CHECK_MEMORY_HPP_
#define OPKIT_OP_CHECK_CHECK_MEMORY_HPP_

#include "opkit/op/check/check_session.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class MemoryChecker : public CheckSession {
 public:
  using CheckSession::CheckSession;

 protected:
  // A run, what it wrote and read outside its outputs, and whether the same comes out again.
  // kOk also when something was found; what was thrown is `error`.
  Result CheckMemory(std::vector<Tensor>* outputs, std::string* error) {
    CheckedNode node = Node();
    node.Feed(case_->inputs);
    // Asynchronously first where that is possible at all: only then is there a deadline.
    const Result result = Run(node, Asynchronous() ? Mode::kAsync : Mode::kRun);
    if (result == Result::kStuck)
      Find("stuck", StrCat("its event is still SCHEDULED ", options_.deadline_ms,
                           " ms after RunAsync: nothing completes it"));
    if (result != Result::kOk) {
      *error = node.error();
      return result;
    }
    for (const std::string& sentence : node.Damage()) Find("outside", sentence);
    for (size_t i : node.ChangedInputs(case_->inputs)) {
      if (!MayChange(i))
        Find("input", StrCat("it changes ", NameOf("input", i, def_.inputs()),
                             ", which is not one of its outputs"));
    }
    *outputs = node.Outputs();
    for (size_t o = 0; o < outputs->size(); ++o)
      if (!def_.outputs()[o].empty() && !(*outputs)[o].initialized())
        Find("unset", StrCat("it never sets ", NameOf("output", o, def_.outputs())));
    if (Broken() || !options_.deterministic) return Result::kOk;

    CheckedNode again = Node();
    again.Feed(case_->inputs);
    if (!Expect(again, *outputs, "random", "run by a second operator of the same node"))
      return Result::kOk;
    CheckedNode other = Node(def_, kOtherFill);
    other.Feed(case_->inputs);
    if (Run(other) == Result::kOk) {
      const std::vector<Tensor> filled = other.Outputs();
      for (size_t o = 0; o < outputs->size(); ++o) CheckGarbage(o, (*outputs)[o], filled[o]);
    }
    CheckedNode fenced = Node(def_, kOtherFence);
    fenced.Feed(case_->inputs);
    if (Broken() || Run(fenced) != Result::kOk) return Result::kOk;
    if (const std::string how = Differs(fenced.Outputs(), *outputs); !how.empty())
      Find("beyond", StrCat("it reads outside its tensors: with other bytes around them ", how));
    return Result::kOk;
  }

 private:
  void CheckGarbage(size_t o, const Tensor& found, const Tensor& other) {
    if (Difference(other, found, 0).empty()) return;
    const std::string name = NameOf("output", o, def_.outputs());
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
        if (!filled(found, kPattern.fill) || !filled(other, kOtherFill.fill)) continue;
        if (unwritten++ == 0) first = i;
      }
    }
    Find("garbage",
         unwritten > 0
             ? StrCat("it leaves ", unwritten, " of ", found.numel(), " elements of ", name,
                      " unwritten",
                      found.rank() == 0 ? ", a scalar by its inferred shape: does inference say it?"
                                        : StrCat(", first ", PositionOf(found.shape(), first)))
             : StrCat("it reads memory that nobody wrote (the output before it is written, or "
                      "scratch): with other bytes there ",
                      name, ": ", Difference(other, found, 0)));
  }

 protected:
  std::vector<TensorInfo> Infos(bool symbolic) const {
    std::vector<TensorInfo> out;
    for (size_t i = 0; i < case_->inputs.size(); ++i) {
      const Tensor& input = case_->inputs[i];
      TensorInfo info = TensorInfo::Of(input, !symbolic && input.initialized());
      for (int axis = 0; symbolic && axis < input.rank(); ++axis)
        info.shape[axis] = Sym(StrCat("N", i, "_", axis));
      out.push_back(std::move(info));
    }
    return out;
  }
  bool InferenceAccepts() const {
    if (!schema_.has_inference()) return false;
    try {
      schema_.InferOutputs(def_, Infos(false));
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  void CheckInference(const std::vector<Tensor>& outputs) {
    if (!schema_.has_inference()) return;
    for (const bool symbolic : {false, true}) {
      std::vector<TensorInfo> infos;
      try {
        infos = schema_.InferOutputs(def_, Infos(symbolic));
        if (!symbolic) static_cast<void>(schema_.Cost(def_, Infos(false), infos));
      } catch (const std::exception& error) {
        const auto* known = dynamic_cast<const Error*>(&error);
        Find("inference",
             StrCat(symbolic ? "inference fails on symbolic extents (ask is_known(), or "
                               "declare NeedsAllInputShapes): "
                             : "inference or cost fails on inputs that the kernel runs: ",
                    known ? known->message() : error.what()));
        return;
      }
      for (size_t o = 0; o < outputs.size() && o < infos.size(); ++o) {
        const bool dtype_differs =
            infos[o].dtype != DType::kUndefined && infos[o].dtype != outputs[o].dtype();
        if (!dtype_differs && SymbolicShape::Merge(infos[o].shape, outputs[o].shape())) continue;
        Find(StrCat("shape ", o),
             StrCat(NameOf("output", o, def_.outputs()), ": inference says ", infos[o],
                    ", the kernel wrote ", outputs[o].dtype(), ToString(outputs[o].shape())));
      }
    }
  }
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_CHECK_CHECK_MEMORY_HPP_
