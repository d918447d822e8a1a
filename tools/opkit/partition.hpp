// Partitioners on the command line: the options --partition and --option of commands with a model.
#ifndef OPKIT_TOOLS_OPKIT_PARTITION_HPP_
#define OPKIT_TOOLS_OPKIT_PARTITION_HPP_

#include <string>
#include <vector>

#include "opkit/graph/partition/request.hpp"
#include "program.hpp"

namespace cli {

struct PartitionOptions {
  std::vector<std::string> partitioners;  // in the order in which they choose
  std::vector<std::string> options;       // name=value, for each of them
};

// Adds --partition NAME and --option NAME=VALUE, which may be given several times.
void AddPartitionOptions(CLI::App& app, PartitionOptions* options);
// Throws a Failure (kUsage) for an option without a value and for options without a partitioner.
std::vector<opkit::PartitionerRequest> RequestsOf(const PartitionOptions& options);
// Throws a Failure (kBadModel) for a partitioner that neither the program nor a loaded library has.
void CheckPartitioners(const PartitionOptions& options);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_PARTITION_HPP_
