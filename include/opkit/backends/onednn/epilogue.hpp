// OnednnEpilogue: the steps that oneDNN applies to every element of a convolution or matrix product
// before it writes the element: activations, and arithmetic with numbers, channels and tensors. In
// plans, Fuse builds it from the nodes behind a Conv or MatMul.
#ifndef OPKIT_BACKENDS_ONEDNN_EPILOGUE_HPP_
#define OPKIT_BACKENDS_ONEDNN_EPILOGUE_HPP_

#include <cmath>
#include <limits>

#include "opkit/backends/onednn/primitive.hpp"
#include "opkit/graph/plan/fusion.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

class OnednnEpilogue {
 public:
  // A step, stored in the attributes "steps" (its name), "alphas" and "betas" of a fused node. Each
  // binary step reads the next of the inputs that follow those of the Conv or MatMul itself.
  struct Step {
    std::string name;
    float alpha = 0, beta = 0;
    bool is_binary() const { return AlgorithmOf(name).second; }
  };

  OnednnEpilogue() = default;
  // Reads the steps of a fused node, whose operands begin at input `first_operand`. Throws
  // kInvalidArgument if lists and inputs do not fit.
  OnednnEpilogue(const OperatorDef& def, size_t first_operand) : first_operand_(first_operand) {
    const Arguments& args = def.args();
    const auto names = args.Get<std::vector<std::string>>("steps", {});
    const auto alphas = args.Get<std::vector<float>>("alphas", {}),
               betas = args.Get<std::vector<float>>("betas", {});
    if (alphas.size() != names.size() || betas.size() != names.size())
      Throw(ErrorCode::kInvalidArgument, def.type(), ": ", names.size(), " steps with ",
            alphas.size(), " alphas and ", betas.size(), " betas, expected one each a step");
    for (size_t i = 0; i < names.size(); ++i) steps_.push_back({names[i], alphas[i], betas[i]});
    for (const Step& step : steps_) operands_ += step.is_binary();
    if (def.inputs().size() < first_operand + operands_ && operands_ > 0)
      Throw(ErrorCode::kInvalidArgument, def.type(), ": its steps read ", operands_,
            " inputs behind the first ", first_operand, ", and it has ", def.inputs().size());
  }
  // Adds the attributes of the steps to a schema.
  static void Describe(OpSchema& schema) {
    schema.Arg<std::vector<std::string>>("steps", "what is done to each element, in this order")
        .Arg<std::vector<float>>("alphas", "a number for each step")
        .Arg<std::vector<float>>("betas", "a second number for each step");
  }

  bool empty() const { return steps_.empty(); }
  size_t operands() const { return operands_; }
  size_t first_operand() const { return first_operand_; }

  // Returns the step that does the work of `query.next`. Returns nullopt if oneDNN lacks such a
  // step, or computes other results than the reference kernel. Sets `operand` to the next node's
  // other input if the step reads it in every run, else to -1.
  static std::optional<Step> StepOf(const FusionQuery& query, int& operand) {
    operand = -1;
    const OperatorDef& def = query.next.def;
    const std::string& op = def.type();
    const OpSchema* schema = OpRegistry::Global().FindSchema(op);
    if (!schema || !schema->is_standard()) return {};
    // Clip and HardSigmoid are left out, because oneDNN's versions lose a NaN.
    if (op == "Relu" || op == "Sigmoid" || op == "Tanh") return Step{op};
    if (op == "LeakyRelu") {
      const Attribute* given = def.args().Find("alpha");
      const auto alpha =
          (given ? *given : *schema->FindAttribute("alpha")->default_value).Get<float>();
      return alpha == 0 ? Step{"Relu"} : Step{op, alpha};
    }
    if (op == "HardSwish") return Step{op, 1 / 6.f, 0.5f};
    const bool is_sum = op == "Sum" && def.inputs().size() == 2;
    if (op != "Add" && op != "Sub" && op != "Mul" && op != "Div" && !is_sum) return {};
    const bool commutes = op == "Add" || op == "Mul" || is_sum;
    if (query.read != 0 && !commutes) return {};
    const TensorInfo& other = query.next.inputs[1 - query.read];
    if (other.dtype != query.node.outputs[0].dtype || !other.shape.is_known()) return {};
    const Tensor* constant = other.constant;
    if (constant && constant->numel() == 1) {
      const float value = NumberOf(*constant);
      if (op == "Mul") return Step{"Linear", value, 0};
      if (op == "Add" || is_sum) return Step{"Linear", 1, value};
      if (op == "Sub") return Step{"Linear", 1, -value};
    }
    operand = static_cast<int>(1 - query.read);
    return Step{is_sum ? "Add" : op};
  }
  // Returns `query.node` with one more step, as a node of this type. The new node has the outputs
  // of `query.next`. The operand, read in this layout, becomes the new node's last input.
  static FusedNode Extended(const FusionQuery& query, const char* type, size_t first_operand,
                            const Step& step, int operand, const Layout& layout) {
    FusedNode made{query.node.def, query.config};
    OperatorDef& def = made.def;
    if (def.type() != type) {
      def.Type(type);
      def.mutable_inputs().resize(first_operand);
    }
    made.config.input_layouts.resize(def.inputs().size());
    made.config.output_layouts.resize(1);
    made.config.inplace.clear();
    Append(step, def);
    if (operand >= 0) {
      def.Input(query.next.def.inputs()[Index(operand)]);
      made.config.input_layouts.push_back(layout);
    }
    def.mutable_outputs() = query.next.def.outputs();
    return made;
  }
  static Layout LayoutIn(const std::vector<Layout>& layouts, size_t i) {
    return i < layouts.size() ? layouts[i] : Layout();
  }
  // True if the next node's output has the same dtype, shape and layout as the node's.
  static bool KeepsOutput(const FusionQuery& query) {
    const TensorInfo &y = query.node.outputs[0], &next = query.next.outputs[0];
    return y.shape.is_known() && next.shape.is_known() && y.dtype == next.dtype &&
           y.shape.ToShape() == next.shape.ToShape() &&
           LayoutIn(query.config.output_layouts, 0) ==
               LayoutIn(query.next_config.output_layouts, 0);
  }
  // Returns the layout in which an operand is read: the output's layout if the operand has the
  // output's shape, else the standard layout; nullopt if every run would have to convert it.
  static std::optional<Layout> OperandLayout(const FusionQuery& query, int operand, bool is_whole) {
    const TensorInfo& info = query.next.inputs[Index(operand)];
    const Layout wanted = is_whole ? LayoutIn(query.next_config.output_layouts, 0) : Layout();
    if (info.layout != wanted && !info.constant) return {};
    return wanted;
  }
  // Appends a step to the attributes of `def`.
  static void Append(const Step& step, OperatorDef& def) {
    const auto append = [&]<class T>(const char* name, T value) {
      auto all = def.args().Get<std::vector<T>>(name, {});
      all.push_back(std::move(value));
      def.Arg(name, all);
    };
    append("steps", step.name);
    append("alphas", step.alpha);
    append("betas", step.beta);
  }

  // Returns oneDNN's attributes with these steps. `operands` describes the memory of the steps'
  // operands. The toolkit provides the scratch memory.
  dnnl::primitive_attr Attributes(const std::vector<dnnl::memory::desc>& operands) const {
    dnnl::primitive_attr attributes = OnednnAttributes();
    if (steps_.empty()) return attributes;
    dnnl::post_ops all;
    size_t operand = 0;
    for (const Step& step : steps_) {
      if (step.is_binary()) {
        all.append_binary(AlgorithmOf(step.name).first, operands[operand++]);
      } else if (step.name == "Relu") {
        // Relu as x * clip(x * huge, 0, 1), because oneDNN's Relu turns a NaN into 0. The formula
        // turns -infinity, the result of an earlier overflow, into a NaN.
        constexpr float kHuge = (std::numeric_limits<float>::max)();
        all.append_eltwise(dnnl::algorithm::eltwise_hardswish, kHuge, 0);
      } else {
        all.append_eltwise(AlgorithmOf(step.name).first, step.alpha, step.beta);
      }
    }
    attributes.set_post_ops(all);
    return attributes;
  }
  // Adds the operands to the arguments of a piece. `begins` are the elements at which the piece
  // begins in each operand.
  void AddArguments(const std::vector<dnnl::memory::desc>& operands,
                    const std::vector<int64_t>& begins, OnednnPiece& piece) const {
    size_t operand = 0;
    for (size_t i = 0; i < steps_.size(); ++i)
      if (steps_[i].is_binary()) {
        piece.arguments.push_back(
            {DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1,
             operands[operand], begins[operand]});
        ++operand;
      }
  }

 private:
  // Returns the element of a tensor with one element of float32 or bfloat16.
  static float NumberOf(const Tensor& tensor) {
    if (tensor.dtype() == DType::kBFloat16) return tensor.ToVector<bfloat16>()[0];
    return tensor.ToVector<float>()[0];
  }
  // Returns oneDNN's algorithm for a step, and true if the step reads an operand. Throws
  // kInvalidArgument for an unknown name.
  static std::pair<dnnl::algorithm, bool> AlgorithmOf(std::string_view name) {
    using enum dnnl::algorithm;
    struct Row {
      std::string_view name;
      dnnl::algorithm algorithm;
      bool is_binary;
    };
    static constexpr Row kRows[] = {{"Relu", eltwise_relu, false},
                                    {"LeakyRelu", eltwise_relu, false},
                                    {"Sigmoid", eltwise_logistic, false},
                                    {"Tanh", eltwise_tanh, false},
                                    {"HardSwish", eltwise_hardswish, false},
                                    {"Linear", eltwise_linear, false},
                                    {"Add", binary_add, true},
                                    {"Sub", binary_sub, true},
                                    {"Mul", binary_mul, true},
                                    {"Div", binary_div, true}};
    for (const Row& row : kRows)
      if (row.name == name) return {row.algorithm, row.is_binary};
    Throw(ErrorCode::kInvalidArgument, "oneDNN has no step '", name, "'");
  }

  std::vector<Step> steps_;
  size_t operands_ = 0, first_operand_ = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_ONEDNN_EPILOGUE_HPP_
