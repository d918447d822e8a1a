// Functions of a partitioner in each of MXNet's signatures, for programs and libraries. Each takes
// the nodes whose operator is the option "op".
#ifndef OPKIT_TESTS_SUPPORT_PARTITION_SPELLINGS_HPP_
#define OPKIT_TESTS_SUPPORT_PARTITION_SPELLINGS_HPP_

#include <map>
#include <unordered_map>

#include "opkit/op/function/partitioner_builder.hpp"

namespace partition_spellings {
using opkit::OpTensor;
using opkit::ReturnValue;

using Options = std::unordered_map<std::string, std::string>;
using Sorted = std::map<std::string, std::string>;
using Tensors = std::unordered_map<std::string, OpTensor>;
using SortedTensors = std::map<std::string, OpTensor>;

// Sets ids[i] to `taken` for each node i whose operator is `op`. Returns the number of nodes.
template <class Ids>
size_t TakeOp(const std::string& json, const std::string& op, Ids& ids, int taken) {
  const std::string key = "\"op\": \"";
  size_t count = 0;
  for (size_t at = json.find(key); at != std::string::npos; at = json.find(key, at + 1), ++count)
    if (json.compare(at + key.size(), op.size() + 1, op + '"') == 0) ids[count] = taken;
  return count;
}
inline ReturnValue Answer(bool is_right) { return is_right ? opkit::SUCCESS : opkit::FAIL; }

// MXNet 1.7.0.
inline ReturnValue SupportedOfRelease(const std::string& json, std::vector<int>* ids,
                                      const std::unordered_map<std::string, std::string>& options) {
  return Answer(TakeOp(json, options.at("op"), *ids, -1) == ids->size());
}
inline ReturnValue ReviewOfRelease(const std::string& json, int subgraph_id, bool* accept,
                                   const std::unordered_map<std::string, std::string>& options,
                                   std::unordered_map<std::string, std::string>* attrs,
                                   const std::unordered_map<std::string, OpTensor>& args,
                                   const std::unordered_map<std::string, OpTensor>& aux) {
  *accept = json.find('"' + options.at("op") + '"') != std::string::npos;
  (*attrs)["note"] = std::to_string(subgraph_id) +
                     " of release, constants: " + std::to_string(args.size() + aux.size());
  return opkit::SUCCESS;
}
// Before it.
inline ReturnValue SupportedByCount(std::string json, const int num_ids, int* ids,
                                    std::unordered_map<std::string, std::string>& options) {
  for (int i = 0; i < num_ids; ++i) ids[i] = 0;
  return Answer(
      TakeOp(json, options["op"], ids, options.count("id") ? std::stoi(options["id"]) : 1) ==
      static_cast<size_t>(num_ids));
}
inline ReturnValue SupportedByBools(std::string json, std::vector<bool>& ids, Options& options) {
  return Answer(TakeOp(json, options["op"], ids, 1) == ids.size());
}
inline ReturnValue ReviewByReference(std::string, int subgraph_id, bool* accept, Options& options,
                                     Options& attrs, SortedTensors& args, SortedTensors& aux) {
  *accept = options.count("op") == 1;
  attrs["note"] = std::to_string(subgraph_id) +
                  " by reference, constants: " + std::to_string(args.size() + aux.size());
  return opkit::SUCCESS;
}
// Other values, references and pointers.
inline void SupportedByValue(std::string json, std::vector<int>& ids, Sorted options) {
  TakeOp(json, options["op"], ids, 5);
}
inline int SupportedByPointer(const std::string* json, std::vector<int>* ids,
                              const Sorted* options) {
  return TakeOp(*json, options->at("op"), *ids, -1) == ids->size();
}
inline bool ReviewByPointer(const std::string* json, int subgraph_id, bool* accept,
                            const Options* options, Sorted* attrs, const Tensors* args,
                            Tensors aux) {
  *accept = !json->empty() && options->size() == 1;
  (*attrs)["note"] = std::to_string(subgraph_id) +
                     " by pointer, constants: " + std::to_string(args->size() + aux.size());
  return true;
}
inline ReturnValue ReviewAttributes(std::string, int subgraph_id, bool* accept, Options,
                                    Options& attrs) {
  *accept = true;
  attrs["note"] = std::to_string(subgraph_id) + " with attributes";
  return opkit::SUCCESS;
}
inline ReturnValue RejectAll(const std::string&, int, bool* accept, const Options&) {
  *accept = false;
  return opkit::SUCCESS;
}

}  // namespace partition_spellings

// Registers partitioners with these functions, which put the operator in the place of subgraphs.
#define REGISTER_PARTITION_SPELLINGS(prefix, subgraph_op)        \
  REGISTER_PARTITIONER(prefix##_release)                         \
      .setSupportedOps(partition_spellings::SupportedOfRelease)  \
      .setReviewSubgraph(partition_spellings::ReviewOfRelease)   \
      .setSubgraphOp(subgraph_op);                               \
  REGISTER_PARTITIONER(prefix##_count)                           \
      .setSupportedOps(partition_spellings::SupportedByCount)    \
      .setReviewSubgraph(partition_spellings::ReviewByReference) \
      .setSubgraphOp(subgraph_op);                               \
  REGISTER_PARTITIONER(prefix##_bools)                           \
      .setSupportedOps(partition_spellings::SupportedByBools)    \
      .setSubgraphOp(subgraph_op);                               \
  REGISTER_PARTITIONER(prefix##_value)                           \
      .setSupportedOps(partition_spellings::SupportedByValue)    \
      .setReviewSubgraph(partition_spellings::ReviewAttributes)  \
      .setSubgraphOp("Relu")                                     \
      .setSubgraphOp(subgraph_op, 5);                            \
  REGISTER_PARTITIONER(prefix##_pointer)                         \
      .setSupportedOps(partition_spellings::SupportedByPointer)  \
      .setReviewSubgraph(partition_spellings::ReviewByPointer)   \
      .setSubgraphOp(subgraph_op);                               \
  REGISTER_PARTITIONER(prefix##_rejects)                         \
      .setSupportedOps(partition_spellings::SupportedOfRelease)  \
      .setAcceptSubgraph(partition_spellings::RejectAll)         \
      .setSubgraphOp(subgraph_op)

#endif  // OPKIT_TESTS_SUPPORT_PARTITION_SPELLINGS_HPP_
