// expect: setSupportedOps(f): write void f(const PartitionView& view, PartitionAnswer& answer),
// which needs opkit/partition.hpp, or ReturnValue f(const std::string& json, std::vector<int>* ids,
// const std::unordered_map<std::string, std::string>& options)
// expect: setAcceptSubgraph(f): write void f(SubgraphReview& review), which needs
// opkit/partition.hpp, or ReturnValue f(const std::string& json, int subgraph_id, bool* accept,
// const std::unordered_map<std::string, std::string>& options)
#include <opkit/op.hpp>

#include <unordered_map>

using Options = std::unordered_map<std::string, std::string>;
// The ids are a copy; the last map is missing.
void Takes(const std::string&, std::vector<int>, const Options&) {}
void Accepts(const std::string&, int, bool*, const Options&, Options*,
             const std::unordered_map<std::string, opkit::OpTensor>&) {}
REGISTER_PARTITIONER(Broken).setSupportedOps(Takes).setAcceptSubgraph(Accepts);
