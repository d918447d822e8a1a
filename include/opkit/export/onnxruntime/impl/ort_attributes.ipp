// The definitions of ort_attributes.hpp.
#ifndef OPKIT_EXPORT_ONNXRUNTIME_IMPL_ORT_ATTRIBUTES_IPP_
#define OPKIT_EXPORT_ONNXRUNTIME_IMPL_ORT_ATTRIBUTES_IPP_

#include <cstring>
#include <optional>

#include "opkit/export/core.hpp"
#include "opkit/export/onnxruntime/ort_attributes.hpp"
#include "opkit/export/onnxruntime/ort_tensor.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Reads one kind of value of a kernel's attribute; nothing if the node has no such value.
class OPKIT_IMAGE_LOCAL KernelAttribute {
 public:
  KernelAttribute(const OrtApi& api, const void* info, const char* name)
      : api_(api), info_(info), name_(name) {}

  std::optional<Attribute> Read() const {
    float number = 0;
    if (api_.Try(OrtPlace::kKernelInfoGetAttributeFloat, info_, name_, &number))
      return Attribute(number);
    int64_t integer = 0;
    if (api_.Try(OrtPlace::kKernelInfoGetAttributeInt64, info_, name_, &integer))
      return Attribute(integer);
    size_t size = 0;
    if (api_.Try(OrtPlace::kKernelInfoGetAttributeString, info_, name_, kNoBuffer, &size)) {
      std::string text(size, '\0');  // the size counts the zero at the end
      api_.Call(OrtPlace::kKernelInfoGetAttributeString, info_, name_, text.data(), &size);
      text.resize(size > 0 ? size - 1 : 0);
      return Attribute(text);
    }
    if (auto list = ReadList<float>(OrtPlace::kKernelInfoGetAttributeArrayFloat)) return list;
    if (auto list = ReadList<int64_t>(OrtPlace::kKernelInfoGetAttributeArrayInt64)) return list;
    if (auto list = ReadStrings()) return list;
    return ReadTensor();
  }

 private:
  static constexpr char* kNoBuffer = nullptr;

  template <class T>
  std::optional<Attribute> ReadList(OrtPlace place) const {
    size_t size = 0;
    // An empty list of another type counts as none.
    if (!api_.Try(place, info_, name_, static_cast<T*>(nullptr), &size) || size == 0) return {};
    std::vector<T> values(size);
    api_.Call(place, info_, name_, values.data(), &size);
    return Attribute(values);
  }
  void* Allocator() const {
    void* allocator = nullptr;
    api_.Call(OrtPlace::kGetAllocatorWithDefaultOptions, &allocator);
    return allocator;
  }
  std::optional<Attribute> ReadStrings() const {
    if (!api_.Has(25)) return {};
    void* const allocator = Allocator();
    char** texts = nullptr;
    size_t size = 0;
    if (!api_.Try(OrtPlace::kKernelInfoGetAttributeArrayString, info_, name_, allocator, &texts,
                  &size) ||
        size == 0)
      return {};
    std::vector<std::string> list;
    for (size_t i = 0; i < size; ++i) {
      list.emplace_back(texts[i]);
      api_.Try(OrtPlace::kAllocatorFree, allocator, static_cast<void*>(texts[i]));
    }
    api_.Try(OrtPlace::kAllocatorFree, allocator, static_cast<void*>(texts));
    return Attribute(list);
  }
  std::optional<Attribute> ReadTensor() const {
    void* value = nullptr;
    if (!api_.Try(OrtPlace::kKernelInfoGetAttributeTensor, info_, name_, Allocator(), &value))
      return {};
    const struct Release {
      const OrtApi& api;
      void* value;
      ~Release() { api.Plain<void>(OrtPlace::kReleaseValue, value); }
    } release{api_, value};
    const OrtTensor from(api_, value, {});
    Tensor copy(Shape(Dims(from.shape, static_cast<size_t>(from.rank))), from.dtype);
    if (copy.nbytes() > 0)
      std::memcpy(copy.raw_mutable_data(), from.data, static_cast<size_t>(copy.nbytes()));
    return Attribute(copy);
  }

  const OrtApi& api_;
  const void* info_;
  const char* name_;
};

// Reads the value of an attribute in shape inference, where a host gives the elements of any type
// that it is asked for, none if the attribute has another type.
class OPKIT_IMAGE_LOCAL InferenceAttribute {
 public:
  InferenceAttribute(const OrtApi& api, const void* attribute) : api_(api), attribute_(attribute) {}

  std::optional<Attribute> Read() const {
    float number = 0;
    size_t bytes = 0;
    if (Try(OrtAttribute::kFloat, &number, sizeof number, &bytes)) return Attribute(number);
    int64_t integer = 0;
    if (Try(OrtAttribute::kInt, &integer, sizeof integer, &bytes)) return Attribute(integer);
    if (const std::string text = Bytes(OrtAttribute::kString); text.size() > 1)
      return Attribute(text.substr(0, text.size() - 1));
    if (auto list = ReadList<float>(OrtAttribute::kFloats)) return list;
    if (auto list = ReadList<int64_t>(OrtAttribute::kInts)) return list;
    // Texts one after the other, each with a zero at its end.
    std::vector<std::string> texts;
    const std::string all = Bytes(OrtAttribute::kStrings);
    for (size_t at = 0; at < all.size(); at += texts.back().size() + 1)
      texts.emplace_back(all.c_str() + at);
    if (!texts.empty()) return Attribute(texts);
    return {};
  }

 private:
  bool Try(OrtAttribute type, void* data, size_t size, size_t* bytes) const {
    return api_.Try(OrtPlace::kReadOpAttr, attribute_, static_cast<int>(type), data, size, bytes);
  }
  std::string Bytes(OrtAttribute type) const {
    std::string read(1, '\0');
    size_t bytes = 0;
    if (!Try(type, read.data(), read.size(), &bytes)) {  // too small
      read.resize(bytes);
      if (!Try(type, read.data(), read.size(), &bytes)) return {};
    }
    read.resize(bytes);
    return read;
  }
  template <class T>
  std::optional<Attribute> ReadList(OrtAttribute type) const {
    const std::string read = Bytes(type);
    if (read.empty()) return {};
    std::vector<T> values(read.size() / sizeof(T));
    std::memcpy(values.data(), read.data(), read.size());
    return Attribute(values);
  }

  const OrtApi& api_;
  const void* attribute_;
};

OPKIT_INLINE Arguments KernelArguments(const OrtApi& api, const OpSchema& schema,
                                       const void* kernel_info) {
  Arguments args;
  for (const AttributeSchema& declared : schema.attributes()) {
    if (declared.type == AttributeType::kStrings && !api.Has(25))
      Throw(ErrorCode::kUnsupported, "attribute '", declared.name, "' of operator ", schema.name(),
            " is a list of strings, which ONNX Runtime before 1.25 gives to no kernel");
    if (auto value = KernelAttribute(api, kernel_info, declared.name.c_str()).Read())
      args.Set(declared.name, FitAttribute(&declared, *std::move(value)));
  }
  return args;
}
OPKIT_INLINE Arguments InferenceArguments(const OrtApi& api, const OpSchema& schema,
                                          const void* infer_context) {
  Arguments args;
  for (const AttributeSchema& declared : schema.attributes()) {
    const void* attribute = nullptr;
    if (!api.Try(OrtPlace::kShapeInferContextGetAttribute, infer_context, declared.name.c_str(),
                 &attribute) ||
        !attribute)
      continue;
    if (auto value = InferenceAttribute(api, attribute).Read())
      args.Set(declared.name, FitAttribute(&declared, *std::move(value)));
  }
  return args;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_ONNXRUNTIME_IMPL_ORT_ATTRIBUTES_IPP_
