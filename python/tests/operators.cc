// Operators for the tests of the Python package. opkit.load compiles this source.
#include <opkit/op.hpp>

#include <chrono>
#include <thread>

using namespace opkit;

Status SameShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  out[0] = in[0];
  return SUCCESS;
}

Status Times(const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out, OpResource&) {
  for (int64_t i = 0; i < in[0].size(); ++i)
    out[0].data<float>()[i] = FACTOR * in[0].data<float>()[i];
  return SUCCESS;
}
REGISTER_OP(TimesK).setForward(Times).setInferShape(SameShape).input("x").output("y");

// y = the sum of all x of this object.
class Sum final : public StatefulOp {
 public:
  Status Forward(std::span<const OpTensor> in, std::span<OpTensor> out, OpResource&) override {
    sum_.resize(static_cast<size_t>(in[0].size()));
    for (size_t i = 0; i < sum_.size(); ++i)
      out[0].data<float>()[i] = sum_[i] += in[0].data<float>()[i];
    return SUCCESS;
  }

 private:
  std::vector<float> sum_;
};
int MakeSum(const AttrMap&, StatefulOp** state) {
  *state = new Sum;
  return SUCCESS;
}
REGISTER_OP(RunningSum)
    .setCreateOpState(MakeSum, "cpu")
    .noGradient()
    .setInferShape(SameShape)
    .input("x")
    .output("y")
    .arg("name", "tells apart sums that are kept for calls", "")
    .doc("The sum of all x.");

// y = 1 once another thread has set x[0], which it can do only while this function runs. 0 if it
// has not after a minute.
Status WaitFor(const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out, OpResource&) {
  const volatile float* set = in[0].data<float>();
  out[0].data<float>()[0] = 0;
  for (int i = 0; i < 60000 && *set == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  out[0].data<float>()[0] = *set;
  return SUCCESS;
}
REGISTER_OP(WaitFor).setForward(WaitFor).setInferShape(SameShape).input("x").output("y");

Status Fail(const AttrMap& attrs, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
  const std::string how = attrs.Get<std::string>("how");
  if (how == "no memory") throw std::bad_alloc();
  if (how == "exception") throw std::runtime_error("the text of an exception");
  if (how == "FAIL") {
    OPKIT_ERROR_MSG << "the text of FAIL";
    return FAIL;
  }
  return SUCCESS;
}
REGISTER_OP(Fails)
    .setForward(Fail)
    .setInferShape(SameShape)
    .input("x")
    .output("y")
    .requiredArg<std::string>("how", "no memory, exception, FAIL or not");
