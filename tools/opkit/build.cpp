// opkit build: compiles the source of an operator library.
#include <CLI/CLI.hpp>
#include <memory>

#include "file.hpp"
#include "library.hpp"
#include "program.hpp"

namespace cli {
namespace {

struct BuildCommand {
  std::string source, output;
  opkit::BuildOptions options;
};

void Build(const BuildCommand& command) {
  if (!opkit::IsLibrarySource(command.source))
    throw Failure(ExitCode::kUsage, "'" + command.source + "' is no source of a library",
                  "its name ends with .cc, .cpp, .cxx, .c or .cu");
  const std::string path = FileOfLibrary(command.source, command.options);
  if (command.output.empty()) return WriteFile("-", path + "\n");
  WriteFile(command.output, FailWith(ExitCode::kBadFile, "",
                                     [&] { return opkit::detail::ReadFileIfPresent(path); }));
}

}  // namespace

void AddBuildCommand(CLI::App& program) {
  auto command = std::make_shared<BuildCommand>();
  CLI::App* app = program.add_subcommand("build", "Compile the source of an operator library");
  app->add_option("FILE", command->source, "A source: .cc, .cpp, .cxx, .c or .cu")
      ->required()
      ->option_text("REQUIRED");
  app->add_option("-o,--output", command->output,
                  "Writes the library to this file; without it the path of the result in the cache "
                  "is printed")
      ->option_text("FILE.so");
  app->add_option("--flag", command->options.flags, "Adds a word to the compiler's line")
      ->allow_extra_args(false)
      ->option_text("=-O3 ...");
  app->add_option("--include", command->options.include_dir,
                  "Names the folder that has opkit/op.hpp (default: $OPKIT_INCLUDE_DIR, else that "
                  "of this program)")
      ->option_text("FOLDER");
  app->footer(
      "The compiler is $CXX, else c++; for a .c file $CC, else cc; for a .cu file $NVCC, else\n"
      "nvcc. $CXXFLAGS, $CFLAGS and $NVCCFLAGS are added. The result is kept in\n"
      "$OPKIT_BUILD_CACHE, else opkit/build in the user's cache folder, and made again when the\n"
      "source, a header that it includes, the flags, the compiler or opkit has changed. The\n"
      "results of the last 100 sources stay. The options --library of other commands, 'opkit lib'\n"
      "and 'opkit check' take a source, too.\n\n"
      "Examples:\n"
      "  opkit build my_ops.cc -o libmy_ops.so\n"
      "  opkit build my_ops.cc --flag=-O3 --flag=-Ifolder");
  app->callback([command] { Build(*command); });
}

}  // namespace cli
