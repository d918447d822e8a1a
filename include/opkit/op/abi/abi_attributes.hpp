// Attributes across opkit_abi.h: Arguments as an array of opkit_attr, and back.
#ifndef OPKIT_OP_ABI_ABI_ATTRIBUTES_HPP_
#define OPKIT_OP_ABI_ABI_ATTRIBUTES_HPP_

#include "opkit/op/abi/abi_check.hpp"
#include "opkit/op/abi/attr_map.hpp"
#include "opkit/op/abi/op_tensor.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

static_assert(static_cast<int>(AttributeType::kTensors) == OPKIT_ATTR_TENSORS);
static_assert(static_cast<int>(DType::kComplex128) == OPKIT_COMPLEX128);

// A view of `tensor`, which with `strides` must outlive it.
template <class AnyTensor>
opkit_tensor AbiTensor(const AnyTensor& tensor, const Dims& strides) {
  OpTensor view(tensor.raw_mutable_data(), tensor.dtype(), tensor.shape().data(), strides.data(),
                tensor.rank(), tensor.device());
  view.Bind(&tensor);
  return view.view();
}
// The memory that another image views: `host` itself, where the view is still that of it, or a part
// of its storage, or memory of the other image's. Error (kInvalidArgument) for what is no view.
template <class AnyTensor = Tensor>
AnyTensor TensorOfView(const opkit_tensor& view, const AnyTensor* host = nullptr) {
  if (const std::string problem = ProblemOfView(&view); !problem.empty()) [[unlikely]]
    Throw(ErrorCode::kInvalidArgument, "a tensor of a library ", problem);
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
      return AnyTensor(host->storage(), offset, std::move(shape), dtype, std::move(strides));
  }
  return AnyTensor(AdoptStorage(MemoryDevice(device), view.data, bytes), 0, std::move(shape), dtype,
                   std::move(strides));
}

// Holds all that the array points to. A template, so that programs without function operators do
// not compile it.
template <class Args>
class BasicAbiAttributes {
 public:
  explicit BasicAbiAttributes(const Args& arguments) {
    items_.reserve(arguments.size());
    for (const auto& argument : arguments) Add(argument.name, argument.value);
    for (const Item& item : items_) pointers_.push_back(&item.attr);
  }
  BasicAbiAttributes(const BasicAbiAttributes&) = delete;
  BasicAbiAttributes& operator=(const BasicAbiAttributes&) = delete;

  const opkit_attr* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  struct Item {
    std::string name, text;
    std::vector<int64_t> ints;
    std::vector<double> floats;
    std::vector<std::string> strings;
    std::vector<const char*> string_data;
    std::vector<uint64_t> string_sizes;
    std::vector<Tensor> tensors;
    std::vector<Dims> strides;
    std::vector<opkit_tensor> views;
    std::vector<const opkit_tensor*> view_pointers;
    opkit_attr attr{};
  };
  template <class T, class Value>
  static std::vector<T> ListOf(const Value& value) {
    if (value.is_list()) return value.template Get<std::vector<T>>();
    return {value.template Get<T>()};
  }
  template <class Value>
  void Add(const std::string& name, const Value& value) {
    Item& item = items_.emplace_back();
    item.name = name;
    item.text = AttributeText(value);
    opkit_attr& attr = item.attr;
    attr.size = sizeof attr;
    attr.type = static_cast<int32_t>(value.type());
    attr.count = value.is_list() ? value.size() : 1;
    switch (attr.type % 5) {
      case OPKIT_ATTR_INT:
        item.ints = ListOf<int64_t>(value);
        break;
      case OPKIT_ATTR_BOOL:
        for (bool one : ListOf<bool>(value)) item.ints.push_back(one);
        break;
      case OPKIT_ATTR_FLOAT:
        item.floats = ListOf<double>(value);
        break;
      case OPKIT_ATTR_STRING:
        item.strings = ListOf<std::string>(value);
        for (const std::string& text : item.strings) {
          item.string_data.push_back(text.c_str());
          item.string_sizes.push_back(text.size());
        }
        break;
      default:
        item.tensors = ListOf<Tensor>(value);
        for (const Tensor& tensor : item.tensors) item.strides.push_back(tensor.strides());
        for (size_t i = 0; i < item.tensors.size(); ++i)
          item.views.push_back(AbiTensor(item.tensors[i], item.strides[i]));
        for (const opkit_tensor& view : item.views) item.view_pointers.push_back(&view);
    }
    attr.name = item.name.c_str();
    attr.text = item.text.c_str();
    attr.ints = item.ints.data();
    attr.floats = item.floats.data();
    attr.strings = item.string_data.data();
    attr.string_sizes = item.string_sizes.data();
    attr.tensors = item.view_pointers.data();
  }

  std::vector<Item> items_;
  std::vector<const opkit_attr*> pointers_;
};
using AbiAttributes = BasicAbiAttributes<Arguments>;

// Copies everything. Error (kInvalidArgument) for what is no attribute.
template <class Args = Arguments>
Args ArgumentsOfAbi(const opkit_attr* const* attrs, uint64_t count) {
  Args out;
  if (count > kMostParts || (count > 0 && !attrs))
    Throw(ErrorCode::kInvalidArgument, "a library hands over ", count, " attributes",
          attrs ? "" : ", which are null");
  for (uint64_t i = 0; i < count; ++i) {
    if (const std::string problem = ProblemOfAttr(attrs[i]); !problem.empty()) [[unlikely]]
      Throw(ErrorCode::kInvalidArgument, "attribute ", i,
            attrs[i] && attrs[i]->name ? StrCat(" '", attrs[i]->name, "'") : std::string(),
            " of a library ", problem);
    const opkit_attr& attr = *attrs[i];
    const size_t n = attr.count;
    auto set = [&](auto list) {
      if (attr.type >= OPKIT_ATTR_INTS) return out.Set(attr.name, std::move(list));
      typename decltype(list)::value_type one = list[0];
      out.Set(attr.name, Attribute(one));
    };
    switch (attr.type % 5) {
      case OPKIT_ATTR_INT:
        set(std::vector<int64_t>(attr.ints, attr.ints + n));
        break;
      case OPKIT_ATTR_BOOL:
        set(std::vector<bool>(attr.ints, attr.ints + n));
        break;
      case OPKIT_ATTR_FLOAT:
        set(std::vector<double>(attr.floats, attr.floats + n));
        break;
      case OPKIT_ATTR_STRING: {
        std::vector<std::string> texts;
        for (size_t k = 0; k < n; ++k) texts.emplace_back(attr.strings[k], attr.string_sizes[k]);
        set(std::move(texts));
        break;
      }
      default: {
        std::vector<Tensor> tensors;
        for (size_t k = 0; k < n; ++k) {
          Tensor copy;
          copy.CopyFrom(TensorOfView(*attr.tensors[k]));
          tensors.push_back(std::move(copy));
        }
        set(std::move(tensors));
      }
    }
  }
  return out;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_ABI_ABI_ATTRIBUTES_HPP_
