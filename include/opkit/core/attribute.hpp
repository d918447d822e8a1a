// Attribute: one typed constant of an operator; Arguments: an operator's named attributes. Types
// are strict, so that a wrong type is an Error when the operator is built.
#ifndef OPKIT_CORE_ATTRIBUTE_HPP_
#define OPKIT_CORE_ATTRIBUTE_HPP_

#include <initializer_list>

#include "opkit/base/suggest.hpp"
#include "opkit/core/tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The number of a list type is that of its element type plus five.
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

const char* ToString(AttributeType type);

namespace detail {

// The type that an element is stored as: int64, double, bool, string or Tensor; void for any other
// type.
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
    std::is_same_v<StoredAttribute<T>, int64_t>       ? AttributeType::kInt
    : std::is_same_v<StoredAttribute<T>, double>      ? AttributeType::kFloat
    : std::is_same_v<StoredAttribute<T>, bool>        ? AttributeType::kBool
    : std::is_same_v<StoredAttribute<T>, std::string> ? AttributeType::kString
                                                      : AttributeType::kTensor;

// Types of the values that an attribute, or one element of its list, accepts and returns.
template <class T>
concept AttributeElement = !std::is_void_v<StoredAttribute<std::remove_cvref_t<T>>>;

}  // namespace detail

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
  Attribute() : Attribute(int64_t{0}) {}
  template <detail::AttributeElement T>
  Attribute(const T& value) : type_(kAttributeTypeOf<T>) {
    Add(value);
  }
  Attribute(const char* value) : Attribute(std::string(value)) {}
  template <detail::AttributeElement T>
  Attribute(const std::vector<T>& values) : type_(kAttributeTypeOf<std::vector<T>>) {
    for (const auto& value : values) Add<T>(value);
  }
  template <detail::AttributeElement T>
  Attribute(std::initializer_list<T> values) : type_(kAttributeTypeOf<std::vector<T>>) {
    for (const auto& value : values) Add<T>(value);
  }

  // The stored elements. A single value is a list of one, and bools are stored as integers. Only
  // the list that belongs to the type has elements.
  struct Values : detail::RefCounted {
    std::vector<int64_t> ints;
    std::vector<double> floats;
    std::vector<std::string> strings;
    std::vector<Tensor> tensors;
  };
  Attribute(AttributeType type, detail::IntrusivePtr<Values> values)
      : type_(type), values_(std::move(values)) {}
  const Values& values() const { return *values_; }

  // A move is a copy too: copies share the value, which never changes.
  Attribute(const Attribute&) = default;
  Attribute& operator=(const Attribute&) = default;

  AttributeType type() const { return type_; }
  bool is_list() const { return type_ >= AttributeType::kInts; }
  // Returns the number of elements of a list; 1 for a single value.
  size_t size() const {
    const Values& all = *values_;
    return all.ints.size() + all.floats.size() + all.strings.size() + all.tensors.size();
  }

  // True if the attribute has the type of T: an element type or a vector of one.
  template <class T>
  bool Is() const {
    return type_ == kAttributeTypeOf<T>;
  }
  // True if Get can return this type. Integers read as floating-point numbers too, and an empty
  // list as a list of any type.
  bool ReadsAs(AttributeType wanted) const {
    return type_ == wanted || (is_list() && size() == 0 && wanted >= AttributeType::kInts) ||
           (type_ == AttributeType::kInt && wanted == AttributeType::kFloat) ||
           (type_ == AttributeType::kInts && wanted == AttributeType::kFloats);
  }
  // Returns the value as T. Errors: kTypeMismatch for a type that the attribute cannot be read as;
  // kOutOfRange for an integer that T cannot hold exactly.
  template <class T>
  T Get() const {
    if (!ReadsAs(kAttributeTypeOf<T>)) WrongType(kAttributeTypeOf<T>);
    const bool ints = type_ == AttributeType::kInt || type_ == AttributeType::kInts;
    if constexpr (detail::AttributeElement<T>) {
      if constexpr (std::is_floating_point_v<T>)
        if (ints) return Load<T>(values_->ints[0]);
      return Load<T>(List<T>()[0]);
    } else {
      using Item = typename T::value_type;
      static_assert(detail::AttributeElement<Item>,
                    "an attribute is an integer, bool, floating-point "
                    "number, string, Tensor, or a std::vector of one of these");
      T out;
      if constexpr (std::is_floating_point_v<Item>)
        if (ints)
          for (int64_t stored : values_->ints) out.push_back(Load<Item>(stored));
      for (const auto& stored : List<Item>()) out.push_back(Load<Item>(stored));
      return out;
    }
  }

  friend std::string ToString(const Attribute& attribute) { return attribute.Print(); }
  // Tensors are compared by dtype, shape, device and bytes.
  OPKIT_COLD friend bool operator==(const Attribute& a, const Attribute& b) {
    const Values &x = *a.values_, &y = *b.values_;
    if (a.type_ != b.type_ || x.ints != y.ints || x.floats != y.floats || x.strings != y.strings ||
        x.tensors.size() != y.tensors.size())
      return false;
    for (size_t i = 0; i < x.tensors.size(); ++i)
      if (!SameTensor(x.tensors[i], y.tensors[i])) return false;
    return true;
  }

 private:
  template <class T>
  auto& List() {
    using Stored = detail::StoredAttribute<T>;
    if constexpr (std::is_same_v<Stored, double>)
      return values_->floats;
    else if constexpr (std::is_same_v<Stored, std::string>)
      return values_->strings;
    else if constexpr (std::is_same_v<Stored, Tensor>)
      return values_->tensors;
    else
      return values_->ints;
  }
  template <class T>
  const auto& List() const {
    return const_cast<Attribute*>(this)->List<T>();
  }
  template <class T>
  void Add(const T& value) {
    if constexpr (std::is_integral_v<T>)
      if (static_cast<int64_t>(value) < 0 && value > 0)
        Throw(ErrorCode::kOutOfRange, "attribute value ", value, " does not fit in int64");
    using Stored = typename std::remove_cvref_t<decltype(List<T>())>::value_type;
    List<T>().push_back(static_cast<Stored>(value));
  }
  template <class T, class Stored>
  static T Load(const Stored& stored) {
    if constexpr (std::is_floating_point_v<T> && std::is_integral_v<Stored>) {
      constexpr int kDigits = sizeof(T) == sizeof(float) ? 24 : 53;
      if (stored > int64_t{1} << kDigits || stored < -(int64_t{1} << kDigits))
        Throw(ErrorCode::kOutOfRange, "value ", stored, " is not sure to be exact as the ",
              sizeof(T) * 8, "-bit floating-point number asked for");
    }
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (static_cast<Stored>(static_cast<T>(stored)) != stored ||
          (stored < 0) != (static_cast<T>(stored) < T{}))
        Throw(ErrorCode::kOutOfRange, "value ", stored, " does not fit in the ", sizeof(T) * 8,
              std::is_signed_v<T> ? "-bit signed" : "-bit unsigned", " integer asked for");
    }
    return static_cast<T>(stored);
  }
  [[noreturn]] OPKIT_COLD void WrongType(AttributeType wanted) const;
  OPKIT_COLD std::string Print() const;
  OPKIT_COLD static bool SameTensor(const Tensor& a, const Tensor& b);

  AttributeType type_;
  detail::IntrusivePtr<Values> values_{new Values};
};

namespace detail {

struct NamedAttribute {
  std::string name;
  Attribute value;
  friend bool operator==(const NamedAttribute&, const NamedAttribute&) = default;
};

}  // namespace detail

// Named attributes in the order they were set. A list, not a map: an operator has few attributes,
// and reads them when it is built, never while it runs.
class Arguments {
 public:
  Arguments() = default;
  // Error (kInvalidArgument) for a name that is given twice.
  Arguments(std::initializer_list<detail::NamedAttribute> list);

  // Adds, or replaces the attribute of that name.
  void Set(std::string name, Attribute value);
  bool Remove(std::string_view name);
  // Returns null if no attribute has the name.
  const Attribute* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name); }

  // Returns the attribute as T, or `fallback` if there is none. A stored value of another type is
  // an Error (kTypeMismatch) that names the argument.
  template <class T>
  T Get(std::string_view name, T fallback) const {
    const Attribute* found = Find(name);
    return found ? Read<T>(name, *found) : fallback;
  }
  // Returns the attribute as T. Errors: kTypeMismatch, with the argument's name, for a stored value
  // of another type; kNotFound if there is none.
  template <class T>
  T Get(std::string_view name) const {
    const Attribute* found = Find(name);
    if (!found) Throw(ErrorCode::kNotFound, "no argument '", name, "'", SuggestName(name, Names()));
    return Read<T>(name, *found);
  }

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  std::vector<std::string> Names() const;
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
  std::vector<detail::NamedAttribute> items_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/core/impl/attribute.ipp"
#endif

#endif  // OPKIT_CORE_ATTRIBUTE_HPP_
