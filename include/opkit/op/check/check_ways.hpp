// The second half of CheckOperator: ways to run that must make no difference: again, in place, with
// shared memory, strided, asynchronously, on several threads, by another kernel.
#ifndef OPKIT_OP_CHECK_CHECK_WAYS_HPP_
#define OPKIT_OP_CHECK_CHECK_WAYS_HPP_

#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/check/check_memory.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class WaysChecker : public MemoryChecker {
 public:
  using MemoryChecker::MemoryChecker;

 protected:
  void CheckOutputs(const std::vector<Tensor>& outputs, const CheckCase* base,
                    const std::vector<Tensor>& base_outputs) {
    if (!CheckState(outputs, base, base_outputs)) return;
    CheckInplace(outputs);
    CheckAliases(outputs);
    if (options_.strided) CheckStrides(outputs);
    CheckAsync(outputs);
    if (!dead_ && reference_) CheckReference(outputs);
  }

 private:
  // Whether an operator that has run before gives what a new one does.
  bool CheckState(const std::vector<Tensor>& outputs, const CheckCase* base,
                  const std::vector<Tensor>& base_outputs) {
    CheckedNode node = Node();
    node.Feed(case_->inputs);
    if (!Expect(node, outputs, "async", "run by Run")) return false;
    node.Feed(case_->inputs);
    if (!Expect(node, outputs, "state", "in its second run on the same inputs")) return false;
    if (!base) return true;
    node.Feed(base->inputs);
    return Expect(node, base_outputs, "state",
                  StrCat("in a run on ", base->Describe(), " after one on these inputs"));
  }

  void CheckAsync(const std::vector<Tensor>& outputs) {
    CheckedNode async = Node();
    async.Feed(case_->inputs);
    Expect(async, outputs, "async", "run by RunAsync", Mode::kAsync);
    if (Asynchronous() && !dead_ && !schema_.inputs_can_cross_devices()) CheckStreamOrder(outputs);
  }
  void CheckReference(const std::vector<Tensor>& outputs) {
    const Kernel* kernel = std::exchange(kernel_, reference_);
    CheckedNode node = Node();
    node.Feed(case_->inputs);
    const bool runs = Run(node) == Result::kOk;
    kernel_ = kernel;
    if (!runs) return;
    if (const std::string how = Differs(outputs, node.Outputs(), true); !how.empty())
      Find("reference",
           StrCat("it gives another result than kernel ", KernelName(*reference_), ", ", how));
  }
  // Inputs whose values come late, though before the work that its stream waits for.
  void CheckStreamOrder(const std::vector<Tensor>& outputs) {
    CheckedNode node = Node();
    node.Feed(case_->inputs);
    for (const std::string& name : def_.inputs())
      for (const std::string& output : def_.outputs())
        if (name == output) return;
    for (size_t i = 0; i < case_->inputs.size(); ++i)
      if (case_->inputs[i].initialized())
        *node.Input(i) = Tensor(case_->inputs[i].shape(), case_->inputs[i].dtype());
    Event gate, issued;
    gate.SetScheduled();
    issued.SetScheduled();
    ThreadPool opener(1);
    opener.Submit([&] {
      try {
        issued.Finish(Milliseconds{options_.deadline_ms});
        gate.SetFinished();
      } catch (const Error&) {
        gate.SetFinished("RunOnDevice does not return before the stream has come to its work");
      }
    });
    ++report_.runs;
    const Result result = node.RunBehind(gate, [&] {
      for (size_t i = 0; i < case_->inputs.size(); ++i)
        if (case_->inputs[i].nbytes() > 0)
          std::memcpy(node.Input(i)->raw_mutable_data(), case_->inputs[i].raw_data(),
                      static_cast<size_t>(case_->inputs[i].nbytes()));
      issued.SetFinished();
    });
    if (!issued.IsFinished()) issued.SetFinished();
    dead_ |= result == Result::kStuck;
    if (result != Result::kOk)
      return Find("order", StrCat("issued on a busy stream it fails: ", node.error()));
    if (const std::string how = Differs(node.Outputs(), outputs); !how.empty())
      Find("order", StrCat("it reads its inputs when it is issued, not when its stream has come to "
                           "it: given them late, ",
                           how));
  }
  void CheckInplace(const std::vector<Tensor>& outputs) {
    for (size_t i = 0; i < def_.inputs().size(); ++i)
      for (size_t o = 0; o < def_.outputs().size(); ++o) {
        const int in = static_cast<int>(i), out = static_cast<int>(o);
        if (def_.inputs()[i].empty() || def_.outputs()[o].empty() || !schema_.CanInplace(in, out) ||
            schema_.MustInplace(in, out))
          continue;
        OperatorDef def = def_;
        def.mutable_outputs()[o] = def_.inputs()[i];
        if (!schema_.Verify(def).empty()) continue;
        CheckedNode node = Node(def);
        node.Feed(case_->inputs);
        Expect(node, outputs, StrCat("inplace ", i, " ", o),
               StrCat("in place, with ", NameOf("output", o, def_.outputs()), " in the blob of ",
                      NameOf("input", i, def_.inputs()), ","));
      }
  }
  // Memory that two inputs, or an input and an output, share.
  void CheckAliases(const std::vector<Tensor>& outputs) {
    const std::vector<Tensor>& inputs = case_->inputs;
    auto alike = [](const Tensor& a, const Tensor& b) {
      return a.dtype() == b.dtype() && a.shape() == b.shape() && a.numel() > 0;
    };
    auto is_written = [&](size_t i) {
      for (const std::string& name : def_.outputs())
        if (name == def_.inputs()[i]) return true;
      return def_.inputs()[i].empty() || MayChange(i);
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (size_t j = i + 1; j < inputs.size(); ++j) {
        if (!alike(inputs[i], inputs[j]) || is_written(i) || is_written(j)) continue;
        std::vector<Tensor> same = inputs;
        same[j] = same[i];
        CheckedNode apart = Node();
        apart.Feed(same);
        if (Run(apart) != Result::kOk) continue;  // it may need different values
        CheckedNode node = Node();
        node.Feed(same);
        *node.Input(j) = *node.Input(i);
        Expect(node, apart.Outputs(), StrCat("inputs ", i, " ", j),
               StrCat("when ", NameOf("input", i, def_.inputs()), " and ",
                      NameOf("input", j, def_.inputs()), " share memory"));
      }
      for (size_t o = 0; o < outputs.size(); ++o) {
        bool bound = false;  // an output that is an input by name has that one's memory
        for (const std::string& name : def_.inputs()) bound |= name == def_.outputs()[o];
        if (bound || !alike(inputs[i], outputs[o]) || is_written(i) ||
            Found(StrCat("inplace ", i, " ", o)))
          continue;
        const std::string how = StrCat("when ", NameOf("output", o, def_.outputs()),
                                       " holds the memory of ", NameOf("input", i, def_.inputs()));
        CheckedNode node = Node();
        node.Feed(inputs);
        *node.Output(o) = *node.Input(i);
        if (!Expect(node, outputs, StrCat("alias ", i, " ", o), how)) continue;
        if (schema_.CanInplace(static_cast<int>(i), static_cast<int>(o))) continue;
        for (size_t changed : node.ChangedInputs(inputs))
          if (changed == i)
            Find(StrCat("alias ", i, " ", o),
                 StrCat(how,
                        " it overwrites that input, though the schema does not allow it in "
                        "place: get outputs by Output(i, shape, dtype)"));
      }
    }
  }
  void CheckStrides(const std::vector<Tensor>& outputs) {
    for (size_t i = 0; i < case_->inputs.size(); ++i) {
      const Tensor& input = case_->inputs[i];
      if (input.numel() < 2 || !input.initialized()) continue;
      CheckedNode node = Node();
      node.Feed(case_->inputs);
      // Every element is followed by one that is not part of it.
      Dims strides = input.shape().DenseStrides();
      for (int axis = 0; axis < strides.size(); ++axis) strides[axis] *= 2;
      const int64_t item = ItemSize(input.dtype());
      Storage storage = AllocateStorage(Device{}, 2 * input.nbytes());
      for (int64_t n = 0; n < input.numel(); ++n)
        std::memcpy(static_cast<char*>(storage->data()) + 2 * n * item,
                    static_cast<const char*>(input.raw_data()) + n * item,
                    static_cast<size_t>(item));
      *node.Input(i) = Tensor(std::move(storage), 0, input.shape(), input.dtype(), strides);
      if (Run(node) != Result::kOk) continue;
      if (const std::string how = Differs(node.Outputs(), outputs, true); !how.empty())
        Find("strides", StrCat("it reads the strided ", NameOf("input", i, def_.inputs()),
                               " as if it were dense, ", how,
                               "; refuse it (OPKIT_ENFORCE(x.is_dense())) or follow x.strides()"));
    }
  }

 protected:
  void CheckThreads(std::vector<Tensor> expected) {
    if (Asynchronous()) return;  // its work runs on threads of the device's own
    ThreadPool many(options_.threads);
    auto compare = [&](const std::vector<Tensor>& inputs) {
      PoolScope scope(many);
      for (int repeat = 0; repeat < 3; ++repeat) {
        CheckedNode node = Node();
        node.Feed(inputs);
        if (!Expect(node, expected, "threads", StrCat("on ", options_.threads, " threads"),
                    Mode::kRun, !options_.bitwise_threads))
          return false;
      }
      return true;
    };
    if (!compare(case_->inputs) || !case_->guessed || !options_.shapes.empty()) return;
    // Something to share out.
    const CheckCase large = MakeCase(schema_, def_, Shape{61, 1021}, dtype_, options_.seed);
    CheckedNode node = Node();
    node.Feed(large.inputs);
    if (Run(node) != Result::kOk) return;
    expected = node.Outputs();
    const CheckCase* normal = std::exchange(case_, &large);
    compare(large.inputs);
    case_ = normal;
  }
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_CHECK_CHECK_WAYS_HPP_
