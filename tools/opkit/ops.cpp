// opkit ops: lists the operators of this program and documents them from their schemas.
#include <CLI/CLI.hpp>
#include <memory>

#include "cpp_wrappers.hpp"
#include "file.hpp"
#include "library.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/op/schema/schema_docs.hpp"
#include "program.hpp"
#include "terminal.hpp"

namespace cli {
namespace {

using namespace opkit;

struct OpsCommand {
  std::vector<std::string> libraries;
  std::string name, emitted;
  bool all = false;
  bool backends = false;
};

const OpSchema* PublicSchema(const std::string& name) {
  const OpSchema* schema = OpRegistry::Global().FindSchema(name);
  return schema && !schema->is_private() ? schema : nullptr;
}

// "cpu: reference, eigen"
std::string KernelsOf(const std::string& name) {
  std::string out;
  for (const Kernel* kernel : OpRegistry::Global().KernelsOf(name)) {
    const std::string device = ToString(kernel->device);
    const bool same = out.find(device + ": ") != std::string::npos;
    out += (out.empty() ? "" : same ? ", " : "; ") + (same ? "" : device + ": ") + kernel->backend;
  }
  return out.empty() ? "none" : out;
}

void List(const OpRegistry& registry) {
  Table table("lll");
  table.Add({"operator", "kernels", "what it does"});
  for (const std::string& name : registry.Operators())
    if (const OpSchema* schema = PublicSchema(name))
      table.Add({name, KernelsOf(name), FirstSentence(schema->doc())});
  WriteFile("-", table.Format(true, stdout));
}

// Returns the package of a backend of this program ("Eigen3 3.4.0"), or an empty text.
std::string PackageOf(const std::string& backend) {
  static const std::string lines = "\n" OPKIT_BACKEND_PACKAGES;
  const size_t at = lines.find("\n" + backend + "=");
  if (at == std::string::npos) return {};
  const size_t begin = at + backend.size() + 2;
  return lines.substr(begin, lines.find('\n', begin) - begin);
}

void ListBackends(const OpRegistry& registry) {
  Table table("lrrll");
  table.Add({"backend", "rank", "kernels", "made with", "available"});
  for (const OpRegistry::Backend& backend : registry.Backends())
    table.Add({backend.name, backend.rank == OpRegistry::kUnranked ? "" : StrCat(backend.rank),
               StrCat(backend.kernels), PackageOf(backend.name),
               backend.why_unavailable.empty() ? "yes" : backend.why_unavailable});
  WriteFile("-", table.Format(true, stdout));
}

// Returns the schemas of all operators; with libraries, of their operators alone.
std::vector<const OpSchema*> SchemasToEmit(const OpRegistry& registry, bool of_libraries) {
  std::vector<const OpSchema*> out;
  for (const std::string& name : registry.Operators())
    if (const OpSchema* schema = PublicSchema(name))
      if (!of_libraries || !schema->origin().empty()) out.push_back(schema);
  return out;
}

void Ops(const OpsCommand& command) {
  LoadLibraries(command.libraries);
  if (!command.emitted.empty())
    return WriteFile("-",
                     CppWrappers(SchemasToEmit(OpRegistry::Global(), !command.libraries.empty())));
  const OpRegistry& registry = OpRegistry::Global();
  if (command.backends) return ListBackends(registry);
  if (command.all) return WriteFile("-", DocsOfAllOperators());
  if (command.name.empty()) return List(registry);
  const OpSchema* schema = PublicSchema(command.name);
  if (!schema) {
    std::vector<std::string> known;
    for (const std::string& name : registry.Operators())
      if (PublicSchema(name)) known.push_back(name);
    const std::string nearest = NearestName(command.name, known);
    throw Failure(ExitCode::kUsage, "there is no operator '" + command.name + "'",
                  nearest.empty() ? "'opkit ops' lists them" : "did you mean '" + nearest + "'?");
  }
  WriteFile("-", ToMarkdown(*schema) + "\n**Kernels**: " + KernelsOf(command.name) + "\n");
}

}  // namespace

void AddOpsCommand(CLI::App& program) {
  auto command = std::make_shared<OpsCommand>();
  CLI::App* app = program.add_subcommand("ops", "List the operators, or document one");
  app->add_option("NAME", command->name, "An operator to document")->option_text(" ");
  app->add_flag("--all", command->all, "Documents every operator, as Markdown");
  app->add_flag("--backends", command->backends,
                "Lists the backends instead, with the packages they are made with");
  app->add_option("--emit", command->emitted,
                  "Writes a C++ header with a function for each operator; with --library for those "
                  "of the library alone")
      ->check(CLI::IsMember({"cpp"}))
      ->option_text("cpp");
  AddLibraryOption(*app, &command->libraries);
  app->footer(
      "Examples:\n"
      "  opkit ops\n"
      "  opkit ops --backends\n"
      "  opkit ops Conv\n"
      "  opkit ops my_gemm --library libgemm.so\n"
      "  opkit ops --all > operators.md\n"
      "  opkit ops --emit cpp > ops.hpp");
  app->callback([command] { Ops(*command); });
}

}  // namespace cli
