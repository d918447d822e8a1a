// opkit lib: lists what an operator library holds.
#include "library.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>

#include "file.hpp"
#include "opkit/op/function/log_hook.hpp"
#include "opkit/op/op_registry.hpp"
#include "options.hpp"
#include "terminal.hpp"

namespace cli {
namespace {

using namespace opkit;

std::string Contents(const std::string& path) {
  const Library library = LoadLibrary(path);
  Table table("lll");
  table.Add({"operator", "kernels", "what it does"});
  for (const std::string& op : library.operators())
    table.Add({Printable(op), KernelsOf(library, op), SummaryOf(library, op)});
  std::string out = HeadOf(library) + "\n";
  if (!library.operators().empty()) out += "\n" + table.Format(true, stdout);
  const auto list = [&](const char* what, const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + Printable(name);
    if (!all.empty()) out += StrCat("\n", what, ": ", all, "\n");
  };
  list("partitioners", library.partitioners());
  list("passes", library.passes());
  return out;
}

void Lib(const std::string& given, double seconds) {
  const std::string path = FileOfLibrary(given);
  const ChildOutcome outcome = RunInChild(seconds, [&](const ChildReporter& voice) {
    voice.Answer(Contents(path));
    return ChildEnd::kAtOnce;
  });
  if (outcome.answer.empty()) throw FailedWhileLoading(path, outcome);
  WriteFile("-", outcome.answer);
}

}  // namespace

void AddLibraryOption(CLI::App& app, std::vector<std::string>* paths) {
  app.add_option(
         "--library", *paths,
         "Loads operators from a shared object, or from its source (.cc, .c, .cu), which is "
         "compiled if it has changed; they take the place of built-in operators of the "
         "same name")
      ->allow_extra_args(false)
      ->option_text("FILE ...");
}

std::string FileOfLibrary(const std::string& path, const BuildOptions& options) {
  if (!IsLibrarySource(path)) return path;
  try {
    return BuildLibrary(path, options);
  } catch (const Error& error) {
    // The compiler's text follows the first line.
    const std::string& text = error.message();
    const size_t end = std::min(text.find('\n'), text.size());
    if (end < text.size()) std::fprintf(stderr, "%s\n", text.c_str() + end + 1);
    throw Failure(ExitCode::kBadFile, text.substr(0, end));
  }
}

// Silences the log, since a library without operators gets a message of its own.
struct NoLog {
  const LogHook before = SetLogHook([](LogLevel, std::string_view, std::string_view) {});
  ~NoLog() { SetLogHook(before); }
};
// Sends to stderr what a library prints to stdout while it is loaded, as libraries of MXNet do.
// Other programs read the command's own output, such as JSON.
class StdoutToStderr {
 public:
  StdoutToStderr() {
    std::fflush(stdout);
    stdout_ = dup(STDOUT_FILENO);
    if (stdout_ >= 0) dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  StdoutToStderr(StdoutToStderr&&) = delete;
  ~StdoutToStderr() {
    std::fflush(stdout);
    if (stdout_ < 0) return;
    dup2(stdout_, STDOUT_FILENO);
    close(stdout_);
  }

 private:
  int stdout_;
};
Library LoadLibrary(const std::string& given) {
  const std::string path = FileOfLibrary(given);
  try {
    const NoLog no_log;
    const StdoutToStderr to_stderr;
    return Library::Load(path, {.allow_override = true});
  } catch (const Error& error) {
    const bool memory = error.code() == ErrorCode::kOutOfMemory;
    throw Failure(memory ? ExitCode::kRunFailed : ExitCode::kBadFile, Describe(error));
  }
}
void LoadLibraries(const std::vector<std::string>& paths) {
  std::map<std::string, std::string> definers;  // by operator: the latest library with it
  for (const std::string& path : paths) {
    const Library library = LoadLibrary(path);
    if (library.operators().empty() && library.partitioners().empty() && library.passes().empty())
      std::fprintf(stderr, "opkit: '%s' registers no operator\n", Printable(path).c_str());
    for (const std::string& op : library.operators()) {
      const auto [before, first] = definers.emplace(op, path);
      if (first) continue;
      std::fprintf(stderr, "opkit: %s is in '%s' and in '%s'; the operator of '%s' is used\n",
                   Printable(op).c_str(), Printable(before->second).c_str(),
                   Printable(path).c_str(), Printable(path).c_str());
      before->second = path;
    }
  }
}

std::string KernelsOf(const Library& library, const std::string& op) {
  std::string out;
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(op))
    if (kernel->origin == library.name())
      out += StrCat(out.empty() ? "" : ", ", ToString(kernel->device),
                    kernel->backend == "reference" ? "" : " (" + Printable(kernel->backend) + ")");
  return out;
}
std::string SummaryOf(const Library& library, const std::string& op) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(op);
  const std::string doc = FirstSentence(schema.doc());
  if (schema.origin() == library.name()) return doc;
  return doc + (doc.empty() ? "" : "; ") + "another kernel of the " +
         (schema.origin().empty() ? "built-in operator" : "operator of " + schema.origin());
}
std::string HeadOf(const Library& library) {
  const size_t count = library.operators().size();
  const auto [major, minor] = library.abi_version();
  const std::string version = library.version(), own = library.own_version();
  const std::string head =
      StrCat(Printable(library.name()), own.empty() ? "" : " " + Printable(own), ": ",
             count == 0 ? "registers no operator" : Counted(count, "operator"));
  if (library.is_adapted()) return StrCat(head, ", compiled for ", Printable(version));
  return StrCat(head,
                version.empty() ? ", compiled" : ", compiled with opkit " + Printable(version)) +
         StrCat(" for version ", major, ".", minor, " of the ABI (this program has ",
                OPKIT_ABI_MAJOR, ".", OPKIT_ABI_MINOR, ")");
}

void AddTimeoutOption(CLI::App& app, double* seconds) {
  app.add_option("--timeout", *seconds,
                 StrCat("Limits the time of one step, such as loading; a longer step is reported "
                        "as a hang (default: ",
                        kChildSeconds, ")"))
      ->check(Seconds())
      ->option_text("SECONDS");
}
Failure FailedWhileLoading(const std::string& path, const ChildOutcome& outcome) {
  return {ExitCode::kBadFile,
          "library '" + path + "' " + outcome.failure + " while it is loaded: " + outcome.how,
          "loading runs its static initialisers, opkit_library_entry, and the function of "
          "OPKIT_LIBRARY_INITIALIZE"};
}

void AddLibCommand(CLI::App& program) {
  auto path = std::make_shared<std::string>();
  auto seconds = std::make_shared<double>(kChildSeconds);
  CLI::App* app = program.add_subcommand("lib", "Show what an operator library holds");
  app->add_option("FILE", *path, "A library of operators, or its source")
      ->required()
      ->option_text("REQUIRED");
  AddTimeoutOption(*app, seconds.get());
  app->footer(
      "Loads the library in a process of its own, so that a crash is reported.\n\n"
      "Examples:\n"
      "  opkit lib build/libmy_ops.so\n"
      "  opkit lib my_ops.cc");
  app->callback([path, seconds] { Lib(*path, *seconds); });
}

}  // namespace cli
