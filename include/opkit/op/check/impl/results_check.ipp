// ResultsCheck: the ways to run an operator that must give the same results: again, in place, with
// shared memory, strided, asynchronously, on several threads, by another kernel.
#ifndef OPKIT_OP_CHECK_IMPL_RESULTS_CHECK_IPP_
#define OPKIT_OP_CHECK_IMPL_RESULTS_CHECK_IPP_

#include <cstring>

#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/check/impl/checked_kernel.ipp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Compares the runs of a kernel on its current inputs with the results of its first run.
class ResultsCheck {
 public:
  // `expected` are the results of the first run; they must outlive this object.
  ResultsCheck(CheckedKernel& kernel, const std::vector<Tensor>& expected)
      : kernel_(kernel),
        target_(kernel.target()),
        inputs_(kernel.tested().inputs),
        expected_(expected) {}

  // Runs the operator in all ways. `base`, if not null, is a case that ran before, with its
  // outputs.
  void Run(const CheckCase* base, const std::vector<Tensor>& base_outputs) {
    if (!RunAgain(base, base_outputs)) return;
    RunInPlace();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      for (size_t j = i + 1; j < inputs_.size(); ++j) ShareInputs(i, j);
      for (size_t o = 0; o < expected_.size(); ++o) ShareOutput(i, o);
    }
    CheckedNode async = kernel_.Node();
    kernel_.Expect(async, expected_, "async", "run by RunAsync", RunMode::kAsync);
    if (kernel_.is_asynchronous() && !kernel_.is_stuck() &&
        !target_.schema.inputs_can_cross_devices())
      RunOnBusyStream();
    // A kernel that reads too early would read the dense copy before it exists.
    if (target_.options.compare.strided && !kernel_.is_stuck() && !kernel_.Found("order"))
      for (size_t i = 0; i < inputs_.size(); ++i) RunStrided(i);
    CheckedKernel* reference = kernel_.reference();
    if (!kernel_.is_stuck() && reference && !reference->is_stuck()) CompareWith(*reference);
  }
  // Runs the operator on several threads. If the inputs are generated, also on larger inputs of the
  // dtype.
  void RunOnThreads(DType dtype) {
    if (kernel_.is_asynchronous()) return;  // its work runs on the device's own threads
    if (!RunOnThreads(inputs_, expected_) || !kernel_.tested().guessed ||
        !target_.options.shapes.empty())
      return;
    // A case that is large enough for several threads.
    const CheckCase large = target_.Random({Shape{61, 1021}}, dtype, target_.options.seed);
    if (target_.schema.has_inference() &&
        !InferenceAccepts(target_.schema, target_.def, large.inputs))
      return;
    CheckedNode node = kernel_.Node(target_.def, large.inputs);
    if (kernel_.Run(node) != CheckedRun::kOk) return;
    const CheckCase& normal = kernel_.tested();
    kernel_.SetCase(&large);
    RunOnThreads(large.inputs, node.Outputs());
    kernel_.SetCase(&normal);
  }

 private:
  // True if an operator that has run before gives the same results as a new one.
  bool RunAgain(const CheckCase* base, const std::vector<Tensor>& base_outputs) {
    CheckedNode node = kernel_.Node();
    if (!kernel_.Expect(node, expected_, "async", "run by Run")) return false;
    node.Feed(inputs_);
    if (!kernel_.Expect(node, expected_, "state", "in its second run on the same inputs"))
      return false;
    if (!base) return true;
    node.Feed(base->inputs);
    return kernel_.Expect(node, base_outputs, "state",
                          StrCat("in a run on ", base->Describe(), " after one on these inputs"));
  }
  void RunInPlace() {
    for (size_t i = 0; i < target_.def.inputs().size(); ++i)
      for (size_t o = 0; o < target_.def.outputs().size(); ++o) {
        const int in = static_cast<int>(i), out = static_cast<int>(o);
        if (target_.def.inputs()[i].empty() || target_.def.outputs()[o].empty() ||
            !target_.schema.CanInplace(in, out) || target_.schema.MustInplace(in, out))
          continue;
        OperatorDef def = target_.def;
        def.mutable_outputs()[o] = target_.def.inputs()[i];
        if (!target_.schema.Verify(def).empty()) continue;
        CheckedNode node = kernel_.Node(def, inputs_);
        kernel_.Expect(node, expected_, StrCat("inplace ", i, " ", o),
                       StrCat("in place, with ", kernel_.OutputName(o), " in the blob of ",
                              kernel_.InputName(i), ","));
      }
  }
  // Runs the operator where two inputs share memory.
  void ShareInputs(size_t i, size_t j) {
    if (!AreAlike(inputs_[i], inputs_[j]) || IsWritten(i) || IsWritten(j)) return;
    std::vector<Tensor> same = inputs_;
    same[j] = same[i];
    CheckedNode apart = kernel_.Node(target_.def, same);
    // The operator may need two different values.
    if (kernel_.Run(apart) != CheckedRun::kOk) return;
    CheckedNode node = kernel_.Node(target_.def, same);
    *node.Input(j) = *node.Input(i);
    kernel_.Expect(
        node, apart.Outputs(), StrCat("inputs ", i, " ", j),
        StrCat("when ", kernel_.InputName(i), " and ", kernel_.InputName(j), " share memory"));
  }
  // Runs the operator where an output holds the memory of an input.
  void ShareOutput(size_t i, size_t o) {
    // An output with the name of an input already has the memory of this input.
    if (std::ranges::count(target_.def.inputs(), target_.def.outputs()[o]) ||
        !AreAlike(inputs_[i], expected_[o]) || IsWritten(i) ||
        kernel_.Found(StrCat("inplace ", i, " ", o)))
      return;
    const std::string problem = StrCat("alias ", i, " ", o);
    const std::string how =
        StrCat("when ", kernel_.OutputName(o), " holds the memory of ", kernel_.InputName(i));
    CheckedNode node = kernel_.Node(target_.def, inputs_);
    *node.Output(o) = *node.Input(i);
    if (kernel_.Expect(node, expected_, problem, how) &&
        !target_.schema.CanInplace(static_cast<int>(i), static_cast<int>(o)) &&
        std::ranges::count(node.ChangedInputs(inputs_), i))
      kernel_.Find(problem, StrCat(how,
                                   " it overwrites that input, though the schema does not allow it "
                                   "in place: get outputs by Output(i, shape, dtype)"));
  }
  static bool AreAlike(const Tensor& a, const Tensor& b) {
    return a.dtype() == b.dtype() && a.shape() == b.shape() && a.numel() > 0;
  }
  bool IsWritten(size_t i) const {
    const std::string& name = target_.def.inputs()[i];
    return name.empty() || std::ranges::count(target_.def.outputs(), name) || kernel_.MayChange(i);
  }
  // Runs the operator on a busy stream, and writes its inputs late: after the operator is issued,
  // but before the stream reaches its work.
  void RunOnBusyStream() {
    CheckedNode node = kernel_.Node();
    for (const std::string& name : target_.def.inputs())
      if (std::ranges::count(target_.def.outputs(), name)) return;
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].initialized()) *node.Input(i) = Tensor(inputs_[i].shape(), inputs_[i].dtype());
    Event gate, issued;
    gate.SetScheduled();
    issued.SetScheduled();
    ThreadPool opener(1);
    opener.Submit([&] {
      try {
        issued.Finish(std::chrono::milliseconds(target_.options.run.deadline_ms));
        gate.SetFinished();
      } catch (const Error&) {
        gate.SetFinished("RunOnDevice does not return before the stream has come to its work");
      }
    });
    const auto write_inputs = [&] {
      for (size_t i = 0; i < inputs_.size(); ++i)
        if (inputs_[i].nbytes() > 0)
          std::memcpy(node.Input(i)->raw_mutable_data(), inputs_[i].raw_data(),
                      static_cast<size_t>(inputs_[i].nbytes()));
      issued.SetFinished();
    };
    const CheckedRun result =
        kernel_.Run("issued on a busy stream", [&] { return node.RunBehind(gate, write_inputs); });
    if (!issued.IsFinished()) issued.SetFinished();
    if (result != CheckedRun::kOk)
      return kernel_.Find("order", StrCat("issued on a busy stream it fails: ", node.error()));
    kernel_.Compare(node.Outputs(), expected_, "order",
                    "it reads its inputs when it is issued, not when its stream has come to it: "
                    "given them late, ");
  }
  void RunStrided(size_t i) {
    const Tensor& input = inputs_[i];
    if (input.numel() < 2 || !input.initialized() || IsPacked(input.dtype())) return;
    CheckedNode node = kernel_.Node();
    // Behind every element lies an element that is not part of the tensor.
    Dims strides = input.shape().DenseStrides();
    for (int axis = 0; axis < strides.size(); ++axis) strides[axis] *= 2;
    const int64_t item = ItemSize(input.dtype());
    Storage storage = AllocateStorage(Device{}, 2 * input.nbytes());
    for (int64_t n = 0; n < input.numel(); ++n)
      std::memcpy(static_cast<char*>(storage->data()) + 2 * n * item,
                  static_cast<const char*>(input.raw_data()) + n * item, static_cast<size_t>(item));
    *node.Input(i) = Tensor(std::move(storage), 0, input.shape(), input.dtype(), strides);
    if (kernel_.Run(node) != CheckedRun::kOk) return;
    if (const std::string how = kernel_.Differs(node.Outputs(), expected_, true); !how.empty())
      kernel_.Find("strides",
                   StrCat("it reads the strided ", kernel_.InputName(i), " as if it were dense, ",
                          how, "; follow x.strides(), or let it arrive dense: AcceptsStrides()"));
  }
  void CompareWith(CheckedKernel& reference) {
    reference.SetCase(&kernel_.tested());
    CheckedNode node = reference.Node();
    if (reference.Run(node) == CheckedRun::kOk)
      kernel_.Compare(expected_, node.Outputs(), "reference",
                      StrCat("it gives another result than kernel ", reference.name(), ", "), true);
  }
  bool RunOnThreads(const std::vector<Tensor>& inputs, const std::vector<Tensor>& expected) {
    ThreadPool many(target_.options.compare.threads);
    PoolScope scope(many);
    for (int repeat = 0; repeat < 3; ++repeat) {
      CheckedNode node = kernel_.Node(target_.def, inputs);
      if (!kernel_.Expect(node, expected, "threads",
                          StrCat("on ", target_.options.compare.threads, " threads"), RunMode::kRun,
                          !target_.options.compare.bitwise_threads))
        return false;
    }
    return true;
  }

  CheckedKernel& kernel_;
  const CheckTarget& target_;
  const std::vector<Tensor>& inputs_;
  const std::vector<Tensor>& expected_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CHECK_IMPL_RESULTS_CHECK_IPP_
