// opkit export: writes the Python side of a shared object with exported operators.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "file.hpp"
#include "library.hpp"
#include "opkit/interop/parse_json.hpp"
#include "opkit/plugin/load/shared_object.hpp"
#include "python_package.hpp"

namespace cli {
namespace {

namespace fs = std::filesystem;

struct ExportCommand {
  std::string library, folder;
  std::vector<std::string> elementwise;
  double seconds = kChildSeconds;
};

// Returns what the library says about its exported operators. Its code runs in another process.
std::string DescriptionOf(const std::string& path, double seconds) {
  const ChildOutcome outcome = RunInChild(seconds, [&](const ChildReporter& voice) {
    const auto object =
        FailWith(ExitCode::kBadFile, "", [&] { return opkit::detail::SharedObject::Open(path); });
    const auto describe =
        reinterpret_cast<const char* (*)()>(object->Find("opkit_export_describe"));
    if (!describe)
      throw Failure(ExitCode::kBadFile, "library '" + path + "' exports no operator",
                    "include opkit/export/all.hpp in it and write OPKIT_EXPORT(name)");
    voice.Answer(describe());
    return ChildEnd::kAtOnce;
  });
  if (outcome.answer.empty()) throw FailedWhileLoading(path, outcome);
  const auto json = opkit::detail::ParseJson(outcome.answer);
  if (json.contains("error"))
    throw Failure(ExitCode::kBadFile,
                  "library '" + path + "': " + json.at("error").get<std::string>());
  return outcome.answer;
}

// Throws a Failure unless the folder is new, empty, or was written by this command.
void CheckFolder(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  if (!fs::is_directory(folder, error))
    throw Failure(ExitCode::kBadFile, "'" + folder + "' is no folder");
  const std::string first = folder + "/__init__.py";
  const std::string text =
      FailWith(ExitCode::kBadFile, "", [&] { return opkit::detail::ReadFileIfPresent(first); });
  if (text.starts_with(kPythonMark) || fs::is_empty(folder, error)) return;
  throw Failure(ExitCode::kBadFile,
                "folder '" + folder + "' has files that `opkit export` did not write",
                "name a new folder, or remove it");
}

void Export(const ExportCommand& command) {
  std::string folder = command.folder;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::string package = fs::path(folder).filename();
  if (!IsNameInPython(package))
    throw Failure(ExitCode::kUsage, "'" + package + "' is no name of a package of Python",
                  "letters, digits and _ make the name of the folder, and it is no keyword");
  CheckFolder(folder);
  const std::string path = FileOfLibrary(command.library);
  const std::string name = fs::path(path).filename();
  const auto files =
      PythonPackage({DescriptionOf(path, command.seconds), name, package, command.elementwise});
  const std::string bytes =
      FailWith(ExitCode::kBadFile, "", [&] { return opkit::detail::ReadFileIfPresent(path); });
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Failure(ExitCode::kBadFile, "cannot make folder '" + folder + "': " + error.message());
  WriteFile(folder + "/" + name, bytes);
  for (const auto& [file, text] : files) WriteFile(folder + "/" + file, text);
  // A module of an earlier package whose host has no operator any more.
  for (const char* file : {"jax.py", "jax.pyi", "_jax.py", "torch.py", "torch.pyi", "_torch.py"})
    if (!files.contains(file)) fs::remove(folder + "/" + file, error);
}

}  // namespace

void AddExportCommand(CLI::App& program) {
  auto command = std::make_shared<ExportCommand>();
  CLI::App* app = program.add_subcommand("export", "Write the Python package of a library");
  app->add_option("FILE", command->library,
                  "A shared object with exported operators (OPKIT_EXPORT), or its source")
      ->required()
      ->option_text("REQUIRED");
  app->add_option("--python", command->folder,
                  "Writes the package to this folder; it is new, empty, or written by this command")
      ->required()
      ->option_text("FOLDER REQUIRED");
  app->add_option(
         "--elementwise", command->elementwise,
         "Says that element k of the outputs of this operator depends on elements k of the "
         "inputs alone, so that jax.vmap runs a batch in one call")
      ->allow_extra_args(false)
      ->option_text("NAME ...");
  AddTimeoutOption(*app, &command->seconds);
  app->footer(
      "The package has a function for each operator, with keywords, defaults, docstrings and\n"
      "stubs: the package itself for NumPy arrays and other tensors (it needs apache-tvm-ffi), "
      "its\n"
      "module jax for JAX and its module torch for PyTorch. It holds a copy of the library.\n\n"
      "Examples:\n"
      "  opkit export libmy_ops.so --python my_ops\n"
      "  python -c 'import my_ops; help(my_ops)'");
  app->callback([command] { Export(*command); });
}

}  // namespace cli
