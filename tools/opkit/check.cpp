// opkit check: compares each operator of a library with its own claims on generated inputs, and
// runs each partitioner and each pass on a generated graph, each in a separate process.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "file.hpp"
#include "library.hpp"
#include "model.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/partition/partition.hpp"
#include "opkit/graph/passes/named_pass.hpp"
#include "opkit/op/check.hpp"
#include "opkit/op/check/check_cases.hpp"
#include "opkit/op/check/check_data.hpp"
#include "opkit/op/check/guard_allocator.hpp"
#include "opkit/op/check/input_finder.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/invoke.hpp"
#include "options.hpp"
#include "terminal.hpp"
#include "via.hpp"

namespace cli {
namespace {

using namespace opkit;

struct CheckCommand {
  std::string library, op;
  std::vector<std::string> attributes;  // name=value
  std::vector<std::string> shapes;      // one for each input, or one for all
  double seconds = kChildSeconds;       // limit of one step
  std::vector<std::string> hosts;       // of --via
};

// The result of the checks of one operator.
struct Findings {
  std::vector<std::string> wrong, not_checked;
  std::set<std::string> inputs;  // the inputs of its runs
  bool more = false;             // CheckOperator ran too, on further inputs
  int runs = 0;

  void Add(const CheckReport& report) {
    runs += report.runs;
    for (const std::string& finding : report.findings) AddOnce(&wrong, finding);
    for (const std::string& note : report.notes) AddOnce(&not_checked, note);
  }
  void NotChecked(const std::string& what) { AddOnce(&not_checked, what); }
  // Adds a text once: texts that differ only in the inputs, in brackets at the end, are equal.
  static void AddOnce(std::vector<std::string>* list, const std::string& text) {
    const std::string what = text.substr(0, text.rfind("  ["));
    for (const std::string& known : *list)
      if (known.substr(0, known.rfind("  [")) == what) return;
    list->push_back(text);
  }
};

// Checks one operator of the library, in the child process.
class OperatorChecks {
 public:
  OperatorChecks(const Library& library, const CheckCommand& command, const ChildReporter& voice)
      : library_(library),
        attributes_(ParseAttributes(command.attributes)),
        seconds_(command.seconds),
        voice_(voice) {
    for (const std::string& text : command.shapes) shapes_.push_back(ParseShape(text));
  }

  Findings Check(const std::string& op) {
    const OpSchema& schema = OpRegistry::Global().GetSchema(op);
    own_ = schema.origin() == library_.name();
    if (!RunsHere(op)) {
      findings_.NotChecked("its kernels are for " + KernelsOf(library_, op) +
                           ", whose memory this program does not reach");
      return std::move(findings_);
    }
    if (schema.needs_subgraph()) {
      findings_.NotChecked("its run, which needs a graph from a partitioner");
      return std::move(findings_);
    }
    voice_.Step("its inference");
    OperatorDef def;
    CheckOptions options;
    options.args = attributes_;
    try {
      def = detail::MakeCheckDef(schema, options);
    } catch (const Error& error) {
      return Refused(error.message() + "; give its attributes with --attr NAME=VALUE");
    }
    if (shapes_.size() > 1 && shapes_.size() != def.inputs().size())
      throw Failure(ExitCode::kUsage,
                    StrCat("operator ", op, " has ", Counted(def.inputs().size(), "input"),
                           ", --shape gives ", shapes_.size()));
    if (own_ && shapes_.empty() && !schema.MakeTestInputs(DType::kFloat32, 1).empty()) {
      CheckMore(op);  // runs on these inputs
      findings_.more = false;
      findings_.inputs.insert("the operator's own");
      return std::move(findings_);
    }
    detail::InputFinder finder(schema, def, shapes_);
    const std::vector<detail::InputTypes> all = finder.Find();
    if (all.empty())
      return Refused(
          "its inference refuses every input that was tried, the first with: " + finder.refusal() +
          "; give shapes with --shape 2x3, attributes with --attr NAME=VALUE");
    if (own_ && schema.Arity(def.args()).second < 0)
      findings_.NotChecked(
          "the number of its outputs, which it does not declare: Invoke needs "
          "InvokeOptions::num_outputs; setParseAttrs declares the number");
    for (const detail::InputTypes& inputs : all) {
      CheckOn(def, inputs);
      if (!findings_.wrong.empty()) break;  // one list of inputs is enough to show a mistake
    }
    if (own_ && takes_all_ && shapes_.empty() && findings_.wrong.empty()) CheckMore(op);
    for (const auto& [dtype, reasons] : refused_) {
      if (findings_.inputs.empty())
        return Refused("it refuses every input that was tried, the first with: " + reasons[0]);
      findings_.NotChecked(dtype + ", which it refuses: " + reasons[0]);
    }
    return std::move(findings_);
  }

 private:
  Findings Refused(const std::string& why) {
    findings_.wrong.push_back(why);
    return std::move(findings_);
  }

  bool RunsHere(const std::string& op) const {
    for (const Kernel* kernel : OpRegistry::Global().KernelsOf(op))
      if (kernel->origin == library_.name() && IsHostAccessible(kernel->device)) return true;
    return false;
  }

  void CheckOn(const OperatorDef& def, const detail::InputTypes& inputs) {
    detail::CheckCase made = detail::MakeCase(inputs, 1);
    const std::string text = made.Describe();
    voice_.Step(StrCat("a run on ", text));
    std::vector<Tensor>& tensors = made.inputs;
    CheckReport report = Report(def, tensors);
    std::string refusal;
    if (!report.ok() && Run(def, tensors, &refusal).empty()) {
      takes_all_ = false;
      for (Tensor& tensor : tensors) MakePositive(&tensor);
      std::string ignored;
      if (!Run(def, tensors, &ignored).empty()) {
        report = Report(def, tensors);
        report.notes.push_back("numbers below 0, which it refuses: " + refusal);
      } else if (LeavesShapesOpen(def, tensors)) {
        findings_.NotChecked("it does not infer its outputs' shapes: " + refusal);
        return;
      } else if (!own_) {  // a further kernel may refuse dtypes of the operator
        refused_[inputs.empty() ? "" : StrCat(inputs[0].dtype)].push_back(refusal);
        return;
      }
    }
    findings_.inputs.insert(text);
    findings_.Add(report);
    if (report.ok() && own_ && HasGradient(def.type())) CheckBackward(def, tensors);
  }
  // Runs the operator on empty and odd shapes in turn and with each value of its text attributes,
  // in a further child process, which names the inputs of a crash.
  void CheckMore(const std::string& op) {
    voice_.Step("its runs on empty and odd inputs", /*limited=*/false);
    CheckOptions options;
    options.args = attributes_;
    options.run.hang_seconds = seconds_;
    findings_.Add(CheckOperator(op, options));
    findings_.more = true;
  }
  CheckReport Report(const OperatorDef& def, const std::vector<Tensor>& inputs) const {
    CheckOptions options;
    options.run.in_child = false;  // this process is a child already
    CheckReport report = CheckOperator(def, inputs, options);
    // For an operator of the program, keeps the findings of the library's kernels only.
    const std::string tag = "/" + library_.backend() + "; ";
    if (!own_)
      std::erase_if(report.findings,
                    [&](const std::string& text) { return text.find(tag) == text.npos; });
    return report;
  }
  // True if the caller gives the shapes of the outputs.
  static bool LeavesShapesOpen(const OperatorDef& def, const std::vector<Tensor>& inputs) {
    std::vector<TensorInfo> infos;
    for (const Tensor& input : inputs) infos.push_back(TensorInfo::Of(input));
    for (const TensorInfo& output :
         OpRegistry::Global().GetSchema(def.type()).InferOutputs(def, infos))
      if (!output.shape.has_rank()) return true;
    return false;
  }
  static void MakePositive(Tensor* tensor) {
    for (int64_t i = 0; i < tensor->numel(); ++i)
      detail::SetNumber(*tensor, i, std::fabs(detail::GetNumber(*tensor, i)));
  }

  // Checks the backward functions, which write to memory of their own.
  void CheckBackward(const OperatorDef& def, const std::vector<Tensor>& inputs) {
    const std::string backward = def.type() + "_backward";
    std::string refusal;
    const std::vector<Tensor> outputs = Run(def, inputs, &refusal);
    if (!OpRegistry::Global().FindSchema(backward) || !refusal.empty()) return;
    std::vector<Tensor> all;
    OperatorDef node(backward, {}, {}, def.args());
    for (const Tensor& output : outputs)
      all.push_back(RandomTensor(output.shape(), output.dtype(), 7 + all.size()));
    all.insert(all.end(), inputs.begin(), inputs.end());
    all.insert(all.end(), outputs.begin(), outputs.end());
    for (size_t i = 0; i < all.size(); ++i) node.Input(StrCat("input", i));
    for (size_t i = 0; i < inputs.size(); ++i) node.Output(StrCat("gradient", i));
    CheckOptions options;
    options.compare.gradient = false;
    options.run.in_child = false;
    CheckReport report = CheckOperator(node, all, options);
    // A backward operator that needs the state of a forward run cannot run alone.
    if (!report.ok() && Run(node, all, &refusal).empty()) return;
    for (std::string& finding : report.findings) finding = "backward: " + finding;
    findings_.Add(report);
  }

  // If the run fails, returns no outputs and sets `refusal` to the reason.
  std::vector<Tensor> Run(const OperatorDef& def, const std::vector<Tensor>& inputs,
                          std::string* refusal) const {
    InvokeOptions options;
    options.backends = own_ ? "" : library_.backend();
    options.num_outputs = static_cast<int>(def.outputs().size());
    try {
      return Invoke(def.type(), inputs, def.args(), options);
    } catch (const Error& error) {
      *refusal = error.message();
      return {};
    }
  }

  const Library& library_;
  const Arguments attributes_;
  const double seconds_;  // of one step
  std::vector<Shape> shapes_;
  const ChildReporter& voice_;
  bool own_ = true;        // false: another backend of an existing operator
  bool takes_all_ = true;  // false: it refused inputs that its inference accepts
  std::map<std::string, std::vector<std::string>> refused_;  // by dtype, with why
  Findings findings_;
};

std::string TextOf(const Findings& findings) {
  std::string out;
  if (findings.wrong.empty() && findings.runs > 0) {
    out += StrCat("  nothing wrong in ", Counted(static_cast<size_t>(findings.runs), "run"), " on ",
                  Counted(findings.inputs.size(), "list"),
                  findings.more ? " of inputs, and on empty and odd ones\n" : " of inputs\n");
  }
  for (const std::string& text : findings.wrong)
    out += "  " + Red("wrong:", stdout) + " " + Printable(text) + "\n";
  for (const std::string& text : findings.not_checked)
    out += "  not checked: " + Printable(text) + "\n";
  return out;
}

Findings Wrong(const std::string& what) {
  Findings out;
  out.wrong.push_back(what);
  return out;
}

// A small graph of standard operators, with a branch.
Graph GraphToChange() {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {2, 3});
  const auto add = [&](const char* type, std::vector<std::string> in, const char* out) {
    graph.AddNode(OperatorDef(type, std::move(in), {out}).Name(std::string("node_") + out));
  };
  add("Exp", {"X"}, "A");
  add("Log", {"A"}, "B");
  add("Relu", {"B"}, "C");
  add("Neg", {"A"}, "D");
  add("Abs", {"D"}, "E");
  add("Add", {"C", "E"}, "F");
  add("Exp", {"F"}, "Y");
  graph.AddOutput("Y");
  return graph;
}

// Compares the result of a changed graph with that of `graph`. `what` says who changed it and how.
std::string CompareResults(const Graph& graph, const Graph& changed, const std::string& what) {
  Findings findings;
  const Tensor x = Tensor::From<float>({2, 3}, {-1.5f, -1, -0.5f, 0.25f, 0.5f, 1});
  try {
    const std::vector<float> expected =
        Executor(Compile(graph)).Run({{"X", x}}).Get("Y").ToVector<float>();
    const std::vector<float> found =
        Executor(Compile(changed)).Run({{"X", x}}).Get("Y").ToVector<float>();
    bool same = found.size() == expected.size();
    for (size_t i = 0; same && i < found.size(); ++i)
      same = std::fabs(found[i] - expected[i]) <= 1e-3f * (1 + std::fabs(expected[i]));
    if (same) return "+  " + what + ", which then gives the same results\n";
    findings.wrong.push_back("it " + what + ", which then gives other results");
  } catch (const Error& error) {
    findings.wrong.push_back("it " + what + ", which then fails: " + error.message());
  }
  return "-" + TextOf(findings);
}

// The next two functions check a partitioner and a pass of a loaded library. They return "-" and
// the faults, or "+" and a text without faults.
std::string CheckPartitioner(const std::string& name, const ChildReporter& voice) {
  const Graph graph = GraphToChange();
  Graph parted;
  PartitionReport report;
  try {
    voice.Step("its partitioning of a graph of " +
               Counted(static_cast<size_t>(graph.num_nodes()), "node"));
    parted = Partition(graph, name, {}, &report);
  } catch (const Error& error) {
    Findings findings;
    findings.NotChecked("its choice of nodes, because it refuses a graph: " + error.message());
    return "+" + TextOf(findings);
  }
  voice.Step("a run of the graph that it partitioned");
  return CompareResults(
      graph, parted,
      StrCat("took ", report.num_taken(), " of ", graph.num_nodes(), " nodes of a graph"));
}
std::string CheckPass(const std::string& name, const ChildReporter& voice) {
  const Graph graph = GraphToChange();
  Graph changed;
  try {
    voice.Step("its change of a graph of " +
               Counted(static_cast<size_t>(graph.num_nodes()), "node"));
    changed = RunPass(graph, name);
  } catch (const Error& error) {
    Findings findings;
    findings.NotChecked("its change of a graph, because it refuses one: " + error.message());
    return "+" + TextOf(findings);
  }
  voice.Step("a run of the graph that it changed");
  return CompareResults(graph, changed,
                        StrCat("made a graph of ", changed.num_nodes(), " nodes of one of ",
                               graph.num_nodes(), " nodes"));
}

// Splits a text about the library into lines: its name and version, the numbers of its operators
// and partitioners, its operators with a summary each, its partitioners and its passes.
std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

// Returns "operator", "operators and partitioners", "operators, partitioners and passes" or
// similar.
std::string KindsOf(size_t operators, size_t partitioners, size_t passes) {
  const bool one = operators + partitioners + passes == 1;
  std::vector<std::string> kinds;
  if (operators > 0) kinds.push_back(one ? "operator" : "operators");
  if (partitioners > 0) kinds.push_back(one ? "partitioner" : "partitioners");
  if (passes > 0) kinds.push_back(one ? "pass" : "passes");
  std::string text;
  for (size_t i = 0; i < kinds.size(); ++i)
    text += (i == 0 ? "" : i + 1 < kinds.size() ? ", " : " and ") + kinds[i];
  return text;
}

std::string Sentence(const ChildOutcome& outcome) { return outcome.failure + ": " + outcome.how; }
void Unload(Library* library, const ChildReporter& voice) {
  voice.Step("its unloading");
  library->Unload();
  voice.Step("the end of the program");
}
// Returns the failure of a program that loads the library and ends, or that unloads the library
// before its end; empty if both succeed. `loaded` is the outcome of the first program.
std::string EndingOf(const std::string& path, double seconds, const ChildOutcome& loaded) {
  if (!loaded.failure.empty()) return Sentence(loaded) + ", at the end of a program that loaded it";
  const ChildOutcome unloaded = RunInChild(seconds, [&](const ChildReporter& voice) {
    Library library = LoadLibrary(path);
    voice.Answer("loaded");
    Unload(&library, voice);
    return ChildEnd::kNormal;
  });
  return unloaded.failure.empty() ? "" : Sentence(unloaded) + ", during " + unloaded.step;
}

// No code of the library runs in this process.
void Check(const CheckCommand& command) {
  ParseAttributes(command.attributes);  // reports wrong options before wrong libraries
  for (const std::string& shape : command.shapes) ParseShape(shape);
  const std::string path = FileOfLibrary(command.library);
  if (!command.hosts.empty())
    return CheckVia(
        {path, command.op, command.attributes, command.shapes, command.seconds, command.hosts});
  const ChildOutcome loaded = RunInChild(command.seconds, [&](const ChildReporter& voice) {
    const Library library = LoadLibrary(path);
    std::string out = StrCat(HeadOf(library), "\n", library.operators().size(), "\n",
                             library.partitioners().size(), "\n");
    for (const std::string& op : library.operators())
      out += op + "\n" + SummaryOf(library, op) + "\n";
    for (const std::string& name : library.partitioners()) out += name + "\n";
    for (const std::string& name : library.passes()) out += name + "\n";
    voice.Answer(out);
    return ChildEnd::kNormal;
  });
  if (loaded.answer.empty()) throw FailedWhileLoading(path, loaded);
  const std::vector<std::string> about = Lines(loaded.answer);
  const size_t num_ops = std::stoul(about[1]), num_partitioners = std::stoul(about[2]);
  std::vector<std::string> ops;
  for (size_t i = 0; i < num_ops; ++i) ops.push_back(about[3 + 2 * i]);
  const auto first = about.begin() + static_cast<ptrdiff_t>(3 + 2 * num_ops);
  const auto middle = first + static_cast<ptrdiff_t>(num_partitioners);
  const std::vector<std::string> partitioners(first, middle), passes(middle, about.end());
  if (ops.empty() && partitioners.empty() && passes.empty())
    throw Failure(ExitCode::kRunFailed, "library '" + path + "' registers no operator",
                  "register one in it: REGISTER_OP(name).setForward(f)");
  if (!command.op.empty() && std::find(ops.begin(), ops.end(), command.op) == ops.end())
    throw Failure(ExitCode::kUsage, "library '" + path + "' has no operator '" + command.op + "'" +
                                        SuggestName(command.op, ops));

  const std::string ending = EndingOf(path, command.seconds, loaded);
  WriteFile("-", about[0] + "\n" + (ending.empty() ? "" : TextOf(Wrong("it " + ending))));
  int checked = 0, wrong = 0;
  // Checks one part of the library, in a child that loads the library.
  const auto check = [&](FunctionRef<std::string(const Library&, const ChildReporter&)> answer) {
    const ChildOutcome outcome = RunInChild(command.seconds, [&](const ChildReporter& voice) {
      voice.Step("its loading");
      Library library = LoadLibrary(path);
      // Damage from outside the checker's own runs must not crash at the end of this scope.
      SetAllocator(DeviceType::kCPU, &GuardAllocator::Global());
      const std::string text = answer(library, voice);
      voice.Answer(text);
      if (text[0] == '-' || !ending.empty()) return ChildEnd::kAtOnce;
      Unload(&library, voice);
      return ChildEnd::kNormal;
    });
    ++checked;
    wrong += !outcome.failure.empty() || outcome.answer[0] == '-';
    if (!outcome.answer.empty()) WriteFile("-", outcome.answer.substr(1));
    if (!outcome.failure.empty())
      WriteFile("-", TextOf(Wrong("it " + Sentence(outcome) + ", during " + outcome.step)));
  };
  for (size_t i = 0; i < ops.size(); ++i) {
    const std::string& op = ops[i];
    if (!command.op.empty() && op != command.op) continue;
    const std::string& summary = about[4 + 2 * i];
    WriteFile("-",
              "\n" + Bold(Printable(op), stdout) + (summary.empty() ? "" : "  ") + summary + "\n");
    check([&](const Library& library, const ChildReporter& voice) {
      const Findings findings = OperatorChecks(library, command, voice).Check(op);
      return (findings.wrong.empty() ? "+" : "-") + TextOf(findings);
    });
  }
  const int checked_ops = checked;
  using CheckPart = std::string (*)(const std::string&, const ChildReporter&);
  const auto check_all = [&](const std::vector<std::string>& names, const char* kind,
                             CheckPart answer) {
    for (const std::string& name : names) {
      WriteFile("-", "\n" + Bold(Printable(name), stdout) + "  a " + kind + "\n");
      check([&](const Library&, const ChildReporter& voice) { return answer(name, voice); });
    }
  };
  if (command.op.empty()) {
    check_all(partitioners, "partitioner", &CheckPartitioner);
    check_all(passes, "pass", &CheckPass);
  }
  const size_t others = command.op.empty() ? 1 : 0;
  const std::string what = KindsOf(static_cast<size_t>(checked_ops), others * partitioners.size(),
                                   others * passes.size());
  std::fflush(stdout);
  if (wrong > 0)
    throw Failure(ExitCode::kRunFailed, StrCat(wrong, " of ", checked, " ", what, " of library '",
                                               path, "' ", wrong == 1 ? "is" : "are", " wrong"));
  if (!ending.empty()) throw Failure(ExitCode::kRunFailed, StrCat("library '", path, "' ", ending));
}

}  // namespace

void AddCheckCommand(CLI::App& program) {
  auto command = std::make_shared<CheckCommand>();
  CLI::App* app =
      program.add_subcommand("check", "Test the operators, partitioners and passes of a library");
  app->add_option("FILE", command->library, "A library of operators, or its source")
      ->required()
      ->option_text("REQUIRED");
  app->add_option("--op", command->op, "Checks only this operator")->option_text("NAME");
  app->add_option(
         "--attr", command->attributes,
         "Sets an attribute of the operators: an integer, a number, true, false, a list such as "
         "[1,2], or text")
      ->option_text("NAME=VALUE ...");
  app->add_option("--shape", command->shapes,
                  "Sets the shapes of the inputs: one for each input, or one for all; without this "
                  "option several shapes are tried")
      ->option_text("2x3 ...");
  app->add_option("--via", command->hosts,
                  "Calls the operators through other hosts instead, and compares: numpy (tvm-ffi), "
                  "jax, ort (ONNX Runtime), torch, or all that are installed")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("HOST,...");
  AddTimeoutOption(*app, &command->seconds);
  app->footer(
      "Runs each operator on generated inputs of every dtype that it accepts; without --shape "
      "also\n"
      "on empty and odd shapes, if it accepts all others. Checks that outputs have the inferred\n"
      "shapes and dtypes; that nothing outside the operator's tensors is read or written; that a\n"
      "second run, a run in place and runs on several threads give the same result; and that the\n"
      "gradient equals the numeric gradient. Each partitioner and each pass gets a small graph of\n"
      "standard operators, whose results must not change. A crash or a hang is a finding, also "
      "when\n"
      "the library is unloaded or the program ends. The exit code is 1 if something is wrong.\n\n"
      "With --via each operator of an exported library (opkit/export/all.hpp) runs in this "
      "program\n"
      "and in the hosts, which $PYTHON (default: python3) imports in a process of its own. "
      "Results\n"
      "must have equal bits, and errors the same text. The exit code is 1 if one differs, or if a\n"
      "named host is not installed.\n\n"
      "Examples:\n"
      "  opkit check build/libmy_ops.so\n"
      "  opkit check libmy_ops.so --op my_gemm --shape 2x3 3x5 --attr alpha=0.5\n"
      "  opkit check libmy_ops.so --via all");
  app->callback([command] { Check(*command); });
}

}  // namespace cli
