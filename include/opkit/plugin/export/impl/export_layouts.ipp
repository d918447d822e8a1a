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
OPKIT_COLD OPKIT_IMAGE_LOCAL inline opkit_status ConvertView(const opkit_tensor* from,
                                                             const char* from_layout,
                                                             const opkit_tensor* to,
                                                             const char* to_layout) {
  return GuardedCall([&] {
    Tensor target = TensorInLayout(*to, to_layout);
    g_convert_directly(TensorInLayout(*from, from_layout), target);
  });
}

// An opkit_layout for a registered layout.
struct OPKIT_IMAGE_LOCAL ExportedLayout : RefCounted {
  explicit ExportedLayout(RegisteredLayout exported) : layout(std::move(exported)) {
    abi.size = sizeof abi;
    abi.name = layout.name.c_str();
    abi.bytes = &Bytes;
    abi.to_standard = [](const opkit_layout* self, const opkit_tensor* from,
                         const opkit_tensor* to) {
      return ConvertView(from, self->name, to, nullptr);
    };
    abi.from_standard = [](const opkit_layout* self, const opkit_tensor* from,
                           const opkit_tensor* to) {
      return ConvertView(from, nullptr, to, self->name);
    };
    abi.ns_per_byte = layout.ns_per_byte;
    abi.author = this;
  }
  static opkit_status Bytes(const opkit_layout* self, int32_t dtype, int32_t rank,
                            const int64_t* shape, int64_t* bytes) {
    return GuardedCall([&] {
      const auto& own = *static_cast<const ExportedLayout*>(self->author);
      *bytes =
          g_layout_bytes(Layout{own.layout.id, {}}, Shape(Dims(shape, static_cast<size_t>(rank))),
                         static_cast<DType>(dtype));
    });
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
    abi.convert = [](const opkit_layout_converter* self, const opkit_tensor* from,
                     const opkit_tensor* to) {
      return ConvertView(from, self->from, to, self->to);
    };
    abi.ns_per_byte = pair.ns_per_byte;
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
    abi.available = &Available;
    abi.alloc = &Alloc;
    abi.free = &Free;
    abi.copy = &Copy;
    abi.author = this;
  }
  static const ExportedDevice& Of(const opkit_device* device) {
    return *static_cast<const ExportedDevice*>(device->author);
  }
  static opkit_status Available(const opkit_device* self, int32_t index) {
    return GuardedCall([&] {
      const std::string why = WhyNoDevice({Of(self).type, index});
      if (!why.empty()) Throw(ErrorCode::kUnsupported, why);
    });
  }
  static opkit_status Alloc(const opkit_device* self, int32_t index, int64_t bytes, void** memory) {
    return GuardedCall([&] { *memory = GetAllocator(Of(self).type).Allocate(bytes, index); });
  }
  static void Free(const opkit_device* self, void* memory, int64_t bytes) {
    if (Allocator* allocator = Allocators()[Of(self).type].load())
      allocator->Deallocate(memory, bytes);
  }
  static opkit_status Copy(const opkit_device* self, int32_t index, int32_t direction, void* to,
                           const void* from, int64_t bytes) {
    return GuardedCall([&] {
      const Device here{Of(self).type, index}, host{};
      const Device source = direction == OPKIT_HOST_TO_DEVICE ? host : here;
      const Device target = direction == OPKIT_DEVICE_TO_HOST ? host : here;
      const CopyFunction copy = FindCopy(source.type, target.type);
      if (!copy)
        Throw(ErrorCode::kUnsupported, "no copy from ", source, " to ", target,
              " is registered in the library; call RegisterCopy");
      copy(to, target, from, source, bytes, nullptr);
    });
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

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_EXPORT_LAYOUTS_IPP_
