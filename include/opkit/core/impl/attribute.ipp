// The definitions of opkit/core/attribute.hpp.
#ifndef OPKIT_CORE_IMPL_ATTRIBUTE_IPP_
#define OPKIT_CORE_IMPL_ATTRIBUTE_IPP_

#include <algorithm>

#include "opkit/core/attribute.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE const char* ToString(AttributeType type) {
  constexpr const char* kNames[] = {"int",  "float",  "bool",  "string",  "tensor",
                                    "ints", "floats", "bools", "strings", "tensors"};
  return kNames[static_cast<int>(type)];
}

OPKIT_INLINE void Attribute::WrongType(AttributeType wanted) const {
  Throw(ErrorCode::kTypeMismatch, "is ", type_, " (", Print(), "), but is read as ", wanted);
}

OPKIT_INLINE std::string Attribute::Print() const {
  std::string out;
  auto add = [&](const detail::Text& value) { out += StrCat(out.empty() ? "" : ", ", value); };
  const bool bools = type_ == AttributeType::kBool || type_ == AttributeType::kBools;
  for (int64_t value : values_->ints) add(bools ? detail::Text(value != 0) : detail::Text(value));
  for (double value : values_->floats) add(value);
  for (const std::string& value : values_->strings) add("\"" + value + "\"");
  for (const Tensor& value : values_->tensors) add(value);
  return is_list() ? "[" + out + "]" : out;
}

OPKIT_INLINE bool Attribute::SameTensor(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape() || a.device() != b.device()) return false;
  if (a.raw_data() == b.raw_data() && a.strides() == b.strides()) return true;
  if (!IsHostAccessible(a.device().type) || !a.initialized() || !b.initialized()) return false;
  const Tensor x = a.is_dense() ? a : a.Contiguous(), y = b.is_dense() ? b : b.Contiguous();
  if (a.dtype() == DType::kString) return x.ToVector<std::string>() == y.ToVector<std::string>();
  if (IsObject(a.dtype())) {
    const auto elements = [](const Tensor& tensor) {
      return static_cast<const Tensor*>(tensor.raw_data());
    };
    return std::equal(elements(x), elements(x) + x.numel(), elements(y), &SameTensor);
  }
  return x.nbytes() == 0 ||
         std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

OPKIT_INLINE Arguments::Arguments(std::initializer_list<detail::NamedAttribute> list) {
  for (const detail::NamedAttribute& item : list) {
    if (Has(item.name))
      Throw(ErrorCode::kInvalidArgument, "argument '", item.name, "' is given twice, as ",
            ToString(*Find(item.name)), " and as ", ToString(item.value));
    items_.push_back(item);
  }
}

OPKIT_INLINE void Arguments::Set(std::string name, Attribute value) {
  for (detail::NamedAttribute& item : items_)
    if (item.name == name) {
      item.value = std::move(value);
      return;
    }
  items_.push_back({std::move(name), std::move(value)});
}

OPKIT_INLINE bool Arguments::Remove(std::string_view name) {
  return std::erase_if(items_,
                       [&](const detail::NamedAttribute& item) { return item.name == name; }) > 0;
}

OPKIT_INLINE const Attribute* Arguments::Find(std::string_view name) const {
  for (const detail::NamedAttribute& item : items_)
    if (item.name == name) return &item.value;
  return nullptr;
}

OPKIT_INLINE std::vector<std::string> Arguments::Names() const {
  std::vector<std::string> names;
  for (const detail::NamedAttribute& item : items_) names.push_back(item.name);
  return names;
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_ATTRIBUTE_IPP_
