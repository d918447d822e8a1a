// GradientMakerBase: the base class of gradient makers. A maker returns the operators that compute
// the gradients of a node's inputs from the gradients of its outputs. gradient.hpp registers the
// derived class.
#ifndef OPKIT_OP_GRADIENT_GRADIENT_MAKER_HPP_
#define OPKIT_OP_GRADIENT_GRADIENT_MAKER_HPP_

#include "opkit/op/gradient/gradient_value.hpp"
#include "opkit/op/operator_def.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The gradient operators of a node, and the gradients that they make.
struct GradientOpsMeta {
  std::vector<OperatorDef> ops;        // in the order they run
  std::vector<GradientValue> g_input;  // for every input; empty if no gradient flows
};

// The names of gradients, in an explicit map. Only the map, never the text of a name, decides if a
// value is a gradient, and of which value. No gradient gets the name of another value. One map
// serves a whole graph. Reserve the graph's names before the first gradient is named.
class GradientNames {
 public:
  GradientNames();
  GradientNames(GradientNames&&) = delete;
  ~GradientNames();
  // Reserves a name for a value. Throws kAlreadyExists if the name was given to a gradient before.
  void Reserve(const std::string& name);
  // Reserves the names of a node's values and of its output gradients.
  void ReserveNamesOf(const OperatorDef& def, const std::vector<GradientValue>& g_output);
  // Returns the name of the value's gradient; always the same name.
  const std::string& Of(const std::string& value);
  // Returns a new name for a part of the value's gradient (one use among several, indices, values).
  std::string Fresh(const std::string& value, const std::string& suffix = "_grad");
  bool IsGradient(const std::string& name) const { return ValueOf(name); }
  // Returns the value that `name` is a gradient of; null if this map did not make the name.
  const std::string* ValueOf(const std::string& name) const;

 private:
  struct Table;
  detail::IntrusivePtr<Table> table_;
};

// The base class of gradient makers. One object serves one node.
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

  // True if the gradient operators copy the node's device, engine and those arguments that they
  // accept. Does not change an argument that the maker has set.
  virtual bool CopyDeviceOption() const { return true; }
  virtual bool CopyEngine() const { return true; }
  virtual bool CopyArguments() const { return true; }

  // Returns the gradient operators. The override names every output gradient that it reads by GO,
  // and every input gradient that it makes by GI (or SetDense, SetSparse). An input without a name
  // gets no gradient.
  OPKIT_INLINE virtual std::vector<OperatorDef> GetGradientDefs();
  OPKIT_INLINE virtual GradientOpsMeta Get();
  // Sets the map of names. By default names come from a map for this node only.
  void UseNames(GradientNames* names) { names_ = names; }

 protected:
  const OperatorDef& Def() const { return def_; }
  const std::string& I(int i) const {
    return def_.inputs()[Check(i, def_.inputs().size(), "input")];
  }
  const std::string& O(int i) const {
    return def_.outputs()[Check(i, def_.outputs().size(), "output")];
  }

  // Returns the blobs of the gradient of output i. GO, GO_I and GO_V throw kInvalidArgument if the
  // gradient is of the other kind or does not exist. If this is possible, check GradOut(i) first.
  const GradientValue& GradOut(int i) const {
    return g_output_[Check(i, g_output_.size(), "output")];
  }
  const std::string& GO(int i) const { return Given(i, false).dense; }
  const std::string& GO_I(int i) const { return Given(i, true).indices; }
  const std::string& GO_V(int i) const { return Given(i, true).values; }

  // Returns the blobs for the gradient of input i, named at the first call. A value that two inputs
  // read gets two gradients; the caller of the maker adds them.
  const std::string& GI(int i);
  const std::string& GI_I(int i) { return Slices(i, &GradientValue::indices, "_grad_indices"); }
  const std::string& GI_V(int i) { return Slices(i, &GradientValue::values, "_grad_values"); }
  // Sets the gradient of input i to a blob with another name, such as GO(0) itself.
  void SetDense(int i, const std::string& name) { Gradient(i, false).dense = name; }
  void SetSparse(int i, const std::string& indices, const std::string& values) {
    Gradient(i, true) = GradientValue::Sparse(indices, values);
  }
  // Returns a name for an intermediate result of several gradient operators.
  std::string Temporary(const std::string& hint);
  GradientNames& Names();

  static std::vector<OperatorDef> SingleGradientDef(const std::string& type,
                                                    const std::string& name,
                                                    const std::vector<std::string>& inputs,
                                                    const std::vector<std::string>& outputs,
                                                    Arguments args = {}) {
    return {OperatorDef(type, inputs, outputs, std::move(args)).Name(name)};
  }

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

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/gradient/impl/gradient_maker.ipp"
#endif

#endif  // OPKIT_OP_GRADIENT_GRADIENT_MAKER_HPP_
