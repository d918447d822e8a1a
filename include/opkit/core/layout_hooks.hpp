// Hooks into the registry of layouts, for code that exchanges layouts with another image. A program
// that registers no layout does not need the registry.
#ifndef OPKIT_CORE_LAYOUT_HOOKS_HPP_
#define OPKIT_CORE_LAYOUT_HOOKS_HPP_

#include "opkit/core/layout.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A layout other than the standard one.
struct RegisteredLayout {
  LayoutId id;
  std::string name;
  bool has_descriptors;
  double ns_per_byte;
};
// A direct converter between two layouts, neither of which is the standard layout.
struct LayoutPair {
  LayoutId from, to;
  double ns_per_byte;
};
// Functions of core/layout_registry.hpp. The hooks are empty until the registry is used; until then
// only the standard layout is registered.
OPKIT_IMAGE_LOCAL inline constinit Hook<std::vector<RegisteredLayout>()> g_registered_layouts{
    kOtherLayout, kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<std::vector<LayoutPair>()> g_direct_converters{
    kOtherLayout, kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<LayoutId(std::string_view)> g_find_layout{kOtherLayout,
                                                                                  kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<bool(LayoutId)> g_is_registered_layout{kOtherLayout,
                                                                               kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<const char*(LayoutId)> g_layout_name_pointer{kOtherLayout,
                                                                                     kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<int64_t(const Layout&, const Shape&, DType)> g_layout_bytes{
    kOtherLayout, kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<void(const Tensor&, Tensor&)> g_convert_directly{
    kOtherLayout, kLayoutHeader};
OPKIT_IMAGE_LOCAL inline constinit Hook<void()> g_delete_layout_registry{kOtherLayout,
                                                                         kLayoutHeader};

}}}  // namespace opkit::detail

#endif  // OPKIT_CORE_LAYOUT_HOOKS_HPP_
