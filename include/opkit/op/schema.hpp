// OpSchema: what is true of an operator on every device. Filled in once by OPERATOR_SCHEMA (or
// derived from a typed signature), then asked: is this node right, what comes out, what does it
// cost.
#ifndef OPKIT_OP_SCHEMA_HPP_
#define OPKIT_OP_SCHEMA_HPP_

#include "opkit/base/unique_function.hpp"
#include "opkit/op/inference.hpp"

namespace opkit::inline OPKIT_ABI {

// Work of one run, for benchmarks and selection.
struct OpCost {
  uint64_t flops = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t params_bytes = 0;
};

// One attribute that an operator takes.
struct AttributeSchema {
  std::string name;
  std::string doc;
  bool required = false;
  std::optional<AttributeType> type;  // unset: any
  std::optional<Attribute> default_value;
};

// One input or output.
struct ValueSchema {
  std::string name;
  std::string doc;
  std::vector<DType> dtypes;  // empty: any
};

// Setters return *this, so that a schema reads as one sentence. Not synchronised: filled in during
// static initialisation, read-only afterwards.
class OpSchema {
 public:
  OpSchema() = default;
  OpSchema(std::string name, const char* file, int line, std::string signature = {})
      : name_(std::move(name)), file_(file), line_(line), signature_(std::move(signature)) {}

  // Setters and checks that only some programs call are templates whose argument is always the
  // default, so that others do not compile them.

  // Arity: exactly n, between two numbers, one of a set, or a predicate.
  OpSchema& NumInputs(int n) { return NumInputs(n, n); }
  OpSchema& NumInputs(int min, int max) { return min_inputs_ = min, max_inputs_ = max, *this; }
  template <class Count = int>
  OpSchema& NumInputs(std::initializer_list<int> allowed) {
    return SetArity<Count>(allowed, true);
  }
  OpSchema& NumInputs(UniqueFunction<bool(int)> allowed) {
    return inputs_allowed_ = std::move(allowed), *this;
  }
  OpSchema& NumOutputs(int n) { return NumOutputs(n, n); }
  OpSchema& NumOutputs(int min, int max) { return min_outputs_ = min, max_outputs_ = max, *this; }
  template <class Count = int>
  OpSchema& NumOutputs(std::initializer_list<int> allowed) {
    return SetArity<Count>(allowed, false);
  }
  OpSchema& NumOutputs(UniqueFunction<bool(int)> allowed) {
    return outputs_allowed_ = std::move(allowed), *this;
  }
  // A relation between the number of inputs and outputs.
  OpSchema& NumInputsOutputs(UniqueFunction<bool(int, int)> allowed) {
    return arity_allowed_ = std::move(allowed), *this;
  }
  // The number of outputs that a number of inputs has.
  OpSchema& OutputCalculator(UniqueFunction<int(int)> calculate) {
    return calculate_outputs_ = std::move(calculate), *this;
  }
  OpSchema& SameNumberOfOutput() {
    return OutputCalculator([](int inputs) { return inputs; });
  }
  // {inputs, outputs} as the attributes decide them; -1 leaves a number open.
  using ArityFunction = UniqueFunction<std::pair<int, int>(const Arguments&)>;
  OpSchema& ArityFromArguments(ArityFunction arity) { return arity_ = std::move(arity), *this; }

  // Inputs that a node also writes to.
  using MutationFunction = UniqueFunction<std::vector<int>(const OperatorDef&)>;
  OpSchema& MutatesInputs(MutationFunction inputs) { return mutates_ = std::move(inputs), *this; }
  template <class Def = OperatorDef>
  OpSchema& MutatesInputs(std::initializer_list<int> inputs) {
    return MutatesInputs([list = std::vector<int>(inputs)](const Def&) { return list; });
  }

  // Two runs on the same inputs may differ (random numbers), or a run has an effect beside its
  // outputs: such a node is never folded, merged with an equal one, or dropped.
  OpSchema& Stateful() { return stateful_ = runs_differ_ = true, *this; }
  // A node keeps something between its runs, which give the same for the same inputs all the same:
  // it is never folded, merged with an equal one, or dropped.
  OpSchema& KeepsState() { return stateful_ = true, *this; }

  // Pairs {input, output} that may, or must, be the same blob.
  using InplacePredicate = UniqueFunction<bool(int, int)>;
  OpSchema& AllowInplace(InplacePredicate may) { return inplace_allowed_ = std::move(may), *this; }
  template <class Index = int>
  OpSchema& AllowInplace(std::initializer_list<std::pair<int, int>> pairs) {
    return AllowInplace(AnyOf<Index>(pairs));
  }
  OpSchema& AllowOneToOneInplace() {
    return AllowInplace([](int in, int out) { return in == out; });
  }
  OpSchema& EnforceInplace(InplacePredicate must) {
    return inplace_enforced_ = std::move(must), *this;
  }
  template <class Index = int>
  OpSchema& EnforceInplace(std::initializer_list<std::pair<int, int>> pairs) {
    return EnforceInplace(AnyOf<Index>(pairs));
  }
  OpSchema& EnforceOneToOneInplace() {
    return EnforceInplace([](int in, int out) { return in == out; });
  }

  // Attributes. `Arg(name, doc)` takes any type; `Arg<T>` checks it, and documents a default. Once
  // one is declared, an undeclared attribute is an error unless AllowUnknownArgs.
  OpSchema& Arg(std::string name, std::string doc, bool required = false) {
    return Arg({std::move(name), std::move(doc), required, {}, {}});
  }
  template <class T>
  OpSchema& Arg(std::string name, std::string doc, std::optional<T> default_value = {},
                bool required = false) {
    AttributeSchema attribute{std::move(name), std::move(doc), required, kAttributeTypeOf<T>, {}};
    if (default_value) attribute.default_value = Attribute(*default_value);
    return Arg(std::move(attribute));
  }
  OPKIT_COLD OpSchema& Arg(AttributeSchema attribute) {
    return attributes_.push_back(std::move(attribute)), *this;
  }
  template <class T>
  OpSchema& RequiredArg(std::string name, std::string doc) {
    return Arg<T>(std::move(name), std::move(doc), {}, true);
  }
  // Makes a declared attribute optional. One that is not declared is a problem of the schema's.
  OpSchema& SetDefault(std::string_view name, Attribute value) {
    for (AttributeSchema& attribute : attributes_) {
      if (attribute.name != name) continue;
      attribute.required = false;
      attribute.default_value = std::move(value);
      return *this;
    }
    problem_ = StrCat("the schema of operator ", name_, " at ", file_, ":", line_,
                      " has no argument '", name, "' to give a default");
    return *this;
  }
  OpSchema& ArgIsTest(std::string doc) { return Arg("is_test", std::move(doc)); }
  OpSchema& AllowUnknownArgs() { return unknown_args_allowed_ = true, *this; }

  // Types and shapes of the outputs. Ready-made rules are templates: a program compiles those that
  // its schemas name.
  OpSchema& TensorInferenceFunction(UniqueFunction<void(InferenceContext&)> infer) {
    return infer_ = std::move(infer), *this;
  }
  // Inference is only called when every input shape is known.
  OpSchema& NeedsAllInputShapes(bool needs = true) { return needs_all_shapes_ = needs, *this; }
  template <class Context = InferenceContext>
  OpSchema& IdenticalTypeAndShape() {
    return TensorInferenceFunction([](Context& c) {
      for (int i = 0; i < c.num_outputs() && i < c.num_inputs(); ++i) Same(c, i, i);
    });
  }
  template <class Context = InferenceContext>
  OpSchema& IdenticalTypeAndShapeOfInput(int input) {
    return TensorInferenceFunction([input](Context& c) {
      for (int i = 0; i < c.num_outputs(); ++i) Same(c, input, i);
    });
  }
  // Output i is like input inputs[i].
  template <class Context = InferenceContext>
  OpSchema& IdenticalTypeAndShapeOfMultipleInputs(std::vector<int> inputs) {
    return TensorInferenceFunction([inputs = std::move(inputs)](Context& c) {
      for (size_t i = 0; i < inputs.size(); ++i) Same(c, inputs[i], static_cast<int>(i));
    });
  }
  // Rank 1, as long as the input is along `dim`; the input's type.
  template <class Context = InferenceContext>
  OpSchema& IdenticalTypeAndShapeOfInputDim(int input, int dim) {
    return TensorInferenceFunction([=](Context& c) {
      const SymbolicShape& in = c.input_shape(input);
      const int axis = in.has_rank() && dim < 0 ? dim + in.rank() : dim;
      if (in.has_rank() && (axis < 0 || axis >= in.rank()))
        Throw(ErrorCode::kInvalidArgument, "input ", input, " has shape ", ToString(in),
              ", which has no axis ", dim);
      c.SetOutput(0, c.input_dtype(input), {in.has_rank() ? in[axis] : Dim()});
    });
  }
  template <class Context = InferenceContext>
  OpSchema& ScalarType(DType dtype) {
    return TensorInferenceFunction([dtype](Context& c) {
      for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, dtype, Shape{});
    });
  }

  using CostFunction = UniqueFunction<OpCost(const OperatorDef&, const std::vector<TensorInfo>&,
                                             const std::vector<TensorInfo>&)>;
  OpSchema& CostInferenceFunction(CostFunction cost) { return cost_ = std::move(cost), *this; }
  // Reads every input and writes every output once; `flops` for each element of output 0.
  template <class Def = OperatorDef>
  OpSchema& PointwiseCost(uint64_t flops) {
    return CostInferenceFunction([flops](const Def&, const std::vector<TensorInfo>& inputs,
                                         const std::vector<TensorInfo>& outputs) {
      OpCost cost = Traffic(inputs, outputs);
      if (!outputs.empty()) cost.flops = flops * Elements(outputs[0]);
      return cost;
    });
  }
  // Devices of the inputs and of the outputs; by default all are the node's.
  using DevicePlacement = std::pair<std::vector<Device>, std::vector<Device>>;
  OpSchema& DeviceInferenceFunction(UniqueFunction<DevicePlacement(const OperatorDef&)> devices) {
    return devices_ = std::move(devices), *this;
  }
  OpSchema& InputsCanCrossDevices() { return inputs_cross_devices_ = true, *this; }

  // Names, docs and, where it is limited, dtypes of inputs and outputs.
  OpSchema& Input(int i, std::string name, std::string doc = {}, std::vector<DType> dtypes = {}) {
    return Value(inputs_, i, std::move(name), std::move(doc), std::move(dtypes));
  }
  OpSchema& Output(int i, std::string name, std::string doc = {}, std::vector<DType> dtypes = {}) {
    return Value(outputs_, i, std::move(name), std::move(doc), std::move(dtypes));
  }
  // The dtypes of all inputs and outputs that do not limit theirs.
  template <class Value = ValueSchema>
  OpSchema& SetElementTypes(const std::vector<DType>& dtypes) {
    for (std::vector<Value>* values : {&inputs_, &outputs_})
      for (Value& value : *values)
        if (value.dtypes.empty()) value.dtypes = std::vector<DType>(dtypes);
    return *this;
  }
  OpSchema& SetDoc(std::string doc) { return doc_ = std::move(doc), *this; }
  OpSchema& Private() { return private_ = true, *this; }
  template <class Populator>
  OpSchema& FillUsing(Populator populate) {
    return populate(*this), *this;
  }
  // Makes inputs that mean something to this operator, for CheckOperator and benchmarks.
  OpSchema& TestInputs(UniqueFunction<std::vector<Tensor>(DType, uint64_t seed)> make) {
    return test_inputs_ = std::move(make), *this;
  }

  const std::string& name() const { return name_; }
  const char* file() const { return file_; }
  int line() const { return line_; }
  // The library it came from; empty for the program itself.
  const std::string& origin() const { return origin_; }
  OpSchema& SetOrigin(std::string library) { return origin_ = std::move(library), *this; }
  // Of the typed function the schema was derived from; empty for others.
  const std::string& signature() const { return signature_; }
  const std::string& doc() const { return doc_; }
  // What is wrong with the schema itself: setters run before main and must not throw.
  const std::string& problem() const { return problem_; }
  bool is_private() const { return private_; }
  bool is_stateful() const { return stateful_; }
  bool runs_may_differ() const { return runs_differ_; }
  bool inputs_can_cross_devices() const { return inputs_cross_devices_; }
  bool has_inference() const { return static_cast<bool>(infer_); }
  bool has_cost() const { return static_cast<bool>(cost_); }
  int min_inputs() const { return min_inputs_; }
  int max_inputs() const { return max_inputs_; }
  int min_outputs() const { return min_outputs_; }
  int max_outputs() const { return max_outputs_; }
  // "2", "1 to 3", "at least 1", "one of [1, 3]", …
  std::string expected_inputs() const {
    return Counts(min_inputs_, max_inputs_, input_counts_, static_cast<bool>(inputs_allowed_));
  }
  std::string expected_outputs() const {
    return Counts(min_outputs_, max_outputs_, output_counts_, static_cast<bool>(outputs_allowed_));
  }
  const std::vector<AttributeSchema>& attributes() const { return attributes_; }
  const std::vector<ValueSchema>& inputs() const { return inputs_; }
  const std::vector<ValueSchema>& outputs() const { return outputs_; }
  bool CanInplace(int input, int output) const {
    return MustInplace(input, output) || (inplace_allowed_ && inplace_allowed_(input, output));
  }
  bool MustInplace(int input, int output) const {
    return inplace_enforced_ && inplace_enforced_(input, output);
  }
  // -1 when the inputs do not decide it.
  int CalculateOutput(int inputs) const {
    if (calculate_outputs_) return calculate_outputs_(inputs);
    return min_outputs_ == max_outputs_ ? min_outputs_ : -1;
  }
  int CalculateOutput(int inputs, const Arguments& args) const {
    const int outputs = arity_ ? arity_(args).second : -1;
    return outputs >= 0 ? outputs : CalculateOutput(inputs);
  }
  // {inputs, outputs} that a node with these attributes has; -1 where that leaves a number open.
  std::pair<int, int> Arity(const Arguments& args) const {
    auto [inputs, outputs] = arity_ ? arity_(args) : std::pair(-1, -1);
    if (inputs < 0 && min_inputs_ == max_inputs_) inputs = min_inputs_;
    if (outputs < 0 && min_outputs_ == max_outputs_) outputs = min_outputs_;
    if (outputs < 0 && inputs >= 0) outputs = CalculateOutput(inputs);
    return {inputs, outputs};
  }
  std::vector<int> MutatedInputs(const OperatorDef& def) const {
    return mutates_ ? mutates_(def) : std::vector<int>();
  }
  const AttributeSchema* FindAttribute(std::string_view name) const {
    for (const AttributeSchema& attribute : attributes_)
      if (attribute.name == name) return &attribute;
    return nullptr;
  }
  // False for one that a node must not give.
  bool TakesArgument(std::string_view name) const {
    return attributes_.empty() || unknown_args_allowed_ || FindAttribute(name);
  }
  bool unknown_args_allowed() const { return unknown_args_allowed_; }
  // "; did you mean 'alpha'?" or the like, for a name that is not declared.
  std::string SuggestArgument(std::string_view name) const {
    std::vector<std::string> known;
    for (const AttributeSchema& attribute : attributes_) known.push_back(attribute.name);
    return SuggestName(name, known);
  }
  // The attributes decide the number of outputs, where they say it.
  bool has_arity_function() const { return static_cast<bool>(arity_); }
  // Empty where the schema makes no test data.
  std::vector<Tensor> MakeTestInputs(DType dtype, uint64_t seed) const {
    return test_inputs_ ? test_inputs_(dtype, seed) : std::vector<Tensor>();
  }

  // Why `def` is not a right node of this operator; empty when it is.
  template <class Def = OperatorDef>
  OPKIT_COLD std::string Verify(const Def& def) const {
    if (!problem_.empty()) return problem_;
    const int ins = static_cast<int>(def.inputs().size());
    const int outs = static_cast<int>(def.outputs().size());
    if (std::string why = VerifyArity(ins, outs, def.args()); !why.empty()) return why;
    if (std::string why = VerifyInplace(def); !why.empty()) return why;
    return VerifyArgs(def.args());
  }

  // Types and shapes of the outputs from what is known of the inputs; unknown where the operator
  // declares no inference. Errors of the operator's own function get the node as context.
  template <class Context>
  OPKIT_COLD void Infer(Context& context) const {
    if (!infer_) return;
    if (needs_all_shapes_)
      for (int i = 0; i < context.num_inputs(); ++i)
        if (context.HasInput(i) && !context.input(i).shape.is_known()) return;
    try {
      infer_(context);
    } catch (Error& error) {
      std::string inputs;
      for (const auto& input : context.inputs()) inputs += " " + ToString(input);
      error.AddContext("in shape inference of " + ToString(context.def()) + " with inputs" +
                       inputs);
      throw;
    }
  }
  template <class Context = InferenceContext>
  std::vector<TensorInfo> InferOutputs(const OperatorDef& def,
                                       std::vector<TensorInfo> inputs) const {
    Context context(def, std::move(inputs));
    Infer(context);
    return std::move(context.outputs());
  }
  // Without a cost function: the bytes of inputs and outputs, and no flops.
  template <class Def = OperatorDef>
  OpCost Cost(const Def& def, const std::vector<TensorInfo>& inputs,
              const std::vector<TensorInfo>& outputs) const {
    return cost_ ? cost_(def, inputs, outputs) : Traffic(inputs, outputs);
  }
  template <class Placement = DevicePlacement>
  Placement InferDevices(const OperatorDef& def) const {
    if (devices_) return devices_(def);
    return {std::vector<Device>(def.inputs().size(), def.device()),
            std::vector<Device>(def.outputs().size(), def.device())};
  }

  // Elements and bytes of a value whose shape is known; 0 otherwise. Bytes are at most what an
  // int64 counts, so that sums of a few do not wrap.
  static uint64_t Elements(const TensorInfo& info) {
    return info.shape.is_known() ? static_cast<uint64_t>(info.shape.ToShape().numel()) : 0;
  }
  static uint64_t Bytes(const TensorInfo& info) {
    constexpr uint64_t kMost = ~uint64_t{0} >> 1;
    uint64_t bytes = 0;
    const auto item = static_cast<uint64_t>(ItemSize(info.dtype));
    return __builtin_mul_overflow(Elements(info), item, &bytes) || bytes > kMost ? kMost : bytes;
  }

 private:
  template <class Index>
  static InplacePredicate AnyOf(std::initializer_list<std::pair<int, int>> pairs) {
    return [list = std::vector<std::pair<int, int>>(pairs)](Index in, Index out) {
      for (const auto& pair : list)
        if (pair.first == in && pair.second == out) return true;
      return false;
    };
  }
  static void Same(InferenceContext& c, int input, int output) {
    c.SetOutput(output, c.input_dtype(input), c.input_shape(input));
    c.SetInput(input, c.output(output).dtype, c.output(output).shape);
  }
  template <class Infos>
  static OpCost Traffic(const Infos& inputs, const Infos& outputs) {
    OpCost cost;
    for (const auto& input : inputs) cost.bytes_read += Bytes(input);
    for (const auto& output : outputs) cost.bytes_written += Bytes(output);
    return cost;
  }
  template <class Count>
  OpSchema& SetArity(std::initializer_list<int> allowed, bool inputs) {
    auto in = [list = std::vector<int>(allowed)](Count n) {
      for (int one : list)
        if (one == n) return true;
      return false;
    };
    (inputs ? inputs_allowed_ : outputs_allowed_) = std::move(in);
    (inputs ? input_counts_ : output_counts_) = std::vector<int>(allowed);
    return *this;
  }
  OPKIT_COLD OpSchema& Value(std::vector<ValueSchema>& values, int i, std::string name,
                             std::string doc, std::vector<DType> dtypes) {
    if (values.size() <= static_cast<size_t>(i)) values.resize(static_cast<size_t>(i) + 1);
    values[static_cast<size_t>(i)] = {std::move(name), std::move(doc), std::move(dtypes)};
    return *this;
  }

  OPKIT_COLD static std::string Counts(int min, int max, const std::vector<int>& set,
                                       bool predicate) {
    if (!set.empty()) return StrCat("one of ", set);
    if (predicate) return "a number that its schema's function allows";
    if (min == max) return std::to_string(min);
    if (max == kAny) return min == 0 ? "any number" : StrCat("at least ", min);
    return StrCat(min, " to ", max);
  }
  template <class Args>
  OPKIT_COLD std::string VerifyArity(int ins, int outs, const Args& args) const {
    auto wrong = [&](const char* what, int found, const std::string& expected) {
      return StrCat(name_, " has ", found, " ", what, ", expected ", expected);
    };
    if (ins < min_inputs_ || ins > max_inputs_ || (inputs_allowed_ && !inputs_allowed_(ins)))
      return wrong("inputs", ins, expected_inputs());
    if (outs < min_outputs_ || outs > max_outputs_ || (outputs_allowed_ && !outputs_allowed_(outs)))
      return wrong("outputs", outs, expected_outputs());
    if (arity_allowed_ && !arity_allowed_(ins, outs))
      return StrCat(name_, " does not take ", ins, " inputs together with ", outs, " outputs");
    if (calculate_outputs_ && calculate_outputs_(ins) != outs)
      return wrong("outputs", outs, StrCat(calculate_outputs_(ins), " for ", ins, " inputs"));
    if (arity_) {
      const auto [inputs, outputs] = arity_(args);
      if (inputs >= 0 && ins != inputs)
        return wrong("inputs", ins, StrCat(inputs, " with these attributes"));
      if (outputs >= 0 && outs != outputs)
        return wrong("outputs", outs, StrCat(outputs, " with these attributes"));
    }
    return {};
  }
  template <class Def>
  OPKIT_COLD std::string VerifyInplace(const Def& def) const {
    for (size_t i = 0; i < def.inputs().size(); ++i)
      for (size_t o = 0; o < def.outputs().size(); ++o) {
        const bool same = !def.inputs()[i].empty() && def.inputs()[i] == def.outputs()[o];
        const int in = static_cast<int>(i), out = static_cast<int>(o);
        if (same && !CanInplace(in, out))
          return StrCat(name_, " may not run in place: input ", i, " and output ", o, " are both '",
                        def.outputs()[o], "'");
        if (!same && MustInplace(in, out))
          return StrCat(name_, " must run in place: input ", i, " is '", def.inputs()[i],
                        "' and output ", o, " is '", def.outputs()[o], "'");
      }
    return {};
  }
  template <class Args>
  OPKIT_COLD std::string VerifyArgs(const Args& args) const {
    for (const AttributeSchema& attribute : attributes_) {
      const Attribute* given = args.Find(attribute.name);
      if (!given && attribute.required)
        return StrCat(name_, " needs the argument '", attribute.name, "'",
                      attribute.doc.empty() ? "" : " (" + attribute.doc + ")");
      const bool empty_list = given && given->is_list() && given->size() == 0;
      if (given && attribute.type && given->type() != *attribute.type && !empty_list)
        return StrCat("argument '", attribute.name, "' of ", name_, " is ", given->type(), " (",
                      ToString(*given), "), expected ", *attribute.type,
                      HowToWrite(*given, *attribute.type));
    }
    for (const auto& arg : args)
      if (!TakesArgument(arg.name))
        return StrCat(name_, " has no argument '", arg.name, "'", SuggestArgument(arg.name));
    return {};
  }
  static std::string HowToWrite(const Attribute& given, AttributeType wanted) {
    if (given.type() == AttributeType::kInt && wanted == AttributeType::kFloat)
      return StrCat("; write ", ToString(given), ".0");
    if (given.type() == AttributeType::kInts && wanted == AttributeType::kFloats)
      return "; write its numbers as 1.0 and not as 1";
    return {};
  }

  static constexpr int kAny = 1 << 30;
  std::string name_;
  const char* file_ = "";
  int line_ = 0;
  std::string signature_;
  std::string origin_;
  std::string doc_;
  std::string problem_;
  std::vector<AttributeSchema> attributes_;
  std::vector<ValueSchema> inputs_, outputs_;
  std::vector<int> input_counts_, output_counts_;  // of the set form
  int min_inputs_ = 0, max_inputs_ = kAny, min_outputs_ = 0, max_outputs_ = kAny;
  bool needs_all_shapes_ = false, private_ = false, inputs_cross_devices_ = false;
  bool unknown_args_allowed_ = false, stateful_ = false, runs_differ_ = false;
  // Called from const members: the functions themselves are stateless to the schema.
  mutable UniqueFunction<bool(int)> inputs_allowed_, outputs_allowed_;
  mutable UniqueFunction<bool(int, int)> arity_allowed_;
  mutable UniqueFunction<int(int)> calculate_outputs_;
  mutable ArityFunction arity_;
  mutable MutationFunction mutates_;
  mutable InplacePredicate inplace_allowed_, inplace_enforced_;
  mutable UniqueFunction<void(InferenceContext&)> infer_;
  mutable CostFunction cost_;
  mutable UniqueFunction<DevicePlacement(const OperatorDef&)> devices_;
  mutable UniqueFunction<std::vector<Tensor>(DType, uint64_t)> test_inputs_;
};

}  // namespace opkit

#endif  // OPKIT_OP_SCHEMA_HPP_
