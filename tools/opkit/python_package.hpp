// Writes the Python side of a shared object from the description of its exported operators.
#ifndef OPKIT_TOOLS_OPKIT_PYTHON_PACKAGE_HPP_
#define OPKIT_TOOLS_OPKIT_PYTHON_PACKAGE_HPP_

#include <map>
#include <string>
#include <vector>

namespace cli {

// The first line of every text of PythonPackage: the mark of a file that may be replaced.
inline constexpr const char* kPythonMark = "# Written by `opkit export`";

// The parts of a package.
struct PythonPackageParts {
  std::string description;               // the JSON of opkit_export_describe
  std::string file;                      // the name of the shared object, in the package
  std::string package;                   // its own name
  std::vector<std::string> elementwise;  // operators of which one call runs a whole batch
};

// True for letters, digits and _ that begin with no digit, unless they are a keyword of Python.
bool IsNameInPython(const std::string& name);

// Returns the files of a package, by name: functions for tvm-ffi, JAX and PyTorch, as far as the
// operators are exported to these hosts, with their stubs. Throws an Error for a description of
// another form; a Failure (kUsage) if `elementwise` names no exported operator.
std::map<std::string, std::string> PythonPackage(const PythonPackageParts& parts);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_PYTHON_PACKAGE_HPP_
