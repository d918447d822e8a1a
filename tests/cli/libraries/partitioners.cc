// Partitioners, for `opkit check`, and an operator that runs what they take.
#include <opkit/op.hpp>

#include <algorithm>
#include <csignal>
#include <unordered_map>

namespace {

using namespace opkit;
using Options = std::unordered_map<std::string, std::string>;

ReturnValue Everything(std::string, const int num_ids, int* ids, Options&) {
  for (int i = 0; i < num_ids; ++i) ids[i] = -1;
  return SUCCESS;
}
ReturnValue Crashes(std::string, const int, int*, Options&) {
  std::raise(SIGSEGV);  // which UndefinedBehaviorSanitizer does not report instead
  return SUCCESS;
}
ReturnValue Refuses(std::string, const int, int*, Options&) {
  OPKIT_ERROR_MSG << "there is no licence for it";
  return FAIL;
}
REGISTER_PARTITIONER(Everything).setSupportedOps(Everything);
REGISTER_PARTITIONER(Crashes).setSupportedOps(Crashes);
REGISTER_PARTITIONER(Refuses).setSupportedOps(Refuses);
// Ignores its subgraph and fills the outputs with 7.
Status Forget(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor> out, OpResource&) {
  for (OpTensor& y : out) std::fill_n(y.data<float>(), y.size(), 7.0f);
  return SUCCESS;
}
REGISTER_OP(Forgetful).setIsSubgraphOp().setForward(Forget).noGradient();
REGISTER_PARTITIONER(Forgets).setSupportedOps(Everything).setSubgraphOp("Forgetful");

int InHost(const AttrMap&, OpContext context, StatefulOp** state) {
  class InHostOp final : public StatefulOp {
   public:
    explicit InHostOp(const opkit_graph& body) : body_(body) {}
    Status Forward(std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource& resource) override {
      resource.run_graph(body_, in, out);
      return SUCCESS;
    }

   private:
    const opkit_graph& body_;
  };
  *state = new InHostOp(*context.node->graphs[0]);
  return SUCCESS;
}
int SameShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  out[0] = in[0];
  return SUCCESS;
}
REGISTER_OP(InHost)
    .setIsSubgraphOp()
    .setCreateOpState(InHost)
    .input("x")
    .output("y")
    .setInferShape(SameShape)
    .noGradient();
REGISTER_PARTITIONER(Hands).setSupportedOps(Everything).setSubgraphOp("InHost");

}  // namespace
