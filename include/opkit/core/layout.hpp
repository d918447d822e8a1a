// Layout: how a tensor's elements are ordered in memory. STANDARD is row-major (or described by the
// strides); any other id is one that RegisterLayout gave (core/layout_registry.hpp), and its
// immutable descriptor, where it has one, says which blocking was chosen.
#ifndef OPKIT_CORE_LAYOUT_HPP_
#define OPKIT_CORE_LAYOUT_HPP_

#include <atomic>

#include "opkit/base/ref_counted.hpp"
#include "opkit/base/strings.hpp"

namespace opkit::inline OPKIT_ABI {

using LayoutId = uint16_t;
inline constexpr LayoutId kStandardLayout = 0;
class Shape;
enum class DType : uint8_t;

// Base of a backend's own description of a blocked layout. Immutable once shared.
class LayoutDescriptor : public detail::RefCounted {
 public:
  virtual bool Equals(const LayoutDescriptor& other) const = 0;
  virtual std::string Describe() const = 0;
  // Bytes that the elements of this shape take; negative: as many as in the standard layout.
  virtual int64_t Bytes(const Shape& shape, DType dtype) const {
    return static_cast<void>(shape), static_cast<void>(dtype), -1;
  }
};

namespace detail {
// The name of a registered layout, empty for others; null while none is registered. Relaxed: it
// needs nothing that was written before.
OPKIT_IMAGE_LOCAL inline constinit std::atomic<std::string (*)(LayoutId)> g_layout_name{nullptr};
}  // namespace detail

struct Layout {
  LayoutId id = kStandardLayout;
  detail::IntrusivePtr<const LayoutDescriptor> descriptor;

  bool is_standard() const { return id == kStandardLayout; }
  friend bool operator==(const Layout& a, const Layout& b) {
    if (a.id != b.id) return false;
    if (a.descriptor == b.descriptor) return true;
    return a.descriptor && b.descriptor && a.descriptor->Equals(*b.descriptor);
  }
  // The name and what the descriptor says: "nChw8c 16 channels".
  friend std::string ToString(const Layout& layout) {
    if (layout.is_standard()) return "standard";
    const auto name_of = detail::g_layout_name.load(std::memory_order_relaxed);
    std::string name = name_of ? name_of(layout.id) : std::string();
    if (name.empty()) name = StrCat("layout ", layout.id);
    return layout.descriptor ? StrCat(name, " ", layout.descriptor->Describe()) : name;
  }
};

}  // namespace opkit

#endif  // OPKIT_CORE_LAYOUT_HPP_
