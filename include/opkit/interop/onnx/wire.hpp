// WireMessage: reads protobuf messages field by field, with protozero. For a field of a wrong wire
// type, or bytes that end early, throws an Error; protozero itself would assert. The fields of
// ONNX's messages have their names here.
#ifndef OPKIT_INTEROP_ONNX_WIRE_HPP_
#define OPKIT_INTEROP_ONNX_WIRE_HPP_

#include <protozero/pbf_reader.hpp>
#include <string_view>

#include "opkit/base/error.hpp"
#include "opkit/base/function_ref.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The field numbers of ONNX's messages, from onnx.proto of ONNX 1.22 (https://onnx.ai/onnx/api).
// clang-format off
struct OnnxModelField { enum : int { kIrVersion = 1, kProducerName, kProducerVersion, kDomain,
  kModelVersion, kDocString, kGraph, kOpsetImport, kMetadataProps = 14, kFunctions = 25 }; };
struct OnnxOpsetField { enum : int { kDomain = 1, kVersion }; };
struct OnnxGraphField { enum : int { kNode = 1, kName, kInitializer = 5, kInput = 11, kOutput,
  kValueInfo, kSparseInitializer = 15, kMetadataProps }; };
struct OnnxNodeField { enum : int { kInput = 1, kOutput, kName, kOpType, kAttribute, kDomain = 7,
  kOverload, kMetadataProps }; };
struct OnnxAttributeField { enum : int { kName = 1, kF, kI, kS, kT, kG, kFloats, kInts, kStrings,
  kTensors, kGraphs, kType = 20, kRefAttrName }; };
struct OnnxFunctionField { enum : int { kName = 1, kInput = 4, kOutput, kNode = 7,
  kOpsetImport = 9, kDomain, kAttributeProto, kOverload = 13 }; };
struct OnnxValueInfoField { enum : int { kName = 1, kType }; };
struct OnnxTypeField { enum : int { kTensor = 1, kSequence = 4, kMap, kOpaque = 7, kSparseTensor,
  kOptional }; };
struct OnnxTensorTypeField { enum : int { kElemType = 1, kShape }; };
struct OnnxContainerTypeField { enum : int { kElemType = 1 }; };
struct OnnxShapeField { enum : int { kDim = 1 }; };
struct OnnxDimField { enum : int { kValue = 1, kParam }; };
struct OnnxTensorField { enum : int { kDims = 1, kDataType, kSegment, kFloatData, kStringData = 6,
  kName = 8,
  kRawData, kDoubleData, kExternalData = 13, kDataLocation }; };
struct OnnxSequenceField { enum : int { kName = 1, kElemType, kTensors }; };
struct OnnxOptionalField { enum : int { kName = 1, kElemType, kTensor, kSparseTensor, kSequence }; };
struct OnnxSparseTensorField { enum : int { kValues = 1 }; };
struct OnnxEntryField { enum : int { kKey = 1, kValue }; };
// clang-format on

// Calls `call` and puts the place before the message of its Error: "node 'a': attribute 'b': …".
// `place` is a function, so that its text is made only for an Error.
template <class Call>
auto AtOnnxPlace(FunctionRef<std::string()> place, Call call) {
  try {
    return call();
  } catch (const Error& error) {
    Throw(error.code(), place(), ": ", error.message());
  }
}

// Calls AtOnnxPlace with a place such as "attribute 'axis'".
template <class Call>
auto AtOnnxPlace(const char* kind, const std::string& name, Call call) {
  return AtOnnxPlace([&] { return StrCat(kind, " '", name, "'"); }, call);
}

// A message, read field by field. The bytes must outlive it.
//
//   for (WireMessage message(bytes); message.Next();)
//     if (message.field() == OnnxNodeField::kName) name = message.Bytes();
class WireMessage {
 public:
  explicit WireMessage(std::string_view bytes) : reader_(bytes.data(), bytes.size()) {}

  // Moves to the next field; skips the present field if it was not read. False at the end.
  bool Next() {
    const bool skip = unread_;
    Call([&] {
      if (skip) reader_.skip();
      unread_ = reader_.next();
      field_ = static_cast<int>(reader_.tag());  // protozero forgets the tag with the value
    });
    return unread_;
  }
  int field() const { return field_; }

  std::string_view Bytes() {
    Expect(protozero::pbf_wire_type::length_delimited, "bytes");
    protozero::data_view view;
    Call([&] { view = reader_.get_view(); });
    return {view.data(), view.size()};
  }
  std::string String() { return std::string(Bytes()); }
  int64_t Int() {
    Expect(protozero::pbf_wire_type::varint, "an integer");
    int64_t value = 0;
    Call([&] { value = reader_.get_int64(); });
    return value;
  }

  // Calls f with each value that this field adds to a repeated field: one value, or several if
  // packed.
  void EachInt(FunctionRef<void(int64_t)> f) {
    if (!IsPacked()) return f(Int());
    Call([&] {
      for (const int64_t value : reader_.get_packed_int64()) f(value);
    });
  }
  void EachFloat(FunctionRef<void(float)> f) {
    if (!IsPacked()) Expect(protozero::pbf_wire_type::fixed32, "a float");
    Call([&] {
      if (!IsPacked()) return f(reader_.get_float());
      for (const float value : reader_.get_packed_float()) f(value);
    });
  }
  void EachDouble(FunctionRef<void(double)> f) {
    if (!IsPacked()) Expect(protozero::pbf_wire_type::fixed64, "a double");
    Call([&] {
      if (!IsPacked()) return f(reader_.get_double());
      for (const double value : reader_.get_packed_double()) f(value);
    });
  }
  // Returns the number of values for which Each… would call f. A packed value has `width` bytes; 0
  // means integers of variable length.
  int64_t Count(int64_t width) {
    if (!IsPacked()) return 1;
    const std::string_view bytes = Bytes();
    if (width > 0) return static_cast<int64_t>(bytes.size()) / width;
    int64_t count = 0;
    for (const char byte : bytes) count += (byte & 0x80) == 0;
    return count;
  }

 private:
  bool IsPacked() const {
    return reader_.has_wire_type(protozero::pbf_wire_type::length_delimited);
  }
  void Expect(protozero::pbf_wire_type type, const char* what) const {
    if (!reader_.has_wire_type(type))
      Throw(ErrorCode::kInvalidArgument, "field ", field_, " should hold ", what,
            ", but its wire type is ", static_cast<int>(reader_.wire_type()),
            "; the file is damaged, or not an ONNX file");
  }
  // Reads the field. Converts protozero's exceptions to an Error.
  void Call(FunctionRef<void()> read) {
    unread_ = false;
    try {
      read();
    } catch (const protozero::exception& error) {
      Throw(ErrorCode::kInvalidArgument, "the bytes end early or are damaged (", error.what(),
            "); or is it no ONNX file at all?");
    }
  }

  protozero::pbf_reader reader_;
  int field_ = 0;
  bool unread_ = false;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_ONNX_WIRE_HPP_
