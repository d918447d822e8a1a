// Writes C++ functions of operators, whose parameters come from the schemas.
#ifndef OPKIT_TOOLS_OPKIT_CPP_WRAPPERS_HPP_
#define OPKIT_TOOLS_OPKIT_CPP_WRAPPERS_HPP_

#include <string>
#include <vector>

#include "opkit/op/op_registry.hpp"

namespace cli {

// Returns a header with a function in namespace `ops` for each operator, in this order. It includes
// only opkit/opkit.hpp. Operators that need a graph are left out with a comment. Other characters
// than letters and digits become `_` in names, and `_` is appended to keywords and to names that
// are taken: "my.op" becomes my_op, "default" default_.
std::string CppWrappers(const std::vector<const opkit::OpSchema*>& schemas);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_CPP_WRAPPERS_HPP_
