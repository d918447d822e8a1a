// The steps of a chain of elementwise operators. A plan fuses nodes, of which each is the only
// reader of the one before it, into one node, which one loop computes; the results between them are
// not written to memory. FuseElementwise builds the node, and chain.hpp computes it.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_STEPS_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_STEPS_HPP_

#include "opkit/backends/cuda/ops/broadcast_index.hpp"
#include "opkit/graph/plan/fusion.hpp"
#include "opkit/op/fusion.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The numbers of an operator's attributes, which launches copy to the device.
struct ElementAttributes {
  float numbers[2] = {};

  // Reads the attributes of a node of type `op` that are numbers, in the order of the schema.
  static ElementAttributes Of(std::string_view op, const Arguments& args) {
    ElementAttributes out;
    for (int i = 0;
         const AttributeSchema& attribute : OpRegistry::Global().GetSchema(op).attributes()) {
      if (!attribute.default_value) continue;
      if (attribute.default_value->Is<float>())
        out.numbers[i++] = args.Get<float>(attribute.name, attribute.default_value->Get<float>());
      else if (attribute.default_value->Is<int64_t>())
        out.numbers[i++] =
            args.Get<int64_t>(attribute.name, attribute.default_value->Get<int64_t>()) != 0;
    }
    return out;
  }
};

// The operators that can be steps. A binary step, from kAdd on, reads the result of the steps
// before it, and an operand.
enum class StepFunction : uint8_t {
  kAbs,
  kElu,
  kErf,
  kExp,
  kGelu,
  kHardSigmoid,
  kHardSwish,
  kLeakyRelu,
  kLog,
  kNeg,
  kReciprocal,
  kRelu,
  kSigmoid,
  kSoftplus,
  kSqrt,
  kSwish,
  kTanh,
  kAdd,
  kDiv,
  kMax,
  kMin,
  kMul,
  kSub
};
inline constexpr std::string_view kStepNames[] = {
    "Abs",  "Elu", "Erf",        "Exp",  "Gelu",    "HardSigmoid", "HardSwish", "LeakyRelu",
    "Log",  "Neg", "Reciprocal", "Relu", "Sigmoid", "Softplus",    "Sqrt",      "Swish",
    "Tanh", "Add", "Div",        "Max",  "Min",     "Mul",         "Sub"};

// The steps of a chain, in a form that a launch copies to the device.
struct ElementChain {
  static constexpr int kMaxSteps = 16;
  struct Step {
    StepFunction function = {};
    bool is_binary = false;
    bool is_swapped = false;  // the operand is the first argument
    ElementAttributes attributes;
  };

  Step steps[kMaxSteps] = {};
  int count = 0;

  // Reads the attributes of a fused node. Throws kInvalidArgument if lists and inputs do not fit.
  static ElementChain Of(const OperatorDef& def) {
    const Arguments& args = def.args();
    const auto names = args.Get<std::vector<std::string>>("steps", {});
    const auto swapped = args.Get<std::vector<int64_t>>("swapped", {});
    const auto numbers = args.Get<std::vector<float>>("numbers", {});
    ElementChain chain;
    size_t operands = 0;
    const auto fail = [&] {
      Throw(ErrorCode::kInvalidArgument, def.type(), ": ", names.size(), " steps, ", swapped.size(),
            " marks of swapped operands, ", numbers.size(), " numbers and ", def.inputs().size(),
            " inputs do not fit, or a step is unknown");
    };
    if (names.size() > kMaxSteps || swapped.size() != names.size() ||
        numbers.size() != 2 * names.size())
      fail();
    for (size_t i = 0; i < names.size(); ++i) {
      const int function = FunctionOf(names[i]);
      if (function < 0) fail();
      Step& step = chain.steps[chain.count++];
      step.function = static_cast<StepFunction>(function);
      step.is_binary = step.function >= StepFunction::kAdd;
      step.is_swapped = swapped[i] != 0;
      step.attributes = {{numbers[2 * i], numbers[2 * i + 1]}};
      operands += step.is_binary;
    }
    if (def.inputs().size() != 1 + operands) fail();
    return chain;
  }
  // Returns the number of the function with this name; -1 if there is none.
  static int FunctionOf(std::string_view name) {
    for (size_t i = 0; i < std::size(kStepNames); ++i)
      if (kStepNames[i] == name) return static_cast<int>(i);
    return -1;
  }
};

inline constexpr const char* kFusedElementwise = "FusedElementwise";

// Adds the work of a node to a fused node, whose result so far is input `read` of the node. Returns
// false if the node cannot be a step.
inline bool AddStep(const OperatorDef& node, size_t read, OperatorDef& fused) {
  const OpSchema* schema = OpRegistry::Global().FindSchema(node.type());
  const std::string name = node.type() == "Sum" ? "Add" : node.type();
  const int function = ElementChain::FunctionOf(name);
  if (!schema || !schema->is_standard() || function < 0) return false;
  if (node.args().Get<std::string>("approximate", "none") != "none") return false;
  const bool is_binary = static_cast<StepFunction>(function) >= StepFunction::kAdd;
  if (node.inputs().size() != (is_binary ? 2 : 1)) return false;
  const auto append = [&]<class T>(const char* list, std::initializer_list<T> values) {
    auto all = fused.args().Get<std::vector<T>>(list, {});
    all.insert(all.end(), values);
    fused.Arg(list, all);
  };
  const ElementAttributes attributes = ElementAttributes::Of(node.type(), node.args());
  append("steps", {name});
  append("swapped", {int64_t{read == 1}});
  append("numbers", {attributes.numbers[0], attributes.numbers[1]});
  if (is_binary) fused.Input(node.inputs()[1 - read]);
  return static_cast<int>(fused.inputs().size()) <= BroadcastIndex::kMaxInputs &&
         fused.args().Get<std::vector<std::string>>("steps").size() <= ElementChain::kMaxSteps;
}

// The Fuse of elementwise kernels. Both nodes have an output of the same shape, of float32, float16
// or bfloat16.
inline std::optional<FusedNode> FuseElementwise(const FusionQuery& query) {
  const TensorInfo &y = query.node.outputs[0], &next = query.next.outputs[0];
  if (!ElementTypes<float, float16, bfloat16>::Has(y.dtype) || y.dtype != next.dtype ||
      !y.shape.is_known() || !next.shape.is_known() || y.shape.ToShape() != next.shape.ToShape())
    return {};
  FusedNode made{query.node.def, {}};
  OperatorDef& def = made.def;
  if (query.node.inputs[0].dtype != y.dtype) return {};
  if (def.type() != kFusedElementwise) {
    def = OperatorDef(kFusedElementwise, {query.node.def.inputs()[0]}, {})
              .Name(query.node.def.name())
              .Device(query.node.def.device());
    if (!AddStep(query.node.def, 0, def)) return {};
  }
  if (!AddStep(query.next.def, query.read, def)) return {};
  def.mutable_outputs() = query.next.def.outputs();
  // An input of the output's shape may be in its memory, because a thread reads all its elements
  // before it writes them.
  const auto allow = [&](const KernelQuery& node) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const SymbolicShape& shape = node.inputs[i].shape;
      if (!shape.is_known() || shape.ToShape() != y.shape.ToShape()) continue;
      for (size_t k = 0; k < def.inputs().size(); ++k)
        if (def.inputs()[k] == node.def.inputs()[i])
          made.config.inplace.emplace_back(static_cast<int>(k), 0);
    }
  };
  allow(query.node);
  allow(query.next);
  return made;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_STEPS_HPP_
