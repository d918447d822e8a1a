// Tensors and attributes across the ABI: outgoing views, and the checks of incoming structs.
#ifndef OPKIT_OP_BOUNDARY_CONVERT_IMPL_ABI_ATTRIBUTES_IPP_
#define OPKIT_OP_BOUNDARY_CONVERT_IMPL_ABI_ATTRIBUTES_IPP_

#include <cstring>

#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/op/function/attr_map.hpp"
#include "opkit/op/function/op_tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

static_assert(static_cast<int>(AttributeType::kTensors) == OPKIT_ATTR_TENSORS);
static_assert(static_cast<int>(DType::kComplex128) == OPKIT_COMPLEX128);

// Counts the bytes from the first element of a view to the end of the last; false if 64 bits cannot
// count them.
inline bool CountBytes(const opkit_tensor& view, int64_t* bytes) {
  int64_t last = 0, step = 0;
  for (int i = 0; i < view.rank; ++i)
    if (view.shape[i] > 0 && (__builtin_mul_overflow(view.shape[i] - 1, view.strides[i], &step) ||
                              __builtin_add_overflow(last, step, &last)))
      return false;
  return !__builtin_add_overflow(last, 1, &last) &&
         !__builtin_mul_overflow(last, ItemSize(static_cast<DType>(view.dtype)), bytes);
}

inline constexpr uint64_t kMostStringBytes = uint64_t{1} << 32;  // limit for a string attribute

OPKIT_INLINE std::string TextOfAbi(const char* text) {
  const size_t bytes = text ? ::strnlen(text, kMostTextBytes + 1) : 0;
  if (bytes > kMostTextBytes)
    Throw(ErrorCode::kInvalidArgument, "a text of a library has more than ", kMostTextBytes,
          " bytes, or no end: ", std::string(text, 32), "…");
  return {text ? text : "", bytes};
}

// Returns the reason why a struct must not be read; null if it may be read.
template <class Struct>
const char* ProblemOfStruct(const Struct* it) {
  if (!it) return "is null";
  if (!IsAligned(it)) return "is not aligned";
  if (it->size < kFirstBytes<Struct>) return "is shorter than version 1.0's";
  return IsReadable(it) ? nullptr : "says a size that it cannot have";
}

OPKIT_INLINE std::string ProblemOfView(const opkit_tensor* view) {
  if (const char* problem = ProblemOfStruct(view)) return problem;
  if (view->dtype <= 0 || view->dtype >= kNumPlainDTypes)
    return StrCat("has the dtype ", view->dtype, ", which does not exist");
  if (view->rank < 0 || view->rank > OPKIT_MAX_RANK) return StrCat("has the rank ", view->rank);
  if (view->device_type <= 0)
    return StrCat("is on a device of the type ", view->device_type, ", which does not exist");
  if (view->rank > 0 && (!view->shape || !view->strides)) return "has no shape or no strides";
  if (!IsAligned(view->shape) || !IsAligned(view->strides))
    return "has a shape or strides that are not aligned";
  bool is_empty = false;
  for (int i = 0; i < view->rank; ++i) {
    if (view->shape[i] < 0) return StrCat("has the extent ", view->shape[i], " on axis ", i);
    is_empty |= view->shape[i] == 0;
  }
  int64_t bytes = 0;
  if (!CountBytes(*view, &bytes)) return "reaches further than 64 bits can count";
  if (!view->data) return is_empty ? "" : "has no memory";
  const auto dtype = static_cast<DType>(view->dtype);
  const auto alignment = static_cast<uintptr_t>(ItemSize(dtype)) / (IsComplex(dtype) ? 2 : 1);
  return reinterpret_cast<uintptr_t>(view->data) % alignment == 0
             ? ""
             : "has memory that is not aligned to its elements";
}
OPKIT_INLINE std::string ProblemOfAttr(const opkit_attr* attr) {
  if (const char* problem = ProblemOfStruct(attr)) return problem;
  if (attr->type < 0 || attr->type > OPKIT_ATTR_TENSORS)
    return StrCat("has the type ", attr->type, ", which does not exist");
  if (!attr->name) return "has no name";
  if (attr->count > kMostParts) return StrCat("has ", attr->count, " elements");
  if (attr->type < OPKIT_ATTR_INTS && attr->count != 1)
    return StrCat("has ", attr->count, " elements and is no list");
  const int type = attr->type % 5;
  const bool is_tensor = type == OPKIT_ATTR_TENSOR, is_text = type == OPKIT_ATTR_STRING;
  const void* elements = is_tensor                  ? static_cast<const void*>(attr->tensors)
                         : is_text                  ? static_cast<const void*>(attr->strings)
                         : type == OPKIT_ATTR_FLOAT ? static_cast<const void*>(attr->floats)
                                                    : static_cast<const void*>(attr->ints);
  if (attr->count > 0 && (!elements || (is_text && !attr->string_sizes)))
    return "has elements that are null";
  if (reinterpret_cast<uintptr_t>(elements) % 8 != 0 || (is_text && !IsAligned(attr->string_sizes)))
    return "has elements that are not aligned";
  for (uint64_t i = 0; i < attr->count; ++i) {
    if (is_text && !attr->strings[i]) return "has a null string";
    if (is_text && attr->string_sizes[i] > kMostStringBytes)
      return StrCat("has a string of ", attr->string_sizes[i], " bytes");
    if (!is_tensor) continue;
    if (const std::string problem = ProblemOfView(attr->tensors[i]); !problem.empty())
      return StrCat("has a tensor that ", problem);
    if (attr->tensors[i]->device_type != OPKIT_CPU) return "has a tensor that is not on the CPU";
  }
  return "";
}

OPKIT_INLINE Tensor TensorOfView(const opkit_tensor& view, const Tensor* host) {
  RequireView(&view, "a tensor of a library ");
  const Device device{static_cast<DeviceType>(view.device_type), view.device_index};
  const auto dtype = static_cast<DType>(view.dtype);
  const auto rank = static_cast<size_t>(view.rank);
  Shape shape(Dims(view.shape, rank));
  Dims strides(view.strides, rank);
  if (host && host->raw_data() == view.data && host->dtype() == dtype && host->shape() == shape &&
      host->strides() == strides)
    return *host;
  int64_t bytes = 0;
  CountBytes(view, &bytes);
  if (host && host->storage()) {
    const auto* const begin = static_cast<const char*>(host->storage()->data());
    const int64_t offset = static_cast<const char*>(view.data) - begin;
    if (offset >= 0 && offset <= host->storage()->nbytes() - bytes)
      return Tensor(host->storage(), offset, std::move(shape), dtype, std::move(strides));
  }
  return Tensor(AdoptStorage(MemoryDevice(device), view.data, bytes), 0, std::move(shape), dtype,
                std::move(strides));
}

// An opkit_attr with all data that it points to.
struct AbiAttribute : RefCounted {
  AbiAttribute(const std::string& attribute_name, const Attribute& attribute)
      : name(attribute_name),
        text(AttributeText(attribute)),
        value(attribute),
        string_data(value.values().strings.size()),
        string_sizes(string_data.size()),
        strides(value.values().tensors.size()),
        views(strides.size()),
        view_pointers(strides.size()) {
    const Attribute::Values& all = value.values();
    for (size_t i = 0; i < all.strings.size(); ++i) {
      string_data[i] = all.strings[i].c_str();
      string_sizes[i] = all.strings[i].size();
    }
    for (size_t i = 0; i < all.tensors.size(); ++i) {
      const Tensor& tensor = all.tensors[i];
      if (tensor.dtype() != DType::kUndefined) RequirePlain(tensor.dtype(), "attribute ", name);
      strides[i] = tensor.strides();
      views[i] = OpTensor(tensor.raw_mutable_data(), tensor.dtype(), tensor.shape().data(),
                          strides[i].data(), tensor.rank(), tensor.device());
      views[i].Bind(&tensor);
      view_pointers[i] = &views[i].view();
    }
    attr.size = sizeof attr;
    attr.name = name.c_str();
    attr.type = static_cast<int32_t>(value.type());
    attr.count = value.size();
    attr.ints = all.ints.data();
    attr.floats = all.floats.data();
    attr.strings = string_data.data();
    attr.string_sizes = string_sizes.data();
    attr.tensors = view_pointers.data();
    attr.text = text.c_str();
  }

  std::string name, text;
  Attribute value;
  std::vector<const char*> string_data;
  std::vector<uint64_t> string_sizes;
  std::vector<Dims> strides;
  std::vector<OpTensor> views;
  std::vector<const opkit_tensor*> view_pointers;
  opkit_attr attr{};
};

OPKIT_INLINE AbiAttributes::AbiAttributes(const Arguments& arguments) {
  for (const NamedAttribute& argument : arguments) {
    auto item = MakeIntrusive<AbiAttribute>(argument.name, argument.value);
    pointers_.push_back(&item->attr);
    items_.push_back(std::move(item));
  }
}

OPKIT_INLINE Arguments ArgumentsOfAbi(const opkit_attr* const* attrs, uint64_t count) {
  Arguments out;
  if (count > kMostParts || (count > 0 && !IsUsable(attrs)))
    Throw(ErrorCode::kInvalidArgument, "a library gives ", count, " attributes",
          attrs ? "" : ", which are null");
  for (uint64_t i = 0; i < count; ++i) {
    if (const std::string problem = ProblemOfAttr(attrs[i]); !problem.empty()) [[unlikely]]
      Throw(ErrorCode::kInvalidArgument, "attribute ", i,
            IsReadable(attrs[i]) && attrs[i]->name ? StrCat(" '", TextOfAbi(attrs[i]->name), "'")
                                                   : std::string(),
            " of a library ", problem);
    const opkit_attr& attr = *attrs[i];
    auto values = MakeIntrusive<Attribute::Values>();
    for (uint64_t k = 0; k < attr.count; ++k) {
      const int type = attr.type % 5;
      if (type == OPKIT_ATTR_INT || type == OPKIT_ATTR_BOOL)
        values->ints.push_back(type == OPKIT_ATTR_INT ? attr.ints[k] : attr.ints[k] != 0);
      else if (type == OPKIT_ATTR_FLOAT)
        values->floats.push_back(attr.floats[k]);
      else if (type == OPKIT_ATTR_STRING)
        values->strings.emplace_back(attr.strings[k], attr.string_sizes[k]);
      else
        values->tensors.emplace_back().CopyFrom(TensorOfView(*attr.tensors[k]));
    }
    out.Set(TextOfAbi(attr.name),
            Attribute(static_cast<AttributeType>(attr.type), std::move(values)));
  }
  return out;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_BOUNDARY_CONVERT_IMPL_ABI_ATTRIBUTES_IPP_
