// Protobuf messages field by field, over protozero: a field of another wire type than its
// definition says, or bytes that end early, are an Error here and never an assertion.
#ifndef OPKIT_INTEROP_ONNX_WIRE_HPP_
#define OPKIT_INTEROP_ONNX_WIRE_HPP_

#include <protozero/pbf_reader.hpp>
#include <string_view>

#include "opkit/base/error.hpp"
#include "opkit/base/function_ref.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// Errors of `call` get the place before their message: "node 'a': attribute 'b': …". `place` is a
// function, so that text is made only for an Error. (Neither a template nor inlined, as nothing of
// this reader is: it is read once, and compiled by whoever includes it.)
OPKIT_COLD inline void AtOnnxPlace(FunctionRef<std::string()> place, FunctionRef<void()> call) {
  try {
    call();
  } catch (const Error& error) {
    Throw(error.code(), place(), ": ", error.message());
  }
}

// Walks one message; the bytes must outlive it.
//
//   for (WireMessage message(bytes); message.Next();)
//     if (message.field() == 1) name = message.Bytes();
//     else message.Skip();
class WireMessage {
 public:
  explicit WireMessage(std::string_view bytes) : reader_(bytes.data(), bytes.size()) {}

  // Each field must be read or skipped before the next.
  OPKIT_COLD bool Next() {
    bool found = false;
    Call([&] {
      found = reader_.next();
      field_ = static_cast<int>(reader_.tag());  // protozero forgets it once the value was read
    });
    return found;
  }
  int field() const { return field_; }

  OPKIT_COLD void Skip() {
    Call([&] { reader_.skip(); });
  }
  OPKIT_COLD std::string_view Bytes() {
    Expect(protozero::pbf_wire_type::length_delimited, "bytes");
    protozero::data_view view;
    Call([&] { view = reader_.get_view(); });
    return {view.data(), view.size()};
  }
  OPKIT_COLD std::string String() { return std::string(Bytes()); }
  OPKIT_COLD int64_t Int() {
    Expect(protozero::pbf_wire_type::varint, "an integer");
    int64_t value = 0;
    Call([&] { value = reader_.get_int64(); });
    return value;
  }

  // The values of a repeated field, of which this is a part: packed, or a single one.
  OPKIT_COLD void EachInt(FunctionRef<void(int64_t)> f) {
    if (!IsPacked()) return f(Int());
    Call([&] {
      for (const int64_t value : reader_.get_packed_int64()) f(value);
    });
  }
  OPKIT_COLD void EachFloat(FunctionRef<void(float)> f) {
    if (!IsPacked()) Expect(protozero::pbf_wire_type::fixed32, "a float");
    Call([&] {
      if (!IsPacked()) return f(reader_.get_float());
      for (const float value : reader_.get_packed_float()) f(value);
    });
  }
  OPKIT_COLD void EachDouble(FunctionRef<void(double)> f) {
    if (!IsPacked()) Expect(protozero::pbf_wire_type::fixed64, "a double");
    Call([&] {
      if (!IsPacked()) return f(reader_.get_double());
      for (const double value : reader_.get_packed_double()) f(value);
    });
  }
  // How many values Each… would give, of `width` bytes each when packed, 0 for integers. Reads the
  // field.
  OPKIT_COLD int64_t Count(int64_t width) {
    if (!IsPacked()) return Skip(), 1;
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
  OPKIT_COLD void Expect(protozero::pbf_wire_type type, const char* what) const {
    if (!reader_.has_wire_type(type))
      Throw(ErrorCode::kInvalidArgument, "field ", field_, " should hold ", what,
            ", but its wire type is ", static_cast<int>(reader_.wire_type()),
            "; the file is damaged, or not an ONNX file");
  }
  // protozero's exceptions as an Error.
  OPKIT_COLD static void Call(FunctionRef<void()> read) {
    try {
      read();
    } catch (const protozero::exception& error) {
      Throw(ErrorCode::kInvalidArgument, "the bytes end early or are damaged (", error.what(),
            "); or is it no ONNX file at all?");
    }
  }

  protozero::pbf_reader reader_;
  int field_ = 0;
};

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_INTEROP_ONNX_WIRE_HPP_
