// Operator libraries on the command line: --library of the commands that run or show operators, and
// what `lib` and `check` have in common.
#ifndef OPKIT_TOOLS_OPKIT_LIBRARY_HPP_
#define OPKIT_TOOLS_OPKIT_LIBRARY_HPP_

#include <string>
#include <vector>

#include "child.hpp"
#include "opkit/plugin/library.hpp"
#include "program.hpp"

namespace cli {

// --library FILE.so, as often as one likes.
void AddLibraryOption(CLI::App& app, std::vector<std::string>* paths);

// Failures (kBadFile) say what is wrong with the file. Its operators stand before built-in ones of
// the same name.
opkit::Library LoadLibrary(const std::string& path);
void LoadLibraries(const std::vector<std::string>& paths);

// The kernels of this operator that the library has: device types, and backends if they have names,
// "cpu, cpu (fast)".
std::string KernelsOf(const opkit::Library& library, const std::string& op);
// What it does, in a sentence.
std::string SummaryOf(const opkit::Library& library, const std::string& op);
// "libgemm.so: 2 operators, …"
std::string HeadOf(const opkit::Library& library);

// --timeout SECONDS: how long one step of a child may take.
constexpr double kChildSeconds = 60;
void AddTimeoutOption(CLI::App& app, double* seconds);
// "…/libx.so crashes while it is loaded", for a child that ended so.
Failure FailedWhileLoading(const std::string& path, const ChildOutcome& outcome);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_LIBRARY_HPP_
