// A library with a partitioner in MXNet's spelling, which takes chains of LibExp and LibLog, and
// the operator that runs them: opkit/op.hpp alone.
#include <opkit/op.hpp>

#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <unordered_map>

#include "support/partition_spellings.hpp"

using namespace opkit;  // NOLINT: as an author writes it

namespace {

using Options = std::unordered_map<std::string, std::string>;

// The nodes whose op is LibExp or LibLog, read from the JSON by hand: "op": "LibExp".
ReturnValue supportedOps(std::string json, std::vector<int>& ids, Options& options) {
  if (options.count("fail")) {
    OPKIT_ERROR_MSG << "told to fail by " << options["fail"];
    return FAIL;
  }
  if (options.count("throw")) throw std::runtime_error("told to throw");
  size_t at = 0;
  for (int& id : ids) {
    at = json.find("\"op\": \"", at) + 7;
    const std::string op = json.substr(at, json.find('"', at) - at);
    if (op == "LibExp" || op == "LibLog") id = options.count("kind") ? 7 : -1;
  }
  return SUCCESS;
}
ReturnValue acceptSubgraph(std::string json, int id, bool* accept, Options& options, Options& attrs,
                           std::map<std::string, OpTensor>& args,
                           std::map<std::string, OpTensor>& aux) {
  *accept = !options.count("reject");
  attrs["text_has_log"] = json.find("LibLog") != std::string::npos ? "yes" : "no";
  attrs["id"] = std::to_string(id);
  attrs["in_host"] = options.count("in_host") ? "yes" : "no";
  attrs["constants"] = std::to_string(args.size() + aux.size());
  return SUCCESS;
}
REGISTER_PARTITIONER(LibChains)
    .setSupportedOps(supportedOps)
    .setSubgraphOp("LibChain")
    .setAcceptSubgraph(acceptSubgraph);
REGISTER_PARTITION_SPELLINGS(LibSpelling, "LibChain");

// Runs the body that its node carries, whose nodes each read the value before.
class Chain final : public StatefulOp {
 public:
  // `in_host`: has the host run the body.
  Chain(const opkit_graph* body, bool in_host) : body_(body), in_host_(in_host) {
    for (uint64_t i = 0; i < body->num_nodes; ++i) ops_.push_back(body->nodes[i]->op);
  }
  Status Forward(std::span<const OpTensor> in, std::span<OpTensor> out, OpResource& res) override {
    if (in_host_) return res.run_graph(*body_, in, out), SUCCESS;
    for (int64_t i = 0; i < in[0].size(); ++i) {
      float value = in[0].data<float>()[i];
      for (const std::string& op : ops_) value = op == "LibExp" ? std::exp(value) : std::log(value);
      out[0].data<float>()[i] = value;
    }
    return SUCCESS;
  }

 private:
  const opkit_graph* const body_;
  const bool in_host_;
  std::vector<std::string> ops_;
};
int MakeChain(const AttrMap& attrs, OpContext context, std::unique_ptr<StatefulOp>* state) {
  if (context.node->num_graphs != 1) return 0;
  *state = std::make_unique<Chain>(context.node->graphs[0], attrs.Get("in_host", "no") == "yes");
  return 1;
}
Status SameShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  out[0] = in[0];
  return SUCCESS;
}
template <float (*f)(float)>
Status Each(const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out, OpResource&) {
  for (int64_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = f(in[0].data<float>()[i]);
  return SUCCESS;
}
float Exp(float x) { return std::exp(x); }
float Log(float x) { return std::log(x); }

}  // namespace

ReturnValue initialize(int version) {
  if (version >= 10700 && !std::getenv("OPKIT_TEST_INITIALIZE_FAILS")) return SUCCESS;
  OPKIT_ERROR_MSG << "version " << version << " is told to fail";
  return FAIL;
}
OPKIT_LIBRARY_INITIALIZE(initialize);

REGISTER_OP(LibChain)
    .setCreateOpState(MakeChain)
    .noGradient()
    .setIsSubgraphOp()
    .allowUncheckedAttributes()
    .input("x")
    .output("y")
    .setInferShape(SameShape);
// The graph that the node carries says types and shapes.
REGISTER_OP(LibCarries)
    .setCreateOpState(MakeChain)
    .noGradient()
    .setIsSubgraphOp()
    .allowUncheckedAttributes()
    .input("x")
    .output("y");
// The graph says the numbers of inputs and outputs too.
REGISTER_OP(LibCarriesAll)
    .setCreateOpState(MakeChain)
    .noGradient()
    .setIsSubgraphOp()
    .arg<std::string>("in_host", "");
REGISTER_OP(LibExp).setForward(Each<Exp>).input("x").output("y").setInferShape(SameShape);
REGISTER_OP(LibLog).setForward(Each<Log>).input("x").output("y").setInferShape(SameShape);
