// CheckOperator's definitions: every kernel runs every case through three groups of checks:
// inference, memory, and the ways to run that must give the same results.
#ifndef OPKIT_OP_IMPL_CHECK_IPP_
#define OPKIT_OP_IMPL_CHECK_IPP_

#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/check.hpp"
#include "opkit/op/check/check_session.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Inference: the schema must infer the dtypes and shapes that a kernel writes.

// Returns the dtypes of the current inputs, with their shapes and data, with symbols for extents,
// or with unknown shapes.
enum class Known { kAll, kSymbols, kNothing };
inline std::vector<TensorInfo> InferredInputs(const CheckSession& session, Known known) {
  std::vector<TensorInfo> out;
  for (size_t i = 0; i < session.tested->inputs.size(); ++i) {
    const Tensor& input = session.tested->inputs[i];
    TensorInfo info = known == Known::kAll ? TensorInfo::OfConstant(input) : TensorInfo::Of(input);
    if (known == Known::kNothing) info.shape = {};
    for (int axis = 0; known == Known::kSymbols && axis < input.rank(); ++axis)
      info.shape[axis] = Sym(StrCat("N", i, "_", axis));
    out.push_back(std::move(info));
  }
  return out;
}
inline void CheckInference(CheckSession& session, const std::vector<Tensor>& outputs) {
  if (!session.schema.has_inference() && !session.schema.limits_dtypes()) return;
  session.Begin("in its inference");
  for (const Known known : {Known::kAll, Known::kSymbols, Known::kNothing}) {
    std::vector<TensorInfo> infos;
    try {
      const std::vector<TensorInfo> inputs = InferredInputs(session, known);
      infos = session.schema.InferOutputs(session.def, inputs);
      if (known == Known::kAll) static_cast<void>(session.schema.Cost(session.def, inputs, infos));
    } catch (...) {
      session.Find(
          "inference",
          StrCat(known == Known::kAll ? "inference or cost fails on inputs that the kernel runs: "
                 : known == Known::kSymbols ? "inference fails on symbolic extents: "
                                            : "inference fails on shapes of unknown rank: ",
                 CurrentError().message()));
      return;
    }
    for (size_t o = 0; o < outputs.size() && o < infos.size(); ++o) {
      const bool dtype_differs =
          infos[o].dtype != DType::kUndefined && infos[o].dtype != outputs[o].dtype();
      if (!dtype_differs && SymbolicShape::Merge(infos[o].shape, outputs[o].shape())) continue;
      session.Find(StrCat("shape ", o),
                   StrCat(session.OutputName(o), ": inference says ", infos[o],
                          ", the kernel wrote ", outputs[o].dtype(), ToString(outputs[o].shape())));
    }
  }
}

// Memory: no run may write or read outside its tensors, and results must be repeatable.

inline void CheckGarbage(CheckSession& session, size_t o, const Tensor& found,
                         const Tensor& other) {
  if (Difference(other, found, 0).empty()) return;
  const std::string name = session.OutputName(o);
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
  session.Find(
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
// Runs the kernel, and finds writes and reads outside its tensors and results that cannot be
// repeated. Returns kOk also after a finding; `error` is the exception's text.
inline CheckedRun CheckMemory(CheckSession& session, std::vector<Tensor>* outputs,
                              std::string* error) {
  CheckedNode node = session.Node();
  // The first run is asynchronous where that is possible: only then is there a deadline.
  const auto result = session.Run(node, session.Asynchronous() ? RunMode::kAsync : RunMode::kRun);
  if (result == CheckedRun::kStuck)
    session.Find("stuck", StrCat("nothing completes its event, which is still SCHEDULED ",
                                 session.options.run.deadline_ms, " ms after RunAsync"));
  if (result != CheckedRun::kOk) {
    *error = node.error();
    return result;
  }
  for (const std::string& sentence : node.Damage()) session.Find("outside", sentence);
  for (size_t i : node.ChangedInputs(session.tested->inputs))
    if (!session.MayChange(i))
      session.Find("input", StrCat("it changes ", session.InputName(i),
                                   ", which is not one of its outputs"));
  *outputs = node.Outputs();
  for (size_t o = 0; o < outputs->size(); ++o)
    if (!session.def.outputs()[o].empty() && !(*outputs)[o].initialized())
      session.Find("unset", StrCat("it never sets ", session.OutputName(o)));
  if (session.Broken() || !session.options.compare.deterministic) return CheckedRun::kOk;

  CheckedNode again = session.Node();
  if (!session.Expect(again, *outputs, "random", "run by a second operator of the same node"))
    return CheckedRun::kOk;
  CheckedNode other = session.Node(CheckSession::kOtherFill);
  if (session.Run(other) == CheckedRun::kOk) {
    const std::vector<Tensor> filled = other.Outputs();
    for (size_t o = 0; o < outputs->size(); ++o) CheckGarbage(session, o, (*outputs)[o], filled[o]);
  }
  CheckedNode fenced = session.Node(CheckSession::kOtherFence);
  if (session.Broken() || session.Run(fenced) != CheckedRun::kOk) return CheckedRun::kOk;
  if (const std::string how = session.Differs(fenced.Outputs(), *outputs); !how.empty())
    session.Find("beyond",
                 StrCat("it reads outside its tensors: with other bytes around them ", how));
  return CheckedRun::kOk;
}

// Ways to run an operator that must give the same results: again, in place, with shared memory,
// strided, asynchronously, on several threads, by another kernel.

// True if an operator that has run before gives the same results as a new one.
inline bool CheckState(CheckSession& session, const std::vector<Tensor>& outputs,
                       const CheckCase* base, const std::vector<Tensor>& base_outputs) {
  CheckedNode node = session.Node();
  if (!session.Expect(node, outputs, "async", "run by Run")) return false;
  node.Feed(session.tested->inputs);
  if (!session.Expect(node, outputs, "state", "in its second run on the same inputs")) return false;
  if (!base) return true;
  node.Feed(base->inputs);
  return session.Expect(node, base_outputs, "state",
                        StrCat("in a run on ", base->Describe(), " after one on these inputs"));
}

// Runs the operator on a busy stream, and writes its inputs late: after the operator is issued, but
// before the stream reaches its work.
inline void CheckStreamOrder(CheckSession& session, const std::vector<Tensor>& outputs) {
  CheckedNode node = session.Node();
  for (const std::string& name : session.def.inputs())
    if (std::ranges::count(session.def.outputs(), name)) return;
  for (size_t i = 0; i < session.tested->inputs.size(); ++i)
    if (session.tested->inputs[i].initialized())
      *node.Input(i) = Tensor(session.tested->inputs[i].shape(), session.tested->inputs[i].dtype());
  Event gate, issued;
  gate.SetScheduled();
  issued.SetScheduled();
  ThreadPool opener(1);
  opener.Submit([&] {
    try {
      issued.Finish(std::chrono::milliseconds(session.options.run.deadline_ms));
      gate.SetFinished();
    } catch (const Error&) {
      gate.SetFinished("RunOnDevice does not return before the stream has come to its work");
    }
  });
  session.Begin("issued on a busy stream");
  ++session.report.runs;
  const auto result = node.RunBehind(gate, [&] {
    for (size_t i = 0; i < session.tested->inputs.size(); ++i)
      if (session.tested->inputs[i].nbytes() > 0)
        std::memcpy(node.Input(i)->raw_mutable_data(), session.tested->inputs[i].raw_data(),
                    static_cast<size_t>(session.tested->inputs[i].nbytes()));
    issued.SetFinished();
  });
  if (!issued.IsFinished()) issued.SetFinished();
  session.dead |= result == CheckedRun::kStuck;
  if (result != CheckedRun::kOk)
    return session.Find("order", StrCat("issued on a busy stream it fails: ", node.error()));
  if (const std::string how = session.Differs(node.Outputs(), outputs); !how.empty())
    session.Find("order",
                 StrCat("it reads its inputs when it is issued, not when its stream has come to "
                        "it: given them late, ",
                        how));
}
inline void CheckAsync(CheckSession& session, const std::vector<Tensor>& outputs) {
  CheckedNode async = session.Node();
  session.Expect(async, outputs, "async", "run by RunAsync", RunMode::kAsync);
  if (session.Asynchronous() && !session.dead && !session.schema.inputs_can_cross_devices())
    CheckStreamOrder(session, outputs);
}
inline void CheckReference(CheckSession& session, const std::vector<Tensor>& outputs) {
  const Kernel* kernel = std::exchange(session.kernel, session.reference);
  CheckedNode node = session.Node();
  const bool runs = session.Run(node) == CheckedRun::kOk;
  session.kernel = kernel;
  if (!runs) return;
  if (const std::string how = session.Differs(outputs, node.Outputs(), true); !how.empty())
    session.Find("reference", StrCat("it gives another result than kernel ",
                                     session.KernelName(*session.reference), ", ", how));
}
inline void CheckInplace(CheckSession& session, const std::vector<Tensor>& outputs) {
  for (size_t i = 0; i < session.def.inputs().size(); ++i)
    for (size_t o = 0; o < session.def.outputs().size(); ++o) {
      const int in = static_cast<int>(i), out = static_cast<int>(o);
      if (session.def.inputs()[i].empty() || session.def.outputs()[o].empty() ||
          !session.schema.CanInplace(in, out) || session.schema.MustInplace(in, out))
        continue;
      OperatorDef def = session.def;
      def.mutable_outputs()[o] = session.def.inputs()[i];
      if (!session.schema.Verify(def).empty()) continue;
      CheckedNode node = session.Node(def, session.tested->inputs);
      session.Expect(node, outputs, StrCat("inplace ", i, " ", o),
                     StrCat("in place, with ", session.OutputName(o), " in the blob of ",
                            session.InputName(i), ","));
    }
}
// Runs the operator where two inputs, or an input and an output, share memory.
inline void CheckAliases(CheckSession& session, const std::vector<Tensor>& outputs) {
  const std::vector<Tensor>& inputs = session.tested->inputs;
  auto alike = [](const Tensor& a, const Tensor& b) {
    return a.dtype() == b.dtype() && a.shape() == b.shape() && a.numel() > 0;
  };
  auto is_written = [&](size_t i) {
    const std::string& name = session.def.inputs()[i];
    return name.empty() || std::ranges::count(session.def.outputs(), name) || session.MayChange(i);
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t j = i + 1; j < inputs.size(); ++j) {
      if (!alike(inputs[i], inputs[j]) || is_written(i) || is_written(j)) continue;
      std::vector<Tensor> same = inputs;
      same[j] = same[i];
      CheckedNode apart = session.Node(session.def, same);
      // The operator may need two different values.
      if (session.Run(apart) != CheckedRun::kOk) continue;
      CheckedNode node = session.Node(session.def, same);
      *node.Input(j) = *node.Input(i);
      session.Expect(
          node, apart.Outputs(), StrCat("inputs ", i, " ", j),
          StrCat("when ", session.InputName(i), " and ", session.InputName(j), " share memory"));
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      // An output that is an input by name has that input's memory.
      const bool bound = std::ranges::count(session.def.inputs(), session.def.outputs()[o]) > 0;
      if (bound || !alike(inputs[i], outputs[o]) || is_written(i) ||
          session.Found(StrCat("inplace ", i, " ", o)))
        continue;
      const std::string how =
          StrCat("when ", session.OutputName(o), " holds the memory of ", session.InputName(i));
      CheckedNode node = session.Node(session.def, inputs);
      *node.Output(o) = *node.Input(i);
      if (!session.Expect(node, outputs, StrCat("alias ", i, " ", o), how)) continue;
      if (session.schema.CanInplace(static_cast<int>(i), static_cast<int>(o))) continue;
      if (std::ranges::count(node.ChangedInputs(inputs), i))
        session.Find(StrCat("alias ", i, " ", o),
                     StrCat(how,
                            " it overwrites that input, though the schema does not allow it in "
                            "place: get outputs by Output(i, shape, dtype)"));
    }
  }
}
inline void CheckStrides(CheckSession& session, const std::vector<Tensor>& outputs) {
  for (size_t i = 0; i < session.tested->inputs.size(); ++i) {
    const Tensor& input = session.tested->inputs[i];
    if (input.numel() < 2 || !input.initialized()) continue;
    CheckedNode node = session.Node();
    // Behind every element lies an element that is not part of the tensor.
    Dims strides = input.shape().DenseStrides();
    for (int axis = 0; axis < strides.size(); ++axis) strides[axis] *= 2;
    const int64_t item = ItemSize(input.dtype());
    Storage storage = AllocateStorage(Device{}, 2 * input.nbytes());
    for (int64_t n = 0; n < input.numel(); ++n)
      std::memcpy(static_cast<char*>(storage->data()) + 2 * n * item,
                  static_cast<const char*>(input.raw_data()) + n * item, static_cast<size_t>(item));
    *node.Input(i) = Tensor(std::move(storage), 0, input.shape(), input.dtype(), strides);
    if (session.Run(node) != CheckedRun::kOk) continue;
    if (const std::string how = session.Differs(node.Outputs(), outputs, true); !how.empty())
      session.Find("strides",
                   StrCat("it reads the strided ", session.InputName(i), " as if it were dense, ",
                          how, "; follow x.strides(), or let it arrive dense: AcceptsStrides()"));
  }
}
// Runs the operator in all ways. `outputs` are the results of a first run on the current inputs;
// `base`, if not null, is a case that ran before, with its outputs.
inline void CheckWays(CheckSession& session, const std::vector<Tensor>& outputs,
                      const CheckCase* base, const std::vector<Tensor>& base_outputs) {
  if (!CheckState(session, outputs, base, base_outputs)) return;
  CheckInplace(session, outputs);
  CheckAliases(session, outputs);
  CheckAsync(session, outputs);
  // A kernel that reads too early reads the dense copy before it is made.
  if (session.options.compare.strided && !session.dead && !session.Found("order"))
    CheckStrides(session, outputs);
  if (!session.dead && session.reference) CheckReference(session, outputs);
}
inline void CheckThreads(CheckSession& session, std::vector<Tensor> expected) {
  if (session.Asynchronous()) return;  // its work runs on the device's own threads
  ThreadPool many(session.options.compare.threads);
  auto compare = [&](const std::vector<Tensor>& inputs) {
    PoolScope scope(many);
    for (int repeat = 0; repeat < 3; ++repeat) {
      CheckedNode node = session.Node(session.def, inputs);
      if (!session.Expect(node, expected, "threads",
                          StrCat("on ", session.options.compare.threads, " threads"), RunMode::kRun,
                          !session.options.compare.bitwise_threads))
        return false;
    }
    return true;
  };
  if (!compare(session.tested->inputs) || !session.tested->guessed ||
      !session.options.shapes.empty())
    return;
  // A case that is large enough for several threads.
  const CheckCase large =
      MakeCase(session.schema, session.def, {Shape{61, 1021}}, session.dtype, session.options.seed);
  if (session.schema.has_inference() &&
      !InferenceAccepts(session.schema, session.def, large.inputs))
    return;
  CheckedNode node = session.Node(session.def, large.inputs);
  if (session.Run(node) != CheckedRun::kOk) return;
  expected = node.Outputs();
  const CheckCase* normal = std::exchange(session.tested, &large);
  compare(large.inputs);
  session.tested = normal;
}

inline void CheckGradients(CheckSession& session) {
  if (!session.options.compare.gradient || session.reference) return;
  if (!HasGradient(session.schema.name())) {
    if (!GradientRegistry::Global().Find(session.schema.name()))
      session.Note("its gradient, none is registered");
    return;
  }
  if (!session.options.compare.deterministic)
    return session.Note("its gradient, because two runs may differ: CheckGradient does");
  session.Begin("in the check of its gradient");
  try {
    OperatorDef def = session.def;
    def.Device(session.kernel->device).Backends(session.kernel->backend);
    GradientCheckOptions options;
    options.seed = session.options.seed;
    options.max_elements = 100;
    const GradientCheckResult result = CheckGradient(def, session.tested->inputs, options);
    for (const std::string& finding : result.findings)
      session.Find("gradient " + finding.substr(0, finding.find('\'')), finding);
    for (const std::string& note : result.notes) session.Note(note);
  } catch (const Error& error) {
    session.Find("gradient", StrCat("its gradient cannot be computed: ", error.message()));
  }
}
inline bool Claims(const OpSchema& schema, DType dtype) {
  for (const ValueSchema& input : schema.inputs())
    if (std::ranges::count(input.dtypes, dtype)) return true;
  return false;
}
inline void CheckCases(CheckSession& session, const std::vector<CheckCase>& cases) {
  const CheckCase* base = nullptr;  // the first case that runs
  std::vector<Tensor> base_outputs;
  const CheckCase* refused = nullptr;  // refused, but accepted by inference or not guessed
  bool unsupported = false;
  std::string error, refusal;
  for (const CheckCase& one : cases) {
    if (session.dead) break;
    session.tested = &one;
    std::vector<Tensor> outputs;
    auto result = CheckedRun::kUnsupported;
    try {
      error = WhyDeclined(*session.kernel, session.schema, session.def, one.inputs);
    } catch (...) {
      error = StrCat("its proposal fails: ", CurrentError().message());
      session.Find("proposal", error);
    }
    if (error.empty()) result = CheckMemory(session, &outputs, &error);
    if (result == CheckedRun::kUnsupported) {
      unsupported = true;
      session.Note(StrCat("kernel ", session.KernelName(*session.kernel), " on ", one.Describe(),
                          ", which it does not support: ", error));
    }
    if (result == CheckedRun::kRefused) {
      if (refusal.empty()) refusal = error;
      if (!refused && (!one.guessed || InferenceAccepts(session.schema, session.def, one.inputs)))
        refused = &one, refusal = error;
    }
    if (result != CheckedRun::kOk) continue;
    const bool first = !base;
    if (!session.Broken()) CheckInference(session, outputs);
    if (!session.Broken() && session.options.compare.deterministic) {
      CheckWays(session, outputs, base, base_outputs);
      if (first) CheckThreads(session, outputs);
    }
    if (!first) continue;
    base = &one;
    base_outputs = std::move(outputs);
    if (!session.Broken() && !session.Found("state") && !session.dead) CheckGradients(session);
  }
  session.tested = nullptr;
  if (!session.value.empty() && !base && !refusal.empty()) {
    session.Note(StrCat("kernel ", session.KernelName(*session.kernel), " with ", session.value,
                        " (", session.dtype,
                        "), which refuses the inputs that the others take: ", refusal));
  } else if (refused) {
    session.tested = refused;
    session.Find(StrCat("refused ", session.dtype),
                 StrCat(!refused->guessed ? "it refuses its test inputs: "
                        : base            ? "it refuses inputs that its inference accepts: "
                        : Claims(session.schema, session.dtype)
                            ? StrCat("its schema claims ", session.dtype, ", but it refuses that: ")
                            : "it refuses inputs that its inference accepts: ",
                        refusal));
    session.tested = nullptr;
  } else if (!base && !unsupported && !session.dead) {
    session.Find(
        StrCat("refused ", session.dtype),
        StrCat("kernel ", session.KernelName(*session.kernel),
               " refuses all inputs that were guessed (", session.dtype,
               "), the first with: ", refusal,
               "; give CheckOperator inputs, CheckOptions::dtypes or input_shapes, or the schema "
               "TestInputs"));
  }
}
// Checks all kernels of the operator. `given` are the caller's inputs; null for the schema's or
// generated inputs.
inline void CheckKernels(CheckSession& session, const std::vector<Tensor>* given) {
  GuardScope guard;
  ThreadPool single(1);
  PoolScope scope(single);
  std::vector<const Kernel*> kernels;
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(session.schema.name())) {
    if (!IsHostAccessible(kernel->device)) {
      session.Note(
          StrCat("kernel ", session.KernelName(*kernel), ", whose memory the host does not reach"));
    } else if (kernel->device == DeviceType::kCPU && kernel->backend == kReferenceBackend) {
      kernels.insert(kernels.begin(), kernel);
    } else {
      kernels.push_back(kernel);
    }
  }
  if (kernels.empty()) session.Find("kernels", "it has no kernel that the host can run");
  if (!session.schema.has_inference())
    session.Note("shapes and dtypes, because the schema infers none");
  if (std::ranges::none_of(kernels,
                           [](const Kernel* kernel) { return kernel->device != DeviceType::kCPU; }))
    session.Note("work on a stream, because no kernel is registered for cpu_stream");
  for (const Kernel* kernel : kernels) {
    session.kernel = kernel;
    session.reference = kernel == kernels[0] ? nullptr : kernels[0];
    session.dead = false;
    if (given) {
      std::vector<CheckCase> one(1);
      for (const Tensor& input : *given) one[0].inputs.push_back(CopyOf(input));
      CheckCases(session, one);
      continue;
    }
    for (DType dtype : CheckedDTypes(session.schema, session.def, session.options)) {
      session.dtype = dtype;
      CheckCases(session, MakeCases(session.schema, session.def, dtype, session.options));
    }
  }
}

// Checks the operator with every value of its string attributes, one at a time, except attributes
// that the caller gives.
inline CheckReport CheckValues(const OpSchema& schema, CheckOptions options,
                               const ChildReporter* voice, bool lacks_threads) {
  // Attributes to check, each with the value checked first.
  std::vector<std::pair<const AttributeSchema*, std::string>> open;
  for (const AttributeSchema& attribute : schema.attributes()) {
    if (attribute.values.empty() || attribute.type != AttributeType::kString ||
        options.args.Has(attribute.name))
      continue;
    const bool has_default = attribute.default_value && !attribute.required;
    open.emplace_back(&attribute, has_default ? attribute.default_value->Get<std::string>()
                                              : attribute.values[0]);
    if (attribute.required) options.args.Set(attribute.name, attribute.values[0]);
  }
  std::optional<CheckSession> session;
  session.emplace(schema, MakeCheckDef(schema, options), options, voice, lacks_threads);
  CheckKernels(*session, nullptr);
  for (const auto& [attribute, first] : open)
    for (const std::string& value : attribute->values) {
      if (value == first) continue;
      CheckOptions with_value = options;
      with_value.args.Set(attribute->name, value);
      const std::string told = StrCat(attribute->name, "=", value);
      std::optional<OperatorDef> def;
      try {
        def = MakeCheckDef(schema, with_value);
      } catch (const Error& error) {
        session->Note(StrCat(told, ": ", error.message()));
        continue;
      }
      CheckSession next(std::move(*session), std::move(*def), with_value, told);
      CheckKernels(next, nullptr);
      session.emplace(std::move(next));
    }
  return std::move(session->report);
}

inline constexpr char kLacksThreads[] =
    "; threads that this program had started do not run in the child: where the operator waits for "
    "one of them, check it with CheckOptions::run.in_child = false";

// Runs `body` in a child process, whose crash or hang is a finding. Runs it in this process if the
// caller requests it, or if a thread of this process may have to complete the operator's runs.
inline CheckReport CheckInChild(
    const std::string& op, const CheckOptions& options,
    FunctionRef<CheckReport(const ChildReporter* voice, bool lacks_threads)> body) {
  if (!options.run.in_child) return body(nullptr, false);
  constexpr char kNeedsTheParent[] = "parent";
  const bool has_threads = CountOtherThreads() > 0;
  const ChildOutcome outcome =
      RunInChild(options.run.hang_seconds, [&](const ChildReporter& voice) {
        voice.Step("in its inference");
        try {
          voice.Answer(PackReport(body(&voice, has_threads)));
        } catch (const NeedsTheParent&) {
          voice.Answer(kNeedsTheParent);
        }
        return ChildEnd::kAtOnce;
      });
  if (outcome.answer == kNeedsTheParent) return body(nullptr, false);
  CheckReport report = UnpackReport(outcome.answer);
  report.op = op;
  if (!outcome.failure.empty())
    report.findings.push_back(
        StrCat("operator ", op, " ", outcome.failure, ": ", outcome.how, ", ", outcome.step,
               outcome.failure == "hangs" && has_threads ? kLacksThreads : ""));
  return report;
}

}  // namespace detail

OPKIT_INLINE CheckReport CheckOperator(const std::string& op, const CheckOptions& options) {
  const detail::RegistryUse use;
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  return detail::CheckInChild(op, options, [&](const detail::ChildReporter* voice, bool lacks) {
    return detail::CheckValues(schema, options, voice, lacks);
  });
}
OPKIT_INLINE CheckReport CheckOperator(const OperatorDef& def, const std::vector<Tensor>& inputs,
                                       const CheckOptions& options) {
  const detail::RegistryUse use;
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  if (std::string why = schema.Verify(def); !why.empty())
    Throw(ErrorCode::kInvalidArgument, why, "; in ", ToString(def));
  if (inputs.size() != def.inputs().size())
    Throw(ErrorCode::kInvalidArgument, "CheckOperator of ", ToString(def), " needs ",
          def.inputs().size(), " inputs, found ", inputs.size());
  return detail::CheckInChild(def.type(), options,
                              [&](const detail::ChildReporter* voice, bool lacks) {
                                detail::CheckSession session(schema, def, options, voice, lacks);
                                detail::CheckKernels(session, &inputs);
                                return std::move(session.report);
                              });
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_CHECK_IPP_
