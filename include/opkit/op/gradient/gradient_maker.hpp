// GradientMakerBase: op authors derive from it to name the operators that compute the gradients of
// a node's inputs from those of its outputs. gradient.hpp registers the derived class.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_MAKER_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_MAKER_HPP_

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
  static GradientValue Sparse(std::string indices, std::string values);
  bool IsDense() const { return !dense.empty(); }
  bool IsSparse() const { return !indices.empty() || !values.empty(); }
  bool IsEmpty() const { return !IsDense() && !IsSparse(); }
  friend bool operator==(const GradientValue&, const GradientValue&) = default;
  friend std::string ToString(const GradientValue& value);
};

struct GradientOpsMeta {
  std::vector<OperatorDef> ops;        // in the order they run
  std::vector<GradientValue> g_input;  // of every input; empty where no gradient flows
};

// Names of gradients, by an explicit map: whether a value is a gradient, and of which value, is
// looked up and never read from its name, and no gradient gets the name of another value. One map
// serves a whole graph, whose names are reserved before the first gradient is named.
class GradientNames {
 public:
  GradientNames();
  GradientNames(GradientNames&&) = delete;
  ~GradientNames();
  // Takes a name that belongs to another value. Error (kAlreadyExists) when a gradient was given it
  // before.
  void Reserve(const std::string& name);
  // Reserves the names of a node's values and of its output gradients.
  void ReserveNamesOf(const OperatorDef& def, const std::vector<GradientValue>& g_output);
  // The gradient's name of a value; always the same one.
  const std::string& Of(const std::string& value);
  // One more blob for a part of the value's gradient (one use among several, indices, values).
  std::string Fresh(const std::string& value, const std::string& suffix = "_grad");
  bool IsGradient(const std::string& name) const { return ValueOf(name); }
  // The value that `name` is a gradient of; null when this map did not make the name.
  const std::string* ValueOf(const std::string& name) const;

 private:
  struct Table;
  detail::IntrusivePtr<Table> table_;
};

// Base of makers. One object serves one node.
//
//   class ScaleGradient : public GradientMakerBase {
//     using GradientMakerBase::GradientMakerBase;
//     std::vector<OperatorDef> GetGradientDefs() override {
//       return SingleGradientDef("Scale", "", {GO(0)}, {GI(0)});     // the argument is copied
//     }
//   };
//   REGISTER_GRADIENT(Scale, ScaleGradient);
class GradientMakerBase {
 public:
  GradientMakerBase(const OperatorDef& def, std::vector<GradientValue> g_output);
  GradientMakerBase(GradientMakerBase&&) = delete;
  OPKIT_INLINE virtual ~GradientMakerBase();

  // Whether the gradient operators take over the node's device, engine and those arguments that
  // they take; an argument that they set themselves stays.
  virtual bool CopyDeviceOption() const { return true; }
  virtual bool CopyEngine() const { return true; }
  virtual bool CopyArguments() const { return true; }

  // The gradient operators. Names every output gradient it reads by GO and every input gradient it
  // makes by GI (or SetDense, SetSparse); inputs not named get no gradient.
  OPKIT_INLINE virtual std::vector<OperatorDef> GetGradientDefs();
  OPKIT_INLINE virtual GradientOpsMeta Get();
  // Without it names come from a map that knows this node alone.
  void UseNames(GradientNames* names) { names_ = names; }

 protected:
  const OperatorDef& Def() const { return def_; }
  const std::string& I(int i) const {
    return def_.inputs()[Check(i, def_.inputs().size(), "input")];
  }
  const std::string& O(int i) const {
    return def_.outputs()[Check(i, def_.outputs().size(), "output")];
  }

  // Blobs of the gradient of output i. Error (kInvalidArgument) when it is of the other kind, or
  // none was given: ask GradOut(i) first where that is possible.
  const GradientValue& GradOut(int i) const {
    return g_output_[Check(i, g_output_.size(), "output")];
  }
  const std::string& GO(int i) const { return Given(i, false).dense; }
  const std::string& GO_I(int i) const { return Given(i, true).indices; }
  const std::string& GO_V(int i) const { return Given(i, true).values; }

  // Blobs for the gradient of input i, named at the first call. A value that is read by two inputs
  // gets two gradients, which the caller of the maker adds up.
  const std::string& GI(int i);
  const std::string& GI_I(int i) { return Slices(i, &GradientValue::indices, "_grad_indices"); }
  const std::string& GI_V(int i) { return Slices(i, &GradientValue::values, "_grad_values"); }
  // The gradient of input i is a blob that exists by another name, such as GO(0) itself.
  void SetDense(int i, const std::string& name) { Gradient(i, false).dense = name; }
  void SetSparse(int i, const std::string& indices, const std::string& values) {
    Gradient(i, true) = GradientValue::Sparse(indices, values);
  }
  // A name for an intermediate result of several gradient operators.
  std::string Temporary(const std::string& hint);
  GradientNames& Names();

  static std::vector<OperatorDef> SingleGradientDef(const std::string& type,
                                                    const std::string& name,
                                                    const std::vector<std::string>& inputs,
                                                    const std::vector<std::string>& outputs,
                                                    Arguments args = {});

 private:
  size_t Check(int i, size_t count, const char* what) const;
  const GradientValue& Given(int i, bool sparse) const;
  GradientValue& Gradient(int i, bool sparse);
  const std::string& Slices(int i, std::string GradientValue::*part, const char* suffix);

  const OperatorDef def_;
  const std::vector<GradientValue> g_output_;
  std::vector<GradientValue> g_input_;
  GradientNames* names_ = nullptr;  // null until the first name
  GradientNames own_names_;
};

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/gradient/impl/gradient_maker.ipp"
#endif

#endif  // OPKIT_OP_GRADIENT_GRADIENT_MAKER_HPP_
