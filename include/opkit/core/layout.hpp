// Layout: the order of a tensor's elements in memory. The standard layout, id 0, is row-major or
// follows the strides. RegisterLayout (core/layout_registry.hpp) returns all other ids. An optional
// immutable descriptor describes the chosen blocking.
#ifndef OPKIT_CORE_LAYOUT_HPP_
#define OPKIT_CORE_LAYOUT_HPP_

#include "opkit/base/hook.hpp"
#include "opkit/base/ref_counted.hpp"
#include "opkit/base/strings.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

using LayoutId = uint16_t;
inline constexpr LayoutId kStandardLayout = 0;
class Shape;
class Tensor;
struct Device;
enum class DType : uint8_t;
struct Layout;

namespace detail {
// Returns the name of a registered layout, an empty string for others. The hook is empty until a
// layout is registered.
OPKIT_IMAGE_LOCAL inline constinit Hook<std::string(LayoutId)> g_layout_name{
    "the name of a layout", "opkit/core/layout_registry.hpp"};
// Hooks for ConvertLayout, ConvertLayoutTo and MakeTensor of core/layout_registry.hpp. Callers of
// the hooks do not include the registry, because only a program that registers a layout needs it.
inline constexpr const char* kOtherLayout = "a tensor in another layout than the standard one";
inline constexpr const char* kLayoutHeader = "opkit/core/layout_registry.hpp";
OPKIT_IMAGE_LOCAL inline constinit Hook<Tensor(const Tensor&, const Layout&)> g_convert_layout{
    kOtherLayout, kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<void(const Tensor&, Tensor&)> g_convert_layout_to{
    kOtherLayout, kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<Tensor(const Shape&, DType, const Layout&, Device)>
    g_make_tensor{kOtherLayout, kLayoutHeader};
}  // namespace detail

struct Layout {
  // Base of a backend's own description of a blocked layout. Immutable once shared.
  class Descriptor : public detail::RefCounted {
   public:
    virtual bool Equals(const Descriptor& other) const = 0;
    virtual std::string Describe() const = 0;
    // Returns the number of bytes of a tensor of this shape. A negative number means the size of
    // the standard layout.
    virtual int64_t Bytes(const Shape& shape, DType dtype) const {
      return static_cast<void>(shape), static_cast<void>(dtype), -1;
    }
  };

  LayoutId id = kStandardLayout;
  detail::IntrusivePtr<const Descriptor> descriptor;

  bool is_standard() const { return id == kStandardLayout; }
  friend bool operator==(const Layout& a, const Layout& b) {
    if (a.id != b.id) return false;
    if (a.descriptor == b.descriptor) return true;
    return a.descriptor && b.descriptor && a.descriptor->Equals(*b.descriptor);
  }
  // Returns the name and the descriptor's text: "nChw8c 16 channels".
  friend std::string ToString(const Layout& layout) {
    if (layout.is_standard()) return "standard";
    std::string name = detail::g_layout_name ? detail::g_layout_name(layout.id) : std::string();
    if (name.empty()) name = StrCat("layout ", layout.id);
    return layout.descriptor ? StrCat(name, " ", layout.descriptor->Describe()) : name;
  }
};

}}  // namespace opkit

#endif  // OPKIT_CORE_LAYOUT_HPP_
