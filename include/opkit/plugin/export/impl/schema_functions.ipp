// Implements opkit_op and opkit_kernel by the schemas and kernels of a library's registries.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_SCHEMA_FUNCTIONS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_SCHEMA_FUNCTIONS_IPP_

#include <optional>

#include "opkit/op/boundary/convert/abi_config.hpp"
#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/op/fusion.hpp"
#include "opkit/plugin/export/impl/exported_instance.ipp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Functions of an opkit_op whose `author` is a schema, and of opkit_kernels whose `author` is a
// kernel of the registry.
struct OPKIT_IMAGE_LOCAL SchemaFunctions {
  OPKIT_COLD static void FillIn(opkit_op& op, const OpSchema& schema) {
    op.parse_attrs = &GuardBy<const OpSchema, &ParseAttrs>;
    if (schema.has_inference()) {
      op.infer_type = &GuardBy<const OpSchema, &InferType>;
      op.infer_shape = &GuardBy<const OpSchema, &InferShape>;
    }
    op.mutated_inputs = &GuardBy<const OpSchema, &MutatedInputs>;
    op.scratch_bytes = &GuardBy<const OpSchema, &ScratchBytes>;
    if (schema.has_cost()) op.cost = &GuardBy<const OpSchema, &Cost>;
    if (schema.has_test_inputs()) op.test_inputs = &GuardBy<const OpSchema, &TestInputs>;
    op.author = &schema;
  }
  OPKIT_COLD static void FillIn(opkit_kernel& to, const Kernel& kernel) {
    to.create = &GuardBy<const Kernel, &Create>;
    if (kernel.propose) {
      to.propose = &GuardBy<const Kernel, &Propose>;
      to.create_for = &GuardBy<const Kernel, &CreateFor>;
    }
    if (kernel.fuse) to.fuse = &GuardBy<const Kernel, &Fuse>;
    to.destroy = &Destroy;
    to.forward = &Forward;
    to.author = &kernel;
  }

 private:
  static void Create(const Kernel& kernel, const opkit_node* node, void** instance) {
    *instance = new IntrusivePtr(new ExportedInstance(kernel, *node, nullptr));
  }
  OPKIT_COLD static void CreateFor(const Kernel& kernel, const opkit_node* node,
                                   const opkit_config* config, void** instance) {
    const KernelConfig chosen = ConfigOfAbi(config, node->num_inputs, node->num_outputs);
    *instance = new IntrusivePtr(new ExportedInstance(kernel, *node, &chosen));
  }
  OPKIT_COLD static void Propose(const Kernel& kernel, const opkit_node* node,
                                 const opkit_value* inputs, const opkit_value* outputs,
                                 const opkit_proposals* proposals) {
    const NodeOfAbi asked(node, inputs, outputs);
    for (const KernelConfig& config : kernel.propose(asked.query())) {
      const AbiConfig abi(config, node->num_inputs, node->num_outputs);
      AcceptAnswer(proposals->add(proposals, &abi.config()));
    }
  }
  static KernelConfig ConfigOf(const opkit_config* config, const NodeOfAbi& node) {
    return ConfigOfAbi(config, node.def.inputs().size(), node.def.outputs().size());
  }
  OPKIT_COLD static void Fuse(const Kernel& kernel, const opkit_fusion* fusion) {
    const NodeOfAbi node(fusion->node, fusion->inputs, fusion->outputs),
        next(fusion->next, fusion->next_inputs, fusion->next_outputs);
    const KernelConfig config = ConfigOf(fusion->config, node),
                       next_config = ConfigOf(fusion->next_config, next);
    const std::optional<FusedNode> made = kernel.fuse(
        {node.query(), config, next.query(), next_config, static_cast<size_t>(fusion->read)});
    if (!made) return;
    const AbiNode both(made->def);
    const AbiConfig chosen(made->config, made->def.inputs().size(), made->def.outputs().size());
    AcceptAnswer(fusion->fuse(fusion, &both.node(), &chosen.config()));
  }
  static void Destroy(void* instance) {
    GuardedCall([&] { delete static_cast<IntrusivePtr<ExportedInstance>*>(instance); });
  }
  static opkit_status Forward(void* instance, const opkit_call* call) {
    return GuardedCall(
        [&] { (*static_cast<IntrusivePtr<ExportedInstance>*>(instance))->Run(call); });
  }

  OPKIT_COLD static OpStatus ParseAttrs(const OpSchema& schema, const opkit_node* node,
                                        int32_t* num_inputs, int32_t* num_outputs) {
    const Arguments args = ArgumentsOfAbi(node->attrs, node->num_attrs);
    if (!schema.problem().empty()) return OpStatus::Failure(schema.problem());
    if (std::string why = schema.VerifyArguments(args); !why.empty()) return OpStatus::Failure(why);
    const auto [inputs, outputs] = schema.Arity(args);
    *num_inputs = inputs;
    *num_outputs = outputs;
    return OpStatus();
  }

  static void Infer(const OpSchema& schema, const opkit_node* node, opkit_value* inputs,
                    opkit_value* outputs, bool types, bool with_shapes) {
    OperatorDef def = DefinitionOfAbi(node);
    const ValuesOfAbi ins(inputs, node->num_inputs, with_shapes);
    const ValuesOfAbi outs(outputs, node->num_outputs, with_shapes);
    InferenceContext context(def, ins.infos(), outs.infos());
    schema.Infer(context);
    for (const auto& [infos, values] :
         {std::pair(&context.inputs(), inputs), std::pair(&context.outputs(), outputs)})
      types ? ValuesOfAbi::StoreTypes(*infos, values) : ValuesOfAbi::StoreShapes(*infos, values);
  }
  // If inference with shapes fails, infers dtypes without shapes; infer_shape then reports the
  // shapes.
  static void InferType(const OpSchema& schema, const opkit_node* node, opkit_value* inputs,
                        opkit_value* outputs) {
    try {
      Infer(schema, node, inputs, outputs, true, true);
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      try {
        Infer(schema, node, inputs, outputs, true, false);
      } catch (...) {
        std::rethrow_exception(failure);
      }
    }
  }
  static void InferShape(const OpSchema& schema, const opkit_node* node, opkit_value* inputs,
                         opkit_value* outputs) {
    Infer(schema, node, inputs, outputs, false, true);
  }
  OPKIT_COLD static OpStatus MutatedInputs(const OpSchema& schema, const opkit_node* node,
                                           uint8_t* mutated) {
    for (const int input : schema.MutatedInputs(DefinitionOfAbi(node))) {
      if (input < 0 || static_cast<uint64_t>(input) >= node->num_inputs)
        return OpStatus::Failure("MutatesInputs of its schema names input ", input,
                                 ", but the node has ", node->num_inputs);
      mutated[input] = 1;
    }
    return OpStatus();
  }
  OPKIT_COLD static void Cost(const OpSchema& schema, const opkit_node* node,
                              const opkit_value* inputs, const opkit_value* outputs,
                              opkit_cost* cost) {
    const NodeOfAbi asked(node, inputs, outputs);
    const OpCost said = schema.Cost(asked.def, asked.inputs.infos(), asked.outputs.infos());
    cost->flops = said.flops;
    cost->bytes_read = said.bytes_read;
    cost->bytes_written = said.bytes_written;
    cost->params_bytes = said.params_bytes;
  }
  OPKIT_COLD static void TestInputs(const OpSchema& schema, int32_t dtype, uint64_t seed,
                                    const opkit_test_inputs* inputs) {
    for (const Tensor& one : schema.MakeTestInputs(static_cast<DType>(dtype), seed)) {
      const AbiAttributes tensor(Arguments{{"input", one}});
      AcceptAnswer(inputs->add(inputs, (*tensor.data())->tensors[0]));
    }
  }
  // Computes the largest scratch of all kernels of the device, because the host does not name the
  // kernel that it will run. Uses each kernel's first proposed configuration in standard layouts.
  OPKIT_COLD static void ScratchBytes(const OpSchema& schema, const opkit_node* node,
                                      const opkit_value* inputs, int64_t* bytes) {
    *bytes = 0;
    const OperatorDef def = DefinitionOfAbi(node);
    const ValuesOfAbi ins(inputs, node->num_inputs, true);
    std::optional<std::vector<TensorInfo>> outs;
    for (const Kernel* kernel :
         OpRegistry::Global().FindKernels(schema.name(), def.device().type)) {
      if (!kernel->propose) continue;
      if (!outs) outs = schema.InferOutputs(def, ins.infos());
      try {
        for (const KernelConfig& config : kernel->propose({def, ins.infos(), *outs})) {
          if (!config.input_layouts.empty() || !config.output_layouts.empty()) continue;
          *bytes = (std::max)(*bytes, config.scratch_bytes);
          break;
        }
      } catch (const UnsupportedOperatorFeature&) {  // reported when the operator is created
      }
    }
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_SCHEMA_FUNCTIONS_IPP_
