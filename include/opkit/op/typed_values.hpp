// The parameters of a typed operator: In, OptionalIn, Out and Attr. Each carries its name in its
// type; each is trivially copied into a kernel's lambda, on any device.
#ifndef OPKIT_OP_TYPED_VALUES_HPP_
#define OPKIT_OP_TYPED_VALUES_HPP_

#include "opkit/base/fixed_name.hpp"
#include "opkit/core/attribute.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A dense tensor as a kernel sees it: a pointer and the extents, row-major.
template <class T>
class TypedView {
 public:
  static constexpr int kMaxRank = 8;

  TypedView() = default;
  TypedView(T* data, const Shape& shape)
      : data_(data), size_(shape.numel()), rank_(shape.rank()) {
    if (rank_ > kMaxRank)
      Throw(ErrorCode::kUnsupported, "typed operators take tensors of rank 0 to ", int{kMaxRank},
            ", found ", ToString(shape));
    for (int i = 0; i < rank_; ++i) dims_[i] = shape[i];
  }

  OPKIT_HOST_DEVICE T* data() const { return data_; }
  OPKIT_HOST_DEVICE int64_t size() const { return size_; }
  OPKIT_HOST_DEVICE int rank() const { return rank_; }
  OPKIT_HOST_DEVICE int64_t dim(int axis) const { return dims_[axis < 0 ? axis + rank_ : axis]; }
  // Element i in row-major order, unchecked.
  OPKIT_HOST_DEVICE T& operator[](int64_t i) const { return data_[i]; }
  OPKIT_HOST_DEVICE T* begin() const { return data_; }
  OPKIT_HOST_DEVICE T* end() const { return data_ + size_; }
  Shape shape() const { return Shape(std::span<const int64_t>(dims_, static_cast<size_t>(rank_))); }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
  int64_t dims_[kMaxRank] = {};
  int rank_ = 0;
};

}  // namespace detail

// An input tensor of elements T. A strided one arrives as a dense copy.
template <FixedName Name, Element T>
class In : public detail::TypedView<const T> {
 public:
  static constexpr FixedName kName = Name;
  using value_type = T;
  using detail::TypedView<const T>::TypedView;
};

// An input that a node may leave out.
template <FixedName Name, Element T>
class OptionalIn : public In<Name, T> {
 public:
  using In<Name, T>::In;
  OPKIT_HOST_DEVICE explicit operator bool() const { return present_; }
  void set_present() { present_ = true; }

 private:
  bool present_ = false;
};

// An output tensor, allocated before the function is called, by the operator's shape rule.
template <FixedName Name, Element T>
class Out : public detail::TypedView<T> {
 public:
  static constexpr FixedName kName = Name;
  using value_type = T;
  using detail::TypedView<T>::TypedView;
};

// An attribute: an integer, floating-point number, bool, std::string, or a std::vector of one of
// these. Converts to T. Required unless the operator gives it a default.
template <FixedName Name, class T>
class Attr {
 public:
  static constexpr FixedName kName = Name;
  using value_type = T;
  Attr() = default;
  explicit Attr(T value) : value_(std::move(value)) {}
  OPKIT_HOST_DEVICE const T& value() const { return value_; }
  OPKIT_HOST_DEVICE operator const T&() const { return value_; }

 private:
  T value_{};
};

namespace detail {

enum class ParameterKind { kIn, kOptionalIn, kOut, kAttr, kUnknown };

template <class P>
struct ParameterTraits {
  static constexpr ParameterKind kKind = ParameterKind::kUnknown;
};
template <FixedName Name, class T>
struct ParameterTraits<In<Name, T>> {
  static constexpr ParameterKind kKind = ParameterKind::kIn;
  static constexpr FixedName kName = Name;
  using Value = T;
};
template <FixedName Name, class T>
struct ParameterTraits<OptionalIn<Name, T>> {
  static constexpr ParameterKind kKind = ParameterKind::kOptionalIn;
  static constexpr FixedName kName = Name;
  using Value = T;
};
template <FixedName Name, class T>
struct ParameterTraits<Out<Name, T>> {
  static constexpr ParameterKind kKind = ParameterKind::kOut;
  static constexpr FixedName kName = Name;
  using Value = T;
};
template <FixedName Name, class T>
struct ParameterTraits<Attr<Name, T>> {
  static constexpr ParameterKind kKind = ParameterKind::kAttr;
  static constexpr FixedName kName = Name;
  using Value = T;
};

constexpr bool IsInput(ParameterKind kind) {
  return kind == ParameterKind::kIn || kind == ParameterKind::kOptionalIn;
}

// What a function's type says: void or bool (Context&, parameters…).
template <class F>
struct TypedSignature {
  static constexpr bool kValid = false;
};
template <class R, class C, class... P>
struct TypedSignature<R (*)(C&, P...)> {
  static constexpr bool kValid = true;
  using Return = R;
  using Context = C;
  static constexpr size_t kCount = sizeof...(P);
  template <size_t I>
  using Parameter = std::remove_cvref_t<std::tuple_element_t<I, std::tuple<P...>>>;
  template <template <class> class Wrap>
  using Values = std::tuple<Wrap<std::remove_cvref_t<P>>...>;

  static constexpr bool kParametersKnown =
      ((ParameterTraits<std::remove_cvref_t<P>>::kKind != ParameterKind::kUnknown) && ...);

  // Place of parameter I among those of its own kind (inputs, outputs or attributes).
  template <size_t I>
  static constexpr int Place() {
    const bool inputs = IsInput(ParameterTraits<Parameter<I>>::kKind);
    int place = 0;
    [&]<size_t... J>(std::index_sequence<J...>) {
      ((place += inputs ? IsInput(ParameterTraits<Parameter<J>>::kKind)
                        : ParameterTraits<Parameter<J>>::kKind ==
                              ParameterTraits<Parameter<I>>::kKind),
       ...);
    }(std::make_index_sequence<I>{});
    return place;
  }
  // Place of the input (output, attribute) of that name, or -1.
  template <FixedName Name>
  static constexpr int Find(bool (*of_kind)(ParameterKind)) {
    int found = -1;
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((of_kind(ParameterTraits<Parameter<I>>::kKind) && ParameterTraits<Parameter<I>>::kName == Name
            ? void(found = Place<I>())
            : void()),
       ...);
    }(std::make_index_sequence<kCount>{});
    return found;
  }
  static constexpr bool NamesDiffer() {
    bool differ = true;
    [&]<size_t... I>(std::index_sequence<I...>) {
      const FixedName names[] = {FixedName("-"), ParameterTraits<Parameter<I>>::kName...};
      const bool outs[] = {false, ParameterTraits<Parameter<I>>::kKind == ParameterKind::kOut...};
      for (size_t a = 0; a <= kCount; ++a)
        for (size_t b = 0; b < a; ++b) differ &= !(names[a] == names[b] && outs[a] == outs[b]);
    }(std::make_index_sequence<kCount>{});
    return differ;
  }
};

constexpr bool KindIsInput(ParameterKind kind) { return IsInput(kind); }
constexpr bool KindIsOut(ParameterKind kind) { return kind == ParameterKind::kOut; }
constexpr bool KindIsAttr(ParameterKind kind) { return kind == ParameterKind::kAttr; }

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_TYPED_VALUES_HPP_
