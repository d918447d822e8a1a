// OpSchema's definitions: the rules for verifying nodes with their messages, ready-made inference,
// and the cost of a node.
#ifndef OPKIT_OP_IMPL_SCHEMA_IPP_
#define OPKIT_OP_IMPL_SCHEMA_IPP_

#include <algorithm>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/index.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/op/schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

OPKIT_INLINE void CountRule::SetList(std::initializer_list<int> allowed) {
  list_ = std::vector<int>(allowed);
  predicate_ = {};
}
OPKIT_INLINE void CountRule::SetPredicate(UniqueFunction<bool(int)> allowed) {
  list_.clear();
  predicate_ = std::move(allowed);
}
OPKIT_INLINE bool CountRule::Allows(int count) const {
  if (count < min_ || count > max_ || (predicate_ && !predicate_(count))) return false;
  return list_.empty() || Contains(list_, count);
}
OPKIT_INLINE std::string CountRule::Describe() const {
  if (!list_.empty()) return StrCat("one of ", list_);
  if (predicate_) return "a number that its schema's function allows";
  if (min_ == max_) return StrCat(min_);
  if (max_ >= kAny) return min_ == 0 ? "any number" : StrCat("at least ", min_);
  return StrCat(min_, " to ", max_);
}

OPKIT_INLINE int ArityRules::OutputsOf(int num_inputs) const {
  return outputs_of_inputs ? outputs_of_inputs(num_inputs) : outputs.fixed();
}
OPKIT_INLINE int ArityRules::OutputsOf(int num_inputs, const Arguments& args) const {
  const int outs = of_arguments ? of_arguments(args, {}).second : -1;
  return outs >= 0 ? outs : OutputsOf(num_inputs);
}
OPKIT_INLINE std::pair<int, int> ArityRules::Of(const Arguments& args) const {
  auto [ins, outs] = of_arguments ? of_arguments(args, {}) : std::pair(-1, -1);
  if (ins < 0) ins = inputs.fixed();
  if (outs < 0) outs = outputs.fixed();
  if (outs < 0 && ins >= 0) outs = OutputsOf(ins);
  return {ins, outs};
}
OPKIT_INLINE std::string ArityRules::Verify(const std::string& op, const OperatorDef& def,
                                            bool needs_subgraph) const {
  const int ins = static_cast<int>(def.inputs().size());
  const int outs = static_cast<int>(def.outputs().size());
  auto wrong = [&](const char* what, int found, const std::string& expected) {
    return StrCat(op, " has ", found, " ", what, ", expected ", expected);
  };
  if (!inputs.Allows(ins)) return wrong("inputs", ins, inputs.Describe());
  if (!outputs.Allows(outs)) return wrong("outputs", outs, outputs.Describe());
  if (pair_allowed && !pair_allowed(ins, outs))
    return StrCat(op, " does not take ", ins, " inputs together with ", outs, " outputs");
  if (outputs_of_inputs && outputs_of_inputs(ins) != outs)
    return wrong("outputs", outs, StrCat(outputs_of_inputs(ins), " for ", ins, " inputs"));
  if (!of_arguments) return {};
  const auto [want_ins, want_outs] = of_arguments(def.args(), def.subgraphs());
  if (want_ins >= 0 && ins != want_ins)
    return wrong("inputs", ins, StrCat(want_ins, " with these attributes"));
  if (want_outs >= 0 && outs != want_outs)
    return wrong("outputs", outs, StrCat(want_outs, " with these attributes"));
  if (!needs_subgraph || def.subgraphs().size() != 1) return {};
  const auto [body_ins, body_outs] = def.subgraphs()[0].graph->Arity();
  if ((want_ins < 0 && body_ins >= 0 && ins != body_ins) ||
      (want_outs < 0 && body_outs >= 0 && outs != body_outs))
    return StrCat(op, " has ", ins, " inputs and ", outs, " outputs, but the graph '",
                  def.subgraphs()[0].name, "' that it carries has ", body_ins, " and ", body_outs);
  return {};
}

OPKIT_INLINE InplaceRules::Predicate InplaceRules::AnyOf(
    std::initializer_list<std::pair<int, int>> pairs) {
  return [list = std::vector<std::pair<int, int>>(pairs)](int input, int output) {
    return Contains(list, std::pair(input, output));
  };
}
OPKIT_INLINE std::string InplaceRules::Verify(const std::string& op, const OperatorDef& def) const {
  for (int in = 0; const std::string& input : def.inputs()) {
    for (int out = 0; const std::string& output : def.outputs()) {
      const bool same = !input.empty() && input == output;
      if (same && !May(in, out))
        return StrCat(op, " may not run in place: input ", in, " and output ", out, " are both '",
                      output, "'");
      if (!same && Must(in, out))
        return StrCat(op, " must run in place: input ", in, " is '", input, "' and output ", out,
                      " is '", output, "'");
      ++out;
    }
    ++in;
  }
  return {};
}

OPKIT_INLINE const AttributeSchema* AttributeRules::Find(std::string_view name) const {
  for (const AttributeSchema& attribute : declared)
    if (attribute.name == name) return &attribute;
  return nullptr;
}
OPKIT_INLINE std::string AttributeRules::Suggest(std::string_view name) const {
  std::vector<std::string> known;
  for (const AttributeSchema& attribute : declared) known.push_back(attribute.name);
  return SuggestName(name, known);
}
OPKIT_INLINE std::string AttributeRules::Verify(const std::string& op,
                                                const Arguments& args) const {
  for (const AttributeSchema& attribute : declared) {
    const Attribute* given = args.Find(attribute.name);
    if (!given && attribute.required) {
      std::string undeclared;  // may be a misspelling of attribute.name
      for (const NamedAttribute& arg : args)
        if (!Takes(arg.name))
          undeclared +=
              StrCat("; '", arg.name, "' was given, which is not declared", Suggest(arg.name));
      return StrCat(op, " needs the argument '", attribute.name, "'",
                    attribute.doc.empty() ? "" : " (" + attribute.doc + ")", undeclared);
    }
    if (!given) continue;
    if (attribute.type && !given->ReadsAs(*attribute.type))
      return StrCat("argument '", attribute.name, "' of ", op, " is ", given->type(), " (", *given,
                    "), expected ", *attribute.type);
    if (const std::string* wrong = attribute.FindOther(*given))
      return StrCat("argument '", attribute.name, "' of ", op, " is '", *wrong,
                    "', which is none of its values", SuggestName(*wrong, attribute.values));
  }
  for (const NamedAttribute& arg : args)
    if (!Takes(arg.name))
      return StrCat(op, " has no argument '", arg.name, "'",
                    declared.empty() ? "; its schema declares none: .Arg<float>(\"name\", …) "
                                       "declares one, .AllowUncheckedAttributes() takes any"
                                     : Suggest(arg.name));
  return {};
}

inline void InferLike(InferenceContext& context, int input, int output) {
  context.SetOutput(output, context.input_dtype(input), context.input_shape(input));
  context.SetInput(input, context.output(output).dtype, context.output(output).shape);
}
inline void Describe(std::vector<ValueSchema>& values, int i, ValueSchema value) {
  if (values.size() <= Index(i)) values.resize(Index(i) + 1);
  values[Index(i)] = std::move(value);
}
OPKIT_INLINE void CheckDTypes(const char* what, const std::vector<ValueSchema>& declared,
                              const std::vector<TensorInfo>& infos, DType last) {
  for (size_t i = 0; i < infos.size(); ++i) {
    const DType found = infos[i].dtype;
    // The values behind the last described value are more of its kind.
    const ValueSchema* const value = i < declared.size() ? &declared[i]
                                     : declared.empty()  ? nullptr
                                                         : &declared.back();
    const bool limited = i < declared.size() && !value->dtypes.empty();
    if (limited ? value->Allows(found)
                : !IsObject(found) || found <= last || (value && value->Allows(found))) [[likely]]
      continue;
    const std::string name = i < declared.size() ? StrCat(" '", value->name, "'") : std::string();
    if (limited)
      Throw(ErrorCode::kTypeMismatch, what, " ", i, name, " is ", infos[i], ", expected one of ",
            value->dtypes);
    Throw(ErrorCode::kTypeMismatch, what, " ", i, name, " is ", infos[i],
          last == DType::kString ? ", expected a tensor" : ", expected a tensor of numbers");
  }
}
inline bool LimitsDTypes(const std::vector<ValueSchema>& values) {
  for (const ValueSchema& value : values)
    if (!value.dtypes.empty()) return true;
  return false;
}
inline OpCost Traffic(const std::vector<TensorInfo>& inputs,
                      const std::vector<TensorInfo>& outputs) {
  OpCost cost;
  for (const TensorInfo& input : inputs) cost.bytes_read += OpSchema::Bytes(input);
  for (const TensorInfo& output : outputs) cost.bytes_written += OpSchema::Bytes(output);
  return cost;
}

}  // namespace detail

OPKIT_INLINE OpSchema::OpSchema(std::string name, const char* file, int line, std::string signature)
    : name_(std::move(name)), file_(file), line_(line), signature_(std::move(signature)) {}

OPKIT_INLINE OpSchema& OpSchema::MutatesInputs(std::initializer_list<int> inputs) {
  return MutatesInputs([list = std::vector<int>(inputs)](const OperatorDef&) { return list; });
}
OPKIT_INLINE OpSchema& OpSchema::Arg(std::string name, std::string doc,
                                     std::initializer_list<const char*> values) {
  const Attribute first(*values.begin());
  return Arg({std::move(name),
              std::move(doc),
              false,
              AttributeType::kString,
              first,
              {values.begin(), values.end()}});
}
OPKIT_INLINE OpSchema& OpSchema::RequiredArg(std::string name, std::string doc,
                                             std::initializer_list<const char*> values) {
  return Arg({std::move(name),
              std::move(doc),
              true,
              AttributeType::kString,
              {},
              {values.begin(), values.end()}});
}
OPKIT_INLINE OpSchema& OpSchema::Arg(detail::AttributeSchema attribute) {
  return attributes_.declared.push_back(std::move(attribute)), *this;
}
OPKIT_INLINE detail::AttributeSchema* OpSchema::Declared(std::string_view name,
                                                         const char* to_give) {
  for (detail::AttributeSchema& attribute : attributes_.declared)
    if (attribute.name == name) return &attribute;
  problem_ = StrCat("the schema of operator ", name_, " at ", file_, ":", line_,
                    " has no argument '", name, "' to give ", to_give);
  return nullptr;
}
OPKIT_INLINE OpSchema& OpSchema::Default(std::string_view name, Attribute value) {
  if (detail::AttributeSchema* found = Declared(name, "a default")) {
    found->required = false;
    found->default_value = std::move(value);
  }
  return *this;
}
OPKIT_INLINE OpSchema& OpSchema::Values(std::string_view name, std::vector<std::string> values) {
  if (detail::AttributeSchema* found = Declared(name, "values")) found->values = std::move(values);
  return *this;
}

OPKIT_INLINE OpSchema& OpSchema::IdenticalTypeAndShape() {
  return Infer([](InferenceContext& c) {
    for (int i = 0; i < c.num_outputs() && i < c.num_inputs(); ++i) detail::InferLike(c, i, i);
  });
}
OPKIT_INLINE OpSchema& OpSchema::IdenticalTypeAndShapeOfInput(int input) {
  return Infer([input](InferenceContext& c) {
    for (int i = 0; i < c.num_outputs(); ++i) detail::InferLike(c, input, i);
  });
}
OPKIT_INLINE OpSchema& OpSchema::IdenticalTypeAndShapeOfMultipleInputs(std::vector<int> inputs) {
  return Infer([inputs = std::move(inputs)](InferenceContext& c) {
    for (int i = 0; int input : inputs) detail::InferLike(c, input, i++);
  });
}
OPKIT_INLINE OpSchema& OpSchema::IdenticalTypeAndShapeOfInputDim(int input, int dim) {
  return Infer([=](InferenceContext& c) {
    const SymbolicShape& in = c.input_shape(input);
    const int axis = in.has_rank() && dim < 0 ? dim + in.rank() : dim;
    if (in.has_rank() && (axis < 0 || axis >= in.rank()))
      Throw(ErrorCode::kInvalidArgument, "input ", input, " has shape ", in, ", which has no axis ",
            dim);
    c.SetOutput(0, c.input_dtype(input), {in.has_rank() ? in[axis] : Dim()});
  });
}
OPKIT_INLINE OpSchema& OpSchema::ScalarType(DType dtype) {
  return Infer([dtype](InferenceContext& c) {
    for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, dtype, Shape{});
  });
}
OPKIT_INLINE OpSchema& OpSchema::PointwiseCost(uint64_t flops) {
  return Cost([flops](const OperatorDef&, const std::vector<TensorInfo>& inputs,
                      const std::vector<TensorInfo>& outputs) {
    OpCost cost = detail::Traffic(inputs, outputs);
    if (!outputs.empty()) cost.flops = flops * Elements(outputs[0]);
    return cost;
  });
}
OPKIT_INLINE OpSchema& OpSchema::Flops(UniqueFunction<uint64_t(const InferenceContext&)> flops) {
  flops_ = std::move(flops);
  return Cost(CostFunction());
}
OPKIT_INLINE OpSchema& OpSchema::Input(int i, std::string name, std::string doc,
                                       std::vector<DType> dtypes) {
  detail::Describe(inputs_, i, {std::move(name), std::move(doc), std::move(dtypes)});
  return *this;
}
OPKIT_INLINE OpSchema& OpSchema::Output(int i, std::string name, std::string doc,
                                        std::vector<DType> dtypes) {
  detail::Describe(outputs_, i, {std::move(name), std::move(doc), std::move(dtypes)});
  return *this;
}

OPKIT_INLINE std::string OpSchema::problem() const {
  if (!problem_.empty()) return problem_;
  for (const detail::AttributeSchema& attribute : attributes_.declared)
    if (attribute.default_value)
      if (const std::string* wrong = attribute.FindOther(*attribute.default_value))
        return StrCat("the schema of operator ", name_, " at ", file_, ":", line_,
                      " gives the argument '", attribute.name, "' the default '", *wrong,
                      "', which is none of its values", SuggestName(*wrong, attribute.values));
  return {};
}
OPKIT_INLINE std::string OpSchema::Verify(const OperatorDef& def) const {
  if (std::string why = problem(); !why.empty()) return why;
  if (std::string why = arity_.Verify(name_, def, needs_subgraph_); !why.empty()) return why;
  if (std::string why = inplace_.Verify(name_, def); !why.empty()) return why;
  if (needs_subgraph_ && def.subgraphs().empty())
    return StrCat(name_,
                  " runs a graph that its node carries, and this node carries none; give it ",
                  "one (OperatorDef::Subgraph)");
  return VerifyArguments(def.args());
}
OPKIT_INLINE bool OpSchema::limits_dtypes() const {
  return detail::LimitsDTypes(inputs_) || detail::LimitsDTypes(outputs_);
}
OPKIT_INLINE std::vector<int> OpSchema::MutatedInputs(const OperatorDef& def) const {
  if (mutates_) return mutates_(def);
  if (needs_subgraph_ && def.subgraphs().size() == 1)
    return def.subgraphs()[0].graph->MutatedInputs();
  return {};
}
OPKIT_INLINE void OpSchema::Infer(InferenceContext& context) const {
  context.SetDeclared(attributes_.declared);
  bool known = true;
  for (int i = 0; i < context.num_inputs(); ++i)
    known &= !context.HasInput(i) || context.input(i).shape.is_known();
  const auto fail = [&] {
    std::string inputs;
    for (const TensorInfo& input : context.inputs()) inputs += " " + ToString(input);
    detail::RethrowInContext(
        StrCat("in shape inference of ", context.def(), " with inputs", inputs));
  };
  try {
    const bool runs_graphs = needs_subgraph_ || runs_subgraphs_;  // they check their own values
    const DType last = runs_graphs      ? DType::kOptional
                       : takes_strings_ ? DType::kString
                                        : DType::kUndefined;
    detail::CheckDTypes("input", inputs_, context.inputs(), last);
    if (infer_ && (known || !needs_all_shapes_)) infer_(context);
    if (!infer_ && needs_subgraph_ && context.def().subgraphs().size() == 1)
      context.def().subgraphs()[0].graph->Infer(context);
    std::vector<TensorInfo>& outputs = context.outputs();
    for (size_t o = 0; o < outputs.size() && o < outputs_.size(); ++o)
      if (outputs[o].dtype == DType::kUndefined && outputs_[o].dtypes.size() == 1)
        outputs[o].dtype = outputs_[o].dtypes[0];
    detail::CheckDTypes("output", outputs_, outputs, last);
  } catch (const detail::NotKnownYet&) {
    if (known) fail();  // else the shapes cannot be inferred yet
  } catch (...) {
    fail();
  }
}
OPKIT_INLINE std::vector<TensorInfo> OpSchema::InferOutputs(const OperatorDef& def,
                                                            std::vector<TensorInfo> inputs) const {
  InferenceContext context(def, std::move(inputs));
  Infer(context);
  return std::move(context.outputs());
}
OPKIT_INLINE OpCost OpSchema::Cost(const OperatorDef& def, const std::vector<TensorInfo>& inputs,
                                   const std::vector<TensorInfo>& outputs) const {
  if (cost_) return cost_(def, inputs, outputs);
  OpCost cost = detail::Traffic(inputs, outputs);
  if (!flops_) return cost;
  auto known = [](const TensorInfo& info) { return info.shape.is_known(); };
  bool all = std::ranges::all_of(outputs, known);
  for (size_t i = 0; i < inputs.size(); ++i) all &= known(inputs[i]) || def.inputs()[i].empty();
  InferenceContext context(def, inputs, outputs);
  context.SetDeclared(attributes_.declared);
  if (all) cost.flops = flops_(context);
  return cost;
}
OPKIT_COLD OPKIT_INLINE OpSchema& OpSchema::InputsOnHost(std::vector<int> inputs) {
  devices_ = [inputs = std::move(inputs)](const OperatorDef& def) {
    DevicePlacement placement{std::vector<Device>(def.inputs().size(), def.device()),
                              std::vector<Device>(def.outputs().size(), def.device())};
    for (const int i : inputs)
      if (def.device().type != DeviceType::kCPU && detail::Index(i) < placement.first.size())
        placement.first[detail::Index(i)] = Device{};
    return placement;
  };
  return *this;
}
OPKIT_INLINE OpSchema::DevicePlacement OpSchema::InferDevices(const OperatorDef& def) const {
  if (devices_) return devices_(def);
  return {std::vector<Device>(def.inputs().size(), def.device()),
          std::vector<Device>(def.outputs().size(), def.device())};
}

OPKIT_INLINE uint64_t OpSchema::Elements(const TensorInfo& info) {
  return info.shape.is_known() ? static_cast<uint64_t>(info.shape.ToShape().numel()) : 0;
}
OPKIT_INLINE uint64_t OpSchema::Bytes(const TensorInfo& info) {
  constexpr uint64_t kMost = ~uint64_t{0} >> 1;
  uint64_t bits = 0;
  const auto item = static_cast<uint64_t>(BitSize(info.dtype));
  if (!__builtin_mul_overflow(Elements(info), item, &bits)) return bits / 8 + (bits % 8 != 0);
  uint64_t bytes = 0;
  return __builtin_mul_overflow(Elements(info), item / 8, &bytes) || bytes > kMost ? kMost : bytes;
}

}}  // namespace opkit

#endif  // OPKIT_OP_IMPL_SCHEMA_IPP_
