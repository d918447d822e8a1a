// Converts the parts of a graph to JSON values and back: strings, devices, shapes, tensors,
// attributes. For a wrong value throws an Error that begins with the path in the document.
#ifndef OPKIT_INTEROP_JSON_VALUES_HPP_
#define OPKIT_INTEROP_JSON_VALUES_HPP_

#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>

#include "opkit/base/algorithm.hpp"
#include "opkit/base/index.hpp"
#include "opkit/core/attribute.hpp"
#include "opkit/core/symbolic_shape.hpp"
#include "opkit/interop/base64.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

using Json = nlohmann::ordered_json;  // members keep the order in which they were written

[[noreturn]] OPKIT_COLD inline void ThrowAtPath(const std::string& path, const std::string& what,
                                                ErrorCode code = ErrorCode::kInvalidArgument) {
  Throw(code, path.empty() ? "the document" : path, ": ", what);
}
// Calls `call` and puts the path before the message of its Error.
template <class F>
auto AtPath(const std::string& path, F&& call) {
  try {
    return call();
  } catch (const Error& error) {
    ThrowAtPath(path, error.message(), error.code());
  }
}
inline std::string Member(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : StrCat(path, ".", name);
}
inline std::string Element(const std::string& path, size_t i) { return StrCat(path, "[", i, "]"); }

[[noreturn]] OPKIT_COLD inline void ThrowWrongJson(const Json& json, const std::string& path,
                                                   const std::string& expected) {
  ThrowAtPath(path, StrCat("expected ", expected, ", found ", json.type_name()));
}

// A JSON object. The constructor throws for members that are not `known`, so that a misspelt name
// is an Error.
class JsonObject {
 public:
  JsonObject(const Json& json, std::string path, const std::vector<std::string>& known)
      : json_(json), path_(std::move(path)) {
    if (!json.is_object()) ThrowWrongJson(json, path_, "an object");
    for (const auto& item : json.items())
      if (!Contains(known, item.key()))
        ThrowAtPath(path_,
                    StrCat("has no member '", item.key(), "'", SuggestName(item.key(), known)));
  }
  // Returns a member; null if the object lacks it.
  const Json* Find(const char* name) const {
    const auto it = json_.find(name);
    return it == json_.end() ? nullptr : &*it;
  }
  // Returns a member. Throws kInvalidArgument if the object lacks it.
  const Json& Get(const char* name) const {
    const Json* found = Find(name);
    if (!found) ThrowAtPath(path_, StrCat("needs the member '", name, "'"));
    return *found;
  }
  std::string PathOf(const char* name) const { return Member(path_, name); }

  // Returns convert(member, path), such as StringFromJson. Throws kInvalidArgument if the object
  // lacks the member, unless a fallback is given.
  template <class Convert>
  auto Read(const char* name, Convert convert) const {
    return convert(Get(name), PathOf(name));
  }
  template <class Convert, class T>
  T Read(const char* name, Convert convert, T fallback) const {
    const Json* found = Find(name);
    return found ? convert(*found, PathOf(name)) : fallback;
  }

  // Calls f(value, path) for each element of the array `name`; a missing array is empty.
  template <class F>
  void ForEach(const char* name, F&& f) const {
    const Json* list = Find(name);
    if (!list) return;
    if (!list->is_array()) ThrowWrongJson(*list, PathOf(name), "an array");
    for (size_t i = 0; i < list->size(); ++i) f((*list)[i], Element(PathOf(name), i));
  }
  template <class F>
  void ForEachMember(const char* name, F&& f) const {
    const Json* object = Find(name);
    if (!object) return;
    if (!object->is_object()) ThrowWrongJson(*object, PathOf(name), "an object");
    for (const auto& item : object->items())
      f(item.key(), item.value(), Member(PathOf(name), item.key()));
  }

 private:
  const Json& json_;
  const std::string path_;
};

// True if `text` is UTF-8 and can be a JSON string. A string of other bytes is written as
// {"base64": …}.
inline bool IsUtf8(const std::string& text) {
  try {
    static_cast<void>(Json(text).dump());
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}
inline Json ToJson(const std::string& text) {
  if (IsUtf8(text)) return text;
  return {{"base64", EncodeBase64(text)}};
}
// Returns the bytes that a string of base64 encodes.
inline std::string BytesFromJson(const Json& json, const std::string& path) {
  if (!json.is_string()) ThrowWrongJson(json, path, "a string of base64");
  auto bytes = DecodeBase64(json.get_ref<const std::string&>());
  if (!bytes) ThrowAtPath(path, "is not base64");
  return *std::move(bytes);
}
inline std::string StringFromJson(const Json& json, const std::string& path) {
  if (json.is_string()) return json.get_ref<const std::string&>();
  if (!json.is_object()) ThrowWrongJson(json, path, "a string");
  return JsonObject(json, path, {"base64"}).Read("base64", BytesFromJson);
}

inline int64_t IntFromJson(const Json& json, const std::string& path) {
  if (!json.is_number_integer()) ThrowWrongJson(json, path, "an integer");
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    ThrowAtPath(path, StrCat(json.get<uint64_t>(), " does not fit in int64"),
                ErrorCode::kOutOfRange);
  return json.get<int64_t>();
}
inline bool BoolFromJson(const Json& json, const std::string& path) {
  if (!json.is_boolean()) ThrowWrongJson(json, path, "true or false");
  return json.get<bool>();
}

// Converts a number. Infinities and NaN, for which JSON has no number, become strings: "inf",
// "-inf", "nan", or for any other NaN "0x" and the 16 hexadecimal digits of its bits.
inline Json ToJson(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  if ((bits >> 52 & 0x7ff) != 0x7ff) return value;
  if (bits << 12 == 0) return bits >> 63 ? "-inf" : "inf";
  if (bits == 0x7ff8000000000000) return "nan";
  std::string text = "0x";
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[bits >> shift & 15];
  return text;
}
inline double FloatFromJson(const Json& json, const std::string& path) {
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number_integer()) {
    const int64_t integer = IntFromJson(json, path);
    if (integer < -(int64_t{1} << 53) || integer > int64_t{1} << 53)
      ThrowAtPath(path, StrCat(integer, " is no floating-point number; write it with a point"));
    return static_cast<double>(integer);
  }
  if (!json.is_string()) ThrowWrongJson(json, path, "a number");
  const std::string& text = json.get_ref<const std::string&>();
  if (text == "inf") return std::bit_cast<double>(uint64_t{0x7ff} << 52);
  if (text == "-inf") return std::bit_cast<double>(uint64_t{0xfff} << 52);
  if (text == "nan") return std::bit_cast<double>(uint64_t{0x7ff8000000000000});
  uint64_t bits = 0;
  const char* end = text.data() + text.size();
  if (text.size() == 18 && text.compare(0, 2, "0x") == 0 &&
      std::from_chars(text.data() + 2, end, bits, 16).ptr == end)
    return std::bit_cast<double>(bits);
  ThrowAtPath(path, StrCat("\"", text, "\" is no number; expected a number, \"inf\", \"-inf\", ",
                           "\"nan\" or \"0x\" and 16 digits"));
}

// Converts a device to "cpu" or "cuda:1"; to "device_type_93" for a type without a name in this
// program.
inline Json ToJson(Device device) { return ToString(device); }
inline Device DeviceFromJson(const Json& json, const std::string& path) {
  if (!json.is_string()) ThrowWrongJson(json, path, "a device, such as \"cpu\" or \"cuda:1\"");
  const std::string_view text = json.get_ref<const std::string&>();
  const std::string_view name = text.substr(0, text.find(':'));
  const auto parse = [&](std::string_view digits) {
    int32_t value = 0;
    const char* end = digits.data() + digits.size();
    if (digits.empty() || std::from_chars(digits.data(), end, value).ptr != end)
      ThrowAtPath(path, StrCat("device \"", text, "\" has no number where one is expected"));
    return value;
  };
  Device device;
  if (name.size() < text.size()) device.index = parse(text.substr(name.size() + 1));
  constexpr std::string_view kUnnamed = "device_type_";
  if (name.substr(0, kUnnamed.size()) == kUnnamed) {
    device.type = static_cast<DeviceType>(parse(name.substr(kUnnamed.size())));
    return device;
  }
  if (const int type = FindDeviceType(name); type >= 0) {
    device.type = static_cast<DeviceType>(type);
    return device;
  }
  std::vector<std::string> known;
  {
    MutexLock lock(DeviceTypes().mutex);
    for (const auto& entry : DeviceTypes().entries) known.push_back(entry.info.name);
  }
  ThrowAtPath(path, StrCat("no device type is called '", name, "'", SuggestName(name, known)),
              ErrorCode::kNotFound);
}

inline DType DTypeFromJson(const Json& json, const std::string& path) {
  if (!json.is_string()) ThrowWrongJson(json, path, "a dtype, such as \"float32\"");
  const std::string& name = json.get_ref<const std::string&>();
  const DType dtype = DTypeFromName(name);
  if (dtype != DType::kUndefined || name == ToString(DType::kUndefined)) return dtype;
  std::vector<std::string> known;
  for (int i = 0; i < kNumDTypes; ++i) known.emplace_back(ToString(static_cast<DType>(i)));
  ThrowAtPath(path, StrCat("no dtype is called '", name, "'", SuggestName(name, known)),
              ErrorCode::kNotFound);
}

inline std::vector<std::string> StringsFromJson(const Json& json, const std::string& path) {
  if (!json.is_array()) ThrowWrongJson(json, path, "an array of strings");
  std::vector<std::string> strings;
  for (size_t i = 0; i < json.size(); ++i)
    strings.push_back(StringFromJson(json[i], Element(path, i)));
  return strings;
}

// Converts a shape to an array of numbers, symbols (strings) and null for unknown extents. An
// unknown rank becomes null.
inline Json ToJson(const SymbolicShape& shape) {
  if (!shape.has_rank()) return nullptr;
  Json out = Json::array();
  for (const Dim& dim : shape.dims())
    out.push_back(dim.is_known()    ? Json(dim.value())
                  : dim.is_symbol() ? ToJson(dim.symbol())
                                    : Json(nullptr));
  return out;
}
inline SymbolicShape ShapeFromJson(const Json& json, const std::string& path) {
  if (json.is_null()) return {};
  if (!json.is_array()) ThrowWrongJson(json, path, "an array of extents, or null");
  std::vector<Dim> dims;
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string at = Element(path, i);
    if (json[i].is_null()) {
      dims.emplace_back();
    } else if (json[i].is_number()) {
      const int64_t extent = IntFromJson(json[i], at);
      dims.push_back(AtPath(at, [&] { return Dim(extent); }));
    } else {
      dims.push_back(Sym(StringFromJson(json[i], at)));
      if (!dims.back().is_symbol()) ThrowAtPath(at, "a symbol needs a name");
    }
  }
  return SymbolicShape(std::move(dims));
}

// Converts a tensor. The elements are written in row-major order, little-endian, as base64; strings
// are an array of strings.
inline Json ToJson(const Tensor& tensor, const std::string& path) {
  static_assert(std::endian::native == std::endian::little,
                "tensors in JSON are little-endian; this machine would have to swap bytes");
  Json out = {{"dtype", ToString(tensor.dtype())},
              {"shape", ToJson(SymbolicShape(tensor.shape()))}};
  if (tensor.device() != Device{}) out["device"] = ToJson(tensor.device());
  if (tensor.dtype() == DType::kUndefined) return out;
  return AtPath(path, [&] {
    const Tensor dense = tensor.is_dense() && tensor.initialized() && tensor.layout().is_standard()
                             ? tensor
                             : tensor.Contiguous();  // throws the reason if it cannot copy
    if (!IsHostAccessible(tensor.device().type))
      Throw(ErrorCode::kUnsupported, "tensor ", ToString(tensor),
            " is not reachable from the host; copy it to the cpu first");
    if (dense.dtype() == DType::kString) {
      Json& strings = out["data"] = Json::array();
      for (const std::string& text : dense.ToVector<std::string>()) strings.push_back(ToJson(text));
      return out;
    }
    const auto bytes = static_cast<size_t>(dense.nbytes());
    out["data"] = EncodeBase64({bytes ? static_cast<const char*>(dense.raw_data()) : "", bytes});
    return out;
  });
}
inline Tensor TensorFromJson(const Json& json, const std::string& path) {
  const JsonObject object(json, path, {"dtype", "shape", "device", "data"});
  const DType dtype = object.Read("dtype", DTypeFromJson);
  const SymbolicShape extents = object.Read("shape", ShapeFromJson);
  const Shape shape = AtPath(object.PathOf("shape"), [&] { return extents.ToShape(); });
  const Device device = object.Read("device", DeviceFromJson, Device{});
  if (dtype == DType::kUndefined) {
    if (object.Find("data")) ThrowAtPath(path, "a tensor without dtype has no data");
    Tensor out(device);
    out.Resize(shape);
    return out;
  }
  if (dtype == DType::kString) {
    const auto strings = object.Read("data", StringsFromJson);
    if (static_cast<int64_t>(strings.size()) != shape.numel())
      ThrowAtPath(object.PathOf("data"), StrCat("has ", strings.size(), " strings, but ", dtype,
                                                ToString(shape), " has ", shape.numel()));
    return AtPath(path, [&] {
      Tensor out(shape, dtype, device);
      std::copy(strings.begin(), strings.end(), out.mutable_data<std::string>());
      return out;
    });
  }
  const int64_t needed =
      AtPath(object.PathOf("shape"), [&] { return Tensor::CheckedBytes(shape, dtype); });
  const std::string bytes = object.Read("data", BytesFromJson);
  if (bytes.size() != static_cast<uint64_t>(needed))
    ThrowAtPath(object.PathOf("data"), StrCat("holds ", bytes.size(), " bytes, but ", dtype,
                                              ToString(shape), " has ", needed));
  if (dtype == DType::kBool)
    for (const char byte : bytes)
      if (byte != 0 && byte != 1)
        ThrowAtPath(object.PathOf("data"), "holds a byte that is no bool");
  if (!IsHostAccessible(device.type))
    ThrowAtPath(object.PathOf("device"),
                StrCat("memory of ", ToString(device), " is not reachable from the host"),
                ErrorCode::kUnsupported);
  return AtPath(path, [&] {
    Tensor out(shape, dtype, device);
    if (!bytes.empty()) std::memcpy(out.raw_mutable_data(), bytes.data(), bytes.size());
    return out;
  });
}

// Converts the value of an attribute of type T or a list of T. For example, an attribute as a whole
// becomes {"int": 3} or {"floats": [0.5, "inf"]}: the member's name is the type.
template <class T>
Json ListToJson(const Attribute& attribute, const std::string& path) {
  const auto convert = [](const T& value, const std::string& at) -> Json {
    if constexpr (std::is_same_v<T, Tensor>)
      return ToJson(value, at);
    else if constexpr (std::is_integral_v<T>)
      return value;
    else
      return ToJson(value);
  };
  if (!attribute.is_list()) return convert(attribute.Get<T>(), path);
  Json out = Json::array();
  for (const T& value : attribute.Get<std::vector<T>>())
    out.push_back(convert(value, Element(path, out.size())));
  return out;
}
inline Json ToJson(const Attribute& attribute, const std::string& path) {
  Json out = Json::object();
  Json& value = out[ToString(attribute.type())];
  switch (static_cast<AttributeType>(static_cast<int>(attribute.type()) % 5)) {
    case AttributeType::kFloat:
      value = ListToJson<double>(attribute, path);
      break;
    case AttributeType::kBool:
      value = ListToJson<bool>(attribute, path);
      break;
    case AttributeType::kString:
      value = ListToJson<std::string>(attribute, path);
      break;
    case AttributeType::kTensor:
      value = ListToJson<Tensor>(attribute, path);
      break;
    default:
      value = ListToJson<int64_t>(attribute, path);
  }
  return out;
}
template <class T, class F>
Attribute ListFromJson(const Json& json, const std::string& path, bool is_list, F&& convert) {
  if (!is_list) return Attribute(T(convert(json, path)));
  if (!json.is_array()) ThrowWrongJson(json, path, "an array");
  std::vector<T> values;
  for (size_t i = 0; i < json.size(); ++i) values.push_back(convert(json[i], Element(path, i)));
  return Attribute(values);
}
inline Attribute AttributeFromJson(const Json& json, const std::string& path) {
  constexpr int kTypes = 10;
  if (!json.is_object() || json.size() != 1)
    ThrowAtPath(path,
                "expected an object with one member that names the type, such as {\"float\": 0.5}");
  const std::string& name = json.begin().key();
  std::vector<std::string> known;
  for (int i = 0; i < kTypes; ++i) known.emplace_back(ToString(static_cast<AttributeType>(i)));
  int type = 0;
  while (type < kTypes && known[Index(type)] != name) ++type;
  if (type == kTypes)
    ThrowAtPath(path, StrCat("no attribute type is called '", name, "'", SuggestName(name, known)));
  const Json& value = json.begin().value();
  const std::string at = Member(path, name);
  const bool is_list = type >= static_cast<int>(AttributeType::kInts);
  switch (static_cast<AttributeType>(type % 5)) {
    case AttributeType::kFloat:
      return ListFromJson<double>(value, at, is_list, FloatFromJson);
    case AttributeType::kBool:
      return ListFromJson<bool>(value, at, is_list, BoolFromJson);
    case AttributeType::kString:
      return ListFromJson<std::string>(value, at, is_list, StringFromJson);
    case AttributeType::kTensor:
      return ListFromJson<Tensor>(value, at, is_list, TensorFromJson);
    default:
      return ListFromJson<int64_t>(value, at, is_list, IntFromJson);
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_JSON_VALUES_HPP_
