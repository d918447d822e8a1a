// The definitions of GradientNames and GradientMakerBase.
#ifndef OPKIT_OP_GRADIENT_IMPL_GRADIENT_MAKER_IPP_
#define OPKIT_OP_GRADIENT_IMPL_GRADIENT_MAKER_IPP_

#include <algorithm>
#include <map>

#include "opkit/base/index.hpp"
#include "opkit/op/gradient/gradient_maker.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct GradientNames::Table : detail::RefCounted {
  struct Row {
    const std::string* value = nullptr;     // the value that this name is a gradient of
    const std::string* gradient = nullptr;  // the gradient of this value
    int next = 0;  // next suffix to try for a taken name, so that many uses stay cheap; 0: free
  };
  std::map<std::string, Row> rows;  // the rows point to these names
};
OPKIT_INLINE GradientNames::GradientNames() : table_(new Table) {}
OPKIT_INLINE GradientNames::~GradientNames() = default;
OPKIT_INLINE void GradientNames::Reserve(const std::string& name) {
  Table::Row& row = table_->rows[name];
  if (row.value)
    Throw(ErrorCode::kAlreadyExists, "value '", name,
          "' has the name that was given to the gradient of '", *row.value,
          "'; reserve the graph's names before naming gradients");
  if (row.next == 0) row.next = 1;
}
OPKIT_INLINE void GradientNames::ReserveNamesOf(const OperatorDef& def,
                                                const std::vector<GradientValue>& g_output) {
  auto reserve = [&](const std::string& name) {
    if (!name.empty() && !IsGradient(name)) Reserve(name);
  };
  for (const std::string& name : def.inputs()) reserve(name);
  for (const std::string& name : def.outputs()) reserve(name);
  for (const GradientValue& value : g_output)
    for (const std::string* name : {&value.dense, &value.indices, &value.values}) reserve(*name);
}
OPKIT_INLINE const std::string& GradientNames::Of(const std::string& value) {
  Table::Row& row = table_->rows[value];
  if (!row.gradient) row.gradient = &table_->rows.try_emplace(Fresh(value)).first->first;
  return *row.gradient;
}
OPKIT_INLINE std::string GradientNames::Fresh(const std::string& value, const std::string& suffix) {
  std::string name = value + suffix;
  int& next = table_->rows[name].next;
  while (table_->rows[name].next != 0) name = StrCat(value, suffix, "_", next++);
  Table::Row& row = table_->rows[name];
  row.next = 1;
  row.value = &table_->rows.try_emplace(value).first->first;
  return name;
}
OPKIT_INLINE const std::string* GradientNames::ValueOf(const std::string& name) const {
  const auto it = table_->rows.find(name);
  return it == table_->rows.end() ? nullptr : it->second.value;
}

OPKIT_INLINE GradientMakerBase::GradientMakerBase(const OperatorDef& def,
                                                  std::vector<GradientValue> g_output)
    : def_(def), g_output_(std::move(g_output)), g_input_(def.inputs().size()) {}
OPKIT_INLINE GradientMakerBase::~GradientMakerBase() = default;
OPKIT_INLINE std::vector<OperatorDef> GradientMakerBase::GetGradientDefs() {
  Throw(ErrorCode::kUnsupported, "the gradient maker of operator ", def_.type(),
        " must override GetGradientDefs() or Get()");
}
OPKIT_INLINE GradientOpsMeta GradientMakerBase::Get() {
  return {GetGradientDefs(), g_input_};  // in this order: GetGradientDefs fills g_input_
}

OPKIT_INLINE const std::string& GradientMakerBase::GI(int i) {
  std::string& name = Gradient(i, false).dense;
  if (!name.empty()) return name;
  const auto here = def_.inputs().begin() + i;
  const bool repeated = std::find(def_.inputs().begin(), here, *here) != here;
  if (!repeated) name = Names().Of(*here);
  // For an operator in place, the value's gradient may be the output gradient itself.
  if (repeated || std::ranges::count(g_output_, name, &GradientValue::dense) > 0)
    name = Names().Fresh(*here);
  return name;
}
OPKIT_INLINE std::string GradientMakerBase::Temporary(const std::string& hint) {
  return Names().Fresh(def_.outputs().empty() ? def_.type() : def_.outputs()[0], "_grad_" + hint);
}
OPKIT_INLINE GradientNames& GradientMakerBase::Names() {
  if (!names_) {
    names_ = &own_names_;
    names_->ReserveNamesOf(def_, g_output_);
  }
  return *names_;
}

OPKIT_INLINE size_t GradientMakerBase::Check(int i, size_t count, const char* what) const {
  if (i < 0 || detail::Index(i) >= count)
    Throw(ErrorCode::kOutOfRange, "the gradient maker of ", def_, " asks for ", what, " ", i,
          " of ", count);
  return detail::Index(i);
}
OPKIT_INLINE const GradientValue& GradientMakerBase::Given(int i, bool sparse) const {
  const GradientValue& value = GradOut(i);
  if (sparse ? value.IsSparse() : value.IsDense()) return value;
  Throw(ErrorCode::kInvalidArgument, "the gradient maker of ", def_, " needs a ",
        sparse ? "sparse" : "dense", " gradient of output ", i, " '", O(i), "', but ",
        value.IsEmpty() ? "none was given" : "was given " + ToString(value));
}
OPKIT_INLINE GradientValue& GradientMakerBase::Gradient(int i, bool sparse) {
  GradientValue& value = g_input_[Check(i, g_input_.size(), "input")];
  if (sparse ? value.IsDense() : value.IsSparse())
    Throw(ErrorCode::kInvalidArgument, "the gradient maker of ", def_,
          " makes the gradient of input ", i, " '", I(i), "' both dense and sparse");
  return value;
}
OPKIT_INLINE const std::string& GradientMakerBase::Slices(int i, std::string GradientValue::*part,
                                                          const char* suffix) {
  std::string& name = Gradient(i, true).*part;
  if (name.empty()) name = Names().Fresh(I(i), suffix);
  return name;
}

}}  // namespace opkit

#endif  // OPKIT_OP_GRADIENT_IMPL_GRADIENT_MAKER_IPP_
