// Hooks into the registry of layouts, for code that hands layouts to another image or takes them
// from it: where nothing registers a layout, that code does without the registry.
#ifndef OPKIT_CORE_LAYOUT_HOOKS_HPP_
#define OPKIT_CORE_LAYOUT_HOOKS_HPP_

#include "opkit/core/layout.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// All layouts but the standard one, and the direct converters between two of them.
struct RegisteredLayout {
  LayoutId id;
  std::string name;
  bool has_descriptors;
  double ns_per_byte;
};
struct LayoutPair {
  LayoutId from, to;
  double ns_per_byte;
};
// Functions of core/layout_registry.hpp. They are empty while the registry has not been used: then
// nothing but the standard layout is registered.
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

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_CORE_LAYOUT_HOOKS_HPP_
