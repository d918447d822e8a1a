// Calls a library's functions for the types, costs and scratch memory of its operators.
#ifndef OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_HOOKS_IPP_
#define OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_HOOKS_IPP_

#include <algorithm>

#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/plugin/load/library_ops.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Infers the outputs of one node by the functions infer_type and infer_shape of a library.
class LibraryInference {
 public:
  LibraryInference(const std::string& library, const std::string& name, const opkit_op* op,
                   const opkit_op& functions, InferenceContext& context)
      : library_(library),
        name_(name),
        op_(op),
        functions_(functions),
        context_(context),
        node_(context.def()),
        inputs_(context.inputs(), symbols_),
        outputs_(context.outputs(), symbols_),
        knows_a_rank_(context.num_inputs() == 0) {
    inputs_.SetInputs(context.def(), context.inputs());
    for (int i = 0; i < context.num_inputs(); ++i) {
      if (!context.HasInput(i)) continue;
      const TensorInfo& input = context.input(i);
      types_known_ &= input.dtype != DType::kUndefined;
      shapes_known_ &= input.shape.is_known();
      knows_a_rank_ |= input.shape.has_rank();
    }
    for (const TensorInfo& output : context.outputs()) knows_a_rank_ |= output.shape.has_rank();
  }

  // Without infer_type every output has the dtype of the first input.
  void InferTypes() {
    if (functions_.infer_type) {
      Call("inferType", types_known_, functions_.infer_type,
           [](auto& values, auto... place) { return TensorInfo(values.dtype(place...), {}); });
    } else if (context_.num_inputs() > 0) {
      for (int o = 0; o < context_.num_outputs(); ++o)
        context_.SetOutput(o, context_.input_dtype(0), {});
    }
  }
  // Passes the elements of short lists of integers only if shapes alone do not decide the result,
  // because a result that depends on data is valid only for one run.
  void InferShapes() {
    if (!functions_.infer_shape || !knows_a_rank_) return;
    std::vector<int> lists;
    for (int i = 0; i < context_.num_inputs(); ++i)
      if (const TensorInfo& input = context_.input(i);
          context_.HasInput(i) && IsInteger(input.dtype) && input.shape.has_rank() &&
          input.shape.rank() < 2)
        lists.push_back(i);
    if (CallInferShape(shapes_known_ && lists.empty()) || lists.empty()) return;
    bool more_is_known = shapes_known_;
    for (const int i : lists)
      if (const Tensor* data = context_.input_constant(i)) {
        inputs_.SetConstant(Index(i), *data);
        more_is_known = true;
      }
    if (more_is_known) CallInferShape(shapes_known_);
  }

 private:
  // True if all shapes of the outputs are known afterwards.
  bool CallInferShape(bool all_known) {
    return Call("inferShape", all_known, functions_.infer_shape,
                [](auto& values, auto... place) {
                  return TensorInfo(DType::kUndefined, values.shape(place...));
                }) &&
           std::ranges::all_of(context_.outputs(),
                               [](auto& output) { return output.shape.is_known(); });
  }
  // Calls the library's inference of dtypes or shapes; false if the library cannot infer them yet.
  // `read` returns a value's dtype or shape from the library's result.
  template <class Function, class Read>
  bool Call(const char* what, bool all_known, Function function, Read read) {
    try {
      CallOperatorFunction(what, name_, library_, [&] {
        return function(op_, &node_.node(), inputs_.data(), outputs_.data());
      });
    } catch (const Error&) {
      if (all_known) throw;
      return false;
    }
    try {
      RefineBy(context_, inputs_, outputs_, read);
      return true;
    } catch (...) {
      RethrowInContext(
          StrCat("in the result of ", what, " of operator ", name_, " of library ", library_));
    }
  }

  const std::string &library_, &name_;
  const opkit_op* const op_;
  const opkit_op& functions_;
  InferenceContext& context_;
  const AbiNode node_;
  std::vector<std::string> symbols_;
  AbiValues inputs_, outputs_;
  // True if the types, and the shapes, of all inputs are known.
  bool types_known_ = true, shapes_known_ = true;
  bool knows_a_rank_;  // shapes can be inferred: a rank is known, or there are no inputs
};

// Implements the hooks of an operator by calls of the library's functions.
class LibraryHooks final : public FunctionHooks {
 public:
  LibraryHooks(LibraryImagePtr image, const opkit_op* op, const opkit_op& functions)
      : image_(std::move(image)), op_(op), functions_(functions), name_(op->name) {}

  std::pair<int, int> Arity(const Arguments& args, std::span<const NamedSubgraph> graphs) override {
    if (!functions_.parse_attrs) return {-1, -1};
    OperatorDef def(name_, {}, {}, args);
    for (const NamedSubgraph& item : graphs) def.Subgraph(item.name, item.graph);
    const AbiNode node(def);
    int32_t inputs = -1, outputs = -1;
    Call("parseAttrs",
         [&] { return functions_.parse_attrs(op_, &node.node(), &inputs, &outputs); });
    if (inputs < -1 || outputs < -1 || inputs > kMostValues || outputs > kMostValues)
      Throw(ErrorCode::kInvalidArgument, "parseAttrs of operator ", name_, " of library ",
            image_->name, " says ", inputs, " inputs and ", outputs, " outputs; -1 is any number, ",
            kMostValues, " are the most");
    return {inputs, outputs};
  }

  bool has_inference() const override { return functions_.infer_type || functions_.infer_shape; }
  void Infer(InferenceContext& context) override {
    LibraryInference inference(image_->name, name_, op_, functions_, context);
    inference.InferTypes();
    inference.InferShapes();
  }
  std::vector<int> MutatedInputs(const OperatorDef& def) override {
    std::vector<int> inputs;
    if (!functions_.mutated_inputs) return inputs;
    const AbiNode node(def);
    std::vector<uint8_t> mutated(def.inputs().size());
    Call("mutateInputs",
         [&] { return functions_.mutated_inputs(op_, &node.node(), mutated.data()); });
    for (size_t i = 0; i < mutated.size(); ++i)
      if (mutated[i]) inputs.push_back(static_cast<int>(i));
    return inputs;
  }
  int64_t Scratch(const OperatorDef& def, std::span<const TensorInfo> infos) override {
    if (!functions_.scratch_bytes) return 0;
    const AbiNode node(def);
    std::vector<std::string> symbols;
    AbiValues inputs(infos, symbols);
    int64_t bytes = 0;
    Call("scratch's function",
         [&] { return functions_.scratch_bytes(op_, &node.node(), inputs.data(), &bytes); });
    if (bytes < 0)
      Throw(ErrorCode::kInvalidArgument, "operator ", name_, " of library ", image_->name,
            " asks for ", bytes, " bytes of scratch");
    return bytes;
  }

  void Cost(const OperatorDef& def, std::span<const TensorInfo> in, std::span<const TensorInfo> out,
            OpCost& cost) override {
    const AbiNode node(def);
    std::vector<std::string> symbols;
    AbiValues inputs(in, symbols), outputs(out, symbols);
    opkit_cost said{sizeof said,        nullptr,          cost.flops, cost.bytes_read,
                    cost.bytes_written, cost.params_bytes};
    Call("cost",
         [&] { return functions_.cost(op_, &node.node(), inputs.data(), outputs.data(), &said); });
    cost = {said.flops, said.bytes_read, said.bytes_written, said.params_bytes};
  }

  std::vector<Tensor> TestInputs(DType dtype, uint64_t seed) override {
    std::vector<Tensor> made;
    opkit_test_inputs answer{};
    answer.size = sizeof answer;
    answer.context = &made;
    answer.add = [](const opkit_test_inputs* inputs, const opkit_tensor* tensor) {
      return AnswerCaller([&] {
        if (!inputs) Throw(ErrorCode::kInvalidArgument, "test inputs are added to nothing");
        RequireView(tensor, "a test input ");
        auto& all = *static_cast<std::vector<Tensor>*>(inputs->context);
        all.emplace_back().CopyFrom(TensorOfView(*tensor));
      });
    };
    Call("the test inputs",
         [&] { return functions_.test_inputs(op_, static_cast<int32_t>(dtype), seed, &answer); });
    return made;
  }

 private:
  template <class Body>
  void Call(const char* what, Body body) const {
    CallOperatorFunction(what, name_, image_->name, body);
  }
  // a limit, because a node has a name for each value
  static constexpr int32_t kMostValues = 65535;

  LibraryImagePtr image_;
  const opkit_op* op_;
  const opkit_op functions_;  // a copy of *op, with null for functions that its version lacks
  const std::string name_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_HOOKS_IPP_
