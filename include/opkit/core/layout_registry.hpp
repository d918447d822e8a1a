// The layouts of the program besides the standard one: their names, what a tensor takes in them,
// and how elements get from one to another. Below operators, so that Invoke converts as plans do.
#ifndef OPKIT_CORE_LAYOUT_REGISTRY_HPP_
#define OPKIT_CORE_LAYOUT_REGISTRY_HPP_

#include "opkit/base/unique_function.hpp"
#include "opkit/core/layout_hooks.hpp"
#include "opkit/core/tensor.hpp"

namespace opkit::inline OPKIT_ABI {

// Writes the elements of `from` to `to`: another layout, the same dtype and shape, memory for it,
// neither strided. Both are on the host. Called by several threads at once.
using LayoutConverter = UniqueFunction<void(const Tensor& from, Tensor& to)>;

struct LayoutDefinition {
  std::string name;  // "NHWC"
  // The conversions to and from the standard layout. Both are required.
  LayoutConverter to_standard;
  LayoutConverter from_standard;
  // Bytes that the elements of this shape take. Empty: as many as in the standard layout. Not asked
  // of a layout with descriptors, which tell. Called by several threads at once.
  UniqueFunction<int64_t(const Shape& shape, DType dtype)> bytes = {};
  // Each tensor has a descriptor of its own, so that no conversion leads through this layout.
  bool has_descriptors = false;
  // An estimate of the time of a conversion, for each byte read or written.
  double ns_per_byte = 0.25;
};

// Gives a layout its id, which is the program's own and differs from run to run: layouts are saved
// by their names. Errors: kInvalidArgument without both conversions or a name; kAlreadyExists.
//
//   LayoutId Nhwc() {
//     static const LayoutId id = RegisterLayout(
//         {.name = "NHWC", .to_standard = &FromNhwc, .from_standard = &ToNhwc});
//     return id;
//   }
OPKIT_IMAGE_LOCAL LayoutId RegisterLayout(LayoutDefinition definition);
// A direct conversion, where going through the standard layout would cost more. Errors: kNotFound
// for a layout that is not registered; kAlreadyExists.
OPKIT_IMAGE_LOCAL void RegisterLayoutConverter(LayoutId from, LayoutId to, LayoutConverter convert,
                                               double ns_per_byte = 0.25);

// The standard layout is registered, as "standard".
OPKIT_IMAGE_LOCAL bool IsRegisteredLayout(LayoutId id);
// The id of a name. Error (kNotFound) that names the nearest.
OPKIT_IMAGE_LOCAL LayoutId FindLayout(std::string_view name);
// The name of an id; "layout 7" where it is not registered.
OPKIT_IMAGE_LOCAL std::string LayoutName(LayoutId id);
// Bytes of a tensor in the layout. Errors: kNotFound where it is not registered; kOutOfRange.
OPKIT_IMAGE_LOCAL int64_t LayoutBytes(const Layout& layout, const Shape& shape, DType dtype);

// The layouts that a conversion leads through, the last of them its target, and an estimate of its
// time; no steps and 0 where there is nothing to convert.
struct LayoutPath {
  std::vector<Layout> steps;
  double cost_ns = 0;
};

// What libraries exchange of a layout: see plugin/load/library_layouts.hpp.
namespace detail {
OPKIT_IMAGE_LOCAL std::vector<RegisteredLayout> RegisteredLayouts();
OPKIT_IMAGE_LOCAL std::vector<LayoutPair> DirectConverters();
// The name, which lasts until the layout is removed; null for the standard layout and for none.
OPKIT_IMAGE_LOCAL const char* LayoutNamePointer(LayoutId id);
// Converts by the one direct converter. Error (kNotFound) where there is none.
OPKIT_IMAGE_LOCAL void ConvertDirectly(const Tensor& from, Tensor& to);
// Forgets a layout with its converters, of which none may run: the number is never given again, the
// name may be.
OPKIT_IMAGE_LOCAL void RemoveLayout(LayoutId id);
// Frees the registry of a library that is about to be unmapped, which nobody asks any more.
OPKIT_IMAGE_LOCAL void DeleteLayoutRegistry();
}  // namespace detail

// The cheapest way by the estimates of the converters. Error (kNotFound) where one of the two is
// not registered.
OPKIT_IMAGE_LOCAL LayoutPath FindLayoutPath(const Layout& from, const Layout& to,
                                            const Shape& shape, DType dtype);

// A tensor with new memory, in the standard layout or another one. Errors as for LayoutBytes.
OPKIT_IMAGE_LOCAL Tensor MakeTensor(const Shape& shape, DType dtype, const Layout& layout,
                                    Device device = {});
// The tensor in the other layout, with the descriptor that is given, by the cheapest path; in the
// same memory where it has an equal layout. Errors: kUninitialized; kNotFound; kUnsupported where
// the host cannot reach it.
OPKIT_IMAGE_LOCAL Tensor ConvertLayout(const Tensor& tensor, const Layout& layout);
// Writes the elements to a tensor that has memory and a layout, which may be the same one. Errors:
// also kInvalidArgument where the two differ in dtype or shape.
OPKIT_IMAGE_LOCAL void ConvertLayoutTo(const Tensor& from, Tensor& to);

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/core/impl/layout_registry.ipp"
#endif

#endif  // OPKIT_CORE_LAYOUT_REGISTRY_HPP_
