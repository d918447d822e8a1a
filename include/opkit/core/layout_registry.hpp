// The registry of the program's layouts: their names, the sizes of tensors in them, and the
// conversions between them. Lives in core/ so that both Invoke and plans use it.
#ifndef OPKIT_CORE_LAYOUT_REGISTRY_HPP_
#define OPKIT_CORE_LAYOUT_REGISTRY_HPP_

#include <optional>

#include "opkit/base/unique_function.hpp"
#include "opkit/core/layout_hooks.hpp"
#include "opkit/core/tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Writes the elements of `from` into the memory of `to`. The two differ in layout or descriptor;
// they have the same dtype and shape and no strides, and both are on the host. Called by several
// threads at once.
using LayoutConverter = UniqueFunction<void(const Tensor& from, Tensor& to)>;

// The parameters of RegisterLayout.
struct LayoutDefinition {
  std::string name;  // "NHWC"
  // The conversions to and from the standard layout. Both are required.
  LayoutConverter to_standard;
  LayoutConverter from_standard;
  // Returns the number of bytes of a tensor of this shape. If the function is empty, the size is
  // that of the standard layout. A layout with descriptors uses Layout::Descriptor::Bytes instead.
  // Called by several threads at once.
  UniqueFunction<int64_t(const Shape& shape, DType dtype)> bytes = {};
  // True if each tensor has a descriptor of its own. No conversion leads through such a layout.
  bool has_descriptors = false;
  // Returns the layout whose descriptor describes a tensor by this text (see
  // Layout::Descriptor::Describe); nullopt if the text does not say enough. Plans make the layouts
  // of a saved selection by it. Without the function they ask the kernels of the whole graph for
  // their layouts, which takes longer. Called by several threads at once.
  UniqueFunction<std::optional<Layout>(std::string_view text, const Shape& shape, DType dtype)>
      from_text = {};
  // The estimated time of a conversion, for each byte read or written.
  double ns_per_byte = 0.25;
};

// Registers a layout and returns its id. Ids differ from run to run, so files store layouts by
// name. Errors: kInvalidArgument without both conversions or a name; kAlreadyExists.
//
//   LayoutId Nhwc() {
//     static const LayoutId id = RegisterLayout(
//         {.name = "NHWC", .to_standard = &FromNhwc, .from_standard = &ToNhwc});
//     return id;
//   }
OPKIT_IMAGE_LOCAL LayoutId RegisterLayout(LayoutDefinition definition);
// Registers a direct conversion between two layouts. Useful if it costs less than the two
// conversions through the standard layout. Errors: kNotFound for a layout that is not registered;
// kAlreadyExists.
OPKIT_IMAGE_LOCAL void RegisterLayoutConverter(LayoutId from, LayoutId to, LayoutConverter convert,
                                               double ns_per_byte = 0.25);

// True if the id is registered. The standard layout is always registered, as "standard".
OPKIT_IMAGE_LOCAL bool IsRegisteredLayout(LayoutId id);
// Returns the id of a name. Error (kNotFound) with the nearest name.
OPKIT_IMAGE_LOCAL LayoutId FindLayout(std::string_view name);
// Returns the layout of a tensor of this shape whose ToString is `text`: "standard", "NHWC",
// "onednn aBcd16b". Returns nullopt for a name that is not registered, and for a descriptor that
// cannot be made from its text.
OPKIT_IMAGE_LOCAL std::optional<Layout> LayoutFromText(std::string_view text, const Shape& shape,
                                                       DType dtype);
// Returns the name of an id; "layout 7" if it is not registered.
OPKIT_IMAGE_LOCAL std::string LayoutName(LayoutId id);
// Returns the number of bytes of a tensor in the layout. Errors: kNotFound if the layout is not
// registered; kOutOfRange.
OPKIT_IMAGE_LOCAL int64_t LayoutBytes(const Layout& layout, const Shape& shape, DType dtype);

// A conversion from one layout to another: the layout after each step, of which the last is the
// target, and the estimated time. Without a conversion there are no steps and the time is 0 ns.
struct LayoutPath {
  std::vector<Layout> steps;
  double cost_ns = 0;
};

// Functions by which libraries exchange layouts with their host: see
// plugin/load/library_layouts.hpp.
namespace detail {
OPKIT_IMAGE_LOCAL std::vector<RegisteredLayout> RegisteredLayouts();
OPKIT_IMAGE_LOCAL std::vector<LayoutPair> DirectConverters();
// Returns the name, valid until the layout is removed; null for the standard layout and for an
// unregistered id.
OPKIT_IMAGE_LOCAL const char* LayoutNamePointer(LayoutId id);
// Converts with the direct converter of the two layouts. Error (kNotFound) without a direct
// converter.
OPKIT_IMAGE_LOCAL void ConvertDirectly(const Tensor& from, Tensor& to);
// Removes a layout and its converters, none of which may be running. The id is never used again;
// the name may be.
OPKIT_IMAGE_LOCAL void RemoveLayout(LayoutId id);
// Frees a library's layout registry before the library is unmapped; no call may follow.
OPKIT_IMAGE_LOCAL void DeleteLayoutRegistry();
}  // namespace detail

// Returns the cheapest path by the estimates of the converters. Error (kNotFound) if one of the two
// layouts is not registered.
OPKIT_IMAGE_LOCAL LayoutPath FindLayoutPath(const Layout& from, const Layout& to,
                                            const Shape& shape, DType dtype);

// Returns a tensor with new memory in the given layout. Errors: as for LayoutBytes; kOutOfMemory.
OPKIT_IMAGE_LOCAL Tensor MakeTensor(const Shape& shape, DType dtype, const Layout& layout,
                                    Device device = {});
// Returns the tensor in the given layout and descriptor, converted by the cheapest path; shares the
// memory if the two layouts are equal. Errors: kUninitialized; kNotFound; kUnsupported if the host
// cannot reach the memory.
OPKIT_IMAGE_LOCAL Tensor ConvertLayout(const Tensor& tensor, const Layout& layout);
// Writes the elements of `from` into `to`, which has memory and a layout, perhaps the same layout.
// Errors: those of ConvertLayout; kInvalidArgument if the two differ in dtype or shape.
OPKIT_IMAGE_LOCAL void ConvertLayoutTo(const Tensor& from, Tensor& to);

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/core/impl/layout_registry.ipp"
#endif

#endif  // OPKIT_CORE_LAYOUT_REGISTRY_HPP_
