// WaysChecker: runs an operator in ways that must make no difference: again, in place, with shared
// memory, strided, asynchronously, on several threads, by another kernel. For the definitions of
// op/check.hpp.
#ifndef OPKIT_OP_CHECK_CHECK_WAYS_HPP_
#define OPKIT_OP_CHECK_CHECK_WAYS_HPP_

#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/check/check_session.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class WaysChecker {
 public:
  explicit WaysChecker(CheckSession& session) : session_(session) {}

  // `outputs` are those of a first run on the inputs in use; `base`, where given, are inputs that
  // ran before, with their outputs.
  void Check(const std::vector<Tensor>& outputs, const CheckCase* base,
             const std::vector<Tensor>& base_outputs) {
    if (!CheckState(outputs, base, base_outputs)) return;
    CheckInplace(outputs);
    CheckAliases(outputs);
    if (session_.options.strided) CheckStrides(outputs);
    CheckAsync(outputs);
    if (!session_.dead && session_.reference) CheckReference(outputs);
  }

  void CheckThreads(std::vector<Tensor> expected) {
    if (session_.Asynchronous()) return;  // its work runs on threads of the device's own
    ThreadPool many(session_.options.threads);
    auto compare = [&](const std::vector<Tensor>& inputs) {
      PoolScope scope(many);
      for (int repeat = 0; repeat < 3; ++repeat) {
        CheckedNode node = session_.Node(session_.def, inputs);
        if (!session_.Expect(node, expected, "threads",
                             StrCat("on ", session_.options.threads, " threads"), RunMode::kRun,
                             !session_.options.bitwise_threads))
          return false;
      }
      return true;
    };
    if (!compare(session_.tested->inputs) || !session_.tested->guessed ||
        !session_.options.shapes.empty())
      return;
    // Something to share out.
    const CheckCase large = MakeCase(session_.schema, session_.def, Shape{61, 1021}, session_.dtype,
                                     session_.options.seed);
    CheckedNode node = session_.Node(session_.def, large.inputs);
    if (session_.Run(node) != CheckedRun::kOk) return;
    expected = node.Outputs();
    const CheckCase* normal = std::exchange(session_.tested, &large);
    compare(large.inputs);
    session_.tested = normal;
  }

 private:
  // Whether an operator that has run before gives what a new one does.
  bool CheckState(const std::vector<Tensor>& outputs, const CheckCase* base,
                  const std::vector<Tensor>& base_outputs) {
    CheckedNode node = session_.Node();
    if (!session_.Expect(node, outputs, "async", "run by Run")) return false;
    node.Feed(session_.tested->inputs);
    if (!session_.Expect(node, outputs, "state", "in its second run on the same inputs"))
      return false;
    if (!base) return true;
    node.Feed(base->inputs);
    return session_.Expect(node, base_outputs, "state",
                           StrCat("in a run on ", base->Describe(), " after one on these inputs"));
  }

  void CheckAsync(const std::vector<Tensor>& outputs) {
    CheckedNode async = session_.Node();
    session_.Expect(async, outputs, "async", "run by RunAsync", RunMode::kAsync);
    if (session_.Asynchronous() && !session_.dead && !session_.schema.inputs_can_cross_devices())
      CheckStreamOrder(outputs);
  }
  void CheckReference(const std::vector<Tensor>& outputs) {
    const Kernel* kernel = std::exchange(session_.kernel, session_.reference);
    CheckedNode node = session_.Node();
    const bool runs = session_.Run(node) == CheckedRun::kOk;
    session_.kernel = kernel;
    if (!runs) return;
    if (const std::string how = session_.Differs(outputs, node.Outputs(), true); !how.empty())
      session_.Find("reference", StrCat("it gives another result than kernel ",
                                        session_.KernelName(*session_.reference), ", ", how));
  }
  // Inputs whose values come late, though before the work that its stream waits for.
  void CheckStreamOrder(const std::vector<Tensor>& outputs) {
    CheckedNode node = session_.Node();
    for (const std::string& name : session_.def.inputs())
      if (std::ranges::count(session_.def.outputs(), name)) return;
    for (size_t i = 0; i < session_.tested->inputs.size(); ++i)
      if (session_.tested->inputs[i].initialized())
        *node.Input(i) =
            Tensor(session_.tested->inputs[i].shape(), session_.tested->inputs[i].dtype());
    Event gate, issued;
    gate.SetScheduled();
    issued.SetScheduled();
    ThreadPool opener(1);
    opener.Submit([&] {
      try {
        issued.Finish(std::chrono::milliseconds(session_.options.deadline_ms));
        gate.SetFinished();
      } catch (const Error&) {
        gate.SetFinished("RunOnDevice does not return before the stream has come to its work");
      }
    });
    ++session_.report.runs;
    const auto result = node.RunBehind(gate, [&] {
      for (size_t i = 0; i < session_.tested->inputs.size(); ++i)
        if (session_.tested->inputs[i].nbytes() > 0)
          std::memcpy(node.Input(i)->raw_mutable_data(), session_.tested->inputs[i].raw_data(),
                      static_cast<size_t>(session_.tested->inputs[i].nbytes()));
      issued.SetFinished();
    });
    if (!issued.IsFinished()) issued.SetFinished();
    session_.dead |= result == CheckedRun::kStuck;
    if (result != CheckedRun::kOk)
      return session_.Find("order", StrCat("issued on a busy stream it fails: ", node.error()));
    if (const std::string how = session_.Differs(node.Outputs(), outputs); !how.empty())
      session_.Find("order",
                    StrCat("it reads its inputs when it is issued, not when its stream has come to "
                           "it: given them late, ",
                           how));
  }
  void CheckInplace(const std::vector<Tensor>& outputs) {
    for (size_t i = 0; i < session_.def.inputs().size(); ++i)
      for (size_t o = 0; o < session_.def.outputs().size(); ++o) {
        const int in = static_cast<int>(i), out = static_cast<int>(o);
        if (session_.def.inputs()[i].empty() || session_.def.outputs()[o].empty() ||
            !session_.schema.CanInplace(in, out) || session_.schema.MustInplace(in, out))
          continue;
        OperatorDef def = session_.def;
        def.mutable_outputs()[o] = session_.def.inputs()[i];
        if (!session_.schema.Verify(def).empty()) continue;
        CheckedNode node = session_.Node(def, session_.tested->inputs);
        session_.Expect(node, outputs, StrCat("inplace ", i, " ", o),
                        StrCat("in place, with ", session_.OutputName(o), " in the blob of ",
                               session_.InputName(i), ","));
      }
  }
  // Memory that two inputs, or an input and an output, share.
  void CheckAliases(const std::vector<Tensor>& outputs) {
    const std::vector<Tensor>& inputs = session_.tested->inputs;
    auto alike = [](const Tensor& a, const Tensor& b) {
      return a.dtype() == b.dtype() && a.shape() == b.shape() && a.numel() > 0;
    };
    auto is_written = [&](size_t i) {
      const std::string& name = session_.def.inputs()[i];
      return name.empty() || std::ranges::count(session_.def.outputs(), name) ||
             session_.MayChange(i);
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (size_t j = i + 1; j < inputs.size(); ++j) {
        if (!alike(inputs[i], inputs[j]) || is_written(i) || is_written(j)) continue;
        std::vector<Tensor> same = inputs;
        same[j] = same[i];
        CheckedNode apart = session_.Node(session_.def, same);
        if (session_.Run(apart) != CheckedRun::kOk) continue;  // it may need different values
        CheckedNode node = session_.Node(session_.def, same);
        *node.Input(j) = *node.Input(i);
        session_.Expect(node, apart.Outputs(), StrCat("inputs ", i, " ", j),
                        StrCat("when ", session_.InputName(i), " and ", session_.InputName(j),
                               " share memory"));
      }
      for (size_t o = 0; o < outputs.size(); ++o) {
        // An output that is an input by name has that input's memory.
        const bool bound = std::ranges::count(session_.def.inputs(), session_.def.outputs()[o]) > 0;
        if (bound || !alike(inputs[i], outputs[o]) || is_written(i) ||
            session_.Found(StrCat("inplace ", i, " ", o)))
          continue;
        const std::string how =
            StrCat("when ", session_.OutputName(o), " holds the memory of ", session_.InputName(i));
        CheckedNode node = session_.Node(session_.def, inputs);
        *node.Output(o) = *node.Input(i);
        if (!session_.Expect(node, outputs, StrCat("alias ", i, " ", o), how)) continue;
        if (session_.schema.CanInplace(static_cast<int>(i), static_cast<int>(o))) continue;
        if (std::ranges::count(node.ChangedInputs(inputs), i))
          session_.Find(StrCat("alias ", i, " ", o),
                        StrCat(how,
                               " it overwrites that input, though the schema does not allow it in "
                               "place: get outputs by Output(i, shape, dtype)"));
      }
    }
  }
  void CheckStrides(const std::vector<Tensor>& outputs) {
    for (size_t i = 0; i < session_.tested->inputs.size(); ++i) {
      const Tensor& input = session_.tested->inputs[i];
      if (input.numel() < 2 || !input.initialized()) continue;
      CheckedNode node = session_.Node();
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
      if (session_.Run(node) != CheckedRun::kOk) continue;
      if (const std::string how = session_.Differs(node.Outputs(), outputs, true); !how.empty())
        session_.Find(
            "strides",
            StrCat("it reads the strided ", session_.InputName(i), " as if it were dense, ", how,
                   "; refuse it (OPKIT_ENFORCE(x.is_dense())) or follow x.strides()"));
    }
  }

  CheckSession& session_;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_CHECK_CHECK_WAYS_HPP_
