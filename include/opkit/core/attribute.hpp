// Attribute: one typed constant of an operator; Arguments: an operator's named attributes. Types
// are strict, so a wrong one is found when the operator is built, not when it computes nonsense.
#ifndef OPKIT_CORE_ATTRIBUTE_HPP_
#define OPKIT_CORE_ATTRIBUTE_HPP_

#include <initializer_list>
#include <utility>
#include <variant>

#include "opkit/base/suggest.hpp"
#include "opkit/core/tensor.hpp"

namespace opkit::inline OPKIT_ABI {

// In the order of Attribute's alternatives.
enum class AttributeType : uint8_t {
  kInt,
  kFloat,
  kBool,
  kString,
  kTensor,
  kInts,
  kFloats,
  kBools,
  kStrings,
  kTensors,
};

inline const char* ToString(AttributeType type) {
  constexpr const char* kNames[] = {"int",  "float",  "bool",  "string",  "tensor",
                                    "ints", "floats", "bools", "strings", "tensors"};
  return kNames[static_cast<int>(type)];
}

namespace detail {

// The type an element is kept as: int64, double, bool, string or Tensor; void for any other type.
template <class T>
using StoredAttribute = std::conditional_t<
    std::is_same_v<T, bool>, bool,
    std::conditional_t<
        std::is_integral_v<T> || std::is_enum_v<T>, int64_t,
        std::conditional_t<
            std::is_floating_point_v<T>, double,
            std::conditional_t<std::is_same_v<T, Tensor>, Tensor,
                               std::conditional_t<std::is_convertible_v<T, std::string_view>,
                                                  std::string, void>>>>>;

template <class T>
constexpr AttributeType kAttributeElement =
    std::is_same_v<StoredAttribute<T>, int64_t>    ? AttributeType::kInt
    : std::is_same_v<StoredAttribute<T>, double>   ? AttributeType::kFloat
    : std::is_same_v<StoredAttribute<T>, bool>     ? AttributeType::kBool
    : std::is_same_v<StoredAttribute<T>, std::string> ? AttributeType::kString
                                                   : AttributeType::kTensor;

}  // namespace detail

// Types that an attribute (or one element of its list) can be given and read as.
template <class T>
concept AttributeElement = !std::is_void_v<detail::StoredAttribute<std::remove_cvref_t<T>>>;

// The AttributeType of a C++ type or of a vector of it.
template <class T>
inline constexpr AttributeType kAttributeTypeOf = detail::kAttributeElement<T>;
template <class T>
inline constexpr AttributeType kAttributeTypeOf<std::vector<T>> =
    static_cast<AttributeType>(static_cast<int>(detail::kAttributeElement<T>) + 5);

// A regular value: int64, double, bool, string, Tensor, or a list of one of these. Any integer,
// enumeration, floating-point and string type converts to it.
class Attribute {
 public:
  Attribute() : value_(int64_t{0}) {}
  template <AttributeElement T>
  Attribute(const T& value) : value_(Store(value)) {}
  Attribute(const char* value) : value_(std::string(value)) {}
  template <AttributeElement T>
  Attribute(const std::vector<T>& values) : value_(StoreList<T>(values)) {}
  template <AttributeElement T>
  Attribute(std::initializer_list<T> values) : value_(StoreList<T>(values)) {}

  AttributeType type() const { return static_cast<AttributeType>(value_.index()); }
  bool is_list() const { return type() >= AttributeType::kInts; }

  // True when Get<T>() can return: T is an element type or a vector of one.
  template <class T>
  bool Is() const {
    return type() == kAttributeTypeOf<T>;
  }
  // Errors: kTypeMismatch for another type, kOutOfRange for an integer that T cannot hold. An empty
  // list reads as a list of anything.
  template <class T>
  T Get() const {
    return Reader<T>::Read(*this);
  }

  friend std::string ToString(const Attribute& attribute) {
    return std::visit([](const auto& value) { return Print(value); }, attribute.value_);
  }
  // Tensors are compared by type, shape and bytes.
  friend bool operator==(const Attribute& a, const Attribute& b) {
    if (a.value_.index() != b.value_.index()) return false;
    return std::visit(
        [&](const auto& value) {
          using T = std::remove_cvref_t<decltype(value)>;
          return Same(value, std::get<T>(b.value_));
        },
        a.value_);
  }

 private:
  using Value = std::variant<int64_t, double, bool, std::string, Tensor, std::vector<int64_t>,
                             std::vector<double>, std::vector<bool>, std::vector<std::string>,
                             std::vector<Tensor>>;

  template <class T>
  static detail::StoredAttribute<T> Store(const T& value) {
    using Stored = detail::StoredAttribute<T>;
    if constexpr (std::is_same_v<Stored, int64_t> && std::is_integral_v<T>) {
      if (!std::in_range<int64_t>(value))
        Throw(ErrorCode::kOutOfRange, "attribute value ", value, " does not fit in int64");
    }
    return static_cast<Stored>(value);
  }
  template <class T, class Range>
  static std::vector<detail::StoredAttribute<T>> StoreList(const Range& values) {
    std::vector<detail::StoredAttribute<T>> out;
    out.reserve(values.size());
    for (const auto& value : values) out.push_back(Store<T>(value));
    return out;
  }

  template <class T>
  static T Load(const detail::StoredAttribute<T>& stored) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (!std::in_range<T>(stored))
        Throw(ErrorCode::kOutOfRange, "value ", stored, " does not fit in the ", sizeof(T) * 8,
              std::is_signed_v<T> ? "-bit signed" : "-bit unsigned", " integer asked for");
    }
    return static_cast<T>(stored);
  }
  template <class T>
  struct Reader {
    static_assert(AttributeElement<T>, "an attribute is an integer, bool, floating-point number, "
                                       "string, Tensor, or a std::vector of one of these");
    static T Read(const Attribute& a) {
      const auto* stored = std::get_if<detail::StoredAttribute<T>>(&a.value_);
      if (!stored) a.WrongType(kAttributeTypeOf<T>);
      return Load<T>(*stored);
    }
  };
  template <class T>
  struct Reader<std::vector<T>> {
    static std::vector<T> Read(const Attribute& a) {
      const auto* stored = std::get_if<std::vector<detail::StoredAttribute<T>>>(&a.value_);
      std::vector<T> out;
      if (!stored && !a.IsEmptyList()) a.WrongType(kAttributeTypeOf<std::vector<T>>);
      if (stored)
        for (const auto& value : *stored) out.push_back(Load<T>(value));
      return out;
    }
  };

  bool IsEmptyList() const {
    return is_list() && std::visit(
                            [](const auto& value) {
                              if constexpr (requires { value.empty(); }) return value.empty();
                              else return false;
                            },
                            value_);
  }
  [[noreturn]] OPKIT_COLD void WrongType(AttributeType wanted) const {
    const bool write_float = type() == AttributeType::kInt && wanted == AttributeType::kFloat;
    Throw(ErrorCode::kTypeMismatch, "is ", type(), " (", ToString(*this), "), but is read as ", wanted,
          write_float ? StrCat("; write ", ToString(*this), ".0") : std::string());
  }

  template <class T>
  static std::string Print(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) return "\"" + value + "\"";
    else return StrCat(value);
  }
  template <class T>
  static bool Same(const T& a, const T& b) {
    return a == b;
  }
  static bool Same(const Tensor& a, const Tensor& b) {
    if (a.dtype() != b.dtype() || a.shape() != b.shape() || a.device() != b.device()) return false;
    if (a.raw_data() == b.raw_data() && a.strides() == b.strides()) return true;
    if (!IsHostAccessible(a.device().type) || !a.initialized() || !b.initialized()) return false;
    const Tensor x = a.is_dense() ? a : a.Contiguous(), y = b.is_dense() ? b : b.Contiguous();
    return x.nbytes() == 0 ||
           std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
  }
  static bool Same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
      if (!Same(a[i], b[i])) return false;
    return true;
  }

  Value value_;
};

struct NamedAttribute {
  std::string name;
  Attribute value;
  friend bool operator==(const NamedAttribute&, const NamedAttribute&) = default;
};

// Named attributes in the order they were set. A few at a time, read when an operator is built and
// never while it runs: a list beats a map.
class Arguments {
 public:
  Arguments() = default;
  Arguments(std::initializer_list<NamedAttribute> list) {
    for (const NamedAttribute& item : list) Set(item.name, item.value);
  }

  // Adds, or replaces the attribute of that name.
  void Set(std::string name, Attribute value) {
    for (NamedAttribute& item : items_)
      if (item.name == name) {
        item.value = std::move(value);
        return;
      }
    items_.push_back({std::move(name), std::move(value)});
  }
  bool Remove(std::string_view name) {
    for (size_t i = 0; i < items_.size(); ++i)
      if (items_[i].name == name) {
        items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(i));
        return true;
      }
    return false;
  }
  // Null when there is none.
  const Attribute* Find(std::string_view name) const {
    for (const NamedAttribute& item : items_)
      if (item.name == name) return &item.value;
    return nullptr;
  }
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // The attribute as T, or `fallback` when there is none. A stored value of another type is an
  // Error (kTypeMismatch) that names the argument.
  template <class T>
  T Get(std::string_view name, T fallback) const {
    const Attribute* found = Find(name);
    return found ? Read<T>(name, *found) : fallback;
  }
  // As above; an Error (kNotFound) when there is none.
  template <class T>
  T Get(std::string_view name) const {
    const Attribute* found = Find(name);
    if (!found)
      Throw(ErrorCode::kNotFound, "no argument '", name, "'", SuggestName(name, Names()));
    return Read<T>(name, *found);
  }

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const NamedAttribute& item : items_) names.push_back(item.name);
    return names;
  }
  friend bool operator==(const Arguments&, const Arguments&) = default;

 private:
  template <class T>
  static T Read(std::string_view name, const Attribute& attribute) {
    try {
      return attribute.Get<T>();
    } catch (const Error& error) {
      Throw(error.code(), "argument '", name, "': ", error.message());
    }
  }
  std::vector<NamedAttribute> items_;
};

}  // namespace opkit

#endif  // OPKIT_CORE_ATTRIBUTE_HPP_
