// Describes the layouts and devices of a library's registries to its host.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_LAYOUTS_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_LAYOUTS_IPP_

#include "opkit/base/algorithm.hpp"
#include "opkit/core/layout_hooks.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/op/boundary/convert/abi_config.hpp"
#include "opkit/op/boundary/host/program_host.hpp"
#include "opkit/plugin/export/export_operators.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Converts one view to another; a null layout is the standard one.
OPKIT_COLD OPKIT_IMAGE_LOCAL inline void ConvertView(const opkit_tensor* from,
                                                     const char* from_layout,
                                                     const opkit_tensor* to,
                                                     const char* to_layout) {
  Tensor target = TensorInLayout(*to, to_layout);
  g_convert_directly(TensorInLayout(*from, from_layout), target);
}

// An opkit_layout for a registered layout.
struct OPKIT_IMAGE_LOCAL ExportedLayout : RefCounted {
  explicit ExportedLayout(RegisteredLayout exported) : layout(std::move(exported)) {
    abi.size = sizeof abi;
    abi.name = layout.name.c_str();
    abi.bytes = &GuardBy<ExportedLayout, &ExportedLayout::Bytes>;
    abi.to_standard = &GuardBy<ExportedLayout, &ExportedLayout::ToStandard>;
    abi.from_standard = &GuardBy<ExportedLayout, &ExportedLayout::FromStandard>;
    abi.ns_per_byte = layout.ns_per_byte;
    abi.author = this;
  }
  void ToStandard(const opkit_tensor* from, const opkit_tensor* to) const {
    ConvertView(from, abi.name, to, nullptr);
  }
  void FromStandard(const opkit_tensor* from, const opkit_tensor* to) const {
    ConvertView(from, nullptr, to, abi.name);
  }
  void Bytes(int32_t dtype, int32_t rank, const int64_t* shape, int64_t* bytes) const {
    *bytes = g_layout_bytes(Layout{layout.id, {}}, Shape(Dims(shape, static_cast<size_t>(rank))),
                            static_cast<DType>(dtype));
  }
  const RegisteredLayout layout;
  opkit_layout abi{};
};

// An opkit_layout_converter for a registered direct converter.
struct OPKIT_IMAGE_LOCAL ExportedConverter : RefCounted {
  explicit ExportedConverter(const LayoutPair& pair) {
    abi.size = sizeof abi;
    abi.from = g_layout_name_pointer(pair.from);
    abi.to = g_layout_name_pointer(pair.to);
    abi.convert = &GuardBy<ExportedConverter, &ExportedConverter::Convert>;
    abi.ns_per_byte = pair.ns_per_byte;
    abi.author = this;
  }
  void Convert(const opkit_tensor* from, const opkit_tensor* to) const {
    ConvertView(from, abi.from, to, abi.to);
  }
  opkit_layout_converter abi{};
};

// An opkit_device for a registered device type.
struct OPKIT_IMAGE_LOCAL ExportedDevice : RefCounted {
  ExportedDevice(DeviceType number, std::string its_name)
      : type(number), name(std::move(its_name)) {
    abi.size = sizeof abi;
    abi.name = name.c_str();
    abi.type = static_cast<int32_t>(type);
    abi.available = &GuardBy<ExportedDevice, &ExportedDevice::CheckAvailable>;
    abi.alloc = &GuardBy<ExportedDevice, &ExportedDevice::Allocate>;
    abi.free = &Free;
    abi.copy = &GuardBy<ExportedDevice, &ExportedDevice::Copy>;
    abi.author = this;
  }
  void CheckAvailable(int32_t index) const {
    if (const std::string why = WhyNoDevice({type, index}); !why.empty())
      Throw(ErrorCode::kUnsupported, why);
  }
  void Allocate(int32_t index, int64_t bytes, void** memory) const {
    *memory = GetAllocator(type).Allocate(bytes, index);
  }
  static void Free(const opkit_device* self, void* memory, int64_t bytes) {
    const DeviceType type = static_cast<const ExportedDevice*>(self->author)->type;
    if (Allocator* allocator = Allocators()[type].load()) allocator->Deallocate(memory, bytes);
  }
  void Copy(int32_t index, int32_t direction, void* to, const void* from, int64_t bytes) const {
    const Device here{type, index}, host{};
    const Device source = direction == OPKIT_HOST_TO_DEVICE ? host : here;
    const Device target = direction == OPKIT_DEVICE_TO_HOST ? host : here;
    const CopyFunction copy = FindCopy(source.type, target.type);
    if (!copy)
      Throw(ErrorCode::kUnsupported, "no copy from ", source, " to ", target,
            " is registered in the library; call RegisterCopy");
    copy(to, target, from, source, bytes, nullptr);
  }
  const DeviceType type;
  const std::string name;
  opkit_device abi{};
};

OPKIT_COLD OPKIT_INLINE void AddRegisteredLayouts(LibraryContents& contents) {
  if (IsProgramHost(g_host)) return;
  if (g_registered_layouts) {
    std::vector<LayoutId> exported;
    for (RegisteredLayout& one : g_registered_layouts()) {
      if (one.has_descriptors) continue;
      exported.push_back(one.id);
      AddExported<ExportedLayout>(contents, contents.layouts, std::move(one));
    }
    for (const LayoutPair& one : g_direct_converters())
      if (Contains(exported, one.from) && Contains(exported, one.to))
        AddExported<ExportedConverter>(contents, contents.layout_converters, one);
  }
  DeviceTypeRegistry& types = DeviceTypes();
  MutexLock lock(types.mutex);
  for (const auto& one : types.entries)
    if (one.type >= DeviceType::kFirstUserDevice && one.info.memory == one.type)
      AddExported<ExportedDevice>(contents, contents.devices, one.type, one.info.name);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_LAYOUTS_IPP_
