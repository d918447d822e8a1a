// OpSchema: the facts about an operator that are true on every device. OPERATOR_SCHEMA or a typed
// signature fills it in once. The schema then verifies nodes, infers their outputs and computes the
// cost of a run.
#ifndef OPKIT_OP_SCHEMA_HPP_
#define OPKIT_OP_SCHEMA_HPP_

#include "opkit/base/unique_function.hpp"
#include "opkit/op/inference.hpp"
#include "opkit/op/schema/op_cost.hpp"
#include "opkit/op/schema/value_schema.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

namespace detail {

// Function objects in these classes are mutable because const members call them. Their results must
// not depend on earlier calls.

// The allowed numbers of inputs or outputs of a node: a range and, within it, a list or a
// predicate.
class CountRule {
 public:
  static constexpr int kAny = 1 << 30;

  void SetRange(int least, int most) { min_ = least, max_ = most; }
  void SetList(std::initializer_list<int> allowed);
  void SetPredicate(UniqueFunction<bool(int)> allowed);
  int least() const { return min_; }
  int most() const { return max_; }
  // Returns the only number of the range; -1 if the range has several numbers.
  int fixed() const { return min_ == max_ ? min_ : -1; }
  bool Allows(int count) const;
  // Returns "2", "1 to 3", "at least 1", "one of [1, 3]", …
  std::string Describe() const;

 private:
  int min_ = 0, max_ = kAny;
  std::vector<int> list_;
  mutable UniqueFunction<bool(int)> predicate_;
};

// The allowed numbers of inputs and outputs, and the rule by which the number of outputs follows
// from the inputs or the attributes.
struct ArityRules {
  CountRule inputs, outputs;
  mutable UniqueFunction<bool(int, int)> pair_allowed;
  mutable UniqueFunction<int(int)> outputs_of_inputs;
  mutable UniqueFunction<std::pair<int, int>(const Arguments&, std::span<const NamedSubgraph>)>
      of_arguments;

  // Returns the number of outputs; -1 if the inputs and attributes do not decide it.
  int OutputsOf(int num_inputs) const;
  int OutputsOf(int num_inputs, const Arguments& args) const;
  // Returns the numbers of inputs and outputs of a node with these attributes; -1 for a number that
  // they do not decide.
  std::pair<int, int> Of(const Arguments& args) const;
  // Returns the reason why a node of `op` may not have its numbers of values; empty if the numbers
  // are allowed. The Verify functions below have the same convention.
  std::string Verify(const std::string& op, const OperatorDef& def, bool needs_subgraph) const;
};

// Pairs {input, output} that may, or must, be one blob.
struct InplaceRules {
  using Predicate = UniqueFunction<bool(int, int)>;
  mutable Predicate allowed, enforced;

  static Predicate AnyOf(std::initializer_list<std::pair<int, int>> pairs);
  static bool OneToOne(int input, int output) { return input == output; }
  bool Must(int input, int output) const { return enforced && enforced(input, output); }
  bool May(int input, int output) const {
    return Must(input, output) || (allowed && allowed(input, output));
  }
  std::string Verify(const std::string& op, const OperatorDef& def) const;
};

// The declared attributes. With `free_if_none` an operator parses its attributes itself, and
// accepts every attribute if none is declared.
struct AttributeRules {
  std::vector<AttributeSchema> declared;
  bool unknown_allowed = false, free_if_none = false;

  // Returns null if it is not declared.
  const AttributeSchema* Find(std::string_view name) const;
  bool Takes(std::string_view name) const {
    return unknown_allowed || (free_if_none && declared.empty()) || Find(name);
  }
  std::string Suggest(std::string_view name) const;
  std::string Verify(const std::string& op, const Arguments& args) const;
};

// Selects AdaptInference, which a header of compat/ defines. AdaptInference converts an ancestor's
// form of an inference function to a function of an InferenceContext.
struct AncestorForm {};

// Throws kTypeMismatch if a known dtype is not among the declared ones. If none is declared, allows
// the dtypes up to `last`, and those of numbers.
OPKIT_COLD void CheckDTypes(const char* what, const std::vector<ValueSchema>& declared,
                            const std::vector<TensorInfo>& infos, DType last = DType::kUndefined);

}  // namespace detail

// The schema of an operator. Setters return *this, so that a schema reads as one sentence. Not
// synchronised: filled in during static initialisation, read-only afterwards.
class OpSchema {
 public:
  OpSchema() = default;
  // The schema of operator `name`, registered at this place; OPERATOR_SCHEMA makes it.
  OpSchema(std::string name, const char* file, int line, std::string signature = {});

  // Sets the allowed numbers: exactly n, between two numbers, one of a list, or by a predicate.
  OpSchema& NumInputs(int n) { return NumInputs(n, n); }
  OpSchema& NumInputs(int min, int max) { return arity_.inputs.SetRange(min, max), *this; }
  OpSchema& NumInputs(std::initializer_list<int> all) { return arity_.inputs.SetList(all), *this; }
  OpSchema& NumInputs(UniqueFunction<bool(int)> allowed) {
    return arity_.inputs.SetPredicate(std::move(allowed)), *this;
  }
  OpSchema& NumOutputs(int n) { return NumOutputs(n, n); }
  OpSchema& NumOutputs(int min, int max) { return arity_.outputs.SetRange(min, max), *this; }
  OpSchema& NumOutputs(std::initializer_list<int> all) {
    return arity_.outputs.SetList(all), *this;
  }
  OpSchema& NumOutputs(UniqueFunction<bool(int)> allowed) {
    return arity_.outputs.SetPredicate(std::move(allowed)), *this;
  }
  // Sets a predicate of the numbers of inputs and outputs.
  OpSchema& NumInputsOutputs(UniqueFunction<bool(int, int)> allowed) {
    return arity_.pair_allowed = std::move(allowed), *this;
  }
  // Sets the function that computes the number of outputs from the number of inputs.
  OpSchema& OutputCalculator(UniqueFunction<int(int)> calculate) {
    return arity_.outputs_of_inputs = std::move(calculate), *this;
  }
  OpSchema& SameNumberOfOutput() {
    return OutputCalculator([](int inputs) { return inputs; });
  }
  // Sets the function that computes the numbers of inputs and outputs from the attributes and the
  // graphs of a node; it returns -1 for a number that they do not decide. If the node carries one
  // graph, and the operator NeedsSubgraph(), such a number is the graph's.
  using ArityFunction = UniqueFunction<std::pair<int, int>(
      const Arguments&, std::span<const detail::NamedSubgraph> graphs)>;
  OpSchema& ArityFromArguments(ArityFunction arity) {
    return arity_.of_arguments = std::move(arity), *this;
  }

  // Sets the inputs that a node also writes to.
  using MutationFunction = UniqueFunction<std::vector<int>(const OperatorDef&)>;
  OpSchema& MutatesInputs(MutationFunction inputs) { return mutates_ = std::move(inputs), *this; }
  OpSchema& MutatesInputs(std::initializer_list<int> inputs);

  // Declares that two runs on the same inputs may differ (random numbers), or that a run has an
  // effect beside its outputs. Such a node is never folded, merged with an equal node, or dropped.
  OpSchema& Stateful() { return stateful_ = runs_differ_ = true, *this; }
  // Declares that a node keeps state between its runs, although equal inputs give equal results.
  // Such a node is never folded, merged with an equal node, or dropped.
  OpSchema& KeepsState() { return stateful_ = true, *this; }
  // Declares that a node runs a graph that it carries; a node without a graph is refused. If the
  // node's inputs and outputs match the graph's by position, the graph decides the node's types and
  // shapes, the inputs to which it writes, and its gradient. The operator's own declarations come
  // first.
  OpSchema& NeedsSubgraph() { return needs_subgraph_ = true, *this; }
  // Declares that the operator runs its nodes' graphs in this program (RunsBodies of
  // graph/node_bodies.hpp), so that a plan's passes also process those graphs.
  OpSchema& RunsSubgraphs() { return runs_subgraphs_ = true, *this; }

  // Sets the pairs {input, output} that may, or must, be the same blob.
  using InplacePredicate = detail::InplaceRules::Predicate;
  OpSchema& Inplace(InplacePredicate may) { return inplace_.allowed = std::move(may), *this; }
  OpSchema& Inplace(std::initializer_list<std::pair<int, int>> pairs) {
    return Inplace(detail::InplaceRules::AnyOf(pairs));
  }
  OpSchema& OneToOneInplace() { return Inplace(&detail::InplaceRules::OneToOne); }
  OpSchema& EnforceInplace(InplacePredicate must) {
    return inplace_.enforced = std::move(must), *this;
  }
  OpSchema& EnforceInplace(std::initializer_list<std::pair<int, int>> pairs) {
    return EnforceInplace(detail::InplaceRules::AnyOf(pairs));
  }
  OpSchema& EnforceOneToOneInplace() { return EnforceInplace(&detail::InplaceRules::OneToOne); }

  // Declares an attribute. `Arg(name, doc)` accepts any type; `Arg<T>` checks the type and
  // documents a default. An undeclared attribute is an Error, in a node and in a constructor that
  // reads it, unless AllowUncheckedAttributes is called.
  OpSchema& Arg(std::string name, std::string doc) {
    return Arg({std::move(name), std::move(doc), false, {}, {}});
  }
  template <class T>
  OpSchema& Arg(std::string name, std::string doc, std::optional<T> default_value = {}) {
    detail::AttributeSchema attribute{
        std::move(name), std::move(doc), false, kAttributeTypeOf<T>, {}};
    if (default_value) attribute.default_value.emplace(*default_value);
    return Arg(std::move(attribute));
  }
  OpSchema& Arg(detail::AttributeSchema attribute);
  // Declares an attribute of type T that every node must give.
  template <class T>
  OpSchema& RequiredArg(std::string name, std::string doc) {
    return Arg({std::move(name), std::move(doc), true, kAttributeTypeOf<T>, {}});
  }
  // Declares a string attribute with these values; the first is the default, unless a node must
  // give it.
  //   .Arg("mode", "how the borders are filled", {"valid", "same"})
  OpSchema& Arg(std::string name, std::string doc, std::initializer_list<const char*> values);
  OpSchema& RequiredArg(std::string name, std::string doc,
                        std::initializer_list<const char*> values);
  // Makes a declared attribute optional, or limits its strings. An undeclared name, or a default
  // that is not among the values, becomes the schema's problem().
  OpSchema& Default(std::string_view name, Attribute value);
  OpSchema& Values(std::string_view name, std::vector<std::string> values);
  OpSchema& ArgIsTest(std::string doc) { return Arg("is_test", std::move(doc)); }
  OpSchema& AllowUncheckedAttributes() { return attributes_.unknown_allowed = true, *this; }
  // Declares that the operator's functions parse the attributes: as long as none is declared, a
  // node may give any.
  OpSchema& ParsesAttributes() { return attributes_.free_if_none = true, *this; }

  // Sets the function that infers the types and shapes of the outputs.
  using InferenceFunction = UniqueFunction<void(InferenceContext&)>;
  OpSchema& Infer(InferenceFunction infer) { return infer_ = std::move(infer), *this; }
  // Calls inference only if every input shape is known.
  OpSchema& NeedsAllInputShapes(bool needs = true) { return needs_all_shapes_ = needs, *this; }
  // Sets the inference: output i has the type and shape of input i, of one input, or of input
  // inputs[i]. Known facts about an output refine its input.
  OpSchema& IdenticalTypeAndShape();
  OpSchema& IdenticalTypeAndShapeOfInput(int input);
  OpSchema& IdenticalTypeAndShapeOfMultipleInputs(std::vector<int> inputs);
  // Sets the inference: rank 1, the extent of the input along `dim`, the input's dtype.
  OpSchema& IdenticalTypeAndShapeOfInputDim(int input, int dim);
  OpSchema& ScalarType(DType dtype);

  // Sets the function that computes the cost of a run (operations, bytes) from the node and the
  // types of its inputs and outputs.
  using CostFunction = UniqueFunction<OpCost(const OperatorDef&, const std::vector<TensorInfo>&,
                                             const std::vector<TensorInfo>&)>;
  OpSchema& Cost(CostFunction cost) { return cost_ = std::move(cost), *this; }
  // Sets the cost of an operator that reads every input and writes every output once, with `flops`
  // operations for each element of output 0.
  OpSchema& PointwiseCost(uint64_t flops);
  // Sets the cost of an operator that reads every input and writes every output once, with the
  // floating-point operations of a run from a function. The function reads attributes and the
  // shapes of inputs and outputs, which are all known: for instance OpSchema::Elements(c.output(0))
  // * 2.
  OpSchema& Flops(UniqueFunction<uint64_t(const InferenceContext&)> flops);
  // Sets the function that returns the devices of inputs and outputs. By default all are on the
  // node's device.
  using DevicePlacement = std::pair<std::vector<Device>, std::vector<Device>>;
  OpSchema& DeviceInferenceFunction(UniqueFunction<DevicePlacement(const OperatorDef&)> devices) {
    return devices_ = std::move(devices), *this;
  }
  // Sets the inputs that every kernel reads in the host's memory, such as the shape of a Reshape:
  // the shapes of outputs depend on their elements. Plans leave or copy these inputs there.
  OpSchema& InputsOnHost(std::vector<int> inputs);
  OpSchema& InputsCanCrossDevices() { return inputs_cross_devices_ = true, *this; }

  // Sets name, doc and, if limited, dtypes of an input or output; inference and Invoke throw
  // kTypeMismatch for another dtype.
  OpSchema& Input(int i, std::string name, std::string doc = {}, std::vector<DType> dtypes = {});
  OpSchema& Output(int i, std::string name, std::string doc = {}, std::vector<DType> dtypes = {});
  // Declares that the inputs and outputs whose dtypes are not limited also take strings.
  OpSchema& TakesStrings() { return takes_strings_ = true, *this; }
  OpSchema& Doc(std::string doc) { return doc_ = std::move(doc), *this; }
  // Hides the operator in the reference of operators.
  OpSchema& Private() { return private_ = true, *this; }
  // Marks an operator that only plans insert. A library does not export such an operator, because
  // its host has the same one.
  OpSchema& Internal() { return internal_ = true, Private(); }
  // Marks an operator of ONNX's own domain: a model's node of the same name in another domain is a
  // different operator.
  OpSchema& Standard() { return standard_ = true, *this; }
  template <class Populator>
  OpSchema& FillUsing(Populator populate) {
    return populate(*this), *this;
  }
  // Sets the function that makes valid inputs for this operator, for CheckOperator and benchmarks.
  OpSchema& TestInputs(UniqueFunction<std::vector<Tensor>(DType, uint64_t seed)> make) {
    return test_inputs_ = std::move(make), *this;
  }

  // Caffe2's spellings of the setters.
  OpSchema& Arg(std::string name, std::string doc, bool required) {
    return Arg({std::move(name), std::move(doc), required, {}, {}});
  }
  OpSchema& SetDoc(std::string doc) { return Doc(std::move(doc)); }
  OpSchema& AllowInplace(InplacePredicate may) { return Inplace(std::move(may)); }
  OpSchema& AllowInplace(std::initializer_list<std::pair<int, int>> pairs) {
    return Inplace(pairs);
  }
  OpSchema& AllowOneToOneInplace() { return OneToOneInplace(); }
  OpSchema& TensorInferenceFunction(InferenceFunction infer) { return Infer(std::move(infer)); }
  // Takes Caffe2's form of the function, once opkit/compat/caffe2.hpp is included.
  template <class F>
    requires requires(F infer) { AdaptInference(infer, detail::AncestorForm{}); }
  OpSchema& TensorInferenceFunction(F infer) {
    return Infer(AdaptInference(std::move(infer), detail::AncestorForm{}));
  }
  OpSchema& CostInferenceFunction(CostFunction cost) { return Cost(std::move(cost)); }
  OpSchema& AllowUnknownArgs() { return AllowUncheckedAttributes(); }
  OpSchema& InheritOnnxSchema(std::string_view = {}) { return *this; }  // does nothing

  // Return the operator's name, and the place of its registration.
  const std::string& name() const { return name_; }
  const char* file() const { return file_; }
  int line() const { return line_; }
  // Returns the library of the operator, by its name in this program; empty for the program itself.
  const std::string& origin() const { return origin_; }
  // Return the name and version that the library itself announces, which are the same in every
  // program. The name is the library's own name, or its file's name without the folder; the version
  // may be empty.
  const std::string& library_name() const { return library_name_; }
  const std::string& library_version() const { return library_version_; }
  OpSchema& SetOrigin(std::string library, std::string name, std::string version) {
    origin_ = std::move(library);
    library_name_ = std::move(name);
    library_version_ = std::move(version);
    return *this;
  }
  // Returns the parameters of the typed function from which the schema was derived; empty for other
  // schemas.
  const std::string& signature() const { return signature_; }
  const std::string& doc() const { return doc_; }
  // Returns the mistake in the schema itself; empty if there is none. Setters run before main and
  // must not throw.
  std::string problem() const;
  bool is_private() const { return private_; }
  bool is_internal() const { return internal_; }
  bool is_standard() const { return standard_; }
  bool is_stateful() const { return stateful_; }
  bool runs_may_differ() const { return runs_differ_; }
  bool needs_subgraph() const { return needs_subgraph_; }
  bool runs_subgraphs() const { return runs_subgraphs_; }
  bool inputs_can_cross_devices() const { return inputs_cross_devices_; }
  // True if the schema gives the devices of its values; otherwise all are on the node's device.
  bool infers_devices() const { return static_cast<bool>(devices_); }
  bool has_inference() const { return static_cast<bool>(infer_); }
  // True if the dtypes of an input or output are limited.
  bool limits_dtypes() const;
  bool has_cost() const { return cost_ || flops_; }
  int min_inputs() const { return arity_.inputs.least(); }
  int max_inputs() const { return arity_.inputs.most(); }
  int min_outputs() const { return arity_.outputs.least(); }
  int max_outputs() const { return arity_.outputs.most(); }
  // Returns "2", "1 to 3", "at least 1", "one of [1, 3]", …
  std::string expected_inputs() const { return arity_.inputs.Describe(); }
  std::string expected_outputs() const { return arity_.outputs.Describe(); }
  const std::vector<detail::AttributeSchema>& attributes() const { return attributes_.declared; }
  const std::vector<detail::ValueSchema>& inputs() const { return inputs_; }
  const std::vector<detail::ValueSchema>& outputs() const { return outputs_; }
  bool CanInplace(int input, int output) const { return inplace_.May(input, output); }
  bool MustInplace(int input, int output) const { return inplace_.Must(input, output); }
  // Returns the number of outputs; -1 if the inputs do not decide it.
  int CalculateOutput(int inputs) const { return arity_.OutputsOf(inputs); }
  int CalculateOutput(int inputs, const Arguments& args) const {
    return arity_.OutputsOf(inputs, args);
  }
  // Returns the numbers of inputs and outputs of a node with these attributes; -1 for a number that
  // they do not decide.
  std::pair<int, int> Arity(const Arguments& args) const { return arity_.Of(args); }
  std::vector<int> MutatedInputs(const OperatorDef& def) const;
  const detail::AttributeSchema* FindAttribute(std::string_view name) const {
    return attributes_.Find(name);
  }
  // False for an attribute that a node must not give.
  bool TakesArgument(std::string_view name) const { return attributes_.Takes(name); }
  bool unknown_args_allowed() const { return attributes_.unknown_allowed; }
  // Returns "; did you mean 'alpha'?" or similar, for a name that is not declared.
  std::string SuggestArgument(std::string_view name) const { return attributes_.Suggest(name); }
  // True if ArityFromArguments was called: attributes may decide the number of outputs.
  bool has_arity_function() const { return static_cast<bool>(arity_.of_arguments); }
  bool has_test_inputs() const { return static_cast<bool>(test_inputs_); }
  // Returns no tensors if the schema makes no test data.
  std::vector<Tensor> MakeTestInputs(DType dtype, uint64_t seed) const {
    return test_inputs_ ? test_inputs_(dtype, seed) : std::vector<Tensor>();
  }

  // Returns the reason why `def` is not a valid node of this operator, or why its attributes are
  // not valid; empty if `def` is valid.
  std::string Verify(const OperatorDef& def) const;
  std::string VerifyArguments(const Arguments& args) const {
    return attributes_.Verify(name_, args);
  }

  // Infers the types and shapes of the outputs from those of the inputs. Without a declared
  // inference the outputs stay unknown. Errors of the operator's own function get the node as
  // context.
  void Infer(InferenceContext& context) const;
  std::vector<TensorInfo> InferOutputs(const OperatorDef& def,
                                       std::vector<TensorInfo> inputs) const;
  // Returns the cost of a run. Without a cost function: the bytes of inputs and outputs, and no
  // flops.
  OpCost Cost(const OperatorDef& def, const std::vector<TensorInfo>& inputs,
              const std::vector<TensorInfo>& outputs) const;
  DevicePlacement InferDevices(const OperatorDef& def) const;

  // Returns the elements and bytes of a value with a known shape; 0 otherwise. Bytes are at most
  // INT64_MAX, so that sums of a few do not wrap.
  static uint64_t Elements(const TensorInfo& info);
  static uint64_t Bytes(const TensorInfo& info);

 private:
  // Returns the declared attribute. If it is not declared, returns null and records the schema's
  // problem.
  detail::AttributeSchema* Declared(std::string_view name, const char* to_give);

  std::string name_;
  const char* file_ = "";
  int line_ = 0;
  std::string signature_;
  std::string origin_, library_name_, library_version_;
  std::string doc_;
  std::string problem_;
  detail::ArityRules arity_;
  detail::InplaceRules inplace_;
  detail::AttributeRules attributes_;
  std::vector<detail::ValueSchema> inputs_, outputs_;
  bool needs_all_shapes_ = false, private_ = false, internal_ = false;
  bool inputs_cross_devices_ = false, stateful_ = false, runs_differ_ = false,
       needs_subgraph_ = false, standard_ = false;
  bool runs_subgraphs_ = false, takes_strings_ = false;
  // Mutable because const members call them; their results must not depend on earlier calls.
  mutable MutationFunction mutates_;
  mutable InferenceFunction infer_;
  mutable CostFunction cost_;
  mutable UniqueFunction<uint64_t(const InferenceContext&)> flops_;
  mutable UniqueFunction<DevicePlacement(const OperatorDef&)> devices_;
  mutable UniqueFunction<std::vector<Tensor>(DType, uint64_t)> test_inputs_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/impl/schema.ipp"
#endif

#endif  // OPKIT_OP_SCHEMA_HPP_
