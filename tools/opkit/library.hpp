// Operator libraries on the command line: the option --library, and functions that `lib` and
// `check` share.
#ifndef OPKIT_TOOLS_OPKIT_LIBRARY_HPP_
#define OPKIT_TOOLS_OPKIT_LIBRARY_HPP_

#include <string>
#include <vector>

#include "child.hpp"
#include "opkit/plugin/library.hpp"
#include "program.hpp"

namespace cli {

// Adds --library FILE, which may be given several times.
void AddLibraryOption(CLI::App& app, std::vector<std::string>* paths);

// Returns the file of a library: `path` itself, or for a source what it is compiled to (see
// opkit::BuildLibrary). Throws a Failure (kBadFile); the compiler's text goes to stderr first.
std::string FileOfLibrary(const std::string& path, const opkit::BuildOptions& options = {});
// Loads a library, or the library of a source; its operators take the place of built-in operators
// of the same name. Throws a Failure (kBadFile) that says what is wrong with the file.
opkit::Library LoadLibrary(const std::string& path);
void LoadLibraries(const std::vector<std::string>& paths);

// Returns the library's kernels of this operator: device types, and backends with a name, "cpu, cpu
// (fast)".
std::string KernelsOf(const opkit::Library& library, const std::string& op);
// Returns the first sentence of the operator's documentation.
std::string SummaryOf(const opkit::Library& library, const std::string& op);
// Returns the line "libgemm.so: 2 operators, …".
std::string HeadOf(const opkit::Library& library);

// Adds --timeout SECONDS, the limit of one step of a child.
constexpr double kChildSeconds = 60;
void AddTimeoutOption(CLI::App& app, double* seconds);
// Returns the Failure "…/libx.so crashes while it is loaded" for a child with this outcome.
Failure FailedWhileLoading(const std::string& path, const ChildOutcome& outcome);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_LIBRARY_HPP_
