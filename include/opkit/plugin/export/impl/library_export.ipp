// Implements opkit_op by the functions of REGISTER_OP, and describes the library.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_LIBRARY_EXPORT_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_LIBRARY_EXPORT_IPP_

#include "opkit/op/boundary/convert/op_conversion.hpp"
#include "opkit/plugin/export/library_export.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// One operator of the host: its attributes, read once, and the author's state.
struct FunctionInstance {
  FunctionDevice& device;
  AttrMap attrs;
  IntrusivePtr<StatefulOp> state;
};

OPKIT_IMAGE_LOCAL inline opkit_status CreateInstance(const opkit_kernel* kernel,
                                                     const opkit_node* node, void** instance) {
  return GuardedCall([&] {
    auto& record = *static_cast<FunctionOpRecord*>(const_cast<void*>(kernel->author));
    FunctionDevice* device = record.devices.data();
    while (&device->abi != kernel) ++device;
    // The state may refer to the attributes.
    struct Made {
      FunctionInstance* instance;
      ~Made() { delete instance; }
    } owner{new FunctionInstance{*device, record.Attrs(*node), {}}};
    FunctionInstance* const made = owner.instance;
    if (device->create_state) {
      const OpContext context{
          {static_cast<DeviceType>(node->device_type), node->device_index}, nullptr, node};
      OpStatus status = device->create_state(made->attrs, context, made->state);
      if (!status.ok()) return status;
      if (!made->state) return OpStatus::Failure("createOpState succeeded but made no StatefulOp");
    }
    *instance = std::exchange(owner.instance, nullptr);
    return OpStatus();
  });
}
OPKIT_IMAGE_LOCAL inline void DestroyInstance(void* instance) {
  GuardedCall([&] { delete static_cast<FunctionInstance*>(instance); });
}

// Returns the host's array if its opkit_tensor has the size of ours, else copies. The author's
// functions only read the views; they write to the memory behind them.
inline OpTensor* ViewsOfAbi(const opkit_tensor* tensors, uint64_t count,
                            std::vector<OpTensor>& copies) {
  if (count == 0 || tensors->size == sizeof(opkit_tensor)) [[likely]]
    return reinterpret_cast<OpTensor*>(const_cast<opkit_tensor*>(tensors));
  for (uint64_t i = 0; i < count; ++i) copies.emplace_back(*opkit_tensor_at(tensors, i));
  return copies.data();
}

template <FunctionPass kPass>
opkit_status RunFunction(void* context, const opkit_call* call) {
  return GuardedCall([&] {
    auto& [device, attrs, state] = *static_cast<FunctionInstance*>(context);
    std::vector<OpTensor> in_copies, out_copies;
    const std::span<const OpTensor> in(ViewsOfAbi(call->inputs, call->num_inputs, in_copies),
                                       call->num_inputs);
    const std::span<OpTensor> out(ViewsOfAbi(call->outputs, call->num_outputs, out_copies),
                                  call->num_outputs);
    OpResource resource(call);
    if (state) return state->Run(kPass, in, out, resource);
    return (kPass == FunctionPass::kForward ? device.forward : device.backward)(attrs, in, out,
                                                                                resource);
  });
}
OPKIT_INLINE opkit_status RunForward(void* instance, const opkit_call* call) {
  return RunFunction<FunctionPass::kForward>(instance, call);
}
OPKIT_INLINE opkit_status RunBackward(void* instance, const opkit_call* call) {
  return RunFunction<FunctionPass::kBackward>(instance, call);
}

OPKIT_INLINE OpStatus RecordFunctions::ParseAttrs(Record& record, const opkit_node* node,
                                                  int32_t* num_inputs, int32_t* num_outputs) {
  int inputs = -1, outputs = -1;
  OpStatus status = record.CountValues(record.Attrs(*node), &inputs, &outputs);
  *num_inputs = inputs;
  *num_outputs = outputs;
  return status;
}

inline std::vector<DType> TypesOfAbi(opkit_value* values, uint64_t count) {
  std::vector<DType> types(count);  // kUndefined
  for (uint64_t i = 0; i < count; ++i)
    if (const int32_t dtype = opkit_value_at(values, i)->dtype;
        dtype > 0 && dtype < kNumPlainDTypes)
      types[i] = static_cast<DType>(dtype);
  return types;
}
inline void CheckAnswers(size_t found, uint64_t expected, const char* function, const char* what) {
  if (found != expected)
    Throw(ErrorCode::kInvalidArgument, function, " returned ", found, " ", what,
          ", but the node has ", expected);
}
inline void StoreTypesInAbi(const std::vector<DType>& types, opkit_value* values, uint64_t count,
                            const char* what) {
  CheckAnswers(types.size(), count, "inferType", what);
  for (uint64_t i = 0; i < count; ++i)
    opkit_value_at(values, i)->dtype =
        types[i] == DType::kUndefined ? -1 : static_cast<int32_t>(types[i]);
}
OPKIT_INLINE OpStatus RecordFunctions::InferType(Record& record, const opkit_node* node,
                                                 opkit_value* inputs, opkit_value* outputs) {
  std::vector<DType> in = TypesOfAbi(inputs, node->num_inputs);
  std::vector<DType> out = TypesOfAbi(outputs, node->num_outputs);
  OpStatus status = record.infer_type(record.Attrs(*node), in, out);
  if (status.ok()) {
    StoreTypesInAbi(in, inputs, node->num_inputs, "inputs");
    StoreTypesInAbi(out, outputs, node->num_outputs, "outputs");
  }
  return status;
}

inline ShapeVectors ShapesOfAbi(const opkit_value* values, uint64_t count) {
  ShapeVectors shapes(count);
  for (uint64_t i = 0; i < count; ++i) {
    const opkit_value& value = *opkit_value_at(const_cast<opkit_value*>(values), i);
    for (int32_t axis = 0; axis < value.rank; ++axis)
      shapes[i].push_back(value.dims[axis] < 0 ? -1 : value.dims[axis]);
  }
  return shapes;
}
// Stores shapes. An empty shape is a scalar if `empty_is_scalar`, else unknown.
inline void StoreShapesInAbi(const ShapeVectors& shapes, opkit_value* values, uint64_t count,
                             const char* what, bool empty_is_scalar) {
  CheckAnswers(shapes.size(), count, "inferShape", what);
  for (uint64_t i = 0; i < count; ++i) {
    opkit_value& value = *opkit_value_at(values, i);
    const std::vector<int64_t>& shape = shapes[i];
    if (shape.size() > OPKIT_MAX_RANK)
      Throw(ErrorCode::kOutOfRange, "inferShape says ", shape.size(), " axes for ", what, " ", i,
            "; ", OPKIT_MAX_RANK, " are the most");
    if (shape.empty() && !empty_is_scalar) continue;
    const bool same_rank = value.rank == static_cast<int32_t>(shape.size());
    value.rank = static_cast<int32_t>(shape.size());
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (shape[axis] >= 0 || !same_rank) value.dims[axis] = shape[axis];
  }
}
OPKIT_INLINE OpStatus RecordFunctions::InferShape(Record& record, const opkit_node* node,
                                                  opkit_value* inputs, opkit_value* outputs) {
  ShapeVectors in = ShapesOfAbi(inputs, node->num_inputs);
  ShapeVectors out = ShapesOfAbi(outputs, node->num_outputs);
  bool ranks_known = true;
  for (uint64_t i = 0; i < node->num_inputs; ++i) {
    const opkit_value& input = *opkit_value_at(inputs, i);
    ranks_known &= !input.present || input.rank >= 0;
  }
  OpStatus status = record.infer_shape(record.Attrs(*node), in, out);
  if (status.ok()) {
    StoreShapesInAbi(in, inputs, node->num_inputs, "inputs", false);
    StoreShapesInAbi(out, outputs, node->num_outputs, "outputs", ranks_known);
  }
  return status;
}
OPKIT_INLINE OpStatus RecordFunctions::MutatedInputs(Record& record, const opkit_node* node,
                                                     uint8_t* mutated) {
  std::vector<int> list;
  OpStatus status = record.mutate_inputs(record.Attrs(*node), list);
  for (int input : list) {
    if (input < 0 || static_cast<uint64_t>(input) >= node->num_inputs)
      return OpStatus::Failure("mutateInputs names input ", input, ", but the node has ",
                               node->num_inputs);
    mutated[input] = 1;
  }
  return status;
}
inline bool AreKnownInAbi(const opkit_value* values, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const opkit_value& value = *opkit_value_at(const_cast<opkit_value*>(values), i);
    if (value.rank < 0) return false;
    for (int32_t axis = 0; axis < value.rank; ++axis)
      if (value.dims[axis] < 0) return false;
  }
  return true;
}
OPKIT_INLINE void RecordFunctions::Cost(Record& record, const opkit_node* node,
                                        const opkit_value* inputs, const opkit_value* outputs,
                                        opkit_cost* cost) {
  if (AreKnownInAbi(inputs, node->num_inputs) && AreKnownInAbi(outputs, node->num_outputs))
    cost->flops = record.flops(record.Attrs(*node), ShapesOfAbi(inputs, node->num_inputs),
                               ShapesOfAbi(outputs, node->num_outputs));
}
OPKIT_INLINE void RecordFunctions::ScratchBytes(Record& record, const opkit_node* node,
                                                const opkit_value* inputs, int64_t* bytes) {
  *bytes = record.scratch(record.Attrs(*node), ShapesOfAbi(inputs, node->num_inputs));
}

OPKIT_COLD OPKIT_IMAGE_LOCAL inline void FillInRecord(FunctionOpRecord& record) {
  if (record.parse_attrs || (!record.inputs.empty() && !record.outputs.empty()))
    record.abi.parse_attrs = &GuardBy<FunctionOpRecord, &RecordFunctions::ParseAttrs>;
  record.abi.author = &record;
  for (FunctionDevice& device : record.devices) {
    opkit_kernel& kernel = device.abi;
    kernel.create = &CreateInstance;
    kernel.destroy = &DestroyInstance;
    kernel.author = &record;
    if (record.Has(OPKIT_OP_NO_GRADIENT)) kernel.backward = nullptr;
  }
}
// Adds the records of REGISTER_OP. An operator that two units register from one header is added
// once.
OPKIT_COLD OPKIT_IMAGE_LOCAL inline OpStatus AddRecords(std::vector<FunctionRecord>& records) {
  std::string problems;
  for (const FunctionRecord& record : LibraryContents::Global().records) {
    bool known = false;
    for (size_t i = records.size(); i > 0; --i) {
      const FunctionOpRecord& other = *records[i - 1];
      if (other.name != record->name) continue;
      known = other.line == record->line && std::string_view(other.file) == record->file;
      break;
    }
    if (known) continue;
    if (!record->problem.empty()) problems += StrCat(problems.empty() ? "" : "\n", record->problem);
    FillInRecord(*record);
    records.push_back(record);
  }
  return problems.empty() ? OpStatus() : OpStatus::Failure(problems);
}
OPKIT_COLD OPKIT_INLINE void AddToLibrary(const FunctionRecord& record) {
  LibraryContents::Global().records.push_back(record);
  LibraryContents::Global().add_records = &AddRecords;
}

OPKIT_COLD OPKIT_INLINE LibraryContents& LibraryContents::Global() {
  static LibraryContents contents;
  return contents;
}

OPKIT_COLD OPKIT_INLINE const opkit_library* DescribeLibrary(const opkit_host* host) noexcept {
  LibraryContents& contents = LibraryContents::Global();
  g_host = host;
  g_exceptions = nullptr;
  const opkit_status status = GuardedCall([&] {
    contents.ops.clear();
    contents.owners.clear();
    std::vector<FunctionRecord> records;
    if (contents.add_records)
      if (OpStatus added = contents.add_records(records); !added.ok()) return added;
    contents.layouts.clear();
    contents.layout_converters.clear();
    contents.devices.clear();
    contents.partitioners = contents.own_partitioner_pointers;
    contents.passes.clear();
    contents.backends.clear();
    if (contents.add_layouts) contents.add_layouts(contents);
    if (contents.add_partitioners) contents.add_partitioners(contents);
    if (contents.add_registered) contents.add_registered(records);
    for (FunctionRecord& record : records)
      contents.ops.push_back(ExportOp(std::move(record), contents.owners));
    return OpStatus();
  });
  if (status != OPKIT_OK) return nullptr;
  opkit_library& library = contents.library;
  library = {};
  library.size = sizeof library;
  library.abi_major = OPKIT_ABI_MAJOR;
  library.abi_minor = OPKIT_ABI_MINOR;
  library.version = OPKIT_VERSION_STRING;
  if (contents.initialize)
    library.initialize = [](uint32_t host_major, uint32_t host_minor) {
      return GuardedCall([&] {
        return LibraryContents::Global().initialize(static_cast<int>(host_major),
                                                    static_cast<int>(host_minor));
      });
    };
  if (contents.finalize)
    library.finalize = [] { GuardedCall([] { LibraryContents::Global().finalize(); }); };
  library.num_ops = contents.ops.size();
  library.ops = contents.ops.data();
  const auto tell = [](const auto& all, uint64_t& count, auto& pointers) {
    count = all.size();
    pointers = all.data();
  };
  tell(contents.layouts, library.num_layouts, library.layouts);
  tell(contents.layout_converters, library.num_layout_converters, library.layout_converters);
  tell(contents.devices, library.num_devices, library.devices);
  tell(contents.partitioners, library.num_partitioners, library.partitioners);
  tell(contents.passes, library.num_passes, library.passes);
  tell(contents.backends, library.num_backends, library.backends);
  library.own_version = contents.own_version;
  return &library;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_LIBRARY_EXPORT_IPP_
