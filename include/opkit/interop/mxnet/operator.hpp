// MxnetOperator: describes an operator of a library for MXNet as an opkit_op.
#ifndef OPKIT_INTEROP_MXNET_OPERATOR_HPP_
#define OPKIT_INTEROP_MXNET_OPERATOR_HPP_

#include <map>
#include <optional>

#include "opkit/graph/abi_graph.hpp"
#include "opkit/graph/partition/symbol_json.hpp"
#include "opkit/interop/mxnet/extra_inputs.hpp"
#include "opkit/interop/mxnet/storage.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Names that MXNet's interface gives to an operator's attributes (lib_api.h, MX_STR_…).
inline constexpr const char* kMxnetSubgraph = "subgraph_sym_json";

// An operator. Its functions answer the functions of its opkit_op, by calls of the library. A
// failure that is not the library's own is described by an Error.
class MxnetOperator : public RefCounted {
 public:
  // The functions for one device.
  struct Device {
    MxnetFunction forward = nullptr, backward = nullptr, create = nullptr;
    std::string name;
    const MxnetOperator* op = nullptr;
    opkit_kernel kernel{};
  };

  // Reads operator `index`. `make_kernel` fills in the functions of a kernel. `uses_random` is true
  // if the library reads MXNet's random states. Throws kInvalidArgument for a description that
  // lacks a name or a required function.
  MxnetOperator(const MxnetApi& api, int index, const std::string& file, bool uses_random,
                void (*make_kernel)(Device& device))
      : api_(api), file_(file), uses_random_(uses_random) {
    struct Functions {
      const char** devices = nullptr;
      MxnetFunction* functions = nullptr;
      int count = 0;
    } forward, backward, create;
    const char* name = nullptr;
    int is_subgraph = 0;
    InContext(
        [&] {
          api_.RunVoid([&] {
            api_->op_reg_get(index, &name, &is_subgraph, &forward.devices, &forward.functions,
                             &forward.count, &backward.devices, &backward.functions,
                             &backward.count, &create.devices, &create.functions, &create.count,
                             &parse_attrs_, &infer_type_, &infer_stype_, &infer_shape_,
                             &mutate_inputs_);
          });
        },
        [&] { return StrCat("in operator ", index, " of library ", api_.name()); });
    if (!name || !*name)
      Throw(ErrorCode::kInvalidArgument, "library ", api_.name(), " gives operator ", index,
            " no name");
    name_ = name;
    if (const char* missing = Missing(is_subgraph != 0))
      Throw(ErrorCode::kInvalidArgument, "library ", api_.name(), " has operator ", name_,
            " without ", missing, ", which MXNet requires");
    std::map<std::string, Device> devices;
    const auto read = [&](const Functions& from, MxnetFunction Device::*function) {
      const int count = api_.Count(from.count, "devices of one function");
      if (count > 0 && (!from.devices || !from.functions))
        Throw(ErrorCode::kInvalidArgument, "library ", api_.name(), " gives operator ", name_,
              " no list of its ", count, " devices");
      for (int i = 0; i < count; ++i)
        if (from.devices[i] && from.functions[i])
          devices[from.devices[i]].*function = from.functions[i];
    };
    read(forward, &Device::forward);
    read(backward, &Device::backward);
    read(create, &Device::create);
    op_.flags = is_subgraph != 0 ? OPKIT_OP_SUBGRAPH : 0;
    devices_.reserve(devices.size());
    for (auto& [device_name, device] : devices) {
      if (!device.forward && !device.create) continue;  // backward alone
      Device& made = devices_.emplace_back(std::move(device));
      made.name = device_name;
      made.op = this;
      made.kernel.size = sizeof made.kernel;
      made.kernel.device = made.name.c_str();
      made.kernel.author = &made;
      make_kernel(made);
      kernels_.push_back(&made.kernel);
    }
    Describe();
  }

  const opkit_op* abi() const { return &op_; }
  const MxnetApi& api() const { return api_; }
  const std::string& name() const { return name_; }
  bool is_subgraph() const { return op_.flags & OPKIT_OP_SUBGRAPH; }
  bool uses_random() const { return uses_random_; }
  // Null for an operator without sparse tensors.
  MxnetFunction infer_stype() const { return infer_stype_; }

  // Writes the attributes of a node as MXNet's functions read them.
  void ReadAttributes(const opkit_node& node, MxnetTextMap& attributes) const {
    for (uint64_t i = 0; i < node.num_attrs; ++i)
      if (const std::string_view key = node.attrs[i]->name;
          key != kStateArgument && key != kStorageAttribute && !IsOpkitsMark(key))
        attributes.Add(std::string(key), MxnetText(node.attrs[i]->text));
    if (is_subgraph() && node.num_graphs > 0) {
      Graph body = GraphOfAbi(node.graphs[0], &CopyConstant);
      if (const opkit_attr* extra = opkit_find_attr(&node, kMxnetExtraInputs.data()))
        body = WithoutExtraInputs(body, MxnetExtraInputs(extra->text));
      const GraphView view(body);
      attributes.Add(
          kMxnetSubgraph,
          ToMxnetJson(
              WriteSymbolJson(view, InferGraph(view, {}, UnknownOperators::kAllowed)).text));
    }
    attributes.Finish();
  }

  // Returns the storage of a node's inputs and outputs: what its attribute kStorageAttribute says,
  // else the first of dense, CSR and row-sparse inputs that the operator accepts.
  MxnetStorages StoragesOf(const opkit_node& node, const MxnetTextMap& attributes) const {
    int num_in = -1, num_out = -1;
    if (!parse_attrs_) {  // a subgraph operator, whose node says it
      num_in = static_cast<int>(node.num_inputs);
      num_out = static_cast<int>(node.num_outputs);
    }
    if (parse_attrs_)
      api_.Run([&] {
        return api_->op_call_parse_attrs(parse_attrs_, attributes.keys(), attributes.values(),
                                         attributes.size(), &num_in, &num_out);
      });
    if (num_in < 0 || num_out < 0)
      Throw(ErrorCode::kInvalidArgument, "parseAttrs says ", num_in, " inputs and ", num_out,
            " outputs");
    const auto inputs = static_cast<size_t>(num_in), outputs = static_cast<size_t>(num_out);
    if (inputs > kMostValues || outputs > kMostValues)
      Throw(ErrorCode::kInvalidArgument, "parseAttrs says ", num_in, " inputs and ", num_out,
            " outputs; ", kMostValues, " are the most");
    MxnetStorages storages;
    storages.inputs.assign(inputs, MxnetStorage::kDense);
    storages.outputs.assign(outputs, MxnetStorage::kDense);
    if (!infer_stype_) return storages;
    if (const opkit_attr* said = opkit_find_attr(&node, kStorageAttribute.data())) {
      const auto names = ParseList<std::string>(said->text);
      if (!names || names->empty() || (names->size() != 1 && names->size() != inputs))
        Throw(ErrorCode::kInvalidArgument, "attribute '", kStorageAttribute, "' is \"", said->text,
              "\", expected one storage, or one for each of ", inputs, " inputs");
      for (size_t i = 0; i < inputs; ++i)
        storages.inputs[i] = MxnetStorageOf((*names)[names->size() == 1 ? 0 : i]);
      api_.Run([&] { return InferStorages(attributes, storages); });
      CheckStorages(storages);
      return storages;
    }
    std::string refusals;
    for (const MxnetStorage all :
         {MxnetStorage::kDense, MxnetStorage::kCsr, MxnetStorage::kRowSparse}) {
      storages.inputs.assign(inputs, all);
      try {
        api_.Run([&] { return InferStorages(attributes, storages); });
      } catch (const Error& refusal) {
        refusals += StrCat("; ", ToString(all), ": ", refusal.message());
        continue;
      }
      CheckStorages(storages);
      return storages;
    }
    Throw(
        ErrorCode::kInvalidArgument,
        "inferSType accepts neither dense nor CSR nor row-sparse inputs; if it accepts a mixture, "
        "name it in the attribute '",
        kStorageAttribute, "'", refusals);
  }

  // Infers the dtypes, MXNet's numbers, of inputs and outputs, in place.
  void InferTypes(const MxnetTextMap& attributes, std::vector<int>& inputs,
                  std::vector<int>& outputs) const {
    api_.Run([&] {
      return api_->op_call_infer_type(
          infer_type_, attributes.keys(), attributes.values(), attributes.size(), inputs.data(),
          static_cast<int>(inputs.size()), outputs.data(), static_cast<int>(outputs.size()));
    });
  }
  // Infers shapes, in place. The shapes of all inputs must be known. Throws kInvalidArgument for an
  // answer that is no shape.
  void InferShapes(const MxnetTextMap& attributes, std::vector<MxnetShape>& inputs,
                   std::vector<MxnetShape>& outputs) const {
    MxnetShapes in(inputs);
    Shapes new_in, out;
    api_.Run([&] {
      return api_->op_call_infer_shape(infer_shape_, attributes.keys(), attributes.values(),
                                       attributes.size(), in.data(), in.ranks(),
                                       static_cast<int>(inputs.size()), &new_in.rows, &new_in.ranks,
                                       &out.rows, &out.ranks, static_cast<int>(outputs.size()));
    });
    const std::string problem_in = Take(new_in, inputs, "input"),
                      problem_out = Take(out, outputs, "output");
    if (!problem_in.empty() || !problem_out.empty())
      Throw(ErrorCode::kInvalidArgument, problem_in.empty() ? problem_out : problem_in);
  }

 private:
  // True for the attributes with which opkit's partitioner marks the inputs of a subgraph.
  bool IsOpkitsMark(std::string_view key) const {
    return is_subgraph() && (key == "isArg" || key == "isAux");
  }

  // A limit, because a node has a name for each value.
  static constexpr size_t kMostValues = 65535;

  // Shapes that the library has allocated.
  struct Shapes {
    unsigned** rows = nullptr;
    int* ranks = nullptr;
  };
  // Copies the shapes, and frees the library's memory. Returns what is wrong with the answer.
  std::string Take(const Shapes& from, std::vector<MxnetShape>& to, const char* what) const {
    std::string problem;
    if (!to.empty() && (!from.rows || !from.ranks))
      problem = StrCat("inferShape returned no shapes of ", what, "s");
    for (size_t i = 0; problem.empty() && i < to.size(); ++i) {
      if (from.ranks[i] < 0 || from.ranks[i] > OPKIT_MAX_RANK)
        problem = StrCat("inferShape says ", from.ranks[i], " axes for ", what, " ", i, "; ",
                         OPKIT_MAX_RANK, " are the most");
      else if (from.ranks[i] > 0 && !from.rows[i])
        problem = StrCat("inferShape returned no extents of ", what, " ", i);
      if (!problem.empty()) break;
      to[i].clear();
      for (int axis = 0; axis < from.ranks[i]; ++axis) {
        const unsigned extent = from.rows[i][axis];
        if (extent > INT32_MAX)
          problem = StrCat("inferShape says the extent ", static_cast<int>(extent), " for axis ",
                           axis, " of ", what, " ", i);
        to[i].push_back(extent);
      }
    }
    if (from.rows)
      for (size_t i = 0; i < to.size(); ++i)
        if (from.rows[i]) api_.Free(from.rows[i]);
    if (from.rows) api_.Free(from.rows);
    if (from.ranks) api_.Free(from.ranks);
    return problem;
  }

  // Asks for the storage of the outputs; false if the operator does not accept the inputs.
  bool InferStorages(const MxnetTextMap& attributes, MxnetStorages& storages) const {
    std::vector<int> in, out(storages.outputs.size(), -1);
    for (const MxnetStorage one : storages.inputs) in.push_back(static_cast<int>(one));
    if (!api_->op_call_infer_stype(infer_stype_, attributes.keys(), attributes.values(),
                                   attributes.size(), in.data(), static_cast<int>(in.size()),
                                   out.data(), static_cast<int>(out.size())))
      return false;
    for (size_t i = 0; i < in.size(); ++i) storages.inputs[i] = static_cast<MxnetStorage>(in[i]);
    for (size_t i = 0; i < out.size(); ++i) storages.outputs[i] = static_cast<MxnetStorage>(out[i]);
    return true;
  }
  static void CheckStorages(const MxnetStorages& storages) {
    for (const auto* list : {&storages.inputs, &storages.outputs})
      for (const MxnetStorage one : *list)
        if (static_cast<int>(one) < 0 || static_cast<int>(one) > 2)
          Throw(ErrorCode::kInvalidArgument, "inferSType says the storage type ",
                static_cast<int>(one), "; 0 is dense, 1 row-sparse and 2 CSR");
  }

  // Returns the setter of a function that is required and missing; null if none is. A subgraph
  // operator without one has the numbers, types and shapes of its subgraph.
  const char* Missing(bool is_subgraph) const {
    if (is_subgraph && !infer_stype_) return nullptr;
    return !parse_attrs_   ? "setParseAttrs"
           : !infer_type_  ? "setInferType"
           : !infer_shape_ ? "setInferShape"
                           : nullptr;
  }
  // Fills in opkit_op.
  void Describe() {
    op_.size = sizeof op_;
    op_.name = name_.c_str();
    op_.file = file_.c_str();
    op_.num_kernels = kernels_.size();
    op_.kernels = kernels_.data();
    op_.author = this;
    if (infer_stype_) op_.flags |= OPKIT_OP_ALLOCATES_OUTPUTS | OPKIT_OP_GRADIENT_NOT_IMPLEMENTED;
    // MXNet does not say which operators draw numbers, or give other results as their state
    // changes.
    const bool keeps_state = std::ranges::any_of(devices_, &Device::create);
    if (uses_random_ || (keeps_state && !is_subgraph())) op_.flags |= OPKIT_OP_EFFECTS;
    if (parse_attrs_) op_.parse_attrs = &Answer<&MxnetOperator::AnswerParseAttrs>;
    if (infer_type_) op_.infer_type = &Answer<&MxnetOperator::AnswerInferType>;
    if (infer_shape_) op_.infer_shape = &Answer<&MxnetOperator::AnswerInferShape>;
    if (mutate_inputs_) op_.mutated_inputs = &Answer<&MxnetOperator::AnswerMutatedInputs>;
    if (infer_stype_) op_.test_inputs = &Answer<&MxnetOperator::AnswerTestInputs>;
  }
  template <auto kMember, class... Args>
  static opkit_status Answer(const opkit_op* op, Args... args) {
    return GuardedCall([&] { (static_cast<const MxnetOperator*>(op->author)->*kMember)(args...); });
  }

  void AnswerParseAttrs(const opkit_node* node, int32_t* num_inputs, int32_t* num_outputs) const {
    MxnetTextMap attributes;
    ReadAttributes(*node, attributes);
    const MxnetStorages storages = StoragesOf(*node, attributes);
    *num_inputs = static_cast<int32_t>(MxnetStorages::Parts(storages.inputs));
    *num_outputs = static_cast<int32_t>(MxnetStorages::Parts(storages.outputs));
  }
  // Calls f(first, storage, i) for each tensor; `first` is the number of its first value.
  template <class F>
  static void ForEach(const std::vector<MxnetStorage>& tensors, uint64_t num_values,
                      const char* what, F f) {
    if (MxnetStorages::Parts(tensors) != num_values)
      Throw(ErrorCode::kInvalidArgument, "the node has ", num_values, " ", what, "s, expected ",
            MxnetStorages::Parts(tensors));
    uint64_t first = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      f(first, tensors[i], i);
      first += MxnetParts(tensors[i]);
    }
  }
  void AnswerInferType(const opkit_node* node, opkit_value* inputs, opkit_value* outputs) const {
    MxnetTextMap attributes;
    ReadAttributes(*node, attributes);
    const MxnetStorages storages = StoragesOf(*node, attributes);
    std::vector<int> in, out(storages.outputs.size(), -1);
    ForEach(storages.inputs, node->num_inputs, "input", [&](uint64_t first, MxnetStorage, size_t) {
      in.push_back(MxnetTypeOf(opkit_value_at(inputs, first)->dtype));
    });
    InferTypes(attributes, in, out);
    const auto store = [&](const std::vector<MxnetStorage>& tensors, uint64_t count,
                           const char* what, opkit_value* values, const std::vector<int>& types) {
      ForEach(tensors, count, what, [&](uint64_t first, MxnetStorage storage, size_t i) {
        const int32_t type = TypeOfMxnet(types[i], what, i);
        if (type > 0) opkit_value_at(values, first)->dtype = type;
        for (uint64_t part = 1; part < MxnetParts(storage); ++part)
          opkit_value_at(values, first + part)->dtype = OPKIT_INT64;
      });
    };
    store(storages.inputs, node->num_inputs, "input", inputs, in);
    store(storages.outputs, node->num_outputs, "output", outputs, out);
  }
  // Infers the shapes of a node without sparse tensors, whose shapes are data.
  void AnswerInferShape(const opkit_node* node, opkit_value* inputs, opkit_value* outputs) const {
    MxnetTextMap attributes;
    ReadAttributes(*node, attributes);
    const MxnetStorages storages = StoragesOf(*node, attributes);
    if (!storages.is_dense()) return;
    std::vector<MxnetShape> in, out(storages.outputs.size());
    ForEach(
        storages.inputs, node->num_inputs, "input", [&](uint64_t first, MxnetStorage, size_t i) {
          const opkit_value& value = *opkit_value_at(inputs, first);
          MxnetShape& shape = in.emplace_back(value.dims, value.dims + (std::max)(0, value.rank));
          if (value.rank < 0 || std::ranges::any_of(shape, [](int64_t d) { return d < 0; }))
            Throw(ErrorCode::kFailedPrecondition, "the shape of input ", i, " is not known yet");
        });
    InferShapes(attributes, in, out);
    const auto store = [](const std::vector<MxnetShape>& shapes, opkit_value* values,
                          uint64_t count, bool empty_is_scalar) {
      for (uint64_t i = 0; i < count; ++i) {
        opkit_value& value = *opkit_value_at(values, i);
        if (shapes[i].empty() && !empty_is_scalar) continue;
        value.rank = static_cast<int32_t>(shapes[i].size());
        std::ranges::copy(shapes[i], value.dims);
      }
    };
    store(in, inputs, node->num_inputs, false);
    store(out, outputs, node->num_outputs, true);
  }
  void AnswerMutatedInputs(const opkit_node* node, uint8_t* mutated) const {
    MxnetTextMap attributes;
    ReadAttributes(*node, attributes);
    int *list = nullptr, count = 0;
    api_.Run([&] {
      return api_->op_call_mutate_inputs(mutate_inputs_, attributes.keys(), attributes.values(),
                                         attributes.size(), &list, &count);
    });
    const std::vector<int> inputs(list, list + (list ? (std::max)(0, count) : 0));
    if (list) api_.Free(list);
    const MxnetStorages storages = StoragesOf(*node, attributes);
    for (const int input : inputs)
      if (input < 0 || Index(input) >= storages.inputs.size())
        Throw(ErrorCode::kInvalidArgument, "mutateInputs names input ", input,
              ", but the operator has ", storages.inputs.size());
    ForEach(storages.inputs, node->num_inputs, "input",
            [&](uint64_t first, MxnetStorage storage, size_t i) {
              if (std::ranges::count(inputs, static_cast<int>(i)))
                std::fill_n(mutated + first, MxnetParts(storage), uint8_t{1});
            });
  }

  // Adds inputs of 3 rows and 4 columns: a CSR value with 4 elements, a row-sparse value with 2
  // rows.
  void AnswerTestInputs(int32_t dtype, uint64_t seed, const opkit_test_inputs* inputs) const {
    if (!HasMxnetType(static_cast<DType>(dtype))) return;
    opkit_node node{};
    node.size = sizeof node;
    node.op = name_.c_str();
    node.name = "";
    const MxnetTextMap attributes;
    const auto add = [&](const Tensor& tensor) {
      const AbiAttributes abi(Arguments{{"input", tensor}});
      AcceptAnswer(inputs->add(inputs, (*abi.data())->tensors[0]));
    };
    const auto values = [&](const Shape& shape) {
      DispatchDType<float, double, float16>(static_cast<DType>(dtype), [&]<class T>() {
        std::vector<T> elements(Index(shape.numel()));
        for (T& one : elements)
          one = static_cast<T>(static_cast<float>(MixBits(++seed) % 1000 + 1) / 1000.f);
        add(Tensor::From<T>(shape, elements));
      });
    };
    const auto numbers = [&](const std::vector<int64_t>& list) {
      add(Tensor::From<int64_t>({static_cast<int64_t>(list.size())}, list));
    };
    for (const MxnetStorage storage : StoragesOf(node, attributes).inputs) {
      if (storage == MxnetStorage::kDense) {
        values({3, 4});
      } else if (storage == MxnetStorage::kCsr) {
        values({4});
        numbers({0, 3, 1, 2});
        numbers({0, 2, 2, 4});
        numbers({3, 4});
      } else {
        values({2, 4});
        numbers({0, 2});
        numbers({3, 4});
      }
    }
  }

  const MxnetApi& api_;
  const std::string& file_;
  const bool uses_random_;
  std::string name_;
  MxnetFunction parse_attrs_ = nullptr, infer_type_ = nullptr, infer_stype_ = nullptr,
                infer_shape_ = nullptr, mutate_inputs_ = nullptr;
  std::vector<Device> devices_;
  std::vector<const opkit_kernel*> kernels_;
  opkit_op op_{};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_MXNET_OPERATOR_HPP_
