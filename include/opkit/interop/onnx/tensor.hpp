// ReadOnnxTensor: makes Tensors from TensorProtos (initializers, attributes and test data of ONNX
// files), if possible without copying their bytes. Source: onnx.proto of ONNX 1.22
// (https://onnx.ai/onnx/api).
#ifndef OPKIT_INTEROP_ONNX_TENSOR_HPP_
#define OPKIT_INTEROP_ONNX_TENSOR_HPP_

#include "opkit/core/packed.hpp"
#include "opkit/core/sequence.hpp"
#include "opkit/interop/onnx/external_data.hpp"
#include "opkit/interop/onnx/wire.hpp"
#include "opkit/ops/support/convert.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline constexpr int kMaxOnnxRank = 64;

// Returns the name of a TensorProto.DataType by its number, up to INT2 of ONNX 1.22.
inline const char* OnnxTypeName(int64_t type) {
  constexpr const char* kNames[] = {
      "undefined",      "float",    "uint8",        "int8",           "uint16",
      "int16",          "int32",    "int64",        "string",         "bool",
      "float16",        "double",   "uint32",       "uint64",         "complex64",
      "complex128",     "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
      "float8e5m2fnuz", "uint4",    "int4",         "float4e2m1",     "float8e8m0",
      "uint2",          "int2"};
  return type >= 0 && type < static_cast<int64_t>(std::size(kNames)) ? kNames[type] : "unknown";
}
// Returns the DType for a TensorProto.DataType. Throws kUnsupported for a type without a DType,
// kInvalidArgument for a number that ONNX does not define.
inline DType CheckedOnnxDType(int64_t type) {
  const DType dtype = OnnxDType(type);
  if (dtype != DType::kUndefined) return dtype;
  const bool known = type > 0 && type < 27;
  Throw(known ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument, "element type ", type, " (",
        OnnxTypeName(type), ")",
        known ? " is not one of opkit's; convert the model to a numeric type of 8 bits or more"
              : " is none of ONNX's");
}

// A field of TensorProto that holds typed values.
struct OnnxValueField {
  int number;
  const char* name;
  int64_t width;  // bytes of a packed value; 0: varints; -1: strings, which are not packed
};
inline constexpr OnnxValueField kOnnxValueFields[] = {
    {4, "float_data", 4}, {5, "int32_data", 0},   {6, "string_data", -1},
    {7, "int64_data", 0}, {10, "double_data", 8}, {11, "uint64_data", 0}};
// Returns the description of a field; null for a field without values.
constexpr const OnnxValueField* FindOnnxValueField(int number) {
  for (const OnnxValueField& field : kOnnxValueFields)
    if (field.number == number) return &field;
  return nullptr;
}
// Returns the typed field for the values of a dtype.
constexpr const OnnxValueField* OnnxValueFieldOf(DType dtype) {
  if (dtype == DType::kString) return FindOnnxValueField(OnnxTensorField::kStringData);
  const bool is_unsigned = dtype == DType::kUInt32 || dtype == DType::kUInt64;
  return FindOnnxValueField(dtype == DType::kFloat32 || dtype == DType::kComplex64    ? 4
                            : dtype == DType::kInt64                                  ? 7
                            : dtype == DType::kFloat64 || dtype == DType::kComplex128 ? 10
                            : is_unsigned                                             ? 11
                                                                                      : 5);
}

// The fields of a TensorProto. The values are still in `message`.
struct OnnxTensorHeader {
  std::string_view message;
  std::string_view name;
  std::vector<int64_t> dims;
  int64_t type = 0;
  bool has_raw = false;
  std::string_view raw;
  const OnnxValueField* values_field = nullptr;  // the typed field, such as float_data; null: none
  int64_t values = 0;                            // number of values in that field
  bool is_external = false;
  bool is_segment = false;
  OnnxExternalEntry external;
};

// Reads the fields to `out`. After an Error `out` has the fields that were read before it.
inline void ReadOnnxTensorHeader(std::string_view bytes, OnnxTensorHeader& out) {
  out.message = bytes;
  for (WireMessage message(bytes); message.Next();) {
    const int field = message.field();
    if (field == OnnxTensorField::kDims) {
      message.EachInt([&](int64_t extent) {
        if (out.dims.size() == kMaxOnnxRank)
          Throw(ErrorCode::kUnsupported, "it has more than ", kMaxOnnxRank, " dimensions");
        out.dims.push_back(extent);
      });
    } else if (field == OnnxTensorField::kDataType) {
      out.type = message.Int();
    } else if (field == OnnxTensorField::kSegment) {
      out.is_segment = true;
    } else if (field == OnnxTensorField::kName) {
      out.name = message.Bytes();
    } else if (field == OnnxTensorField::kRawData) {
      out.has_raw = true;
      out.raw = message.Bytes();
    } else if (field == OnnxTensorField::kExternalData) {
      out.external.Read(message.Bytes());
    } else if (field == OnnxTensorField::kDataLocation) {
      out.is_external = message.Int() == 1;
    } else if (const OnnxValueField* values = FindOnnxValueField(field)) {
      const int64_t count = values->width < 0 ? 1 : message.Count(values->width);
      if (count > 0 && out.values_field && out.values_field != values)
        Throw(ErrorCode::kInvalidArgument, "it has values in ", out.values_field->name, " and in ",
              values->name);
      if (count > 0) out.values_field = values;
      out.values += count;
    }
  }
}

// Reads the values of a typed field. Throws kInvalidArgument unless there are as many values as
// elements (two for a complex element).
class OnnxTypedValues {
 public:
  static Tensor Read(const OnnxTensorHeader& header, Shape shape, DType dtype) {
    const OnnxValueField* field = OnnxValueFieldOf(dtype);
    if (header.values_field && header.values_field != field)
      Throw(ErrorCode::kInvalidArgument, "its values are in ", header.values_field->name,
            ", but those of ", dtype, " belong in ", field->name);
    const int64_t parts = IsComplex(dtype) ? 2 : 1;
    // A value of a packed dtype is a byte of elements.
    const int64_t values = IsPacked(dtype) ? BytesOf(shape.numel(), dtype) : shape.numel();
    int64_t needed = 0;
    if (__builtin_mul_overflow(values, parts, &needed) || header.values != needed)
      Throw(ErrorCode::kInvalidArgument, "it has ", header.values, " values, but ", dtype,
            ToString(shape), " needs ", values, parts > 1 ? " times two" : "");
    Tensor out(std::move(shape), dtype);
    if (needed > 0) Fill(header.message, field->number, out);
    ClearUnusedBits(dtype, out.numel(), out.raw_mutable_data());
    return out;
  }

 private:
  static void Fill(std::string_view bytes, int field, Tensor& out) {
    char* to = static_cast<char*>(out.raw_mutable_data());
    const auto put = [&](const auto& value, size_t size) {
      std::memcpy(to, &value, size);
      to += size;
    };
    if (out.dtype() == DType::kString) {
      auto* strings = out.mutable_data<std::string>();
      for (WireMessage message(bytes); message.Next();)
        if (message.field() == field) *strings++ = message.String();
      return;
    }
    const auto size = IsPacked(out.dtype()) ? 1 : static_cast<size_t>(ItemSize(out.dtype()));
    for (WireMessage message(bytes); message.Next();) {
      if (message.field() != field) continue;
      if (field == OnnxTensorField::kFloatData)
        message.EachFloat([&](float value) { put(value, sizeof value); });
      else if (field == OnnxTensorField::kDoubleData)
        message.EachDouble([&](double value) { put(value, sizeof value); });
      else  // the low bytes are the value, if it fits
        message.EachInt([&](int64_t value) { put(Checked(value, out.dtype()), size); });
    }
  }
  // Returns a value of `dtype`. Throws kOutOfRange if it does not fit.
  static int64_t Checked(int64_t value, DType dtype) {
    if (dtype == DType::kBool) return value != 0;
    if (IsPacked(dtype)) return Checked(value, DType::kUInt8);
    if (ItemSize(dtype) == 8) return value;
    const bool is_signed = dtype >= DType::kInt8 && dtype <= DType::kInt64;
    const auto bits = static_cast<int>(8 * ItemSize(dtype));
    const int64_t low = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
    const int64_t high = (int64_t{1} << (bits - (is_signed ? 1 : 0))) - 1;
    if (value < low || value > high)
      Throw(ErrorCode::kOutOfRange, "its value ", value, " does not fit in the ", bits, "-bit ",
            is_signed ? "integer" : "unsigned integer", " of its type");
    return value;
  }
};

// The source of a tensor's bytes.
struct OnnxTensorSource {
  Storage storage;  // contains the message's bytes, for tensors to share; null: copy them
  OnnxExternalData* external = nullptr;  // null: external data is an Error
};

// Makes a tensor of dense bytes. Shares `storage` if it contains the bytes and they are aligned,
// else copies them.
inline Tensor TensorOfOnnxBytes(std::string_view raw, const Storage& storage, Shape shape,
                                DType dtype) {
  static_assert(std::endian::native == std::endian::little,
                "ONNX files are little-endian; this machine would have to swap bytes");
  if (dtype == DType::kString && raw.empty() && shape.numel() == 0)
    return Tensor(std::move(shape), dtype);
  if (dtype == DType::kString)
    Throw(ErrorCode::kInvalidArgument, "its strings are in raw data, but belong in string_data");
  const int64_t needed = Tensor::CheckedBytes(shape, dtype);
  if (static_cast<uint64_t>(needed) != raw.size())
    Throw(ErrorCode::kInvalidArgument, "its data has ", raw.size(), " bytes, but ", dtype,
          ToString(shape), " needs ", needed);
  if (needed == 0) return Tensor(std::move(shape), dtype);
  const int64_t alignment = IsPacked(dtype) ? 1 : (std::min)(ItemSize(dtype), int64_t{8});
  bool usable =
      storage && reinterpret_cast<uintptr_t>(raw.data()) % static_cast<uintptr_t>(alignment) == 0;
  usable &= !HasUnusedBits(dtype, shape.numel(), raw.data());
  if (dtype == DType::kBool)  // ONNX may store true as another byte than 1, which is no C++ bool
    for (const char byte : raw) usable &= byte == 0 || byte == 1;
  if (usable)
    return Tensor(storage, raw.data() - static_cast<const char*>(storage->data()), std::move(shape),
                  dtype);
  Tensor out(std::move(shape), dtype);
  char* to = static_cast<char*>(out.raw_mutable_data());
  std::memcpy(to, raw.data(), raw.size());
  if (dtype == DType::kBool)
    for (int64_t i = 0; i < needed; ++i) to[i] = to[i] != 0;
  ClearUnusedBits(dtype, out.numel(), to);
  if (storage) ForgetMapped(raw.data(), raw.size());
  return out;
}

inline Tensor ReadOnnxTensor(const OnnxTensorHeader& header, const OnnxTensorSource& source) {
  const DType dtype = CheckedOnnxDType(header.type);
  if (header.is_segment)
    Throw(ErrorCode::kUnsupported, "it is a segment of a tensor; store it whole");
  Shape shape(header.dims);
  if (header.is_external) {
    if (header.has_raw || header.values > 0)
      Throw(ErrorCode::kInvalidArgument, "it has data of its own beside external data");
    if (!source.external)
      Throw(ErrorCode::kUnsupported, "its data is in the file '", header.external.location,
            "', and external data cannot be read here");
    if (dtype == DType::kString)
      Throw(ErrorCode::kInvalidArgument, "its strings are external, but belong in string_data");
    const int64_t needed = Tensor::CheckedBytes(shape, dtype);
    const OnnxExternalBytes bytes = source.external->Get(header.external, needed);
    return AtOnnxPlace("external data in", header.external.location,
                       [&] { return TensorOfOnnxBytes(bytes.view, bytes.storage, shape, dtype); });
  }
  if (header.has_raw && header.values == 0)
    return TensorOfOnnxBytes(header.raw, source.storage, std::move(shape), dtype);
  if (!header.raw.empty())
    Throw(ErrorCode::kInvalidArgument, "it has values in ", header.values_field->name,
          " and in raw_data");
  return OnnxTypedValues::Read(header, std::move(shape), dtype);
}
// Reads a TensorProto. Errors begin with the tensor's name.
inline Tensor ReadOnnxTensor(std::string_view bytes, const OnnxTensorSource& source) {
  OnnxTensorHeader header;
  return AtOnnxPlace(
      [&] {
        return header.name.empty() ? std::string("tensor") : StrCat("tensor '", header.name, "'");
      },
      [&] {
        ReadOnnxTensorHeader(bytes, header);
        return ReadOnnxTensor(header, source);
      });
}

// Reads a SequenceProto of tensors. Throws kUnsupported for other elements.
inline Tensor ReadOnnxSequence(std::string_view bytes) {
  std::vector<Tensor> elements;
  for (WireMessage message(bytes); message.Next();)
    if (message.field() == OnnxSequenceField::kTensors)
      elements.push_back(ReadOnnxTensor(message.Bytes(), {}));
    else if (message.field() > OnnxSequenceField::kTensors)
      Throw(ErrorCode::kUnsupported, "a sequence has elements that are no dense tensors");
  return MakeSequence(elements);
}
// Reads an OptionalProto of a tensor or a sequence. Throws kUnsupported for another element.
inline Tensor ReadOnnxOptional(std::string_view bytes) {
  std::optional<Tensor> element;
  for (WireMessage message(bytes); message.Next();)
    if (message.field() == OnnxOptionalField::kTensor)
      element = ReadOnnxTensor(message.Bytes(), {});
    else if (message.field() == OnnxOptionalField::kSequence)
      element = ReadOnnxSequence(message.Bytes());
    else if (message.field() >= OnnxOptionalField::kSparseTensor)
      Throw(ErrorCode::kUnsupported, "an optional value is neither a dense tensor nor a sequence");
  return MakeOptional(element);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_ONNX_TENSOR_HPP_
