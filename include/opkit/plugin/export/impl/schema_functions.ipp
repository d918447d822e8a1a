// Implements opkit_op and opkit_kernel by the schemas and kernels of a library's registries.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_SCHEMA_FUNCTIONS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_SCHEMA_FUNCTIONS_IPP_

#include <optional>

#include "opkit/op/boundary/convert/abi_config.hpp"
#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/plugin/export/impl/exported_instance.ipp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Functions of an opkit_op whose `author` is a schema, and of opkit_kernels whose `author` is a
// kernel of the registry.
struct OPKIT_IMAGE_LOCAL SchemaFunctions {
  OPKIT_COLD static void FillIn(opkit_op& op, const OpSchema& schema) {
    op.parse_attrs = &ParseAttrs;
    if (schema.has_inference()) {
      op.infer_type = &InferType;
      op.infer_shape = &InferShape;
    }
    op.mutated_inputs = &MutatedInputs;
    op.scratch_bytes = &ScratchBytes;
    if (schema.has_cost()) op.cost = &Cost;
    if (schema.has_test_inputs()) op.test_inputs = &TestInputs;
    op.author = &schema;
  }
  OPKIT_COLD static void FillIn(opkit_kernel& to, const Kernel& kernel) {
    to.create = &Create;
    if (kernel.propose) {
      to.propose = &Propose;
      to.create_for = &CreateFor;
    }
    if (kernel.fuse) to.fuse = &Fuse;
    to.destroy = &Destroy;
    to.forward = &Forward;
    to.author = &kernel;
  }

 private:
  static const OpSchema& SchemaOf(const opkit_op* op) {
    return *static_cast<const OpSchema*>(op->author);
  }
  static opkit_status Create(const opkit_kernel* kernel, const opkit_node* node, void** instance) {
    return GuardedCall([&] {
      const auto& own = *static_cast<const Kernel*>(kernel->author);
      *instance = new IntrusivePtr(new ExportedInstance(own, *node, nullptr));
    });
  }
  OPKIT_COLD static opkit_status CreateFor(const opkit_kernel* kernel, const opkit_node* node,
                                           const opkit_config* config, void** instance) {
    return GuardedCall([&] {
      const auto& own = *static_cast<const Kernel*>(kernel->author);
      const KernelConfig chosen = ConfigOfAbi(config, node->num_inputs, node->num_outputs);
      *instance = new IntrusivePtr(new ExportedInstance(own, *node, &chosen));
    });
  }
  OPKIT_COLD static opkit_status Propose(const opkit_kernel* kernel, const opkit_node* node,
                                         const opkit_value* inputs, const opkit_value* outputs,
                                         const opkit_proposals* proposals) {
    return GuardedCall([&] {
      const auto& own = *static_cast<const Kernel*>(kernel->author);
      const OperatorDef def = DefinitionOfAbi(node);
      const ValuesOfAbi ins(inputs, node->num_inputs, true), outs(outputs, node->num_outputs, true);
      for (const KernelConfig& config : own.propose({def, ins.infos(), outs.infos()})) {
        const AbiConfig abi(config, node->num_inputs, node->num_outputs);
        const opkit_status status = proposals->add(proposals, &abi.config());
        if (status != OPKIT_OK) Throw(CodeOfStatus(status), g_host->failure_text());
      }
    });
  }
  OPKIT_COLD static opkit_status Fuse(const opkit_kernel* kernel, const opkit_fusion* fusion) {
    return GuardedCall([&] {
      const auto& own = *static_cast<const Kernel*>(kernel->author);
      const opkit_node &node = *fusion->node, &next = *fusion->next;
      const OperatorDef def = DefinitionOfAbi(fusion->node),
                        next_def = DefinitionOfAbi(fusion->next);
      const ValuesOfAbi ins(fusion->inputs, node.num_inputs, true),
          outs(fusion->outputs, node.num_outputs, true),
          next_ins(fusion->next_inputs, next.num_inputs, true),
          next_outs(fusion->next_outputs, next.num_outputs, true);
      const KernelConfig config = ConfigOfAbi(fusion->config, node.num_inputs, node.num_outputs),
                         next_config =
                             ConfigOfAbi(fusion->next_config, next.num_inputs, next.num_outputs);
      const std::optional<FusedNode> made =
          own.fuse({{def, ins.infos(), outs.infos()},
                    config,
                    {next_def, next_ins.infos(), next_outs.infos()},
                    next_config,
                    static_cast<size_t>(fusion->read)});
      if (!made) return;
      const AbiNode both(made->def);
      const AbiConfig chosen(made->config, made->def.inputs().size(), made->def.outputs().size());
      const opkit_status status = fusion->fuse(fusion, &both.node(), &chosen.config());
      if (status != OPKIT_OK) Throw(CodeOfStatus(status), g_host->failure_text());
    });
  }
  static void Destroy(void* instance) {
    GuardedCall([&] { delete static_cast<IntrusivePtr<ExportedInstance>*>(instance); });
  }
  static opkit_status Forward(void* instance, const opkit_call* call) {
    return GuardedCall(
        [&] { (*static_cast<IntrusivePtr<ExportedInstance>*>(instance))->Run(call); });
  }

  OPKIT_COLD static opkit_status ParseAttrs(const opkit_op* op, const opkit_node* node,
                                            int32_t* num_inputs, int32_t* num_outputs) {
    return GuardedCall([&] {
      const OpSchema& schema = SchemaOf(op);
      const Arguments args = ArgumentsOfAbi(node->attrs, node->num_attrs);
      if (!schema.problem().empty()) return OpStatus::Failure(schema.problem());
      if (std::string why = schema.VerifyArguments(args); !why.empty())
        return OpStatus::Failure(why);
      const auto [inputs, outputs] = schema.Arity(args);
      *num_inputs = inputs;
      *num_outputs = outputs;
      return OpStatus();
    });
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
  // Infers dtypes without shapes if inference with shapes fails: infer_shape reports wrong shapes.
  static opkit_status InferType(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                                opkit_value* outputs) {
    return GuardedCall([&] {
      const OpSchema& schema = SchemaOf(op);
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
    });
  }
  static opkit_status InferShape(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                                 opkit_value* outputs) {
    return GuardedCall([&] { Infer(SchemaOf(op), node, inputs, outputs, false, true); });
  }
  OPKIT_COLD static opkit_status MutatedInputs(const opkit_op* op, const opkit_node* node,
                                               uint8_t* mutated) {
    return GuardedCall([&] {
      for (const int input : SchemaOf(op).MutatedInputs(DefinitionOfAbi(node))) {
        if (input < 0 || static_cast<uint64_t>(input) >= node->num_inputs)
          return OpStatus::Failure("MutatesInputs of its schema names input ", input,
                                   ", but the node has ", node->num_inputs);
        mutated[input] = 1;
      }
      return OpStatus();
    });
  }
  OPKIT_COLD static opkit_status Cost(const opkit_op* op, const opkit_node* node,
                                      const opkit_value* inputs, const opkit_value* outputs,
                                      opkit_cost* cost) {
    return GuardedCall([&] {
      const ValuesOfAbi ins(inputs, node->num_inputs, true), outs(outputs, node->num_outputs, true);
      const OpCost said = SchemaOf(op).Cost(DefinitionOfAbi(node), ins.infos(), outs.infos());
      cost->flops = said.flops;
      cost->bytes_read = said.bytes_read;
      cost->bytes_written = said.bytes_written;
      cost->params_bytes = said.params_bytes;
    });
  }
  OPKIT_COLD static opkit_status TestInputs(const opkit_op* op, int32_t dtype, uint64_t seed,
                                            const opkit_test_inputs* inputs) {
    return GuardedCall([&] {
      for (const Tensor& one : SchemaOf(op).MakeTestInputs(static_cast<DType>(dtype), seed)) {
        const AbiAttributes tensor(Arguments{{"input", one}});
        const opkit_status status = inputs->add(inputs, (*tensor.data())->tensors[0]);
        if (status != OPKIT_OK) Throw(CodeOfStatus(status), g_host->failure_text());
      }
    });
  }
  // Computes the largest scratch of the device's kernels, each by its first proposed configuration
  // in standard layouts: the host does not name the kernel that it will run.
  OPKIT_COLD static opkit_status ScratchBytes(const opkit_op* op, const opkit_node* node,
                                              const opkit_value* inputs, int64_t* bytes) {
    return GuardedCall([&] {
      const OpSchema& schema = SchemaOf(op);
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
    });
  }
};

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_SCHEMA_FUNCTIONS_IPP_
