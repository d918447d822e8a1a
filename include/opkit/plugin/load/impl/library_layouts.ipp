// Registers the layouts, converters and devices of a library, and removes them.
#ifndef OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_LAYOUTS_IPP_
#define OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_LAYOUTS_IPP_

#include <algorithm>

#include "opkit/core/channels_last.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/graph/plan/converters.hpp"
#include "opkit/op/boundary/host/resource_state.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/plugin/load/library_layouts.hpp"
#include "opkit/plugin/load/library_ops.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Calls a converter of a library with views of two tensors.
template <class Convert>
void ConvertByLibrary(const std::string& library, const std::string& what, const Tensor& from,
                      const Tensor& to, Convert convert) {
  TensorSlot source, target;
  source.Bind(from, OpReq::kWrite);
  target.Bind(to, OpReq::kWrite);
  CallLibraryFunction(
      library, [&] { return convert(&source.view.view(), &target.view.view()); }, "the conversion ",
      what);
}

// The allocator of a library's device. Also calls the library for the device's availability and
// copies.
class LibraryDevice final : public Allocator {
 public:
  LibraryDevice(const opkit_device& device, std::string library)
      : device_(device), name_(device.name), library_(std::move(library)) {}
  const char* name() const override { return name_.c_str(); }

  // Returns the devices of all loaded libraries.
  static DeviceTable<LibraryDevice*>& All() {
    static constinit DeviceTable<LibraryDevice*> table;
    return table;
  }
  static std::string WhyNot(Device device) {
    const LibraryDevice* self = All().Find(device.type);
    if (!self) return "the library that brings it is unloaded";
    if (!self->device_.available) return {};
    const HostErrorScope message;
    const opkit_status status =
        CallGuarded([&] { return self->device_.available(&self->device_, device.index); });
    return status == OPKIT_OK ? std::string() : ReasonOf(status);
  }
  template <int kDirection>
  static void Copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes,
                   void*) {
    const Device here = kDirection == OPKIT_DEVICE_TO_HOST ? from_device : to_device;
    const LibraryDevice* self = All().Find(here.type);
    if (!self) Throw(ErrorCode::kUnsupported, here, ": the library that brings it is unloaded");
    CallLibraryFunction(
        self->library_,
        [&] { return self->device_.copy(&self->device_, here.index, kDirection, to, from, bytes); },
        "a copy of ", bytes, " bytes from ", from_device, " to ", to_device);
  }

 protected:
  void* DoAllocate(int64_t bytes) override { return DoAllocateOn(0, bytes); }
  void* DoAllocateOn(int32_t index, int64_t bytes) override {
    void* memory = nullptr;
    const HostErrorScope message;
    const opkit_status status =
        CallGuarded([&] { return device_.alloc(&device_, index, bytes, &memory); });
    if (status != OPKIT_OK && CodeOfStatus(status) != ErrorCode::kOutOfMemory)
      Throw(CodeOfStatus(status), "device ", name_, ":", index, " of library ", library_,
            " gives no memory: ", ReasonOf(status));
    return status == OPKIT_OK ? memory : nullptr;
  }
  void DoDeallocate(void* data, int64_t bytes) noexcept override {
    const HostErrorScope message;
    CallGuarded([&] { return device_.free(&device_, data, bytes), OPKIT_OK; });
  }

 private:
  const opkit_device& device_;
  const std::string name_, library_;
};

// The context of a library's device. An operator's work is done when the operator returns.
class LibraryDeviceContext {
 public:
  static constexpr DeviceType kDeviceType = DeviceType::kFirstUserDevice;
  static constexpr bool kAsynchronous = false;

  explicit LibraryDeviceContext(Device device) : device_(device) {}
  Device device() const { return device_; }
  void SwitchToDevice(int = 0) {}
  void Record(Event& event) { event.SetScheduled(); }
  void WaitEvent(const Event& event) { event.Finish(); }
  void FinishDeviceComputation() {}
  static bool IsStreamFree(Device, int) { return true; }

 private:
  Device device_;
};
static_assert(DeviceContext<LibraryDeviceContext>);

inline bool IsKnownLayout(std::string_view name) {
  return name == LayoutName(kStandardLayout) ||
         std::ranges::count(RegisteredLayouts(), name, &RegisteredLayout::name) > 0;
}
inline void AddLibraryLayout(LoadedLibrary& loaded, const opkit_layout& layout) {
  const std::string name = layout.name;
  if (!layout.to_standard || !layout.from_standard)
    RefuseDescription(loaded.image->name,
                      StrCat("has layout '", name, "' without to_standard or from_standard"),
                      "both are required, or no other backend could read what is in it");
  ChannelsLast();  // registers the program's own layout, unless it is registered
  if (IsKnownLayout(name)) return loaded.found_layouts.push_back(name);
  const std::string library = loaded.image->name;
  LayoutDefinition definition;
  definition.name = name;
  const auto by = [&layout, library](auto convert, const std::string& what) {
    return [&layout, library, convert, what](const Tensor& from, Tensor& to) {
      ConvertByLibrary(library, what, from, to, [&](auto* source, auto* target) {
        return convert(&layout, source, target);
      });
    };
  };
  definition.to_standard = by(layout.to_standard, name + " to standard");
  definition.from_standard = by(layout.from_standard, "standard to " + name);
  if (layout.bytes)
    definition.bytes = [&layout, library, name](const Shape& shape, DType dtype) {
      int64_t bytes = -1;
      CallLibraryFunction(
          library,
          [&] {
            return layout.bytes(&layout, static_cast<int32_t>(dtype), shape.rank(), shape.data(),
                                &bytes);
          },
          "the size of layout ", name);
      if (bytes < 0)
        Throw(ErrorCode::kOutOfRange, "layout ", name, " of library ", library, " says ", bytes,
              " bytes for ", dtype, shape);
      return bytes;
    };
  if (layout.ns_per_byte > 0 && __builtin_isfinite(layout.ns_per_byte))
    definition.ns_per_byte = layout.ns_per_byte;
  loaded.layouts.push_back(RegisterLayout(std::move(definition)));
}
// Registers a converter from or to one of the library's `layouts`. A converter between layouts of
// other images would stay registered after the library is unloaded.
inline void AddLibraryConverter(LoadedLibrary& loaded, const opkit_layout_converter& converter,
                                std::span<const LayoutId> layouts) {
  const LayoutId from = FindLayout(PartName(loaded, converter.from, "layout converter"));
  const LayoutId to = FindLayout(PartName(loaded, converter.to, "layout converter"));
  if (!converter.convert)
    RefuseDescription(loaded.image->name, StrCat("has a converter from ", converter.from, " to ",
                                                 converter.to, " without a function"));
  if (!std::ranges::count(layouts, from) && !std::ranges::count(layouts, to)) return;
  RegisterLayoutConverter(
      from, to,
      [&converter, library = loaded.image->name](const Tensor& source, Tensor& target) {
        ConvertByLibrary(
            library, StrCat(converter.from, " to ", converter.to), source, target,
            [&](auto* in, auto* out) { return converter.convert(&converter, in, out); });
      },
      converter.ns_per_byte > 0 && __builtin_isfinite(converter.ns_per_byte) ? converter.ns_per_byte
                                                                             : 0.25);
}

inline void AddLibraryDevice(LoadedLibrary& loaded, const opkit_device& device) {
  const std::string& library = loaded.image->name;
  const std::string name = device.name;
  if (!device.alloc || !device.free || !device.copy)
    RefuseDescription(library, StrCat("has device '", name, "' without alloc, free or copy"));
  const auto type = static_cast<DeviceType>(device.type);
  if (type < DeviceType::kFirstUserDevice || device.type >= kDeviceSlots)
    RefuseDescription(
        library, StrCat("gives device '", name, "' the number ", device.type),
        StrCat("devices of one's own have ", static_cast<int>(DeviceType::kFirstUserDevice), " to ",
               kDeviceSlots - 1));
  if (Allocators()[type].load())
    RefuseDescription(library,
                      StrCat("brings device '", name, "', number ", device.type,
                             ", which this program has already"),
                      {}, ErrorCode::kAlreadyExists);
  RegisterDeviceType(type, {name, type, false});
  loaded.devices.push_back(type);
  auto* const made = new LibraryDevice(device, library);
  LibraryDevice::All()[type].store(made, std::memory_order_release);
  SetAllocator(type, made);
  SetDeviceAvailability(type, &LibraryDevice::WhyNot);
  RegisterCopy(DeviceType::kCPU, type, &LibraryDevice::Copy<OPKIT_HOST_TO_DEVICE>);
  RegisterCopy(type, DeviceType::kCPU, &LibraryDevice::Copy<OPKIT_DEVICE_TO_HOST>);
  RegisterCopy(type, type, &LibraryDevice::Copy<OPKIT_DEVICE_TO_DEVICE>);
  EnableFunctionOperators<LibraryDeviceContext>(type);
}

OPKIT_INLINE void RegisterLayoutsOf(LoadedLibrary& loaded) {
  // Creates the layout registry, whose hooks read the layouts that the library's kernels name.
  static_cast<void>(IsRegisteredLayout(kStandardLayout));
  const opkit_library& library = *loaded.image->library;
  if (!OPKIT_ABI_HAS(&library, devices)) return;
  try {
    AddParts(loaded, library.num_layouts, library.layouts, "layout", &AddLibraryLayout);
    AddParts(
        loaded, library.num_layout_converters, library.layout_converters, "layout converter",
        +[](LoadedLibrary& own, const opkit_layout_converter& converter) {
          AddLibraryConverter(own, converter, own.layouts);
        });
    AddParts(loaded, library.num_devices, library.devices, "device", &AddLibraryDevice);
  } catch (...) {
    RemoveLayoutsOf(loaded);
    throw;
  }
}
OPKIT_INLINE std::string WhatHoldsLayouts(const LoadedLibrary& loaded,
                                          const std::vector<LoadedLibraryPtr>& all) {
  for (const LoadedLibraryPtr& other : all)
    for (const LayoutId id : loaded.layouts)
      if (other->in_use.use_count() > other->idle_count &&
          std::ranges::count(other->found_layouts, LayoutName(id)) > 0)
        return StrCat("operators of library ", other->image->name,
                      " are alive, which has the layout ", LayoutName(id),
                      " too and uses this one; destroy them first");
  for (const DeviceType type : loaded.devices)
    if (const int64_t live = GetAllocator(type).live_bytes(); live > 0)
      return StrCat(live, " bytes of memory of its device ", type,
                    " are in use; destroy the tensors that are there first");
  return {};
}
OPKIT_INLINE void AdoptLayouts(const std::vector<LoadedLibraryPtr>& all) {
  for (const LoadedLibraryPtr& other : all) {
    const std::vector<std::string> names = std::exchange(other->found_layouts, {});
    if (names.empty()) continue;
    const opkit_library& library = *other->image->library;
    const size_t before = other->layouts.size();
    for (uint64_t i = 0; i < library.num_layouts; ++i)
      if (std::ranges::count(names, library.layouts[i]->name))
        AddLibraryLayout(*other, *library.layouts[i]);
    const std::span adopted(other->layouts.begin() + static_cast<int64_t>(before),
                            other->layouts.end());
    for (uint64_t i = 0; i < library.num_layout_converters; ++i) {
      const opkit_layout_converter& converter = *library.layout_converters[i];
      if (IsKnownLayout(converter.from) && IsKnownLayout(converter.to))
        AddLibraryConverter(*other, converter, adopted);
    }
  }
}
OPKIT_INLINE void RemoveLayoutsOf(LoadedLibrary& loaded) {
  loaded.found_layouts.clear();
  for (const LayoutId id : loaded.layouts) RemoveLayout(id);
  loaded.layouts.clear();
  for (const DeviceType type : loaded.devices) {
    RegisterCopy(DeviceType::kCPU, type, nullptr);
    RegisterCopy(type, DeviceType::kCPU, nullptr);
    RegisterCopy(type, type, nullptr);
    FunctionFactories()[type].store(nullptr, std::memory_order_release);
    SetAllocator(type, nullptr);
    delete LibraryDevice::All()[type].exchange(nullptr);
  }
  loaded.devices.clear();
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_LOAD_IMPL_LIBRARY_LAYOUTS_IPP_
