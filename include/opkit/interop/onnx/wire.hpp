// WireMessage: reads protobuf messages field by field, with protozero. For a field of a wrong wire
// type, or bytes that end early, throws an Error; protozero itself would assert.
#ifndef OPKIT_INTEROP_ONNX_WIRE_HPP_
#define OPKIT_INTEROP_ONNX_WIRE_HPP_

#include <protozero/pbf_reader.hpp>
#include <string_view>

#include "opkit/base/error.hpp"
#include "opkit/base/function_ref.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

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

// A message, read field by field. The bytes must outlive it.
//
//   for (WireMessage message(bytes); message.Next();)
//     if (message.field() == 1) name = message.Bytes();
class WireMessage {
 public:
  explicit WireMessage(std::string_view bytes) : reader_(bytes.data(), bytes.size()) {}

  // Moves to the next field; skips the present field if it was not read. False at the end.
  bool Next() {
    const bool skip = unread_;
    Call([&] {
      if (skip) reader_.skip();
      unread_ = reader_.next();
      field_ = static_cast<int>(reader_.tag());  // protozero forgets it after reading the value
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
  // means integers.
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

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_INTEROP_ONNX_WIRE_HPP_
