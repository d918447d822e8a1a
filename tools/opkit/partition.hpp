// Partitioners on the command line: --partition and --option of the commands that run a model, and
// of opkit partition.
#ifndef OPKIT_TOOLS_OPKIT_PARTITION_HPP_
#define OPKIT_TOOLS_OPKIT_PARTITION_HPP_

#include <string>
#include <vector>

#include "opkit/graph/partition/request.hpp"
#include "program.hpp"

namespace cli {

struct PartitionOptions {
  std::vector<std::string> partitioners;  // in the order in which they are asked
  std::vector<std::string> options;       // name=value, for each of them
};

// --partition NAME and --option NAME=VALUE, as often as one likes.
void AddPartitionOptions(CLI::App& app, PartitionOptions* options);
// Failures (kUsage) for an option without a value and options without a partitioner.
std::vector<opkit::PartitionerRequest> RequestsOf(const PartitionOptions& options);
// Failure (kBadModel) for a partitioner that neither the program nor a library that it has loaded
// has.
void CheckPartitioners(const PartitionOptions& options);

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_PARTITION_HPP_
