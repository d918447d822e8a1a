// The registry of layouts, and the search for the cheapest path between two.
#ifndef OPKIT_CORE_IMPL_LAYOUT_REGISTRY_IPP_
#define OPKIT_CORE_IMPL_LAYOUT_REGISTRY_IPP_

#include <algorithm>
#include <cstring>
#include <memory>

#include "opkit/base/index.hpp"
#include "opkit/base/platform.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/core/layout_registry.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The layouts and converters of this image. Thread-safe.
class OPKIT_IMAGE_LOCAL LayoutRegistry {
 public:
  struct Converter {
    LayoutId from, to;
    LayoutConverter convert;
    double ns_per_byte;
  };

  LayoutRegistry() {
    layouts_.push_back(std::make_unique<LayoutDefinition>());
    layouts_.front()->name = "standard";
    g_layout_name.Fill(
        [](LayoutId id) { return Global().Has(id) ? LayoutName(id) : std::string(); });
    g_convert_layout.Fill(&ConvertLayout);
    g_convert_layout_to.Fill(&ConvertLayoutTo);
    g_make_tensor.Fill(&MakeTensor);
    g_registered_layouts.Fill(&RegisteredLayouts);
    g_direct_converters.Fill(&DirectConverters);
    g_find_layout.Fill(&FindLayout);
    g_is_registered_layout.Fill(&IsRegisteredLayout);
    g_layout_name_pointer.Fill(&LayoutNamePointer);
    g_layout_bytes.Fill(&LayoutBytes);
    g_convert_directly.Fill(&ConvertDirectly);
    g_delete_layout_registry.Fill(&DeleteLayoutRegistry);
  }
  static LayoutRegistry& Global() {
    static auto* registry = new LayoutRegistry;  // tensors may outlive every static object
    return *registry;
  }

  LayoutId Add(LayoutDefinition definition) {
    if (definition.name.empty())
      Throw(ErrorCode::kInvalidArgument, "RegisterLayout: a layout needs a name");
    if (!definition.to_standard || !definition.from_standard)
      Throw(ErrorCode::kInvalidArgument, "RegisterLayout: layout '", definition.name,
            "' needs both to_standard and from_standard, or no other backend could read what is "
            "in it");
    CheckRate(StrCat("RegisterLayout: layout '", definition.name, "'"), definition.ns_per_byte);
    MutexLock lock(mutex_);
    for (const auto& known : layouts_)
      if (known && known->name == definition.name)
        Throw(ErrorCode::kAlreadyExists, "RegisterLayout: there is a layout '", definition.name,
              "' already");
    if (layouts_.size() > LayoutId{0xffff})
      Throw(ErrorCode::kOutOfRange, "RegisterLayout: there are ", layouts_.size(),
            " layouts, and a program can have no more");
    const auto id = static_cast<LayoutId>(layouts_.size());
    const double cost = definition.ns_per_byte;
    AddConverter({id, kStandardLayout, std::move(definition.to_standard), cost});
    AddConverter({kStandardLayout, id, std::move(definition.from_standard), cost});
    layouts_.push_back(std::make_unique<LayoutDefinition>(std::move(definition)));
    return id;
  }
  void Add(Converter converter) {
    MutexLock lock(mutex_);
    Get(converter.from);
    Get(converter.to);
    const std::string what = StrCat("RegisterLayoutConverter: the converter from ",
                                    Name(converter.from), " to ", Name(converter.to));
    if (!converter.convert) Throw(ErrorCode::kInvalidArgument, what, " needs a function");
    if (converter.from == converter.to && !Get(converter.to).has_descriptors)
      Throw(ErrorCode::kInvalidArgument, what,
            " leads from a layout without descriptors to itself");
    CheckRate(what, converter.ns_per_byte);
    if (Find(converter.from, converter.to))
      Throw(ErrorCode::kAlreadyExists, "there is a converter from ", Name(converter.from), " to ",
            Name(converter.to), " already");
    AddConverter(std::move(converter));
  }

  bool Has(LayoutId id) const {
    MutexLock lock(mutex_);
    return IsHere(id);
  }
  LayoutId Find(std::string_view name) const {
    MutexLock lock(mutex_);
    std::vector<std::string> names;
    for (size_t id = 0; id < layouts_.size(); ++id) {
      if (!layouts_[id]) continue;
      if (layouts_[id]->name == name) return static_cast<LayoutId>(id);
      names.push_back(layouts_[id]->name);
    }
    Throw(ErrorCode::kNotFound, "there is no layout '", name, "'", SuggestName(name, names));
  }
  // Returns the layout whose name is the text, or the text up to a space; null: none. The
  // definition is valid until the layout is removed.
  std::pair<LayoutId, LayoutDefinition*> FindInText(std::string_view text) const {
    MutexLock lock(mutex_);
    for (size_t id = 1; id < layouts_.size(); ++id) {
      LayoutDefinition* const one = layouts_[id].get();
      if (one && text.starts_with(one->name) &&
          (text.size() == one->name.size() || text[one->name.size()] == ' '))
        return {static_cast<LayoutId>(id), one};
    }
    return {kStandardLayout, nullptr};
  }
  std::string NameOf(LayoutId id) const {
    MutexLock lock(mutex_);
    return Name(id);
  }
  // Returns a reference that is valid until the layout is removed.
  LayoutDefinition& DefinitionOf(LayoutId id) const {
    MutexLock lock(mutex_);
    return Get(id);
  }
  std::vector<RegisteredLayout> All() const {
    MutexLock lock(mutex_);
    std::vector<RegisteredLayout> all;
    for (size_t id = 1; id < layouts_.size(); ++id)
      if (const LayoutDefinition* one = layouts_[id].get())
        all.push_back(
            {static_cast<LayoutId>(id), one->name, one->has_descriptors, one->ns_per_byte});
    return all;
  }
  std::vector<LayoutPair> Pairs() const {
    MutexLock lock(mutex_);
    std::vector<LayoutPair> pairs;
    for (const auto& one : converters_)
      if (one->from != kStandardLayout && one->to != kStandardLayout)
        pairs.push_back({one->from, one->to, one->ns_per_byte});
    return pairs;
  }
  void Remove(LayoutId id) {
    MutexLock lock(mutex_);
    Get(id);
    std::erase_if(converters_, [&](const auto& one) { return one->from == id || one->to == id; });
    layouts_[id] = nullptr;
  }
  // Returns the direct converter. Error (kNotFound) if there is none.
  Converter& ConverterOf(const Layout& from, const Layout& to) const {
    MutexLock lock(mutex_);
    if (Converter* found = Find(from.id, to.id)) return *found;
    Throw(ErrorCode::kNotFound, "nothing converts directly from ", ToString(from), " to ",
          ToString(to));
  }

  LayoutPath FindPath(const Layout& from, const Layout& to, const Shape& shape, DType dtype) const {
    if (from == to) return {};
    constexpr double kStepNs = 200;
    const int64_t dense = Tensor::CheckedBytes(shape, dtype);
    const int64_t from_bytes = LayoutBytes(from, shape, dtype);
    const int64_t to_bytes = LayoutBytes(to, shape, dtype);
    MutexLock lock(mutex_);
    for (const LayoutId id : {from.id, to.id}) Get(id);
    // Bellman-Ford: relaxes every converter until no cost falls, which is cheap for a few layouts.
    // The source and the target may be one layout with two descriptors, so the target has its own
    // place in the list.
    const size_t target = layouts_.size();
    struct Place {
      double cost = -1;  // not reached yet
      size_t before = 0;
    };
    std::vector<Place> places(layouts_.size() + 1);
    // Layouts between source and target count with their dense size, so that no function of an
    // author is called under the lock.
    const auto bytes_at = [&](size_t at) {
      return at == target ? to_bytes : at == from.id ? from_bytes : dense;
    };
    places[from.id].cost = 0;
    const auto relax = [&](size_t before, size_t at, double ns_per_byte) {
      if (places[before].cost < 0) return false;
      const double moved =
          static_cast<double>(bytes_at(before)) + static_cast<double>(bytes_at(at));
      const double cost = places[before].cost + kStepNs + ns_per_byte * moved;
      if (places[at].cost >= 0 && cost >= places[at].cost) return false;
      places[at] = {cost, before};
      return true;
    };
    for (bool changes = true; changes;) {
      changes = false;
      for (const auto& one : converters_) {
        if (one->from != from.id && layouts_[one->from]->has_descriptors) continue;
        if (one->to == to.id) changes |= relax(one->from, target, one->ns_per_byte);
        if (one->to != from.id && !layouts_[one->to]->has_descriptors)
          changes |= relax(one->from, one->to, one->ns_per_byte);
      }
    }
    LayoutPath path{{to}, places[target].cost};
    for (size_t at = places[target].before; at != from.id; at = places[at].before)
      path.steps.insert(path.steps.begin(), Layout{static_cast<LayoutId>(at), {}});
    return path;
  }

 private:
  static void CheckRate(const std::string& what, double ns_per_byte) {
    if (!(ns_per_byte >= 0) || !__builtin_isfinite(ns_per_byte))
      Throw(ErrorCode::kInvalidArgument, what, " says ", ns_per_byte,
            " ns for each byte, expected 0 or more");
  }
  bool IsHere(LayoutId id) const { return id < layouts_.size() && layouts_[id]; }
  std::string Name(LayoutId id) const {
    return IsHere(id) ? layouts_[id]->name : StrCat("layout ", id);
  }
  LayoutDefinition& Get(LayoutId id) const {
    if (IsHere(id)) return *layouts_[id];
    Throw(ErrorCode::kNotFound, "layout ", id, " is not registered; RegisterLayout gives the id");
  }
  Converter* Find(LayoutId from, LayoutId to) const {
    for (const auto& one : converters_)
      if (one->from == from && one->to == to) return one.get();
    return nullptr;
  }
  void AddConverter(Converter converter) {
    converters_.push_back(std::make_unique<Converter>(std::move(converter)));
  }

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<LayoutDefinition>> layouts_;  // by id; null: removed
  std::vector<std::unique_ptr<Converter>> converters_;
};

}  // namespace detail

OPKIT_INLINE LayoutId RegisterLayout(LayoutDefinition definition) {
  return detail::LayoutRegistry::Global().Add(std::move(definition));
}
OPKIT_INLINE void RegisterLayoutConverter(LayoutId from, LayoutId to, LayoutConverter convert,
                                          double ns_per_byte) {
  detail::LayoutRegistry::Global().Add({from, to, std::move(convert), ns_per_byte});
}
OPKIT_INLINE bool IsRegisteredLayout(LayoutId id) {
  return detail::LayoutRegistry::Global().Has(id);
}
OPKIT_INLINE LayoutId FindLayout(std::string_view name) {
  return detail::LayoutRegistry::Global().Find(name);
}
OPKIT_COLD OPKIT_INLINE std::optional<Layout> LayoutFromText(std::string_view text,
                                                             const Shape& shape, DType dtype) {
  if (text == "standard") return Layout();
  const auto [id, definition] = detail::LayoutRegistry::Global().FindInText(text);
  if (!definition) return {};
  if (!definition->has_descriptors)
    return text == definition->name ? std::optional(Layout{id, {}}) : std::nullopt;
  if (!definition->from_text || text.size() == definition->name.size()) return {};
  text.remove_prefix(definition->name.size() + 1);
  return definition->from_text(text, shape, dtype);
}
OPKIT_INLINE std::string LayoutName(LayoutId id) {
  return detail::LayoutRegistry::Global().NameOf(id);
}
OPKIT_INLINE int64_t LayoutBytes(const Layout& layout, const Shape& shape, DType dtype) {
  if (layout.descriptor) {
    const int64_t described = layout.descriptor->Bytes(shape, dtype);
    return described < 0 ? Tensor::CheckedBytes(shape, dtype) : described;
  }
  auto& definition = detail::LayoutRegistry::Global().DefinitionOf(layout.id);
  if (!definition.bytes) return Tensor::CheckedBytes(shape, dtype);
  const int64_t bytes = detail::InContext(
      [&] { return definition.bytes(shape, dtype); },
      [&] { return StrCat("in the size of ", dtype, shape, " in layout ", definition.name); });
  if (bytes < 0 || (bytes == 0 && shape.numel() > 0)) [[unlikely]]
    Throw(ErrorCode::kOutOfRange, "layout ", definition.name, " says ", bytes, " bytes for ", dtype,
          shape);
  return bytes;
}
OPKIT_INLINE LayoutPath FindLayoutPath(const Layout& from, const Layout& to, const Shape& shape,
                                       DType dtype) {
  return detail::LayoutRegistry::Global().FindPath(from, to, shape, dtype);
}

OPKIT_INLINE Tensor MakeTensor(const Shape& shape, DType dtype, const Layout& layout,
                               Device device) {
  return Tensor::FromLayout(
      AllocateStorage(MemoryDevice(device), LayoutBytes(layout, shape, dtype)), shape, dtype,
      layout);
}
namespace detail {
OPKIT_IMAGE_LOCAL inline void CheckConvertible(const Tensor& tensor, const Layout& layout) {
  if (!tensor.initialized())
    Throw(ErrorCode::kUninitialized, "cannot convert ", tensor, " to layout ", layout,
          ": it has no elements yet");
  if (!IsHostAccessible(tensor.device().type))
    Throw(ErrorCode::kUnsupported, "cannot convert ", tensor, " to layout ", layout,
          ": the host cannot reach its memory");
}
OPKIT_INLINE std::vector<RegisteredLayout> RegisteredLayouts() {
  return LayoutRegistry::Global().All();
}
OPKIT_INLINE std::vector<LayoutPair> DirectConverters() { return LayoutRegistry::Global().Pairs(); }
OPKIT_INLINE const char* LayoutNamePointer(LayoutId id) {
  if (id == kStandardLayout || !LayoutRegistry::Global().Has(id)) return nullptr;
  return LayoutRegistry::Global().DefinitionOf(id).name.c_str();
}
OPKIT_INLINE void RemoveLayout(LayoutId id) { LayoutRegistry::Global().Remove(id); }
OPKIT_INLINE void DeleteLayoutRegistry() { delete &LayoutRegistry::Global(); }
// Takes one step of a path, and checks that the converter wrote into the given memory.
OPKIT_INLINE void ConvertDirectly(const Tensor& from, Tensor& to) {
  auto& converter = LayoutRegistry::Global().ConverterOf(from.layout(), to.layout());
  const Layout layout = to.layout();
  const void* const memory = to.raw_data();
  const auto what = [&] {
    return StrCat("the conversion from ", ToString(from.layout()), " to ", ToString(layout), " of ",
                  from.dtype(), from.shape());
  };
  InContext([&] { converter.convert(from.is_dense() ? from : from.Contiguous(), to); },
            [&] { return "in " + what(); });
  if (to.layout() != layout || to.shape() != from.shape() || to.dtype() != from.dtype() ||
      to.raw_data() != memory) [[unlikely]]
    Throw(ErrorCode::kOperatorFailed, what(),
          " returned another tensor; it must write to the memory of the tensor that it is given");
}
// Returns the tensor after all steps of a path but the last.
OPKIT_IMAGE_LOCAL inline Tensor BeforeLastStep(const Tensor& tensor, const LayoutPath& path) {
  Tensor last = tensor;
  for (size_t i = 0; i + 1 < path.steps.size(); ++i) {
    Tensor next = MakeTensor(tensor.shape(), tensor.dtype(), path.steps[i], tensor.device());
    ConvertDirectly(last, next);
    last = std::move(next);
  }
  return last;
}
}  // namespace detail

OPKIT_INLINE Tensor ConvertLayout(const Tensor& tensor, const Layout& layout) {
  if (tensor.layout() == layout) {
    if (tensor.layout().descriptor == layout.descriptor) return tensor;
    Tensor same = Tensor::FromLayout(tensor.storage(), tensor.shape(), tensor.dtype(), layout,
                                     tensor.byte_offset(),
                                     LayoutBytes(layout, tensor.shape(), tensor.dtype()));
    same.SetDevice(tensor.device());
    return same;
  }
  detail::CheckConvertible(tensor, layout);
  Tensor made = MakeTensor(tensor.shape(), tensor.dtype(), layout, tensor.device());
  ConvertLayoutTo(tensor, made);
  return made;
}
OPKIT_INLINE void ConvertLayoutTo(const Tensor& from, Tensor& to) {
  detail::CheckConvertible(from, to.layout());
  if (from.dtype() != to.dtype() || from.shape() != to.shape() || !to.initialized())
    Throw(ErrorCode::kInvalidArgument, "cannot convert ", from, " to ", to,
          ": the target needs memory, the same dtype and the same shape");
  if (from.layout() == to.layout()) {
    const Tensor dense = from.is_dense() ? from : from.Contiguous();
    std::memcpy(to.raw_mutable_data(), dense.raw_data(),
                detail::Index(LayoutBytes(to.layout(), to.shape(), to.dtype())));
    return;
  }
  const LayoutPath path = FindLayoutPath(from.layout(), to.layout(), from.shape(), from.dtype());
  detail::ConvertDirectly(detail::BeforeLastStep(from, path), to);
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_LAYOUT_REGISTRY_IPP_
