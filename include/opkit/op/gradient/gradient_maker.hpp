// GradientMakerBase: says which operators compute the gradients of a node's inputs from those of
// its outputs. What op authors derive from; gradient.hpp registers it.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_MAKER_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_MAKER_HPP_

#include <map>
#include <optional>

#include "opkit/op/operator_def.hpp"

namespace opkit::inline OPKIT_ABI {

// The blobs that hold the gradient of one value: one dense tensor; or indices and values of slices
// along the first axis; or nothing, where no gradient flows.
struct GradientValue {
  std::string dense;
  std::string indices;
  std::string values;

  GradientValue() = default;
  GradientValue(std::string name) : dense(std::move(name)) {}
  GradientValue(const char* name) : dense(name) {}
  static GradientValue Sparse(std::string indices, std::string values) {
    GradientValue out;
    out.indices = std::move(indices);
    out.values = std::move(values);
    return out;
  }
  bool IsDense() const { return !dense.empty(); }
  bool IsSparse() const { return !indices.empty() || !values.empty(); }
  bool IsEmpty() const { return !IsDense() && !IsSparse(); }
  friend bool operator==(const GradientValue&, const GradientValue&) = default;
  friend std::string ToString(const GradientValue& value) {
    if (value.IsEmpty()) return "(none)";
    return value.IsDense() ? value.dense : StrCat("{", value.indices, ", ", value.values, "}");
  }
};

struct GradientOpsMeta {
  std::vector<OperatorDef> ops;        // in the order they run
  std::vector<GradientValue> g_input;  // of every input; empty where no gradient flows
};

// Names of gradients, by an explicit map: what is a gradient, and of what, is looked up and never
// read from a name, and no gradient gets the name of another value. One map serves a whole graph,
// whose names are reserved before the first gradient is named. A template, like the base of makers
// below, so that its maps are compiled only where gradients are.
template <class Text>
class BasicGradientNames {
 public:
  // A name that something else has. Error (kAlreadyExists) when a gradient was given it before.
  void Reserve(const Text& name) {
    if (values_.count(name))
      Throw(ErrorCode::kAlreadyExists, "value '", name,
            "' has the name that was given to the "
            "gradient of '",
            values_[name], "'; reserve the graph's names before naming gradients");
    taken_.emplace(name, 1);
  }
  // Everything that a node and its output gradients are called.
  template <class Values>
  void ReserveNamesOf(const OperatorDef& def, const Values& g_output) {
    auto reserve = [&](const Text& name) {
      if (!name.empty() && !IsGradient(name)) Reserve(name);
    };
    for (const Text& name : def.inputs()) reserve(name);
    for (const Text& name : def.outputs()) reserve(name);
    for (const auto& value : g_output)
      for (const Text* name : {&value.dense, &value.indices, &value.values}) reserve(*name);
  }
  // The gradient's name of a value; always the same one.
  const Text& Of(const Text& value) {
    const auto it = gradients_.find(value);
    return it != gradients_.end() ? it->second : gradients_[value] = Fresh(value);
  }
  // One more blob for a part of the value's gradient (one use among several, indices, values).
  Text Fresh(const Text& value, const Text& suffix = "_grad") {
    Text name = value + suffix;
    const auto known = taken_.find(name);
    while (taken_.count(name)) name = StrCat(value, suffix, "_", known->second++);
    taken_.emplace(name, 1);
    values_.emplace(name, value);
    return name;
  }
  bool IsGradient(const Text& name) const { return values_.count(name) != 0; }
  // What `name` is a gradient of; null when it is not one of this map's.
  const Text* ValueOf(const Text& name) const {
    const auto it = values_.find(name);
    return it == values_.end() ? nullptr : &it->second;
  }

 private:
  std::map<Text, Text> gradients_, values_;  // value to gradient, gradient to value
  std::map<Text, int> taken_;  // the number to try next, so that many uses of a value stay cheap
};
using GradientNames = BasicGradientNames<std::string>;

// Base of makers. One object serves one node.
//
//   class ScaleGradient : public GradientMakerBase {
//     using GradientMakerBase::GradientMakerBase;
//     std::vector<OperatorDef> GetGradientDefs() override {
//       return SingleGradientDef("Scale", "", {GO(0)}, {GI(0)});     // the argument is copied
//     }
//   };
//   REGISTER_GRADIENT(Scale, ScaleGradient);
template <class Value, class NameMap>
class BasicGradientMaker {
 public:
  BasicGradientMaker(const OperatorDef& def, std::vector<Value> g_output)
      : def_(def), g_output_(std::move(g_output)), g_input_(def.inputs().size()) {}
  BasicGradientMaker(const BasicGradientMaker&) = delete;
  BasicGradientMaker& operator=(const BasicGradientMaker&) = delete;
  virtual ~BasicGradientMaker() = default;

  // What the gradient operators take over from the node; an argument that they set themselves
  // stays.
  virtual bool CopyDeviceOption() const { return true; }
  virtual bool CopyEngine() const { return true; }
  virtual bool CopyArguments() const { return true; }

  // The gradient operators. Names every output gradient it reads by GO and every input gradient it
  // makes by GI (or SetDense, SetSparse); inputs not named get no gradient.
  virtual std::vector<OperatorDef> GetGradientDefs() {
    Throw(ErrorCode::kUnsupported, "the gradient maker of operator ", def_.type(),
          " must override GetGradientDefs() or Get()");
  }
  virtual GradientOpsMeta Get() {
    std::vector<OperatorDef> ops = GetGradientDefs();
    return {std::move(ops), g_input_};
  }
  // Where names come from; without it, from a map that knows this node alone.
  void UseNames(NameMap* names) { names_ = names; }

 protected:
  const OperatorDef& Def() const { return def_; }
  const std::string& I(int i) const { return def_.inputs()[Check(i, def_.inputs(), "input")]; }
  const std::string& O(int i) const { return def_.outputs()[Check(i, def_.outputs(), "output")]; }

  // Blobs of the gradient of output i. Error (kInvalidArgument) when it is of the other kind, or
  // none was given: ask GradOut(i) first where that is possible.
  const Value& GradOut(int i) const { return g_output_[Check(i, g_output_, "output")]; }
  const std::string& GO(int i) const {
    if (!GradOut(i).IsDense()) WrongKind(i, "dense");
    return GradOut(i).dense;
  }
  const std::string& GO_I(int i) const {
    if (!GradOut(i).IsSparse()) WrongKind(i, "sparse");
    return GradOut(i).indices;
  }
  const std::string& GO_V(int i) const {
    if (!GradOut(i).IsSparse()) WrongKind(i, "sparse");
    return GradOut(i).values;
  }

  // Blobs for the gradient of input i, named at the first call. A value that is read by two inputs
  // gets two gradients, which whoever uses them adds up.
  const std::string& GI(int i) {
    Value& value = Gradient(i, false);
    if (value.dense.empty()) value.dense = Name(i);
    return value.dense;
  }
  const std::string& GI_I(int i) {
    Value& value = Gradient(i, true);
    if (value.indices.empty()) value.indices = Names().Fresh(I(i), "_grad_indices");
    return value.indices;
  }
  const std::string& GI_V(int i) {
    Value& value = Gradient(i, true);
    if (value.values.empty()) value.values = Names().Fresh(I(i), "_grad_values");
    return value.values;
  }
  // The gradient of input i is a blob that exists by another name, such as GO(0) itself.
  void SetDense(int i, const std::string& name) { Gradient(i, false).dense = name; }
  void SetSparse(int i, const std::string& indices, const std::string& values) {
    Gradient(i, true) = Value::Sparse(indices, values);
  }
  // A name for an intermediate result of several gradient operators.
  std::string Temporary(const std::string& hint) {
    return Names().Fresh(def_.outputs().empty() ? def_.type() : def_.outputs()[0], "_grad_" + hint);
  }
  NameMap& Names() {
    if (names_) return *names_;
    if (!own_names_) {
      own_names_.emplace();
      ReserveNames(*own_names_, def_, g_output_);
    }
    return *own_names_;
  }

  static std::vector<OperatorDef> SingleGradientDef(const std::string& type,
                                                    const std::string& name,
                                                    const std::vector<std::string>& inputs,
                                                    const std::vector<std::string>& outputs,
                                                    Arguments args = {}) {
    OperatorDef def(type, inputs, outputs, std::move(args));
    def.Name(name);
    return {std::move(def)};
  }

 public:
  static void ReserveNames(NameMap& names, const OperatorDef& def,
                           const std::vector<Value>& g_output) {
    names.ReserveNamesOf(def, g_output);
  }

 private:
  template <class Values>
  size_t Check(int i, const Values& values, const char* what) const {
    if (i < 0 || static_cast<size_t>(i) >= values.size())
      Throw(ErrorCode::kOutOfRange, "the gradient maker of ", ToString(def_), " asks for ", what,
            " ", i, " of ", values.size());
    return static_cast<size_t>(i);
  }
  [[noreturn]] OPKIT_COLD void WrongKind(int i, const char* wanted) const {
    Throw(ErrorCode::kInvalidArgument, "the gradient maker of ", ToString(def_), " needs a ",
          wanted, " gradient of output ", i, " '", O(i), "', but ",
          GradOut(i).IsEmpty() ? "none was given" : "was given " + ToString(GradOut(i)));
  }
  Value& Gradient(int i, bool sparse) {
    Value& value = g_input_[Check(i, g_input_, "input")];
    if (sparse ? value.IsDense() : value.IsSparse())
      Throw(ErrorCode::kInvalidArgument, "the gradient maker of ", ToString(def_),
            " makes the gradient of input ", i, " '", I(i), "' both dense and sparse");
    return value;
  }
  std::string Name(int i) {
    for (int k = 0; k < i; ++k)
      if (I(k) == I(i)) return Names().Fresh(I(i));
    // In place, the value's gradient may be the very one that comes in.
    const std::string& name = Names().Of(I(i));
    for (const Value& value : g_output_)
      if (value.dense == name) return Names().Fresh(I(i));
    return name;
  }

  const OperatorDef def_;
  const std::vector<Value> g_output_;
  std::vector<Value> g_input_;
  NameMap* names_ = nullptr;
  std::optional<NameMap> own_names_;
};
using GradientMakerBase = BasicGradientMaker<GradientValue, GradientNames>;

}  // namespace opkit

#endif  // OPKIT_OP_GRADIENT_GRADIENT_MAKER_HPP_
