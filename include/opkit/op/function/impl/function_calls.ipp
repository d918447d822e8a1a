// Calls of the functions of a FunctionOpRecord.
#ifndef OPKIT_OP_FUNCTION_IMPL_FUNCTION_CALLS_IPP_
#define OPKIT_OP_FUNCTION_IMPL_FUNCTION_CALLS_IPP_

#include "opkit/op/function/function_calls.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE std::string FunctionStateBlob(const OperatorDef& def) {
  return StrCat("__state of ", def.type(), " ", def.name(), " ",
                def.outputs().empty() ? std::string() : def.outputs()[0]);
}
OPKIT_INLINE std::string NameOf(const FunctionOpRecord& record) {
  return record.library.empty() ? record.name : StrCat(record.name, " of library ", record.library);
}
inline constexpr char kSaysNotWhy[] =
    "it returned FAIL, which is 0 (SUCCESS is 1); say why with OPKIT_ERROR_MSG << \"…\"";

[[noreturn]] OPKIT_COLD OPKIT_INLINE void ThrowFunctionFailed(const FunctionOpRecord& record,
                                                              const char* what,
                                                              const OpStatus& status) {
  std::string text = status.message();
  if (const std::string& more = CurrentHostError().text; !more.empty())
    text += (text.empty() ? "" : ": ") + more;
  if (text.empty()) text = kSaysNotWhy;
  Throw(ErrorCode::kOperatorFailed, what, " of operator ", NameOf(record), " failed: ", text);
}
OPKIT_INLINE std::string ReasonOf(opkit_status status) {
  const HostError& error = CurrentHostError();
  if (!error.text.empty()) return error.text;
  return StrCat(
      status == OPKIT_FAILED ? std::string(kSaysNotWhy)
                             : StrCat("it returned status ", status, " without a text"),
      error.failure.empty() ? "" : "; before, a call of the host failed: ", error.failure);
}
[[noreturn]] OPKIT_COLD OPKIT_INLINE void ThrowStatus(const FunctionOpRecord& record,
                                                      const char* what, opkit_status status) {
  CurrentHostError().text = ReasonOf(status);
  if (CodeOfStatus(status) == ErrorCode::kOperatorFailed)
    ThrowFunctionFailed(record, what, OpStatus(FAIL));
  throw Error(CodeOfStatus(status), std::exchange(CurrentHostError().text, {}))
      .AddContext(StrCat("in ", what, " of operator ", NameOf(record)));
}
[[noreturn]] OPKIT_COLD OPKIT_INLINE void RethrowFromFunction(const FunctionOpRecord& record,
                                                              const char* what) {
  std::string how;
  try {
    throw;
  } catch (Error& error) {
    error.AddContext(StrCat("in ", what, " of operator ", NameOf(record)));
    throw;
  } catch (const std::exception& thrown) {
    how = StrCat(": ", thrown.what());
  } catch (...) {
    how = " something that is not a std::exception";
  }
  throw Error(ErrorCode::kOperatorFailed,
              StrCat(what, " of operator ", NameOf(record), " threw", how))
      .SetCause(std::current_exception());
}
OPKIT_INLINE std::pair<int, int> FunctionArity(FunctionOpRecord& record, const Arguments& args,
                                               std::span<const NamedSubgraph> graphs) {
  int inputs = -1, outputs = -1;
  if (!record.problem.empty()) Throw(ErrorCode::kInvalidArgument, record.problem);
  if (FunctionHooks* hooks = HooksOf(record)) return hooks->Arity(args, graphs);
  CallFunction(record, "parseAttrs",
               [&] { return record.CountValues(record.Attrs(args), &inputs, &outputs); });
  return {inputs, outputs};
}
OPKIT_INLINE std::vector<int> FunctionMutatedInputs(FunctionOpRecord& record,
                                                    const OperatorDef& def) {
  std::vector<int> inputs;
  if (FunctionHooks* hooks = HooksOf(record)) return hooks->MutatedInputs(def);
  if (record.mutate_inputs)
    CallFunction(record, "mutateInputs",
                 [&] { return record.mutate_inputs(record.Attrs(def.args()), inputs); });
  for (int input : inputs)
    if (input < 0)
      Throw(ErrorCode::kInvalidArgument, "mutateInputs of operator ", record.name, " names input ",
            input);
  return inputs;
}
inline ShapeVectors KnownShapes(std::span<const TensorInfo> infos) {
  ShapeVectors shapes(infos.size());
  for (size_t i = 0; i < infos.size(); ++i)
    if (infos[i].shape.has_rank())
      for (const Dim& dim : infos[i].shape.dims())
        shapes[i].push_back(dim.is_known() ? dim.value() : -1);
  return shapes;
}
inline SymbolicShape ShapeOfExtents(const std::vector<int64_t>& extents) {
  std::vector<Dim> dims;
  for (int64_t extent : extents) dims.push_back(extent < 0 ? Dim() : Dim(extent));
  return SymbolicShape(std::move(dims));
}
// Calls infer_type or infer_shape. A failure while an input's type or shape is unknown returns
// false: the function cannot infer yet.
template <class List>
bool CallInference(const FunctionOpRecord& record, const char* what, bool all_known,
                   UniqueFunction<OpStatus(const AttrMap&, List&, List&)>& function,
                   const AttrMap& attrs, List& inputs, List& outputs) {
  const size_t expected[] = {inputs.size(), outputs.size()};
  const auto call = [&] { return function(attrs, inputs, outputs); };
  if (all_known) {
    CallFunction(record, what, call);
  } else {
    HostErrorScope message;
    try {
      if (!call().ok()) return false;
    } catch (...) {
      return false;
    }
  }
  for (const bool is_output : {false, true})
    if (const size_t found = (is_output ? outputs : inputs).size(); found != expected[is_output])
      Throw(ErrorCode::kInvalidArgument, what, " of operator ", NameOf(record), " returned ", found,
            is_output ? " outputs" : " inputs", ", but the node has ", expected[is_output]);
  return true;
}
// Infers dtypes. Without setInferType every output has the dtype of the first input.
inline void InferFunctionTypes(FunctionOpRecord& record, const AttrMap& attrs,
                               InferenceContext& context) {
  if (!record.infer_type) {
    for (int o = 0; o < context.num_outputs() && context.num_inputs() > 0; ++o)
      context.SetOutput(o, context.input_dtype(0), {});
    return;
  }
  std::vector<DType> inputs, outputs;
  bool all_known = true;
  for (int i = 0; i < context.num_inputs(); ++i) {
    inputs.push_back(context.input_dtype(i));
    all_known &= inputs.back() != DType::kUndefined || !context.HasInput(i);
  }
  for (const TensorInfo& output : context.outputs()) outputs.push_back(output.dtype);
  if (!CallInference(record, "inferType", all_known, record.infer_type, attrs, inputs, outputs))
    return;
  for (int i = 0; i < context.num_inputs(); ++i)
    if (context.HasInput(i)) context.SetInput(i, inputs[Index(i)], {});
  for (int o = 0; o < context.num_outputs(); ++o) context.SetOutput(o, outputs[Index(o)], {});
}
// Infers shapes. An empty shape of an output is a scalar if the ranks of all inputs are known, and
// unknown otherwise.
inline void InferFunctionShapes(FunctionOpRecord& record, const AttrMap& attrs,
                                InferenceContext& context) {
  if (!record.infer_shape) return;
  bool ranks_known = true, all_known = true, anything = context.num_inputs() == 0;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (!context.HasInput(i)) continue;
    const SymbolicShape& shape = context.input_shape(i);
    ranks_known &= shape.has_rank();
    all_known &= shape.is_known();
    anything |= shape.has_rank();
  }
  for (const TensorInfo& output : context.outputs()) anything |= output.shape.has_rank();
  if (!anything) return;
  ShapeVectors inputs = KnownShapes(context.inputs()), outputs = KnownShapes(context.outputs());
  if (!CallInference(record, "inferShape", all_known, record.infer_shape, attrs, inputs, outputs))
    return;
  for (int i = 0; i < context.num_inputs(); ++i)
    if (const auto& extents = inputs[Index(i)]; context.HasInput(i) && !extents.empty())
      context.SetInput(i, DType::kUndefined, ShapeOfExtents(extents));
  for (int o = 0; o < context.num_outputs(); ++o)
    if (const auto& extents = outputs[Index(o)]; ranks_known || !extents.empty())
      context.SetOutput(o, DType::kUndefined, ShapeOfExtents(extents));
}
OPKIT_INLINE void InferFunction(FunctionOpRecord& record, const AttrMap& attrs, FunctionPass pass,
                                InferenceContext& context) {
  if (pass == FunctionPass::kForward) {
    FunctionHooks* const hooks = HooksOf(record);
    const bool has_own = hooks ? hooks->has_inference() : record.infer_type || record.infer_shape;
    if (const auto& carried = context.def().subgraphs();
        !has_own && record.Has(OPKIT_OP_SUBGRAPH) && carried.size() == 1)
      return carried[0].graph->Infer(context);
    if (hooks) return hooks->Infer(context);
    InferFunctionTypes(record, attrs, context);
    InferFunctionShapes(record, attrs, context);
    return;
  }
  // A backward node takes output gradients, inputs and outputs, and makes input gradients.
  const int inputs = context.num_outputs(), outputs = (context.num_inputs() - inputs) / 2;
  auto same = [&](int value, int gradient_in, int gradient_out) {
    if (!context.HasInput(value)) return;
    const TensorInfo info = context.input(value);
    if (gradient_out >= 0) context.SetOutput(gradient_out, info.dtype, info.shape);
    if (gradient_in >= 0 && context.HasInput(gradient_in))
      context.SetInput(gradient_in, info.dtype, info.shape);
  };
  for (int i = 0; i < inputs; ++i) same(outputs + i, -1, i);
  for (int o = 0; o < outputs; ++o) same(outputs + inputs + o, o, -1);
}
OPKIT_INLINE void FunctionCost(FunctionOpRecord& record, const OperatorDef& def,
                               std::span<const TensorInfo> inputs,
                               std::span<const TensorInfo> outputs, OpCost& cost) {
  if (FunctionHooks* hooks = HooksOf(record)) return hooks->Cost(def, inputs, outputs, cost);
  for (const auto& values : {inputs, outputs})
    for (const TensorInfo& value : values)
      if (!value.shape.is_known()) return;
  CallFunction(record, "flops's function", [&] {
    cost.flops = record.flops(record.Attrs(def.args()), KnownShapes(inputs), KnownShapes(outputs));
    return OpStatus();
  });
}
// Returns the number of scratch bytes for inputs with known shapes.
inline int64_t ForwardScratch(FunctionOpRecord& record, const OperatorDef& def,
                              std::span<const TensorInfo> inputs) {
  if (FunctionHooks* hooks = HooksOf(record)) return hooks->Scratch(def, inputs);
  if (!record.scratch) return 0;
  int64_t bytes = 0;
  CallFunction(record, "scratch's function", [&] {
    bytes = record.scratch(record.Attrs(def.args()), KnownShapes(inputs));
    return bytes >= 0 ? OpStatus() : OpStatus::Failure("it asked for ", bytes, " bytes");
  });
  return bytes;
}
OPKIT_INLINE int64_t FunctionScratch(FunctionOpRecord& record, FunctionPass pass,
                                     const OperatorDef& def, std::span<const TensorInfo> inputs) {
  const auto known = [&](size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i)
      if (!def.inputs()[i].empty() && !inputs[i].shape.is_known()) return false;
    return true;
  };
  if (pass == FunctionPass::kForward)
    return known(0, inputs.size()) ? ForwardScratch(record, def, inputs) : 0;
  const size_t num_inputs = def.outputs().size();
  if (def.inputs().size() < num_inputs) return 0;
  const size_t num_outputs = (def.inputs().size() - num_inputs) / 2;
  if (!known(num_outputs, num_inputs)) return 0;
  const auto names = def.inputs().begin() + static_cast<std::ptrdiff_t>(num_outputs);
  const auto middle = names + static_cast<std::ptrdiff_t>(num_inputs);
  return ForwardScratch(
      record,
      OperatorDef(record.name, {names, middle},
                  {middle, middle + static_cast<std::ptrdiff_t>(num_outputs)}, def.args())
          .Device(def.device()),
      inputs.subspan(num_outputs, num_inputs));
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_FUNCTION_IMPL_FUNCTION_CALLS_IPP_
