// opkit: runs, measures and inspects ONNX models, plans memory, documents operators, and checks
// operator libraries, from a shell. Each command is one file; program.hpp, model.hpp and timing.hpp
// hold what the commands share.
#include <CLI/CLI.hpp>
#include <memory>
#include <new>

#include "file.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/version.hpp"
#include "program.hpp"
#include "terminal.hpp"

namespace cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  opkit inspect model.onnx                         show a model's nodes and costs
  opkit run model.onnx --input x=x.npy --output-dir out
  opkit bench model.onnx --threads 2 > bench.json
  opkit bench-op Relu --input float32:1x64x56x56   compare an operator's kernels
  opkit bench compare old.json new.json            compare two files of bench-op
  opkit plan buffers.csv --capacity 1048576 -o planned.csv
  opkit ops Conv                                   document an operator
  opkit build my_ops.cc -o libmy_ops.so            compile a library of operators
  opkit export libmy_ops.so --python my_ops        write the library's Python package
  opkit lib libmy_ops.so                           list the operators of a library
  opkit check libmy_ops.so                         find mistakes in its operators
  opkit trace diff before.json after.json          find operators that got slower
  opkit partition model.onnx --partition my_prop   show what another runtime takes
  opkit simulate model.onnx --ranks 64 --topology net.json
  opkit run model.onnx --random --library libmy_ops.so
  opkit compare model.onnx --random --with reference   find a node that computes wrongly

Exit codes:
  0  done
  1  a run failed: an operator reported an error, a check found something,
     memory ran out, an operator is slower than --fail-above allows, or
     opkit compare found a difference
  2  the command line is wrong
  3  a file cannot be read or written, or is not what it should be
  4  the model cannot be run: an operator or opset is not supported, or the
     given backends have no kernel for a node
  5  an input does not fit the model
  6  no memory plan within the capacity was found

An error is one line on stderr. Colours and progress bars appear on terminals
only; NO_COLOR turns the colours off.)";

// Returns the subcommand that was named last, or the program; appends its words to `name`.
const CLI::App& Innermost(const CLI::App& program, std::string* name) {
  const CLI::App* out = &program;
  for (auto named = out->get_subcommands(); !named.empty(); named = out->get_subcommands()) {
    out = named.back();
    *name += (name->empty() ? "" : " ") + out->get_name();
  }
  return *out;
}

// Returns the mistake that CLI11 found, with the nearest name if a name is unknown.
Failure WrongUsage(const CLI::App& program, const CLI::ParseError& error) {
  std::string name;
  const CLI::App& command = Innermost(program, &name);
  const bool at_top = &command == &program;
  const bool has_commands =  // of which one must be named
      command.get_require_subcommand_min() > 0 && command.get_subcommands().empty();
  std::string what = error.what();
  const std::string help = at_top ? "opkit --help" : "opkit " + name + " --help";
  std::string hint = "see '" + help + "'";
  const auto unknown = program.remaining(true);
  if (!unknown.empty()) {
    std::vector<std::string> known;
    const std::string flag = unknown[0].substr(0, unknown[0].find('='));
    if (has_commands && flag[0] != '-') {
      what =
          (at_top ? std::string("there is") : name + " has") + " no command '" + unknown[0] + "'";
      for (const CLI::App* one : command.get_subcommands({})) known.push_back(one->get_name());
    } else if (flag[0] != '-') {
      what = "unexpected argument '" + unknown[0] + "' of " + name;
      if (name == "compare")
        hint =
            "compare takes one model; to compare two models, run both with --output-dir and "
            "compare the .npy files";
    } else {
      what = (at_top ? "there is" : name + " has") + std::string(" no option '") + flag + "'";
      for (const CLI::Option* one : command.get_options())
        for (const std::string& name : one->get_lnames()) known.push_back("--" + name);
    }
    const std::string nearest = opkit::NearestName(flag, known);
    if (!nearest.empty()) hint = "did you mean '" + nearest + "'?";
  } else if (has_commands) {
    what = "expected a command: ";
    for (const CLI::App* one : command.get_subcommands({}))
      what += (what.back() == ' ' ? "" : ", ") + one->get_name();
  }
  return Failure(ExitCode::kUsage, what, hint);
}

// Prints what `opkit WORDS --help` prints. Throws a Failure (kUsage) for an unknown command.
void PrintHelp(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* app = &program;
  std::string name = program.get_name();
  for (const std::string& word : words) {
    std::vector<std::string> known;
    const CLI::App* named = nullptr;
    for (const CLI::App* one : app->get_subcommands({})) {
      known.push_back(one->get_name());
      if (one->get_name() == word) named = one;
    }
    if (!named) {
      const std::string nearest = opkit::NearestName(word, known);
      throw Failure(
          ExitCode::kUsage, name + " has no command '" + word + "'",
          nearest.empty() ? "see '" + name + " --help'" : "did you mean '" + nearest + "'?");
    }
    app = named;
    name += " " + word;
  }
  // CLI::App::help would print the help of the command `help`.
  WriteFile("-", app->get_formatter()->make_help(app, name, CLI::AppFormatMode::Normal));
}

void AddHelpCommand(CLI::App& program) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* app = program.add_subcommand("help", "Print the help of a command");
  app->add_option("COMMAND", *words, "The command; without it, all commands are listed")
      ->option_text("...");
  app->footer(
      "Examples:\n"
      "  opkit help run\n"
      "  opkit help bench compare");
  app->callback([words, &program] { PrintHelp(program, *words); });
}

int Report(const Failure& failure) {
  const std::string hint = failure.hint().empty() ? "" : "; " + Printable(failure.hint());
  std::fprintf(stderr, "%s %s%s\n", Red("opkit: error:", stderr).c_str(),
               Printable(failure.what()).c_str(), hint.c_str());
  return static_cast<int>(failure.code());
}

void Run(CLI::App& program, int argc, char** argv) {
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& help) {
    program.exit(help);
  } catch (const CLI::ParseError& error) {
    throw WrongUsage(program, error);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    throw Failure(ExitCode::kBadFile, "cannot write to standard output");
}

int Main(int argc, char** argv) {
  CLI::App program("Runs, measures and inspects ONNX models, and checks operator libraries",
                   "opkit");
  program.set_version_flag("--version", "opkit " OPKIT_VERSION_STRING);
  program.require_subcommand(1);
  program.footer(kFooter);
  AddRunCommand(program);
  AddBenchCommand(program);
  AddBenchOpCommand(program);
  AddTuneCommand(program);
  AddInspectCommand(program);
  AddPlanCommand(program);
  AddOpsCommand(program);
  AddBuildCommand(program);
  AddExportCommand(program);
  AddLibCommand(program);
  AddCheckCommand(program);
  AddTraceCommand(program);
  AddPartitionCommand(program);
  AddCompareCommand(program);
  AddSimulateCommand(program);
  AddHelpCommand(program);
  try {
    Run(program, argc, argv);
    return 0;
  } catch (const Failure& failure) {
    return Report(failure);
  } catch (const opkit::Error& error) {
    return Report({ExitCode::kRunFailed, Describe(error)});
  } catch (const std::bad_alloc&) {
    return Report({ExitCode::kRunFailed, "out of memory"});
  } catch (const std::exception& error) {
    return Report({ExitCode::kRunFailed, error.what()});
  }
}

}  // namespace

std::string Describe(const opkit::Error& error) {
  std::string out = error.message();
  for (const std::string& line : error.context()) out += "; " + line;
  return out;
}

std::string Printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool control = static_cast<unsigned char>(c) < 32 || c == 127;
    if (!control)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  return out;
}

std::string Counted(size_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string FirstSentence(const std::string& doc) {
  constexpr size_t kMost = 72;
  std::string out = Printable(doc.substr(0, doc.find(". ")));
  if (!out.empty() && out.back() == '.') out.pop_back();
  return out.size() <= kMost ? out : out.substr(0, out.rfind(' ', kMost)) + " ...";
}

}  // namespace cli

int main(int argc, char** argv) { return cli::Main(argc, argv); }
