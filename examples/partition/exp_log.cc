// A library whose partitioner takes chains of Exp and Log, in the spelling of MXNet's loadable
// partitioners, with the stateful operator that runs them: opkit/op.hpp alone.
//   g++ -std=c++20 -O2 -shared -fPIC -fno-gnu-unique -Iinclude examples/partition/exp_log.cc -o libexp_log.so
//   opkit run model.onnx --random --library libexp_log.so --partition myProp
// It has an option of its own: `max_steps`, the largest number of nodes of a chain.
#include <opkit/op.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <unordered_map>

using namespace opkit;

namespace {

using Texts = std::unordered_map<std::string, std::string>;

// Returns the operators of the nodes in a graph's JSON, in order. A real program would use a JSON
// parser.
std::vector<std::string> OpsOf(const std::string& json, size_t num_nodes) {
  const std::string key = "\"op\": \"";
  std::vector<std::string> ops;
  for (size_t at = 0; ops.size() < num_nodes;) {
    at = json.find(key, at);
    if (at == std::string::npos) break;
    at += key.size();
    ops.push_back(json.substr(at, json.find('"', at) - at));
  }
  return ops;
}

// Takes the nodes. Returns FAIL, with the reason, for an option that it does not have.
ReturnValue mySupportedOps(const std::string& json, std::vector<int>* ids, const Texts& options) {
  for (const auto& [name, value] : options)
    if (name != "max_steps") {
      OPKIT_ERROR_MSG << "there is no option '" << name << "'; that of myProp is max_steps";
      return FAIL;
    }
  const std::vector<std::string> ops = OpsOf(json, ids->size());
  for (size_t i = 0; i < ops.size(); ++i)
    if (ops[i] == "Exp" || ops[i] == "Log") (*ids)[i] = -1;
  return SUCCESS;
}

// Accepts a subgraph that is a chain, with one input and one output. Stores the number of steps in
// an attribute of the operator.
ReturnValue myReviewSubgraph(const std::string& json, int, bool* accept, const Texts& options,
                             Texts* attrs) {
  int inputs = 0, steps = 0;
  for (const std::string& op : OpsOf(json, 1 << 20)) ++(op == "null" ? inputs : steps);
  // The last member is "heads": [[node, output, 0], …], the outputs.
  const auto heads = json.begin() + static_cast<std::ptrdiff_t>(json.find("\"heads\""));
  const auto outputs = std::count(heads, json.end(), '[') - 1;
  const auto limit = options.find("max_steps");
  *accept = inputs == 1 && outputs == 1 &&
            (limit == options.end() || steps <= std::atoi(limit->second.c_str()));
  (*attrs)["steps"] = std::to_string(steps);
  return SUCCESS;
}
REGISTER_PARTITIONER(myProp)
    .setSupportedOps(mySupportedOps)
    .setSubgraphOp("_custom_subgraph_op")
    .setReviewSubgraph(myReviewSubgraph);

// Runs all steps of a chain in one pass over the data.
class ChainOp final : public StatefulOp {
 public:
  explicit ChainOp(const opkit_graph& body) {
    for (uint64_t i = 0; i < body.num_nodes; ++i)
      steps_.push_back(std::string(body.nodes[i]->op) == "Exp" ? ::expf : ::logf);
  }
  Status Forward(std::span<const OpTensor> in, std::span<OpTensor> out, OpResource&) override {
    const float* x = in[0].data<float>();
    float* y = out[0].data<float>();
    for (int64_t i = 0; i < in[0].size(); ++i) {
      float value = x[i];
      for (const auto step : steps_) value = step(value);
      y[i] = value;
    }
    return SUCCESS;
  }

 private:
  std::vector<float (*)(float)> steps_;
};

// The node owns the subgraph, which lives as long as the operator.
int CreateOpState(const AttrMap&, OpContext context, StatefulOp** state) {
  const opkit_graph& body = *context.node->graphs[0];
  if (body.num_inputs != 1 || body.num_outputs != 1) {
    OPKIT_ERROR_MSG << "a chain has one input and one output";
    return FAIL;
  }
  *state = new ChainOp(body);
  return SUCCESS;
}
int InferType(const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
  in[0] = out[0] = DType::kFloat32;
  return SUCCESS;
}
int InferShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  out[0] = in[0];
  return SUCCESS;
}
REGISTER_OP(_custom_subgraph_op)
    .setIsSubgraphOp()
    .setCreateOpState(CreateOpState)
    .input("x")
    .output("y")
    .arg("steps", "the number of nodes of the chain", "0")
    .setInferType(InferType)
    .setInferShape(InferShape)
    .noGradient()
    .doc("Runs a chain of Exp and Log.");

}  // namespace
