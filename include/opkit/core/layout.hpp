// Layout: how a tensor's elements are ordered in memory. STANDARD is row-major (or described by the
// strides); any other id belongs to a backend, and its immutable descriptor says which blocking was
// chosen. There is no registry of ids or of converters: only the backend that made a tensor of
// another layout understands it.
#ifndef OPKIT_CORE_LAYOUT_HPP_
#define OPKIT_CORE_LAYOUT_HPP_

#include "opkit/base/ref_counted.hpp"
#include "opkit/base/strings.hpp"

namespace opkit::inline OPKIT_ABI {

using LayoutId = uint16_t;
inline constexpr LayoutId kStandardLayout = 0;

// Base of a backend's own description of a blocked layout. Immutable once shared.
class LayoutDescriptor : public detail::RefCounted {
 public:
  virtual bool Equals(const LayoutDescriptor& other) const = 0;
  virtual std::string Describe() const = 0;
};

struct Layout {
  LayoutId id = kStandardLayout;
  detail::IntrusivePtr<const LayoutDescriptor> descriptor;

  bool is_standard() const { return id == kStandardLayout; }
  friend bool operator==(const Layout& a, const Layout& b) {
    if (a.id != b.id) return false;
    if (a.descriptor == b.descriptor) return true;
    return a.descriptor && b.descriptor && a.descriptor->Equals(*b.descriptor);
  }
  friend std::string ToString(const Layout& layout) {
    if (layout.is_standard()) return "standard";
    return StrCat("layout ", layout.id,
                  layout.descriptor ? " " + layout.descriptor->Describe() : std::string());
  }
};

}  // namespace opkit

#endif  // OPKIT_CORE_LAYOUT_HPP_
