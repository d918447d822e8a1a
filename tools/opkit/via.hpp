// opkit check --via: runs the cases of a library's operators in this toolkit and through other
// hosts, and compares.
#ifndef OPKIT_TOOLS_OPKIT_VIA_HPP_
#define OPKIT_TOOLS_OPKIT_VIA_HPP_

#include <string>
#include <vector>

#include "child.hpp"
#include "opkit/core/attribute.hpp"
#include "opkit/plugin/library.hpp"

namespace cli {

// The options of `check` that --via uses too.
struct ViaOptions {
  std::string library;  // a file
  std::string op;       // empty: all
  std::vector<std::string> attributes, shapes;
  double seconds = 0;              // limit of one step of a child
  std::vector<std::string> hosts;  // names, or "all"
};

// Prints one row for each host. Throws a Failure: kRunFailed if a result differs, if a host that is
// named is not installed, or if no case ran in any host; kUsage for an unknown host.
void CheckVia(const ViaOptions& options);

// The cases of one operator, after their runs in this toolkit.
struct ViaCases {
  std::vector<std::string> lines;        // in JSON, for via_driver.py
  std::vector<std::string> names;        // "Axpy(float32[2, 3], float32[2, 3]; alpha=2)"
  std::vector<std::string> not_checked;  // what has no case, and why
};
// Makes and runs the cases, in a child process that has loaded the library, and appends the bytes
// of the tensors to the file `data`. Announces each run with `voice`.
ViaCases MakeViaCases(const opkit::Library& library, const std::string& op,
                      const ViaOptions& options, const std::string& data,
                      const ChildReporter& voice);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_VIA_HPP_
